//! What the dynamic linker has loaded, and under which names: `link.h` of the C library.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::patch::address;

/// The linker's own `dlopen`, once [`learn`] was called.
pub(super) static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

pub(super) fn learn() {
    if REAL.load(Ordering::Relaxed).is_null() {
        REAL.store(address(c"dlopen").cast_mut(), Ordering::Relaxed);
    }
}

/// `struct link_map`, as far as it is everybody's.
#[repr(C)]
struct LinkMap {
    addr: usize,
    name: *mut c_char,
    dynamic: *const Entry,
    next: *mut LinkMap,
    prev: *mut LinkMap,
}

/// `Elf64_Dyn`: what a library is linked with.
#[repr(C)]
struct Entry {
    tag: i64,
    value: u64,
}

/// What the linker has loaded. It stays so for as long as the process.
#[derive(Clone, Copy)]
pub(super) struct Loaded(*mut LinkMap);

/// Asks the linker; none: it does not succeed, of which `dlerror` tells.
fn open(path: &CStr, flags: c_int) -> Option<*mut c_void> {
    learn();
    let real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        return None;
    }
    // SAFETY: it is the linker's function of this type.
    let handle = unsafe {
        let open: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void = std::mem::transmute(real);
        open(path.as_ptr(), flags)
    };
    (!handle.is_null()).then_some(handle)
}

/// Whether something of this name is loaded.
pub(super) fn is_loaded(name: &CStr) -> bool {
    let Some(handle) = open(name, libc::RTLD_NOLOAD | libc::RTLD_LAZY) else { return false };
    // SAFETY: it was just opened, and whoever has loaded it keeps it.
    unsafe { libc::dlclose(handle) };
    true
}

/// Loads a library, which stays; none: `dlerror` tells why not.
pub(super) fn load(path: &CStr, flags: c_int) -> Option<Loaded> {
    let handle = open(path, flags)?;
    let mut map = std::ptr::null_mut::<LinkMap>();
    // SAFETY: the handle is valid, and the call fills the pointer.
    let known = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } == 0;
    known.then_some(Loaded(map)).filter(|_| !map.is_null())
}

impl Loaded {
    /// The program, which is the first of all.
    pub(super) fn first() -> Option<Loaded> {
        // SAFETY: no name is the program, whose handle is never invalid; the call fills the pointer.
        unsafe {
            let handle = libc::dlopen(std::ptr::null(), libc::RTLD_LAZY);
            let mut map = std::ptr::null_mut::<LinkMap>();
            let known = !handle.is_null() && libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) == 0;
            known.then_some(Loaded(map)).filter(|_| !map.is_null())
        }
    }

    pub(super) fn next(self) -> Option<Loaded> {
        // SAFETY: the linker keeps the list; what is read here is of libraries that are not unloaded.
        let next = unsafe { (*self.0).next };
        (!next.is_null()).then_some(Loaded(next))
    }

    /// What a function or a place in memory is of.
    pub(super) fn with(place: *const c_void) -> Option<Loaded> {
        /// `RTLD_DL_LINKMAP`
        const LINKMAP: c_int = 2;
        unsafe extern "C" {
            fn dladdr1(place: *const c_void, info: *mut libc::Dl_info, more: *mut *mut c_void, flags: c_int) -> c_int;
        }
        let mut map = std::ptr::null_mut();
        // SAFETY: all of it may be zero, and the call fills it.
        let known = unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            dladdr1(place, &mut info, &mut map, LINKMAP)
        };
        (known != 0 && !map.is_null()).then_some(Loaded(map.cast()))
    }

    /// The path that it was loaded from; empty: it is the program.
    pub(super) fn name(&self) -> &'static CStr {
        // SAFETY: the name is never freed while the library is loaded, and libraries that are asked for stay loaded.
        unsafe {
            match (*self.0).name {
                name if name.is_null() => c"",
                name => CStr::from_ptr(name),
            }
        }
    }

    /// From now on it has this name: for who asks the linker, and for the linker, which takes it for what has this name.
    pub(super) fn set_name(self, name: &CStr) {
        // SAFETY: the linker frees the name of what it unloads, by the C library's allocator. The old one may be read just now.
        unsafe {
            let copy = libc::strdup(name.as_ptr());
            if !copy.is_null() {
                (*self.0).name = copy;
            }
        }
    }

    /// A list of directories that it says, by the tag of its entry.
    pub(super) fn text(&self, wanted: i64) -> Option<CString> {
        const STRTAB: i64 = 5;
        let (mut strings, mut at) = (None, None);
        // SAFETY: the linker has read this table, which ends with a null.
        unsafe {
            let mut entry = (*self.0).dynamic;
            while !entry.is_null() && (*entry).tag != 0 {
                match (*entry).tag {
                    STRTAB => strings = Some((*entry).value),
                    tag if tag == wanted => at = Some((*entry).value),
                    _ => {}
                }
                entry = entry.add(1);
            }
            // The linker has changed addresses to where things are, unless the table cannot be written.
            let (strings, base) = (strings? as usize, (*self.0).addr);
            let strings = if strings < base { strings + base } else { strings };
            let text = (strings + at? as usize) as *const c_char;
            Some(CStr::from_ptr(text).to_owned())
        }
    }
}
