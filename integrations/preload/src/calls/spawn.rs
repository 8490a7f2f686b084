//! `posix_spawn`, and with it `system` and `popen`: by `fork`. The C library's own children share the memory of their parent until they run
//! their program, and what they did on the store there would be left half done.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use ioverbs::kept;

use super::forks::Pipe;
use crate::{
    raw::{errno, kernel},
    world::Inside,
};

/// What is done in the child before its program runs: `posix_spawn_file_actions_t` of glibc, of which the list is its own.
#[repr(C)]
pub(crate) struct Actions {
    allocated: c_int,
    used: c_int,
    actions: *const Action,
}

/// `struct __spawn_action` of glibc: what to do, and with what.
#[repr(C)]
struct Action {
    what: c_int,
    with: With,
}

#[repr(C)]
#[derive(Clone, Copy)]
union With {
    fds: [c_int; 2],
    path: *const c_char,
    open: OpenAt,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct OpenAt {
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: u32,
}

const CLOSE: c_int = 0;
const DUP2: c_int = 1;
const OPEN: c_int = 2;
const CHDIR: c_int = 3;
const FCHDIR: c_int = 4;
const CLOSEFROM: c_int = 5;
const TCSETPGRP: c_int = 6;

const SETSID: i16 = 0x80;

/// How a program is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    No,
    InPath,
}

/// What an answer of the C library says, as an outcome.
fn done(answer: c_int) -> Result<(), c_int> {
    if answer < 0 { Err(errno()) } else { Ok(()) }
}

/// Does one thing in the child.
///
/// # Safety
/// The action is one of glibc's.
unsafe fn act(action: &Action) -> Result<(), c_int> {
    let with = &action.with;
    // SAFETY: which of them it is the first word says, and paths end with NUL.
    unsafe {
        match action.what {
            // A descriptor that is closed already is as good.
            CLOSE => drop(libc::close(with.fds[0])),
            DUP2 if with.fds[0] == with.fds[1] => done(libc::fcntl(with.fds[0], libc::F_SETFD, 0))?,
            DUP2 => done(libc::dup2(with.fds[0], with.fds[1]))?,
            OPEN => {
                let OpenAt { fd, path, flags, mode } = with.open;
                libc::close(fd);
                let opened = libc::open(path, flags, mode);
                done(opened)?;
                if opened != fd {
                    done(libc::dup2(opened, fd))?;
                    libc::close(opened);
                }
            }
            CHDIR => done(libc::chdir(with.path))?,
            FCHDIR => done(libc::fchdir(with.fds[0]))?,
            CLOSEFROM => drop(super::descriptors::closefrom(with.fds[0])),
            TCSETPGRP => done(libc::tcsetpgrp(with.fds[0], libc::getpgrp()))?,
            _ => return Err(libc::EINVAL),
        }
    }
    Ok(())
}

/// Becomes what the attributes say.
///
/// # Safety
/// They are valid attributes.
unsafe fn become_as(attributes: *const libc::posix_spawnattr_t) -> Result<(), c_int> {
    let mut flags = 0;
    // SAFETY: the caller says so; the rest are places of this function.
    unsafe {
        libc::posix_spawnattr_getflags(attributes, &mut flags);
        let is = |flag: c_int| c_int::from(flags) & flag != 0;
        if is(libc::POSIX_SPAWN_SETSIGDEF) {
            let mut set = std::mem::zeroed();
            libc::posix_spawnattr_getsigdefault(attributes, &mut set);
            for signal in (1..65).filter(|signal| libc::sigismember(&set, *signal) == 1) {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        if flags & SETSID != 0 {
            done(libc::setsid())?;
        }
        if is(libc::POSIX_SPAWN_SETPGROUP) {
            let mut group = 0;
            libc::posix_spawnattr_getpgroup(attributes, &mut group);
            done(libc::setpgid(0, group))?;
        }
        let mut param = std::mem::zeroed();
        libc::posix_spawnattr_getschedparam(attributes, &mut param);
        if is(libc::POSIX_SPAWN_SETSCHEDULER) {
            let mut policy = 0;
            libc::posix_spawnattr_getschedpolicy(attributes, &mut policy);
            done(libc::sched_setscheduler(0, policy, &param))?;
        } else if is(libc::POSIX_SPAWN_SETSCHEDPARAM) {
            done(libc::sched_setparam(0, &param))?;
        }
        if is(libc::POSIX_SPAWN_RESETIDS) {
            done(libc::seteuid(libc::getuid()))?;
            done(libc::setegid(libc::getgid()))?;
        }
    }
    Ok(())
}

/// The signals that are blocked in the program: those that the attributes say, else those that are in its parent.
///
/// # Safety
/// They are valid attributes, or none.
unsafe fn mask_of(attributes: *const libc::posix_spawnattr_t, parents: &libc::sigset_t) -> libc::sigset_t {
    let mut flags = 0;
    // SAFETY: the caller says so; the rest are places of this function.
    unsafe {
        if !attributes.is_null() {
            libc::posix_spawnattr_getflags(attributes, &mut flags);
        }
        if c_int::from(flags) & libc::POSIX_SPAWN_SETSIGMASK == 0 {
            return *parents;
        }
        let mut set = std::mem::zeroed();
        libc::posix_spawnattr_getsigmask(attributes, &mut set);
        set
    }
}

/// The program that a child is to run.
#[derive(Clone, Copy)]
struct Wanted {
    path: *const c_char,
    search: Search,
    actions: *const Actions,
    attributes: *const libc::posix_spawnattr_t,
    arguments: *const *const c_char,
    variables: *const *const c_char,
}

/// Runs what lies in `PATH` under a name. Not by the C library's `execvpe`: what the kernel cannot run is not for a shell here.
///
/// # Safety
/// All of it is as `posix_spawnp` is given it.
unsafe fn run_in_path(wanted: &Wanted) -> Result<(), c_int> {
    // SAFETY: the caller says so; no other thread is in this process, which could change a variable.
    let (name, dirs) = unsafe {
        let dirs = libc::getenv(c"PATH".as_ptr());
        let dirs = if dirs.is_null() { c"/bin:/usr/bin" } else { CStr::from_ptr(dirs) };
        (CStr::from_ptr(wanted.path).to_bytes(), dirs.to_bytes())
    };
    // SAFETY: the path ends with NUL, and the caller says so of the rest.
    let run = |path: &CStr| done(unsafe { super::process::execve(path.as_ptr(), wanted.arguments, wanted.variables) });
    if name.is_empty() {
        return Err(libc::ENOENT);
    }
    if name.contains(&b'/') {
        // SAFETY: the caller says so.
        return run(unsafe { CStr::from_ptr(wanted.path) });
    }
    let mut why = libc::ENOENT;
    for dir in dirs.split(|byte| *byte == b':') {
        let path = if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() };
        let Ok(path) = CString::new(path) else { continue };
        match run(&path) {
            Err(libc::EACCES) => why = libc::EACCES,
            // It is not there; another one may be.
            Err(libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT) => {}
            other => return other,
        }
    }
    Err(why)
}

/// The descriptors that a program names in what is to be done in the child.
fn named(actions: *const Actions) -> Vec<c_int> {
    // SAFETY: the program gives it so, and which part of an action it is its first word says.
    unsafe {
        let Some(list) = actions.as_ref().filter(|list| list.used > 0) else { return Vec::new() };
        let of_one = |action: &Action| match action.what {
            CLOSE | FCHDIR => [action.with.fds[0]; 2],
            DUP2 => action.with.fds,
            OPEN => [action.with.open.fd; 2],
            _ => [-1; 2],
        };
        std::slice::from_raw_parts(list.actions, list.used as usize).iter().flat_map(of_one).collect()
    }
}

/// Another descriptor of one, which the program does not name, whatever it closes or puts in its place.
fn set_apart(fd: c_int, named: &[c_int]) -> c_int {
    // As high as may be.
    for mut from in [512, 256, 128, 64, 32, 16, 3] {
        while let another @ 0.. = kernel!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, from) as c_int {
            if !named.contains(&another) {
                kept::keep(another);
                return another;
            }
            kernel!(libc::SYS_close, another);
            from = another + 1;
        }
    }
    fd
}

/// Signals that have a handler do what they do by default from now on, as they will in the program.
fn ignore_handlers() {
    for signal in 1..65 {
        // SAFETY: it asks for an action, and sets another one.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let known = libc::sigaction(signal, std::ptr::null(), &mut action) == 0;
            if known && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// The child: comes back only if it fails.
///
/// # Safety
/// All of it is as `posix_spawn` is given it.
unsafe fn child(wanted: Wanted, parents: &libc::sigset_t) -> c_int {
    let run = || {
        // SAFETY: the caller says so.
        unsafe {
            if !wanted.attributes.is_null() {
                become_as(wanted.attributes)?;
            }
            if let Some(list) = wanted.actions.as_ref().filter(|list| list.used > 0) {
                for action in std::slice::from_raw_parts(list.actions, list.used as usize) {
                    act(action)?;
                }
            }
            // Only now: the program's handlers are not for this process.
            ignore_handlers();
            libc::sigprocmask(libc::SIG_SETMASK, &mask_of(wanted.attributes, parents), std::ptr::null_mut());
            match wanted.search {
                Search::No => done(super::process::execve(wanted.path, wanted.arguments, wanted.variables)),
                Search::InPath => run_in_path(&wanted),
            }
        }
    };
    run().err().unwrap_or(libc::ENOEXEC)
}

/// # Safety
/// As `posix_spawn`.
unsafe fn spawn(pid: *mut libc::pid_t, wanted: Wanted) -> c_int {
    // By which the child says why it failed, and which closes where it has not.
    let own = match Pipe::new() {
        Ok(own) => own,
        Err(why) => return why,
    };
    let (pipe, close) = (own.0, Pipe::close);
    // SAFETY: both sets are places of this function.
    let parents = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    // The child has another thread than one of the library's, which would ask the store for what that one is just about to bring back.
    let is_inside = Inside::is();
    // SAFETY: a program that spawns has to expect another process; the child only does what it is told, and ends.
    let forked = unsafe { libc::fork() };
    let why = errno();
    if forked != 0 {
        own.went_along();
        // SAFETY: it is the set that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &parents, std::ptr::null_mut()) };
    }
    match forked {
        -1 => {
            pipe.into_iter().for_each(close);
            why
        }
        0 => {
            let _inside = is_inside.then(Inside::enter);
            let say = set_apart(pipe[1], &named(wanted.actions));
            pipe.into_iter().filter(|fd| *fd != say).for_each(close);
            // SAFETY: the caller says so.
            let why = unsafe { child(wanted, &parents) };
            kernel!(libc::SYS_write, say, (&raw const why).cast::<c_void>(), size_of::<c_int>());
            loop {
                kernel!(libc::SYS_exit_group, 127);
            }
        }
        child => {
            close(pipe[1]);
            let mut why: c_int = 0;
            let n = loop {
                let n = kernel!(libc::SYS_read, pipe[0], (&raw mut why).cast::<c_void>(), size_of::<c_int>());
                if n != -(libc::EINTR as isize) {
                    break n;
                }
            };
            close(pipe[0]);
            if n > 0 {
                kernel!(libc::SYS_wait4, child, 0, 0, 0);
                return why;
            }
            if !pid.is_null() {
                // SAFETY: it is the program's place for one.
                unsafe { pid.write(child) };
            }
            0
        }
    }
}

/// `posix_spawn(3)`
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const Actions,
    attributes: *const libc::posix_spawnattr_t,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    let wanted = Wanted { path, search: Search::No, actions, attributes, arguments, variables };
    // SAFETY: the program gives it so.
    unsafe { spawn(pid, wanted) }
}

/// `posix_spawnp(3)`
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C" fn posix_spawnp(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const Actions,
    attributes: *const libc::posix_spawnattr_t,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    let wanted = Wanted { path, search: Search::InPath, actions, attributes, arguments, variables };
    // SAFETY: the program gives it so.
    unsafe { spawn(pid, wanted) }
}
