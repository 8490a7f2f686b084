//! Directory streams for the kernel. Positions: 1 is behind `.`, 2 behind `..`, and n + 2 behind the n-th entry.

use std::sync::Arc;

use iov_fuse_kernel::{Attr, Entry, Names, Request};
use iov_posix::{Directory, Kind, Outcome, Tag};
use ioverbs::seam;

use crate::{
    convert,
    door::Door,
    inodes::{self, Content},
    tagged,
};

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
fn dots(ino: u64) -> [(u64, &'static [u8]); 2] {
    // Nobody walks by the number of the second: the kernel knows the parent.
    [(ino, b"."), (1, b"..")]
}

/// Where in its entries a stream is at an offset.
fn place(offset: u64) -> usize {
    offset.saturating_sub(2) as usize
}

/// Fills a buffer with names.
pub(crate) fn fill(stream: &Stream, ino: u64, offset: u64, names: &mut Names<'_>) -> Outcome<()> {
    for (at, (ino, name)) in (1..).zip(dots(ino)) {
        if offset < at && !names.add(ino, Kind::Directory.bits(), at, name) {
            return Ok(());
        }
    }
    match stream {
        Stream::Directory(stream) => fill_names(stream, place(offset), names)?,
        Stream::View(entries) => {
            for (at, (name, tag)) in entries.iter().enumerate().skip(place(offset)) {
                if !names.add(inodes::number_of(tag), tagged::kind(tag).bits(), at as u64 + 3, name) {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn fill_names(stream: &Directory, mut at: usize, names: &mut Names<'_>) -> Outcome<()> {
    loop {
        let entries = stream.entries(at, AT_ONCE)?;
        for entry in &entries {
            at += 1;
            if !names.add(iov_posix::number(entry.uuid), entry.kind.bits(), at as u64 + 2, &entry.name) {
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
    req: &Request<'_>,
    stream: &Stream,
    offset: u64,
    names: &mut Names<'_>,
) -> Outcome<()> {
    let ino = req.node;
    let own = match stream {
        _ if offset >= 2 => None,
        Stream::Directory(stream) => Some(convert::attr(ino, &stream.node().attributes()?)),
        Stream::View(_) => match door.tag(ino) {
            Some(tag) => Some(door.attributes_of(&tag, ino)?),
            None => None,
        },
    };
    let ttl = door.ttl;
    for (at, (ino, name)) in (1..).zip(dots(ino)) {
        // The kernel does not count these two.
        if let Some(own) = own
            && offset < at
            && !names.add_entry(&Entry { ttl, attr: Attr { ino, ..own } }, at, name)
        {
            return Ok(());
        }
    }
    match stream {
        Stream::Directory(stream) => fill_found((door, req), stream, place(offset), names),
        Stream::View(entries) => {
            for (at, (name, tag)) in entries.iter().enumerate().skip(place(offset)) {
                let attr = match door.tell_tag(Arc::new(tag.clone())) {
                    Err(_) if at > place(offset) => return Ok(()),
                    attr => attr?,
                };
                if !names.add_entry(&Entry { ttl, attr }, at as u64 + 3, name) {
                    door.known.inodes.forget(attr.ino, 1);
                    break;
                }
            }
            Ok(())
        }
    }
}

fn fill_found(
    (door, req): (&Door, &Request<'_>),
    stream: &Directory,
    mut at: usize,
    names: &mut Names<'_>,
) -> Outcome<()> {
    let mut told = false;
    loop {
        let asked_ns = seam::monotonic_ns();
        let found = stream.entries(at, AT_ONCE_PLUS).and_then(|entries| stream.found(&entries).map(|it| (entries, it)));
        let (entries, found) = match found {
            // What is in the buffer counts as looked up: the kernel has to get it, and asks again for the rest.
            Err(_) if told => return Ok(()),
            found => found?,
        };
        for (entry, found) in entries.iter().zip(found) {
            at += 1;
            // It has gone meanwhile.
            let Some((node, attributes)) = found else { continue };
            let ino = door.known.inodes.tell(&node);
            door.known.tells(Some(req), ino, (Content::of(&attributes), asked_ns));
            let told_of = Entry { ttl: door.ttl, attr: convert::attr(ino, &attributes) };
            if !names.add_entry(&told_of, at as u64 + 2, &entry.name) {
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
