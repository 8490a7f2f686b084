//! Leave to move bytes without asking anyone (G1–G3). The descriptor itself travels beside the answer's frame.

use iov_types::{Error, ObjectId, Range, Result};

use super::Context;
use crate::{choice, message, numbers};

/// What a grant is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// Writing by others on behalf of the client, such as the kernel, until [`TakeBack`].
    Lent,
}

numbers! { Access { Read = 1, Write = 2, Lent = 3 } }

/// Asks for direct access to a range of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantRequest {
    /// For whom.
    pub context: Context,
    /// Which object.
    pub object: ObjectId,
    /// Which bytes of it.
    pub range: Range,
    /// What for.
    pub access: Access,
    /// The epoch the object must have; 0 = any (X1).
    pub epoch: u64,
    /// The client can map segments of shared memory. Sent only to a server whose target keeps bytes there.
    pub memory: bool,
    /// Segments that were passed before are not here any more: all that are named are to be passed again.
    pub anew: bool,
    /// Leave to do it, from the catalog; none are needed at its own daemon (A1).
    pub tickets: Vec<Vec<u8>>,
}

message! {
    strict GrantRequest {
        1 => context: message,
        2 => object: required message,
        3 => range: message,
        4 => access: required number,
        5 => epoch: uint,
        6 => memory: boolean,
        7 => anew: boolean,
        8 => tickets: repeated bytes,
    }
}

/// A stretch of an object in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stretch {
    /// First byte of it in the object.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Which segment.
    pub segment: u64,
    /// First byte of it in the segment.
    pub at: u64,
}

message! { strict Stretch { 1 => offset: uint, 2 => len: uint, 3 => segment: uint, 4 => at: uint } }

/// Where bytes of an object lie in shared memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// The segment that the object's head lies in.
    pub head_segment: u64,
    /// Where in it.
    pub head_at: u64,
    /// Where its bytes lie, in order; what is between two has no place yet.
    pub stretches: Vec<Stretch>,
    /// The segments whose descriptors come beside the frame, in this order: those that were not passed before.
    pub passed: Vec<u64>,
}

message! {
    strict Window {
        1 => head_segment: uint,
        2 => head_at: uint,
        3 => stretches: repeated message,
        4 => passed: repeated uint,
    }
}

/// A grant. Exactly one descriptor comes with the frame that holds it, unless `window` says otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Its number on this connection, for recall and giving back.
    pub grant: u64,
    /// The bytes of the object it covers; perhaps fewer than were asked for.
    pub range: Range,
    /// Where these bytes begin in what the descriptor names.
    pub position: u64,
    /// What it allows.
    pub access: Access,
    /// The object's epoch.
    pub epoch: u64,
    /// How long it lasts without [`super::Renew`], in nanoseconds.
    pub lease_ns: u64,
    /// The object is kept by checksums (I1): what is read must be compared with them.
    pub kept: bool,
    /// The bytes lie in segments of shared memory, whose descriptors come with the frame.
    pub window: Option<Window>,
    /// The version of the object for as long as the grant holds; told of parts of collections on several targets.
    pub version: u64,
}

message! {
    // Strict: whoever holds a grant writes without being asked again, so it must understand every condition.
    strict Granted {
        1 => grant: uint,
        2 => range: message,
        3 => position: uint,
        4 => access: required number,
        5 => epoch: uint,
        6 => lease_ns: uint,
        7 => kept: boolean,
        8 => window: optional message,
        9 => version: uint,
    }
}

/// The answer to [`GrantRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GrantAnswer {
    /// Here it is.
    Granted(Granted),
    /// Go by way of the daemon, or not at all.
    Failed(Error),
}

choice! { GrantAnswer { 1 => Granted(message), 2 => Failed(message) } }

impl From<GrantAnswer> for Result<Granted> {
    fn from(answer: GrantAnswer) -> Self {
        match answer {
            GrantAnswer::Granted(granted) => Ok(granted),
            GrantAnswer::Failed(error) => Err(error),
        }
    }
}

/// Ends what was lent of an object ([`Access::Lent`]), by whichever daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TakeBack {
    /// For whom.
    pub context: Context,
    /// Which object.
    pub object: ObjectId,
}

message! { strict TakeBack { 1 => context: message, 2 => object: required message } }

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TakeBackAnswer {
    /// Why it is lent on: `Busy` where somebody has it open or mapped for writing.
    pub failed: Option<Error>,
}

message! { TakeBackAnswer { 1 => failed: optional message } }

/// Asks for what is known of the blocks of an object that is kept by checksums (I1), to compare what is read with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SumsRequest {
    /// For whom.
    pub context: Context,
    /// Which object.
    pub object: ObjectId,
    /// The first run, of 1 MiB.
    pub first: u64,
    /// How many; at most 64.
    pub runs: u64,
}

message! {
    strict SumsRequest { 1 => context: message, 2 => object: required message, 3 => first: uint, 4 => runs: uint }
}

/// The answer: for each block of 4 KiB eight bytes in the payload. A word says what is known (0: it holds zeros, 1: its
/// checksum, 2: nothing, as it has changed since the last sync), another is its CRC-32C; both are little-endian.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SumsAnswer {
    /// Why there is none.
    pub failed: Option<Error>,
}

message! { SumsAnswer { 1 => failed: optional message } }

/// Asks for a grant back (G1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recall {
    /// Which.
    pub grant: u64,
    /// After this many nanoseconds it is taken (G2).
    pub within_ns: u64,
}

message! { Recall { 1 => grant: uint, 2 => within_ns: uint } }

/// Gives a grant back, asked or unasked: nothing is moved under it any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GiveBack {
    /// Which.
    pub grant: u64,
}

message! { GiveBack { 1 => grant: uint } }
