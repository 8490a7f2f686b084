//! `iov umount`: a mounted workspace disappears from its directory.

use std::path::PathBuf;

use ioverbs::Kind;

use crate::{ctx::Ctx, failure::Done};

/// Make a mounted workspace disappear from its directory; nothing that was written is lost
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Where it is mounted
    #[arg(value_name = "DIR", required = true)]
    at: Vec<PathBuf>,

    /// At once, also where programs are in it: those keep what they have open
    #[arg(long, short)]
    lazy: bool,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    for at in &args.at {
        let done = iov_fuse::unmount(at, args.lazy).map_err(|e| match e.kind() {
            Kind::Busy => e.with_next("fuser -vm DIR tells who is in it; --lazy does not wait for them"),
            _ => e,
        });
        done.or_else(|e| ctx.tell(e.into()))?;
    }
    Ok(())
}
