//! The first request, in which the two sides agree on what they both know (`FUSE_INIT`).

use std::io::{Error, ErrorKind, Result};

use crate::{
    abi::{IN_HEADER, MAJOR, MINOR, OLDEST, init, op},
    device::Kernel,
    dispatch::Header,
    fields::{Fields, Writer},
};

/// Bytes of one request to read or write at most, and read ahead.
pub(crate) const REQUEST: usize = 1 << 20;
/// Requests in the background that the kernel makes at a time.
const BACKGROUND: u16 = 64;

/// What a file system asks of the kernel, besides what every one of ours does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// To move bytes of some files by itself.
    pub passthrough: bool,
    /// To keep pages of a file where it is told of another time of change.
    pub keeps: bool,
    /// Requests by rings.
    pub(crate) rings: bool,
}

impl Asked {
    /// These, and no rings.
    pub fn new(passthrough: bool, keeps: bool) -> Asked {
        Asked { passthrough, keeps, rings: false }
    }
}

/// What the kernel has agreed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Granted {
    /// To move bytes of some files by itself.
    pub passthrough: bool,
    /// Requests by rings.
    pub rings: bool,
    /// To keep pages of a file where it is told of another time of change: it drops them where the length is another one than it knows, and when it is told to
    /// ([`Kernel::forget_content`]).
    pub keeps: bool,
    /// What is written past its cache of pages is seen by who has the file mapped (Linux 6.6).
    pub coherent: bool,
    /// To say of a list that is set whether that takes the right to run as the group.
    pub(crate) setxattr_longer: bool,
}

/// All flags that this side knows what to do with.
const WANTED: u64 = init::ASYNC_READ
    | init::POSIX_LOCKS
    | init::ATOMIC_O_TRUNC
    | init::BIG_WRITES
    | init::FLOCK_LOCKS
    | init::AUTO_INVAL_DATA
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    // Who may do what it asks by lists as well, which the file system keeps and hands on to what is made. So it is the one to know what is masked.
    | init::POSIX_ACL
    | init::DONT_MASK
    | init::SETXATTR_EXT
    | init::MAX_PAGES
    // Without it the kernel asks before each write whether the file has rights to be taken from it.
    | init::HANDLE_KILLPRIV_V2
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

/// What the kernel says of itself.
pub(crate) struct Offered {
    minor: u32,
    read_ahead: u32,
    flags: u64,
}

pub(crate) fn read(body: &[u8]) -> Option<(u32, Offered)> {
    let mut from = Fields(body);
    let (major, minor) = (from.u32().ok()?, from.u32().ok()?);
    // An older major version sends no more.
    let (read_ahead, flags) = (from.u32().unwrap_or(0), from.u32().unwrap_or(0));
    let more = if u64::from(flags) & init::INIT_EXT != 0 { from.u32().unwrap_or(0) } else { 0 };
    Some((major, Offered { minor, read_ahead, flags: u64::from(flags) | u64::from(more) << 32 }))
}

/// `fuse_init_out`, and what it grants.
pub(crate) fn answer(offered: &Offered, asked: Asked) -> ([u8; 64], Granted) {
    let mut wanted = WANTED;
    if asked.keeps {
        wanted &= !init::AUTO_INVAL_DATA;
    }
    for (flag, is_asked) in [(init::PASSTHROUGH, asked.passthrough), (init::OVER_IO_URING, asked.rings)] {
        if is_asked {
            wanted |= flag;
        }
    }
    let flags = wanted & offered.flags;
    let has = |flag: u64| flags & flag != 0;
    let granted = Granted {
        passthrough: has(init::PASSTHROUGH),
        rings: has(init::OVER_IO_URING),
        keeps: asked.keeps,
        coherent: has(init::DIRECT_IO_ALLOW_MMAP),
        setxattr_longer: has(init::SETXATTR_EXT),
    };
    let mut out = [0; 64];
    let mut to = Writer::new(&mut out);
    to.u32(MAJOR).u32(MINOR.min(offered.minor)).u32(offered.read_ahead.min(REQUEST as u32)).u32(flags as u32);
    to.u16(BACKGROUND).u16(BACKGROUND / 4 * 3).u32(REQUEST as u32);
    // Times are of nanoseconds.
    to.u32(1).u16((REQUEST / rustix::param::page_size()) as u16).u16(0).u32((flags >> 32) as u32);
    // Files below are of no stacked file system: one depth is enough.
    to.u32(granted.passthrough.into());
    (out, granted)
}

/// Takes the first request and answers it.
pub(crate) fn shake_hands(kernel: &Kernel, asked: Asked) -> Result<Granted> {
    let wrong = |what: &str| Error::new(ErrorKind::InvalidData, format!("the kernel's first request {what}"));
    let mut room = vec![0; REQUEST + 4096];
    loop {
        let len = kernel.receive(&mut room)?;
        let len = len.ok_or_else(|| Error::new(ErrorKind::NotConnected, "unmounted before it was served"))?;
        let request = &room[..len];
        let header = Header::read(request).map_err(|_| wrong("has no header"))?;
        let body = request.get(IN_HEADER..).unwrap_or_default();
        let Some((major, offered)) = read(body).filter(|_| header.opcode == op::INIT) else {
            return Err(wrong("does not say its version"));
        };
        if major > MAJOR {
            // It answers in ours.
            let mut version = [0; 64];
            Writer::new(&mut version).u32(MAJOR).u32(MINOR);
            kernel.send(header.unique, 0, &version)?;
            continue;
        }
        if (major, offered.minor) < (MAJOR, OLDEST) {
            let version = format!("is of version {major}.{}: {MAJOR}.{OLDEST} or newer is needed", offered.minor);
            return Err(Error::new(ErrorKind::Unsupported, wrong(&version).to_string()));
        }
        let (out, granted) = answer(&offered, asked);
        kernel.send(header.unique, 0, &out)?;
        return Ok(granted);
    }
}
