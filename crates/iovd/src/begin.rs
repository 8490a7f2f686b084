//! What every daemon does when it begins, whatever it serves.

use std::{
    io::Write,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use iov_server::{Entrance, Server};
use iov_types::{Clause, Error, Result};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::{
    Args, detach,
    hold::{Hold, Taken},
    limits, log, member,
};

/// A daemon that has its directory to itself.
pub(crate) struct Begun {
    pub(crate) dir: OwnedFd,
    pub(crate) hold: Hold,
    /// It was told to end.
    pub(crate) stop: Arc<AtomicBool>,
    /// For the log, once there is one.
    pub(crate) troubles: Vec<String>,
    /// Most connections.
    pub(crate) connections: usize,
}

/// Opens the directory of a store, which only its owner may look into.
pub(crate) fn open_dir(path: &Path) -> Result<OwnedFd> {
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
    if stat.st_mode & 0o022 != 0 {
        check_free(&dir)?;
    }
    if stat.st_mode & 0o077 != 0 {
        // Names of collections are in file names below it: nobody else may even list them.
        rustix::fs::fchmod(&dir, Mode::from_raw_mode(0o700)).map_err(|e| Error::from(std::io::Error::from(e)))?;
    }
    Ok(dir)
}

/// What is in the directory of a store, or in one that is to become one: a secret may be there before.
const MARKS: [&str; 8] = ["format", "storage", "meta", "lock", "secret", "listen", "network", member::FILE];

/// Fails where a directory into which others may write holds other things, and no store: nobody but its owner could enter it any more, and who
/// removes the store would remove them with it.
fn check_free(dir: &OwnedFd) -> Result<()> {
    if MARKS.iter().any(|mark| rustix::fs::statat(dir, *mark, AtFlags::SYMLINK_NOFOLLOW).is_ok()) {
        return Ok(());
    }
    let wrong = |e: rustix::io::Errno| Error::from(std::io::Error::from(e)).context("the store's directory");
    for entry in rustix::fs::Dir::read_from(dir).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        // A file system that was made for it has this.
        if !matches!(entry.file_name().to_bytes(), b"." | b".." | b"lost+found") {
            return Err(Error::invalid(format!(
                "others may write into the directory, and it holds other files ({}, …) and no store: a store has a directory of \
                 its own, new or empty",
                entry.file_name().to_string_lossy()
            )));
        }
    }
    Ok(())
}

/// The path of something in the directory: short, whatever the directory's own path is.
pub(crate) fn inside(dir: &OwnedFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

/// `None`: another daemon serves the directory already.
pub(crate) fn begin(args: &Args) -> Result<Option<Begun>> {
    let dir = open_dir(&args.dir)?;
    let hold = match Hold::take(dir.as_fd())? {
        Taken::Ours(hold) => hold,
        Taken::Served => {
            // Whoever wanted a daemon has one: it connects to that.
            ready(args);
            return Ok(None);
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
    let troubles = if args.ready { limits::shed() } else { Vec::new() };
    let connections = limits::connections(args.ready)?;
    Ok(Some(Begun { dir, hold, stop, troubles, connections }))
}

/// It can be used: whoever started it hears so, and the log begins. Where it is.
pub(crate) fn end_start(args: &Args, dir: &OwnedFd, troubles: &[String]) -> Result<PathBuf> {
    ready(args);
    if args.ready {
        log::to_file(dir.as_fd())?;
    }
    troubles.iter().for_each(|trouble| log::line(trouble));
    // The library names the directory by its descriptor.
    Ok(std::fs::canonicalize(&args.dir).unwrap_or_else(|_| args.dir.clone()))
}

/// Tells the log what is listened on.
pub(crate) fn tell_doors(server: &Server, network: bool, bound: &[String]) {
    if network {
        let who = match &server.options().entrance {
            Entrance::Secret(_) => "who has the store's secret",
            Entrance::Anybody => "anybody",
        };
        let how = if server.options().tls.is_some() { ", by TLS," } else { "" };
        log::line(&format!("listening on {}{how} for {who}", bound.join(", ")));
    }
}

fn ready(args: &Args) {
    if args.ready {
        let mut stderr = std::io::stderr();
        // Whoever started us may have gone; others will come.
        let _ = writeln!(stderr, "{}", detach::READY).and_then(|()| stderr.flush());
    }
}
