//! Locks of open files that several processes have, which another process holds for them ([`iov_posix::holder`]).
//!
//! One such process is there for each open file of which that is so. It is found by the file that stands for the open file ([`crate::standing`]), and ends when
//! nobody has that any more: whoever has the open file has that locked by the kernel's `flock`, which ends as the descriptors do that `fork` and `exec` have
//! passed on, however their processes end.

use std::{
    ffi::{CString, c_int},
    os::unix::ffi::OsStrExt,
    sync::atomic::Ordering,
};

use iov_posix::{
    Errno, InTheWay, LockKind, LockRange, Outcome,
    holder::{Answer, Asked, COMMAND, Request, Wants},
    run::VARIABLE,
};

use crate::{
    files::Open,
    raw::kernel,
    record::{Record, content},
    signals::{Action, handler_of},
    standing::which,
    world::{World, as_starter, lock},
};

/// Where the holder finds the socket at which it is asked, and the file that is locked: its standard input and output.
const SOCKET: c_int = 0;
const WATCHED: c_int = 1;
/// Descriptors that are not among those.
const BESIDE: c_int = 3;
/// How many may wait to ask it.
const WAITING: c_int = 64;
/// How often it is looked for, how often it may be silent, with a pause in between, and how long it may take to answer.
const LOOKS: usize = 1000;
const SILENT: usize = 10;
static PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
const PATIENCE: libc::timeval = libc::timeval { tv_sec: 70, tv_usec: 0 };
/// The byte of the file that stands for the open file by which all who have that see that there is a holder: it has locked it by a lock that ends with it. The
/// first one is for the offset ([`crate::files::Moving`]).
const THERE: i64 = 2;
/// Variables that it is not told, as it is no program that uses workspaces.
const NOT_TOLD: [&str; 3] = [VARIABLE, "LD_PRELOAD", STORE];
/// The variable that names the store.
const STORE: &str = "IOVERBS_URL";

/// A descriptor of this module's own, of which the table of the program's knows nothing.
struct Own(c_int);

impl Own {
    /// `ENOLCK`: there is no number left for it.
    fn of(answer: isize) -> Outcome<Own> {
        match -answer as c_int {
            libc::EMFILE | libc::ENFILE | libc::EINVAL => Err(Errno::ENOLCK),
            e if e > 0 => Err(Errno(e)),
            _ => Ok(Own(answer as c_int)),
        }
    }

    /// The same elsewhere, so that it can be put where it is wanted.
    fn beside(self) -> Outcome<Own> {
        Own::of(kernel!(libc::SYS_fcntl, self.fd(), libc::F_DUPFD_CLOEXEC, BESIDE))
    }

    fn fd(&self) -> c_int {
        self.0
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        kernel!(libc::SYS_close, self.0);
    }
}

/// How an open file is known to who holds its locks.
pub(crate) struct Known {
    address: (libc::sockaddr_un, usize),
    proof: Vec<u8>,
    token: Vec<u8>,
}

impl Known {
    fn of(fd: c_int, open: &Open) -> Option<Known> {
        let proof = open.proof().map_or_else(|| content(fd), |proof| Some(proof.to_vec()))?;
        let token = Record::read(&proof).map(|record| record.token).unwrap_or_default();
        Some(Known { address: address(fd)?, proof, token })
    }

    fn asks(&self, request: Request) -> Option<Vec<u8>> {
        Asked { request, proof: self.proof.clone(), token: self.token.clone() }.to_bytes()
    }
}

/// Whether there is a holder for an open file that other processes may have as well.
fn is_there(fd: c_int) -> bool {
    // SAFETY: all of it may be zero.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_start, lock.l_len) = (libc::F_WRLCK as i16, THERE, 1);
    kernel!(libc::SYS_fcntl, fd, libc::F_OFD_GETLK, &raw mut lock) == 0 && lock.l_type != libc::F_UNLCK as i16
}

/// Asks who holds the locks of an open file that has this descriptor. `start`: there has to be somebody. None: there is nobody, or nobody who can.
pub(crate) fn ask(
    world: &World,
    (fd, open): (c_int, &Open),
    request: &Request,
    start: bool,
) -> Option<Outcome<Option<InTheWay>>> {
    let (mut known, mut silent) = (None, 0);
    for _ in 0..LOOKS {
        if !is_there(fd) {
            if !start {
                return None;
            }
            match begin(world, fd, open) {
                Ok(()) => {}
                Err(Errno::ENOLCK) => return Some(Err(Errno::ENOLCK)),
                // Nobody can be had.
                Err(_) => return None,
            }
        }
        if known.is_none() {
            known = Known::of(fd, open);
        }
        let known = known.as_ref()?;
        match connected(&known.address) {
            Ok(Some(socket)) => {
                match said(&socket, &known.asks(*request)?) {
                    Ok(Some(answer)) => return Some(answer.0),
                    // It has just ended, as it held nothing; or it cannot open the file.
                    Ok(None) => silent += 1,
                    Err(e) => return Some(Err(e)),
                }
                if silent == SILENT {
                    return None;
                }
            }
            // It is about to be there, or has just gone.
            Ok(None) => {}
            Err(e) => return Some(Err(e)),
        }
        kernel!(libc::SYS_nanosleep, &raw const PAUSE, 0);
    }
    // Somebody holds the locks who cannot be reached from here.
    Some(Err(Errno::ENOLCK))
}

/// To be asked for before a descriptor of an open file is closed, and [`closed`] afterwards; none: nobody has to hear of it.
pub(crate) fn before_close(fd: c_int, open: &Open) -> Option<Known> {
    let known = (open.shared.load(Ordering::Relaxed) && is_there(fd)).then(|| Known::of(fd, open)).flatten();
    if known.is_some() {
        // The holder may hear from the kernel that it was the last one: whoever has the lock next sees what was written under it.
        open.publish_early();
    }
    known
}

/// A descriptor of an open file has been closed: if it was the last one of all, its locks have ended once this returns.
pub(crate) fn closed(known: &Known) {
    let end = Request { wants: Wants::End, kind: LockKind::None, range: LockRange::Whole };
    // Who cannot be asked hears of it by the kernel.
    if let (Ok(Some(socket)), Some(asked)) = (connected(&known.address), known.asks(end)) {
        let _ = said(&socket, &asked);
    }
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

fn socket() -> Outcome<Own> {
    Own::of(kernel!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0))
}

/// A connection to the holder; none: nobody listens.
fn connected((address, len): &(libc::sockaddr_un, usize)) -> Outcome<Option<Own>> {
    let socket = socket().map_err(|_| Errno::ENOLCK)?;
    let until = PATIENCE;
    let (time, size) = (&raw const until, size_of::<libc::timeval>());
    kernel!(libc::SYS_setsockopt, socket.fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, time, size);
    loop {
        match -kernel!(libc::SYS_connect, socket.fd(), std::ptr::from_ref(address), *len) as c_int {
            libc::EINTR => {}
            // Anybody on this machine could have taken that name.
            0 if !is_ours(&socket) => return Err(Errno::ENOLCK),
            0 => return Ok(Some(socket)),
            libc::ECONNREFUSED => return Ok(None),
            _ => return Err(Errno::ENOLCK),
        }
    }
}

/// Whether whom this process acts for, or who has started it, or root is at the other end.
fn is_ours(socket: &Own) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (to, size) = (&raw mut peer, &raw mut len);
    let asked = kernel!(libc::SYS_getsockopt, socket.fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, size);
    // SAFETY: they ask the kernel for numbers.
    let own = unsafe { [libc::getuid(), libc::geteuid(), 0] };
    asked == 0 && own.contains(&peer.uid)
}

/// What the holder answers; none: it has gone. `ENOLCK`: it does not.
fn said(socket: &Own, asked: &[u8]) -> Outcome<Option<Answer>> {
    let sent = kernel!(libc::SYS_sendto, socket.fd(), asked.as_ptr(), asked.len(), libc::MSG_NOSIGNAL, 0, 0);
    if sent != asked.len() as isize {
        return Ok(None);
    }
    let mut answer = [0_u8; Answer::LEN];
    let mut so_far = 0;
    while so_far < answer.len() {
        let rest = &mut answer[so_far..];
        match kernel!(libc::SYS_recvfrom, socket.fd(), rest.as_mut_ptr(), rest.len(), 0, 0, 0) {
            // It answers without waiting for anybody.
            e if e == -(libc::EINTR as isize) => {}
            e if e == -(libc::EAGAIN as isize) => return Err(Errno::ENOLCK),
            n if n > 0 => so_far += n as usize,
            _ => return Ok(None),
        }
    }
    Ok(Answer::read(&answer))
}

/// Sees that there is a holder, or is about to be. `ENOLCK`: there could be, but for descriptors.
fn begin(world: &World, fd: c_int, open: &Open) -> Outcome<()> {
    const CANNOT: Errno = Errno::EINVAL;
    let program = world.settings.holder.clone().and_then(|program| CString::new(program).ok()).ok_or(CANNOT)?;
    let told = || Some((arguments(open, &program)?, variables(world)?));
    let (arguments, variables) = told().ok_or(CANNOT)?;
    let list = |text: &[CString]| text.iter().map(|t| t.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
    let (argument_list, variable_list) = (list(&arguments), list(&variables));
    let link = CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| CANNOT)?;
    let (address, len) = address(fd).ok_or(CANNOT)?;

    // Closing any descriptor of that file ends the locks by which this process moves the offset.
    let _moving = lock(&open.moving);
    // Nobody forks meanwhile: a child that runs no other program would keep what the holder is to have alone.
    let _held = world.files.hold();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let watched = Own::of(kernel!(libc::SYS_openat, libc::AT_FDCWD, link.as_ptr(), flags, 0))?.beside()?;
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    let null = Own::of(kernel!(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), flags, 0))?.beside()?;
    // By this the holder is told when nobody has the open file any more. Who has it has this lock already, or gets it.
    if kernel!(libc::SYS_flock, fd, libc::LOCK_EX | libc::LOCK_NB) != 0 {
        return Err(CANNOT);
    }
    // SAFETY: all of it may be zero.
    let mut there: libc::flock = unsafe { std::mem::zeroed() };
    (there.l_type, there.l_start, there.l_len) = (libc::F_RDLCK as i16, THERE, 1);
    let asked_at = socket()?.beside()?;
    // As whose the session of this process is.
    as_starter(|| {
        match -kernel!(libc::SYS_bind, asked_at.fd(), &raw const address, len) as c_int {
            0 => {}
            // Somebody else was faster.
            libc::EADDRINUSE => return Ok(()),
            _ => return Err(CANNOT),
        }
        let listens = kernel!(libc::SYS_listen, asked_at.fd(), WAITING) == 0
            && kernel!(libc::SYS_fcntl, watched.fd(), libc::F_OFD_SETLK, &raw const there) == 0;
        let handed = [asked_at.fd(), watched.fd(), null.fd()];
        (listens && starts(&program, &argument_list, &variable_list, handed)).then_some(()).ok_or(CANNOT)
    })
}

/// Starts the holder as a child of nobody here.
fn starts(
    program: &CString,
    arguments: &[*const std::ffi::c_char],
    variables: &[*const std::ffi::c_char],
    [asked_at, watched, null]: [c_int; 3],
) -> bool {
    // What the children do until they are another program calls the kernel and nothing else: other threads of this process may have locked whatever
    // memory is had from. No handler of the program runs in them.
    let none: c_int = 0;
    let (all, mut before) = (u64::MAX, 0_u64);
    // It needs more descriptors than the program may have been given.
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let limited = kernel!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, 0, &raw mut limit) == 0;
    limit.rlim_cur = limit.rlim_max;
    kernel!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, size_of::<u64>());
    let child = kernel!(libc::SYS_clone, none, 0, 0, 0, 0);
    if child == 0 {
        if kernel!(libc::SYS_clone, none, 0, 0, 0, 0) == 0 {
            kernel!(libc::SYS_dup3, asked_at, SOCKET, none);
            kernel!(libc::SYS_dup3, watched, WATCHED, none);
            kernel!(libc::SYS_dup3, null, 2, none);
            // With anything else that this process has open it would keep that open, too.
            if kernel!(libc::SYS_close_range, BESIDE, u32::MAX, none) == 0 {
                // It belongs to no terminal and to no job, and keeps no directory busy.
                kernel!(libc::SYS_setsid);
                kernel!(libc::SYS_chdir, c"/".as_ptr());
                if limited {
                    kernel!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, &raw const limit, 0);
                }
                let (by_default, no_signals): (Action, u64) = ([0; 4], 0);
                for signal in 1..65 {
                    if handler_of(signal).is_some() {
                        kernel!(libc::SYS_rt_sigaction, signal, by_default.as_ptr(), 0, size_of::<u64>());
                    }
                }
                let size = size_of::<u64>();
                kernel!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const no_signals, 0, size);
                kernel!(libc::SYS_execve, program.as_ptr(), arguments.as_ptr(), variables.as_ptr());
            }
        }
        loop {
            kernel!(libc::SYS_exit_group, 0);
        }
    }
    if child > 0 {
        while kernel!(libc::SYS_wait4, child, 0, libc::__WCLONE, 0) == -(libc::EINTR as isize) {}
    }
    kernel!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const before, 0, size_of::<u64>());
    child > 0
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
