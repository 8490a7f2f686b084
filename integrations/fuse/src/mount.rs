//! Making a workspace appear in a directory, and disappear again.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use iov_fuse_kernel::{Asked, Missing, MountTable, Session};
use iov_posix::{Errno, FileSystem, Level, Options, Paths, Staying, Tags};
use ioverbs::{Error, Kind, Result, Workspace};

use crate::{
    door::{Door, Known},
    opened::Opened,
    options::MountOptions,
    passing::Passing,
    retried::Retried,
    running::Running,
    table::Mounted,
};

/// A workspace in a directory; dropping it unmounts it.
pub struct Mount {
    session: Session,
    at: PathBuf,
    /// It comes back to its store as long as this is here.
    staying: Option<Staying>,
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mounted at {}", self.at.display())
    }
}

/// The view of metadata under a name that nothing else has.
fn view(fs: &FileSystem, name: &str) -> Result<Tags> {
    if name.is_empty() || name.contains('/') || matches!(name, "." | "..") {
        return Err(Error::invalid(format!(
            "tags={name}: the view of metadata needs a name in the root, as in tags=by"
        )));
    }
    match fs.lookup(&fs.root(), name.as_bytes()) {
        Err(Errno::ENOENT) => Ok(Tags::new(fs.clone(), name.as_bytes())),
        Ok(_) => Err(Error::new(
            Kind::Exists,
            format!(
                "the workspace has something called {name:?}: give the view of metadata another name, with tags=NAME"
            ),
        )),
        Err(e) => Err(Error::from(std::io::Error::from_raw_os_error(e.0)).context(name)),
    }
}

impl Mount {
    /// Makes a workspace appear in a directory. What lies there is hidden meanwhile.
    pub fn new(ws: Workspace, at: &Path, mut options: MountOptions) -> Result<Mount> {
        let fail = |e: std::io::Error| Error::from(e).context(format!("mounting on {}", at.display()));
        // One that was left by a mount that was killed answers nobody, once the kernel knows. What the kernel remembers of it says nothing, and
        // so it is asked for what it does not.
        use rustix::io::Errno as Number;
        while rustix::fs::statfs(at).is_err_and(|e| matches!(e, Number::NOTCONN | Number::CONNABORTED)) {
            unmount(at, true)?;
        }
        let at = &at.canonicalize().map_err(fail)?;
        let facts = std::fs::metadata(at).map_err(fail)?;
        if !facts.is_dir() {
            return Err(Error::invalid(format!("{} is no directory: mount on one", at.display())));
        }
        if at.parent().is_none() {
            return Err(Error::invalid(
                "/ holds the whole system, which a mount would hide: mount on a directory in it",
            ));
        }
        // One more would lie over it, and each would have to be unmounted.
        if is_ours(at)? && Running::of(at)?.is_some_and(|running| running.workspace == ws.uuid()) {
            let why = format!("the workspace is already mounted on {}", at.display());
            return Err(Error::exists(why).with_next(
                "use it as it is; iov umount DIR takes it away, and -o remount,ro and such change what the kernel sees to",
            ));
        }
        let running = Running::new(&ws, &options).to_text();
        let table = MountTable {
            source: options.source,
            subtype: "iov".to_owned(),
            allow_other: options.allow_other,
            readonly: options.posix.readonly,
            options: options.kernel,
        };
        // The kernel alone sees to that, who is told when it changes (`remount`).
        options.posix.readonly = false;
        let strict = options.posix.level == Level::Strict;
        let ttl = if strict { Duration::ZERO } else { options.ttl };
        let staying = iov_posix::stay(&ws);
        let fs = FileSystem::new(ws, Options { unseen: ttl, ..options.posix });
        let tags = options.tags.map(|name| view(&fs, &name)).transpose()?;
        let door = Door {
            paths: Paths::new(fs.clone()),
            fs,
            ttl,
            known: Arc::new(Known::default()),
            files: Opened::default(),
            coherent: false,
            streams: Opened::default(),
            passthrough: options.passthrough,
            passing: Passing::new(None),
            retried: Retried::default(),
            gone_ns: AtomicI64::new(i64::MIN / 2),
            tags,
            running,
            looker: options.looker,
        };
        // Where nothing is remembered for any time, the kernel sees by itself what others have changed.
        let asked = Asked::new(options.passthrough, !ttl.is_zero());
        let session = Session::mount(door, at, &table, asked, options.rings).map_err(|e| advised(e, fail))?;
        Ok(Mount { session, at: at.to_owned(), staying })
    }

    /// Where it is.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Whether requests of the kernel go by rings.
    pub fn by_rings(&self) -> bool {
        self.session.granted().rings
    }

    /// Waits until somebody has unmounted it.
    pub fn wait(self) -> Result<()> {
        let (at, _stays) = (self.at, self.staying);
        self.session.join().map_err(|e| Error::from(e).context(format!("serving {}", at.display())))
    }
}

/// An error of mounting or unmounting; where the machine lacks something for it, with how that is had.
fn advised(e: std::io::Error, fail: impl FnOnce(std::io::Error) -> Error) -> Error {
    let missing = e.get_ref().and_then(|e| e.downcast_ref::<Missing>()).map(|missing| missing.next);
    match missing {
        // What it is mounted on has nothing to do with it.
        Some(next) => match e.kind() {
            std::io::ErrorKind::Unsupported => Error::unavailable(e.to_string()),
            _ => Error::from(e),
        }
        .with_next(next),
        None => fail(e),
    }
}

/// Makes a mounted workspace disappear; `lazily`: at once, also if somebody is in it.
pub fn unmount(at: &Path, lazily: bool) -> Result<()> {
    if !is_ours(at)? {
        return Err(not_ours(at));
    }
    let user = rustix::process::getuid().as_raw();
    let Err(e) = iov_fuse_kernel::unmount(at, lazily) else { return Ok(()) };
    let still = Mounted::on(at)?.is_some_and(|mounted| mounted.is_ours && mounted.is_of(user));
    Err(failed(at, e, still && !lazily))
}

/// Why something could not be unmounted. Who is not root hears from the system's program only that it was not; where it is `own`, that is no question of
/// rights.
pub(crate) fn failed(at: &Path, e: std::io::Error, own: bool) -> Error {
    match e.raw_os_error().map(Errno) {
        Some(Errno::EBUSY) => Error::new(Kind::Busy, format!("{} is in use: end what runs in it", at.display())),
        Some(Errno::EPERM) if own => Error::new(Kind::Busy, format!("{} is in use: end what runs in it", at.display())),
        Some(Errno::EINVAL) => Error::invalid(format!("nothing is mounted on {}", at.display())),
        _ => advised(e, |e| Error::from(e).context(format!("unmounting {}", at.display()))),
    }
}

pub(crate) fn not_ours(at: &Path) -> Error {
    Error::invalid(format!("no workspace is mounted on {}", at.display()))
        .with_next("findmnt -t fuse.iov lists where workspaces are mounted")
}

/// Whether what is mounted on a directory is a workspace. The table of mounts knows also where nobody answers.
fn is_ours(at: &Path) -> Result<bool> {
    Ok(Mounted::on(at)?.is_some_and(|mounted| mounted.is_ours))
}
