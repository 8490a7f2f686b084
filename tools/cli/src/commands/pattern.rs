//! `iov pattern`: on how many targets things lie, and on which.

use ioverbs::{Concurrency, Controls, EntryKind, Error, Layout, Op, Parent, Session, Which, Workspace, WorkspaceAttr};
use serde_json::json;

use crate::{
    address::Address,
    ctx::Ctx,
    failure::{Done, Next},
    output::Columns,
    quantity,
};

/// Show or set how bytes are spread over the store's targets
///
/// What a workspace or a group says holds for what is created in it from then on; what is there stays where it is.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Show it, of a collection with the targets that it lies on
    Get {
        /// A workspace, group or collection
        #[arg(value_parser = Address::parser())]
        address: Address,
    },
    /// Set it, for what is created there from now on; of a collection that has no bytes at a target yet, for itself
    Set {
        /// A workspace, group or collection
        #[arg(value_parser = Address::parser())]
        address: Address,
        #[command(flatten)]
        wish: Wish,
    },
}

/// What can be said.
#[derive(clap::Args, Debug)]
struct Wish {
    /// Over how many targets; 0 leaves it to the store, which takes one
    #[arg(long, value_name = "N")]
    targets: Option<u32>,

    /// Bytes on one target before the next, such as 4MiB; with request_size=N a multiple of N is taken
    #[arg(long, value_name = "SIZE")]
    chunk: Option<String>,

    /// In which storage, as iov targets names it: shmem, files, …; "any" leaves it to the store
    #[arg(long, value_name = "KIND")]
    storage: Option<String>,

    /// How targets are chosen: space (the more likely the more is free), round-robin, or targets:N,N… (these)
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
}

impl Wish {
    /// Lays it over what there is.
    fn over(&self, before: &Layout) -> Done<Layout> {
        let mut layout = Layout { place: Default::default(), revision: 0, ..before.clone() };
        if let Some(targets) = self.targets {
            layout.targets = targets;
        }
        if let Some(chunk) = &self.chunk {
            layout.chunk_size = quantity::read_size(chunk)?;
        }
        let name = |text: &String| (text != "any" && !text.is_empty()).then(|| text.clone());
        if let Some(storage) = &self.storage {
            layout.backend = name(storage);
        }
        if let Some(policy) = &self.policy {
            layout.policy = name(policy);
        }
        Ok(layout)
    }
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    match &args.what {
        What::Get { address } => get(ctx, address),
        What::Set { address, wish } => set(ctx, address, wish),
    }
}

fn is_workspace(address: &Address) -> bool {
    address.path.is_empty()
}

fn get(ctx: &mut Ctx, address: &Address) -> Done {
    let layout = if is_workspace(address) {
        ctx.workspace(address)?.layout().unwrap_or_default()
    } else {
        let located = ctx.locate(address)?;
        let facts = located.facts()?;
        let kind = if facts.is_group() { EntryKind::Group } else { EntryKind::Collection };
        let (ws, uuid) = (located.ws.clone(), facts.uuid);
        let handle = ctx.open(&ws, kind, uuid)?;
        let layout = handle.layout()?;
        ioverbs::close(&handle)?;
        layout
    };
    let collection = !is_workspace(address) && ctx.locate(address)?.as_group().is_none();
    let on = if collection { Some(targets_of(&ctx.session()?, &layout)?) } else { None };
    if ctx.global.json {
        return ctx.out.line(json!({
            "targets": layout.targets, "chunk_size": layout.chunk_size, "storage": layout.backend,
            "policy": layout.policy, "on": on,
        }));
    }
    let or = |text: Option<String>, else_: &str| text.unwrap_or_else(|| else_.to_owned());
    let number = |n: u64, text: String| (n > 0).then_some(text);
    let mut table = Columns::default();
    table.add("targets", or(number(layout.targets.into(), layout.targets.to_string()), "1, as the store chooses"));
    let chunk = number(layout.chunk_size, quantity::human(layout.chunk_size));
    table.add("chunk", or(chunk, "as the store chooses"));
    table.add("storage", or(layout.backend.clone(), "any"));
    table.add("policy", or(layout.policy.clone(), "space"));
    if let Some(on) = on {
        table.add("lies on", on.iter().map(u32::to_string).collect::<Vec<_>>().join(", "));
    }
    table.print(&mut ctx.out)
}

/// The numbers of the targets that a collection lies on.
fn targets_of(session: &Session, layout: &Layout) -> Done<Vec<u32>> {
    if layout.place.is_first() {
        return Ok(vec![0]);
    }
    let map = session.store_map()?;
    let pattern = map.patterns.into_iter().find(|pattern| pattern.number == layout.place.pattern());
    Ok(pattern
        .map(|pattern| pattern.targets)
        .ok_or_else(|| Error::internal("a pattern that the store does not know"))?)
}

fn set(ctx: &mut Ctx, address: &Address, wish: &Wish) -> Done {
    if wish.targets.is_none() && wish.chunk.is_none() && wish.storage.is_none() && wish.policy.is_none() {
        return Err(Error::invalid("nothing to set")).next(|| "iov pattern set --help lists what can be set".into());
    }
    if is_workspace(address) {
        let ws: Workspace = ctx.workspace(address)?;
        let layout = wish.over(&ws.layout().unwrap_or_default())?;
        let attr = WorkspaceAttr { layout: Some(layout), ..WorkspaceAttr::default() };
        return Ok(ioverbs::run(ws.session(), Op::WorkspaceSet { w: ws.clone(), attr }).map(drop)?);
    }
    let located = ctx.locate(address)?;
    let facts = located.facts()?;
    let kind = if facts.is_group() { EntryKind::Group } else { EntryKind::Collection };
    let handle = located.ws.pending(kind);
    // Only who holds it alone may change it.
    let controls = Controls { concurrency: Some(Concurrency::Exclusive), ..Controls::default() };
    let parent: Parent = None;
    let open = Op::Open { out: handle.clone(), parent, which: Which::Uuid(facts.uuid), controls };
    ioverbs::run(located.ws.session(), open)?;
    let layout = wish.over(&handle.layout()?)?;
    let done = ioverbs::run(located.ws.session(), Op::Set { c: handle.clone(), controls: None, layout: Some(layout) });
    ioverbs::close(&handle)?;
    Ok(done.map(drop)?)
}
