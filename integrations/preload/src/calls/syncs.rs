//! What was written is to survive: that of a file, of a workspace, or all.

use std::{collections::HashSet, ffi::c_int};

use iov_posix::{Errno, Outcome};

use super::export;
use crate::{
    files::{Patience, What, with},
    raw::kernel,
    signals::Quiet,
    world::{Inside, Mounted, World, report, world},
};

pub(super) fn sync_of(fd: c_int) -> Option<isize> {
    with(fd, |world, open| {
        match open.what(world)? {
            What::File(file) => {
                open.publish()?;
                file.sync()?;
            }
            What::Directory(dir) => dir.node().file_system().sync()?,
            What::Path(_) => return Err(Errno::EBADF),
            What::Top(_) => {}
        }
        Ok(0)
    })
}

/// What this process has written to files of a workspace, open ones too, survives with all that others were told of. All of it is tried, whatever fails.
fn sync_workspace(world: &World, mounted: &Mounted) -> Outcome<()> {
    let is_of_it = |at: &[u8], workspace: &[u8]| at == &mounted.at[..] && workspace == &mounted.name[..];
    let (mut done, mut patience) = (Ok(()), Patience::new(world));
    let mut seen = HashSet::new();
    for (_, open) in world.files.all() {
        if is_of_it(&open.record.at, &open.record.workspace) && seen.insert(open.id) {
            let published = patience.with(|| open.publish_for_others());
            done = done.and(published).and(patience.with(|| open.sync_untold()));
        }
    }
    done.and(patience.with(|| mounted.paths.file_system().sync()))
}

/// What cannot be opened has not been written by this process.
fn not_here(e: Errno) -> Outcome<()> {
    if matches!(e, Errno::EBUSY | Errno::ENOENT | Errno::ESTALE) { Ok(()) } else { Err(e) }
}

fn sync_all_of(fd: c_int) -> Option<isize> {
    with(fd, |world, open| {
        if open.is_path() {
            return Err(Errno::EBADF);
        }
        match open.mounted(world)? {
            Some(mounted) => {
                let done = sync_workspace(world, &mounted);
                // Of this file also what others have written, if it can be opened.
                let own = match open.what(world) {
                    Ok(What::File(file)) => match file.open_now() {
                        Ok(()) => file.persist(),
                        Err(e) => Err(e).or_else(not_here),
                    },
                    other => other.map(drop).or_else(not_here),
                };
                done.and(own)?;
            }
            // All of them, whatever fails.
            None => {
                let synced = world.all_mounted().into_iter().map(|mounted| sync_workspace(world, &mounted));
                synced.fold(Ok(()), Outcome::and)?
            }
        }
        Ok(0)
    })
}

/// As the kernel does it: nobody hears of what fails, but for who reads what the library says.
fn sync_everything() -> isize {
    if let Some(world) = world().filter(|_| !Inside::is()) {
        let (errno, _quiet, _inside) = (crate::raw::errno(), Quiet::enter(), Inside::enter());
        for mounted in world.all_mounted() {
            if let Err(e) = sync_workspace(world, &mounted) {
                report(&String::from_utf8_lossy(&mounted.at), &e);
            }
        }
        crate::raw::set_errno(errno);
    }
    kernel!(libc::SYS_sync)
}

export! {
    /// `fsync(2)`
    fn fsync(fd: c_int) -> c_int = sync_of(fd).unwrap_or_else(|| kernel!(libc::SYS_fsync, fd));
    /// `fdatasync(2)`
    fn fdatasync(fd: c_int) -> c_int = sync_of(fd).unwrap_or_else(|| kernel!(libc::SYS_fdatasync, fd));
    /// `syncfs(2)`
    fn syncfs(fd: c_int) -> c_int = sync_all_of(fd).unwrap_or_else(|| kernel!(libc::SYS_syncfs, fd));
    /// `sync(2)`
    fn sync() -> c_int = sync_everything();
}
