//! `iov mv`: moves and renames within a workspace, each in one step.

use ioverbs::{Clause, Error, Kind, Name, Op, Which, catalog::RenameMode};

use crate::{
    address::Address,
    ctx::Ctx,
    failure::{Done, Next},
    locate::{Located, What},
    options::IfExists,
    transfer::{
        given::Given,
        publish::{self, Unnamed},
    },
};

/// Move or rename collections and groups
///
/// Each moves within its workspace and in one step, a group with all it holds.
#[derive(clap::Args, Debug)]
#[command(override_usage = "iov mv [OPTIONS] <SOURCE>... <TARGET>")]
pub(crate) struct Args {
    /// What to move, and last where to: a new name, or a group
    #[arg(required = true, num_args = 2.., value_parser = Address::parser(), value_name = "SOURCE… TARGET")]
    addresses: Vec<Address>,

    /// What to do where the name is taken; a group that still holds something is never replaced
    #[arg(long, value_enum, default_value = "replace", value_name = "WHAT")]
    if_exists: IfExists,

    /// Swap the two names
    #[arg(long, conflicts_with = "if_exists")]
    exchange: bool,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let Some((target, sources)) = args.addresses.split_last() else {
        return Err(Error::invalid("mv needs a source and a target").into());
    };
    let to = ctx.locate(target)?;
    let into = to.as_group().filter(|_| !args.exchange);
    if into.is_none() && sources.len() > 1 {
        return Err(Error::invalid(format!("{target} is no group: several sources go into one")).into());
    }
    let mut given = Given::default();
    for source in sources {
        one(ctx, args, source, &to, &mut given).or_else(|e| ctx.tell(e))?;
    }
    Ok(())
}

fn one(ctx: &mut Ctx, args: &Args, source: &Address, to: &Located, given: &mut Given) -> Done {
    let from = ctx.locate(source)?;
    if let What::Root = from.what {
        let error = Error::invalid(format!("{source} is a workspace, and mv moves what is in one"));
        return Err(error).next(|| format!("iov ws set {} --name NEW", source.quoted()));
    }
    let facts = from.facts()?.clone();
    if from.ws.uuid() != to.ws.uuid() {
        let error = Error::unsupported("a name moves within its workspace: across workspaces the bytes must be copied");
        return Err(error.with_clause(Clause::O1))
            .next(|| format!("iov cp -r {0} {1}, then iov rm -r {0}", source.quoted(), to.address.quoted()));
    }
    let (group, name) = match (&to.what, to.as_group().filter(|_| !args.exchange)) {
        (_, Some(group)) => (group, facts.name.clone()),
        (What::Missing(name), _) if !to.address.slash => (to.group, Some(name.clone())),
        (What::Found(_), _) => (to.group, to.address.name().cloned()),
        _ => return to.facts().map(drop),
    };
    let name =
        name.ok_or_else(|| Error::invalid(format!("{source} has no name: say which one it gets, as in WS/NAME")))?;
    let address = || Address { slash: false, ..to.address.clone() }.join(Which::Name(name.clone()));
    if args.if_exists != IfExists::Skip {
        given.check(group, &name, address).map_err(|e| e.about(source))?;
    }
    let result = match &facts.name {
        Some(old) => rename(ctx, args, &from, old, group, &name),
        None => link(ctx, args, &from, group, &name),
    };
    if result.is_ok() {
        given.add(group, &name);
    }
    match result {
        Err(e) if e.kind() == Some(Kind::Exists) && args.if_exists == IfExists::Skip => Ok(()),
        Err(e) if e.kind() == Some(Kind::Exists) => Err(e.about(source))
            .next(|| "choose another name; without --if-exists it takes the place of what is there".into()),
        other => other.map_err(|e| e.about(source)),
    }
}

fn rename(ctx: &mut Ctx, args: &Args, from: &Located, old: &Name, group: ioverbs::Uuid, new: &Name) -> Done {
    let mode = match args.if_exists {
        _ if args.exchange => RenameMode::Exchange,
        IfExists::Replace => RenameMode::Replace,
        IfExists::Fail | IfExists::Skip => RenameMode::NoReplace,
    };
    let op = Op::Rename {
        w: from.ws.clone(),
        from_parent: ctx.open_group(&from.ws, from.group)?,
        from: old.clone(),
        to_parent: ctx.open_group(&from.ws, group)?,
        to: new.clone(),
        mode,
    };
    Ok(ioverbs::run(from.ws.session(), op).map(drop)?)
}

/// What has no name gets its first.
fn link(ctx: &mut Ctx, args: &Args, from: &Located, group: ioverbs::Uuid, name: &Name) -> Done {
    let facts = from.facts()?;
    let c = ctx.open(&from.ws, facts.kind, facts.uuid)?;
    let parent = ctx.open_group(&from.ws, group)?;
    let link = Op::Link { c: c.clone(), parent: parent.clone(), name: name.clone() };
    match ioverbs::run(from.ws.session(), link) {
        Err(e) if e.kind() == Kind::Exists && args.if_exists == IfExists::Replace && !args.exchange => {
            let unnamed = Unnamed { uuid: facts.uuid, parent, name: name.clone() };
            publish::replace(ctx, &from.ws, &unnamed, &c)?;
        }
        linked => drop(linked?),
    }
    Ok(ioverbs::close(&c)?)
}
