//! Processes: what a new one is told, programs that lie in a workspace, and the end.

use std::{
    ffi::{CString, OsStr, c_char, c_int},
    os::unix::ffi::OsStrExt,
};

use iov_posix::{Errno, File, Flags, Kind, Outcome, Way, run::Program};

use super::{Here, at, bytes_of, export, is_inside, libraries, libraries::start, links, locks, place, temporary};
use crate::{
    files::Patience,
    memory,
    raw::{failed, kernel},
    signals::{Quiet, let_run},
    world::{Inside, World, report, world},
};

/// The variable with the directory of a process, where that is one of a workspace.
pub(crate) const DIRECTORY: &str = "IOVERBS_RUN_DIR";
/// What each program is told anew.
const OF_ONE_PROGRAM: [&str; 4] = [DIRECTORY, iov_posix::run::VARIABLE, start::VARIABLE, start::OWN_PATH];
/// The variable of the dynamic linker that has this library loaded.
const PRELOAD: &str = "LD_PRELOAD";
/// Programs that run programs (`#!`), in a row.
const INTERPRETERS: usize = 4;
/// Bytes of a file that say what kind of program it is.
const HEAD: usize = 4096;
/// Bytes of an argument or a variable, at most: as many as Linux takes, and its end.
const ARGUMENT: usize = 32 * 4096;
/// Bytes of a file that are copied at once.
const PIECE: usize = 4 << 20;

/// A list of pointers to text that ends with a null, as the kernel wants it, and the text.
struct List {
    _text: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl List {
    fn new(text: Vec<CString>) -> List {
        let pointers = text.iter().map(|t| t.as_ptr()).chain([std::ptr::null()]).collect();
        List { _text: text, pointers }
    }

    /// Of a program's list, which is null, or ends with a null. `EFAULT`: the program has no such list.
    fn copied(list: *const *const c_char) -> Outcome<Vec<CString>> {
        let mut text = Vec::new();
        if list.is_null() {
            return Ok(text);
        }
        loop {
            let one = memory::given(list.wrapping_add(text.len()))?;
            if one.is_null() {
                return Ok(text);
            }
            let bytes = memory::text_of(one, ARGUMENT).ok_or(Errno(libc::EFAULT))?;
            if bytes.len() >= ARGUMENT {
                return Err(Errno(libc::E2BIG));
            }
            text.push(CString::new(bytes).map_err(|_| Errno::EINVAL)?);
        }
    }
}

/// The variables of a new program: its own, and those by which this library is there as well. One without them is not asked: the
/// parent was.
fn environment(world: &World, given: Vec<CString>) -> Vec<CString> {
    let is = |variable: &CString, name: &str| {
        variable.to_bytes().strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
    };
    let mut variables: Vec<CString> =
        given.into_iter().filter(|v| !OF_ONE_PROGRAM.iter().any(|name| is(v, name))).collect();
    let set = |name: &str, value: &[u8]| CString::new([name.as_bytes(), b"=", value].concat()).ok();
    variables.extend(world.settings.to_text().ok().and_then(|text| set(iov_posix::run::VARIABLE, &text)));
    if let Some(record) = place::to_pass(world) {
        variables.extend(set(DIRECTORY, record.to_text().as_bytes()));
    }
    let library = world.library.as_bytes();
    match variables.iter_mut().find(|v| is(v, PRELOAD)) {
        Some(v) if v.to_bytes()[PRELOAD.len() + 1..].split(|b| b" :".contains(b)).any(|one| one == library) => {}
        Some(v) => {
            let with = [PRELOAD.as_bytes(), b"=", library, b":", &v.to_bytes()[PRELOAD.len() + 1..]].concat();
            if let Ok(with) = CString::new(with) {
                *v = with;
            }
        }
        None => variables.extend(set(PRELOAD, library)),
    }
    variables
}

/// The first bytes of a file of the kernel.
fn head_of(path: *const c_char) -> Option<Vec<u8>> {
    let fd = kernel!(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return None;
    }
    let mut head = vec![0; HEAD];
    let n = kernel!(libc::SYS_pread64, fd, head.as_mut_ptr(), head.len(), 0);
    kernel!(libc::SYS_close, fd);
    head.truncate(usize::try_from(n).ok()?);
    Some(head)
}

/// Whether a program that knows nothing of the store was given something of it.
fn concerns_store(world: &World, arguments: &[CString]) -> bool {
    let inherits = |fd: c_int| {
        let flags = kernel!(libc::SYS_fcntl, fd, libc::F_GETFD);
        flags >= 0 && flags as c_int & libc::FD_CLOEXEC == 0
    };
    let named = |argument: &CString| {
        let text = argument.to_bytes();
        // Also as in `--output=/iov/w/file`.
        let value = text.iter().position(|b| *b == b'=').map_or(&[][..], |at| &text[at + 1..]);
        [text, value].iter().any(|path| path.first() == Some(&b'/') && world.place(path).is_some())
    };
    place::to_pass(world).is_some()
        || arguments.iter().skip(1).any(named)
        || world.files.all().iter().any(|(fd, _)| inherits(*fd))
}

/// Whether a program runs with rights that this process has not, so that the dynamic linker loads nothing into it.
fn changes_user(path: *const c_char) -> bool {
    // SAFETY: all of it may be zero, and the call fills it.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    if kernel!(libc::SYS_newfstatat, libc::AT_FDCWD, path, &raw mut stat, 0) != 0 {
        return false;
    }
    // SAFETY: they ask the kernel for numbers.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    let of_group = libc::S_ISGID | libc::S_IXGRP;
    (stat.st_mode & libc::S_ISUID != 0 && stat.st_uid != uid)
        || (stat.st_mode & of_group == of_group && stat.st_gid != gid)
}

/// With what a program is run.
#[derive(Clone, Copy)]
struct With<'a> {
    variables: &'a [CString],
    /// Of how many scripts it is the interpreter.
    depth: usize,
    /// The program has asked for it, and not the library, within which nothing can be asked of the store.
    is_asked: bool,
}

/// Another program runs here, as far as is known: what is to be sealed ends in order.
fn goes(world: &World, is_asked: bool) {
    if is_asked && world.pid == crate::raw::pid() {
        let _inside = Inside::enter();
        // Nobody tells it later.
        for (fd, open) in world.files.all() {
            if let Some(e) = open.untold() {
                report(&String::from_utf8_lossy(&open.record.path), &format_args!("descriptor {fd}: {e}"));
            }
        }
        world.files.pause();
    }
}

/// What kind of program a file of the kernel is.
fn kind_of(path: *const c_char) -> Program {
    match head_of(path).map_or(Program::Other, |head| Program::of(&head)) {
        // It loads the program that it is told, and this library with it.
        Program::Static if libraries::is_linker(path) => Program::Dynamic,
        program => program,
    }
}

/// What has a file of the kernel run in the end, as far as the kernel finds that: the file, or what runs the script that it is.
fn runner(program: &Program) -> (Option<CString>, Program) {
    let (mut at, mut program): (Option<CString>, _) = (None, program.clone());
    for _ in 0..INTERPRETERS {
        let Program::Script(interpreter, _) = &program else { break };
        let Ok(interpreter) = CString::new(&interpreter[..]) else { break };
        if is_inside(libc::AT_FDCWD, interpreter.as_ptr()) {
            break;
        }
        program = kind_of(interpreter.as_ptr());
        at = Some(interpreter);
    }
    (at, program)
}

/// Says of a program that it is not run, as it would take what stands for files of the store for them.
fn refused(name: &[u8], what: &str) -> isize {
    report(&OsStr::from_bytes(name).to_string_lossy(), &format_args!("{what}: use iov mount"));
    failed(Errno::EACCES)
}

/// Runs a program of the kernel.
fn run_there(world: &World, path: *const c_char, arguments: &[CString], with: With) -> isize {
    let program = kind_of(path);
    let (at, last) = runner(&program);
    let by = at.as_ref().map_or(path, |at| at.as_ptr());
    let cannot = match last.cannot_see() {
        Some(what) => Some(format!("it is {what}")),
        None if changes_user(by) => Some("it runs as another user or group, so that nothing is loaded into it".into()),
        None => None,
    };
    if let Program::Script(interpreter, argument) = &program
        && with.depth < INTERPRETERS
        && let Ok(interpreter) = CString::new(&interpreter[..])
        && is_inside(libc::AT_FDCWD, interpreter.as_ptr())
    {
        match kernel!(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::X_OK) {
            0 => {}
            e => return e,
        }
        let script = bytes_of(path).and_then(|path| CString::new(path).ok());
        let argument = argument.as_ref().and_then(|argument| CString::new(&argument[..]).ok());
        let own = [interpreter.clone()].into_iter().chain(argument).chain(script);
        let all: Vec<_> = own.chain(arguments.iter().skip(1).cloned()).collect();
        let with = With { depth: with.depth + 1, ..with };
        return run(world, (libc::AT_FDCWD, interpreter.as_ptr(), true), &all, with);
    }
    if let Some(cannot) = cannot.filter(|_| concerns_store(world, arguments)) {
        return refused(bytes_of(path).unwrap_or_default(), &cannot);
    }
    let mut variables = with.variables.to_vec();
    // It goes again unless the program runs.
    let _libraries = (program == Program::Dynamic).then(|| start::of_file(world, path, &mut variables));
    let (arguments, variables) = (List::new(arguments.to_vec()), List::new(variables));
    if kernel!(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::X_OK) == 0 {
        goes(world, with.is_asked);
    }
    let_run(|| kernel!(libc::SYS_execve, path, arguments.pointers.as_ptr(), variables.pointers.as_ptr()))
}

/// The same path without links, as the kernel says where a program is.
pub(super) fn without_links(path: Vec<u8>) -> Vec<u8> {
    let mut found = [0_u8; libc::PATH_MAX as usize];
    let Ok(text) = CString::new(&path[..]) else { return path };
    // SAFETY: there is as much room as the C library may fill, with an end.
    match unsafe { libc::realpath(text.as_ptr(), found.as_mut_ptr().cast()) } {
        end if end.is_null() => path,
        _ => found.split(|b| *b == 0).next().unwrap_or_default().to_vec(),
    }
}

/// A program of a workspace, as the kernel can run it: a descriptor of its bytes, and where it is.
fn copied(here: &Here, follow: bool) -> Way<(Program, c_int, Vec<u8>)> {
    let (node, attributes) = here.find(follow)?;
    if node.kind() == Kind::Symlink {
        return Err(Errno::ELOOP.into());
    }
    if node.kind() != Kind::File {
        return Err(Errno::EACCES.into());
    }
    here.caller.check(&node, &attributes, libc::X_OK as u32)?;
    let (file, attributes) = File::open(&node, Flags::default())?;
    let mut head = vec![0; HEAD];
    let n = file.read(0, &mut head)?;
    head.truncate(n);
    let program = Program::of(&head);
    if matches!(program, Program::Script(..)) {
        return Ok((program, -1, Vec::new()));
    }
    Ok((program, in_memory(&file, attributes.size)?, without_links(here.absolute())))
}

/// A descriptor of a copy of a file.
pub(super) fn in_memory(file: &File, size: u64) -> Outcome<c_int> {
    let fd = kernel!(libc::SYS_memfd_create, c"program".as_ptr(), libc::MFD_CLOEXEC);
    if fd < 0 {
        return Err(Errno(-fd as i32));
    }
    let mut piece = vec![0; PIECE.min(usize::try_from(size).unwrap_or(PIECE)).max(1)];
    let mut at = 0;
    let copied = loop {
        match file.read(at, &mut piece) {
            Ok(0) => break Ok(fd as c_int),
            Ok(n) if kernel!(libc::SYS_pwrite64, fd, piece.as_ptr(), n, at) == n as isize => at += n as u64,
            Ok(_) => break Err(Errno::ENOMEM),
            Err(e) => break Err(e),
        }
    };
    if copied.is_err() {
        kernel!(libc::SYS_close, fd);
    }
    copied
}

/// A path from a directory, and whether a link at its end is followed.
type From = (c_int, *const c_char, bool);

/// Runs what is at the end of a path, instead of this program.
fn run(world: &World, from: From, arguments: &[CString], with: With) -> isize {
    let (dirfd, path, follow) = from;
    let here = &mut |world: &World, here: &Here| {
        let (program, fd, at) = copied(here, follow)?;
        if let Program::Script(interpreter, argument) = program {
            if with.depth == INTERPRETERS {
                return Err(Errno::ELOOP.into());
            }
            let text = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| Errno(libc::ENOEXEC));
            let interpreter = text(interpreter)?;
            let mut all = vec![interpreter.clone()];
            all.extend(argument.map(text).transpose()?);
            all.push(text(match dirfd {
                libc::AT_FDCWD => bytes_of(path).unwrap_or_default().to_vec(),
                _ => here.absolute(),
            })?);
            all.extend(arguments.iter().skip(1).cloned());
            let with = With { depth: with.depth + 1, ..with };
            return Ok(run(world, (libc::AT_FDCWD, interpreter.as_ptr(), true), &all, with));
        }
        let is_linker = || CString::new(temporary::path_of(fd)).is_ok_and(|path| libraries::is_linker(path.as_ptr()));
        let cannot = program.cannot_see().filter(|_| concerns_store(world, arguments));
        if let Some(what) = cannot.filter(|_| program != Program::Static || !is_linker()) {
            kernel!(libc::SYS_close, fd);
            return Ok(refused(&at, &format!("it is {what}")));
        }
        let mut variables = with.variables.to_vec();
        let _libraries = match program {
            Program::Dynamic => start::of_copy(world, fd, &at, &mut variables),
            _ => None,
        };
        let (arguments, variables) = (List::new(arguments.to_vec()), List::new(variables));
        let (argument_list, variable_list) = (arguments.pointers.as_ptr(), variables.pointers.as_ptr());
        goes(world, with.is_asked);
        // The next program begins with the signals that this one blocks.
        let done = let_run(|| {
            kernel!(libc::SYS_execveat, fd, c"".as_ptr(), argument_list, variable_list, libc::AT_EMPTY_PATH)
        });
        kernel!(libc::SYS_close, fd);
        Ok(done)
    };
    at(dirfd, path, here, &mut |_, _| failed(Errno::EACCES), &mut |_, path| run_there(world, path, arguments, with))
}

/// Everybody else is told what was written, and finds out what descriptors stand for. Within the library, which may be starting a daemon or have been interrupted by
/// a signal, nothing can be asked of the store.
pub(super) fn publish(world: &World) {
    match Inside::is() {
        false => {
            let mut patience = Patience::new(world);
            world.files.publish(world, &mut patience);
            locks::hand_over(world, &mut patience);
        }
        true => world.files.own(true),
    }
}

fn run_first(path: *const c_char, arguments: *const *const c_char, variables: *const *const c_char) -> isize {
    run_from((libc::AT_FDCWD, path, true), arguments, variables)
}

fn run_from(from: From, arguments: *const *const c_char, variables: *const *const c_char) -> isize {
    let Some(world) = world() else { return kernel!(libc::SYS_execve, from.1, arguments, variables) };
    let (_quiet, is_asked) = (Quiet::enter(), !Inside::is());
    publish(world);
    let (arguments, variables) = match List::copied(arguments).and_then(|a| Ok((a, List::copied(variables)?))) {
        Ok(lists) => lists,
        Err(e) => return failed(e),
    };
    let (dirfd, path, follow) = from;
    links::following((dirfd, path), |dirfd, path| {
        let with = With { variables: &environment(world, variables), depth: 0, is_asked };
        run(world, (dirfd, path, follow), &arguments, with)
    })
}

fn run_open(
    dirfd: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
    flags: c_int,
) -> isize {
    let Some(world) = world() else {
        return kernel!(libc::SYS_execveat, dirfd, path, arguments, variables, flags);
    };
    let _quiet = Quiet::enter();
    let there = || {
        publish(world);
        let (arguments, variables) = match List::copied(arguments).and_then(|a| Ok((a, List::copied(variables)?))) {
            Ok(lists) => lists,
            Err(e) => return failed(e),
        };
        let (arguments, variables) = (List::new(arguments), List::new(environment(world, variables)));
        let (arguments, variables) = (arguments.pointers.as_ptr(), variables.pointers.as_ptr());
        goes(world, !Inside::is());
        let_run(|| kernel!(libc::SYS_execveat, dirfd, path, arguments, variables, flags))
    };
    let Some(text) = bytes_of(path) else { return there() };
    let (own, follow) = (world.files.get(dirfd), flags & libc::AT_SYMLINK_NOFOLLOW == 0);
    // The kernel knows what nobody else has to.
    if flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) != 0 {
        return there();
    }
    match own {
        // By the path of what is open.
        Some(open) if text.is_empty() && flags & libc::AT_EMPTY_PATH != 0 => {
            match CString::new(open.record.path.clone()) {
                Ok(path) => run_first(path.as_ptr(), arguments, variables),
                Err(_) => failed(Errno::ENOENT),
            }
        }
        Some(_) if !text.is_empty() => run_from((dirfd, path, follow), arguments, variables),
        _ if is_inside(dirfd, path) => run_from((dirfd, path, follow), arguments, variables),
        _ if dirfd == libc::AT_FDCWD && flags == 0 => run_first(path, arguments, variables),
        _ => there(),
    }
}

/// Everybody else is told what was written by descriptors that are open.
pub(super) fn publish_all(world: &World, patience: &mut Patience) {
    for (fd, open) in world.files.all() {
        let told = match patience.is_up() {
            true => open.untold().map_or(Ok(()), Err),
            false => patience.with(|| open.publish()),
        };
        if let Err(e) = told {
            report(&String::from_utf8_lossy(&open.record.path), &format_args!("descriptor {fd}: {e}"));
        }
    }
}

/// What this process has open, if anything can be asked of the store: a child that shares the memory of its parent ends nothing of its parent's.
pub(super) fn ending() -> Option<&'static World> {
    world().filter(|world| world.pid == crate::raw::pid() && !Inside::is())
}

/// The end: everybody else is told what was written, and what is to be sealed is closed.
fn end(code: c_int) -> isize {
    // A handler of a signal may end a program in the middle of anything: what it would wait for may wait for it.
    if let Some(world) = ending() {
        let mut patience = Patience::new(world);
        let inside = Inside::enter();
        publish_all(world, &mut patience);
        locks::end(world, &mut patience);
        drop(inside);
        Quiet::begin();
        std::mem::forget(Inside::enter());
        world.files.end(&mut patience);
        if !patience.is_over() {
            world.all_mounted().iter().for_each(|mounted| mounted.paths.file_system().leave());
        }
    }
    loop {
        kernel!(libc::SYS_exit_group, code);
    }
}

/// What a child that has ended has done is seen by its parent.
fn waited(answer: isize) -> isize {
    // None has ended yet, or an error.
    if answer <= 0 {
        return answer;
    }
    if !Inside::is()
        && let Some(world) = world()
    {
        let _quiet = Quiet::enter();
        world.refresh();
    }
    answer
}

export! {
    /// `wait4(2)`
    fn wait4(pid: c_int, status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> c_int =
        waited(kernel!(libc::SYS_wait4, pid, status, options, usage));
    /// `waitpid(2)`
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int =
        waited(kernel!(libc::SYS_wait4, pid, status, options, 0));
    /// `wait(2)`
    fn wait(status: *mut c_int) -> c_int = waited(kernel!(libc::SYS_wait4, -1_i32, status, 0, 0));
    /// `wait3(2)`
    fn wait3(status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> c_int =
        waited(kernel!(libc::SYS_wait4, -1_i32, status, options, usage));
    /// `waitid(2)`
    fn waitid(kind: libc::idtype_t, id: libc::id_t, info: *mut libc::siginfo_t, options: c_int) -> c_int =
        match kernel!(libc::SYS_waitid, kind, id, info, options, 0) {
            0 => waited(1) - 1,
            e => e,
        };
    /// `execve(2)`
    fn execve(path: *const c_char, arguments: *const *const c_char, variables: *const *const c_char) -> c_int =
        run_first(path, arguments, variables);
    /// `execveat(2)`
    fn execveat(
        dirfd: c_int, path: *const c_char, arguments: *const *const c_char, variables: *const *const c_char, flags: c_int
    ) -> c_int = run_open(dirfd, path, arguments, variables, flags);
    /// `fexecve(3)`
    fn fexecve(fd: c_int, arguments: *const *const c_char, variables: *const *const c_char) -> c_int =
        run_open(fd, c"".as_ptr(), arguments, variables, libc::AT_EMPTY_PATH);
    /// `_exit(2)`
    fn exit(code: c_int) -> c_int = end(code);
}
