//! Calls of the kernel that programs and libraries make without the C library: `syscall` written into their own code, as `rustix` does, a library of Rust by which many others
//! rename, link and open. Those that can be recognised for sure ([`decode`]) lead here: `mov eax, NUMBER` becomes a jump to a place near by that does what
//! stood between it and `syscall`, asks [`by_number`], and jumps back behind it. Whoever jumps between the two still calls the kernel.

mod decode;
mod stub;

use std::{
    collections::HashSet,
    ffi::{CStr, c_int, c_void},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    calls::numbers::is_of_files,
    patch::{Failed, JUMP, PAGE, jump, near, pages, poke, protect},
};

/// Code of more bytes is not looked through: reading it from a disk would take longer than what is gained.
const MOST: usize = 256 << 20;
/// Libraries below these are the system's, which call the C library.
const OF_THE_SYSTEM: [&[u8]; 4] = [b"/lib/", b"/lib64/", b"/usr/lib/", b"/usr/lib64/"];

/// Something has been loaded, or is about to be.
static DUE: AtomicBool = AtomicBool::new(true);

/// What was looked through: where it begins, and its name.
static SEEN: Mutex<Option<Seen>> = Mutex::new(None);

#[derive(Default)]
struct Seen {
    objects: HashSet<(u64, Vec<u8>)>,
    /// How many have been unloaded: others may be in their place.
    unloaded: u64,
}

/// A part of a program or library that is run.
struct Code {
    at: usize,
    len: usize,
}

/// Something may be loaded from now on: it is looked through when a call comes.
pub(crate) fn is_due() {
    DUE.store(true, Ordering::Relaxed);
}

/// Looks through what has been loaded since the last time.
pub(crate) fn look() {
    if DUE.load(Ordering::Relaxed) && DUE.swap(false, Ordering::Relaxed) {
        look_through();
    }
}

/// The linker unloads nothing while this runs.
extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, seen: *mut c_void) -> c_int {
    // SAFETY: the linker tells of an object, and the other one is of `look_through`.
    let (info, seen) = unsafe { (&*info, &mut *seen.cast::<Seen>()) };
    // SAFETY: a name is null or ends with NUL, and there are so many headers.
    let (name, headers) = unsafe {
        let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        (name.to_bytes(), std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize))
    };
    if info.dlpi_subs != seen.unloaded {
        seen.unloaded = info.dlpi_subs;
        seen.objects.clear();
    }
    let own = stub::enter as *const () as u64;
    let holds = |header: &libc::Elf64_Phdr| {
        let at = info.dlpi_addr.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && (at..at.saturating_add(header.p_memsz)).contains(&own)
    };
    let known = !seen.objects.insert((info.dlpi_addr, name.to_vec()));
    if known || name.starts_with(b"linux-vdso") || headers.iter().any(holds) || is_of_system(name) {
        return 0;
    }
    for header in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0) {
        let at = info.dlpi_addr.wrapping_add(header.p_vaddr) as usize;
        let code = Code { at, len: header.p_memsz.min(header.p_filesz) as usize };
        if code.len <= MOST {
            // What cannot be led here stays as it is.
            let _ = lead(&code);
        }
    }
    0
}

fn is_of_system(name: &[u8]) -> bool {
    let file = name.iter().rposition(|b| *b == b'/').map_or(name, |at| &name[at + 1..]);
    OF_THE_SYSTEM.iter().any(|dir| name.starts_with(dir))
        || file.starts_with(b"libc.so.")
        || file.starts_with(b"ld-linux")
}

fn look_through() {
    if !stub::prepare() {
        return;
    }
    // Somebody else looks; or did, in the parent of this process, which has no other thread then.
    let Ok(mut seen) = SEEN.try_lock() else { return is_due() };
    let seen: *mut Seen = seen.get_or_insert_default();
    // SAFETY: the function takes what it is given here, and the linker calls it before this returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), seen.cast()) };
}

/// Has the calls in it lead here.
fn lead(code: &Code) -> Result<(), Failed> {
    // SAFETY: the linker has mapped it to be read and run, and it stays for as long as the object is loaded.
    let bytes = unsafe { std::slice::from_raw_parts(code.at as *const u8, code.len) };
    let sites = decode::calls(bytes, &is_of_files);
    let Some(first) = sites.first() else { return Ok(()) };
    let lens: Vec<usize> = sites.iter().map(stub::place_len).collect();
    let room = (stub::TABLE + lens.iter().sum::<usize>()).next_multiple_of(PAGE);
    let places = near(code.at, room)?;
    poke(places, &(stub::enter as *const () as usize).to_le_bytes());
    let mut at = places + stub::TABLE;
    let mut jumps = Vec::with_capacity(sites.len());
    for (site, len) in sites.iter().zip(lens) {
        if let Some(place) = stub::place(site, bytes, code.at, at, places) {
            poke(at, &place);
            jumps.push((code.at + site.at, jump(code.at + site.at, at)));
        }
        at += len;
    }
    protect(places, room, libc::PROT_READ | libc::PROT_EXEC)?;
    let last = sites.last().unwrap_or(first);
    let (start, len) = pages(code.at + first.at, last.at - first.at + JUMP);
    // Others may run in that code just now.
    protect(start, len, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)?;
    for (at, jump) in &jumps {
        poke(*at, jump);
    }
    protect(start, len, libc::PROT_READ | libc::PROT_EXEC)
}
