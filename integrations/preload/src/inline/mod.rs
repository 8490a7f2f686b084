//! Calls of the kernel that programs and libraries make without the C library: `syscall` written into their own code, as `rustix` does, a library of Rust by which many others
//! rename, link and open. Those that can be recognised for sure ([`decode`]) lead here: `mov eax, NUMBER` becomes a jump to a place near by that does what
//! stood between it and `syscall`, asks [`by_number`](crate::calls::numbers::by_number), and jumps back behind it. Whoever jumps between the two still calls the kernel.

mod decode;
mod stub;

use std::{
    collections::HashMap,
    ffi::{CStr, c_int, c_void},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    calls::numbers::is_of_files,
    patch::{Failed, JUMP, PAGE, jump, near, pages, poke, protect},
    raw::kernel,
};

/// Code of more bytes is not looked through: reading it from a disk would take longer than what is gained.
const MOST: usize = 256 << 20;
/// Libraries below these are the system's, which call the C library.
const OF_THE_SYSTEM: [&[u8]; 4] = [b"/lib/", b"/lib64/", b"/usr/lib/", b"/usr/lib64/"];
/// Bytes that a processor writes and reads as one.
const LINE: usize = 64;

/// The program loads libraries as it runs, so that there may be others each time.
static DUE: AtomicBool = AtomicBool::new(true);
/// How many objects had been loaded by the last look.
static LOADED: AtomicU64 = AtomicU64::new(0);

/// What was looked through, by where it begins and its name.
type Seen = HashMap<(u64, Vec<u8>), Object>;

static SEEN: Mutex<Option<Seen>> = Mutex::new(None);

/// A program or library.
#[derive(Default)]
struct Object {
    /// The places that its calls lead to: where, how much, and where the first of the jumps is.
    led: Vec<(usize, usize, usize)>,
    /// It was there at the last look.
    is_there: bool,
}

impl Object {
    /// Whether it is the one that was looked through, and not another that was loaded to its place since. `holds`: whether an address is of what is there.
    fn is_same(&self, holds: &dyn Fn(u64) -> bool) -> bool {
        // SAFETY: the linker says that code is there.
        self.led.iter().all(|(_, _, jump)| holds(*jump as u64) && unsafe { *(*jump as *const u8) } == 0xe9)
    }

    /// It is gone, and nobody runs there.
    fn forget(&mut self) {
        for (at, len, _) in self.led.drain(..) {
            kernel!(libc::SYS_munmap, at, len);
        }
    }
}

/// A part of a program or library that is run.
struct Code {
    at: usize,
    len: usize,
}

/// Something is about to be loaded, by and by, and is looked through when a call comes: another thread may look before all of it is there.
pub(crate) fn is_due() {
    DUE.store(true, Ordering::Release);
}

extern "C" fn count(info: *mut libc::dl_phdr_info, _: usize, loaded: *mut c_void) -> c_int {
    // SAFETY: the linker tells of an object, and the other one is of `look`.
    unsafe { *loaded.cast::<u64>() = (*info).dlpi_adds };
    1
}

/// Looks through what has been loaded since the last time.
pub(crate) fn look() {
    if !DUE.load(Ordering::Acquire) {
        return;
    }
    let mut loaded = 0_u64;
    // SAFETY: the function takes what it is given here, and the linker calls it before this returns.
    unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut loaded).cast()) };
    if loaded == LOADED.load(Ordering::Relaxed) || !stub::prepare() {
        return;
    }
    // Somebody else looks; or did, in the parent of this process, which has no other thread then.
    let Ok(mut seen) = SEEN.try_lock() else { return };
    // What was there from the start is all there is, unless somebody loads more.
    if LOADED.swap(loaded, Ordering::Relaxed) == 0 {
        DUE.store(false, Ordering::Release);
    }
    let seen = seen.get_or_insert_default();
    seen.values_mut().for_each(|object| object.is_there = false);
    // SAFETY: as above.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut *seen).cast()) };
    seen.retain(|_, object| {
        if !object.is_there {
            object.forget();
        }
        object.is_there
    });
}

/// The linker unloads nothing while this runs.
extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, seen: *mut c_void) -> c_int {
    // SAFETY: the linker tells of an object, and the other one is of `look`.
    let (info, seen) = unsafe { (&*info, &mut *seen.cast::<Seen>()) };
    // SAFETY: a name is null or ends with NUL, and there are so many headers.
    let (name, headers) = unsafe {
        let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        (name.to_bytes(), std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize))
    };
    let holds = |place: u64| {
        headers.iter().any(|header| {
            let at = info.dlpi_addr.wrapping_add(header.p_vaddr);
            header.p_type == libc::PT_LOAD && (at..at.saturating_add(header.p_memsz)).contains(&place)
        })
    };
    let key = (info.dlpi_addr, name.to_vec());
    if let Some(object) = seen.get_mut(&key) {
        object.is_there = true;
        if object.is_same(&holds) {
            return 0;
        }
        object.forget();
    }
    let object = seen.entry(key).or_default();
    object.is_there = true;
    if name.starts_with(b"linux-vdso") || is_of_system(name) || holds(stub::enter as *const () as u64) {
        return 0;
    }
    // Code that is written as it runs is not what it was, and some cannot be read.
    let is_code = |flags: u32| flags & (libc::PF_X | libc::PF_R | libc::PF_W) == libc::PF_X | libc::PF_R;
    for header in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && is_code(h.p_flags)) {
        let at = info.dlpi_addr.wrapping_add(header.p_vaddr) as usize;
        let code = Code { at, len: header.p_memsz.min(header.p_filesz) as usize };
        if code.len <= MOST {
            // What cannot be led here stays as it is.
            object.led.extend(lead(&code).ok().flatten());
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

/// Writes a jump over code that others may run just now: as one, where it does not lie on two lines.
fn write(at: usize, jump: &[u8; JUMP]) {
    let line = at & !(LINE - 1);
    if at + JUMP > line + LINE {
        return poke(at, jump);
    }
    // Eight bytes of that line.
    let start = at.min(line + LINE - size_of::<u64>());
    // SAFETY: these bytes are mapped and can be written now. They may not begin with a word: processors of this kind write such within a line as one all the same.
    unsafe {
        let mut bytes = (start as *const u64).read_unaligned().to_le_bytes();
        bytes[at - start..][..JUMP].copy_from_slice(jump);
        let new = u64::from_le_bytes(bytes);
        std::arch::asm!("mov qword ptr [{at}], {new}", at = in(reg) start, new = in(reg) new, options(nostack, preserves_flags));
    }
}

/// Has the calls in it lead here: where the places are, how much, and where the first jump is.
fn lead(code: &Code) -> Result<Option<(usize, usize, usize)>, Failed> {
    // SAFETY: the linker has mapped it to be read and run, and it stays while the linker tells of it.
    let bytes = unsafe { std::slice::from_raw_parts(code.at as *const u8, code.len) };
    let sites = decode::calls(bytes, &is_of_files);
    let Some(last) = sites.last() else { return Ok(None) };
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
    let (start, len) = pages(code.at + sites[0].at, last.at - sites[0].at + JUMP);
    let done = protect(places, room, libc::PROT_READ | libc::PROT_EXEC).and_then(|()| {
        // Others may run in that code just now.
        protect(start, len, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)
    });
    if let Err(e) = done {
        kernel!(libc::SYS_munmap, places, room);
        return Err(e);
    }
    jumps.iter().for_each(|(at, jump)| write(*at, jump));
    protect(start, len, libc::PROT_READ | libc::PROT_EXEC)?;
    Ok(jumps.first().map(|(at, _)| (places, room, *at)))
}
