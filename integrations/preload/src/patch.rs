//! Functions of the C library that lead elsewhere.
//!
//! Preloading alone reaches what a program calls by name. The C library's own calls (those of `fopen`, `opendir`, `realpath`,
//! `mkstemp`, `posix_spawn`) do not look names up. So the first five bytes of each function that calls the kernel for a file become a jump, by way
//! of a page near by that knows the address. It is done once, before the program begins.

use std::ffi::{CStr, c_void};

use crate::raw::kernel;

/// A function of the C library, by its names, and what it leads to.
pub(crate) struct Hook {
    pub(crate) names: &'static [&'static CStr],
    pub(crate) to: *const c_void,
}

/// Why functions cannot lead elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failed {
    /// This program's C library is not the one that is known.
    NoLibrary,
    /// The kernel does not let code be changed, by its number.
    Kernel(i32),
    /// On this processor nobody knows how.
    #[cfg(not(target_arch = "x86_64"))]
    Processor,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::NoLibrary => f.write_str("its C library is not glibc: use iov mount"),
            Failed::Kernel(number) => {
                let e = std::io::Error::from_raw_os_error(*number);
                write!(f, "the system lets no code be changed ({e}): use iov mount")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Failed::Processor => f.write_str("that is not known for this processor yet: use iov mount"),
        }
    }
}

pub(crate) const PAGE: usize = 4096;
/// Bytes of one way to a far address.
const HOP: usize = 16;
/// Bytes of a jump.
#[cfg(target_arch = "x86_64")]
pub(crate) const JUMP: usize = 5;

/// The pages that hold these bytes.
pub(crate) fn pages(at: usize, len: usize) -> (usize, usize) {
    let first = at & !(PAGE - 1);
    (first, (at + len).next_multiple_of(PAGE) - first)
}

/// A page near `at`, to be written.
#[cfg(target_arch = "x86_64")]
pub(crate) fn near(at: usize, len: usize) -> Result<usize, Failed> {
    const STEP: usize = 1 << 20;
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE);
    let mut last = 0;
    // A jump reaches 2 GiB.
    for n in 1..1024 {
        for there in [at.saturating_sub(n * STEP), at.saturating_add(n * STEP)] {
            let there = there & !(PAGE - 1);
            let got = kernel!(libc::SYS_mmap, there, len, access, flags, -1_i32, 0);
            if got as usize == there {
                return Ok(there);
            }
            last = got;
            if got > 0 {
                kernel!(libc::SYS_munmap, got, len);
            }
        }
    }
    Err(Failed::Kernel(-last as i32))
}

pub(crate) fn protect(at: usize, len: usize, access: i32) -> Result<(), Failed> {
    match kernel!(libc::SYS_mprotect, at, len, access) {
        0 => Ok(()),
        e => Err(Failed::Kernel(-e as i32)),
    }
}

/// Writes bytes where the compiler knows of nothing. It must not call the C library for it, which may not be there just now.
pub(crate) fn poke(at: usize, bytes: &[u8]) {
    for (i, byte) in bytes.iter().enumerate() {
        // SAFETY: the callers have made these pages writable, and nobody else runs.
        unsafe { ((at + i) as *mut u8).write_volatile(*byte) };
    }
}

/// A jump from one place to another, less than 2 GiB away.
#[cfg(target_arch = "x86_64")]
pub(crate) fn jump(from: usize, to: usize) -> [u8; JUMP] {
    let [a, b, c, d] = (to.wrapping_sub(from + JUMP) as i32).to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Libraries that have functions which call the kernel for files: before glibc 2.34 those of programs with threads are in another one.
const LIBRARIES: [&CStr; 2] = [c"libc.so.6", c"libpthread.so.0"];

/// Where functions of a library are, each once, and where they are to lead.
type Sites = Vec<(usize, usize)>;

/// The addresses of functions in the C library, by the library that they are in.
fn find(hooks: &[Hook]) -> Vec<Sites> {
    let mut known: Vec<usize> = Vec::new();
    let in_library = |name: &CStr| {
        let mut found = Vec::new();
        // SAFETY: a library that is loaded already is named, and stays loaded.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        if library.is_null() {
            return found;
        }
        for hook in hooks {
            for name in hook.names {
                // SAFETY: the library is loaded, and the name ends with NUL.
                let at = unsafe { libc::dlsym(library, name.as_ptr()) } as usize;
                // Several names are one function, and some a library does not have.
                if at != 0 && !known.contains(&at) {
                    known.push(at);
                    found.push((at, hook.to as usize));
                }
            }
        }
        found
    };
    LIBRARIES.into_iter().map(in_library).filter(|sites: &Sites| !sites.is_empty()).collect()
}

/// Where a function of the C library is.
pub(crate) fn address(name: &CStr) -> *const c_void {
    // SAFETY: the name ends with NUL.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Has functions of the C library lead elsewhere. The program has not begun.
#[cfg(target_arch = "x86_64")]
pub(crate) fn apply(hooks: &[Hook]) -> Result<(), Failed> {
    let libraries = find(hooks);
    if libraries.is_empty() {
        return Err(Failed::NoLibrary);
    }
    libraries.iter().try_for_each(lead)
}

/// Whether other threads run: those of libraries that were loaded before this one.
#[cfg(target_arch = "x86_64")]
fn is_alone() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

#[cfg(target_arch = "x86_64")]
fn lead(sites: &Sites) -> Result<(), Failed> {
    let first = sites.iter().map(|(at, _)| *at).min().ok_or(Failed::NoLibrary)?;
    let last = sites.iter().map(|(at, _)| *at).max().unwrap_or(first);
    let room = (sites.len() * HOP).next_multiple_of(PAGE);
    let hops = near(first, room)?;
    for (i, (_, to)) in sites.iter().enumerate() {
        // jmp *(%rip), and the address behind it.
        poke(hops + i * HOP, &[0xff, 0x25, 0, 0, 0, 0]);
        poke(hops + i * HOP + 6, &to.to_le_bytes());
    }
    protect(hops, room, libc::PROT_READ | libc::PROT_EXEC)?;
    let jumps: Vec<(usize, [u8; JUMP])> =
        sites.iter().enumerate().map(|(i, (at, _))| (*at, jump(*at, hops + i * HOP))).collect();
    let (start, len) = pages(first, last - first + JUMP);
    let alone = is_alone();
    // Others run in that code just now. Where it cannot be written while it is run, nobody else may.
    match protect(start, len, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) {
        Err(_) if alone => protect(start, len, libc::PROT_READ | libc::PROT_WRITE)?,
        done => done?,
    }
    for (at, jump) in &jumps {
        poke(*at, jump);
    }
    protect(start, len, libc::PROT_READ | libc::PROT_EXEC)
}

/// Has functions of the C library lead elsewhere. The program has not begun.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn apply(hooks: &[Hook]) -> Result<(), Failed> {
    match find(hooks).is_empty() {
        true => Err(Failed::NoLibrary),
        false => Err(Failed::Processor),
    }
}
