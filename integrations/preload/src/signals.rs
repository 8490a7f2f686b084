//! Signals of the program while this library does something, or waits for it.

mod handlers;
mod state;

pub(crate) use handlers::{Quiet, let_run, sigaction};
pub(crate) use state::{inside, set_inside};

use crate::raw::kernel;

const SIZE: usize = size_of::<u64>();

/// What the kernel is told of, and tells of, a signal's handler: the handler, flags and more.
pub(crate) type Action = [u64; 4];

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// What a signal does; none: it has no handler.
pub(crate) fn handler_of(signal: i32) -> Option<Action> {
    let mut action: Action = [0; 4];
    let known = kernel!(libc::SYS_rt_sigaction, signal, 0, action.as_mut_ptr(), SIZE) == 0;
    (known && action[0] > libc::SIG_IGN as u64).then_some(action)
}

/// Signals that have handlers wait for as long as this is kept. Others do what they do.
pub(crate) struct Signals {
    before: u64,
}

impl Signals {
    pub(crate) fn hold() -> Signals {
        let with_handlers =
            (1..65).filter(|signal| handler_of(*signal).is_some()).fold(0, |all, signal| all | bit(signal));
        let mut before = 0_u64;
        let how = libc::SIG_BLOCK;
        kernel!(libc::SYS_rt_sigprocmask, how, &raw const with_handlers, &raw mut before, SIZE);
        // What was put back is not blocked by the program.
        Signals { before: before & !handlers::take_put_back() }
    }

    /// Waits for so many nanoseconds, or until a handler has run. Whether that ends a call which waits: which of them it was nobody says, so that it does not
    /// where all were set with `SA_RESTART`.
    pub(crate) fn pause(&self, ns: i64) -> bool {
        let time = libc::timespec { tv_sec: 0, tv_nsec: ns };
        let wait = || kernel!(libc::SYS_ppoll, 0, 0, &raw const time, &raw const self.before, SIZE);
        let waited = handlers::while_waiting(wait);
        let ends = |signal: i32| handler_of(signal).is_some_and(|action| action[1] & libc::SA_RESTART as u64 == 0);
        waited == -(libc::EINTR as isize) && (1..65).any(|signal| self.before & bit(signal) == 0 && ends(signal))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        kernel!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const self.before, 0, SIZE);
    }
}
