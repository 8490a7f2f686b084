//! The encoding of Protocol Buffers for existing Rust types, without a second set of types.
//!
//! [`message!`](crate::message) gives a struct with named fields its encoding, [`choice!`](crate::choice) an enum whose
//! variants carry data, [`numbers!`](crate::numbers) an enum that is only a number. Tags and numbers are for ever: a
//! field that goes leaves a gap, a new one gets a new tag.
//!
//! ```
//! use iov_types::{EntryKind, Name, Range, Uuid};
//! use iov_wire::{Wire, choice, message, numbers};
//!
//! #[derive(Debug, PartialEq)]
//! struct CollectionRecord {
//!     uuid: Uuid,
//!     kind: EntryKind,
//!     name: Option<Name>,
//!     size: u64,
//!     mtime_ns: i64,
//!     holes: Vec<Range>,
//!     place: Place,
//!     phase: Phase,
//! }
//!
//! #[derive(Debug, PartialEq)]
//! enum Place {
//!     Nowhere,
//!     Inline(Vec<u8>),
//!     Targets { first: u32, names: Vec<String> },
//! }
//!
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! enum Phase {
//!     Present,
//!     Pending,
//! }
//!
//! message! {
//!     CollectionRecord {
//!         1 => uuid: uuid,               // nil is not written and reads back as nil
//!         2 => kind: required number,    // always written; without it the bytes are corrupt
//!         3 => name: optional name,      // Option<T>
//!         4 => size: uint,               // u8 … u64, usize
//!         5 => mtime_ns: sint,           // i64
//!         7 => holes: repeated message,  // Vec<T>; 6 was something once
//!         8 => place: required message,  // anything that is Wire
//!         9 => phase: required number,   // anything that is Number
//!     }
//! }
//! choice! {
//!     Place {
//!         1 => Nowhere,
//!         2 => Inline(bytes),
//!         3 => Targets { 1 => first: uint, 2 => names: repeated string },
//!     }
//! }
//! numbers! { Phase { Present = 1, Pending = 2 } }
//!
//! let record = CollectionRecord {
//!     uuid: Uuid([7; 16]),
//!     kind: EntryKind::Collection,
//!     name: None,
//!     size: 4096,
//!     mtime_ns: -1,
//!     holes: vec![Range { offset: 0, len: 512 }],
//!     place: Place::Targets { first: 3, names: vec!["a".into()] },
//!     phase: Phase::Present,
//! };
//! let bytes = record.to_bytes();
//! assert_eq!(CollectionRecord::decode(&bytes)?, record);
//! assert_eq!(CollectionRecord::decode(&bytes[..5]).unwrap_err().kind(), iov_types::Kind::Corrupt);
//! # Ok::<(), iov_types::Error>(())
//! ```
//!
//! | kind | Rust type | on the wire (as Protocol Buffers call it) | not written when |
//! | --- | --- | --- | --- |
//! | `uint` | `u8` `u16` `u32` `u64` `usize` | `uint64` | 0 |
//! | `sint` | `i64` | `sint64` (zigzag) | 0 |
//! | `boolean` | `bool` | `bool` | false |
//! | `double` | `f64` | `double`, every bit kept | +0.0 |
//! | `string` | `String` | `string` | empty |
//! | `bytes` | `Vec<u8>` | `bytes` | empty |
//! | `uuid` | `Uuid` | `bytes`, 16 of them | nil |
//! | `name` | `Name` | `bytes` | — (say `required`, `optional` or `repeated`) |
//! | `number` | what is [`Number`] | `uint32` | — (likewise) |
//! | `message` | what is [`Wire`] | an embedded message | its encoding is empty |
//! | `tolerant` | `Result<T>` of such | an embedded message | — (likewise) |
//! | `pairs` | `Metadata`, `Vec<(String, Value)>` | an embedded message | empty |
//!
//! Without a word before its kind a field has a default, which is not written and which a missing field reads as.
//! `optional` is for `Option`, `repeated` for `Vec`; `required` is always written and must be there.
//!
//! What a decoder meets and does not know: a **field** is skipped, unless the message is `strict`
//! (`message! { strict Demand { … } }`), because an unknown demand must be refused, not overlooked; a **number** or a
//! **variant** is an error of kind [`Version`](iov_types::Kind::Version), since a newer release wrote it. All else that
//! is wrong is [`Corrupt`](iov_types::Kind::Corrupt). Either names the message and the offset. Of a list whose elements
//! are `tolerant`, those that only a newer release can read become `Err`, each by itself.

mod field;
pub mod kind;
mod macros;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use field::{Field, Implicit, Optional, Repeated, Required};
pub use kind::{Number, Scalar};
pub use reader::{Reader, WireType};
pub use writer::{begin, end, put_key, put_varint};

use iov_types::Result;

/// Deepest nesting of messages that is read; ours need 8, and a decoder's stack must not be the sender's to use up.
pub const MAX_DEPTH: u32 = 32;

/// Most bytes that list elements may take in memory per byte of input, beyond [`FREE_EXPANSION`]. Small elements are
/// larger in memory than on the wire (an empty one takes two bytes there); ours are 20 times larger at most, and a short
/// input must not make a decoder ask for gigabytes.
pub const EXPANSION: usize = 32;

/// Bytes that list elements may take in memory whatever the length of the input.
pub const FREE_EXPANSION: usize = 1 << 20;

/// Something with an encoding of its own; [`message!`](crate::message) and [`choice!`](crate::choice) implement it.
pub trait Wire: Sized {
    /// The name in errors.
    const NAME: &'static str;

    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads to the end of the message that `input` has entered.
    fn read(input: &mut Reader<'_>) -> Result<Self>;

    /// Reads what `input` holds, all of it.
    fn decode(input: &[u8]) -> Result<Self> {
        Self::read(&mut Reader::new(input, Self::NAME))
    }

    /// The encoding in a vector of its own.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        self.encode(&mut out);
        out
    }
}

impl<T: Wire> Wire for Box<T> {
    const NAME: &'static str = T::NAME;

    fn encode(&self, out: &mut Vec<u8>) {
        T::encode(self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self> {
        T::read(input).map(Box::new)
    }
}
