//! `iov keep`: how long collections stay when nobody deletes them.

use ioverbs::{Attr, EntryKind, Error, Lifetime, Op, text};

use crate::{address::Address, ctx::Ctx, failure::Done};

/// Say how long collections stay when nobody deletes them
///
/// Until somebody deletes them, which is what holds unless something else is said; or, with --lease, for a time after they were last open. A program binds what it makes to its own process by itself (iov_setattr, lifetime="process"); keep makes
/// that stay, too.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// WS/NAME or WS/GROUP/NAME
    #[arg(required = true, value_parser = Address::parser())]
    addresses: Vec<Address>,

    /// For this time after they were last open, as in 10min or 2d
    #[arg(long, value_name = "TIME")]
    lease: Option<String>,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let lifetime = match &args.lease {
        Some(time) => text::parse_lifetime(&format!("lease({time})")).map_err(|e| e.context("--lease"))?,
        None => Lifetime::KEPT,
    };
    for address in &args.addresses {
        one(ctx, address, lifetime).or_else(|e| ctx.tell(e))?;
    }
    Ok(())
}

fn one(ctx: &mut Ctx, address: &Address, lifetime: Lifetime) -> Done {
    let located = ctx.locate(address)?;
    if located.facts()?.kind != EntryKind::Collection {
        return Err(Error::invalid(format!("{address} is a group: a lifetime is a collection's")).into());
    }
    let c = located.spot(ctx)?.open(EntryKind::Collection)?;
    let attr = Attr { lifetime: Some(lifetime), ..Attr::default() };
    ioverbs::run(c.session(), Op::SetAttr { c: c.clone(), attr })?;
    Ok(ioverbs::close(&c)?)
}
