//! What must be known of an object beside its bytes: epoch, version, whether it has failed. The seal is the file's mode.
//!
//! Two slots of one sector each, written one after the other with the same content. Dying between the two leaves the old
//! and the new one; a sector that was torn or has rotted is known by its checksum and restored from the other one. Both
//! gone is an error, never a guess. Behind them lies the log of appends.

use std::os::fd::{AsFd, BorrowedFd};

use iov_types::{Error, ObjectId, Result};

use super::io;
use crate::fail;

/// Where the log of appends begins.
pub(super) const APPENDS_AT: u64 = 4096;

const SLOT: usize = 512;
/// Length of both slots.
pub(super) const SLOTS: u64 = 2 * SLOT as u64;
const TITLE: &[u8; 8] = b"IOVSIDE\0";
const VERSION: u32 = 1;
const FAILED: u32 = 1;
const TORN: u32 = 2;

/// What a sidecar says. Without one everything is zero.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Facts {
    pub(super) epoch: u64,
    pub(super) version: u64,
    /// A sync has failed, or a change could not be finished: not to be taken for good again (P8).
    pub(super) failed: bool,
    /// The bytes are neither old nor new (M1).
    pub(super) torn: bool,
    /// Grows with each update: tells the newer slot.
    pub(super) updates: u64,
}

fn encode(facts: &Facts, id: ObjectId) -> [u8; SLOT] {
    let mut out = [0; SLOT];
    out[..8].copy_from_slice(TITLE);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let flags = if facts.failed { FAILED } else { 0 } | if facts.torn { TORN } else { 0 };
    out[12..16].copy_from_slice(&flags.to_le_bytes());
    for (i, number) in [facts.updates, facts.epoch, facts.version, id.slot].into_iter().enumerate() {
        out[16 + 8 * i..24 + 8 * i].copy_from_slice(&number.to_le_bytes());
    }
    out[48..64].copy_from_slice(&id.collection.0);
    let sum = io::checksum(&out[..SLOT - 4]);
    out[SLOT - 4..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// A number at a place of bytes that are long enough.
pub(super) fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |n, b| (n << 8) | u64::from(*b))
}

/// As [`number`], of four bytes.
pub(super) fn short(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |n, b| (n << 8) | u32::from(*b))
}

enum Slot {
    Never,
    Torn,
    Good(Facts),
}

fn decode(bytes: &[u8], id: ObjectId) -> Result<Slot> {
    if bytes.iter().all(|b| *b == 0) {
        return Ok(Slot::Never);
    }
    if short(bytes, SLOT - 4) != io::checksum(&bytes[..SLOT - 4]) || bytes[..8] != TITLE[..] {
        return Ok(Slot::Torn);
    }
    if short(bytes, 8) != VERSION {
        return Err(Error::version("a sidecar of a newer format; update the daemon"));
    }
    if number(bytes, 40) != id.slot || bytes[48..64] != id.collection.0 {
        return Err(Error::corrupt("a sidecar belongs to another object; restore it from a copy of the store"));
    }
    let (flags, updates) = (short(bytes, 12), number(bytes, 16));
    let (failed, torn) = (flags & FAILED != 0, flags & TORN != 0);
    Ok(Slot::Good(Facts { updates, epoch: number(bytes, 24), version: number(bytes, 32), failed, torn }))
}

/// Reads the facts, and makes the two slots the same again if they are not.
pub(super) fn load(file: impl AsFd, id: ObjectId) -> Result<Facts> {
    let file = file.as_fd();
    let (facts, same) = look(file, id)?;
    if !same {
        put(file, &facts, id, 0)?;
        put(file, &facts, id, 1)?;
    }
    Ok(facts)
}

/// Reads the facts, and whether the two slots are the same.
pub(super) fn look(file: BorrowedFd<'_>, id: ObjectId) -> Result<(Facts, bool)> {
    let mut bytes = [0; 2 * SLOT];
    io::read(file, &mut bytes, 0)?; // what the file does not reach stays zero
    let slots = (decode(&bytes[..SLOT], id)?, decode(&bytes[SLOT..], id)?);
    let facts = match slots {
        (Slot::Good(a), Slot::Good(b)) if a == b => return Ok((a, true)),
        (Slot::Good(a), Slot::Good(b)) => {
            if a.updates >= b.updates {
                a
            } else {
                b
            }
        }
        (Slot::Good(facts), _) | (_, Slot::Good(facts)) => facts,
        // Never written, or not yet on disk when the power went: what was not synced may be old (P3).
        (Slot::Never, Slot::Never) => return Ok((Facts::default(), true)),
        _ => {
            return Err(Error::corrupt(
                "both copies of an object's facts are damaged: its epoch and version are not known; \
                 restore the object from a copy of the store",
            ));
        }
    };
    Ok((facts, false))
}

fn put(file: BorrowedFd<'_>, facts: &Facts, id: ObjectId, slot: u64) -> Result<()> {
    io::write_all(file, &encode(facts, id), slot * SLOT as u64)
}

/// Replaces the facts. With `durable` the new ones survive power loss before this returns, and a cut of power in
/// between leaves the old or the new ones.
pub(super) fn store(file: impl AsFd, facts: &mut Facts, id: ObjectId, durable: bool) -> Result<()> {
    let file = file.as_fd();
    fail::point("sidecar.0.begin")?;
    facts.updates += 1;
    put(file, facts, id, 0)?;
    fail::point("sidecar.1.first_slot")?;
    if durable {
        io::sync_data(file)?;
    }
    put(file, facts, id, 1)?;
    fail::point("sidecar.2.second_slot")
}
