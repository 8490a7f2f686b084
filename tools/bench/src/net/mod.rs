//! Remote cases: bandwidth over TCP, and how long a small read takes over TCP and over a UNIX socket; through the C ABI,
//! beside bare sockets between two processes.
//!
//! One process does our side and the client of the bare one in turns, as with files. The daemon keeps its bytes in shared
//! memory, in huge pages; the bare server has as much memory of that kind, so that both cross a socket and nothing else.

mod bare;
mod beside;
mod cases;
mod worker;

pub(crate) use bare::worker as bare_worker;
pub(crate) use cases::{KINDS, Kind, MEMBER_KINDS, Ways, cases};
pub(crate) use worker::worker;

#[cfg(test)]
mod tests;
