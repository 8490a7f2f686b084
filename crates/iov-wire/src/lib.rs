//! What crosses a connection and what lies in a store: the tagged encoding of messages, the frame, the table of verbs.
//!
//! Layer 1: pure. Bytes in, values out and back; nothing here opens, waits or spawns. `docs/wire.md` describes the
//! protocol, `docs/adr/0004-wire-codec.md` why the codec is our own.
#![forbid(unsafe_code)]

pub mod codec;
pub mod frame;
pub mod messages;
pub mod ticket;
mod verbs;
mod version;

pub use codec::Wire;
pub use frame::Header;
/// For the macros.
#[doc(hidden)]
pub use iov_types::Result;
pub use verbs::{Body, Sender, Verb};
pub use version::{HANDSHAKE_VERSION, MAX_VERSION, MIN_VERSION};
