//! What stands for an open file in the kernel's table of descriptors, as soon as another process can have it ([`crate::standing`]): a sealed `memfd`, into which is
//! written what is open.
//!
//! So numbers are given out by the kernel, `dup`, `fork` and `exec` pass it on without anybody's help, the offset is where all who have
//! the descriptor see it, and a program that finds itself with one knows what it is. Who does not (a static program) can read
//! nothing from it and write nothing to it.

use std::{
    ffi::{CStr, CString, c_int},
    sync::Arc,
};

use iov_posix::{Caller, Errno, Node, Outcome};
use ioverbs::Uuid;

use crate::{calls::limits, raw::kernel, world::Mounted};

/// What a memory file is called that stands for an open file.
const NAME: &std::ffi::CStr = c"iov-run";
/// What the link of such a descriptor in `/proc/self/fd` reads.
const LINK: &[u8] = b"/memfd:iov-run (deleted)";
/// The first bytes of what is written into it.
const MAGIC: &[u8; 8] = b"IOVRUN02";
/// Most bytes of that: of each of its parts the length is a word of 16 bits.
const RECORD: usize = 5 << 16;

const READS: u8 = 1;
const WRITES: u8 = 2;
const PATH: u8 = 4;
const DSYNC: u8 = 8;
const SYNC: u8 = 16;

/// What may be done with what is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Access {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Nothing was opened (`O_PATH`).
    pub(crate) path: bool,
    /// `O_DSYNC` or `O_SYNC`, or 0: what is written survives what `fsync` has it survive, before the call returns.
    pub(crate) sync: c_int,
}

impl Access {
    fn bits(self) -> u8 {
        let bit = |said: bool, bit: u8| if said { bit } else { 0 };
        let sync = bit(self.sync != 0, DSYNC) | bit(self.sync == libc::O_SYNC, SYNC);
        bit(self.read, READS) | bit(self.write, WRITES) | bit(self.path, PATH) | sync
    }

    fn of(bits: u8) -> Access {
        let sync = match (bits & DSYNC != 0, bits & SYNC != 0) {
            (_, true) => libc::O_SYNC,
            (true, false) => libc::O_DSYNC,
            _ => 0,
        };
        Access { read: bits & READS != 0, write: bits & WRITES != 0, path: bits & PATH != 0, sync }
    }
}

/// What a descriptor stands for, as another process is told it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// Where the workspace appears.
    pub(crate) at: Vec<u8>,
    /// Its name; none: it is the directory of all workspaces.
    pub(crate) workspace: Vec<u8>,
    /// Its identity.
    pub(crate) uuid: Uuid,
    /// The path under which it was opened.
    pub(crate) path: Vec<u8>,
    /// What may be done with it.
    pub(crate) access: Access,
    /// By this who gets it may use what a process before has open, whatever has become of its name (X1, O10); none: that process could not say.
    pub(crate) token: Vec<u8>,
}

impl Record {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(self.access.bits());
        bytes.extend_from_slice(&self.uuid.0);
        for part in [&self.at, &self.workspace, &self.path, &self.token] {
            // What is longer can be a path alone, without which it is known by what it is.
            let part = if part.len() > usize::from(u16::MAX) { &[][..] } else { part };
            bytes.extend_from_slice(&(part.len() as u16).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Record> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let access = Access::of(*rest.first()?);
        let uuid = Uuid(rest.get(1..17)?.try_into().ok()?);
        rest = &rest[17..];
        let mut part = || {
            let len = usize::from(u16::from_le_bytes(rest.get(..2)?.try_into().ok()?));
            let part = rest.get(2..2 + len)?.to_vec();
            rest = &rest[2 + len..];
            Some(part)
        };
        Some(Record { at: part()?, workspace: part()?, path: part()?, token: part()?, uuid, access })
    }

    /// As text, for a variable.
    pub(crate) fn to_text(&self) -> String {
        self.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads such a text.
    pub(crate) fn from_text(text: &str) -> Option<Record> {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        Record::read(&text.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?)
    }

    /// What it is of, in its workspace: by its path, so that it is known where it is, and else by what it is.
    pub(crate) fn find(&self, mounted: &Mounted) -> Outcome<Arc<Node>> {
        let fs = mounted.paths.file_system();
        let by_path = || {
            let path = self.path.strip_prefix(&self.at[..]).filter(|_| !self.path.is_empty())?;
            // On behalf of nobody: it has been opened already.
            let root = Caller::default();
            let path = if path.is_empty() { b"." } else { path };
            let (node, _) = mounted.paths.walker(&root).find(&fs.root(), path, true).ok()?;
            (node.uuid() == self.uuid).then_some(node)
        };
        if let Some(node) = by_path() {
            return Ok(node);
        }
        let by_identity = || fs.by_identity(self.uuid).map(|(node, _)| node);
        match by_identity() {
            // Its last name has gone, or it never had one.
            Err(Errno::ENOENT | Errno::ESTALE) if !self.token.is_empty() => {
                self.join(mounted).map_err(|_| Errno::ESTALE)?;
                by_identity()
            }
            found => found,
        }
    }

    /// Acts for the holder of who has handed it on, from now on (X1).
    pub(crate) fn join(&self, mounted: &Mounted) -> ioverbs::Result<()> {
        mounted.paths.file_system().workspace().session().join(self.token.clone())
    }

    /// What a descriptor stands for, if it is one of these.
    pub(crate) fn of(fd: c_int) -> Option<Record> {
        let path = CString::new(format!("/proc/self/fd/{fd}")).ok()?;
        if is_named(&path) { Record::from_file(fd) } else { None }
    }

    fn from_file(fd: c_int) -> Option<Record> {
        Record::read(&content(fd)?)
    }

    /// What a descriptor of another process stands for, by its path in `/proc`.
    pub(crate) fn behind(link: &CStr) -> Option<Record> {
        if !is_named(link) {
            return None;
        }
        // It may be something else by now.
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        let fd = kernel!(libc::SYS_openat, libc::AT_FDCWD, link.as_ptr(), flags, 0);
        let fd = c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        let record = Record::from_file(fd);
        kernel!(libc::SYS_close, fd);
        record
    }

    /// A descriptor of a file of its own that stands for it. `listed`: for a directory, perhaps, which is listed by it.
    pub(crate) fn descriptor(&self, listed: bool, cloexec: bool, status: c_int) -> Outcome<c_int> {
        let (fd, bytes) = (empty(cloexec)?, self.to_bytes());
        limits::without_signal(|| kernel!(libc::SYS_pwrite64, fd, bytes.as_ptr(), bytes.len(), 0));
        seal(fd);
        if !listed {
            // The C library lists no directory by a descriptor that is for writing only.
            unreadable(fd, cloexec);
        }
        let status = status & (libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME);
        if status != 0 {
            kernel!(libc::SYS_fcntl, fd, libc::F_SETFL, status);
        }
        Ok(fd)
    }
}

/// Makes the descriptor one that is for writing only: who gets it and does not know it, as over a socket, takes nothing of it for what he has been sent.
/// Where there is no room for one more, or no `/proc`, it stays as it is.
fn unreadable(fd: c_int, cloexec: bool) {
    let Ok(path) = CString::new(format!("/proc/self/fd/{fd}")) else { return };
    let new = kernel!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC, 0);
    if new >= 0 {
        // Under the same number, which is the lowest one that there was.
        kernel!(libc::SYS_dup3, new, fd, if cloexec { libc::O_CLOEXEC } else { 0 });
        kernel!(libc::SYS_close, new);
    }
}

/// What is written in a file that stands for something.
pub(crate) fn content(fd: c_int) -> Option<Vec<u8>> {
    let path = CString::new(format!("/proc/self/fd/{fd}")).ok()?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    match kernel!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) {
        // It may be one that can be read, as of an older release.
        e if e < 0 => read_from(fd),
        readable => {
            let content = read_from(readable as c_int);
            kernel!(libc::SYS_close, readable as c_int);
            content
        }
    }
}

fn read_from(fd: c_int) -> Option<Vec<u8>> {
    // SAFETY: all of it may be zero, and the call fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    kernel!(libc::SYS_fstat, fd, &raw mut stat);
    let mut bytes = vec![0; usize::try_from(stat.st_size).unwrap_or(0).min(RECORD)];
    let n = kernel!(libc::SYS_pread64, fd, bytes.as_mut_ptr(), bytes.len(), 0);
    bytes.truncate(usize::try_from(n).ok()?);
    Some(bytes)
}

/// Whether a link in `/proc` leads to such a file, by its name.
fn is_named(link: &CStr) -> bool {
    let mut name = [0_u8; 32];
    let n = kernel!(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), name.as_mut_ptr(), name.len());
    usize::try_from(n).ok().and_then(|n| name.get(..n)) == Some(LINK)
}

/// A memory file that stands for something, and says nothing yet.
pub(crate) fn empty(cloexec: bool) -> Outcome<c_int> {
    let flags = libc::MFD_ALLOW_SEALING | if cloexec { libc::MFD_CLOEXEC } else { 0 };
    match kernel!(libc::SYS_memfd_create, NAME.as_ptr(), flags) {
        e if e < 0 => Err(Errno(-e as i32)),
        fd => Ok(fd as c_int),
    }
}

/// Nobody writes it from now on.
pub(crate) fn seal(fd: c_int) {
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    kernel!(libc::SYS_fcntl, fd, libc::F_ADD_SEALS, seals);
}

/// The descriptors of this process.
pub(crate) fn descriptors() -> Vec<c_int> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let dir = kernel!(libc::SYS_openat, libc::AT_FDCWD, c"/proc/self/fd".as_ptr(), flags, 0);
    let mut found = Vec::new();
    if dir < 0 {
        return found;
    }
    let mut room = vec![0_u8; 4096];
    loop {
        let n = kernel!(libc::SYS_getdents64, dir, room.as_mut_ptr(), room.len());
        let Some(mut entries) = usize::try_from(n).ok().filter(|n| *n > 0).and_then(|n| room.get(..n)) else { break };
        // An entry: number, offset, its length, type and name (`getdents64(2)`).
        while let Some(len) = entries.get(16..18).map(|len| usize::from(u16::from_le_bytes([len[0], len[1]]))) {
            let name = entries.get(19..len).unwrap_or_default();
            let name = name.split(|b| *b == 0).next().unwrap_or_default();
            found.extend(std::str::from_utf8(name).ok().and_then(|name| name.parse::<c_int>().ok()));
            entries = entries.get(len.max(19)..).unwrap_or_default();
        }
    }
    kernel!(libc::SYS_close, dir);
    found.retain(|fd| *fd != dir as c_int);
    found
}
