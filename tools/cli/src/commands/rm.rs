//! `iov rm`: removes names, and with the last name the collection.

use ioverbs::{Error, Kind, Name, Op, Uuid, Which, Workspace, catalog::SearchSpec};

use crate::{
    address::Address,
    ctx::Ctx,
    facts::{self, members},
    failure::{Done, Failure, Next},
    locate::What,
};

/// Remove collections and empty groups
///
/// What has several names loses the one that is given; by its UUID it loses all of them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// WS/NAME, WS/GROUP/NAME or WS/uuid:…, which removes all names
    #[arg(required = true, value_parser = Address::parser())]
    addresses: Vec<Address>,

    /// Groups with all that is in them
    #[arg(short, long)]
    recursive: bool,

    /// Do not mind what is not there
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    for address in &args.addresses {
        match one(ctx, args, address) {
            Err(e) if args.force && e.kind() == Some(Kind::NotFound) => {}
            Err(e) => ctx.tell(e)?,
            Ok(()) => {}
        }
    }
    Ok(())
}

fn one(ctx: &mut Ctx, args: &Args, address: &Address) -> Done {
    let located = ctx.locate(address)?;
    if let What::Root = located.what {
        let error = Error::invalid(format!("{address} is a workspace, and rm removes what is in one"));
        return Err(error).next(|| format!("iov ws rm {}", address.quoted()));
    }
    let facts = located.facts()?.clone();
    if facts.is_group() && args.recursive {
        empty(ctx, &located.ws, facts.uuid)?;
    }
    let which = address.path.last().cloned().unwrap_or(Which::Uuid(facts.uuid));
    let parent = ctx.open_group(&located.ws, located.group)?;
    let delete = Op::Delete { w: located.ws.clone(), parent, which };
    match ioverbs::run(located.ws.session(), delete) {
        Err(e) if e.kind() == Kind::NotEmpty && !args.recursive => {
            Err(e.context(address)).next(|| format!("iov rm -r {} removes it with all that is in it", address.quoted()))
        }
        done => Ok(done.map(drop).map_err(|e| e.context(address))?),
    }
}

/// How many names go in one request.
const PORTION: usize = 1000;

/// Removes all that is in a group, portion by portion.
pub(crate) fn empty(ctx: &mut Ctx, ws: &Workspace, group: Uuid) -> Done {
    let parent = ctx.open_group(ws, group)?;
    // What could not be removed stays, so a listing that begins anew must end when nothing goes any more.
    loop {
        ctx.stop.check()?;
        let spec = SearchSpec { limit: PORTION as u64, ..members(group, &[]) };
        let entries = facts::search(ws, spec)?.next_page(PORTION)?;
        if entries.is_empty() {
            return Ok(());
        }
        for below in entries.iter().filter(|e| e.kind == ioverbs::EntryKind::Group) {
            empty(ctx, ws, below.uuid)?;
        }
        let names: Vec<Name> = entries.into_iter().filter_map(|e| e.name).collect();
        let delete =
            |name: &Name| Op::Delete { w: ws.clone(), parent: parent.clone(), which: Which::Name(name.clone()) }.into();
        let statuses = ctx.batch(names.iter().map(delete).collect())?;
        let mut removed = 0;
        for (name, status) in names.iter().zip(statuses) {
            match status.result() {
                Ok(()) => removed += 1,
                // Somebody else was faster.
                Err(e) if e.kind() == Kind::NotFound => removed += 1,
                Err(e) => ctx.tell(e.context(format_args!("{name:?}")).into())?,
            }
        }
        if removed < names.len() {
            return Err(Failure::Told(Kind::NotEmpty));
        }
    }
}
