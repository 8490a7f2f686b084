//! `iov look-at`: asks a mount for something, so that what lies in its queues is taken. The mount starts it; people have no use for it.

use std::path::PathBuf;

use ioverbs::Error;

use crate::failure::Done;

/// Ask a mount for something, on the processors that are told by standard input
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The directory on which it is
    at: PathBuf,
}

pub(crate) fn run(args: &Args) -> Done {
    iov_fuse::look_on(&args.at).map_err(|e| Error::from(e).context("what the mount tells"))?;
    Ok(())
}
