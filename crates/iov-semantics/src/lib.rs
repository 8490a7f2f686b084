//! What controls mean, as pure functions: text ↔ controls, `resolve`, `admit`, `verify`, `explain`.
//!
//! ```text
//! asked ⊕ workspace ⊕ defaults ── resolve ──▶ Effective ── admit ──▶ Contract ── (engine) ──▶ Evidence ── verify
//!                                    └─────────┴── Refusal: the clause, and an offer that will be admitted
//! ```
//!
//! [`admit`] is the only gate: a control passes it with a [`Contract`] that says what the engine must do, or it is
//! refused. Nothing is ignored. Layer 1: no I/O, no clock, no async.
#![forbid(unsafe_code)]

mod admit;
mod contract;
mod control;
pub mod explain;
pub mod plan;
pub mod profile;
pub mod quantity;
mod refusal;
pub mod refusals;
pub mod resolve;
pub mod stores;
pub mod strength;
pub mod suggest;
pub mod text;
mod verify;

pub use admit::admit;
pub use contract::{Contract, DEFAULT_DRAIN_NS, Publish, SyncPoint};
pub use control::{Control, fill};
pub use refusal::Refusal;
pub use verify::{verify, verify_at};

#[cfg(test)]
mod generate;
