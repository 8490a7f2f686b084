//! Making a workspace appear in a directory, and disappear again.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use iov_fuse_kernel::{Asked, MountTable, Rings, Session};
use iov_posix::{Errno, FileSystem, Level, Options, Paths, Staying, Tags};
use ioverbs::{Error, Kind, Result, Workspace};

use crate::{
    door::{Door, Known},
    opened::Opened,
    passing::Passing,
    retried::Retried,
    table::Mounted,
};

/// How long the kernel takes names and attributes for true, unless somebody says otherwise.
const TTL: Duration = Duration::from_secs(1);
/// The name of the view of metadata, unless somebody says another.
const TAGS: &str = "by";
/// How a workspace is mounted.
#[derive(Clone)]
pub struct MountOptions {
    /// What its files mean.
    pub posix: Options,
    /// How long the kernel may take names and attributes for true; not at all where it is strict.
    pub ttl: Duration,
    /// Other users may enter; `/etc/fuse.conf` may have to allow it.
    pub allow_other: bool,
    /// The name, in the root, of the view of metadata as directories; `None`: there is no such view.
    pub tags: Option<String>,
    /// The kernel may read sealed files by itself, where it can and this process is root's.
    pub passthrough: bool,
    /// Whether requests of the kernel go by rings (Linux 6.14), which is faster: where they can, never, or else nothing is mounted.
    pub rings: Rings,
    /// Further options of the kernel, such as `nosuid`, `noexec`, `nodev`, `noatime`.
    pub kernel: Vec<String>,
    /// Shown as the source in the table of mounts: as in `fstab`, so that `mount -a` finds what it has mounted.
    pub source: String,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            posix: Options::default(),
            ttl: TTL,
            allow_other: false,
            tags: None,
            passthrough: true,
            rings: Rings::Auto,
            kernel: Vec::new(),
            source: "iov".to_owned(),
        }
    }
}

/// Options that the kernel sees to.
const FLAGS: [&str; 11] =
    ["nosuid", "suid", "nodev", "dev", "noexec", "exec", "noatime", "atime", "relatime", "sync", "dirsync"];

/// Takes a list of options apart, at its commas. `\\,` is a comma of a value, as in libfuse.
pub fn split_options(text: &str) -> Vec<String> {
    let (mut parts, mut letters) = (vec![String::new()], text.chars().peekable());
    while let Some(letter) = letters.next() {
        let last = parts.len() - 1;
        match letter {
            ',' => parts.push(String::new()),
            '\\' => parts[last].push(letters.next_if(|next| matches!(next, ',' | '\\')).unwrap_or(letter)),
            _ => parts[last].push(letter),
        }
    }
    parts
}

/// Options in the style of `fstab`, separated by commas, on top of those that there are: `ro`, `rw`, `strict`, `session`, `ttl=SECONDS`,
/// `tags`, `tags=NAME`, `passthrough`, `passthrough=off`, `io_uring`, `io_uring=off`, `allow_other`, and those of the kernel.
pub fn parse_options(options: &mut MountOptions, text: &str) -> Result<()> {
    split_options(text).iter().try_for_each(|option| parse_option(options, option))
}

/// One of them.
pub fn parse_option(options: &mut MountOptions, option: &str) -> Result<()> {
    let option = option.trim();
    match option.split_once('=').unwrap_or((option, "")) {
        ("", "") => {}
        ("ro", "") => options.posix.readonly = true,
        ("rw", "") => options.posix.readonly = false,
        ("strict", "") => options.posix.level = Level::Strict,
        ("session", "") => options.posix.level = Level::Session,
        ("allow_other", "") => options.allow_other = true,
        ("passthrough", "" | "on") => options.passthrough = true,
        ("passthrough", "off") => options.passthrough = false,
        ("io_uring", "" | "on") => options.rings = Rings::On,
        ("io_uring", "off") => options.rings = Rings::Off,
        ("io_uring", "auto") => options.rings = Rings::Auto,
        ("tags", "") => options.tags = Some(TAGS.to_owned()),
        ("tags", name) => options.tags = Some(name.to_owned()),
        ("ttl", seconds) => {
            let seconds = seconds.parse().ok().filter(|s: &f64| (0.0..=86_400.0).contains(s));
            let seconds = seconds.ok_or_else(|| Error::invalid(format!("{option:?}: ttl is a number of seconds")))?;
            options.ttl = Duration::from_secs_f64(seconds);
        }
        // What those who read fstab say to each other.
        ("defaults" | "auto" | "noauto" | "nouser" | "users" | "nofail" | "_netdev" | "async" | "lazytime", "")
        | ("user" | "owner" | "group" | "uhelper" | "comment", _) => {}
        // So it is anyway.
        ("default_permissions" | "diratime" | "nodiratime" | "strictatime" | "norelatime", "") => {}
        (flag, "") if FLAGS.contains(&flag) => options.kernel.push(option.to_owned()),
        (name, _) if name.starts_with("x-") => {}
        _ => {
            return Err(Error::invalid(format!(
                "there is no mount option {option:?}: ro, rw, strict, session, ttl=SECONDS, allow_other, tags, \
                     tags=NAME, passthrough=off, io_uring, io_uring=off, nosuid, nodev, noexec and noatime are known"
            )));
        }
    }
    Ok(())
}

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
        };
        // Where nothing is remembered for any time, the kernel sees by itself what others have changed.
        let asked = Asked::new(options.passthrough, !ttl.is_zero());
        let session = Session::mount(door, at, &table, asked, options.rings).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::unavailable(
                "this machine has no /dev/fuse: load the module fuse, or give the container that device",
            ),
            _ => fail(e),
        })?;
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

/// Changes what the kernel sees to of a workspace that is mounted, by options of which `remount` is one: `ro`, `rw`, `nosuid` and such. What they do not name
/// stays as it is, and so does what is no business of the kernel's.
pub fn remount(at: &Path, options: &str) -> Result<()> {
    let Some(mounted) = Mounted::on(at)?.filter(|mounted| mounted.is_ours) else { return Err(not_ours(at)) };
    let mut table = MountTable { readonly: mounted.is_readonly(), options: mounted.flags(), ..MountTable::default() };
    for option in split_options(options) {
        match option.trim() {
            "ro" => table.readonly = true,
            "rw" => table.readonly = false,
            "async" => table.options.retain(|flag| flag != "sync"),
            flag if FLAGS.contains(&flag) => table.options.push(flag.to_owned()),
            _ => {}
        }
    }
    iov_fuse_kernel::remount(at, &table).map_err(|e| Error::from(e).context(format!("remounting {}", at.display())))
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
        _ => Error::from(e).context(format!("unmounting {}", at.display())),
    }
}

fn not_ours(at: &Path) -> Error {
    Error::invalid(format!("no workspace is mounted on {}", at.display()))
}

/// Whether what is mounted on a directory is a workspace. The table of mounts knows also where nobody answers.
fn is_ours(at: &Path) -> Result<bool> {
    Ok(Mounted::on(at)?.is_some_and(|mounted| mounted.is_ours))
}
