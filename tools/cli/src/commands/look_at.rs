//! `iov look-at`: asks a mount for something, so that what lies in its queues is taken. The mount starts it; people have no use for it.

use std::path::PathBuf;

use ioverbs::{Error, kept, seam};

use crate::failure::Done;

/// Ask a mount for something, on the processors that are told by standard input
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The directory on which it is
    at: PathBuf,
}

pub(crate) fn run(args: &Args) -> Done {
    // What a mount in front was started with, such as locks and pipes, is not for this one, and a thread of the mount has started it, to which no signals come: those that end programs
    // end it.
    kept::close_inherited();
    seam::let_signals_in();
    seam::is_called(c"iov-look-at");
    iov_fuse::look_on(&args.at).map_err(|e| Error::from(e).context("what the mount tells"))?;
    Ok(())
}
