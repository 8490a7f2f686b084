//! Directory streams for the kernel. Positions: 1 is behind `.`, 2 behind `..`, and n + 2 behind the n-th entry.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, sync::Arc};

use fuser::{FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use iov_posix::{Directory, Outcome, Tag};

use crate::{convert, door::Door, inodes, tagged};

/// Entries that are asked for at once: about what the kernel's buffer holds.
const AT_ONCE: usize = 128;
/// The same where each comes with its attributes.
const AT_ONCE_PLUS: usize = 24;

/// What is open.
pub(crate) enum Stream {
    /// A directory.
    Directory(Directory),
    /// A directory of the view of metadata, as it was when it was opened.
    View(Vec<(Vec<u8>, Tag)>),
}

/// The two that every directory has.
fn dots(ino: u64) -> [(u64, &'static str); 2] {
    // Nobody walks by the number of the second: the kernel knows the parent.
    [(ino, "."), (1, "..")]
}

/// Where in its entries a stream is at an offset.
fn place(offset: u64) -> usize {
    offset.saturating_sub(2) as usize
}

/// Fills a buffer with names.
pub(crate) fn fill(stream: &Stream, ino: u64, offset: u64, reply: &mut ReplyDirectory) -> Outcome<()> {
    for (at, (ino, name)) in (1..).zip(dots(ino)) {
        if offset < at && reply.add(INodeNo(ino), at, FileType::Directory, name) {
            return Ok(());
        }
    }
    match stream {
        Stream::Directory(stream) => fill_names(stream, place(offset), reply)?,
        Stream::View(entries) => {
            for (at, (name, tag)) in entries.iter().enumerate().skip(place(offset)) {
                let (ino, kind) = (INodeNo(inodes::number_of(tag)), tagged::file_type(tag));
                if reply.add(ino, at as u64 + 3, kind, OsStr::from_bytes(name)) {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn fill_names(stream: &Directory, mut at: usize, reply: &mut ReplyDirectory) -> Outcome<()> {
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
    door: &Door,
    stream: &Stream,
    ino: u64,
    offset: u64,
    reply: &mut ReplyDirectoryPlus,
) -> Outcome<()> {
    let own = match stream {
        _ if offset >= 2 => None,
        Stream::Directory(stream) => Some(convert::attr(ino, &stream.node().attributes()?)),
        Stream::View(_) => match door.tag(INodeNo(ino)) {
            Some(tag) => Some(door.attributes_of(&tag, ino)?),
            None => None,
        },
    };
    for (at, (ino, name)) in (1..).zip(dots(ino)) {
        if let Some(own) = own
            && offset < at
            && reply.add(INodeNo(ino), at, name, &door.ttl, &own, Generation(0))
        {
            return Ok(());
        }
    }
    match stream {
        Stream::Directory(stream) => fill_found(door, stream, place(offset), reply),
        Stream::View(entries) => {
            for (at, (name, tag)) in entries.iter().enumerate().skip(place(offset)) {
                let attr = door.tell_tag(Arc::new(tag.clone()))?;
                if reply.add(attr.ino, at as u64 + 3, OsStr::from_bytes(name), &door.ttl, &attr, Generation(0)) {
                    door.known.inodes.forget(attr.ino.0, 1);
                    break;
                }
            }
            Ok(())
        }
    }
}

fn fill_found(door: &Door, stream: &Directory, mut at: usize, reply: &mut ReplyDirectoryPlus) -> Outcome<()> {
    let mut told = false;
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
            let ino = door.known.inodes.tell(&node);
            let (name, attr) = (OsStr::from_bytes(&entry.name), convert::attr(ino, &attributes));
            if reply.add(INodeNo(ino), at as u64 + 2, name, &door.ttl, &attr, Generation(0)) {
                door.known.inodes.forget(ino, 1);
                return Ok(());
            }
            told = true;
        }
        if entries.len() < AT_ONCE_PLUS {
            return Ok(());
        }
    }
}
