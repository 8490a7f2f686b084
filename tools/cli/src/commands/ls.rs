//! `iov ls`: names in a workspace or group, and workspaces.

use ioverbs::{EntryKind, Uuid, Which, Workspace};

use crate::{
    address::Address,
    ctx::Ctx,
    facts::{self, Facts, everything, members},
    failure::Done,
    locate::What,
    output::JsonList,
    quantity,
};

/// List the names in a workspace or group
///
/// Without an address the workspaces are listed.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// WS or WS/GROUP; of a collection its own line is shown
    #[arg(value_parser = Address::parser())]
    addresses: Vec<Address>,

    /// Kind, state, size, time of change, name
    #[arg(short, long)]
    long: bool,

    /// Also what is in groups
    #[arg(short, long)]
    recursive: bool,

    /// Sizes in bytes
    #[arg(long)]
    bytes: bool,

    /// End each name with NUL, for xargs -0
    #[arg(short = '0', long, conflicts_with = "long")]
    null: bool,
}

impl Args {
    /// What `iov ws list` means.
    pub(crate) fn of_workspaces(long: bool, bytes: bool) -> Args {
        Args { addresses: Vec::new(), long, recursive: false, bytes, null: false }
    }
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let mut list = Listing { args, json: JsonList::default() };
    if args.addresses.is_empty() {
        list.workspaces(ctx)?;
    }
    for address in &args.addresses {
        list.address(ctx, address).or_else(|e| ctx.tell(e))?;
    }
    if ctx.global.json { ctx.end_list(&list.json) } else { Ok(()) }
}

struct Listing<'a> {
    args: &'a Args,
    json: JsonList,
}

impl Listing<'_> {
    fn keys(&self, ctx: &Ctx) -> &'static [&'static str] {
        if ctx.global.json {
            facts::KEYS
        } else if self.args.long {
            &["iov.size", "iov.mtime", "iov.state"]
        } else {
            &[]
        }
    }

    fn workspaces(&mut self, ctx: &mut Ctx) -> Done {
        let session = ctx.session()?;
        let keys = self.keys(ctx);
        let mut below = Vec::new();
        let mut results = facts::search_workspaces(
            &session,
            ioverbs::catalog::SearchSpec { order: Some("iov.name".into()), ..everything(keys) },
        )?;
        while let Some(entry) = results.next()? {
            let facts = Facts::new(entry);
            let label = facts.label();
            self.line(ctx, &facts, &label, &label)?;
            below.extend(facts.name.filter(|_| self.args.recursive));
        }
        drop(results);
        for name in below {
            let mut prefix = name.as_bytes().to_vec();
            prefix.push(b'/');
            let address = Address { store: None, workspace: Which::Name(name), path: Vec::new(), slash: false };
            let ws = ctx.workspace(&address)?;
            self.group(ctx, &ws, &address, Uuid::NIL, &mut prefix)?;
        }
        Ok(())
    }

    fn address(&mut self, ctx: &mut Ctx, address: &Address) -> Done {
        let located = ctx.locate(address)?;
        match (&located.what, located.as_group()) {
            (_, Some(group)) => self.group(ctx, &located.ws, address, group, &mut Vec::new()),
            (What::Found(facts), None) => self.line(ctx, facts, &address.to_bytes(), &address.to_bytes()),
            _ => located.facts().map(drop),
        }
    }

    /// The members of a group; with --recursive then those of the groups in it, each under its path from here.
    fn group(&mut self, ctx: &mut Ctx, ws: &Workspace, address: &Address, group: Uuid, prefix: &mut Vec<u8>) -> Done {
        let keys = self.keys(ctx);
        let mut below = Vec::new();
        let mut results = facts::search(ws, members(group, keys))?;
        while let Some(entry) = results.next()? {
            ctx.stop.check()?;
            let facts = Facts::new(entry);
            let mut shown = prefix.clone();
            shown.extend(facts.label());
            let part = facts.name.clone().map_or(Which::Uuid(facts.uuid), Which::Name);
            self.line(ctx, &facts, &shown, &address.join(part).to_bytes())?;
            if self.args.recursive && facts.is_group() {
                below.extend(facts.name.map(|name| (name, facts.uuid)));
            }
        }
        drop(results);
        let length = prefix.len();
        for (name, uuid) in below {
            prefix.extend_from_slice(name.as_bytes());
            prefix.push(b'/');
            self.group(ctx, ws, &address.join(Which::Name(name)), uuid, prefix)?;
            prefix.truncate(length);
        }
        Ok(())
    }

    fn line(&mut self, ctx: &mut Ctx, facts: &Facts, shown: &[u8], address: &[u8]) -> Done {
        if ctx.global.json {
            return self.json.item(&mut ctx.out, &facts.json(address).into());
        }
        let mut name = shown.to_vec();
        if facts.is_group() {
            name.push(b'/');
        }
        if self.args.long {
            let state = facts.state.as_deref().unwrap_or("-");
            let size = match facts.kind {
                EntryKind::Group => "-".into(),
                _ => quantity::size(facts.size, self.args.bytes),
            };
            let letter = &facts::kind_text(facts.kind)[..1];
            let time = quantity::local_minute(facts.mtime_ns);
            ctx.out.bytes(format!("{letter} {state:<7} {size:>11}  {time}  ").as_bytes())?;
        }
        ctx.out.name(&name, if self.args.null { b"\0" } else { b"\n" })
    }
}
