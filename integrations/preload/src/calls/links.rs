//! Paths below `/proc` and `/dev` that lead to what a process has open, and to where it is: the kernel knows only what stands for that.

use std::{
    ffi::{CString, c_char, c_int},
    sync::Arc,
};

use iov_posix::{Errno, Outcome};

use super::{bytes_of, libraries, place};
use crate::{
    files::Open,
    record::Record,
    signals::Quiet,
    world::{Inside, World},
};

/// What such a path names, and what comes behind that.
struct Named<'a> {
    what: What,
    rest: Vec<&'a [u8]>,
}

enum What {
    /// A descriptor of this process.
    Own(i32),
    /// One of another process, or thread, by the kernel's path of it.
    Others(CString),
    /// The directory of this process.
    Directory,
    /// The program that this process runs.
    Program,
}

/// Names of a path that matter here.
const NAMES: usize = 6;

/// Reads such a path. `..` behind a link leads from where it leads to, and is not taken back here.
///
/// Nothing is allocated for paths that are none: the C library opens some while it has its own memory locked (`/proc/sys/vm/overcommit_memory`, to give
/// back what a thread has freed).
fn read(path: &[u8]) -> Option<Named<'_>> {
    if !path.starts_with(b"/proc/") && !path.starts_with(b"/dev/") {
        return None;
    }
    let mut names = path.split(|b| *b == b'/').filter(|name| !name.is_empty() && *name != b".");
    let (mut so_far, mut depth): ([&[u8]; NAMES], usize) = ([b""; NAMES], 0);
    while let Some(name) = names.next() {
        if name == b".." {
            depth = depth.saturating_sub(1);
        } else {
            // Whatever is deeper is none.
            if let Some(place) = so_far.get_mut(depth) {
                *place = name;
            }
            depth += 1;
        }
        if let Some(what) = so_far.get(..depth).and_then(what) {
            return Some(Named { what, rest: names.collect() });
        }
    }
    None
}

fn number(name: &[u8]) -> Option<i32> {
    let digits = name.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(name).ok().filter(|_| digits)?.parse().ok()
}

fn what(names: &[&[u8]]) -> Option<What> {
    let (process, link) = match names {
        [b"dev", b"stdin"] => return Some(What::Own(0)),
        [b"dev", b"stdout"] => return Some(What::Own(1)),
        [b"dev", b"stderr"] => return Some(What::Own(2)),
        [b"dev", b"fd", fd] => return number(fd).map(What::Own),
        [b"proc", process, link @ ..] => (*process, link),
        _ => return None,
    };
    let own = process == b"self" || process == b"thread-self" || number(process) == Some(std::process::id() as i32);
    // Threads have all of their process.
    let link = match link {
        [b"task", _, link @ ..] => link,
        link => link,
    };
    match link {
        [b"cwd"] if own => Some(What::Directory),
        [b"exe"] if own => Some(What::Program),
        [b"fd", fd] if own => number(fd).map(What::Own),
        [b"fd", fd] => {
            number(fd)?;
            CString::new([b"/proc/", number(process)?.to_string().as_bytes(), b"/fd/", fd].concat())
                .ok()
                .map(What::Others)
        }
        _ => None,
    }
}

/// What is open in this process under the descriptor that a path of the system names.
pub(crate) fn own_link(world: &World, path: &[u8]) -> Option<Arc<Open>> {
    match read(path)? {
        Named { what: What::Own(fd), rest } if rest.is_empty() => world.files.get(fd),
        _ => None,
    }
}

/// Whether a path is that of a link itself, and not of something behind it.
pub(super) fn is_link(path: &[u8]) -> bool {
    path.last() != Some(&b'/') && read(path).is_some_and(|named| named.rest.is_empty())
}

/// As [`leads_to`], for a call that may mean the link itself, which only of own descriptors is what it leads to.
pub(super) fn leads_on(world: &World, path: &[u8]) -> Outcome<Option<Vec<u8>>> {
    match read(path) {
        Some(Named { what: What::Own(_), .. }) => leads_to(world, path),
        Some(_) if !is_link(path) => leads_to(world, path),
        _ => Ok(None),
    }
}

/// Does something with the path to which one leads of which the link is meant that it may name, and which is not that of an own descriptor; or with
/// the one that was given.
pub(super) fn following<T>((dirfd, path): (c_int, *const c_char), work: impl FnOnce(c_int, *const c_char) -> T) -> T {
    let quiet = Quiet::enter();
    let led = match followed(path) {
        Ok(Some(led)) => led,
        Ok(None) => {
            drop(quiet);
            return work(dirfd, path);
        }
        // What a link leads to that leads nowhere any more is not there, whatever is done with it.
        Err(_) => c"/proc/0/none".to_owned(),
    };
    let done = work(libc::AT_FDCWD, led.as_ptr());
    drop(led);
    done
}

/// The same, for one that means what a link leads to, if it names another link than that of an own descriptor.
fn followed(path: *const c_char) -> Outcome<Option<CString>> {
    let (Some(world), Some(path)) = (crate::world::world(), bytes_of(path)) else { return Ok(None) };
    match read(path) {
        None | Some(Named { what: What::Own(_), .. }) => Ok(None),
        _ if Inside::is() => Ok(None),
        _ => Ok(leads_to(world, path)?.and_then(|led| CString::new(led).ok())),
    }
}

/// The path in a workspace to which a path of the system leads. `None`: the kernel knows.
pub(super) fn leads_to(world: &World, path: &[u8]) -> Outcome<Option<Vec<u8>>> {
    let Some(Named { what, rest }) = read(path) else { return Ok(None) };
    let to = match what {
        What::Own(fd) => world.files.get(fd).map(|open| open.record.path.clone()),
        // What another process says leads nowhere else than into a workspace.
        What::Others(link) => Record::behind(&link)
            .map(|record| record.path)
            .filter(|path| path.is_empty() || world.place(path).is_some()),
        What::Directory => place::present_path(world)?,
        What::Program => Some(libraries::start::own_path().to_vec()).filter(|path| !path.is_empty()),
    };
    let Some(mut to) = to else { return Ok(None) };
    if to.is_empty() {
        // It has no name.
        return Err(Errno::ENOENT);
    }
    for name in &rest {
        to.push(b'/');
        to.extend_from_slice(name);
    }
    // As the program has said that it is a directory.
    to.extend(path.ends_with(b"/").then_some(b'/'));
    Ok(Some(to))
}

#[cfg(test)]
mod tests;
