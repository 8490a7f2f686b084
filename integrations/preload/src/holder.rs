//! Locks of open files that several processes have, which another process holds for them ([`iov_posix::holder`]).
//!
//! One such process is there for each open file of which that is so. It is found by the file that stands for the open file ([`crate::standing`]), and ends when
//! nobody has that any more: whoever has the open file has that locked by the kernel's `flock`, which ends as the descriptors do that `fork` and `exec` have
//! passed on, however their processes end.

use std::{
    ffi::{CString, c_int},
    os::unix::ffi::OsStrExt,
};

use iov_posix::{
    InTheWay, Outcome,
    holder::{Answer, COMMAND, Request},
    run::VARIABLE,
};

use crate::{
    files::Open,
    raw::kernel,
    standing::which,
    world::{World, lock},
};

/// Where the holder finds the socket at which it is asked, and the file that is locked: its standard input and output.
const SOCKET: c_int = 0;
const WATCHED: c_int = 1;
/// Descriptors that are not among those.
const BESIDE: c_int = 3;
/// How many may wait to ask it.
const WAITING: c_int = 64;
/// Variables that it is not told, as it is no program that uses workspaces.
const NOT_TOLD: [&str; 3] = [VARIABLE, "LD_PRELOAD", STORE];
/// The variable that names the store.
const STORE: &str = "IOVERBS_URL";

/// A descriptor of this module's own.
struct Own(c_int);

impl Own {
    fn of(answer: isize) -> Option<Own> {
        c_int::try_from(answer).ok().filter(|fd| *fd >= 0).map(Own)
    }

    /// The same elsewhere, so that it can be put where it is wanted.
    fn beside(self) -> Option<Own> {
        Own::of(kernel!(libc::SYS_fcntl, self.0, libc::F_DUPFD_CLOEXEC, BESIDE))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        kernel!(libc::SYS_close, self.0);
    }
}

/// Asks who holds the locks of an open file that has this descriptor. `start`: there has to be somebody. None: there is nobody.
pub(crate) fn ask(
    world: &World,
    (fd, open): (c_int, &Open),
    asked: &Request,
    start: bool,
) -> Option<Outcome<Option<InTheWay>>> {
    // One that has had nothing to hold for long may be about to end.
    for _ in 0..2 {
        let socket = match connected(fd) {
            Some(socket) => socket,
            None if start => {
                begin(world, fd, open)?;
                connected(fd)?
            }
            None => return None,
        };
        if let Some(answer) = said(&socket, asked) {
            return Some(answer.0);
        }
    }
    None
}

/// Where the holder is asked: a name that only those know who have the file that stands for the open file.
fn address(fd: c_int) -> Option<(libc::sockaddr_un, usize)> {
    let (dev, ino) = which(fd)?;
    let name = format!("iov-lock-{dev:x}-{ino:x}");
    // SAFETY: all of it may be zero.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    // The first byte is zero: the name is that of no file (unix(7)).
    for (to, from) in address.sun_path.iter_mut().skip(1).zip(name.bytes()) {
        *to = from as _;
    }
    Some((address, size_of::<libc::sa_family_t>() + 1 + name.len()))
}

fn socket() -> Option<Own> {
    Own::of(kernel!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0))
}

/// A connection to the holder.
fn connected(fd: c_int) -> Option<Own> {
    let (socket, (address, len)) = (socket()?, address(fd)?);
    let done = loop {
        match kernel!(libc::SYS_connect, socket.0, &raw const address, len) {
            e if e == -(libc::EINTR as isize) => {}
            done => break done,
        }
    };
    // Anybody on this machine could have taken that name.
    (done == 0 && is_ours(&socket)).then_some(socket)
}

/// Whether this user, or root, is at the other end.
fn is_ours(socket: &Own) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let asked =
        kernel!(libc::SYS_getsockopt, socket.0, libc::SOL_SOCKET, libc::SO_PEERCRED, &raw mut peer, &raw mut len);
    // SAFETY: it asks the kernel for a number.
    let own = unsafe { libc::geteuid() };
    asked == 0 && (peer.uid == own || peer.uid == 0)
}

/// What the holder answers; none: it has gone.
fn said(socket: &Own, asked: &Request) -> Option<Answer> {
    let asked = asked.to_bytes();
    let sent = kernel!(libc::SYS_sendto, socket.0, asked.as_ptr(), asked.len(), libc::MSG_NOSIGNAL, 0, 0);
    if sent != asked.len() as isize {
        return None;
    }
    let mut answer = [0_u8; Answer::LEN];
    let mut so_far = 0;
    while so_far < answer.len() {
        let rest = &mut answer[so_far..];
        match kernel!(libc::SYS_recvfrom, socket.0, rest.as_mut_ptr(), rest.len(), 0, 0, 0) {
            // It answers without waiting for anybody.
            e if e == -(libc::EINTR as isize) => {}
            n if n > 0 => so_far += n as usize,
            _ => return None,
        }
    }
    Answer::read(&answer)
}

/// Sees that there is a holder, or is about to be.
fn begin(world: &World, fd: c_int, open: &Open) -> Option<()> {
    let program = CString::new(world.settings.holder.clone()?).ok()?;
    let (arguments, variables) = (arguments(open, &program)?, variables(world)?);
    let list = |text: &[CString]| text.iter().map(|t| t.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
    let (argument_list, variable_list) = (list(&arguments), list(&variables));

    let (asked_at, (address, len)) = (socket()?.beside()?, address(fd)?);
    match -kernel!(libc::SYS_bind, asked_at.0, &raw const address, len) as c_int {
        0 => {}
        // Somebody else was faster.
        libc::EADDRINUSE => return Some(()),
        _ => return None,
    }
    // Closing any descriptor of that file ends the locks by which this process moves the offset.
    let _moving = lock(&open.moving);
    let link = CString::new(format!("/proc/self/fd/{fd}")).ok()?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let watched = Own::of(kernel!(libc::SYS_openat, libc::AT_FDCWD, link.as_ptr(), flags, 0))?.beside()?;
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    let null = Own::of(kernel!(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), flags, 0))?.beside()?;
    // By this the holder is told when nobody has the open file any more. Who has it has this lock already, or gets it.
    if kernel!(libc::SYS_flock, fd, libc::LOCK_EX | libc::LOCK_NB) != 0
        || kernel!(libc::SYS_listen, asked_at.0, WAITING) != 0
    {
        return None;
    }

    // Children of which the program hears nothing. What they do until they are another program calls the kernel and nothing else: other threads
    // of this process may have locked whatever memory is had from.
    let none: c_int = 0;
    let child = kernel!(libc::SYS_clone, none, 0, 0, 0, 0);
    if child == 0 {
        if kernel!(libc::SYS_clone, none, 0, 0, 0, 0) == 0 {
            kernel!(libc::SYS_dup3, asked_at.0, SOCKET, none);
            kernel!(libc::SYS_dup3, watched.0, WATCHED, none);
            kernel!(libc::SYS_dup3, null.0, 2, none);
            kernel!(libc::SYS_close_range, BESIDE, u32::MAX, none);
            // It belongs to no terminal and to no job, and keeps no directory busy.
            kernel!(libc::SYS_setsid);
            kernel!(libc::SYS_chdir, c"/".as_ptr());
            let no_signals = 0_u64;
            kernel!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const no_signals, 0, size_of::<u64>());
            kernel!(libc::SYS_execve, program.as_ptr(), argument_list.as_ptr(), variable_list.as_ptr());
        }
        loop {
            kernel!(libc::SYS_exit_group, 0);
        }
    }
    if child < 0 {
        return None;
    }
    while kernel!(libc::SYS_wait4, child, 0, libc::__WCLONE, 0) == -(libc::EINTR as isize) {}
    Some(())
}

/// Which file it is.
fn arguments(open: &Open, program: &CString) -> Option<Vec<CString>> {
    let text = |text: &[u8]| CString::new(text).ok();
    let (workspace, uuid) = (text(&open.record.workspace)?, text(open.record.uuid.to_string().as_bytes())?);
    Some(vec![program.clone(), text(COMMAND.as_bytes())?, text(b"--")?, workspace, uuid])
}

/// The variables of this process, and the store as it has it.
fn variables(world: &World) -> Option<Vec<CString>> {
    let told = std::env::vars_os().filter(|(name, _)| !NOT_TOLD.iter().any(|not| name == not));
    let text = |name: &[u8], value: &[u8]| CString::new([name, b"=", value].concat()).ok();
    let mut variables: Vec<_> = told.filter_map(|(name, value)| text(name.as_bytes(), value.as_bytes())).collect();
    variables.push(text(STORE.as_bytes(), world.settings.store.as_bytes())?);
    Some(variables)
}
