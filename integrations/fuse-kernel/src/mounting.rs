//! Making a directory lead to `/dev/fuse`, by this process if it may, else by the system's program for it.

use std::{
    ffi::CString,
    fs::File,
    io::{Error, ErrorKind, IoSliceMut, Result},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::Path,
    process::{Command, Stdio},
};

use rustix::{
    fs::{Mode, OFlags},
    mount::{MountFlags, UnmountFlags},
    net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType},
};

/// Mounts and unmounts for users who are not root.
const FUSERMOUNT: &str = "fusermount3";
/// What has it.
const INSTALL: &str = "install fuse3, or do it as root";

/// The device by which the kernel asks.
const DEVICE: &str = "/dev/fuse";
/// Its number, as the kernel's list of devices has it.
const DEVICE_NUMBER: (u32, u32) = (10, 229);

/// Something that mounting takes and this machine, or this user, has not got; the cause of an [`Error`].
#[derive(Debug)]
pub struct Missing {
    what: String,
    /// How it is had.
    pub next: &'static str,
}

impl Missing {
    pub(crate) fn error(kind: ErrorKind, what: impl Into<String>, next: &'static str) -> Error {
        Error::new(kind, Missing { what: what.into(), next })
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Missing {}

/// What stands in the system's table of mounts.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    /// The source; no comma in it.
    pub source: String,
    /// The kind of file system, behind `fuse.`.
    pub subtype: String,
    /// Other users than who mounts may enter.
    pub allow_other: bool,
    /// Nothing can be changed.
    pub readonly: bool,
    /// Of `nosuid`, `suid`, `nodev`, `dev`, `noexec`, `exec`, `noatime`, `atime`, `relatime`, `sync`, `dirsync`; later ones count.
    pub options: Vec<String>,
}

impl MountTable {
    fn flags(&self) -> MountFlags {
        // As of every file system outside of the kernel, unless said otherwise.
        let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
        for option in &self.options {
            let (flag, on) = match option.as_str() {
                "nosuid" => (MountFlags::NOSUID, true),
                "suid" => (MountFlags::NOSUID, false),
                "nodev" => (MountFlags::NODEV, true),
                "dev" => (MountFlags::NODEV, false),
                "noexec" => (MountFlags::NOEXEC, true),
                "exec" => (MountFlags::NOEXEC, false),
                "noatime" => (MountFlags::NOATIME, true),
                "atime" | "relatime" => (MountFlags::NOATIME, false),
                "sync" => (MountFlags::SYNCHRONOUS, true),
                "dirsync" => (MountFlags::DIRSYNC, true),
                _ => continue,
            };
            flags.set(flag, on);
            if flag == MountFlags::NOATIME {
                // A remount without any word of these leaves them as they are.
                flags.set(MountFlags::RELATIME, !on);
            }
        }
        flags.set(MountFlags::RDONLY, self.readonly);
        flags
    }

    /// As `fusermount3` takes them.
    fn text(&self) -> String {
        let mut options = vec![
            format!("fsname={}", self.source.replace('\\', "\\\\").replace(',', "\\,")),
            format!("subtype={}", self.subtype),
            "default_permissions".to_owned(),
        ];
        options.extend(self.options.iter().filter(|option| *option != "relatime").cloned());
        options.extend(self.allow_other.then(|| "allow_other".to_owned()));
        options.push(if self.readonly { "ro" } else { "rw" }.to_owned());
        options.join(",")
    }
}

/// The device, opened. It is not where it is mounted that lacks something, if that fails.
fn device() -> Result<OwnedFd> {
    const NONE: &str = "load the module, by modprobe fuse, or give the container that device, as by --device /dev/fuse";
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|e| {
        let (kind, e) = (Error::from(e).kind(), Error::from(e));
        match kind {
            ErrorKind::NotFound => {
                Missing::error(ErrorKind::Unsupported, format!("this machine has no {DEVICE}"), NONE)
            }
            ErrorKind::PermissionDenied => Missing::error(
                kind,
                format!("{DEVICE} lets this user not open it: {e}"),
                "root lets everybody, as is usual: chmod 0666 /dev/fuse",
            ),
            _ => Missing::error(ErrorKind::Unsupported, format!("{DEVICE} cannot be opened: {e}"), NONE),
        }
    })?;
    let facts = rustix::fs::fstat(&device)?;
    let number = (rustix::fs::major(facts.st_rdev), rustix::fs::minor(facts.st_rdev));
    let is_it = rustix::fs::FileType::from_raw_mode(facts.st_mode).is_char_device() && number == DEVICE_NUMBER;
    if !is_it {
        let what = format!("what is called {DEVICE} is not the device of FUSE");
        return Err(Missing::error(
            ErrorKind::Unsupported,
            what,
            "as root: rm /dev/fuse; mknod -m 0666 /dev/fuse c 10 229",
        ));
    }
    Ok(device)
}

/// Mounts on a directory. Nobody answers there before [`crate::Session`] does.
pub(crate) fn mount(at: &Path, table: &MountTable) -> Result<OwnedFd> {
    let device = device()?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let kind = std::fs::metadata(at)?.mode() & 0o170_000;
    let mut data =
        format!("fd={},rootmode={kind:o},user_id={uid},group_id={gid},default_permissions", device.as_raw_fd());
    if table.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data)?;
    let kind = format!("fuse.{}", table.subtype);
    match rustix::mount::mount(&table.source, at, &kind, table.flags(), Some(data.as_c_str())) {
        Ok(()) => Ok(device),
        Err(rustix::io::Errno::PERM) => by_program(at, table),
        Err(e) => Err(e.into()),
    }
}

/// Has the system's program mount it, which passes the device back.
fn by_program(at: &Path, table: &MountTable) -> Result<OwnedFd> {
    let none = SocketFlags::CLOEXEC;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, none, None)?;
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-o").arg(table.text()).arg("--").arg(at).env("_FUSE_COMMFD", "0");
    // It takes the socket for its input, so that no other descriptor of this process has to be passed.
    command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| match e.kind() {
        ErrorKind::NotFound => Missing::error(
            ErrorKind::PermissionDenied,
            "only root may mount, and there is no fusermount3, which mounts for others",
            INSTALL,
        ),
        _ => e,
    })?;
    drop(command);
    let device = receive(&ours);
    let said = child.wait_with_output()?;
    device.ok_or_else(|| {
        let said = String::from_utf8_lossy(&said.stderr);
        Error::new(ErrorKind::PermissionDenied, said.trim().to_owned())
    })
}

/// The descriptor that comes over a socket, if one does.
fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut passed = RecvAncillaryBuffer::new(&mut space);
    loop {
        let mut into = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, &mut into, &mut passed, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
            Ok(_) => break,
        }
    }
    passed.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut passed) => passed.next(),
        _ => None,
    })
}

/// Gives what is mounted on a directory the flags of this table (`ro`, `nosuid` and such); for root.
pub fn remount(at: &Path, table: &MountTable) -> Result<()> {
    Ok(rustix::mount::mount_remount(at, table.flags(), c"")?)
}

/// Unmounts a directory; `lazily`: at once, also if somebody is in it.
pub fn unmount(at: &Path, lazily: bool) -> Result<()> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let Err(e) = rustix::mount::unmount(at, flags) else { return Ok(()) };
    // Users who are not root have a program for it.
    if e == rustix::io::Errno::PERM {
        let mut command = Command::new(FUSERMOUNT);
        command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(at);
        match command.status() {
            Ok(status) if status.success() => return Ok(()),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let why = "only root may unmount, and there is no fusermount3, which does it for others";
                return Err(Missing::error(ErrorKind::PermissionDenied, why, INSTALL));
            }
            _ => {}
        }
    }
    Err(e.into())
}

/// Has the kernel give up what is mounted there: who is in it hears of it, and requests that nobody takes end.
pub(crate) fn give_up(at: &Path) {
    // It is in use by those, and then goes all the same. What lies below it stays.
    if rustix::mount::unmount(at, UnmountFlags::FORCE | UnmountFlags::DETACH) == Err(rustix::io::Errno::PERM) {
        let _ = unmount(at, true);
    }
}

/// The file that says whether the kernel of this machine lets requests go by rings (`fuse.enable_uring`), by one process at a time;
/// by root, it is switched on until it is dropped.
pub(crate) struct Switch {
    /// It, and what others wait for who want to switch it.
    held: Option<(File, Option<File>)>,
}

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// Only root can open it: whoever can open the switch, as everybody can, could keep it locked.
const LOCK: &str = "/run/iov-fuse-rings.lock";

impl Switch {
    pub(crate) fn on() -> Switch {
        // The module is loaded, and has that file, once somebody opens its device.
        let _device = File::open("/dev/fuse");
        Switch::at(Path::new(SWITCH), Path::new(LOCK))
    }

    pub(crate) fn at(switch: &Path, lock: &Path) -> Switch {
        let mut options = File::options();
        let Ok(file) = options.read(true).write(true).open(switch) else { return Switch { held: None } };
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        // Two that mount at a time would switch it off behind each other. Where there is no place for a lock, as where /run cannot
        // be written, that is rarer than to want rings.
        let lock = options.open(lock).ok().filter(|lock| {
            let locked = || rustix::fs::flock(lock, rustix::fs::FlockOperation::LockExclusive);
            rustix::io::retry_on_intr(locked).is_ok()
        });
        let is_on = std::fs::read(switch).is_ok_and(|now| now.starts_with(b"Y"));
        let switched = !is_on && rustix::io::pwrite(&file, b"Y", 0).is_ok();
        Switch { held: switched.then_some((file, lock)) }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Some((file, _lock)) = &self.held {
            let _ = rustix::io::pwrite(file, b"N", 0);
        }
    }
}
