//! `file:DIR` stores: a daemon for the directory, started on demand, and direct access to the files of collections.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use iov_engine::{Session, SessionAttr, Sides};
use iov_net::{Address, DirectBackend, Link, Mapped, Place, Starter};
use iov_store::OpCx;
use iov_types::{Clause, Counters, Error, Result, limits};
use rustix::fs::{Mode, OFlags};

use crate::{identity, library, network};

/// Where the default store lies: `$IOVERBS_STORE`, else `$XDG_DATA_HOME/ioverbs`, else `~/.local/share/ioverbs`.
pub(crate) fn default_dir() -> Result<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("IOVERBS_STORE")
        .or_else(|| from("XDG_DATA_HOME").map(|d| d.join("ioverbs")))
        .or_else(|| home_dir().map(|d| d.join(".local/share/ioverbs")))
        .ok_or_else(|| {
            Error::not_found("no store is named, and there is no home directory where the default one would be").with_next(
                "name it: -S file:DIR, in fstab the option store=file:DIR, elsewhere IOVERBS_URL in the environment",
            )
        })
}

/// The user's, as the environment says, else the system's table of users: `mount` hands no environment on.
pub(crate) fn home_dir() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

fn open_dir(path: &Path, create: bool) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let open = || rustix::fs::open(path, flags, Mode::empty()).map(iov_store::kept::set_aside);
    let dir = match open() {
        Err(rustix::io::Errno::NOENT) if create => {
            // Nobody else may look into it from the first moment on.
            use std::os::unix::fs::DirBuilderExt;
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|e| {
                Error::from(e).context(format!("the store's directory {} cannot be made", path.display()))
            })?;
            open()
        }
        opened => opened,
    };
    dir.map_err(|e| match e {
        rustix::io::Errno::ACCESS => Error::denied(format!(
            "the store {} belongs to another user: a file: store serves its owner only; use one of your own",
            path.display()
        ))
        .with_clause(Clause::A2),
        rustix::io::Errno::NOTDIR => Error::invalid(format!("{} is not a directory", path.display())),
        e => Error::from(std::io::Error::from(e)).context(format!("the store's directory {}", path.display())),
    })
}

fn link(dir: &str, attr: &SessionAttr, session: iov_types::Uuid, counters: Arc<Counters>) -> Result<Arc<Link>> {
    if dir.is_empty() {
        return Err(Error::invalid("file: names no directory, as in file:/scratch/me/store"));
    }
    let place = Place::Directory {
        dir: open_dir(Path::new(dir), !attr.nostart)?,
        starter: if attr.nostart { None } else { Some(Starter::find(library::dir())?) },
    };
    let address = Address::new(place, session, attr.program.clone().unwrap_or_else(identity::program));
    let address = address.preferring(network::preferred()?);
    let timeout = if attr.deadline_ns > 0 { attr.deadline_ns } else { limits::DEFAULT_DEADLINE_NS };
    Link::open(address, counters, timeout)
}

pub(crate) fn open(url: &str, dir: &str, attr: SessionAttr) -> Result<Session> {
    let caller = identity::caller();
    let counters = Arc::<Counters>::default();
    let link = link(dir, &attr, caller.session, counters.clone())?;
    let direct = !attr.nodirect;
    let first = Arc::new(DirectBackend::new(link.clone(), direct));
    let (catalog, backend) = Mapped::open(link, first, direct, &cx(&caller, &attr))?;
    let sides = Sides { catalog: Arc::new(catalog), backend: Arc::new(backend) };
    Ok(Session::new(url, sides, caller, attr, counters))
}

/// For what is asked while a session is being opened.
pub(crate) fn cx(caller: &iov_types::Caller, attr: &SessionAttr) -> OpCx {
    let timeout = if attr.deadline_ns > 0 { attr.deadline_ns } else { limits::DEFAULT_DEADLINE_NS };
    OpCx::new(caller.clone(), timeout).at(attr.priority)
}

/// How a store's daemon is, as names and numbers; `None`: no daemon runs.
pub fn daemon_status(url: &str) -> Result<Option<Vec<(String, u64)>>> {
    daemon_status_within(url, limits::DEFAULT_DEADLINE_NS)
}

/// The same; `Timeout` if it has not answered when `timeout_ns` have passed.
pub fn daemon_status_within(url: &str, timeout_ns: i64) -> Result<Option<Vec<(String, u64)>>> {
    let Some((link, cx)) = running(url, timeout_ns)? else { return Ok(None) };
    let status = link.status(&cx)?;
    let mut out = vec![
        ("pid".to_owned(), u64::from(status.pid)),
        ("uptime_ns".to_owned(), status.uptime_ns),
        ("sessions".to_owned(), u64::from(status.sessions)),
        ("connections".to_owned(), u64::from(status.connections)),
    ];
    out.extend(status.counters.into_iter().map(|c| (c.name, c.value)));
    Ok(Some(out))
}

/// Where a store's bytes lie, in a word or two: `files`, `shared memory`, `heap`, …; `None`: no daemon runs.
pub fn daemon_medium_within(url: &str, timeout_ns: i64) -> Result<Option<&'static str>> {
    Ok(running(url, timeout_ns)?.map(|(link, _)| link.targets().medium))
}

/// Where a store's daemon can be reached over a network, as `HOST:PORT`, the best first; `None`: no daemon runs.
pub fn daemon_addresses_within(url: &str, timeout_ns: i64) -> Result<Option<Vec<String>>> {
    Ok(running(url, timeout_ns)?.map(|(link, _)| link.addresses().to_vec()))
}

/// Ends a store's daemon and waits until it has ended; `false`: none runs. The next session starts it again. Nothing is lost,
/// unless the medium is the daemon's own memory.
pub fn daemon_shutdown(url: &str) -> Result<bool> {
    daemon_shutdown_within(url, limits::DEFAULT_DEADLINE_NS)
}

/// The same; `Timeout` if it has not ended when `timeout_ns` have passed.
pub fn daemon_shutdown_within(url: &str, timeout_ns: i64) -> Result<bool> {
    let Some((link, cx)) = running(url, timeout_ns)? else { return Ok(false) };
    link.shutdown(&cx).map(|()| true)
}

/// How a store is brought up.
#[derive(Clone, Debug, Default)]
pub struct StoreSetup {
    /// Where a new store keeps its bytes: `files`, `files:DIR`, `shmem:SIZE`, `heap:SIZE`, `virtual:LIBRARY,CONFIG` or `null`;
    /// of a store that is there, its new size or way. Several for several targets; none: as it is, and for a new one files.
    pub storage: Vec<String>,
    /// Record every call to the store's target in this file, until the daemon ends.
    pub trace: Option<std::path::PathBuf>,
    /// Listen on these hosts and ports of this machine, as in `node7:4867,10.0.0.7`; `None` = on none.
    pub listen: Option<String>,
    /// Serve targets of the store whose catalog's daemon is at one of these hosts and ports, as in `node7`; `None` = a store of its
    /// own.
    pub join: Option<String>,
    /// What fails together with those targets; `None` = the machine.
    pub domain: Option<String>,
    /// The secret that clients over a network must have; `None` = the one in the store, `none` = let in anybody.
    pub secret: Option<std::path::PathBuf>,
    /// Speak only TLS there, by `CERTIFICATE,KEY` (files), or `self`: a certificate of the store's own. `None` = in the clear.
    pub tls: Option<String>,
    /// End the daemon after so many seconds without a connection; 0 = never, `None` = as usual.
    pub idle_s: Option<u64>,
}

fn directory_of(url: &str) -> Result<&Path> {
    let dir = url.strip_prefix("file:").filter(|dir| !dir.is_empty());
    dir.map(Path::new).ok_or_else(|| {
        Error::unsupported(format!("{url} is not of this machine: only file:DIR stores are made and started"))
    })
}

/// The path in a storage, as seen from here: the daemon is started in another directory.
fn from_here(storage: &str) -> Result<String> {
    let (kind, rest) = match storage.split_once(':') {
        Some((kind @ ("files" | "virtual"), rest)) if !rest.is_empty() && !rest.starts_with(',') => (kind, rest),
        _ => return Ok(storage.to_owned()),
    };
    // A directory may have commas in its name, a library is followed by its configuration.
    let end = if kind == "files" { rest.rfind(",io=") } else { rest.find(',') };
    let (path, more) = rest.split_at(end.unwrap_or(rest.len()));
    let path = std::path::absolute(path).map_err(Error::from)?;
    let path = path.to_str().ok_or_else(|| Error::invalid("the directory of a storage, from the root on, is UTF-8"))?;
    Ok(format!("{kind}:{path}{more}"))
}

/// Makes a store where there is none, and starts its daemon. One that runs already stays as it is.
pub fn daemon_start(url: &str, setup: &StoreSetup, timeout_ns: i64) -> Result<()> {
    let dir = open_dir(directory_of(url)?, true)?;
    let mut starter = Starter { asked_for: true, ..Starter::find(library::dir())? };
    for storage in &setup.storage {
        starter.args.extend(["--storage".to_owned(), from_here(storage)?]);
    }
    if let Some(trace) = &setup.trace {
        let trace = std::path::absolute(trace).map_err(Error::from)?;
        let text = trace.to_str().ok_or_else(|| Error::invalid("the name of a trace is UTF-8"))?;
        starter.args.extend(["--trace".to_owned(), text.to_owned()]);
    }
    if let Some(listen) = &setup.listen {
        starter.args.extend(["--listen".to_owned(), listen.clone()]);
    }
    for (name, value) in [("--join", &setup.join), ("--domain", &setup.domain)] {
        starter.args.extend(value.iter().flat_map(|value| [name.to_owned(), value.clone()]));
    }
    match &setup.secret {
        Some(none) if none.as_os_str() == "none" => starter.args.push("--no-secret".to_owned()),
        Some(secret) => {
            let secret = std::path::absolute(secret).map_err(Error::from)?;
            let text = secret.to_str().ok_or_else(|| Error::invalid("the name of a secret's file is UTF-8"))?;
            starter.args.extend(["--secret".to_owned(), text.to_owned()]);
        }
        None => {}
    }
    if let Some(tls) = &setup.tls {
        // It is started in another directory.
        let absolute = |path: &str| match path {
            "self" => Ok(path.to_owned()),
            path => std::path::absolute(path).map(|path| path.to_string_lossy().into_owned()),
        };
        let tls: std::io::Result<Vec<String>> = tls.split(',').map(absolute).collect();
        starter.args.extend(["--tls".to_owned(), tls.map_err(Error::from)?.join(",")]);
    }
    if let Some(idle) = setup.idle_s {
        starter.args.extend(["--idle".to_owned(), idle.to_string()]);
    }
    starter.start(dir.as_fd(), iov_store::seam::monotonic_ns().saturating_add(timeout_ns))
}

/// Gives back the shared memory of a store, with all bytes in it; how many bytes that were. Its daemon must have ended. What
/// is known of its collections stays; reading their bytes is [`iov_types::Kind::Lost`] from then on.
pub fn store_release(url: &str) -> Result<u64> {
    let dir = open_dir(directory_of(url)?, false)?;
    Starter::find(library::dir())?.release(dir.as_fd())
}

/// One deadline for all that is asked of it.
fn running(url: &str, timeout_ns: i64) -> Result<Option<(Arc<Link>, OpCx)>> {
    let attr = SessionAttr { nostart: true, deadline_ns: timeout_ns, ..SessionAttr::default() };
    let caller = identity::caller();
    let cx = OpCx::new(caller.clone(), timeout_ns);
    let linked = match (url.strip_prefix("file:"), url.starts_with("iov:")) {
        (Some(dir), _) => link(dir, &attr, caller.session, Arc::default()),
        // One that cannot be reached may run all the same.
        (None, true) => return network::link(url, &attr, caller.session, Arc::default()).map(|link| Some((link, cx))),
        (None, false) => {
            return Err(Error::unsupported(format!("{url} has no daemon: file: and iov: stores have one")));
        }
    };
    match linked {
        Ok(link) => Ok(Some((link, cx))),
        Err(e) if matches!(e.kind(), iov_types::Kind::Unavailable | iov_types::Kind::NotFound) => Ok(None),
        Err(e) => Err(e),
    }
}
