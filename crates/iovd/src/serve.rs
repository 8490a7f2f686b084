//! Puts a store together and serves it.

use std::{
    io::Write,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use iov_catalog::Service;
use iov_meta_local::LocalStore;
use iov_server::{Afar, Doors, Entrance, Server};
use iov_store::seam;
use iov_types::{Clause, Error, Result, Uuid};
use rustix::fs::{Mode, OFlags};

use crate::{
    Args, detach,
    fleet::{self, Open},
    hold::{Hold, Taken},
    limits,
    listen::{self, Listening},
    log,
    storage::Storages,
};

fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| {
        Error::from(std::io::Error::from(e)).context(format!("the store's directory {}", path.display()))
    })?;
    let stat = rustix::fs::fstat(&dir).map_err(|e| Error::from(std::io::Error::from(e)))?;
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me {
        return Err(Error::denied(format!(
            "the store belongs to user {}, you are user {me}: a file: store serves its owner only",
            stat.st_uid
        ))
        .with_clause(Clause::A2));
    }
    if stat.st_mode & 0o077 != 0 {
        // Names of collections are in file names below it: nobody else may even list them.
        rustix::fs::fchmod(&dir, Mode::from_raw_mode(0o700)).map_err(|e| Error::from(std::io::Error::from(e)))?;
    }
    Ok(dir)
}

/// The path of something in the directory: short, whatever the directory's own path is.
pub(crate) fn inside(dir: &OwnedFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

/// Serves until it is told to end or has been idle for long enough; the code is 0 also where another daemon serves.
pub(crate) fn run(args: &Args) -> Result<u8> {
    let dir = open_dir(&args.dir)?;
    let hold = match Hold::take(dir.as_fd())? {
        Taken::Ours(hold) => hold,
        Taken::Served => {
            // Whoever wanted a daemon has one: it connects to that.
            ready(args);
            return Ok(0);
        }
    };
    // A file-creation mask of the program that happens to start the daemon must not decide about the store.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    if args.ready {
        // Its own process session: no terminal, and no signals that are meant for the program that started it.
        rustix::process::setsid().map_err(|e| Error::from(std::io::Error::from(e)))?;
        std::env::set_current_dir("/").map_err(Error::from)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Error::from)?;
    }
    // Who starts one by hand means the limits that it has.
    let mut troubles = if args.ready { limits::shed() } else { Vec::new() };
    let connections = limits::connections(args.ready)?;
    let incarnation = seam::now_ns() as u64;
    let storages = Storages::choose(&dir, args)?;
    let store = Arc::new(LocalStore::open(&inside(&dir, "meta"), iov_meta_local::Options::default())?);
    let Open { fleet, targets, stays, all_at_target } =
        fleet::open(&dir, &storages, incarnation, args.trace.as_deref())?;
    let options = iov_catalog::Options {
        single_user: true,
        lease_ns: (args.lease_ms as i64).saturating_mul(1_000_000),
        inline_bytes: if all_at_target { 0 } else { args.inline_bytes },
        store_uuid: seam::new_uuid(),
        uid: rustix::process::geteuid().as_raw(),
    };
    // Clients of an earlier daemon that live come back with what they hold.
    let afar = Afar::open(inside(&dir, "network"), options.lease_ns)?;
    let awaits = afar.awaits() || targets.iter().any(|target| target.grants.awaits_clients());
    let grace_ns = if awaits { options.lease_ns } else { 0 };
    let catalog = Arc::new(Service::open_fleet(store.clone(), fleet, options, grace_ns)?);
    for target in &targets {
        let failed = target.grants.settle(&catalog.unfinished(), afar.awaits());
        troubles.extend(failed.iter().map(|e| format!("recovery of target {}: {e}", target.number)));
    }
    let listening = match listen::listen(&dir, args) {
        // Programs of this host must not suffer for it.
        Err(e) if args.listen.is_none() => {
            troubles.push(format!("nothing listens on the network as before the last end: {e}"));
            Listening::default()
        }
        listening => listening?,
    };
    let options = iov_server::Options {
        store: catalog.store_uuid(),
        incarnation,
        owner: rustix::process::geteuid().as_raw(),
        idle_ns: if stays { i64::MAX } else { args.idle().as_nanos().min(i64::MAX as u128) as i64 },
        connections,
        entrance: listening.entrance,
        tls: listening.tls,
        addresses: listening.addresses,
        data_workers: usize::from(args.workers),
    };
    let bound = listening.bound;
    let doors = Doors { local: iov_server::listen(dir.as_fd())?, network: listening.network };
    let server = Server::new(options, catalog.clone(), targets, afar)?;
    ready(args);
    if args.ready {
        log::to_file(dir.as_fd())?;
    }
    troubles.iter().for_each(|trouble| log::line(trouble));
    // The library names the directory by its descriptor.
    let place = std::fs::canonicalize(&args.dir).unwrap_or_else(|_| args.dir.clone());
    if let Some(path) = &args.trace {
        log::line(&format!("every call to the target is recorded in {}", path.display()));
    }
    log::line(&format!("serving {} as process {}", place.display(), std::process::id()));
    if !doors.network.is_empty() {
        let who = match &server.options().entrance {
            Entrance::Secret(_) => "who has the store's secret",
            Entrance::Anybody => "anybody",
        };
        let how = if server.options().tls.is_some() { ", by TLS," } else { "" };
        log::line(&format!("listening on {}{how} for {who}", bound.join(", ")));
    }
    server.run(&doors, &|| stop.load(Ordering::Relaxed))?;
    // First nobody can find us any more, then the hold goes: a successor may start between the two and waits for it.
    drop(doors);
    listen::end(&dir);
    drop(server);
    if !catalog.has_open(Uuid::NIL) {
        // With clients that have something open it is like a crash: they come back to the next daemon.
        catalog.close()?;
    }
    drop(catalog);
    drop(store);
    log::line("ended in order");
    hold.release()?;
    Ok(0)
}

/// Gives the store's shared memory back.
pub(crate) fn release(args: &Args) -> Result<u8> {
    let dir = open_dir(&args.dir)?;
    let Taken::Ours(hold) = Hold::take(dir.as_fd())? else {
        return Err(Error::busy("a daemon serves the store: end it first, with iov down"));
    };
    let bytes = Storages::load(&dir)?.release()?;
    println!("{bytes}");
    hold.release()?;
    Ok(0)
}

fn ready(args: &Args) {
    if args.ready {
        let mut stderr = std::io::stderr();
        // Whoever started us may have gone; others will come.
        let _ = writeln!(stderr, "{}", detach::READY).and_then(|()| stderr.flush());
    }
}
