//! The client: sessions, handles, batches, and the driving of plans against the two sides of a store.
//!
//! No tokio, no thread before one is needed: a request is a state machine, and whoever waits drives it.

mod at_once;
mod batch;
mod collection;
mod cursor;
mod event;
mod exec;
mod leases;
mod lend;
mod op;
mod progress;
mod records;
mod request;
mod session;
mod view;
mod within;
mod workspace;

pub use batch::{Batch, BatchAttr, Drive, run, run_bytes};
pub use collection::Collection;
pub use cursor::Cursor;
pub use op::{Chunk, Op, OpState, Output, Parent, Status};
pub use request::Request;
pub use session::{Session, SessionAttr, Sides};
pub use within::{moment_ns, within, within_all};
pub use workspace::Workspace;
