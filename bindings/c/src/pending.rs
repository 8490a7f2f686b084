//! Out-arguments of operations: written once, by the thread that is told of the completion, and only on success.

use ioverbs::{Error, Output, Result, Status};

use crate::{
    abi, convert,
    metadata::MetadataObject,
    object::{self, MetadataHandle},
    out::{CText, Out, OutPlace},
};

/// Where the result of an operation goes.
pub(crate) enum Pending {
    /// It has none.
    None,
    /// The number of bytes moved.
    Bytes(Out<usize>),
    /// The same, as a `uint64_t`.
    Bytes64(Out<u64>),
    /// Where an append went.
    Offset(Out<u64>),
    Stat(OutPlace<abi::Stat>),
    Value(OutPlace<abi::Value>),
    Metadata(Out<MetadataHandle>),
    Extents {
        out: Out<abi::Extent>,
        max: usize,
        n: Out<usize>,
    },
    Lock(OutPlace<abi::LockAttr>),
}

impl Pending {
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Pending::None)
    }

    /// Writes the result of an operation that is ok; `keep` stores bytes that it points to.
    pub(crate) fn write(&self, status: &Status, keep: &mut dyn FnMut(&[u8]) -> CText) -> Result<()> {
        match (self, &status.output) {
            (Pending::None, _) => {}
            (Pending::Bytes(out), _) => out.write(status.bytes as usize),
            (Pending::Bytes64(out), _) => out.write(status.bytes),
            (Pending::Offset(out), Output::Offset(offset)) => out.write(*offset),
            (Pending::Stat(out), Output::Stat(stat)) => out.write(convert::stat_out(stat)),
            (Pending::Value(out), Output::Value(value)) => out.write(convert::value_out(value, keep)),
            (Pending::Metadata(out), Output::Metadata(pairs)) => {
                out.write(object::register(MetadataObject::owned(pairs.clone()))?);
            }
            (Pending::Extents { out, max, n }, Output::Extents(extents)) => {
                let extents = extents.iter().map(|e| abi::Extent {
                    offset: e.range.offset,
                    len: e.range.len,
                    kind: e.kind as u32,
                    target: e.target,
                });
                n.write(out.write_items(extents, *max));
            }
            (Pending::Lock(out), Output::Lock(lock)) => out.write(convert::lock_out(lock)),
            // An append of which only the batch knows the place, behind others of a rollback batch that cut.
            (Pending::Offset(_), Output::None) => {}
            (_, other) => return Err(Error::internal(format!("the operation ended with {other:?}"))),
        }
        Ok(())
    }
}
