//! The daemon of a `file:` store directory. The library starts one on demand; it ends when nobody has used it for a while.
#![forbid(unsafe_code)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod begin;
mod certificate;
mod changes;
mod check;
mod detach;
mod fleet;
mod hold;
mod limits;
mod listen;
mod log;
mod member;
mod serve;
mod storage;
mod texts;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use iov_net::Networks;
use iov_types::{Error, Kind};

/// Serves the store in a directory to every process of its owner.
#[derive(Parser, Clone, Debug)]
#[command(version, about)]
pub(crate) struct Args {
    /// The store's directory.
    #[arg(long)]
    dir: PathBuf,

    /// Serve in the background, and return once the store can be used.
    #[arg(long)]
    detach: bool,

    /// End after so many seconds without a connection; 0 = never.
    #[arg(long, env = "IOVD_IDLE_S", default_value_t = 60)]
    idle: u64,

    /// How long exclusive holds and locks outlive a holder that does not renew them, in milliseconds.
    #[arg(long, env = "IOVD_LEASE_MS", default_value_t = 30_000)]
    lease_ms: u64,
    /// Networks by which other daemons are preferably reached, as in 10.1.0.0/16,10.0.0.0/8
    #[arg(long, env = "IOVERBS_NETWORKS", default_value = "", value_parser = networks, hide_default_value = true)]
    networks: Networks,
    /// How long after a start that follows a crash the targets are compared with the catalog, in milliseconds
    #[arg(long, env = "IOVD_CHECK_AFTER_MS", default_value_t = 30_000)]
    check_after_ms: u64,
    /// Collections up to this many bytes live in their record; 0 = none do
    #[arg(long, env = "IOVD_INLINE_BYTES", default_value_t = 8192, value_parser = clap::value_parser!(u64).range(..=65536))]
    inline_bytes: u64,

    /// Where a new store keeps its bytes: files (in its directory), files:DIR (in another one; both also with ,io=direct or
    /// ,io=uring, past the cache), shmem:SIZE (shared memory, until
    /// the machine ends), heap:SIZE (memory of the daemon, until that ends), virtual:LIBRARY[,CONFIGURATION] (a shared object that is loaded) or
    /// null (nowhere); of a store in memory, its new size. Several times for several targets
    #[arg(long, value_parser = storage::parse)]
    storage: Vec<storage::Asked>,

    /// Where a store keeps its bytes that is made now, as for --storage; one that is there stays as it is
    #[arg(long, env = "IOVD_STORAGE", value_parser = storage::parse, hide = true)]
    new_storage: Option<storage::Asked>,

    /// Record every call to the target in this file, which iov trace show reads; all bytes go over the socket then
    #[arg(long, env = "IOVD_TRACE", value_name = "FILE", value_parser = absolute)]
    trace: Option<PathBuf>,

    /// Serve clients on other hosts too: HOST:PORT of this one, or several, the best first; the port is 4867 if none is named
    #[arg(long, env = "IOVD_LISTEN", value_name = "HOST[:PORT],…", value_parser = Hosts::parse)]
    listen: Option<Hosts>,

    /// Serve targets of the store whose catalog is at this HOST:PORT, or at one of several that lead to one daemon. It listens on the
    /// address that leads there, unless --listen says another one
    #[arg(long, env = "IOVD_JOIN", value_name = "HOST[:PORT],…", value_parser = Hosts::parse)]
    join: Option<Hosts>,

    /// What fails together with this daemon's targets: copies of the same bytes never lie in one domain. The machine, unless said
    #[arg(long, env = "IOVD_DOMAIN", value_name = "NAME", requires = "join")]
    domain: Option<String>,

    /// The secret that clients over a network must have; else the file named secret in the store, which is made if there is none
    #[arg(long, env = "IOVD_SECRET", value_name = "FILE", conflicts_with = "no_secret", value_parser = absolute)]
    secret: Option<PathBuf>,

    /// Let in whoever reaches the port. Not on a network that others reach
    #[arg(long)]
    no_secret: bool,

    /// Speak only TLS over the network, by this certificate and key, in files; or by one of the store's own, which is made if there
    /// is none (tls.cert, of which clients need a copy, and tls.key)
    #[arg(long, env = "IOVD_TLS", value_name = "CERT.pem,KEY.pem|self", value_parser = certificate::Certificate::parse)]
    tls: Option<certificate::Certificate>,

    /// Most threads that move bytes for clients over a network
    #[arg(long, env = "IOVD_WORKERS", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,

    /// Where shared memory is
    #[arg(long, env = "IOVD_SHM", default_value = "/dev/shm", hide = true)]
    shm: PathBuf,

    /// Give the store's shared memory back, and all bytes in it, and end; not while a daemon serves it
    #[arg(long)]
    release: bool,

    /// Says on standard error that it is ready; used by --detach.
    #[arg(long, hide = true)]
    ready: bool,
}

/// Hosts and ports to listen on.
#[derive(Clone, Debug)]
struct Hosts(Vec<iov_net::tcp::Host>);

impl Hosts {
    fn parse(text: &str) -> Result<Hosts, String> {
        listen::parse(text).map(Hosts)
    }
}

/// A daemon in the background is not where it was started.
fn networks(text: &str) -> Result<Networks, String> {
    Networks::parse(text).map_err(|e| e.detail().to_owned())
}

fn absolute(path: &str) -> Result<PathBuf, std::io::Error> {
    std::path::absolute(path)
}

impl Args {
    fn idle(&self) -> Duration {
        if self.idle == 0 { Duration::MAX } else { Duration::from_secs(self.idle) }
    }
}

/// The code of sysexits that says best what a caller can do; the library turns it back into a kind.
fn exit_code(e: &Error) -> u8 {
    match e.kind() {
        Kind::Denied => 77,
        Kind::Busy => 75,
        Kind::Version => 76,
        Kind::Corrupt => 65,
        Kind::NotFound => 66,
        Kind::Exhausted => 73,
        Kind::Invalid | Kind::Exists => 64,
        _ => 70,
    }
}

fn main() -> ExitCode {
    // A thread of a library may have started it, to which none come.
    iov_store::seam::let_signals_in();
    // A file that may not grow any more is an error for whoever writes, and no end of the daemon.
    let _ = signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), Default::default());
    let args = Args::parse();
    let done = match () {
        () if args.no_secret && args.listen.is_none() && args.join.is_none() => {
            Err(Error::invalid("--no-secret goes with --listen or --join"))
        }
        () if args.release => serve::release(&args),
        () if args.detach => detach::run(),
        () => serve::run(&args),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("iovd: {}", e.detail());
            ExitCode::from(exit_code(&e))
        }
    }
}
