//! Batches on memory that is borrowed for the call: the safe way to have many operations in flight.

use iov_engine::{Batch, BatchAttr, Collection, Op, Session, Status};
use iov_store::Memory;
use iov_types::{Error, Kind, Result};

/// An operation of [`run_batch`].
#[allow(clippy::large_enum_variant)] // most are plain, and each is moved twice at most: a box would cost more
pub enum Lent<'a> {
    /// One that needs no memory, or owns it.
    Plain(Op),
    /// Writes all of `data` at `offset`.
    Write {
        /// Where to.
        c: Collection,
        /// First byte.
        offset: u64,
        /// What.
        data: &'a [u8],
    },
    /// Reads into `buf`; short only at the end.
    Read {
        /// Where from.
        c: Collection,
        /// First byte.
        offset: u64,
        /// The room.
        buf: &'a mut [u8],
    },
    /// Adds a record at the end.
    Append {
        /// Where to.
        c: Collection,
        /// What.
        data: &'a [u8],
    },
}

impl From<Op> for Lent<'_> {
    fn from(op: Op) -> Self {
        Lent::Plain(op)
    }
}

impl Lent<'_> {
    /// # Safety
    /// The operation must have completed, or must never start, before the borrow ends.
    unsafe fn op(self) -> Op {
        match self {
            Lent::Plain(op) => op,
            Lent::Write { c, offset, data } => {
                // SAFETY: passed on to the caller.
                let memory = unsafe { Memory::readable(data.as_ptr(), data.len()) };
                Op::Write { c, chunks: vec![(offset, memory)] }
            }
            Lent::Read { c, offset, buf } => {
                // SAFETY: passed on to the caller; the borrow is unique.
                let memory = unsafe { Memory::writable(buf.as_mut_ptr(), buf.len()) };
                Op::Read { c, chunks: vec![(offset, memory)] }
            }
            Lent::Append { c, data } => {
                // SAFETY: passed on to the caller.
                let memory = unsafe { Memory::readable(data.as_ptr(), data.len()) };
                Op::Append { c, memory }
            }
        }
    }
}

fn batch(session: &Session, attr: BatchAttr, ops: Vec<Lent<'_>>) -> Result<Batch> {
    let mut batch = Batch::new(session, attr)?;
    for op in ops {
        // SAFETY: both callers drop the batch, or wait for its end, before they return, and so before the borrow ends.
        batch.push(unsafe { op.op() })?;
    }
    Ok(batch)
}

/// Runs a batch to its end and tells how each operation ended. An error means that nothing was started.
pub fn run_batch(session: &Session, attr: BatchAttr, ops: Vec<Lent<'_>>) -> Result<Vec<Status>> {
    let n = ops.len();
    let mut batch = batch(session, attr, ops)?;
    let request = batch.start()?;
    while !request.is_done() {
        // Partial is told by the statuses; a timeout means that the memory is still in use.
        match request.wait(-1) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), Kind::Partial | Kind::Timeout) => {}
            // In a forked child nobody will ever complete it, and its memory is a copy that nobody else writes to.
            Err(e) if e.kind() == Kind::Forked => return Err(e),
            Err(e) if request.is_done() => return Err(e),
            Err(_) => {}
        }
    }
    (0..n).map(|i| batch.status(i)).collect()
}

/// The plan of a batch as JSON, without running it.
pub fn explain_batch(session: &Session, attr: BatchAttr, ops: Vec<Lent<'_>>) -> Result<String> {
    if ops.is_empty() {
        return Err(Error::invalid("there is no operation to explain"));
    }
    batch(session, attr, ops)?.explain()
}

#[cfg(test)]
mod tests;
