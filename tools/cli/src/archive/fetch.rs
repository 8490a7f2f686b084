//! From collections to files that are complete and not in place yet: small ones together, large ones in pieces, each with the
//! checksum of its content.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use ioverbs::{
    Collection, EntryKind, Error, ExtentKind, Lent, Op, Output, Range, Result, Stat, Status, Uuid, Which, Workspace,
};

use super::{book::time_of, sums::Sum};
use crate::{
    ctx::Ctx,
    failure::{Done, local},
    modes,
    progress::Progress,
    transfer::{
        SPARSE,
        extents::{of_collection, sum},
        pool,
    },
};

/// Blocks of zeros are taken for holes where nobody asks for those.
const BLOCK: usize = 4096;

/// A file that is complete.
pub(crate) struct Fetched {
    pub(crate) path: PathBuf,
    pub(crate) sum: Sum,
    pub(crate) stat: Stat,
    /// The time that it has: the collection's, as far as its file system can tell it.
    pub(crate) file_mtime_ns: i64,
}

fn open_op(ws: &Workspace, uuid: Uuid, out: &Collection) -> Op {
    debug_assert_eq!(ws.uuid(), out.workspace().uuid());
    Op::Open { out: out.clone(), parent: None, which: Which::Uuid(uuid), controls: Default::default() }
}

fn stat_of(status: &Status) -> Result<Stat> {
    status.result()?;
    match &status.output {
        Output::Stat(stat) => Ok((**stat).clone()),
        _ => Err(Error::internal("a stat returned no facts")),
    }
}

/// The facts of some things as they are now.
pub(crate) fn stats(ctx: &mut Ctx, ws: &Workspace, kind: EntryKind, uuids: &[Uuid]) -> Done<Vec<Result<Stat>>> {
    let mut ops: Vec<Lent<'_>> = Vec::with_capacity(uuids.len() * 3);
    for uuid in uuids {
        let c = ws.pending(kind);
        ops.push(open_op(ws, *uuid, &c).into());
        ops.push(Op::Stat { c: c.clone() }.into());
        ops.push(Op::Close { c }.into());
    }
    let statuses = ctx.batch(ops)?;
    Ok(statuses.chunks(3).map(|three| three[0].result().and_then(|()| stat_of(&three[1]))).collect())
}

/// Makes a file that is for no more people than the collection.
fn create(path: &Path, stat: &Stat) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(modes::for_export(stat.mode)).open(path)
}

/// Makes a file of bytes that are at hand.
fn file_of(path: &Path, bytes: &[u8], data: &[Range], stat: Stat) -> Result<Fetched> {
    let failed = |e| local("writing", path, e);
    let file = create(path, &stat).map_err(failed)?;
    file.set_len(bytes.len() as u64).map_err(failed)?;
    for range in data {
        let piece = &bytes[range.offset as usize..range.end() as usize];
        file.write_all_at(piece, range.offset).map_err(failed)?;
    }
    done(&file, path, Sum::of(bytes), stat)
}

fn done(file: &File, path: &Path, sum: Sum, stat: Stat) -> Result<Fetched> {
    let failed = |e| local("the time of", path, e);
    let span = Duration::from_nanos(stat.mtime_ns.unsigned_abs());
    let time = if stat.mtime_ns < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) };
    if let Some(time) = time {
        // One that this file system cannot note stays another one; which, is noted.
        let _ = file.set_modified(time);
    }
    let file_mtime_ns = time_of(&file.metadata().map_err(failed)?);
    Ok(Fetched { path: path.to_owned(), sum, stat, file_mtime_ns })
}

/// The parts of small bytes that are no zeros.
fn blocks(bytes: &[u8]) -> Vec<Range> {
    let mut out: Vec<Range> = Vec::new();
    for (n, block) in bytes.chunks(BLOCK).enumerate() {
        let range = Range { offset: (n * BLOCK) as u64, len: block.len() as u64 };
        match out.last_mut() {
            _ if block.iter().all(|b| *b == 0) => {}
            Some(last) if last.end() == range.offset => last.len += range.len,
            _ => out.push(range),
        }
    }
    out
}

/// Fetches collections of these sizes in one batch, into files of these names. `None`: it has grown, and is a large one now.
pub(crate) fn small(
    ctx: &mut Ctx,
    ws: &Workspace,
    wanted: &[(Uuid, u64, PathBuf)],
    progress: &mut Progress,
) -> Done<Vec<Result<Option<Fetched>>>> {
    // One byte more than was found, so that one that has grown is noticed.
    let mut rooms: Vec<Vec<u8>> = wanted.iter().map(|(_, size, _)| vec![0; *size as usize + 1]).collect();
    let mut ops: Vec<Lent<'_>> = Vec::with_capacity(wanted.len() * 5);
    let mut places = Vec::with_capacity(wanted.len());
    for ((uuid, size, _), buf) in wanted.iter().zip(&mut rooms) {
        let c = ws.pending(EntryKind::Collection);
        let first = ops.len();
        ops.push(open_op(ws, *uuid, &c).into());
        ops.push(Op::Stat { c: c.clone() }.into());
        if *size > SPARSE {
            let range = Range { offset: 0, len: *size + 1 };
            ops.push(Op::Extents { c: c.clone(), range, max: 4096 }.into());
        }
        ops.push(Lent::Read { c: c.clone(), offset: 0, buf });
        ops.push(Op::Close { c }.into());
        places.push(first..ops.len());
    }
    let statuses = ctx.batch(ops)?;
    let mut out = Vec::with_capacity(wanted.len());
    for (((_, _, path), room), place) in wanted.iter().zip(rooms).zip(places) {
        let statuses = &statuses[place];
        // The read stands before the close.
        let n = statuses[statuses.len() - 2].bytes as usize;
        progress.more(n as u64);
        progress.at(progress.moved() + n as u64);
        out.push(one_small(path, &room, n, statuses));
    }
    Ok(out)
}

fn one_small(path: &Path, room: &[u8], n: usize, statuses: &[Status]) -> Result<Option<Fetched>> {
    let reads = statuses.iter().filter(|s| !matches!(s.output, Output::Extents(_)));
    // A store that cannot tell holes from data is no obstacle.
    let unsupported = |s: &Status| s.error.as_ref().is_some_and(|e| e.kind() == ioverbs::Kind::Unsupported);
    for status in reads.filter(|s| !unsupported(s)) {
        status.result()?;
    }
    let stat = stat_of(&statuses[1])?;
    if n == room.len() {
        return Ok(None);
    }
    if (n as u64) < stat.bytes {
        return Err(Error::conflict("it became shorter while it was read: export it again"));
    }
    let bytes = &room[..n];
    let whole = Range { offset: 0, len: n as u64 };
    let told = statuses.iter().find_map(|s| match &s.output {
        Output::Extents(extents) => Some(extents),
        _ => None,
    });
    let data = match told {
        Some(extents) => {
            let data = extents.iter().filter(|e| e.kind == ExtentKind::Data);
            data.filter_map(|e| e.range.intersect(&whole)).collect()
        }
        None => blocks(bytes),
    };
    file_of(path, bytes, &data, Stat { bytes: n as u64, ..stat }).map(Some)
}

/// Fetches one collection piece by piece, without its holes.
pub(crate) fn large(ctx: &mut Ctx, ws: &Workspace, uuid: Uuid, path: &Path, progress: &mut Progress) -> Done<Fetched> {
    let c = ctx.open(ws, EntryKind::Collection, uuid)?;
    let stat = ioverbs::stat(&c)?;
    let failed = |e| local("writing", path, e);
    let file = Arc::new(create(path, &stat).map_err(failed)?);
    file.set_len(stat.bytes).map_err(failed)?;
    let data = of_collection(&c, 0, stat.bytes)?;
    progress.more(sum(&data));
    let sums: Arc<Mutex<Vec<(Range, Sum)>>> = Arc::default();
    let (from, to, found, name) = (c.clone(), file.clone(), sums.clone(), path.to_owned());
    let work = move |piece: Range, buf: &mut [u8]| -> Result<u64> {
        if ioverbs::read_at(&from, piece.offset, buf)? != buf.len() {
            return Err(Error::conflict("it became shorter while it was read: export it again"));
        }
        to.write_all_at(buf, piece.offset).map_err(|e| local("writing", &name, e))?;
        found.lock().unwrap_or_else(PoisonError::into_inner).push((piece, Sum::of(buf)));
        Ok(piece.len)
    };
    pool::run(ctx, data, progress, Arc::new(work))?;
    let now = ioverbs::stat(&c)?;
    if (now.bytes, now.mtime_ns, now.version) != (stat.bytes, stat.mtime_ns, stat.version) {
        let why = "it was changed while it was read; the file may be of both versions: export again, or seal it first";
        ctx.warn(format_args!("{uuid}: {why}"));
    }
    ioverbs::close(&c)?;
    let pieces = std::mem::take(&mut *sums.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(done(&file, path, Sum::of_pieces(pieces, stat.bytes), stat)?)
}
