//! Changing attributes: modes, owners, times, lengths, and those with names.

use std::{
    ffi::{c_char, c_int, c_void},
    sync::Arc,
};

use iov_posix::{Change, Errno, Node, Outcome, SetTime, SetXattr, Stop, Walker, Way};

use super::{at, bytes_of, export, facts::means_itself, limits};
use crate::{
    files::{Open, with},
    memory::{self, Use},
    raw::{failed, kernel},
    signals::Quiet,
    world::{Inside, World},
};

/// How often something is looked for again that was replaced before anything could be done with it.
const REPLACED: usize = 100;

/// What is done with something that was found, on behalf of somebody.
type Work<'a> = dyn FnMut(Walker<'_>, &Arc<Node>) -> Way<isize> + 'a;

/// Does something with what is at the end of a path, or open under a descriptor.
fn on(
    (dirfd, path, flags): (c_int, *const c_char, c_int),
    work: &mut Work<'_>,
    there: &mut dyn FnMut(c_int, *const c_char) -> isize,
) -> isize {
    if means_itself(path, flags) && dirfd != libc::AT_FDCWD {
        return on_open(dirfd, work).unwrap_or_else(|| there(dirfd, path));
    }
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    if follow && let Some(done) = by_link(path, work) {
        return done;
    }
    at(
        dirfd,
        path,
        &mut |_, here| {
            for _ in 0..REPLACED {
                let (node, _) = here.find(follow)?;
                match work(here.walker(), &node) {
                    // It has gone since it was found: another one may have its name.
                    Err(Stop::Failed(Errno::ENOENT | Errno::ESTALE)) => here.mounted.paths.refresh(),
                    done => return done,
                }
            }
            Err(Errno::ENOENT.into())
        },
        &mut |_, _| failed(Errno::EOPNOTSUPP),
        there,
    )
}

/// Does something with what is open under a descriptor; none: it is the kernel's.
fn on_open(fd: c_int, work: &mut Work<'_>) -> Option<isize> {
    with(fd, |w, open| on_file(w, open, work))
}

fn on_file(world: &World, open: &Open, work: &mut Work<'_>) -> Outcome<isize> {
    let (Some(mounted), Some(node)) = (open.mounted(world)?, open.node(world)?) else { return Err(Errno::EROFS) };
    let caller = crate::world::caller();
    match work(mounted.paths.walker(&caller), &node) {
        Ok(done) => Ok(done),
        Err(Stop::Failed(e)) => Err(e),
        Err(Stop::Leaves(_)) => Err(Errno::EIO),
    }
}

/// The same by the link of one of this process's descriptors (`/proc/self/fd/7`), whatever its name is by now; none: it is none.
fn by_link(path: *const c_char, work: &mut Work<'_>) -> Option<isize> {
    let world = crate::world::world()?;
    let (errno, _inside) = (crate::raw::errno(), Inside::enter());
    let open = super::own_link(world, bytes_of(path)?)?;
    let done = on_file(world, &open, work).unwrap_or_else(failed);
    // What was used here for it is not the program's.
    crate::raw::set_errno(errno);
    Some(done)
}

/// Changes something.
fn change(
    what: (c_int, *const c_char, c_int),
    change: Change,
    there: &mut dyn FnMut(c_int, *const c_char) -> isize,
) -> isize {
    on(what, &mut |walker, node| walker.change(node, &change).map(|_| 0), there)
}

/// Does something with what was opened for more than its path.
fn on_used(fd: c_int, work: &mut Work<'_>) -> Option<isize> {
    let files = &crate::world::world()?.files;
    if !files.may_have(fd) {
        return None;
    }
    let _quiet = Quiet::enter();
    if files.get(fd)?.is_path() {
        return Some(failed(Errno::EBADF));
    }
    on_open(fd, work)
}

fn change_open(fd: c_int, change: Change) -> Option<isize> {
    on_used(fd, &mut |walker, node| match walker.change(node, &change) {
        // A directory that has been removed: nobody sees its attributes any more.
        Err(Stop::Failed(Errno::ENOENT | Errno::ESTALE)) if node.told_at_the_end().is_some() => Ok(0),
        changed => changed.map(|_| 0),
    })
}

fn of_mode(mode: u32) -> Change {
    Change { mode: Some(mode & 0o7777), ..Change::default() }
}

fn of_owner(uid: u32, gid: u32) -> Change {
    let some = |id: u32| (id != u32::MAX).then_some(id);
    Change { uid: some(uid), gid: some(gid), ..Change::default() }
}

/// The times that a program gives; `None` of it: now.
fn of_times(times: Option<[libc::timespec; 2]>) -> Outcome<Change> {
    let time = |time: libc::timespec| match time.tv_nsec {
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        libc::UTIME_OMIT => Ok(None),
        ns if !(0..1_000_000_000).contains(&ns) => Err(Errno::EINVAL),
        ns => Ok(Some(SetTime::At(time.tv_sec.saturating_mul(1_000_000_000).saturating_add(ns)))),
    };
    let [atime, mtime] = match times {
        Some([atime, mtime]) => [time(atime)?, time(mtime)?],
        None => [Some(SetTime::Now); 2],
    };
    Ok(Change { atime, mtime, ..Change::default() })
}

/// Times of which the parts below a second are millionths.
fn of_microseconds(times: *const libc::timeval) -> Outcome<Option<[libc::timespec; 2]>> {
    let of = |t: libc::timeval| libc::timespec { tv_sec: t.tv_sec, tv_nsec: t.tv_usec.saturating_mul(1000) };
    Ok(given::<[libc::timeval; 2]>(times.cast())?.map(|times| times.map(of)))
}

/// What a program gives, or does not.
fn given<T: Copy>(at: *const T) -> Outcome<Option<T>> {
    if at.is_null() { Ok(None) } else { memory::given(at).map(Some) }
}

/// `utimensat`, with times that may come from elsewhere than where the program has them.
fn set_times(what: (c_int, *const c_char, c_int), times: Outcome<Option<[libc::timespec; 2]>>) -> isize {
    let (dirfd, path, flags) = what;
    let times = match times {
        Ok(_) if flags & !LOOK_FLAGS != 0 => return failed(Errno::EINVAL),
        Ok(times) => times,
        Err(e) => return failed(e),
    };
    // As in the kernel, before anything is looked for.
    if times.is_some_and(|times| times.iter().all(|time| time.tv_nsec == libc::UTIME_OMIT)) {
        return 0;
    }
    let pointer = times.as_ref().map_or(std::ptr::null(), |times| times.as_ptr());
    let mut there = |dirfd: c_int, path: *const c_char| kernel!(libc::SYS_utimensat, dirfd, path, pointer, flags);
    // No path is the descriptor itself.
    let path = if path.is_null() && dirfd != libc::AT_FDCWD {
        return match of_times(times) {
            Ok(new) => change_open(dirfd, new).unwrap_or_else(|| there(dirfd, std::ptr::null())),
            Err(e) => failed(e),
        };
    } else {
        path
    };
    match of_times(times) {
        Ok(new) => change((dirfd, path, flags), new, &mut there),
        Err(e) => failed(e),
    }
}

/// What is said of how to look for something that is changed.
const LOOK_FLAGS: c_int = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
const NO_FLAGS: c_int = 0;
const NO_FOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;
const HERE: c_int = libc::AT_FDCWD;

export! {
    /// `chmod(2)`
    fn chmod(path: *const c_char, mode: u32) -> c_int =
        change((HERE, path, NO_FLAGS), of_mode(mode), &mut |dirfd, path| kernel!(libc::SYS_fchmodat, dirfd, path, mode));
    /// `fchmod(2)`
    fn fchmod(fd: c_int, mode: u32) -> c_int =
        change_open(fd, of_mode(mode)).unwrap_or_else(|| kernel!(libc::SYS_fchmod, fd, mode));
    /// `chown(2)`
    fn chown(path: *const c_char, uid: u32, gid: u32) -> c_int = change(
        (HERE, path, NO_FLAGS),
        of_owner(uid, gid),
        &mut |dirfd, path| kernel!(libc::SYS_fchownat, dirfd, path, uid, gid, 0),
    );
    /// `lchown(2)`
    fn lchown(path: *const c_char, uid: u32, gid: u32) -> c_int = change(
        (HERE, path, NO_FOLLOW),
        of_owner(uid, gid),
        &mut |dirfd, path| kernel!(libc::SYS_fchownat, dirfd, path, uid, gid, NO_FOLLOW),
    );
    /// `fchown(2)`
    fn fchown(fd: c_int, uid: u32, gid: u32) -> c_int =
        change_open(fd, of_owner(uid, gid)).unwrap_or_else(|| kernel!(libc::SYS_fchown, fd, uid, gid));
    /// `fchownat(2)`
    fn fchownat(dirfd: c_int, path: *const c_char, uid: u32, gid: u32, flags: c_int) -> c_int =
        match flags & !LOOK_FLAGS {
            0 => change((dirfd, path, flags), of_owner(uid, gid), &mut |dirfd, path| {
                kernel!(libc::SYS_fchownat, dirfd, path, uid, gid, flags)
            }),
            _ => failed(Errno::EINVAL),
        };
    /// `truncate(2)`
    fn truncate(path: *const c_char, size: i64) -> c_int = match u64::try_from(size) {
        Err(_) => failed(Errno::EINVAL),
        Ok(new) => on(
            (HERE, path, NO_FLAGS),
            &mut |walker, node| {
                limits::may_grow(|| Ok(node.attributes()?.size), new)?;
                walker.change(node, &Change { size: Some(new), ..Change::default() }).map(|_| 0)
            },
            &mut |_, path| kernel!(libc::SYS_truncate, path, size),
        ),
    };
    /// `utimensat(2)`
    fn utimensat(dirfd: c_int, path: *const c_char, times: *const libc::timespec, flags: c_int) -> c_int =
        set_times((dirfd, path, flags), given(times.cast()));
    /// `futimens(3)`
    fn futimens(fd: c_int, times: *const libc::timespec) -> c_int = match fd {
        fd if fd < 0 => failed(Errno::EBADF),
        fd => set_times((fd, std::ptr::null(), 0), given(times.cast())),
    };
    /// `utimes(2)`
    fn utimes(path: *const c_char, times: *const libc::timeval) -> c_int =
        set_times((HERE, path, NO_FLAGS), of_microseconds(times));
    /// `lutimes(3)`
    fn lutimes(path: *const c_char, times: *const libc::timeval) -> c_int =
        set_times((HERE, path, NO_FOLLOW), of_microseconds(times));
    /// `futimes(3)`
    fn futimes(fd: c_int, times: *const libc::timeval) -> c_int =
        set_times((fd, std::ptr::null(), 0), of_microseconds(times));
    /// `futimesat(2)`
    fn futimesat(dirfd: c_int, path: *const c_char, times: *const libc::timeval) -> c_int =
        set_times((dirfd, path, NO_FLAGS), of_microseconds(times));
    /// `utime(2)`
    fn utime(path: *const c_char, times: *const libc::utimbuf) -> c_int = {
        let of = |t: libc::utimbuf| [t.actime, t.modtime].map(|tv_sec| libc::timespec { tv_sec, tv_nsec: 0 });
        set_times((HERE, path, NO_FLAGS), given(times).map(|times| times.map(of)))
    };
    /// `setxattr(2)`
    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, n: usize, flags: c_int) -> c_int =
        on((HERE, path, NO_FLAGS), &mut |walker, node| put(walker, node, (name, value, n, flags)), &mut |_, path| {
            kernel!(libc::SYS_setxattr, path, name, value, n, flags)
        });
    /// `lsetxattr(2)`
    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, n: usize, flags: c_int) -> c_int =
        on((HERE, path, NO_FOLLOW), &mut |walker, node| put(walker, node, (name, value, n, flags)), &mut |_, path| {
            kernel!(libc::SYS_lsetxattr, path, name, value, n, flags)
        });
    /// `fsetxattr(2)`
    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, n: usize, flags: c_int) -> c_int =
        on_used(fd, &mut |walker, node| put(walker, node, (name, value, n, flags)))
            .unwrap_or_else(|| kernel!(libc::SYS_fsetxattr, fd, name, value, n, flags));
    /// `getxattr(2)`
    fn getxattr(path: *const c_char, name: *const c_char, out: *mut c_void, n: usize) -> isize =
        on((HERE, path, NO_FLAGS), &mut |walker, node| get(walker, node, name, (out, n)), &mut |_, path| {
            kernel!(libc::SYS_getxattr, path, name, out, n)
        });
    /// `lgetxattr(2)`
    fn lgetxattr(path: *const c_char, name: *const c_char, out: *mut c_void, n: usize) -> isize =
        on((HERE, path, NO_FOLLOW), &mut |walker, node| get(walker, node, name, (out, n)), &mut |_, path| {
            kernel!(libc::SYS_lgetxattr, path, name, out, n)
        });
    /// `fgetxattr(2)`
    fn fgetxattr(fd: c_int, name: *const c_char, out: *mut c_void, n: usize) -> isize =
        on_used(fd, &mut |walker, node| get(walker, node, name, (out, n)))
            .unwrap_or_else(|| kernel!(libc::SYS_fgetxattr, fd, name, out, n));
    /// `listxattr(2)`
    fn listxattr(path: *const c_char, out: *mut c_char, n: usize) -> isize =
        on((HERE, path, NO_FLAGS), &mut |_, node| list(node, (out.cast(), n)), &mut |_, path| {
            kernel!(libc::SYS_listxattr, path, out, n)
        });
    /// `llistxattr(2)`
    fn llistxattr(path: *const c_char, out: *mut c_char, n: usize) -> isize =
        on((HERE, path, NO_FOLLOW), &mut |_, node| list(node, (out.cast(), n)), &mut |_, path| {
            kernel!(libc::SYS_llistxattr, path, out, n)
        });
    /// `flistxattr(2)`
    fn flistxattr(fd: c_int, out: *mut c_char, n: usize) -> isize =
        on_used(fd, &mut |_, node| list(node, (out.cast(), n)))
            .unwrap_or_else(|| kernel!(libc::SYS_flistxattr, fd, out, n));
    /// `removexattr(2)`
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int =
        on((HERE, path, NO_FLAGS), &mut |walker, node| remove(walker, node, name), &mut |_, path| {
            kernel!(libc::SYS_removexattr, path, name)
        });
    /// `lremovexattr(2)`
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int =
        on((HERE, path, NO_FOLLOW), &mut |walker, node| remove(walker, node, name), &mut |_, path| {
            kernel!(libc::SYS_lremovexattr, path, name)
        });
    /// `fremovexattr(2)`
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int =
        on_used(fd, &mut |walker, node| remove(walker, node, name))
            .unwrap_or_else(|| kernel!(libc::SYS_fremovexattr, fd, name));
}

/// Changes the mode of what a path names, not of what it leads to, as the C library does it where the kernel cannot.
fn change_mode_of_itself(dirfd: c_int, path: *const c_char, mode: u32) -> isize {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let fd = kernel!(libc::SYS_openat, dirfd, path, flags, 0);
    if fd < 0 {
        return fd;
    }
    // SAFETY: all of it may be zero, and the call fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    kernel!(libc::SYS_fstat, fd, &raw mut stat);
    let done = if stat.st_mode & libc::S_IFMT == libc::S_IFLNK {
        failed(Errno::EOPNOTSUPP)
    } else {
        let _quiet = Quiet::enter();
        let link = format!("/proc/self/fd/{fd}\0");
        kernel!(libc::SYS_fchmodat, libc::AT_FDCWD, link.as_ptr(), mode)
    };
    kernel!(libc::SYS_close, fd);
    done
}

/// `fchmodat`, of which the C library has had flags for longer than the kernel.
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C" fn fchmodat(dirfd: c_int, path: *const c_char, mode: u32, flags: c_int) -> c_int {
    const SYS_FCHMODAT2: i64 = 452;
    let mut there = |dirfd: c_int, path: *const c_char| match flags {
        0 => kernel!(libc::SYS_fchmodat, dirfd, path, mode),
        _ => match kernel!(SYS_FCHMODAT2, dirfd, path, mode, flags) {
            e if e == failed(Errno(libc::ENOSYS)) => change_mode_of_itself(dirfd, path, mode),
            done => done,
        },
    };
    let change = of_mode(mode);
    let mut here = |walker: Walker<'_>, node: &Arc<Node>| match node.kind() {
        _ if flags & !LOOK_FLAGS != 0 => Err(Errno::EINVAL.into()),
        // A link has no mode.
        iov_posix::Kind::Symlink => Err(Errno::EOPNOTSUPP.into()),
        _ => walker.change(node, &change).map(|_| 0),
    };
    crate::raw::answer(on((dirfd, path, flags), &mut here, &mut there)) as c_int
}

/// Longest name and value of an attribute, as for the kernel (`XATTR_NAME_MAX`, `XATTR_SIZE_MAX`).
const XATTR_NAME: usize = 255;
const XATTR_SIZE: usize = 65536;

fn put(
    walker: Walker<'_>,
    node: &Arc<Node>,
    (name, value, n, flags): (*const c_char, *const c_void, usize, c_int),
) -> Way<isize> {
    let how = match flags {
        0 => SetXattr::Either,
        libc::XATTR_CREATE => SetXattr::Create,
        libc::XATTR_REPLACE => SetXattr::Replace,
        _ => return Err(Errno::EINVAL.into()),
    };
    if n > XATTR_SIZE {
        return Err(Errno::E2BIG.into());
    }
    let name = name_of(name)?;
    memory::check(value, n, Use::Read)?;
    // SAFETY: the value is the program's, of this length.
    let value = if n == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(value.cast(), n) } };
    walker.set_xattr(node, name, value, how)?;
    Ok(0)
}

fn get(walker: Walker<'_>, node: &Arc<Node>, name: *const c_char, room: (*mut c_void, usize)) -> Way<isize> {
    let name = name_of(name)?;
    // Capabilities and labels are asked for often, and are never there.
    if name.starts_with(b"security.") || name.starts_with(b"trusted.") {
        return Err(Errno::EOPNOTSUPP.into());
    }
    walker.may_xattr(node, name, false)?;
    Ok(give(&node.xattr(name)?, room)?)
}

fn list(node: &Arc<Node>, room: (*mut c_void, usize)) -> Way<isize> {
    let names: Vec<u8> = node.xattrs()?.into_iter().flat_map(|name| name.into_iter().chain([0])).collect();
    Ok(give(&names, room)?)
}

fn remove(walker: Walker<'_>, node: &Arc<Node>, name: *const c_char) -> Way<isize> {
    let name = name_of(name)?;
    walker.may_xattr(node, name, true)?;
    node.remove_xattr(name)?;
    Ok(0)
}

/// The name of an attribute.
fn name_of<'a>(name: *const c_char) -> Outcome<&'a [u8]> {
    match bytes_of(name).ok_or(Errno(libc::EFAULT))? {
        name if name.is_empty() || name.len() > XATTR_NAME => Err(Errno::ERANGE),
        name => Ok(name),
    }
}

/// Gives a program a value, or tells how long it is.
fn give(value: &[u8], (out, room): (*mut c_void, usize)) -> Outcome<isize> {
    if room > 0 && room < value.len() {
        return Err(Errno::ERANGE);
    }
    if room > 0 {
        memory::give_bytes(out, value)?;
    }
    Ok(value.len() as isize)
}
