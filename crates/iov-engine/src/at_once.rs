//! The short way of a single write or read: where bytes may be moved by this process, and nothing else is to be done for
//! them, no batch is made. What it does is what the long way would.

use iov_store::{AtOnce, Memory, Now};
use iov_types::{Clause, Counters, Mutability, Outcome, Persistence, Spatiality, State};

use crate::{
    Collection, Op, Session, Status,
    collection::Ready,
    op::{Chunk, Output},
};

/// What came of it.
pub(crate) enum Short {
    Done(Status),
    /// The long way; an error of it may come behind an effect.
    No {
        /// Bytes may have been written already.
        perhaps: bool,
    },
}

const LONG: Short = Short::No { perhaps: false };

/// Tries to carry out an operation at once.
pub(crate) fn attempt(session: &Session, op: &mut Op) -> Short {
    match op {
        Op::Write { c, chunks } => only(session, c, chunks, true),
        Op::Read { c, chunks } => only(session, c, chunks, false),
        _ => LONG,
    }
}

/// Whether an access asks for nothing but its bytes.
fn is_plain(session: &Session, c: &Collection, ready: &Ready, write: bool) -> bool {
    let (opened, contract) = (&ready.opened, &ready.contract);
    let effective = &contract.effective;
    let plain = !c.is_group()
        && !c.is_inline()
        && !c.is_detached()
        && !contract.staged
        && !contract.once
        && contract.unit == 0
        && opened.state != State::Sealed;
    let changes = || {
        opened.writable
            && contract.durability < Persistence::Durable
            && effective.mutability != Mutability::Append
            && session.refuse_if_readonly().is_ok()
            && iov_semantics::resolve::writes_allowed(&opened.effective, effective).is_ok()
    };
    plain && if write { changes() } else { effective.spatiality == Spatiality::Any }
}

fn only(session: &Session, c: &Collection, chunks: &mut [Chunk], write: bool) -> Short {
    match chunks {
        [(offset, memory)] => one(session, c, *offset, memory, write),
        _ => LONG,
    }
}

/// Tries to write bytes, or to read them, at once.
pub(crate) fn one(session: &Session, c: &Collection, offset: u64, memory: &mut Memory, write: bool) -> Short {
    // The long way says what is wrong.
    if c.check().is_err() || !std::sync::Arc::ptr_eq(&c.session().0, &session.0) {
        return LONG;
    }
    let Ok(ready) = c.ready() else { return LONG };
    if !is_plain(session, c, ready, write) {
        return LONG;
    }
    let end = offset.saturating_add(memory.len() as u64);
    if write && ready.contract.max_size != 0 && end > ready.contract.max_size {
        return LONG;
    }
    let Ok(object) = c.object() else { return LONG };
    if write {
        c.mark_used();
    }
    let bytes = if write { Now::Write(memory.bytes()) } else { Now::Read(Memory::bytes_mut(memory)) };
    let moved = session.0.sides.backend.at_once(object, ready.opened.epoch, offset, bytes);
    if write && !matches!(moved, AtOnce::No) {
        // Behind the bytes: a commit that comes in between publishes without them, and the next one has to.
        c.mark_changed();
    }
    let status = match moved {
        AtOnce::Done(Ok(bytes)) => Status::ok(bytes, Output::None),
        AtOnce::Done(Err(e)) => {
            if let (true, Some(Clause::P8)) = (write, e.clause()) {
                c.mark_broken(&e);
            }
            Status::failed(e)
        }
        AtOnce::No => return LONG,
        AtOnce::Perhaps => return Short::No { perhaps: true },
    };
    let counters = session.counters();
    for counter in [&counters.batches, &counters.operations, &counters.data_requests] {
        Counters::add(counter, 1);
    }
    Counters::add(if write { &counters.bytes_written } else { &counters.bytes_read }, status.bytes);
    Short::Done(status)
}

/// The status of the long way behind an attempt.
pub(crate) fn behind(perhaps: bool, status: Status) -> Status {
    match status.error {
        Some(e) if perhaps => Status::failed(e.with_outcome(Outcome::Unknown)),
        error => Status { error, ..status },
    }
}
