//! Libraries that lie in a workspace (`dlopen`), as the modules of Python do. The dynamic linker opens files by itself, without the C
//! library's functions: it is given a copy in memory.

use std::{
    collections::HashMap,
    ffi::{CString, c_char, c_int, c_void},
    sync::{
        Mutex,
        atomic::{AtomicPtr, Ordering},
    },
};

use iov_posix::{File, Flags};
use ioverbs::Uuid;

use super::{Where, bytes_of, locate, outer};
use crate::{
    patch::address,
    signals::Quiet,
    world::{lock, world},
};

/// The linker's own function.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Copies that were made, by identity and version of what they are of: a library is loaded once.
static COPIES: Mutex<Option<HashMap<(Uuid, u64), CString>>> = Mutex::new(None);

/// The path of a copy of a library, if that is one of a workspace.
fn copy_of(path: &[u8]) -> Option<CString> {
    let world = world()?;
    // Names without a slash are looked for where libraries are.
    if !path.contains(&b'/') {
        return None;
    }
    let mut found = locate(world, libc::AT_FDCWD, path).ok()?;
    if let Where::Outside = found {
        let path = CString::new(path).ok()?;
        let led = outer::leads_in(world, libc::AT_FDCWD, path.as_ptr(), outer::Last::Followed)?;
        found = locate(world, libc::AT_FDCWD, led.as_bytes()).ok()?;
    }
    let Where::Inside(here) = found else { return None };
    let (node, attributes) = here.find(true).ok()?;
    let mut copies = lock(&COPIES);
    let copies = copies.get_or_insert_default();
    let key = (node.uuid(), attributes.version);
    if let Some(copy) = copies.get(&key) {
        return Some(copy.clone());
    }
    let file = File::open(&node, Flags::default()).ok()?.0;
    let fd = super::process::in_memory(&file, attributes.size).ok()?;
    let copy = CString::new(format!("/proc/self/fd/{fd}")).ok()?;
    copies.insert(key, copy.clone());
    Some(copy)
}

/// The path by which the linker is to open what a program names by this one.
extern "C" fn path_for(path: *const c_char) -> *const c_char {
    if REAL.load(Ordering::Relaxed).is_null() {
        REAL.store(address(c"dlopen").cast_mut(), Ordering::Relaxed);
    }
    let _quiet = Quiet::enter();
    let errno = crate::raw::errno();
    let copy = bytes_of(path).and_then(copy_of);
    crate::raw::set_errno(errno);
    // The linker remembers it, and so it stays.
    copy.map_or(path, |copy| CString::into_raw(copy).cast_const())
}

/// `dlopen(3)`. It is a jump to the linker's own, which looks for libraries by who calls it, and so has to be called by the program.
///
/// # Safety
/// As the function that it stands for.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "push rsi",
        "push rdi",
        "sub rsp, 8",
        "call {path_for}",
        "add rsp, 8",
        "pop rdi",
        "pop rsi",
        "mov rdi, rax",
        "mov rax, qword ptr [rip + {real}]",
        "jmp rax",
        path_for = sym path_for,
        real = sym REAL,
    )
}
