//! `iov umount`: a mounted workspace disappears from its directory.

use std::path::PathBuf;

use crate::{
    ctx::Ctx,
    failure::{Done, Next},
};

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
        let done = iov_fuse::unmount(at, args.lazy);
        done.next(|| "fuser -vm DIR tells who is in it; --lazy does not wait for them".into())
            .or_else(|e| ctx.tell(e))?;
    }
    Ok(())
}
