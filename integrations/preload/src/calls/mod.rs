//! The functions of the C library that a program calls for files, each of which either does it on the store or leaves it to the
//! kernel. They answer as the kernel does, and [`export`] makes of that what the C library returns.

pub(crate) mod aio;
pub(crate) mod attributes;
pub(crate) mod bytes;
mod clones;
pub(crate) mod copies;
pub(crate) mod descriptors;
pub(crate) mod directories;
pub(crate) mod facts;
pub(crate) mod fifos;
pub(crate) mod flagged;
pub(crate) mod forks;
pub(crate) mod libraries;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod locks;
pub(crate) mod mapping;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod open;
pub(crate) mod outer;
pub(crate) mod pipes;
pub(crate) mod place;
pub(crate) mod process;
mod replaced;
pub(crate) mod sockets;
mod space;
pub(crate) mod spawn;
mod syncs;
pub(crate) mod table;
pub(crate) mod temporary;
pub(crate) mod threads;
pub(crate) mod uring;
pub(crate) mod users;
pub(crate) mod walks;

use std::{
    ffi::{CString, c_char, c_int},
    sync::Arc,
};

use iov_posix::{Caller, Errno, Node, Outcome, Stop, Walker, Way};

use crate::{
    raw::{self, failed, kernel},
    signals::Quiet,
    world::{Directory, Inside, Mounted, World},
};

/// Whose locks those of this process are.
pub(crate) fn lock_owner(world: &World) -> u64 {
    iov_posix::owner_of(world.pid as u32)
}

/// Ways that lead from one workspace or file system into another, in one path.
const LEAVES: usize = 40;

/// Makes functions of the C library of such that answer as the kernel does.
macro_rules! export {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) -> $ret:ty = $body:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the function of the C library that it stands for.
            pub(crate) unsafe extern "C" fn $name($($arg: $kind),*) -> $ret {
                $crate::raw::answer($body) as $ret
            }
        )*
    };
}
pub(crate) use export;
pub(crate) use links::own_link;
use outer::Last;

/// A directory and a path in a workspace.
pub(crate) struct Here {
    pub(crate) mounted: Arc<Mounted>,
    pub(crate) from: Arc<Node>,
    pub(crate) path: Vec<u8>,
    pub(crate) caller: Caller,
}

impl Here {
    /// Goes ways in that workspace.
    pub(crate) fn walker(&self) -> Walker<'_> {
        self.mounted.paths.walker(&self.caller)
    }

    /// What is at its end.
    pub(crate) fn find(&self, follow: bool) -> Way<(Arc<Node>, iov_posix::Attributes)> {
        self.walker().find(&self.from, &self.path, follow)
    }

    /// The path of what leaves the workspace.
    pub(crate) fn beyond(&self, path: Vec<u8>) -> Vec<u8> {
        match path.first() {
            Some(b'/') => path,
            // Above the root of the workspace, where there need not be anything that the kernel knows: if there is, it may be behind a link.
            _ => {
                let (mut above, mut rest) = (parent_of(&self.mounted.at), &path[..]);
                while let Some(b"" | [b'/', ..]) = rest.strip_prefix(b"..").filter(|_| !is_there(above)) {
                    above = parent_of(above);
                    rest = &rest[2..];
                    rest = &rest[rest.iter().position(|b| *b != b'/').unwrap_or(rest.len())..];
                }
                [above, b"/", rest].concat()
            }
        }
    }

    /// The path as others may find it again.
    pub(crate) fn absolute(&self) -> Vec<u8> {
        let from = self.from.path().unwrap_or_default();
        let from = if from == b"/" { Vec::new() } else { from };
        [&self.mounted.at, &from[..], b"/", &self.path].concat()
    }
}

/// Where a path leads.
pub(crate) enum Where {
    /// The kernel knows.
    Outside,
    /// The kernel knows, by this path: the one that was given led through a directory that only is here.
    Through(Vec<u8>),
    /// To the directory of all workspaces, which is here.
    Top(Vec<u8>),
    /// Into a workspace.
    Inside(Here),
}

/// The bytes of a path of a program; none: it gave none, of which the kernel has to be told.
pub(crate) fn bytes_of<'a>(path: *const c_char) -> Option<&'a [u8]> {
    crate::memory::text(path)
}

/// Where a path leads that begins at a descriptor or in the directory of the process.
pub(crate) fn locate(world: &World, dirfd: c_int, path: &[u8]) -> Outcome<Where> {
    if path.first() == Some(&b'/') {
        return absolute(world, path);
    }
    if path.is_empty() || world.is_opening() {
        return Ok(Where::Outside);
    }
    let dir = if dirfd == libc::AT_FDCWD {
        place::directory(world)?
    } else {
        match world.files.get(dirfd) {
            None => Directory::Outside,
            Some(open) => match (open.mounted(world)?, open.node(world)?) {
                (Some(mounted), Some(node)) => Directory::Inside(mounted, node),
                _ => Directory::Named(open.record.at.clone()),
            },
        }
    };
    match dir {
        Directory::Inside(mounted, from) => {
            if from.kind() != iov_posix::Kind::Directory {
                return Err(Errno::ENOTDIR);
            }
            Ok(Where::Inside(Here { mounted, from, path: path.to_vec(), caller: crate::world::caller() }))
        }
        Directory::Named(at) => absolute(world, &[&at, &b"/"[..], path].concat()),
        // It was found.
        Directory::Passed(_) => Err(Errno::ENOENT),
        Directory::Outside => relative(world, dirfd, path),
    }
}

/// A path from a directory that the kernel knows. It leads to a workspace only from above.
fn relative(world: &World, dirfd: c_int, path: &[u8]) -> Outcome<Where> {
    let climbs = path.split(|b| *b == b'/').any(|name| name == b"..");
    let mut dir = [0_u8; 4096];
    // Asked for each time: a directory may be moved, and programs change it in ways that are not seen here.
    let first = path.split(|b| *b == b'/').find(|name| !name.is_empty() && *name != b".").unwrap_or_default();
    let begins = |place: &iov_posix::run::Place| place.at[1..].split(|b| *b == b'/').any(|name| name == first);
    if !climbs && !world.settings.places.iter().any(begins) {
        return Ok(Where::Outside);
    }
    let n = if dirfd == libc::AT_FDCWD {
        kernel!(libc::SYS_getcwd, dir.as_mut_ptr(), dir.len()) - 1
    } else {
        let link = format!("/proc/self/fd/{dirfd}\0");
        kernel!(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), dir.as_mut_ptr(), dir.len())
    };
    let Some(dir) = usize::try_from(n).ok().and_then(|n| dir.get(..n)).filter(|dir| dir.first() == Some(&b'/')) else {
        return Ok(Where::Outside);
    };
    if !climbs && !world.is_above(dir) {
        return Ok(Where::Outside);
    }
    absolute(world, &[dir, b"/", path].concat())
}

/// An absolute path. Where it leads through a place, what comes behind that is looked at like a path of its own: it may have links of the kernel's.
fn absolute(world: &World, path: &[u8]) -> Outcome<Where> {
    let mut through: Option<Vec<u8>> = None;
    loop {
        match (absolute_to_place(world, through.as_deref().unwrap_or(path))?, &through) {
            // Once more unless that was where it led to already.
            (Where::Through(led), _) if through.as_ref() != Some(&led) => through = Some(led),
            (Where::Outside, Some(led)) => return Ok(Where::Through(led.clone())),
            (found, _) => return Ok(found),
        }
    }
}

fn absolute_to_place(world: &World, path: &[u8]) -> Outcome<Where> {
    if world.is_opening() {
        return Ok(Where::Outside);
    }
    // What is open here under a descriptor; to the kernel that is what stands for it.
    if let Some(path) = links::leads_on(world, path)? {
        return absolute(world, &path);
    }
    let tidy = !path.windows(2).any(|two| two == b"//" || two == b"/.");
    let found = match tidy {
        true => world.place(path).map(|(place, rest)| (place, rest.to_vec())),
        false => match climb(world, path) {
            // The kernel goes there first, and what it does not find is looked for behind such a link.
            Climbed::In(_, rest) if climbs_from_link(world, &path[..path.len() - rest.len()]) => None,
            Climbed::In(place, rest) => Some((place, rest)),
            Climbed::Out => None,
            Climbed::Through(path) => return Ok(Where::Through(path)),
        },
    };
    let Some((place, rest)) = found else { return Ok(Where::Outside) };
    let (at, name, rest) = match &place.workspace {
        Some(name) => (place.at.clone(), name.clone(), rest),
        None => {
            let names = rest.iter().position(|b| *b != b'/').map(|at| rest[at..].to_vec()).unwrap_or_default();
            let end = names.iter().position(|b| *b == b'/').unwrap_or(names.len());
            let (name, rest) = (names[..end].to_vec(), names[end..].to_vec());
            match &name[..] {
                b"" => return Ok(Where::Top(place.at.clone())),
                b"." => return absolute(world, &[&place.at, &rest[..]].concat()),
                b".." => return absolute(world, &[&place.at, &b"/.."[..], &rest].concat()),
                _ => ([&place.at, &b"/"[..], &name].concat(), name, rest),
            }
        }
    };
    let mounted = world.mounted(&at, &name)?;
    let from = mounted.paths.file_system().root();
    // The root itself, as a path in it.
    let path = if rest.iter().all(|b| *b == b'/') { b".".to_vec() } else { rest[1..].to_vec() };
    Ok(Where::Inside(Here { mounted, from, path, caller: crate::world::caller() }))
}

/// Where a path leads that has `.`, `..` or several slashes.
enum Climbed<'a> {
    /// To a place, and what comes behind it.
    In(&'a iov_posix::run::Place, Vec<u8>),
    /// To nowhere that is known here.
    Out,
    /// Into a place and out of it again, to this path, which is looked at anew.
    Through(Vec<u8>),
}

fn climb<'a>(world: &'a World, path: &[u8]) -> Climbed<'a> {
    let mut so_far: Vec<u8> = Vec::new();
    let (mut rest, mut through) = (path, false);
    loop {
        let next = rest.split(|b| *b == b'/').find(|name| !name.is_empty() && *name != b".");
        let climbs = next == Some(b"..");
        match world.place(&so_far) {
            // `..` leads out again.
            Some((_, b"")) if climbs => through = true,
            Some((place, b"")) => return Climbed::In(place, rest.to_vec()),
            // Of a link there the kernel knows where `..` is; above a place there need not be anything that it knows.
            _ if through && !(climbs && world.is_above(&so_far) && !is_there(&so_far)) => {
                let led = if next.is_some() { [&so_far, rest].concat() } else { so_far };
                return Climbed::Through(if led.is_empty() { b"/".to_vec() } else { led });
            }
            _ => {}
        }
        let Some(start) = rest.iter().position(|b| *b != b'/') else { return Climbed::Out };
        let end = rest[start..].iter().position(|b| *b == b'/').map_or(rest.len(), |n| start + n);
        match &rest[start..end] {
            b"." => {}
            b".." => so_far.truncate(so_far.iter().rposition(|b| *b == b'/').unwrap_or(0)),
            name => {
                so_far.push(b'/');
                so_far.extend_from_slice(name);
            }
        }
        rest = &rest[end..];
    }
}

/// Whether the kernel knows something by that path.
fn is_there(path: &[u8]) -> bool {
    let Ok(path) = CString::new(path) else { return false };
    kernel!(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::F_OK) == 0
}

/// Whether a path has `..` behind a symbolic link outside, of which that is the directory it leads to.
fn climbs_from_link(world: &World, path: &[u8]) -> bool {
    let mut so_far: Vec<u8> = Vec::new();
    for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty() && *name != b".") {
        if name != b".." {
            so_far.push(b'/');
            so_far.extend_from_slice(name);
            continue;
        }
        if world.place(&so_far).is_none() && !so_far.is_empty() {
            so_far.push(0);
            let mut byte = 0_u8;
            if kernel!(libc::SYS_readlinkat, libc::AT_FDCWD, so_far.as_ptr(), &raw mut byte, 1) >= 0 {
                return true;
            }
        }
        so_far.truncate(so_far.iter().rposition(|b| *b == b'/').unwrap_or(0));
    }
    false
}

/// Does something with a path: `here` where it leads into a workspace, `top` where to the directory of all, `there` as the kernel
/// does. The answer is one of the kernel's.
pub(crate) fn at(
    dirfd: c_int,
    path: *const c_char,
    here: &mut dyn FnMut(&World, &Here) -> Way<isize>,
    top: &mut dyn FnMut(&World, &[u8]) -> isize,
    there: &mut dyn FnMut(c_int, *const c_char) -> isize,
) -> isize {
    to(dirfd, (path, Last::Followed), here, top, there)
}

/// As [`at`], of a name that is to be made or removed: if it is that of a symbolic link, the link is meant.
pub(crate) fn at_name(
    dirfd: c_int,
    path: *const c_char,
    here: &mut dyn FnMut(&World, &Here) -> Way<isize>,
    top: &mut dyn FnMut(&World, &[u8]) -> isize,
    there: &mut dyn FnMut(c_int, *const c_char) -> isize,
) -> isize {
    to(dirfd, (path, Last::Itself), here, top, there)
}

fn to(
    dirfd: c_int,
    (path, last): (*const c_char, Last),
    here: &mut dyn FnMut(&World, &Here) -> Way<isize>,
    top: &mut dyn FnMut(&World, &[u8]) -> isize,
    there: &mut dyn FnMut(c_int, *const c_char) -> isize,
) -> isize {
    let (Some(world), Some(given)) = (crate::world::world(), bytes_of(path)) else { return there(dirfd, path) };
    // What the kernel does may take long, and is interrupted as ever.
    let quiet = Quiet::enter();
    let mut there = |dirfd: c_int, path: *const c_char| quiet.without(|| there(dirfd, path));
    // Whatever is there.
    if given.len() >= libc::PATH_MAX as usize {
        return failed(Errno::ENAMETOOLONG);
    }
    let errno = raw::errno();
    let (mut dirfd, mut next): (c_int, Option<CString>) = (dirfd, None);
    for _ in 0..LEAVES {
        let (bytes, pointer) = match &next {
            None => (given, path),
            Some(next) => (next.to_bytes(), next.as_ptr()),
        };
        let inside = Inside::enter();
        let located = locate(world, dirfd, bytes);
        let answer = match located {
            Err(e) => failed(e),
            Ok(outside @ (Where::Outside | Where::Through(_))) => {
                let through = match outside {
                    Where::Through(path) => CString::new(path).ok(),
                    _ => None,
                };
                drop(inside);
                let path = through.as_ref().map_or((dirfd, pointer), |path| (libc::AT_FDCWD, path.as_ptr()));
                let answer = there(path.0, path.1);
                if answer != failed(Errno::ENOENT) {
                    return answer;
                }
                let Some(led) = outer::leads_in(world, path.0, path.1, last) else { return answer };
                (dirfd, next) = (libc::AT_FDCWD, Some(led));
                continue;
            }
            Ok(Where::Top(at)) => top(world, &at),
            Ok(Where::Inside(inside)) => match here(world, looked_through(&inside)) {
                Ok(answer) => answer,
                Err(Stop::Failed(e)) => failed(e),
                Err(Stop::Leaves(path)) => {
                    let Ok(path) = CString::new(inside.beyond(path)) else { return failed(Errno::ENOENT) };
                    (dirfd, next) = (libc::AT_FDCWD, Some(path));
                    continue;
                }
            },
        };
        raw::set_errno(errno);
        return answer;
    }
    failed(Errno::ELOOP)
}

/// Something in a workspace, for a program of which all that can lead here does.
fn looked_through(here: &Here) -> &Here {
    #[cfg(target_arch = "x86_64")]
    crate::inline::look();
    here
}

/// The directory that holds this path, without a slash at its end.
fn parent_of(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|b| *b == b'/').unwrap_or(0)]
}

/// Whether a path leads into a workspace.
pub(crate) fn is_inside(dirfd: c_int, path: *const c_char) -> bool {
    let _inside = Inside::enter();
    match (crate::world::world(), bytes_of(path)) {
        (Some(world), Some(path)) => !matches!(locate(world, dirfd, path), Ok(Where::Outside)),
        _ => false,
    }
}

/// Nothing is changed in the directory of all workspaces: `iov ws` does that.
pub(crate) fn fixed(_: &World, _: &[u8]) -> isize {
    failed(Errno::EROFS)
}

/// An answer without a number.
pub(crate) fn nothing<T>(done: Way<T>) -> Way<isize> {
    done.map(|_| 0)
}
