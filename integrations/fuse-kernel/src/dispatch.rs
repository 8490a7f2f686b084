//! From the bytes of a request to the method that answers it, and back.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use crate::{
    abi::{
        EIO, ENODATA, ENOSYS, ENXIO, LK_FLOCK, NOTHING, OPEN_KILL_SUIDGID, SETXATTR_KILL_SGID, WRITE_CACHE,
        WRITE_KILL_SUIDGID, WRITE_LOCKOWNER, head_len, op, set,
    },
    crew::Crew,
    fields::{Fields, Writer},
    filesystem::Filesystem,
    names::{Names, Room},
    types::{Attr, Entry, Lock, LockAsked, Moved, Opened, Request, SetAttr, SetTime, Written},
};

/// The header of a request.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    node: u64,
    uid: u32,
    gid: u32,
    pid: u32,
}

impl Header {
    pub(crate) fn read(bytes: &[u8]) -> Result<Header, i32> {
        let mut from = Fields(bytes);
        Ok(Header {
            len: from.u32()?,
            opcode: from.u32()?,
            unique: from.u64()?,
            node: from.u64()?,
            uid: from.u32()?,
            gid: from.u32()?,
            pid: from.u32()?,
        })
    }

    /// The number of the file that it is about.
    pub(crate) fn node(&self) -> u64 {
        self.node
    }

    pub(crate) fn of<'a>(&self, crew: &'a Crew) -> Request<'a> {
        let Header { unique, node, uid, gid, pid, .. } = *self;
        Request { unique, node, uid, gid, pid, umask: 0, crew }
    }
}

/// Whether a request brings so many bytes that they are not to be copied; its answer is short.
pub(crate) fn brings_bytes(opcode: u32) -> bool {
    matches!(opcode, op::WRITE | op::SETXATTR)
}

/// Splits what follows the header of a request into its structure and the rest.
pub(crate) fn split(opcode: u32, longer: bool, body: &[u8]) -> Result<(&[u8], &[u8]), i32> {
    body.split_at_checked(head_len(opcode, longer)).ok_or(EIO)
}

/// Has a request answered: its structure, what follows it, and room for the answer, of which so much was used. The room is as large
/// as what the kernel may ask for, or 256 bytes for what [`brings_bytes`].
pub(crate) fn answer<F: Filesystem>(
    fs: &F,
    req: &Request<'_>,
    opcode: u32,
    (head, rest): (&[u8], &[u8]),
    room: &mut [u8],
) -> Result<usize, i32> {
    let answered = catch_unwind(AssertUnwindSafe(|| dispatch(fs, req, opcode, Fields(head), Fields(rest), room)));
    // The kernel takes these numbers only.
    answered.unwrap_or(Err(EIO)).map_err(|e| if (1..=511).contains(&e) { e } else { EIO })
}

fn attributes((attr, ttl): (Attr, Duration), room: &mut [u8]) -> Result<usize, i32> {
    let mut to = Writer::new(room);
    to.u64(ttl.as_secs()).u32(ttl.subsec_nanos()).u32(0);
    attr.write(&mut to);
    to.done()
}

fn statx((attr, ttl): (Attr, Duration), room: &mut [u8]) -> Result<usize, i32> {
    let mut to = Writer::new(room);
    to.u64(ttl.as_secs()).u32(ttl.subsec_nanos()).u32(0).zeros(16);
    attr.write_statx(&mut to);
    to.done()
}

fn entry(entry: &Entry, room: &mut [u8]) -> Result<usize, i32> {
    let mut to = Writer::new(room);
    entry.write(&mut to);
    to.done()
}

fn created((entry, opened): (Entry, Opened), room: &mut [u8]) -> Result<usize, i32> {
    let mut to = Writer::new(room);
    entry.write(&mut to);
    opened.write(&mut to);
    to.done()
}

fn opened(opened: Opened, room: &mut [u8]) -> Result<usize, i32> {
    let mut to = Writer::new(room);
    opened.write(&mut to);
    to.done()
}

fn written(len: usize, room: &mut [u8]) -> Result<usize, i32> {
    Writer::new(room).u32(u32::try_from(len).map_err(|_| EIO)?).u32(0).done()
}

fn number(number: u64, room: &mut [u8]) -> Result<usize, i32> {
    Writer::new(room).u64(number).done()
}

/// A device's number as the kernel sends it in 32 bits: major and minor.
fn rdev(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xfff00))
}

fn set_attr(head: &mut Fields<'_>) -> Result<SetAttr, i32> {
    let valid = head.u32()?;
    let (_, _handle, size, _owner) = (head.u32()?, head.u64()?, head.u64()?, head.u64()?);
    let (atime, mtime, _ctime) = (head.u64()? as i64, head.u64()? as i64, head.u64()?);
    let (atime_ns, mtime_ns, _) = (head.u32()?, head.u32()?, head.u32()?);
    let (mode, _, uid, gid) = (head.u32()?, head.u32()?, head.u32()?, head.u32()?);
    let has = |bit: u32| valid & bit != 0;
    let time = |bit, now, seconds: i64, ns: u32| match (has(bit), has(now)) {
        (false, _) => None,
        (true, true) => Some(SetTime::Now),
        (true, false) => {
            let ns = i128::from(seconds) * 1_000_000_000 + i128::from(ns);
            Some(SetTime::At(ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64))
        }
    };
    Ok(SetAttr {
        mode: has(set::MODE).then_some(mode),
        uid: has(set::UID).then_some(uid),
        gid: has(set::GID).then_some(gid),
        size: has(set::SIZE).then_some(size),
        atime: time(set::ATIME, set::ATIME_NOW, atime, atime_ns),
        mtime: time(set::MTIME, set::MTIME_NOW, mtime, mtime_ns),
        lowers_rights: has(set::KILL_SUIDGID),
    })
}

fn lock(head: &mut Fields<'_>) -> Result<LockAsked, i32> {
    let (handle, owner) = (head.u64()?, head.u64()?);
    let (first, last, kind, process) = (head.u64()?, head.u64()?, head.u32()? as i32, head.u32()?);
    let of_open_file = head.u32()? & LK_FLOCK != 0;
    Ok(LockAsked { handle, owner, lock: Lock { first, last, kind, process }, of_open_file })
}

fn moved(head: &mut Fields<'_>) -> Result<Moved, i32> {
    let from = (head.u64()?, head.u64()?);
    Ok(Moved { from, to: (head.u64()?, head.u64()?, head.u64()?), len: head.u64()? })
}

/// Room for a list or for bytes, of the size that was asked for.
fn sized(room: &mut [u8], size: u32) -> &mut [u8] {
    let size = room.len().min(size as usize);
    &mut room[..size]
}

fn dispatch<F: Filesystem>(
    fs: &F,
    req: &Request<'_>,
    opcode: u32,
    mut head: Fields<'_>,
    mut rest: Fields<'_>,
    room: &mut [u8],
) -> Result<usize, i32> {
    let none = |done: Result<(), F::Error>| done.map(|()| 0).map_err(Into::into);
    match opcode {
        op::LOOKUP => entry(&fs.lookup(req, rest.name()?).map_err(Into::into)?, room),
        op::GETATTR => attributes(fs.getattr(req).map_err(Into::into)?, room),
        op::STATX => statx(fs.getattr(req).map_err(Into::into)?, room),
        op::SETATTR => attributes(fs.setattr(req, &set_attr(&mut head)?).map_err(Into::into)?, room),
        op::READLINK => Writer::new(room).bytes(&fs.readlink(req).map_err(Into::into)?).done(),
        op::MKNOD => {
            let (mode, device) = (head.u32()?, head.u32()?);
            let req = &Request { umask: head.u32()?, ..*req };
            entry(&fs.mknod(req, rest.name()?, mode, rdev(device)).map_err(Into::into)?, room)
        }
        op::MKDIR => {
            let mode = head.u32()?;
            let req = &Request { umask: head.u32()?, ..*req };
            entry(&fs.mkdir(req, rest.name()?, mode).map_err(Into::into)?, room)
        }
        op::UNLINK => none(fs.unlink(req, rest.name()?)),
        op::RMDIR => none(fs.rmdir(req, rest.name()?)),
        op::SYMLINK => {
            let (name, target) = (rest.name()?, rest.name()?);
            entry(&fs.symlink(req, name, target).map_err(Into::into)?, room)
        }
        op::RENAME | op::RENAME2 => {
            let to = head.u64()?;
            let flags = if opcode == op::RENAME2 { head.u32()? } else { 0 };
            let (name, new) = (rest.name()?, rest.name()?);
            none(fs.rename(req, name, (to, new), flags))
        }
        op::LINK => entry(&fs.link(req, head.u64()?, rest.name()?).map_err(Into::into)?, room),
        op::OPEN => {
            let (flags, how) = (head.u32()? as i32, head.u32()?);
            opened(fs.open(req, flags, how & OPEN_KILL_SUIDGID != 0).map_err(Into::into)?, room)
        }
        op::CREATE => {
            let (flags, mode) = (head.u32()? as i32, head.u32()?);
            let req = &Request { umask: head.u32()?, ..*req };
            created(fs.create(req, rest.name()?, mode, flags).map_err(Into::into)?, room)
        }
        op::TMPFILE => {
            let (flags, mode) = (head.u32()? as i32, head.u32()?);
            let req = &Request { umask: head.u32()?, ..*req };
            created(fs.tmpfile(req, mode, flags).map_err(Into::into)?, room)
        }
        op::READ => {
            let (handle, offset, size) = (head.u64()?, head.u64()?, head.u32()?);
            let n = fs.read(req, handle, offset, sized(room, size)).map_err(Into::into)?;
            if n <= size as usize { Ok(n) } else { Err(EIO) }
        }
        op::WRITE => {
            let (handle, offset, size, how) = (head.u64()?, head.u64()?, head.u32()?, head.u32()?);
            let (_owner, flags) = (head.u64()?, head.u32()? as i32);
            let data = rest.bytes(size as usize)?;
            let (from_cache, lowers_rights) = (how & WRITE_CACHE != 0, how & WRITE_KILL_SUIDGID != 0);
            let past_pages = how & WRITE_LOCKOWNER != 0;
            let what = Written { handle, offset, data, flags, from_cache, past_pages, lowers_rights };
            written(fs.write(req, &what).map_err(Into::into)?, room)
        }
        op::STATFS => {
            let space = fs.statfs(req).map_err(Into::into)?;
            let mut to = Writer::new(room);
            space.write(&mut to);
            to.done()
        }
        op::RELEASE => none(fs.release(req, head.u64()?)),
        op::FSYNC => none(fs.fsync(req, head.u64()?)),
        op::FLUSH => {
            let (handle, _, owner) = (head.u64()?, head.u64()?, head.u64()?);
            none(fs.flush(req, handle, owner))
        }
        op::OPENDIR => opened(fs.opendir(req).map_err(Into::into)?, room),
        op::READDIR | op::READDIRPLUS => {
            let (handle, offset, size) = (head.u64()?, head.u64()?, head.u32()?);
            let mut names = Names::new(sized(room, size));
            let listed = match opcode {
                op::READDIR => fs.readdir(req, handle, offset, &mut names),
                _ => fs.readdirplus(req, handle, offset, &mut names),
            };
            listed.map(|()| names.len()).map_err(Into::into)
        }
        op::RELEASEDIR => none(fs.releasedir(req, head.u64()?)),
        op::FSYNCDIR => none(fs.fsyncdir(req, head.u64()?)),
        op::SETXATTR => {
            let (size, flags) = (head.u32()?, head.u32()? as i32);
            // Older kernels do not say.
            let lowers_rights = head.u32().unwrap_or(0) & SETXATTR_KILL_SGID != 0;
            let (name, value) = (rest.name()?, rest.bytes(size as usize)?);
            none(fs.setxattr(req, name, value, (flags, lowers_rights)))
        }
        op::GETXATTR | op::LISTXATTR => {
            let mut value = Room::new(room, head.u32()? as usize);
            match opcode {
                op::GETXATTR => match rest.name()? {
                    name if name == NOTHING.as_bytes() => return Err(ENODATA),
                    name => fs.getxattr(req, name, &mut value),
                },
                _ => fs.listxattr(req, &mut value),
            }
            .map_err(Into::into)?;
            value.given()
        }
        op::REMOVEXATTR => none(fs.removexattr(req, rest.name()?)),
        op::GETLK => {
            let Lock { first, last, kind, process } = fs.getlk(req, &lock(&mut head)?).map_err(Into::into)?;
            Writer::new(room).u64(first).u64(last).u32(kind as u32).u32(process).done()
        }
        op::SETLK | op::SETLKW => none(fs.setlk(req, &lock(&mut head)?, opcode == op::SETLKW)),
        op::FALLOCATE => {
            let (handle, offset, len, mode) = (head.u64()?, head.u64()?, head.u64()?, head.u32()? as i32);
            none(fs.fallocate(req, handle, (offset, len), mode))
        }
        op::LSEEK => {
            let (handle, offset, whence) = (head.u64()?, head.u64()?, head.u32()?);
            if offset > i64::MAX as u64 {
                return Err(ENXIO);
            }
            number(fs.lseek(req, handle, offset, whence).map_err(Into::into)?, room)
        }
        op::COPY_FILE_RANGE => {
            // The answer has 32 bits; programs ask again for the rest.
            let asked = moved(&mut head)?;
            let asked = Moved { len: asked.len.min(1 << 30), ..asked };
            written(fs.copy_file_range(req, &asked).map_err(Into::into)? as usize, room)
        }
        op::COPY_FILE_RANGE_64 => number(fs.copy_file_range(req, &moved(&mut head)?).map_err(Into::into)?, room),
        _ => Err(ENOSYS),
    }
}
