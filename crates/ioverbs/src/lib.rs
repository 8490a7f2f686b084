//! IOVerbs: storage whose promises the program chooses.
//!
//! [`open`] a store, load or create a workspace, and describe I/O: each operation is appended to a [`Batch`] or done now by
//! one of the blocking calls. What is promised is said by [`Controls`]; `docs/semantics` has the clauses.
//!
//! ```
//! use ioverbs::{Metadata, Value, open};
//!
//! let session = open(Some("mem:"), Default::default())?;
//! let ws = session.create_workspace(ioverbs::Name::new("doc-example")?, Default::default())?;
//! let mut md = Metadata::new();
//! md.set("temperature", Value::I64(310))?;
//! let c = ioverbs::create(&ws, None, Some("run_1"), md, Default::default())?;
//! ioverbs::write_at(&c, 0, b"hello")?;
//! let mut buf = [0; 5];
//! assert_eq!(ioverbs::read_at(&c, 0, &mut buf)?, 5);
//! assert_eq!(&buf, b"hello");
//! ioverbs::close(&c)?;
//! # Ok::<(), ioverbs::Error>(())
//! ```

mod blocking;
mod file;
mod identity;
mod lent;
mod library;
mod mem;
mod network;
mod open;
mod search;
mod segments;
mod storage;

pub use blocking::{append, close, commit, create, create_group, find, lookup, read_at, stat, write_at};
pub use file::{
    StoreSetup, daemon_addresses_within, daemon_medium_within, daemon_shutdown, daemon_shutdown_within, daemon_start,
    daemon_status, daemon_status_within, store_release,
};
pub use identity::{caller, parse_access, user_id};
pub use iov_engine::{
    Batch, BatchAttr, Chunk, Collection, Cursor, Drive, Op, OpState, Output, Parent, Request, Session, SessionAttr,
    Status, Workspace, moment_ns, run, run_bytes, within, within_all,
};
pub use iov_foreign::abi::Ops as BackendOps;
pub use iov_semantics::{Refusal, explain, fill, profile, refusals, resolve, suggest, text};
pub use iov_store::{
    ChangeView, Fact, LentFile, Memory, Moment, Route, TraceEntry, TraceEvent, TraceReader, Viewed, copied, kept, seam,
};
pub use iov_types::*;
pub use lent::{Lent, explain_batch, run_batch};
pub use open::{default_url, open};
pub use search::check_predicate;
pub use segments::{SEGMENTS, Segments};
pub use storage::import as import_backend;

#[cfg(test)]
mod tests;
