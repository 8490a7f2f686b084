//! `iov down`: ends the daemon of a store on this machine, and gives its shared memory back.

use ioverbs::Error;
use serde_json::json;

use crate::{ctx::Ctx, failure::Done, quantity};

/// End the store's daemon, and give its shared memory back
///
/// Of a store in files nothing is lost: the next command starts the daemon again. The bytes of a store in shared memory go
/// with it, unless --keep is given, and those of a store in its daemon's own memory go always; what is known of the
/// collections stays.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Keep shared memory as it is
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let url = ctx.url()?;
    if args.keep && ioverbs::daemon_medium_within(&url, ctx.timeout_ns()?)? == Some("heap") {
        let why =
            "the bytes of this store are in its daemon's memory, and cannot be kept without it: copy them with iov get";
        return Err(Error::invalid(why).into());
    }
    let ended = ioverbs::daemon_shutdown_within(&url, ctx.timeout_ns()?)?;
    let freed = match args.keep {
        true => 0,
        false => release(&url)?,
    };
    if ctx.global.json {
        return ctx.out.line(json!({ "store": url, "ended": ended, "freed": freed }));
    }
    let afar = url.starts_with("iov:");
    let what = match (freed, ended) {
        (_, true) if afar => {
            "its daemon ends, and nothing listens there until iov up --listen on its machine".to_owned()
        }
        (0, true) => "its daemon has ended; the next command starts it again".to_owned(),
        (0, false) => "no daemon runs".to_owned(),
        (freed, _) => format!("down; {} of shared memory are free again", quantity::human(freed)),
    };
    ctx.out.line(format_args!("{url}: {what}"))
}

/// Only a store that says so keeps anything in shared memory: for others no program is started.
fn release(url: &str) -> ioverbs::Result<u64> {
    let Some(dir) = url.strip_prefix("file:") else { return Ok(0) };
    if !std::path::Path::new(dir).join("storage").exists() {
        return Ok(0);
    }
    ioverbs::store_release(url)
}
