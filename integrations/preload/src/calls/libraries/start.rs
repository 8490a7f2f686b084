//! Programs that need libraries of workspaces from their start. The dynamic linker finds them, before this library is there, in a directory of links to
//! copies that the program inherits, as `LD_LIBRARY_PATH` says. Once it has them all is as if they had been loaded from where they are.

use std::{
    collections::{HashMap, HashSet},
    ffi::{CStr, CString, c_char, c_int},
    os::unix::ffi::OsStrExt,
    sync::OnceLock,
};

use iov_posix::linked::{Linked, library_path};
use ioverbs::Uuid;

use super::{
    super::temporary,
    loaded::Loaded,
    loading,
    search::{self, Key, Missed, Needs},
};
use crate::{raw::kernel, world::World};

/// The variable with what was prepared: the directory, then a line for each library.
pub(crate) const VARIABLE: &str = "IOVERBS_RUN_LIBRARIES";
/// The variable with the path of a program of a workspace.
pub(crate) const OWN_PATH: &str = "IOVERBS_RUN_PROGRAM";
/// The variable of the dynamic linker.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// The directory of this user in which that of the links is.
const DIRECTORY: &str = "iov-libraries";
/// After so many seconds no program is still about to begin.
const STALE: i64 = 600;

/// Where this program was run from; empty: where the kernel says.
static OWN: OnceLock<Vec<u8>> = OnceLock::new();

/// The path of this program, if it is one of a workspace.
pub(crate) fn own_path() -> &'static [u8] {
    OWN.get().map(Vec::as_slice).unwrap_or_default()
}

/// What a program that is about to be run inherits. It goes again with this, unless the program runs.
pub(crate) struct Prepared {
    dir: CString,
    missed: Vec<Missed>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        for one in &self.missed {
            if let Ok(link) = link_of(&self.dir, &one.name) {
                kernel!(libc::SYS_unlinkat, libc::AT_FDCWD, link.as_ptr(), 0);
            }
        }
        close_all(&self.missed);
        kernel!(libc::SYS_unlinkat, libc::AT_FDCWD, self.dir.as_ptr(), libc::AT_REMOVEDIR);
    }
}

/// Closes the copies, of which one may have several names.
fn close_all(missed: &[Missed]) {
    let fds: HashSet<c_int> = missed.iter().filter_map(|one| one.copy).map(|(fd, _)| fd).collect();
    fds.into_iter().for_each(close);
}

fn close(fd: c_int) {
    kernel!(libc::SYS_close, fd);
}

fn link_of(dir: &CStr, name: &[u8]) -> Result<CString, std::ffi::NulError> {
    CString::new([dir.to_bytes(), b"/", name].concat())
}

/// A directory that nobody else has.
fn new_directory() -> Option<CString> {
    let all = temporary::made(DIRECTORY, "a program that needs libraries of a workspace").ok()?;
    temporary::sweep(&all, STALE);
    temporary::new_in(&all).ok()
}

/// The value of a variable, and which it is.
fn find<'a>(variables: &'a [CString], name: &str) -> Option<(usize, &'a [u8])> {
    variables.iter().enumerate().find_map(|(i, variable)| {
        let value = variable.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some((i, value))
    })
}

/// A library, as the program reads it: a descriptor, an identity and a version, a name and a path. None: it cannot be written down so.
fn line_of(one: &Missed) -> Option<Vec<u8>> {
    let copy = one.copy.map_or("- - -".to_owned(), |(fd, (uuid, version))| format!("{fd} {uuid} {version}"));
    // No name has a slash, and each path begins with one.
    let written = one.path.starts_with(b"/") && !one.path.contains(&b'\n') && !one.name.contains(&b'\n');
    written.then(|| [b"\n", copy.as_bytes(), b" ", &one.name, &one.path].concat())
}

/// A descriptor that is handed on, and what it is a copy of.
type Handed = Option<(c_int, Key)>;

/// Such a line: a descriptor and what that is a copy of, a name and a path.
fn read(line: &[u8]) -> Option<(Handed, &[u8], &[u8])> {
    let mut parts = line.splitn(4, |b| *b == b' ');
    let mut next = || std::str::from_utf8(parts.next()?).ok();
    let (fd, uuid, version) = (next()?, next()?, next()?);
    let copy = fd.parse().ok().and_then(|fd| Some((fd, (Uuid::parse(uuid).ok()?, version.parse().ok()?))));
    let rest = parts.next()?;
    let slash = rest.iter().position(|b| *b == b'/')?;
    Some((copy, &rest[..slash], &rest[slash..]))
}

/// Makes the link by which the linker finds a library, and has the program inherit the copy to which it leads.
fn link(dir: &CStr, one: &Missed) -> bool {
    let to = match one.copy {
        Some((fd, _)) => CString::new(temporary::path_of(fd)),
        None => CString::new(&one.path[..]),
    };
    let (Ok(to), Ok(at)) = (to, link_of(dir, &one.name)) else { return false };
    kernel!(libc::SYS_symlinkat, to.as_ptr(), libc::AT_FDCWD, at.as_ptr()) == 0
        && one.copy.is_none_or(|(fd, _)| kernel!(libc::SYS_fcntl, fd, libc::F_SETFD, 0) == 0)
}

fn set(variables: &mut Vec<CString>, name: &str, value: &[u8]) -> Option<()> {
    let text = CString::new([name.as_bytes(), b"=", value].concat()).ok()?;
    match find(variables, name) {
        Some((i, _)) => variables[i] = text,
        None => variables.push(text),
    }
    Some(())
}

/// Prepares a copy of a program of a workspace that is at this path.
pub(crate) fn of_copy(world: &World, fd: c_int, path: &[u8], variables: &mut Vec<CString>) -> Option<Prepared> {
    set(variables, OWN_PATH, path)?;
    prepare(world, search::linked(fd)?, path, true, variables)
}

/// Prepares a program of the kernel.
pub(crate) fn of_file(world: &World, path: *const c_char, variables: &mut Vec<CString>) -> Option<Prepared> {
    let (linked, at) = (search::linked_at(path)?, super::bytes_of(path)?);
    let at = &super::super::process::without_links(at.to_vec());
    let said = find(variables, LIBRARY_PATH).map(|(_, list)| library_path(list, search::origin(at)));
    let dirs = linked.searched(search::origin(at), &[], &said.unwrap_or_default());
    if !dirs.iter().any(|dir| search::leads_in(world, dir)) {
        return None;
    }
    prepare(world, linked, at, false, variables)
}

fn prepare(world: &World, linked: Linked, path: &[u8], inside: bool, variables: &mut Vec<CString>) -> Option<Prepared> {
    // An empty one says nothing, and with another directory in front would be that of the process.
    let list = find(variables, LIBRARY_PATH).map(|(_, list)| list.to_vec()).filter(|list| !list.is_empty());
    let dirs = list.as_deref().map(|list| library_path(list, search::origin(path))).unwrap_or_default();
    let program = Needs { linked, path: path.to_vec(), of_others: Vec::new(), inside };
    let missed = search::missed(world, program, &dirs);
    if missed.is_empty() {
        return None;
    }
    let Some(dir) = new_directory() else {
        close_all(&missed);
        return None;
    };
    let prepared = Prepared { dir, missed };
    let mut text = prepared.dir.to_bytes().to_vec();
    for one in &prepared.missed {
        match line_of(one).filter(|_| link(&prepared.dir, one)) {
            Some(line) => text.extend(line),
            None => crate::world::report(&String::from_utf8_lossy(&one.path), &"cannot be handed to the program"),
        }
    }
    let with: Vec<&[u8]> = [prepared.dir.to_bytes()].into_iter().chain(list.as_deref()).collect();
    set(variables, LIBRARY_PATH, &with.join(&b':'))?;
    set(variables, VARIABLE, &text)?;
    Some(prepared)
}

/// What was prepared for this program is as if it had been there from the start. Before anything else is done with its variables.
pub(crate) fn begun() {
    let take = |name: &CStr| {
        // SAFETY: the program has not begun, and nobody else changes its variables.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            let copy = (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes().to_vec());
            libc::unsetenv(name.as_ptr());
            copy
        }
    };
    let own = CString::new(OWN_PATH).ok().and_then(|name| take(&name));
    own.into_iter().for_each(|path| drop(OWN.set(path)));
    if let Some(text) = CString::new(VARIABLE).ok().and_then(|name| take(&name)) {
        adopt(&text);
        restore(text.split(|b| *b == b'\n').next().unwrap_or_default());
    }
    super::library_path();
}

/// The linker's names of what it has found in the directory of links are those of what they are of.
fn adopt(text: &[u8]) {
    let mut lines = text.split(|b| *b == b'\n');
    let Ok(dir) = CString::new(lines.next().unwrap_or_default()) else { return };
    let mut names = HashMap::new();
    let mut fds = HashSet::new();
    for (copy, name, path) in lines.filter_map(read) {
        let (Ok(link), Ok(path)) = (link_of(&dir, name), CString::new(path)) else { continue };
        kernel!(libc::SYS_unlinkat, libc::AT_FDCWD, link.as_ptr(), 0);
        fds.extend(copy.map(|(fd, _)| fd));
        names.insert(link, (path, copy.map(|(_, key)| key)));
    }
    fds.into_iter().for_each(close);
    kernel!(libc::SYS_unlinkat, libc::AT_FDCWD, dir.as_ptr(), libc::AT_REMOVEDIR);
    for loaded in std::iter::successors(Loaded::first(), |loaded| loaded.next()) {
        if let Some((path, key)) = names.get(loaded.name()) {
            loaded.set_name(path);
            if let Some(key) = key {
                loading::adopted(*key, loaded.name());
            }
        }
    }
}

/// What `LD_LIBRARY_PATH` says is what it said without this directory.
fn restore(dir: &[u8]) {
    let said = std::env::var_os(LIBRARY_PATH);
    let Some(rest) = said.as_ref().and_then(|said| said.as_bytes().strip_prefix(dir)) else { return };
    let Ok(name) = CString::new(LIBRARY_PATH) else { return };
    // SAFETY: as in `begun`.
    unsafe {
        match rest.strip_prefix(b":").map(CString::new) {
            Some(Ok(rest)) => libc::setenv(name.as_ptr(), rest.as_ptr(), 1),
            _ => libc::unsetenv(name.as_ptr()),
        };
    }
}
