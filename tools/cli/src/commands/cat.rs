//! `iov cat`: bytes to standard output.

use crate::{address::Address, ctx::Ctx, failure::Done, quantity::Span, transfer::download};

/// Write the bytes of collections to standard output
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// WS/NAME or WS/GROUP/NAME
    #[arg(required = true, value_parser = Address::parser())]
    addresses: Vec<Address>,

    /// Only a part: FROM..TO, FROM.., ..TO or FROM+LENGTH, as in 1MiB+4KiB
    #[arg(long)]
    range: Option<String>,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let span = args.range.as_deref().map_or(Ok(Span::default()), Span::parse)?;
    for address in &args.addresses {
        one(ctx, address, span).map_err(|e| e.about(address)).or_else(|e| ctx.tell(e))?;
    }
    Ok(())
}

fn one(ctx: &mut Ctx, address: &Address, span: Span) -> Done {
    let located = ctx.locate(address)?;
    located.collection()?;
    let spot = located.spot(ctx)?;
    download::to_out(ctx, &spot, span).map(drop)
}
