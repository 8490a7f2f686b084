//! Operations on objects, as in [`iov_types::ObjectOp`], and what goes with them over a wire.

use iov_types::{Capability, Demand, Evidence, ObjectId, ObjectOp, ObjectVerb, Result, Uuid};

use super::Context;
use crate::codec::{Field, Implicit, Reader, kind};
use crate::{Wire, choice, message};

message! { strict ObjectId { 1 => collection: uuid, 2 => slot: uint } }

choice! {
    // The numbers are those of `VerbKind`.
    strict ObjectVerb {
        1 => Create,
        2 => Write { 1 => offset: uint },
        3 => Read { 1 => offset: uint },
        4 => Append,
        5 => Truncate { 1 => size: uint },
        6 => Punch(message),
        7 => Copy { 1 => source: required message, 2 => source_offset: uint, 3 => offset: uint, 4 => len: uint },
        8 => Sync,
        9 => Seal,
        10 => Fence { 1 => epoch: uint },
        11 => Freeze { 1 => stage: uuid },
        12 => Publish { 1 => stage: uuid },
        13 => Discard { 1 => stage: uuid },
        14 => Remove,
        15 => Stat,
        16 => List { 1 => after: optional message, 2 => max: uint },
        17 => Allocate { 1 => range: message, 2 => keep_size: boolean },
        18 => Extents { 1 => range: message, 2 => max: uint },
        19 => Thaw { 1 => stage: uuid },
    }
}

message! {
    // Strict: a demand that this release does not know must be refused, not overlooked.
    strict Demand {
        1 => stage: optional uuid,
        2 => batch: optional message,
        3 => epoch: uint,
        4 => durability: optional number,
        5 => unit: uint,
        6 => max_size: uint,
        7 => once: boolean,
        8 => pattern: optional number,
        9 => domain: optional uuid,
    }
}

/// The batch of a change, and its place in it.
impl Wire for (Uuid, u64) {
    const NAME: &'static str = "BatchPlace";

    fn encode(&self, out: &mut Vec<u8>) {
        Implicit::<kind::uuid>::put(&self.0, 1, out);
        Implicit::<kind::uint>::put(&self.1, 2, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self> {
        let (mut batch, mut sequence) = (None, None);
        while let Some((tag, wire)) = input.key()? {
            match tag {
                1 => Implicit::<kind::uuid>::take(&mut batch, wire, input)?,
                2 => Implicit::<kind::uint>::take(&mut sequence, wire, input)?,
                _ => input.skip(wire)?,
            }
        }
        Ok((batch.unwrap_or_default(), sequence.unwrap_or_default()))
    }
}

message! { strict ObjectOp { 1 => object: required message, 2 => verb: required message, 3 => demand: message } }

message! {
    Evidence {
        1 => bytes: uint,
        2 => offset: uint,
        3 => size: uint,
        4 => allocated: uint,
        5 => version: uint,
        6 => epoch: uint,
        7 => mtime_ns: sint,
        8 => durability: optional number,
        9 => extents: repeated message,
        10 => objects: repeated message,
    }
}

/// One operation and the memory that goes with it.
#[derive(Clone, PartialEq, Debug)]
pub struct ObjectCall {
    /// What to do; an error where only a newer release understands it.
    pub op: Result<ObjectOp>,
    /// Bytes of its memory: of a write or append they lie in the payload, of a read they are the room at the caller.
    pub len: u64,
    /// CRC-32C of the bytes to write, made by the writer (I1).
    pub checksum: Option<u32>,
}

message! { strict ObjectCall { 1 => op: required tolerant, 2 => len: uint, 3 => checksum: optional uint } }

/// Operations on objects of one target. The payload holds the bytes of all writes and appends, in order.
#[derive(Clone, PartialEq, Debug)]
pub struct ObjectRequest {
    /// For whom.
    pub context: Context,
    /// The operations; those on one object take effect in order.
    pub calls: Vec<ObjectCall>,
    /// Leave to do so, for a daemon that is not the catalog's: the bytes of [`iov_types::SignedTicket`]s.
    pub tickets: Vec<Vec<u8>>,
}

message! { strict ObjectRequest { 1 => context: message, 2 => calls: repeated message, 3 => tickets: repeated bytes } }

/// How one operation ended.
#[derive(Clone, PartialEq, Debug)]
pub struct ObjectCompletion {
    /// Its place in the request.
    pub index: u32,
    /// What happened.
    pub result: Result<Evidence>,
    /// Bytes that were read; they lie in the payload.
    pub len: u64,
    /// CRC-32C of these bytes (I1).
    pub checksum: Option<u32>,
}

message! {
    ObjectCompletion { 1 => index: uint, 2 => result: required message, 3 => len: uint, 4 => checksum: optional uint }
}

/// Some or all completions of a request; the rest comes in later answers with the same id. The payload holds the bytes
/// of all reads among them, in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ObjectAnswer {
    /// Why the request failed as a whole: nothing more comes for it.
    pub failed: Option<iov_types::Error>,
    /// What has completed.
    pub completions: Vec<ObjectCompletion>,
}

message! { ObjectAnswer { 1 => failed: optional message, 2 => completions: repeated message } }

/// [`Capability`] with a medium's name that came from somewhere else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetCapability {
    /// A word for it in messages.
    pub medium: String,
    /// The strongest level it can make bytes survive.
    pub durability: iov_types::Persistence,
    /// Largest unit that it changes as a whole.
    pub max_unit: u64,
    /// Whether stages can be frozen and published in one step.
    pub staging: bool,
    /// Most bytes in one stage (B4).
    pub stage_bytes: u64,
    /// Whether it drops the kernel's cache for `once` or has none.
    pub once: bool,
    /// Whether it can drain to the durable tier by a deadline, or has no slower tier.
    pub bursty: bool,
    /// Targets that a layout may name.
    pub targets: u32,
    /// Grows each time the medium starts empty or without its old objects (P1).
    pub incarnation: u64,
}

message! {
    TargetCapability {
        1 => medium: string,
        2 => durability: required number,
        3 => max_unit: uint,
        4 => staging: boolean,
        5 => stage_bytes: uint,
        6 => once: boolean,
        7 => bursty: boolean,
        8 => targets: uint,
        9 => incarnation: uint,
    }
}

impl From<&Capability> for TargetCapability {
    fn from(c: &Capability) -> TargetCapability {
        let Capability { medium, durability, max_unit, staging, stage_bytes, once, bursty, targets, incarnation } = *c;
        let medium = medium.to_owned();
        TargetCapability { medium, durability, max_unit, staging, stage_bytes, once, bursty, targets, incarnation }
    }
}

impl TargetCapability {
    /// The capability itself, under a name for its medium that lives as long as the program.
    pub fn named(&self, medium: &'static str) -> Capability {
        let TargetCapability {
            medium: _,
            durability,
            max_unit,
            staging,
            stage_bytes,
            once,
            bursty,
            targets,
            incarnation,
        } = *self;
        Capability { medium, durability, max_unit, staging, stage_bytes, once, bursty, targets, incarnation }
    }
}
