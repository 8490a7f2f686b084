//! The log: segments of checksummed frames. One frame carries all transactions of one call of `commit`.

mod frame;
mod read;
mod recover;
mod room;
mod segment;

pub(crate) use frame::{FRAME_BYTES, Frame, MARK, Write, key_of, value_of};
pub(crate) use recover::{Recovered, recover};
pub(crate) use segment::{Appender, EMPTY_SEGMENT, Failure, Segment, Tail, forget_unfinished, list, name};

use std::io;

use iov_types::{Error, Kind, Outcome};

use crate::hooks::Hooks;

/// Which boot of the machine this is: damage that a loss of power explains can only be from an earlier one. Zero if
/// the system does not say.
pub(crate) fn boot_id(hooks: &Hooks) -> [u8; 16] {
    if let Some(id) = hooks.boot() {
        return id;
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).map_or([0; 16], u128::to_be_bytes)
}

/// Whether an error only says that there is no room: it goes away when there is.
pub(crate) fn is_full(e: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(e.kind(), K::StorageFull | K::QuotaExceeded | K::FileTooLarge)
}

/// What the error of a full medium ends with, whatever is said before it.
const FREE: &str = "; free some space on its file system, then repeat";

/// The error of a commit or a move into tables that found no room: nothing is lost, and it can be repeated.
pub(crate) fn full(place: &str, e: impl std::fmt::Display) -> Error {
    Error::exhausted(format!("{place}: {e}{FREE}"))
}

/// Whether an error is that one. Memory and descriptors are used up, too: space is of no help to them.
pub(crate) fn says_full(e: &Error) -> bool {
    (e.kind(), e.outcome()) == (Kind::Exhausted, Outcome::NotApplied) && e.detail().ends_with(FREE)
}

#[cfg(test)]
mod tests;
