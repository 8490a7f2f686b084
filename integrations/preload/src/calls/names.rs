//! Names: making, moving and removing them.

use std::{
    ffi::{CString, c_char, c_int, c_uint},
    sync::Arc,
};

use iov_posix::{Errno, Kind, Last, Node, Rename, Way};

use super::{Here, at, at_name, bytes_of, export, facts, fifos, fixed, links, nothing, outer};
use crate::{
    files::with,
    raw::{failed, kernel},
    world::{Mounted, World, world},
};

const HERE: c_int = libc::AT_FDCWD;

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
    at_name(
        dirfd,
        path,
        &mut |_, here| nothing(here.walker().mkdir(&here.from, &here.path, mode & 0o7777)),
        &mut |_, _| failed(Errno::EEXIST),
        &mut |dirfd, path| kernel!(libc::SYS_mkdirat, dirfd, path, mode),
    )
}

fn make_node(dirfd: c_int, path: *const c_char, mode: u32, dev: u64) -> isize {
    at_name(
        dirfd,
        path,
        &mut |_, here| {
            let kind = kind_of(mode).ok_or(Errno::EINVAL)?;
            nothing(here.walker().mknod(&here.from, &here.path, kind, dev, mode & 0o7777))
        },
        &mut |_, _| failed(Errno::EEXIST),
        &mut |dirfd, path| kernel!(libc::SYS_mknodat, dirfd, path, mode, dev as c_uint),
    )
}

fn remove(dirfd: c_int, path: *const c_char, flags: c_int) -> isize {
    if bytes_of(path).is_some_and(|path| path.starts_with(b"/proc/") && links::is_link(path)) {
        // The link is meant, which nobody can remove, and not what it leads to.
        return kernel!(libc::SYS_unlinkat, dirfd, path, flags);
    }
    at_name(
        dirfd,
        path,
        &mut |_, here| match flags {
            0 => {
                fifos::unnamed(&here.walker().unlink(&here.from, &here.path)?);
                Ok(0)
            }
            libc::AT_REMOVEDIR => nothing(here.walker().rmdir(&here.from, &here.path)),
            _ => Err(Errno::EINVAL.into()),
        },
        &mut fixed,
        &mut |dirfd, path| kernel!(libc::SYS_unlinkat, dirfd, path, flags),
    )
}

fn make_link(target: *const c_char, dirfd: c_int, path: *const c_char) -> isize {
    let Some(bytes) = bytes_of(target) else { return failed(Errno(libc::EFAULT)) };
    at_name(
        dirfd,
        path,
        &mut |_, here| nothing(here.walker().symlink(&here.from, &here.path, bytes)),
        &mut fixed,
        &mut |dirfd, path| kernel!(libc::SYS_symlinkat, target, dirfd, path),
    )
}

/// Something that was found, where it is.
type Found = (Arc<Mounted>, Arc<Node>);

/// A path of the kernel, to which another one may have led.
type Other = (c_int, Option<CString>);

fn other(dirfd: c_int, path: *const c_char) -> Other {
    (dirfd, bytes_of(path).and_then(|path| CString::new(path).ok()))
}

fn pointer((dirfd, path): &Other) -> (c_int, *const c_char) {
    (*dirfd, path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()))
}

/// Whether a path of the kernel is none.
fn names_nothing((_, path): &Other) -> bool {
    path.as_ref().is_some_and(|path| path.is_empty())
}

/// What a call that names two paths means by the first: something of a workspace, or a path of the kernel.
fn find(dirfd: c_int, path: *const c_char, flags: c_int) -> Result<Result<Found, Other>, Errno> {
    let mut found = None;
    let mut elsewhere = other(dirfd, path);
    // What is open is known by itself; it may have no name yet.
    if flags & libc::AT_SYMLINK_FOLLOW != 0
        && let (Some(world), Some(path)) = (world(), bytes_of(path))
        && let Some(open) = super::own_link(world, path)
        && let (Some(mounted), Some(node)) = (open.mounted(world)?, open.node(world)?)
    {
        return Ok(Ok((mounted, node)));
    }
    if facts::means_itself(path, flags) && dirfd != HERE {
        let asked = with(dirfd, |w, open| {
            found = open.mounted(w)?.zip(open.node(w)?);
            Ok(0)
        });
        return match asked {
            Some(e) if e < 0 => Err(Errno(-e as i32)),
            _ => Ok(found.ok_or(elsewhere)),
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
        &mut |dirfd, path| {
            elsewhere = other(dirfd, path);
            0
        },
    );
    if done < 0 { Err(Errno(-done as i32)) } else { Ok(found.ok_or(elsewhere)) }
}

fn link_to(from: (c_int, *const c_char), to: (c_int, *const c_char), flags: c_int) -> isize {
    let last = if flags & libc::AT_SYMLINK_FOLLOW != 0 { outer::Last::Followed } else { outer::Last::Itself };
    outer::with_two((from, last), to, &|from, to| link_by(from, to, flags))
}

fn link_by(from: (c_int, *const c_char), to: (c_int, *const c_char), flags: c_int) -> isize {
    let found = match find(from.0, from.1, flags) {
        Ok(found) => found,
        Err(e) => return failed(e),
    };
    let known = libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH;
    let mut here = |_: &World, here: &Here| match &found {
        _ if flags & !known != 0 => Err(Errno::EINVAL.into()),
        Ok((mounted, node)) if Arc::ptr_eq(mounted, &here.mounted) => {
            nothing(here.walker().link(node, &here.from, &here.path))
        }
        Err(from) if from.1.is_none() => Err(Errno(libc::EFAULT).into()),
        Err(from) if names_nothing(from) => Err(Errno::ENOENT.into()),
        // It may lead out, to where the other is.
        found => here.walker().last(&here.from, &here.path).and(Err(not_there(found.as_ref().err()).into())),
    };
    let mut there = |dirfd: c_int, path: *const c_char| match &found {
        Ok(_) => other_side(dirfd, path),
        Err(from) => kernel!(libc::SYS_linkat, pointer(from).0, pointer(from).1, dirfd, path, flags),
    };
    at_name(to.0, to.1, &mut here, &mut fixed, &mut there)
}

/// What the kernel says of a name.
fn looked(dirfd: c_int, path: *const c_char) -> isize {
    // SAFETY: all of it may be zero, and the call fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    kernel!(libc::SYS_newfstatat, dirfd, path, &raw mut stat, libc::AT_SYMLINK_NOFOLLOW)
}

/// Why what the kernel knows cannot get a name in a workspace.
fn not_there(from: Option<&Other>) -> Errno {
    let found = from.map_or(0, |from| looked(pointer(from).0, pointer(from).1));
    if found < 0 { Errno(-found as c_int) } else { Errno(libc::EXDEV) }
}

/// A name of a workspace and one of the kernel, or none, do not go together; unless the second cannot be one at all.
fn other_side(dirfd: c_int, path: *const c_char) -> isize {
    if bytes_of(path).is_some_and(<[u8]>::is_empty) {
        return failed(Errno::ENOENT);
    }
    let wrong = [libc::EFAULT, libc::EBADF, libc::ENOTDIR, libc::ENAMETOOLONG, libc::ELOOP];
    match looked(dirfd, path) {
        e if wrong.contains(&(-e as c_int)) => e,
        // Nothing has the name; where it would be there may be nothing either.
        e if e == failed(Errno::ENOENT) && !has_directory(dirfd, path) => e,
        _ => failed(Errno(libc::EXDEV)),
    }
}

/// Whether the kernel knows the directory in which a path names something.
fn has_directory(dirfd: c_int, path: *const c_char) -> bool {
    let bytes = bytes_of(path).unwrap_or_default();
    let end = bytes.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
    let Some(slash) = bytes[..end].iter().rposition(|b| *b == b'/') else { return true };
    // With its slash, so that it is followed where it is a link.
    CString::new(&bytes[..=slash]).is_ok_and(|directory| looked(dirfd, directory.as_ptr()) == 0)
}

/// Where a name is, and which: none if it cannot be moved.
type Named = (Arc<Mounted>, Option<Last>);

fn rename_to(from: (c_int, *const c_char), to: (c_int, *const c_char), flags: c_uint) -> isize {
    outer::with_two((from, outer::Last::Itself), to, &|from, to| rename_by(from, to, flags))
}

fn rename_by(from: (c_int, *const c_char), to: (c_int, *const c_char), flags: c_uint) -> isize {
    if flags & libc::RENAME_EXCHANGE != 0 && flags & (libc::RENAME_NOREPLACE | libc::RENAME_WHITEOUT) != 0 {
        return failed(Errno::EINVAL);
    }
    let how = match flags {
        0 => Ok(Rename::Replace),
        libc::RENAME_NOREPLACE => Ok(Rename::NoReplace),
        libc::RENAME_EXCHANGE => Ok(Rename::Exchange),
        _ => Err(Errno::EINVAL),
    };
    let mut first: Option<Named> = None;
    let mut elsewhere = other(from.0, from.1);
    let done = at_name(
        from.0,
        from.1,
        &mut |_, here| {
            how?;
            // What is wrong with it itself is said behind what is wrong on the way to the other.
            first = Some((here.mounted.clone(), here.walker().name(&here.from, &here.path)?));
            Ok(0)
        },
        &mut fixed,
        &mut |dirfd, path| {
            elsewhere = other(dirfd, path);
            0
        },
    );
    if done < 0 {
        return done;
    }
    if first.is_none() && elsewhere.1.is_none() {
        return failed(Errno(libc::EFAULT));
    }
    if first.is_none() && names_nothing(&elsewhere) {
        return failed(Errno::ENOENT);
    }
    let mut here = |_: &World, here: &Here| -> Way<isize> {
        // It may lead out, to where the other is.
        let to = here.walker().name(&here.from, &here.path)?;
        let Some((_, last)) = first.as_ref().filter(|(m, _)| Arc::ptr_eq(m, &here.mounted)) else {
            return Err(not_there(first.is_none().then_some(&elsewhere)).into());
        };
        nothing(here.walker().rename(last.as_ref(), to.as_ref(), how?))
    };
    let mut there = |dirfd: c_int, path: *const c_char| match &first {
        Some(_) => other_side(dirfd, path),
        None => kernel!(libc::SYS_renameat2, pointer(&elsewhere).0, pointer(&elsewhere).1, dirfd, path, flags),
    };
    at_name(to.0, to.1, &mut here, &mut fixed, &mut there)
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
}
