//! Bytes: reads, writes and what else there is to do with them.

use std::ffi::c_int;

use ioverbs::{Error, Memory, Op, Range, Result};

use crate::{
    abi::{self, flag},
    arg::{Array, Bytes, BytesMut, flags},
    collection::CollectionObject,
    guard::guard,
    object::{BatchHandle, CollectionHandle},
    out::Out,
    pending::Pending,
    submit::{Lent, Submission, log_end, submit},
};

/// Writes a buffer.
#[unsafe(no_mangle)]
pub extern "C" fn iov_write(b: BatchHandle, c: CollectionHandle, offset: u64, buf: Bytes, len: usize) -> c_int {
    guard(|| {
        let c = c.get()?;
        Range::new(offset, len as u64)?;
        if b.is_null() {
            return move_now(&c, offset, (buf.lend(len)?, buf.address()), true).map(drop);
        }
        let op = Op::Write { c: c.data()?, chunks: vec![(offset, buf.lend(len)?)] };
        submit(b, Submission { lent: &[(buf.address(), len)], ..Submission::new(&c.cx, op) })
    })
}

/// Reads into a buffer.
#[unsafe(no_mangle)]
pub extern "C" fn iov_read(
    b: BatchHandle,
    c: CollectionHandle,
    offset: u64,
    buf: BytesMut,
    len: usize,
    got: Out<usize>,
) -> c_int {
    guard(|| {
        let c = c.get()?;
        let got = got.optional("got")?;
        Range::new(offset, len as u64)?;
        if b.is_null() {
            let bytes = move_now(&c, offset, (buf.lend(len)?, buf.address()), false)?;
            got.write(bytes as usize);
            return Ok(());
        }
        let out = Pending::Bytes(got);
        let op = Op::Read { c: c.data()?, chunks: vec![(offset, buf.lend(len)?)] };
        submit(b, Submission { lent: &[(buf.address(), len)], ..Submission::with(&c.cx, op, out) })
    })
}

/// Moves bytes in this call, with as little about it as possible.
#[inline]
fn move_now(c: &CollectionObject, offset: u64, (memory, address): (Memory, usize), write: bool) -> Result<u64> {
    let _uses = c.cx.buffers.uses(&[(address, memory.len())]);
    let moved = ioverbs::run_bytes(c.bytes()?, offset, memory, write);
    moved.map(|status| status.bytes).inspect_err(|e| log_end(if write { "write" } else { "read" }, e))
}

/// What the chunks lend, and a check of each.
fn lent(chunks: &[abi::Chunk]) -> Result<Vec<Lent>> {
    let check = |(i, c): (usize, &abi::Chunk)| {
        Range::new(c.offset, c.len as u64).map_err(|e| e.context(format!("chunk {i}")))?;
        Ok((c.buf as usize, c.len))
    };
    chunks.iter().enumerate().map(check).collect()
}

/// Writes chunks.
#[unsafe(no_mangle)]
pub extern "C" fn iov_writev(
    b: BatchHandle,
    c: CollectionHandle,
    chunks: Array<abi::Chunk>,
    n: usize,
    done: Out<usize>,
) -> c_int {
    guard(|| {
        let c = c.get()?;
        let out = Pending::Bytes(done.optional("done")?);
        let chunks = chunks.items(n, "chunks")?;
        let lent = lent(chunks)?;
        let lend = |chunk: &abi::Chunk| {
            // SAFETY: the memory of a chunk is what the header says, as the chunk itself is.
            let buf = unsafe { Bytes::new(chunk.buf) };
            Ok((chunk.offset, buf.lend(chunk.len)?))
        };
        let op = Op::Write { c: c.data()?, chunks: chunks.iter().map(lend).collect::<Result<_>>()? };
        submit(b, Submission { lent: &lent, ..Submission::with(&c.cx, op, out) })
    })
}

/// Reads chunks.
#[unsafe(no_mangle)]
pub extern "C" fn iov_readv(
    b: BatchHandle,
    c: CollectionHandle,
    chunks: Array<abi::Chunk>,
    n: usize,
    done: Out<usize>,
) -> c_int {
    guard(|| {
        let c = c.get()?;
        let out = Pending::Bytes(done.optional("done")?);
        let chunks = chunks.items(n, "chunks")?;
        let lent = lent(chunks)?;
        let lend = |chunk: &abi::Chunk| {
            // SAFETY: the memory of a chunk is what the header says, as the chunk itself is.
            let buf = unsafe { BytesMut::new(chunk.buf) };
            Ok((chunk.offset, buf.lend(chunk.len)?))
        };
        let op = Op::Read { c: c.data()?, chunks: chunks.iter().map(lend).collect::<Result<_>>()? };
        submit(b, Submission { lent: &lent, ..Submission::with(&c.cx, op, out) })
    })
}

/// Adds a record.
#[unsafe(no_mangle)]
pub extern "C" fn iov_append(b: BatchHandle, c: CollectionHandle, buf: Bytes, len: usize, offset: Out<u64>) -> c_int {
    guard(|| {
        let c = c.get()?;
        let out = Pending::Offset(offset.optional("offset")?);
        let op = Op::Append { c: c.data()?, memory: buf.lend(len)? };
        submit(b, Submission { lent: &[(buf.address(), len)], ..Submission::with(&c.cx, op, out) })
    })
}

/// Cuts or extends.
#[unsafe(no_mangle)]
pub extern "C" fn iov_truncate(b: BatchHandle, c: CollectionHandle, size: u64) -> c_int {
    guard(|| {
        let c = c.get()?;
        Range::new(0, size)?;
        submit(b, Submission::new(&c.cx, Op::Truncate { c: c.data()?, size }))
    })
}

/// Makes a hole.
#[unsafe(no_mangle)]
pub extern "C" fn iov_punch(b: BatchHandle, c: CollectionHandle, offset: u64, len: u64) -> c_int {
    guard(|| {
        let c = c.get()?;
        let range = Range::new(offset, len)?;
        submit(b, Submission::new(&c.cx, Op::Punch { c: c.data()?, range }))
    })
}

/// Reserves space.
#[unsafe(no_mangle)]
pub extern "C" fn iov_allocate(b: BatchHandle, c: CollectionHandle, offset: u64, len: u64, how: u32) -> c_int {
    guard(|| {
        let c = c.get()?;
        let range = Range::new(offset, len)?;
        let keep_size = flags(how, flag::ALLOCATE_KEEP_SIZE, "flags")? != 0;
        submit(b, Submission::new(&c.cx, Op::Allocate { c: c.data()?, range, keep_size }))
    })
}

/// Lists data and holes.
#[unsafe(no_mangle)]
pub extern "C" fn iov_extents(
    b: BatchHandle,
    c: CollectionHandle,
    offset: u64,
    len: u64,
    out: Out<abi::Extent>,
    max: usize,
    n: Out<usize>,
) -> c_int {
    guard(|| {
        let c = c.get()?;
        let (out, n) = (out.required("out")?, n.required("n")?);
        if max == 0 {
            return Err(Error::invalid("max is 0: there is no room for an extent"));
        }
        let range = Range::new(offset, len)?;
        let op = Op::Extents { c: c.data()?, range, max };
        submit(b, Submission::with(&c.cx, op, Pending::Extents { out, max, n }))
    })
}

/// Copies within the store.
#[unsafe(no_mangle)]
pub extern "C" fn iov_copy(
    b: BatchHandle,
    src: CollectionHandle,
    src_offset: u64,
    dst: CollectionHandle,
    dst_offset: u64,
    len: u64,
    copied: Out<u64>,
) -> c_int {
    guard(|| {
        let (src, dst) = (src.get()?, dst.get()?);
        let out = Pending::Bytes64(copied.optional("copied")?);
        crate::submit::same_session(&src.cx, &dst.cx)?;
        Range::new(src_offset, len)?;
        Range::new(dst_offset, len)?;
        let op = Op::Copy { src: src.data()?, src_offset, dst: dst.data()?, dst_offset, len };
        submit(b, Submission::with(&dst.cx, op, out))
    })
}

/// Publishes.
#[unsafe(no_mangle)]
pub extern "C" fn iov_commit(b: BatchHandle, c: CollectionHandle) -> c_int {
    guard(|| {
        let c = c.get()?;
        submit(b, Submission::new(&c.cx, Op::Commit { c: c.usable()? }))
    })
}

/// Makes what was written survive.
#[unsafe(no_mangle)]
pub extern "C" fn iov_persist(b: BatchHandle, c: CollectionHandle) -> c_int {
    guard(|| {
        let c = c.get()?;
        submit(b, Submission::new(&c.cx, Op::Persist { c: c.usable()? }))
    })
}

/// Fixes bytes and size.
#[unsafe(no_mangle)]
pub extern "C" fn iov_seal(b: BatchHandle, c: CollectionHandle) -> c_int {
    guard(|| {
        let c = c.get()?;
        submit(b, Submission::new(&c.cx, Op::Seal { c: c.data()? }))
    })
}
