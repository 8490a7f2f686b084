//! Names: making, moving and removing them, and the directory of the process.

use std::ffi::{c_char, c_int, c_uint};

use iov_posix::{Errno, Kind, Last, Node, Rename, Stop, Way};
use std::sync::Arc;

use super::{Here, at, bytes_of, export, facts, fixed, nothing};
use crate::{
    files::with,
    raw::{failed, kernel},
    world::{Directory, Mounted, World, world},
};

const HERE: c_int = libc::AT_FDCWD;

/// Permission bits of something new.
fn born(world: &World, mode: u32) -> u32 {
    mode & 0o7777 & !world.umask.load(std::sync::atomic::Ordering::Relaxed)
}

/// The kind of file that a mode says.
fn kind_of(mode: u32) -> Option<Kind> {
    Some(match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Kind::File,
        libc::S_IFIFO => Kind::Fifo,
        libc::S_IFCHR => Kind::CharDevice,
        libc::S_IFBLK => Kind::BlockDevice,
        libc::S_IFSOCK => Kind::Socket,
        _ => return None,
    })
}

fn make_dir(dirfd: c_int, path: *const c_char, mode: u32) -> isize {
    at(
        dirfd,
        path,
        &mut |world, here| nothing(here.walker().mkdir(&here.from, &here.path, born(world, mode))),
        &mut |_, _| failed(Errno::EEXIST),
        &mut |dirfd, path| kernel!(libc::SYS_mkdirat, dirfd, path, mode),
    )
}

fn make_node(dirfd: c_int, path: *const c_char, mode: u32, dev: u64) -> isize {
    at(
        dirfd,
        path,
        &mut |world, here| {
            let kind = kind_of(mode).ok_or(Errno::EINVAL)?;
            nothing(here.walker().mknod(&here.from, &here.path, kind, dev, born(world, mode)))
        },
        &mut |_, _| failed(Errno::EEXIST),
        &mut |dirfd, path| kernel!(libc::SYS_mknodat, dirfd, path, mode, dev as c_uint),
    )
}

fn remove(dirfd: c_int, path: *const c_char, flags: c_int) -> isize {
    at(
        dirfd,
        path,
        &mut |_, here| match flags & libc::AT_REMOVEDIR != 0 {
            true => nothing(here.walker().rmdir(&here.from, &here.path)),
            false => nothing(here.walker().unlink(&here.from, &here.path)),
        },
        &mut fixed,
        &mut |dirfd, path| kernel!(libc::SYS_unlinkat, dirfd, path, flags),
    )
}

fn make_link(target: *const c_char, dirfd: c_int, path: *const c_char) -> isize {
    if target.is_null() {
        return failed(Errno(libc::EFAULT));
    }
    at(
        dirfd,
        path,
        &mut |_, here| nothing(here.walker().symlink(&here.from, &here.path, bytes_of(target).unwrap_or_default())),
        &mut fixed,
        &mut |dirfd, path| kernel!(libc::SYS_symlinkat, target, dirfd, path),
    )
}

/// Something that was found, where it is.
type Found = (Arc<Mounted>, Arc<Node>);

/// What a call that names two paths means by the first; none: it is the kernel's.
fn find(dirfd: c_int, path: *const c_char, flags: c_int) -> Result<Option<Found>, Errno> {
    let mut found = None;
    if facts::means_itself(path, flags) && dirfd != HERE {
        let asked = with(dirfd, |w, open| {
            found = open.mounted(w)?.zip(open.node(w)?);
            Ok(0)
        });
        return match asked {
            Some(e) if e < 0 => Err(Errno(-e as i32)),
            _ => Ok(found),
        };
    }
    let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
    let done = at(
        dirfd,
        path,
        &mut |_, here| {
            found = Some((here.mounted.clone(), here.find(follow)?.0));
            Ok(0)
        },
        &mut |_, _| failed(Errno::EPERM),
        &mut |_, _| 0,
    );
    if done < 0 { Err(Errno(-done as i32)) } else { Ok(found) }
}

fn link_to(from: (c_int, *const c_char), to: (c_int, *const c_char), flags: c_int) -> isize {
    let found = match find(from.0, from.1, flags) {
        Ok(found) => found,
        Err(e) => return failed(e),
    };
    let mut here = |_: &World, here: &Here| match &found {
        Some((mounted, node)) if Arc::ptr_eq(mounted, &here.mounted) => {
            nothing(here.walker().link(node, &here.from, &here.path))
        }
        _ => Err(Errno(libc::EXDEV).into()),
    };
    let mut there = |dirfd: c_int, path: *const c_char| match &found {
        Some(_) => other_side(path),
        None => kernel!(libc::SYS_linkat, from.0, from.1, dirfd, path, flags),
    };
    at(to.0, to.1, &mut here, &mut fixed, &mut there)
}

/// A name of a workspace and one of the kernel, or none, do not go together.
fn other_side(path: *const c_char) -> isize {
    failed(Errno(if path.is_null() { libc::EFAULT } else { libc::EXDEV }))
}

/// A name, what it stands for, and where.
type Named = (Arc<Mounted>, Last, Option<(Arc<Node>, iov_posix::Attributes)>);

fn rename_to(from: (c_int, *const c_char), to: (c_int, *const c_char), flags: c_uint) -> isize {
    let mut first: Option<Named> = None;
    let done = at(
        from.0,
        from.1,
        &mut |_, here| {
            let (last, there) = here.walker().last(&here.from, &here.path)?;
            if there.is_none() {
                return Err(Errno::ENOENT.into());
            }
            first = Some((here.mounted.clone(), last, there));
            Ok(0)
        },
        &mut fixed,
        &mut |_, _| 0,
    );
    if done < 0 {
        return done;
    }
    let how = match flags {
        0 => Ok(Rename::Replace),
        libc::RENAME_NOREPLACE => Ok(Rename::NoReplace),
        libc::RENAME_EXCHANGE => Ok(Rename::Exchange),
        _ => Err(Errno::EINVAL),
    };
    let mut here = |_: &World, here: &Here| -> Way<isize> {
        let Some((mounted, last, there)) = first.as_ref().filter(|(m, ..)| Arc::ptr_eq(m, &here.mounted)) else {
            return Err(Errno(libc::EXDEV).into());
        };
        debug_assert!(mounted.at == here.mounted.at);
        let (to, taken) = here.walker().last(&here.from, &here.path)?;
        nothing(here.walker().rename((last, there.clone()), (&to, taken), how?))
    };
    let mut there = |dirfd: c_int, path: *const c_char| match &first {
        Some(_) => other_side(path),
        None => kernel!(libc::SYS_renameat2, from.0, from.1, dirfd, path, flags),
    };
    at(to.0, to.1, &mut here, &mut fixed, &mut there)
}

/// The process goes to a directory of a workspace, or of the kernel.
fn go_to(world: &World, directory: Directory) {
    *world.directory.write().unwrap_or_else(std::sync::PoisonError::into_inner) = directory;
}

fn change_dir(path: *const c_char) -> isize {
    at(
        HERE,
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
    if !crate::world::caller().may(attributes, libc::X_OK as u32) {
        return Err(Errno::EACCES.into());
    }
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

/// The path of the process's directory, where that is one of a workspace; `Err`: it has none any more.
pub(crate) fn directory(world: &World) -> Result<Option<Vec<u8>>, Errno> {
    let directory = world.directory.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    match directory {
        Directory::Outside => Ok(None),
        Directory::Named(path) => Ok(Some(path)),
        Directory::Inside(mounted, node) => {
            let path = node.path().ok_or(Errno::ENOENT)?;
            let path = if path == b"/" { &[][..] } else { &path[..] };
            Ok(Some([&mounted.at, path].concat()))
        }
    }
}

/// `getcwd(3)`
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C" fn getcwd(out: *mut c_char, len: usize) -> *mut c_char {
    let ours = match world().map_or(Ok(None), directory) {
        Ok(ours) => ours,
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
    /// `mkdir(2)`
    fn mkdir(path: *const c_char, mode: u32) -> c_int = make_dir(HERE, path, mode);
    /// `mkdirat(2)`
    fn mkdirat(dirfd: c_int, path: *const c_char, mode: u32) -> c_int = make_dir(dirfd, path, mode);
    /// `mknod(2)`
    fn mknod(path: *const c_char, mode: u32, dev: u64) -> c_int = make_node(HERE, path, mode, dev);
    /// `mknodat(2)`
    fn mknodat(dirfd: c_int, path: *const c_char, mode: u32, dev: u64) -> c_int = make_node(dirfd, path, mode, dev);
    /// `unlink(2)`
    fn unlink(path: *const c_char) -> c_int = remove(HERE, path, 0);
    /// `unlinkat(2)`
    fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int = remove(dirfd, path, flags);
    /// `rmdir(2)`
    fn rmdir(path: *const c_char) -> c_int = remove(HERE, path, libc::AT_REMOVEDIR);
    /// `symlink(2)`
    fn symlink(target: *const c_char, path: *const c_char) -> c_int = make_link(target, HERE, path);
    /// `symlinkat(2)`
    fn symlinkat(target: *const c_char, dirfd: c_int, path: *const c_char) -> c_int = make_link(target, dirfd, path);
    /// `link(2)`
    fn link(from: *const c_char, to: *const c_char) -> c_int = link_to((HERE, from), (HERE, to), 0);
    /// `linkat(2)`
    fn linkat(from_fd: c_int, from: *const c_char, to_fd: c_int, to: *const c_char, flags: c_int) -> c_int =
        link_to((from_fd, from), (to_fd, to), flags);
    /// `rename(2)`
    fn rename(from: *const c_char, to: *const c_char) -> c_int = rename_to((HERE, from), (HERE, to), 0);
    /// `renameat(2)`
    fn renameat(from_fd: c_int, from: *const c_char, to_fd: c_int, to: *const c_char) -> c_int =
        rename_to((from_fd, from), (to_fd, to), 0);
    /// `renameat2(2)`
    fn renameat2(from_fd: c_int, from: *const c_char, to_fd: c_int, to: *const c_char, flags: c_uint) -> c_int =
        rename_to((from_fd, from), (to_fd, to), flags);
    /// `chdir(2)`
    fn chdir(path: *const c_char) -> c_int = change_dir(path);
    /// `fchdir(2)`
    fn fchdir(fd: c_int) -> c_int = change_dir_to(fd);
}
