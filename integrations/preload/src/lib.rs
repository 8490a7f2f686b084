//! Workspaces for unchanged programs: `iov run -- PROGRAM` has this library loaded into a program, and into those that it starts.
//!
//! The functions of the C library that call the kernel for files lead here ([`patch`]). What concerns a workspace is done on the store, in this
//! process, by `iov-posix`; all else is the kernel's. What is open has a descriptor of the kernel that stands for it
//! ([`record`]), so that shells, `fork`, `dup` and `exec` work as ever.

mod calls;
mod files;
mod heap;
mod holder;
#[cfg(target_arch = "x86_64")]
mod inline;
mod memory;
mod patch;
mod raw;
mod record;
mod renewed;
mod signals;
mod standing;
mod world;

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use iov_posix::run::Settings;

use crate::{files::Files, raw::kernel, record::Record, world::World};

/// The daemon that a program may start serves stores, and is no program that uses one.
const DAEMON: &str = "iovd";

/// Runs before the program does. Libraries that were loaded before this one may have started threads.
extern "C" fn begin() {
    heap::prepare();
    let Some(settings) = Settings::of_process() else { return };
    calls::libraries::start::begun();
    let exe = std::env::current_exe().ok();
    if exe.and_then(|exe| Some(exe.file_name()? == DAEMON)).unwrap_or(false) {
        return;
    }
    let library = own_path();
    calls::threads::learn();
    world::learn_name();
    if let Err(why) = patch::apply(&calls::table::hooks()) {
        world::report("nothing of the store can be seen in this program", &why);
        return;
    }
    calls::limits::learn();
    let umask = kernel!(libc::SYS_umask, 0o777) as u32;
    kernel!(libc::SYS_umask, umask);
    ioverbs::kept::keep_above(descriptors_above());
    let world = World::new(settings, library, Files::inherited(), umask);
    if !world.files.all().is_empty() {
        world.has_something();
    }
    let directory = std::env::var(calls::process::DIRECTORY).ok().and_then(|text| Record::from_text(&text));
    if let Some(record) = directory {
        *world.directory.write().unwrap_or_else(std::sync::PoisonError::into_inner) = calls::place::passed(record);
        world.has_something();
    }
    world::set_world(world);
    world::COPIED.watch();
    calls::forks::watch_forks();
    #[cfg(target_arch = "x86_64")]
    inline::look();
}

/// From where on the store's own descriptors are: programs take the lowest ones, and some put theirs at numbers of their choice.
fn descriptors_above() -> i32 {
    // SAFETY: all of it may be zero, and the call fills it.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur
    };
    (limit.min(1 << 16) / 2) as i32
}

/// Where this library was loaded from.
fn own_path() -> OsString {
    // SAFETY: the structure is filled by the call, which is given an address of this library.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(begin as *const () as *const _, &mut info);
        (found != 0 && !info.dli_fname.is_null()).then(|| std::ffi::CStr::from_ptr(info.dli_fname).to_bytes().to_vec())
    };
    OsString::from_vec(name.unwrap_or_default())
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
