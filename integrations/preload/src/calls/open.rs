//! Opening.

use std::ffi::{CString, c_char, c_int};

use iov_posix::{Errno, How, Opened, Stop};

use super::{Here, at, bytes_of, descriptors::numbered, export, fifos, links, own_link};
use crate::{
    files::{Adding, Files, Open},
    raw::{failed, kernel, outcome},
    signals::Quiet,
    standing::{Lender, Ready},
    world::{Inside, World},
};

/// What `open` is told, of its flags.
fn how(flags: c_int, mode: u32) -> How {
    let access = flags & libc::O_ACCMODE;
    let path = flags & libc::O_PATH != 0;
    let unnamed = flags & libc::O_TMPFILE == libc::O_TMPFILE;
    let born = mode & 0o7777;
    How {
        read: !path && access != libc::O_WRONLY,
        write: !path && (access == libc::O_WRONLY || access == libc::O_RDWR),
        append: flags & libc::O_APPEND != 0,
        truncate: !path && flags & libc::O_TRUNC != 0,
        create: (!path && !unnamed && flags & libc::O_CREAT != 0).then_some(born),
        exclusive: flags & libc::O_EXCL != 0,
        directory: !unnamed && flags & libc::O_DIRECTORY != 0,
        nofollow: flags & libc::O_NOFOLLOW != 0,
        path,
        unnamed: unnamed.then_some(born),
        unseen: !path && flags & libc::O_NOATIME != 0,
    }
}

/// Opens what is at the end of a path in a workspace, and gives it a descriptor.
///
/// A pipe is left to whoever called, who may have to wait for the other end.
fn open_here(
    world: &World,
    here: &Here,
    (flags, mode): (c_int, u32),
    pipe: &mut Option<CString>,
) -> iov_posix::Way<isize> {
    let how = how(flags, mode);
    // With nothing to do, and of no kind that could do it.
    let both = libc::O_TMPFILE | libc::O_CREAT;
    if flags & libc::O_ACCMODE == libc::O_ACCMODE || flags & both == both {
        return Err(Errno::EINVAL.into());
    }
    let ready = ready(world, &how)?;
    let opened = match here.walker().open(&here.from, &here.path, &how) {
        Err(Stop::Failed(Errno::ENXIO)) => {
            *pipe = Some(fifos::find(here, flags)?);
            return Ok(0);
        }
        opened => opened?,
    };
    let path = match &opened {
        // It is in that directory, where nobody can name it.
        Opened::File(..) if how.unnamed.is_some() => [&here.absolute(), &b"/#"[..]].concat(),
        // Where it is, whatever links led there.
        Opened::Directory(dir) => match dir.node().path() {
            Some(path) => [&here.mounted.at, &path[..]].concat(),
            None => here.absolute(),
        },
        _ => here.absolute(),
    };
    let adding = Adding::new(&here.mounted, path, opened, &how, flags);
    Ok(add(world, adding, ready)?)
}

/// A descriptor for what is about to be opened, where that empties a file or makes one: what fails has done nothing.
fn ready(world: &World, how: &How) -> Result<Option<Ready>, Errno> {
    match how.truncate || how.create.is_some() || how.unnamed.is_some() {
        false => Ok(None),
        true if crate::raw::pid() == world.pid => world.files.lender.ready().map(Some),
        true => Lender::has_room().map(Some),
    }
}

fn add(world: &World, adding: Adding<'_>, ready: Option<Ready>) -> Result<isize, Errno> {
    let fd = match crate::raw::pid() == world.pid {
        true => world.files.add(adding, ready)?,
        false => Files::add_for_next(adding)?,
    };
    Ok(fd as isize)
}

/// Opens once more what is open under a descriptor that the path names.
fn open_again(world: &World, open: &Open, flags: c_int) -> Result<isize, Errno> {
    let how = How { create: None, exclusive: false, ..how(flags, 0) };
    let (Some(mounted), Some(node)) = (open.mounted(world)?, open.node(world)?) else {
        return add(world, Adding::top(&open.record.at, &how, flags), None);
    };
    let ready = ready(world, &how)?;
    let caller = crate::world::caller();
    let opened = match mounted.paths.walker(&caller).reopen(&node, &how) {
        Ok(opened) => opened,
        Err(Stop::Failed(e)) => return Err(e),
        Err(Stop::Leaves(_)) => return Err(Errno::EIO),
    };
    add(world, Adding::new(&mounted, open.record.path.clone(), opened, &how, flags), ready)
}

/// `openat`, as the kernel answers it.
pub(super) fn open_at(dirfd: c_int, path: *const c_char, flags: c_int, mode: u32) -> isize {
    if let (Some(world), Some(path)) = (crate::world::world(), bytes_of(path)) {
        let _quiet = Quiet::enter();
        if let Some(open) = own_link(world, path) {
            let _inside = Inside::enter();
            return outcome(open_again(world, &open, flags));
        }
    }
    let mut pipe = None;
    let mut open = |dirfd: c_int, path: *const c_char| {
        at(
            dirfd,
            path,
            &mut |world, here| open_here(world, here, (flags, mode), &mut pipe),
            &mut |world, top| {
                let how = how(flags, mode);
                match how.write || how.create.is_some() || how.unnamed.is_some() {
                    true => failed(Errno::EISDIR),
                    false => outcome(add(world, Adding::top(top, &how, flags), None)),
                }
            },
            &mut |dirfd, path| numbered(|| kernel!(libc::SYS_openat, dirfd, path, flags, mode)),
        )
    };
    let opened = match flags & libc::O_NOFOLLOW {
        0 => links::following((dirfd, path), open),
        _ => open(dirfd, path),
    };
    // Signals may come while it waits, whose handlers end the program or start another one.
    match pipe {
        Some(pipe) => {
            let quiet = Quiet::enter();
            let opened = quiet.without(|| fifos::open(&pipe, flags));
            drop(pipe);
            opened
        }
        None => opened,
    }
}

export! {
    /// `open(2)`
    fn open(path: *const c_char, flags: c_int, mode: u32) -> c_int = open_at(libc::AT_FDCWD, path, flags, mode);
    /// `openat(2)`
    fn openat(dirfd: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int = open_at(dirfd, path, flags, mode);
    /// `creat(2)`
    fn creat(path: *const c_char, mode: u32) -> c_int =
        open_at(libc::AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode);
    /// `umask(2)`
    fn umask(mask: u32) -> u32 = {
        if let Some(world) = crate::world::world() {
            world.umask.store(mask & 0o777, std::sync::atomic::Ordering::Relaxed);
        }
        kernel!(libc::SYS_umask, mask)
    };
}
