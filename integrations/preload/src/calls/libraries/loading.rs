//! Has the dynamic linker load libraries of workspaces, each from a copy, and what they need before them.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::{CStr, CString, c_int},
    sync::{
        Mutex,
        atomic::{AtomicI32, AtomicU32, Ordering},
    },
};

use iov_posix::linked::Linked;

use super::{
    super::temporary,
    library_path,
    loaded::{self, Loaded, is_loaded},
    search::{self, Found, Key, Ours},
};
use crate::{
    raw::kernel,
    signals::Quiet,
    world::{World, lock},
};

/// A library of which the linker has been given a copy.
struct Copy {
    /// By what the linker knows it; none: it has not loaded it.
    name: Option<&'static CStr>,
    /// The copy, as long as somebody may give it to the linker.
    fd: Option<c_int>,
    /// Those who are about to give it to the linker.
    users: usize,
    linked: Linked,
}

static COPIES: Mutex<Option<HashMap<Key, Copy>>> = Mutex::new(None);

/// A path of the kernel for a descriptor, another one each time: the linker takes what it has ever loaded by a path for what is there now, and descriptors come again.
fn path_of(fd: c_int) -> Option<CString> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let n = MADE.fetch_add(1, Ordering::Relaxed);
    // The number in slashes and dots, which lead nowhere.
    let bits = (0..u32::BITS - n.leading_zeros()).map(|bit| if n >> bit & 1 == 1 { "/." } else { "/" });
    CString::new(bits.collect::<String>() + &temporary::path_of(fd)).ok()
}

/// Names by which some were needed that have none of their own, and by what the linker knows them.
static CALLED: Mutex<Option<HashMap<CString, &'static CStr>>> = Mutex::new(None);

/// By what the linker knows what something that is loaded has needed by this name, if that is another one.
pub(super) fn called(name: &CStr) -> Option<&'static CStr> {
    lock(&CALLED).as_ref()?.get(name).copied()
}

fn kept(path: CString) -> &'static CStr {
    Box::leak(path.into_boxed_c_str())
}

/// What one `dlopen` leads to. The linker is called without locks: it runs what libraries do as they begin.
pub(super) struct Loading<'a> {
    world: &'a World,
    quiet: &'a Quiet,
    /// Those that need each other, from the one that was asked for.
    under: Vec<Key>,
}

impl<'a> Loading<'a> {
    pub(super) fn new(world: &'a World, quiet: &'a Quiet) -> Loading<'a> {
        Loading { world, quiet, under: Vec::new() }
    }

    /// Loads a library, and what it needs; the name under which the linker knows it then, or which tells it why it cannot. `of_others`: where whoever needs it
    /// has what that needs looked for. None: there is none, or nothing is to be loaded.
    pub(super) fn load(&mut self, ours: &Ours, flags: c_int, of_others: &[Vec<u8>]) -> Option<&'static CStr> {
        let key = ours.key();
        if self.under.contains(&key) {
            return None;
        }
        let (path, linked) = match begun(key) {
            Some(begun) => begun,
            // Only what is loaded is wanted.
            None if flags & libc::RTLD_NOLOAD != 0 => return None,
            None => copied(key, ours)?,
        };
        let Some(linked) = linked else { return Some(path) };
        self.under.push(key);
        let called = self.load_needed(&linked, &ours.path, of_others);
        self.under.pop();
        let loaded = self.quiet.without(|| loaded::load(path, flags));
        drop(called);
        let known_as = loaded.and_then(|loaded| {
            let own = CString::new(&ours.path[..]).ok()?;
            let name = match self.quiet.without(|| is_loaded(&own)) && loaded.name() != &*own {
                // What was there before it.
                true => CString::new([&ours.path[..], format!("?{}", key.1).as_bytes()].concat()).ok()?,
                false => own,
            };
            let name = kept(name);
            if loaded.name() != name {
                loaded.set_name(name);
            }
            Some(name)
        });
        Some(ended(key, known_as).unwrap_or(path))
    }

    /// Loads what a library at this path needs of workspaces. For as long as what is returned is kept, the linker knows that by the names by which it is needed.
    pub(super) fn load_needed(&mut self, linked: &Linked, path: &[u8], of_others: &[Vec<u8>]) -> Vec<Called> {
        let dirs = linked.searched(search::origin(path), of_others, library_path());
        let first = linked.first(search::origin(path), of_others);
        let mut called = Vec::new();
        for name in linked.needed.iter().filter(|name| search::is_sought(name)) {
            let Ok(text) = CString::new(&name[..]) else { continue };
            if self.quiet.without(|| is_loaded(&text)) {
                continue;
            }
            match search::find(self.world, name, &dirs) {
                Some(Found::Inside(ours)) => {
                    let loaded = self.load(&ours, libc::RTLD_LAZY, &first);
                    called.extend(loaded.and_then(|path| self.quiet.without(|| Called::new(path, &text))));
                }
                // The linker would look elsewhere for what lies beside what needs it.
                Some(Found::Outside(there)) if self.world.place(path).is_some() => {
                    if let Ok(there) = CString::new(there) {
                        self.quiet.without(|| loaded::load(&there, libc::RTLD_LAZY));
                    }
                }
                _ => {}
            }
        }
        called
    }
}

/// A library that has no name of its own, and is called by the one by which it is needed for as long as this is kept.
pub(super) struct Called {
    loaded: Loaded,
    path: &'static CStr,
}

impl Called {
    /// None: the linker knows it by that name anyway, or not at all.
    fn new(path: &'static CStr, name: &CStr) -> Option<Called> {
        if is_loaded(name) {
            return None;
        }
        let loaded = loaded::load(path, libc::RTLD_NOLOAD | libc::RTLD_LAZY)?;
        loaded.set_name(name);
        lock(&CALLED).get_or_insert_default().insert(name.to_owned(), path);
        Some(Called { loaded, path })
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        self.loaded.set_name(self.path);
    }
}

/// A copy that somebody has made, which is then used until [`ended`]; without what it is linked with: it is loaded.
fn begun(key: Key) -> Option<(&'static CStr, Option<Linked>)> {
    let mut copies = lock(&COPIES);
    let copy = copies.as_mut()?.get_mut(&key)?;
    if let Some(name) = copy.name {
        return Some((name, None));
    }
    let path = kept(path_of(copy.fd?)?);
    copy.users += 1;
    Some((path, Some(copy.linked.clone())))
}

/// As [`begun`], of a copy that is made now.
fn copied(key: Key, ours: &Ours) -> Option<(&'static CStr, Option<Linked>)> {
    let (fd, linked) = search::copied(ours)?;
    {
        let mut copies = lock(&COPIES);
        match copies.get_or_insert_default().entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(Copy { name: None, fd: Some(fd), users: 0, linked })),
            // Somebody else was faster.
            Entry::Occupied(_) => drop(kernel!(libc::SYS_close, fd)),
        }
    }
    begun(key)
}

/// The linker has loaded it as the program began, and knows it by this name.
pub(super) fn adopted(key: Key, name: &'static CStr) {
    let copy = Copy { name: Some(name), fd: None, users: 0, linked: Linked::default() };
    lock(&COPIES).get_or_insert_default().insert(key, copy);
}

/// The linker has loaded it, under this name, or it has not. By what it is known now, if it is.
fn ended(key: Key, known_as: Option<&'static CStr>) -> Option<&'static CStr> {
    let mut copies = lock(&COPIES);
    let copy = copies.as_mut()?.get_mut(&key)?;
    copy.users = copy.users.saturating_sub(1);
    copy.name = known_as.or(copy.name);
    let name = copy.name;
    if copy.users > 0 {
        return name;
    }
    let fd = copy.fd.take();
    if name.is_none() {
        copies.as_mut()?.remove(&key);
        // The linker is asked for it once more, and tells why it cannot be had.
        let before = FAILED.swap(fd.unwrap_or(-1), Ordering::Relaxed);
        close(before);
    } else {
        close(fd.unwrap_or(-1));
    }
    name
}

fn close(fd: c_int) {
    if fd >= 0 {
        kernel!(libc::SYS_close, fd);
    }
}

/// The copy that could not be loaded last.
static FAILED: AtomicI32 = AtomicI32::new(-1);
