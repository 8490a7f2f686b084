//! Litmus tests of the promises (SEMANTICS, section 3) by real processes on a `file:` store, and crashes at fail points.
//!
//! A test starts a [`Store`] with a daemon of its own and some [`Worker`]s, which are processes that obey lines of text, and
//! tells the outcome to a [`Report`], which compares it with the generated documents under `docs/semantics`.
#![deny(unsafe_code)]

mod peer;
mod report;
mod store;
pub mod worker;

pub use peer::Worker;
pub use report::{Report, long, rounds};
pub use store::{Daemon, Store, WORKSPACE, at_member, in_shared_memory, is_striped, over_tcp};
