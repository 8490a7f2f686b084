//! What the Linux kernel and a file system outside of it say to each other (FUSE): mounting, requests, answers, and the two ways that
//! they go, `/dev/fuse` and rings of `io_uring` (Linux 6.14).
//!
//! A file system is a [`Filesystem`]: a method for each request, whose result is the answer. [`Session::mount`] has it served by
//! threads of its own until somebody unmounts it. A method may take its time: others are served meanwhile, since a thread is
//! added whenever none is left to take the next request.
//!
//! The names, numbers and layouts are those of the kernel's `include/uapi/linux/fuse.h`, version 7.45; what they mean is said in
//! `Documentation/filesystems/fuse` there. By rings a request is served on the processor of the program that asks, without a call
//! of the system for each direction: a third to a fifth of the time (docs/adr/0029-fuse-by-rings.md).
#![deny(unsafe_code)]

mod abi;
mod crew;
mod device;
mod dispatch;
mod fields;
mod filesystem;
mod handshake;
mod looker;
mod mounting;
mod names;
mod ring;
mod session;
mod types;
mod watch;

pub use crew::Waiting;
pub use device::{Backing, Kernel};
pub use filesystem::Filesystem;
pub use handshake::{Asked, Granted};
pub use looker::look_on;
pub use mounting::{Missing, MountTable, remount, unmount};
pub use names::{Names, Room};
pub use session::{Rings, Session};
pub use types::{Attr, Entry, Lock, LockAsked, Moved, Opened, Request, SetAttr, SetTime, Space, Written, open};

#[cfg(test)]
mod tests;
