//! The directory of the process.

use std::{
    ffi::{c_char, c_int, c_void},
    sync::{Arc, PoisonError},
};

use iov_posix::{Errno, Kind, Node, Outcome, Stop, Way};
use ioverbs::Uuid;

use super::{at, export, links};
use crate::{
    files::with,
    memory::{self, Use},
    raw::{failed, kernel},
    record::{Access, Record},
    signals::Quiet,
    world::{Directory, Inside, Mounted, World, world},
};

const HERE: c_int = libc::AT_FDCWD;

/// The process goes to a directory of a workspace, or of the kernel.
fn go_to(world: &World, directory: Directory) {
    let _quiet = Quiet::enter();
    *world.directory.write().unwrap_or_else(std::sync::PoisonError::into_inner) = directory;
}

fn change_dir(path: *const c_char) -> isize {
    links::following((HERE, path), go_along)
}

fn go_along(dirfd: c_int, path: *const c_char) -> isize {
    at(
        dirfd,
        path,
        &mut |world, here| {
            let (node, attributes) = here.find(true)?;
            enter(world, here.mounted.clone(), node, &attributes)
        },
        &mut |world, top| {
            go_to(world, Directory::Named(top.to_vec()));
            0
        },
        &mut |_, path| {
            let done = kernel!(libc::SYS_chdir, path);
            if let Some(world) = world().filter(|_| done == 0) {
                go_to(world, Directory::Outside);
            }
            done
        },
    )
}

fn enter(world: &World, mounted: Arc<Mounted>, node: Arc<Node>, attributes: &iov_posix::Attributes) -> Way<isize> {
    if node.kind() != Kind::Directory {
        return Err(Errno::ENOTDIR.into());
    }
    crate::world::caller().check(&node, attributes, libc::X_OK as u32)?;
    go_to(world, Directory::Inside(mounted, node));
    Ok(0)
}

fn change_dir_to(fd: c_int) -> isize {
    let ours = with(fd, |world, open| match (open.mounted(world)?, open.node(world)?) {
        (Some(mounted), Some(node)) => {
            let attributes = node.attributes()?;
            match enter(world, mounted, node, &attributes) {
                Err(Stop::Failed(e)) => Err(e),
                done => Ok(done.unwrap_or(0)),
            }
        }
        _ => {
            go_to(world, Directory::Named(open.record.at.clone()));
            Ok(0)
        }
    });
    ours.unwrap_or_else(|| {
        let done = kernel!(libc::SYS_fchdir, fd);
        if let Some(world) = world().filter(|_| done == 0) {
            go_to(world, Directory::Outside);
        }
        done
    })
}

/// Where the process is. What it was handed by another one is found now, and is that from then on, wherever it is moved.
pub(crate) fn directory(world: &World) -> Outcome<Directory> {
    let directory = world.directory.read().unwrap_or_else(PoisonError::into_inner).clone();
    let Directory::Passed(record) = directory else { return Ok(directory) };
    let mounted = world.mounted(&record.at, &record.workspace)?;
    let node = record.find(&mounted)?;
    let found = Directory::Inside(mounted, node);
    go_to(world, found.clone());
    Ok(found)
}

/// Where the process is, for another one; none: the kernel knows.
pub(crate) fn to_pass(world: &World) -> Option<Record> {
    let directory = world.directory.read().unwrap_or_else(PoisonError::into_inner).clone();
    // Where nobody knows its path, it is known by what it is.
    record_of(directory, |mounted, node| path_of(mounted, node).unwrap_or_default())
}

/// Where a copy of the process is, which asks nobody and waits for nobody. Where somebody was about to change that, it is nowhere.
pub(super) fn of_copy(world: &World) -> Directory {
    let nowhere = || {
        Directory::Passed(Record {
            at: b"/".to_vec(),
            workspace: b"/".to_vec(),
            uuid: Uuid::NIL,
            path: Vec::new(),
            access: Access { path: true, ..Access::default() },
            token: Vec::new(),
        })
    };
    match world.directory.try_read() {
        Ok(directory) => record_of(directory.clone(), |_, _| Vec::new()).map_or(Directory::Outside, passed),
        Err(_) => nowhere(),
    }
}

fn record_of(directory: Directory, path_of: impl FnOnce(&Mounted, &Node) -> Vec<u8>) -> Option<Record> {
    let of = |at: Vec<u8>, workspace: Vec<u8>, uuid: Uuid, path: Vec<u8>| Record {
        at,
        workspace,
        uuid,
        path,
        access: Access { path: true, ..Access::default() },
        token: Vec::new(),
    };
    match directory {
        Directory::Outside => None,
        Directory::Passed(record) => Some(record),
        Directory::Named(path) => Some(of(path.clone(), Vec::new(), Uuid::NIL, path)),
        Directory::Inside(mounted, node) => {
            let path = path_of(&mounted, &node);
            Some(of(mounted.at.clone(), mounted.name.clone(), node.uuid(), path))
        }
    }
}

/// Where the process is that was handed this.
pub(crate) fn passed(record: Record) -> Directory {
    match record.workspace.is_empty() {
        true => Directory::Named(record.at),
        false => Directory::Passed(record),
    }
}

fn path_of(mounted: &Mounted, node: &Node) -> Option<Vec<u8>> {
    let path = node.path()?;
    let path = if path == b"/" { &[][..] } else { &path[..] };
    Some([&mounted.at, path].concat())
}

/// The path of the process's directory, where that is one of a workspace; `Err`: it has none any more.
pub(super) fn own_path(world: &World) -> Outcome<Option<Vec<u8>>> {
    match directory(world)? {
        Directory::Outside => Ok(None),
        Directory::Named(path) => Ok(Some(path)),
        Directory::Passed(record) => Ok(Some(record.path)),
        Directory::Inside(mounted, node) => path_of(&mounted, &node).map(Some).ok_or(Errno::ENOENT),
    }
}

/// The same, for who asks where the process is: a directory that was removed is nowhere, whatever its path was.
pub(super) fn present_path(world: &World) -> Outcome<Option<Vec<u8>>> {
    let _inside = Inside::enter();
    if let Directory::Inside(_, node) = directory(world)? {
        if let Err(Errno::ENOENT | Errno::ESTALE) = node.attributes() {
            return Err(Errno::ENOENT);
        }
        // Others may have moved it.
        let _ = node.path_now();
    }
    own_path(world)
}

/// `getcwd(3)`
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C" fn getcwd(out: *mut c_char, len: usize) -> *mut c_char {
    let _quiet = Quiet::enter();
    let errno = crate::raw::errno();
    let ours = match world().map_or(Ok(None), present_path) {
        Ok(ours) => {
            // What was used here for it is not the program's.
            crate::raw::set_errno(errno);
            ours
        }
        Err(e) => {
            crate::raw::set_errno(e.0);
            return std::ptr::null_mut();
        }
    };
    let mut room = [0_u8; 4096];
    let path = match &ours {
        Some(path) => &path[..],
        None => {
            let n = kernel!(libc::SYS_getcwd, room.as_mut_ptr(), room.len());
            match usize::try_from(crate::raw::answer(n)).ok().and_then(|n| room.get(..n.saturating_sub(1))) {
                Some(path) => path,
                None => return std::ptr::null_mut(),
            }
        }
    };
    let fail = |number: c_int| {
        crate::raw::set_errno(number);
        std::ptr::null_mut()
    };
    // The process has been taken away from under its directory.
    if path.first() != Some(&b'/') {
        return fail(libc::ENOENT);
    }
    let need = path.len() + 1;
    if !out.is_null() && memory::check(out.cast(), need.min(len), Use::Write).is_err() {
        return fail(libc::EFAULT);
    }
    let out = match (out.is_null(), len) {
        (false, 0) => return fail(libc::EINVAL),
        (_, len) if len > 0 && len < need => return fail(libc::ERANGE),
        (false, _) => out,
        // SAFETY: the program frees it, as that of the C library.
        (true, len) => unsafe { libc::malloc(len.max(need)) }.cast(),
    };
    if out.is_null() {
        return fail(libc::ENOMEM);
    }
    // SAFETY: there is room for the path and its end.
    unsafe {
        std::ptr::copy_nonoverlapping(path.as_ptr(), out.cast(), path.len());
        out.add(path.len()).write(0);
    }
    out
}

export! {
    /// `chdir(2)`
    fn chdir(path: *const c_char) -> c_int = change_dir(path);
    /// `fchdir(2)`
    fn fchdir(fd: c_int) -> c_int = change_dir_to(fd);
    /// `inotify_add_watch(2)`: the kernel would watch the directory that the process is in for it.
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int = match super::is_inside(HERE, path) {
        true => failed(Errno(libc::ENOSYS)),
        false => kernel!(libc::SYS_inotify_add_watch, fd, path, mask),
    };
    /// `name_to_handle_at(2)`: the kernel knows no handles of what is in a workspace, as of many file systems.
    fn name_to_handle_at(
        dirfd: c_int, path: *const c_char, out: *mut c_void, mount: *mut c_int, flags: c_int
    ) -> c_int = {
        let is_empty = flags & libc::AT_EMPTY_PATH != 0 && super::bytes_of(path).is_some_and(<[u8]>::is_empty);
        let is_ours = if is_empty { super::bytes::is_ours(dirfd) } else { super::is_inside(dirfd, path) };
        match is_ours {
            true => failed(Errno::EOPNOTSUPP),
            false => kernel!(libc::SYS_name_to_handle_at, dirfd, path, out, mount, flags),
        }
    };
}
