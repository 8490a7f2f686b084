//! `iov bench`: measured beside the physical ceiling, in the same run, through the C ABI.
//!
//! Each case is a program of two roles: this process arranges the runs, and worker processes (the same executable) do the
//! work. Definitions of the cases stand in `docs/performance.md`.

mod buffer;
mod capi;
mod ceiling;
mod cores;
mod data;
mod machine;
mod meta;
mod micro;
mod net;
mod report;
mod worker;

pub use micro::{LEAST_COLLECTIONS, MicroOptions, micro};
pub use worker::{WORKER_COMMAND, worker};
