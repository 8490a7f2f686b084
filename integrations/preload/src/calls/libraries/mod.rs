//! Libraries that lie in a workspace. The dynamic linker opens files by itself, without the C library's functions: it is given copies in
//! memory. What such a library needs it would look for beside the copy: so what of that lies in workspaces is loaded before, by the names
//! by which the linker then finds it. Programs that need such libraries from their start are prepared as they are run ([`start`]).

mod loaded;
mod loading;
mod search;
pub(crate) mod start;

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::OnceLock,
};

use iov_posix::linked::{self, Linked, directories};

use self::{
    loaded::{Loaded, REAL, is_loaded},
    loading::Loading,
    search::Found,
};
use super::bytes_of;
use crate::{
    signals::Quiet,
    world::{World, world},
};

/// What `LD_LIBRARY_PATH` said as the program began, which is when the linker reads it.
static LIBRARY_PATH: OnceLock<Vec<Vec<u8>>> = OnceLock::new();

fn library_path() -> &'static [Vec<u8>] {
    let own = || match start::own_path() {
        b"" => std::env::current_exe().map(|exe| exe.into_os_string().into_vec()).unwrap_or_default(),
        path => path.to_vec(),
    };
    LIBRARY_PATH.get_or_init(|| match std::env::var_os("LD_LIBRARY_PATH") {
        Some(list) => linked::library_path(list.as_bytes(), search::origin(&own())),
        None => Vec::new(),
    })
}

/// Whether the file at this path is the dynamic linker, which is a program, too.
pub(crate) fn is_linker(path: *const c_char) -> bool {
    let linked = search::linked_at(path);
    linked.and_then(|linked| linked.soname).is_some_and(|name| name.starts_with(b"ld-linux"))
}

/// Whether that leads into a workspace.
fn is_said(world: &World) -> bool {
    library_path().iter().any(|dir| search::leads_in(world, dir))
}

/// Who calls: where it lies, and where what it needs is looked for.
fn caller(place: *const c_void) -> Option<(Vec<u8>, Linked)> {
    Loaded::with(place).map(of_loaded)
}

/// Where the program has what libraries need looked for, also for those that it has not loaded itself.
fn of_program() -> Vec<Vec<u8>> {
    let program = Loaded::first().map(of_loaded);
    program.map(|(path, linked)| linked.first(search::origin(&path), &[])).unwrap_or_default()
}

fn of_loaded(from: Loaded) -> (Vec<u8>, Linked) {
    const RPATH: i64 = 15;
    const RUNPATH: i64 = 29;
    let list = |tag| from.text(tag).map(|list| directories(list.to_bytes()));
    let linked = Linked { rpath: list(RPATH).unwrap_or_default(), runpath: list(RUNPATH), ..Linked::default() };
    let path = match from.name().to_bytes() {
        b"" => start::own_path().to_vec(),
        path => path.to_vec(),
    };
    (path, linked)
}

/// What the linker is to be given for a name without a slash; none: it finds by itself what there is.
fn named(world: &World, name: &CStr, flags: c_int, from: *const c_void) -> Option<*const c_char> {
    if let Some(path) = loading::called(name) {
        return Some(path.as_ptr());
    }
    let (path, linked) = caller(from)?;
    let (of_workspace, of_program) = (world.place(&path).is_some(), of_program());
    if !of_workspace && !is_said(world) && !of_program.iter().any(|dir| world.place(dir).is_some()) {
        return None;
    }
    let quiet = Quiet::enter();
    if quiet.without(|| is_loaded(name)) {
        return None;
    }
    let dirs = linked.searched(search::origin(&path), &of_program, library_path());
    match search::find(world, name.to_bytes(), &dirs)? {
        Found::Inside(ours) => {
            let of_others = linked.first(search::origin(&path), &of_program);
            Loading::new(world, &quiet).load(&ours, flags, &of_others).map(CStr::as_ptr)
        }
        // The linker would look elsewhere for what lies beside its caller. It keeps what it is given.
        Found::Outside(_) if !of_workspace => None,
        Found::Outside(path) | Found::Beyond(path) => CString::new(path).ok().map(|path| path.into_raw().cast_const()),
    }
}

/// What the linker is to be given for a path; none: that path.
fn at_path(world: &World, path: &CStr, flags: c_int, from: *const c_void) -> Option<*const c_char> {
    let quiet = Quiet::enter();
    let of_caller = || {
        let of_program = of_program();
        let of = |(path, linked): (Vec<u8>, Linked)| linked.first(search::origin(&path), &of_program);
        caller(from).map_or_else(|| of_program.clone(), of)
    };
    // What the linker finds itself, by this path.
    let outside = |path: &CStr| {
        if is_said(world)
            && let Some(linked) = search::linked_at(path.as_ptr())
        {
            let called = Loading::new(world, &quiet).load_needed(&linked, path.to_bytes(), &of_caller());
            if !called.is_empty() {
                // While they are called so.
                quiet.without(|| loaded::load(path, flags));
            }
        }
    };
    match search::through(world, path.to_bytes()) {
        Some(Found::Inside(ours)) => Loading::new(world, &quiet).load(&ours, flags, &of_caller()).map(CStr::as_ptr),
        Some(Found::Outside(beyond) | Found::Beyond(beyond)) => {
            let beyond = CString::new(beyond).ok()?;
            outside(&beyond);
            // It keeps what it is given.
            Some(beyond.into_raw().cast_const())
        }
        None => {
            outside(path);
            None
        }
    }
}

/// What the linker is to be given for what a program asks for.
extern "C" fn path_for(path: *const c_char, flags: c_int, from: *const c_void) -> *const c_char {
    loaded::learn();
    let errno = crate::raw::errno();
    let given = match (world(), bytes_of(path).and_then(|path| CString::new(path).ok())) {
        (Some(world), Some(text)) if text.to_bytes().contains(&b'/') => at_path(world, &text, flags, from),
        (Some(world), Some(text)) if !text.is_empty() => named(world, &text, flags, from),
        _ => None,
    };
    crate::raw::set_errno(errno);
    crate::inline::is_due();
    given.unwrap_or(path)
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
        // Who calls.
        "mov rdx, qword ptr [rsp]",
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
