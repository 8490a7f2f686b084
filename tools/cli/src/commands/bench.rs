//! `iov bench`: figures beside the ceilings of this machine.

use std::path::PathBuf;

use ioverbs::Error;

use crate::{ctx::Ctx, failure::Done};

/// Measure this machine and this library, side by side
///
/// As in: iov bench micro --only file. --json
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Bandwidth, latency and metadata rates, one case after the other
    Micro {
        /// Where the store and the plain files of the ceilings lie
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
        /// Runs of each case
        #[arg(long, default_value_t = 5)]
        runs: usize,
        /// Collections in all, for the metadata cases
        #[arg(long, default_value_t = 1_000_000)]
        collections: u64,
        /// Only cases whose name contains this; may be given again
        #[arg(long)]
        only: Vec<String>,
        /// A directory on a disk, for the case that must survive power loss
        #[arg(long, default_value = "/var/tmp")]
        disk: PathBuf,
    },
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let What::Micro { dir, runs, collections, only, disk } = &args.what;
    let options = iov_bench::MicroOptions {
        dir: dir.clone(),
        runs: *runs,
        collections: *collections,
        only: only.clone(),
        disk: disk.clone(),
    };
    if *runs == 0 || *collections < iov_bench::LEAST_COLLECTIONS {
        let least = iov_bench::LEAST_COLLECTIONS;
        return Err(Error::invalid(format!("a benchmark makes at least one run, with {least} collections")).into());
    }
    let done = iov_bench::micro(options, |line| eprintln!("{line}"))
        .map_err(|e| Error::unavailable(format!("the benchmark failed: {e:#}")))?;
    if ctx.global.json {
        ctx.out.line(&done)?;
    }
    Ok(())
}

/// Runs a worker process of a benchmark, if that is what this process is.
pub(crate) fn worker() -> Option<std::process::ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_none_or(|first| first != iov_bench::WORKER_COMMAND) {
        return None;
    }
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    Some(match iov_bench::worker(&args) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("iov: {e:#}");
            std::process::ExitCode::FAILURE
        }
    })
}
