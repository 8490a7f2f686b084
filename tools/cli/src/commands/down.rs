//! `iov down`: ends the daemon of a store on this machine.

use serde_json::json;

use crate::{ctx::Ctx, failure::Done};

/// End the store's daemon
///
/// Nothing is lost: the next command starts it again.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

pub(crate) fn run(ctx: &mut Ctx, _: &Args) -> Done {
    let url = ctx.url()?;
    let ended = ioverbs::daemon_shutdown_within(&url, ctx.timeout_ns()?)?;
    if ctx.global.json {
        return ctx.out.line(json!({ "store": url, "ended": ended }));
    }
    let what = if ended { "its daemon has ended; the next command starts it again" } else { "no daemon runs" };
    ctx.out.line(format_args!("{url}: {what}"))
}
