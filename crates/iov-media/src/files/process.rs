//! Another process of this machine: which one it is, and whether it has ended.

use std::{os::fd::OwnedFd, sync::OnceLock};

use iov_store::{LeaseOwner, seam};
use iov_types::{Clause, Error, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    process::{Pid, PidfdFlags},
};

use super::io;

/// A process, told from later ones of the same id by the time it started.
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) start: u64,
    life: Life,
    /// When it was first seen to have ended, or not to be seen (monotonic clock).
    gone_ns: OnceLock<i64>,
}

/// Whether a process lives.
enum Life {
    /// This becomes readable when it ends.
    Watched(OwnedFd),
    Ended,
    /// It may live all the same: in another namespace, or hidden.
    Unseen,
}

/// The namespace in which this process knows others by their ids; 0: it cannot tell.
pub(super) fn namespace() -> u64 {
    static OWN: OnceLock<u64> = OnceLock::new();
    *OWN.get_or_init(|| rustix::fs::stat("/proc/self/ns/pid").map_or(0, |stat| stat.st_ino))
}

/// Field 22 of `/proc/PID/stat`: when it started, in clock ticks since boot. The name in field 2 may hold anything but
/// ends with the last parenthesis.
fn start_of(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

impl Process {
    /// A process that lives; `None` if there is none of that id.
    pub(super) fn find(pid: u32) -> Result<Option<Process>> {
        let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(id) = id else {
            return Err(Error::unsupported(
                "a client whose process id is not known here (another process namespace); it must use the socket",
            )
            .with_clause(Clause::G6));
        };
        let handle = match rustix::process::pidfd_open(id, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(Errno::SRCH) => return Ok(None),
            Err(e) => return Err(io::os("watching a client process")(e)),
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        Process::of(pid, handle, stat)
    }

    /// The same of whom an earlier daemon knew, who may have ended, or not be seen from here.
    /// `nobody_has_page`: as it had until its end.
    pub(super) fn find_again(owner: &LeaseOwner, nobody_has_page: bool) -> Result<Process> {
        let LeaseOwner { pid, start, namespace: of, .. } = *owner;
        let process = |life| Process { pid, start, life, gone_ns: OnceLock::new() };
        let is_pid = i32::try_from(pid).is_ok_and(|pid| pid > 0);
        if !is_pid {
            // No daemon writes that: its client has.
            return Ok(process(Life::Ended));
        }
        let unseen = || process(if nobody_has_page { Life::Ended } else { Life::Unseen });
        if of != 0 && of != namespace() {
            return Ok(unseen());
        }
        match Process::find(pid) {
            Ok(Some(found)) if found.start == start => Ok(found),
            Ok(_) if of == 0 => Ok(unseen()),
            Ok(_) => Ok(process(Life::Ended)),
            Err(e) if e.kind() == iov_types::Kind::Unsupported => Ok(unseen()),
            Err(e) => Err(e),
        }
    }

    /// The process of a handle, by what was read of it then.
    fn of(pid: u32, handle: OwnedFd, stat: std::io::Result<String>) -> Result<Option<Process>> {
        let mut process = Process { pid, start: 0, life: Life::Watched(handle), gone_ns: OnceLock::new() };
        // The handle is older than the facts: if it still lives, both are of one process.
        if process.has_ended() {
            return Ok(None);
        }
        let stat = stat.map_err(|e| {
            use std::io::ErrorKind::{NotFound, PermissionDenied};
            if !matches!(e.kind(), NotFound | PermissionDenied) {
                // It may well be seen once there are descriptors again, or memory.
                return Error::from(e).context("looking at a client process");
            }
            let why =
                format!("the client's process {pid} cannot be looked at ({e}), as where /proc hides others' (hidepid)");
            Error::unsupported(format!("{why}; it must use the socket")).with_clause(Clause::G6)
        })?;
        process.start = start_of(&stat).ok_or_else(|| Error::internal("the facts of a process cannot be read"))?;
        Ok((!process.has_ended()).then_some(process))
    }

    /// For how long it is known to have ended, or not to be seen, in nanoseconds; `None`: it lives.
    pub(super) fn gone_for_ns(&self) -> Option<u64> {
        let is_gone = self.is_unseen() || self.has_ended();
        let since = is_gone.then(|| *self.gone_ns.get_or_init(seam::monotonic_ns))?;
        Some(u64::try_from(seam::monotonic_ns() - since).unwrap_or(0))
    }

    /// Whether nobody here can tell whether it lives.
    pub(super) fn is_unseen(&self) -> bool {
        matches!(self.life, Life::Unseen)
    }

    /// Whether it has ended: then nothing of it is under way in the kernel.
    pub(super) fn has_ended(&self) -> bool {
        let handle = match &self.life {
            Life::Watched(handle) => handle,
            Life::Ended => return true,
            Life::Unseen => return false,
        };
        let mut polled = [PollFd::new(handle, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(io::retry(|| rustix::event::poll(&mut polled, Some(&now))), Ok(n) if n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where `/proc` hides the processes of others, these live all the same (G6).
    #[test]
    fn g6_a_process_that_cannot_be_looked_at_has_not_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let id = Pid::from_child(&child);
        let handle = || rustix::process::pidfd_open(id, PidfdFlags::empty()).expect("a handle");
        let hidden = || Err(std::io::ErrorKind::PermissionDenied.into());
        let (here, later) = (handle(), handle());
        let e = Process::of(child.id(), here, hidden()).err().expect("it is not known");
        assert_eq!((e.kind(), e.clause()), (iov_types::Kind::Unsupported, Some(Clause::G6)), "{e}");
        child.kill().expect("its end");
        child.wait().expect("its end");
        assert!(Process::of(child.id(), later, hidden()).expect("it has ended").is_none());
    }

    /// Whoever is only not found for now is not taken for one that nobody can know (G6).
    #[test]
    fn g6_a_process_that_cannot_be_looked_at_for_now_is_not_hidden() {
        let me = std::process::id();
        let handle = || rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).expect("a handle");
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            let e = Process::of(me, handle(), Err(errno.into())).err().expect("it is not known");
            assert_eq!(e.kind(), iov_types::Kind::Exhausted, "{e}");
        }
        let e = Process::of(me, handle(), Err(Errno::NOENT.into())).err().expect("it is not known");
        assert_eq!(e.kind(), iov_types::Kind::Unsupported, "{e}");
    }

    #[test]
    fn the_start_of_a_process_is_found_behind_any_name() {
        let numbers = (3..=50).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(start_of(&format!("1 (a) b) (c) {numbers}")), Some(22));
        assert_eq!(start_of("1 (short) S 1 2"), None);
    }
}
