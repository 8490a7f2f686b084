//! Copies within the store: the bytes do not pass through this process where the store can do it.

use std::sync::Arc;

use ioverbs::{Collection, EntryKind, Error, Kind, Lent, Mutability, Op, Output, Range, Result};

use super::{
    PIECE, SMALL,
    extents::{of_collection, sum},
    pool,
};
use crate::{ctx::Ctx, facts::Facts, failure::Done, locate::Spot, progress::Progress};

/// The operations that fill a small collection from another. They ask for one byte more than the other had when it was
/// found, so that one that has grown is noticed.
pub(crate) fn small_ops(ops: &mut Vec<Lent<'_>>, spot: &Spot, facts: &Facts, out: &Collection) {
    let src = spot.ws.pending(EntryKind::Collection);
    ops.push(spot.op(&src).into());
    let len = facts.size.min(SMALL) + 1;
    ops.push(Op::Copy { src: src.clone(), src_offset: 0, dst: out.clone(), dst_offset: 0, len }.into());
    ops.push(Op::Close { c: src }.into());
}

/// Fills a collection from another, piece by piece and without its holes. Tells the length.
pub(crate) fn large(ctx: &mut Ctx, spot: &Spot, dst: &Collection, progress: &mut Progress) -> Done<u64> {
    let src = spot.open(EntryKind::Collection)?;
    let size = match ioverbs::run(src.session(), Op::Stat { c: src.clone() })?.output {
        Output::Stat(stat) => stat.bytes,
        _ => return Err(Error::internal("a stat returned no facts").into()),
    };
    if dst.effective()?.mutability == Mutability::Append {
        append(ctx, &src, size, dst, progress)?;
    } else {
        let ranges = of_collection(&src, 0, size)?;
        let end = ranges.last().map_or(0, Range::end);
        progress.more(sum(&ranges));
        let (from, to) = (src.clone(), dst.clone());
        let work = move |piece: Range, buf: &mut [u8]| one(&from, &to, piece, buf);
        pool::run(ctx, ranges, progress, Arc::new(work))?;
        if end < size {
            ioverbs::run(dst.session(), Op::Truncate { c: dst.clone(), size })?;
        }
    }
    ioverbs::close(&src)?;
    Ok(size)
}

fn one(src: &Collection, dst: &Collection, piece: Range, buf: &mut [u8]) -> Result<u64> {
    let at = piece.offset;
    let copy = Op::Copy { src: src.clone(), src_offset: at, dst: dst.clone(), dst_offset: at, len: piece.len };
    let copied = match ioverbs::run(src.session(), copy) {
        // The two lie where nobody can copy between them: through this process then.
        Err(e) if e.kind() == Kind::Unsupported => {
            let n = ioverbs::read_at(src, at, buf)?;
            ioverbs::write_at(dst, at, &buf[..n])?;
            n as u64
        }
        status => status?.bytes,
    };
    if copied == piece.len {
        return Ok(copied);
    }
    Err(Error::conflict("the source became shorter while it was copied: copy it again"))
}

/// Records go to the end one after the other.
fn append(ctx: &mut Ctx, src: &Collection, size: u64, dst: &Collection, progress: &mut Progress) -> Done {
    let before = progress.moved();
    progress.more(size);
    let mut buf = vec![0; PIECE.min(size as usize)];
    let mut at = 0;
    while at < size {
        ctx.stop.check()?;
        let want = buf.len().min((size - at) as usize);
        let n = ioverbs::read_at(src, at, &mut buf[..want])?;
        if n < want {
            return Err(Error::conflict("the source became shorter while it was copied: copy it again").into());
        }
        ioverbs::append(dst, &buf[..n])?;
        at += n as u64;
        progress.at(before + at);
    }
    Ok(())
}
