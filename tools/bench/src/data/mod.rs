//! Bandwidth of a file target: requests of 1 MiB and of 4 KiB over 1 GiB at distinct offsets, hot source buffer, through the
//! C ABI; beside bare pwrite and pread.
//!
//! How fast a file's pages can be copied depends on where they lie in physical memory, by a factor of three from one file to
//! the next. So one process does both sides of a pair from one buffer, in short turns: overwrites and reads on the very
//! same file, first writes on two files that fill at the same time from the same free pages.

mod cases;
mod turns;
mod worker;

pub(crate) use cases::{CASES, DURABLE_CASES, NEAR_CASES, SHARED_CASES, STRIPED_CASES, cases};
use turns::Schedule;
pub(crate) use worker::worker;

#[cfg(test)]
mod tests;

/// API §5 asks for at least 1 GiB. A piece is some milliseconds of work: long beside the clock, short beside the drift of the
/// machine.
pub(crate) const SCHEDULE: Schedule = Schedule { footprint: 1 << 30, piece: 32 << 20, request: 1 << 20 };
/// Many requests of a few kilobytes: what a request costs besides its bytes.
pub(crate) const SMALL: Schedule = Schedule { request: 4 << 10, ..SCHEDULE };
