//! `iov tag`: shows and changes metadata.

use ioverbs::{BatchAttr, Collection, Consistency, EntryKind, Lent, Metadata, OnError, Op, OpState, Output};

use crate::{
    address::Address,
    commands::stat,
    ctx::Ctx,
    failure::{Done, Next},
    locate::{Located, What},
    pairs,
};

/// Show, set and remove metadata
///
/// All changes of one call take effect, or none.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// WS/NAME, WS/GROUP or WS
    #[arg(value_parser = Address::parser())]
    address: Address,

    /// Pairs to set; key:TYPE=value forces a type: str, i64, f64, bool, bytes or time
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,

    /// Keys to remove
    #[arg(short = 'd', long = "delete", value_name = "KEY")]
    delete: Vec<String>,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let system = || "choose a key that does not begin with iov.; `iov stat` shows the system's".to_owned();
    let key_of = |pair: &String| pair.split(['=', ':']).next().unwrap_or_default().to_owned();
    let is_system = args.pairs.iter().map(key_of).chain(args.delete.clone()).any(|key| key.starts_with("iov."));
    let read = pairs::read(&args.pairs)
        .and_then(|set| args.delete.iter().try_for_each(|key| Metadata::check_key(key)).map(|()| set));
    let set = if is_system { read.next(system)? } else { read? };
    let located = ctx.locate(&args.address)?;
    let c = handle(ctx, &located)?;
    if !set.is_empty() || !args.delete.is_empty() {
        change(ctx, &c, set, &args.delete)?;
    }
    if (args.pairs.is_empty() && args.delete.is_empty()) || ctx.global.json {
        show(ctx, &args.address, &c)?;
    }
    Ok(ioverbs::close(&c)?)
}

/// The root's metadata are the workspace's.
fn handle(ctx: &mut Ctx, located: &Located) -> Done<Collection> {
    let kind = match &located.what {
        What::Root => EntryKind::Group,
        _ => located.facts()?.kind,
    };
    located.spot(ctx)?.open(kind)
}

fn change(ctx: &mut Ctx, c: &Collection, set: Metadata, delete: &[String]) -> Done {
    let mut ops: Vec<Lent<'_>> =
        delete.iter().map(|key| Op::MetaRemove { c: c.clone(), key: key.clone() }.into()).collect();
    if !set.is_empty() {
        ops.push(Op::MetaPut { c: c.clone(), pairs: set }.into());
    }
    // One put is whole by itself. Eventual metadata know no rollback (B3): there the changes stop at the first failure.
    let on_error = match c.effective()?.consistency {
        Consistency::Eventual => OnError::Stop,
        _ if ops.len() == 1 => OnError::Stop,
        _ => OnError::Rollback,
    };
    let session = ctx.session()?;
    let attr = BatchAttr { on_error: Some(on_error), ..BatchAttr::default() };
    let statuses = ioverbs::run_batch(&session, attr, ops)?;
    let failed =
        statuses.iter().find(|s| s.state == OpState::Failed).or(statuses.iter().find(|s| s.state != OpState::Ok));
    Ok(failed.map_or(Ok(()), |s| s.result())?)
}

fn show(ctx: &mut Ctx, address: &Address, c: &Collection) -> Done {
    let status = ioverbs::run(c.session(), Op::MetaList { c: c.clone() })?;
    let Output::Metadata(metadata) = status.output else {
        return Err(ioverbs::Error::internal("a list of metadata was not answered by one").into());
    };
    let user: Vec<_> = metadata.iter().map(|(k, v)| (k.to_owned(), v.clone())).collect();
    if ctx.global.json {
        return ctx.out.line(stat::metadata_json(address, c.uuid()?, &user));
    }
    stat::metadata(ctx, &user)
}
