//! Directory streams for the kernel. Positions: 1 is behind `.`, 2 behind `..`, and n + 2 behind the n-th entry.

use fuser::{FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use iov_posix::{Directory, Outcome};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, time::Duration};

use crate::{convert, inodes::Inodes};

/// Entries that are asked for at once: about what the kernel's buffer holds.
const AT_ONCE: usize = 128;
/// The same where each comes with its attributes.
const AT_ONCE_PLUS: usize = 24;

/// The two that every directory has.
fn dots(ino: u64) -> [(u64, &'static str); 2] {
    // Nobody walks by the number of the second: the kernel knows the parent.
    [(ino, "."), (1, "..")]
}

/// Fills a buffer with names.
pub(crate) fn fill(stream: &Directory, ino: u64, offset: u64, reply: &mut ReplyDirectory) -> Outcome<()> {
    for (at, (ino, name)) in (1..).zip(dots(ino)) {
        if offset < at && reply.add(INodeNo(ino), at, FileType::Directory, name) {
            return Ok(());
        }
    }
    let mut at = offset.saturating_sub(2) as usize;
    loop {
        let entries = stream.entries(at, AT_ONCE)?;
        for entry in &entries {
            at += 1;
            let name = OsStr::from_bytes(&entry.name);
            let kind = convert::file_type(entry.kind);
            if reply.add(INodeNo(iov_posix::number(entry.uuid)), at as u64 + 2, kind, name) {
                return Ok(());
            }
        }
        if entries.len() < AT_ONCE {
            return Ok(());
        }
    }
}

/// The same with attributes; each entry counts as looked up.
pub(crate) fn fill_plus(
    stream: &Directory,
    inodes: &Inodes,
    (ino, offset, ttl): (u64, u64, Duration),
    reply: &mut ReplyDirectoryPlus,
) -> Outcome<()> {
    if offset < 2 {
        let own = stream.node().attributes()?;
        for (at, (ino, name)) in (1..).zip(dots(ino)) {
            if offset < at && reply.add(INodeNo(ino), at, name, &ttl, &convert::attr(ino, &own), Generation(0)) {
                return Ok(());
            }
        }
    }
    let (mut at, mut told) = (offset.saturating_sub(2) as usize, false);
    loop {
        let entries = stream.entries(at, AT_ONCE_PLUS)?;
        let found = match stream.with_attributes(&entries) {
            // What is in the buffer counts as looked up: the kernel has to get it, and asks again for the rest.
            Err(_) if told => return Ok(()),
            found => found?,
        };
        for (entry, found) in entries.iter().zip(found) {
            at += 1;
            // Gone meanwhile.
            let Some((node, attributes)) = found else { continue };
            let ino = inodes.tell(&node);
            let (name, attr) = (OsStr::from_bytes(&entry.name), convert::attr(ino, &attributes));
            if reply.add(INodeNo(ino), at as u64 + 2, name, &ttl, &attr, Generation(0)) {
                inodes.forget(ino, 1);
                return Ok(());
            }
            told = true;
        }
        if entries.len() < AT_ONCE_PLUS {
            return Ok(());
        }
    }
}
