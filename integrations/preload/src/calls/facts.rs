//! What is told of files: `stat` and its kin, who may do what, where links lead, how much room there is.

use std::ffi::{c_char, c_int, c_uint};

use iov_posix::{Attributes, Errno, FileSystem, Kind, Node, Outcome};

use super::{Here, at, bytes_of, export, links, own_link};
use crate::{
    files::{self, with},
    memory,
    raw::{failed, kernel, outcome},
    signals::Quiet,
    world::{Inside, World},
};

/// What reading at once is worth.
const BLOCK: i64 = 64 << 10;
/// The number of the device that the directory of all workspaces is on.
const TOP_DEV: u64 = 0x10_0000;
/// What `statfs` says of the kind of file system: that of FUSE, as programs know it.
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

/// What `statx` and `fstatat` may be told of how to look.
const LOOK_FLAGS: c_int = libc::AT_EMPTY_PATH
    | libc::AT_NO_AUTOMOUNT
    | libc::AT_SYMLINK_NOFOLLOW
    | libc::AT_STATX_FORCE_SYNC
    | libc::AT_STATX_DONT_SYNC;

/// How new facts are to be: of the two ways only one can be asked for.
const WHEN: c_int = libc::AT_STATX_FORCE_SYNC | libc::AT_STATX_DONT_SYNC;
/// What `statx` may not be asked for yet (`STATX__RESERVED`).
const RESERVED: c_uint = 1 << 31;

/// What is told of one file.
struct Facts {
    attributes: Attributes,
    dev: u64,
}

/// The directory of all workspaces.
fn of_top() -> Facts {
    let attributes = Attributes {
        uuid: ioverbs::Uuid::NIL,
        ino: 1,
        kind: Kind::Directory,
        mode: 0o755,
        links: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 4096,
        blocks: 8,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        btime_ns: 0,
        version: 0,
        acl: false,
        default_acl: false,
    };
    Facts { attributes, dev: TOP_DEV }
}

fn time(ns: i64) -> (i64, i64) {
    (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000))
}

impl Facts {
    fn to_stat(&self, out: *mut libc::stat) -> Outcome<isize> {
        let a = &self.attributes;
        // SAFETY: all of it may be zero.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        stat.st_dev = self.dev;
        stat.st_ino = a.ino;
        stat.st_mode = a.kind.bits() | a.mode;
        stat.st_nlink = a.links.into();
        (stat.st_uid, stat.st_gid, stat.st_rdev) = (a.uid, a.gid, a.rdev);
        (stat.st_size, stat.st_blocks) = (a.size as i64, a.blocks as i64);
        stat.st_blksize = BLOCK as _;
        (stat.st_atime, stat.st_atime_nsec) = time(a.atime_ns);
        (stat.st_mtime, stat.st_mtime_nsec) = time(a.mtime_ns);
        (stat.st_ctime, stat.st_ctime_nsec) = time(a.ctime_ns);
        memory::give(out, stat).map(|()| 0)
    }

    fn to_statx(&self, out: *mut libc::statx) -> Outcome<isize> {
        let a = &self.attributes;
        // SAFETY: all of it may be zero.
        let mut stat: libc::statx = unsafe { std::mem::zeroed() };
        let stamp = |ns: i64| {
            // SAFETY: all of it may be zero.
            let mut stamp: libc::statx_timestamp = unsafe { std::mem::zeroed() };
            let (seconds, rest) = time(ns);
            (stamp.tv_sec, stamp.tv_nsec) = (seconds, rest as u32);
            stamp
        };
        stat.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
        stat.stx_blksize = BLOCK as u32;
        stat.stx_nlink = a.links;
        (stat.stx_uid, stat.stx_gid) = (a.uid, a.gid);
        stat.stx_mode = (a.kind.bits() | a.mode) as u16;
        (stat.stx_ino, stat.stx_size, stat.stx_blocks) = (a.ino, a.size, a.blocks);
        (stat.stx_atime, stat.stx_btime) = (stamp(a.atime_ns), stamp(a.btime_ns));
        (stat.stx_ctime, stat.stx_mtime) = (stamp(a.ctime_ns), stamp(a.mtime_ns));
        (stat.stx_rdev_major, stat.stx_rdev_minor) = (libc::major(a.rdev), libc::minor(a.rdev));
        (stat.stx_dev_major, stat.stx_dev_minor) = (libc::major(self.dev), libc::minor(self.dev));
        memory::give(out, stat).map(|()| 0)
    }
}

fn of_open(world: &World, open: &files::Open) -> Outcome<Facts> {
    match (files::attributes(open, world)?, open.mounted(world)?) {
        (Some(attributes), Some(mounted)) => Ok(Facts { attributes, dev: mounted.dev }),
        _ => Ok(of_top()),
    }
}

fn of_here(here: &Here, follow: bool) -> iov_posix::Way<Facts> {
    let (_, attributes) = here.find(follow)?;
    Ok(Facts { attributes, dev: here.mounted.dev })
}

/// Whether a call means the descriptor itself, and not a path from it.
pub(super) fn means_itself(path: *const c_char, flags: c_int) -> bool {
    flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || bytes_of(path).is_some_and(<[u8]>::is_empty))
}

/// Tells facts of what a call means, by `told`; none: that is the kernel's.
fn look(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    told: &dyn Fn(&Facts) -> Outcome<isize>,
    there: &mut dyn FnMut(c_int, *const c_char) -> isize,
) -> isize {
    if flags & !LOOK_FLAGS != 0 {
        return failed(Errno::EINVAL);
    }
    if means_itself(path, flags) {
        if dirfd == libc::AT_FDCWD {
            return look(dirfd, c".".as_ptr(), 0, told, there);
        }
        return with(dirfd, |w, open| told(&of_open(w, open)?)).unwrap_or_else(|| there(dirfd, path));
    }
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let mut here = |_: &World, here: &Here| Ok(told(&of_here(here, follow)?)?);
    let mut top = |_: &World, _: &[u8]| outcome(told(&of_top()));
    if !follow {
        return at(dirfd, path, &mut here, &mut top, there);
    }
    if let (Some(world), Some(name)) = (crate::world::world(), bytes_of(path)) {
        let _quiet = Quiet::enter();
        if let Some(open) = own_link(world, name) {
            let _inside = Inside::enter();
            return outcome(of_open(world, &open).and_then(|facts| told(&facts)));
        }
    }
    links::following((dirfd, path), |dirfd, path| at(dirfd, path, &mut here, &mut top, there))
}

fn stat_at(dirfd: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> isize {
    let mut there = |dirfd: c_int, path| kernel!(libc::SYS_newfstatat, dirfd, path, out, flags);
    look(dirfd, path, flags, &|facts| facts.to_stat(out), &mut there)
}

fn stat_of(fd: c_int, out: *mut libc::stat) -> isize {
    with(fd, |w, open| of_open(w, open)?.to_stat(out)).unwrap_or_else(|| kernel!(libc::SYS_fstat, fd, out))
}

fn access_at(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> isize {
    if flags & !(libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
        return failed(Errno::EINVAL);
    }
    if means_itself(path, flags) && dirfd != libc::AT_FDCWD {
        let checked = with(dirfd, |w, open| {
            let node = open.node(w)?;
            may((node.as_deref(), &of_open(w, open)?.attributes), mode, flags)
        });
        if let Some(checked) = checked {
            return checked;
        }
    }
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let mut here = |_: &World, here: &Here| {
        let (node, attributes) = here.find(follow)?;
        Ok(may((Some(&node), &attributes), mode, flags)?)
    };
    let mut top = |_: &World, _: &[u8]| outcome(may((None, &of_top().attributes), mode, flags));
    let mut there = |dirfd, path| match flags {
        0 => kernel!(libc::SYS_faccessat, dirfd, path, mode),
        _ => match kernel!(libc::SYS_faccessat2, dirfd, path, mode, flags) {
            // Before Linux 5.8 the kernel knows no flags: mostly they make no difference.
            e if e == failed(Errno(libc::ENOSYS)) => kernel!(libc::SYS_faccessat, dirfd, path, mode),
            done => done,
        },
    };
    match follow {
        true => links::following((dirfd, path), |dirfd, path| at(dirfd, path, &mut here, &mut top, &mut there)),
        false => at(dirfd, path, &mut here, &mut top, &mut there),
    }
}

fn may((node, attributes): (Option<&Node>, &Attributes), mode: c_int, flags: c_int) -> Outcome<isize> {
    if mode & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 {
        return Err(Errno::EINVAL);
    }
    let mut caller = crate::world::caller();
    if flags & libc::AT_EACCESS == 0 {
        // It asks for who started the program, not for who it runs as.
        // SAFETY: these ask the kernel for numbers.
        (caller.uid, caller.gid) = unsafe { (libc::getuid(), libc::getgid()) };
    }
    match node {
        Some(node) => caller.check(node, attributes, mode as u32).map(|()| 0),
        None if caller.may(attributes, mode as u32) => Ok(0),
        None => Err(Errno::EACCES),
    }
}

fn read_link(dirfd: c_int, path: *const c_char, out: *mut c_char, len: usize) -> isize {
    let give = |target: &[u8]| {
        let n = target.len().min(len);
        memory::give_bytes(out.cast(), &target[..n]).map(|()| n as isize)
    };
    // Where a descriptor of ours is, programs ask the kernel.
    if let (Some(world), Some(path)) = (crate::world::world(), bytes_of(path))
        && path.starts_with(b"/proc/")
        && links::is_link(path)
        // The library finds its own things beside what the kernel takes for the program.
        && !Inside::is()
    {
        let _inside = Inside::enter();
        if let Some(target) = links::leads_to(world, path).transpose() {
            return outcome(target.and_then(|target| give(&target)));
        }
    }
    if len == 0 {
        return failed(Errno::EINVAL);
    }
    if let (true, Some(target)) = (
        bytes_of(path).is_some_and(<[u8]>::is_empty),
        with(dirfd, |w, open| match open.node(w)? {
            Some(node) => give(&node.read_link()?),
            None => Err(Errno::ENOENT),
        }),
    ) {
        return target;
    }
    at(
        dirfd,
        path,
        &mut |_, here| Ok(give(&here.find(false)?.0.read_link()?)?),
        &mut |_, _| failed(Errno::EINVAL),
        &mut |dirfd, path| kernel!(libc::SYS_readlinkat, dirfd, path, out, len),
    )
}

fn give_space(fs: Option<&FileSystem>, out: *mut libc::statfs) -> Outcome<isize> {
    let space = match fs {
        Some(fs) => fs.space()?,
        None => iov_posix::Space::default(),
    };
    // SAFETY: all of it may be zero.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    stat.f_type = FUSE_SUPER_MAGIC as _;
    (stat.f_bsize, stat.f_frsize, stat.f_namelen) = (4096, 4096, 255);
    (stat.f_blocks, stat.f_bfree, stat.f_bavail) = (space.bytes / 4096, space.free / 4096, space.free / 4096);
    (stat.f_files, stat.f_ffree) = (space.files, space.free_files);
    memory::give(out, stat).map(|()| 0)
}

export! {
    /// `stat(2)`
    fn stat(path: *const c_char, out: *mut libc::stat) -> c_int = stat_at(libc::AT_FDCWD, path, out, 0);
    /// `lstat(2)`
    fn lstat(path: *const c_char, out: *mut libc::stat) -> c_int =
        stat_at(libc::AT_FDCWD, path, out, libc::AT_SYMLINK_NOFOLLOW);
    /// `fstat(2)`
    fn fstat(fd: c_int, out: *mut libc::stat) -> c_int = stat_of(fd, out);
    /// `fstatat(2)`
    fn fstatat(dirfd: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int =
        stat_at(dirfd, path, out, flags);
    /// `__xstat`, as programs of before glibc 2.33 call it
    fn xstat(_version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int =
        stat_at(libc::AT_FDCWD, path, out, 0);
    /// `__lxstat`, as programs of before glibc 2.33 call it
    fn lxstat(_version: c_int, path: *const c_char, out: *mut libc::stat) -> c_int =
        stat_at(libc::AT_FDCWD, path, out, libc::AT_SYMLINK_NOFOLLOW);
    /// `__fxstat`, as programs of before glibc 2.33 call it
    fn fxstat(_version: c_int, fd: c_int, out: *mut libc::stat) -> c_int =
        stat_of(fd, out);
    /// `__fxstatat`, as programs of before glibc 2.33 call it
    fn fxstatat(_version: c_int, dirfd: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int =
        stat_at(dirfd, path, out, flags);
    /// `statx(2)`
    fn statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int =
        match mask & RESERVED != 0 || flags & WHEN == WHEN {
            true => failed(Errno::EINVAL),
            false => look(dirfd, path, flags, &|facts| facts.to_statx(out), &mut |dirfd, path| {
                kernel!(libc::SYS_statx, dirfd, path, flags, mask, out)
            }),
        };
    /// `access(2)`
    fn access(path: *const c_char, mode: c_int) -> c_int = access_at(libc::AT_FDCWD, path, mode, 0);
    /// `euidaccess(3)`
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int =
        access_at(libc::AT_FDCWD, path, mode, libc::AT_EACCESS);
    /// `faccessat(2)`
    fn faccessat(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int =
        access_at(dirfd, path, mode, flags);
    /// `readlink(2)`
    fn readlink(path: *const c_char, out: *mut c_char, len: usize) -> isize =
        read_link(libc::AT_FDCWD, path, out, len);
    /// `readlinkat(2)`
    fn readlinkat(dirfd: c_int, path: *const c_char, out: *mut c_char, len: usize) -> isize =
        read_link(dirfd, path, out, len);
    /// `statfs(2)`
    fn statfs(path: *const c_char, out: *mut libc::statfs) -> c_int = at(
        libc::AT_FDCWD,
        path,
        &mut |_, here| {
            here.find(true)?;
            Ok(give_space(Some(here.mounted.paths.file_system()), out)?)
        },
        &mut |_, _| outcome(give_space(None, out)),
        &mut |_, path| kernel!(libc::SYS_statfs, path, out),
    );
    /// `fstatfs(2)`
    fn fstatfs(fd: c_int, out: *mut libc::statfs) -> c_int =
        with(fd, |w, open| give_space(open.mounted(w)?.as_ref().map(|m| m.paths.file_system()), out))
            .unwrap_or_else(|| kernel!(libc::SYS_fstatfs, fd, out));
}
