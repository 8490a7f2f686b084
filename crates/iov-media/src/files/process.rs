//! Another process of this machine: which one it is, and whether it has ended.

use std::{os::fd::OwnedFd, sync::OnceLock};

use iov_store::seam;
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
    /// Becomes readable when it ends; `None`: it has ended.
    handle: Option<OwnedFd>,
    /// When that was first seen (monotonic clock).
    ended_ns: OnceLock<i64>,
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
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return Ok(None) };
        let start = start_of(&stat).ok_or_else(|| Error::internal("the facts of a process cannot be read"))?;
        let process = Process { pid, start, handle: Some(handle), ended_ns: OnceLock::new() };
        // The handle is older than the facts: if it still lives, both are of one process.
        Ok((!process.has_ended()).then_some(process))
    }

    /// One that has ended.
    pub(super) fn ended(pid: u32, start: u64) -> Process {
        Process { pid, start, handle: None, ended_ns: OnceLock::new() }
    }

    /// For how long it is known to have ended, in nanoseconds; `None`: it lives.
    pub(super) fn ended_for_ns(&self) -> Option<u64> {
        let since = self.has_ended().then(|| *self.ended_ns.get_or_init(seam::monotonic_ns))?;
        Some(u64::try_from(seam::monotonic_ns() - since).unwrap_or(0))
    }

    /// Whether it has ended: then nothing of it is under way in the kernel.
    pub(super) fn has_ended(&self) -> bool {
        let Some(handle) = &self.handle else { return true };
        let mut polled = [PollFd::new(handle, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(io::retry(|| rustix::event::poll(&mut polled, Some(&now))), Ok(n) if n > 0)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_start_of_a_process_is_found_behind_any_name() {
        let numbers = (3..=50).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(super::start_of(&format!("1 (a) b) (c) {numbers}")), Some(22));
        assert_eq!(super::start_of("1 (short) S 1 2"), None);
    }
}
