//! Which part of an operation goes to which object.

use iov_layout::{Piece, Stripes};
use iov_types::{Clause, Demand, Error, ObjectOp, ObjectVerb, Place, Range, Result};

use super::table::Lined;
use crate::{Memory, Submitted};

/// Whether an operation goes to the first target as it is.
pub(super) fn is_at_first(op: &ObjectOp) -> bool {
    let copies_from = match &op.verb {
        ObjectVerb::Copy { source, .. } => Place::of(*source),
        _ => None,
    };
    Place::of(op.object).is_none() && copies_from.is_none()
}

/// A part of an operation: for which position of the line, and what of the collection it is about.
pub(super) struct Part {
    pub(super) index: usize,
    pub(super) submitted: Submitted,
    /// Of a read or write.
    pub(super) piece: Option<Piece>,
}

/// The bytes that an operation is about, checked for numbers that no object can have.
pub(super) fn range_of(verb: &ObjectVerb, memory: u64) -> Result<Option<Range>> {
    Ok(match verb {
        ObjectVerb::Write { offset } => Some(Range::new(*offset, memory)?),
        ObjectVerb::Punch(range) | ObjectVerb::Allocate { range, .. } => Some(Range::new(range.offset, range.len)?),
        // Where nothing can be there is nothing to be read.
        ObjectVerb::Read { offset } => Some(Range { offset: *offset, len: memory.min(u64::MAX - offset) }),
        // A listing may be asked for up to the end of all numbers.
        ObjectVerb::Extents { range, .. } => {
            Some(Range { offset: range.offset, len: range.len.min(u64::MAX - range.offset) })
        }
        ObjectVerb::Truncate { size } => Some(Range::new(*size, 0)?),
        _ => None,
    })
}

/// The parts of an operation that takes one step.
pub(super) fn parts(lined: &Lined, stripes: &Stripes, op: &ObjectOp, memory: &Memory) -> Result<Vec<Part>> {
    let all = lined.backends.len();
    let part = |index: usize, verb: ObjectVerb, memory: Memory, piece: Option<Piece>| {
        let object = Place::part(op.object.collection, index);
        // The limit is one of the collection; it was looked at before.
        let max_size = if all == 1 { op.demand.max_size } else { 0 };
        let demand = Demand { max_size, ..op.demand.clone() };
        Part { index, submitted: (ObjectOp { object, verb, demand }, memory), piece }
    };
    let whole = || memory.part(0, memory.len());
    let range = range_of(&op.verb, memory.len() as u64)?;
    if all == 1 {
        let piece = range.map(|range| Piece { index: 0, offset: range.offset, local: range.offset, len: range.len });
        return Ok(vec![part(0, op.verb.clone(), whole(), piece)]);
    }
    if op.demand.unit > 1 && !stripes.chunk().is_multiple_of(op.demand.unit) {
        let (chunk, unit) = (stripes.chunk(), op.demand.unit);
        return Err(Error::refused(Clause::M1, format!("chunks of {chunk} bytes cut units of {unit} in two")));
    }
    let to_all = |verb: &dyn Fn(usize) -> ObjectVerb| {
        (0..all).map(|index| part(index, verb(index), Memory::default(), None)).collect::<Vec<_>>()
    };
    let to_shares = |range: Range, verb: &dyn Fn(Range) -> ObjectVerb| {
        let shares = (0..all).filter_map(|index| Some((index, stripes.share(index, range)?)));
        let parts: Vec<_> = shares.map(|(index, share)| part(index, verb(share), Memory::default(), None)).collect();
        match parts.is_empty() {
            // Nothing changes; what would be wrong with it, an object says.
            true => vec![part(0, verb(Range { offset: 0, len: 0 }), Memory::default(), None)],
            false => parts,
        }
    };
    Ok(match (&op.verb, range) {
        (ObjectVerb::Write { .. } | ObjectVerb::Read { .. }, Some(range)) => {
            let verb = |local| match op.verb {
                ObjectVerb::Write { .. } => ObjectVerb::Write { offset: local },
                _ => ObjectVerb::Read { offset: local },
            };
            if range.len == 0 {
                let (index, local) = stripes.locate(range.offset);
                let piece = Piece { index, offset: range.offset, local, len: 0 };
                return Ok(vec![part(index, verb(local), whole(), Some(piece))]);
            }
            let of_piece = |piece: Piece| {
                let memory = memory.part((piece.offset - range.offset) as usize, piece.len as usize);
                part(piece.index, verb(piece.local), memory, Some(piece))
            };
            stripes.pieces(range).map(of_piece).collect()
        }
        (ObjectVerb::Truncate { size }, _) => {
            to_all(&|index| ObjectVerb::Truncate { size: stripes.local_size(index, *size) })
        }
        (ObjectVerb::Punch(_), Some(range)) => to_shares(range, &ObjectVerb::Punch),
        (ObjectVerb::Allocate { keep_size, .. }, Some(range)) => {
            to_shares(range, &|range| ObjectVerb::Allocate { range, keep_size: *keep_size })
        }
        (ObjectVerb::Extents { max, .. }, Some(range)) => to_all(&|index| {
            // Of those without a share only the length is wanted.
            stripes.share(index, range).map_or(ObjectVerb::Stat, |range| ObjectVerb::Extents { range, max: *max })
        }),
        (ObjectVerb::Append, _) => {
            return Err(Error::refused(
                Clause::M4,
                "an append to a collection that is spread over several targets; offer: a layout with targets=1",
            ));
        }
        (ObjectVerb::Copy { .. } | ObjectVerb::List { .. }, _) => {
            return Err(Error::internal("it takes several steps"));
        }
        (verb, _) => to_all(&|_| verb.clone()),
    })
}

/// How far into its chunk a write begins.
pub(super) fn within(op: &ObjectOp, chunk: u64) -> u64 {
    match op.verb {
        ObjectVerb::Write { offset } => offset % chunk,
        _ => 0,
    }
}
