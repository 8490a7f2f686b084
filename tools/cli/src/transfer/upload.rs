//! From a local file or a stream into an open collection.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    },
};

use ioverbs::{Collection, Error, Mutability, Op, Range, Result, seam};

use super::{
    PIECE,
    extents::{of_file, read_whole, sum},
    pool::{self, LOOK},
};
use crate::{
    ctx::Ctx,
    failure::{Done, local},
    progress::Progress,
};

/// Stores the first `size` bytes of a file, in parallel and without its holes.
pub(crate) fn file(ctx: &mut Ctx, c: &Collection, path: &Path, file: File, size: u64, progress: &mut Progress) -> Done {
    if c.effective()?.mutability == Mutability::Append {
        // Records go to the end one after the other.
        return stream(ctx, c, path, Box::new(file.take(size)), progress).map(drop);
    }
    let ranges = of_file(&file, size)?;
    let end = ranges.last().map_or(0, Range::end);
    progress.more(sum(&ranges));
    let (handle, path) = (c.clone(), path.to_owned());
    let file = Arc::new(file);
    let work = move |piece: Range, buf: &mut [u8]| -> Result<u64> {
        if !read_whole(&file, piece.offset, buf).map_err(|e| local("reading", &path, e))? {
            return Err(Error::conflict(format!("{} became shorter while it was read: try again", path.display())));
        }
        ioverbs::write_at(&handle, piece.offset, buf).map(|()| piece.len)
    };
    pool::run(ctx, ranges, progress, Arc::new(work))?;
    if end < size {
        ioverbs::run(c.session(), Op::Truncate { c: c.clone(), size })?;
    }
    Ok(())
}

type Filled = Result<Vec<u8>>;

/// Stores a stream to its end, reading the next piece while one is written. Tells its length.
pub(crate) fn stream(
    ctx: &mut Ctx,
    c: &Collection,
    path: &Path,
    reader: Box<dyn Read + Send>,
    progress: &mut Progress,
) -> Done<u64> {
    let appends = c.effective()?.mutability == Mutability::Append;
    let pieces = Pieces::of(path, reader)?;
    let before = progress.moved();
    let mut offset = 0;
    while let Some(buf) = pieces.next(ctx)? {
        if appends {
            ioverbs::append(c, &buf)?;
        } else {
            ioverbs::write_at(c, offset, &buf)?;
        }
        offset += buf.len() as u64;
        progress.at(before + offset);
        pieces.back(buf);
    }
    Ok(offset)
}

/// What a stream has, read ahead by a thread.
pub(crate) struct Pieces {
    filled: Receiver<Filled>,
    back: Sender<Vec<u8>>,
}

impl Pieces {
    /// Begins to read; `path` is for messages.
    pub(crate) fn of(path: &Path, reader: Box<dyn Read + Send>) -> Result<Pieces> {
        let (full, filled) = sync_channel::<Filled>(1);
        let (back, empty) = channel::<Vec<u8>>();
        let name = path.to_owned();
        let body = move || read_on(reader, &name, &full, &empty);
        seam::spawn("iov-reader", body).map_err(|e| Error::from(e).context("a thread to read with"))?;
        Ok(Pieces { filled, back })
    }

    /// The next piece; `None` at the end. An interrupt is noticed although the stream may be silent.
    pub(crate) fn next(&self, ctx: &Ctx) -> Done<Option<Vec<u8>>> {
        loop {
            ctx.stop.check()?;
            match self.filled.recv_timeout(LOOK) {
                Ok(buf) => return Ok(Some(buf?)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Gives its memory back, to be filled again.
    pub(crate) fn back(&self, piece: Vec<u8>) {
        // The reader is gone once it has read the end.
        let _ = self.back.send(piece);
    }
}

fn read_on(mut reader: Box<dyn Read + Send>, path: &Path, full: &SyncSender<Filled>, empty: &Receiver<Vec<u8>>) {
    loop {
        let mut buf = empty.try_recv().unwrap_or_default();
        buf.resize(PIECE, 0);
        let filled = fill(&mut *reader, &mut buf);
        let failed = filled.is_err();
        let end = matches!(filled, Ok(n) if n < PIECE);
        let message = match filled {
            Ok(0) => return,
            Ok(n) => {
                buf.truncate(n);
                Ok(buf)
            }
            Err(e) => Err(local("reading", path, e)),
        };
        if full.send(message).is_err() || end || failed {
            return;
        }
    }
}

/// Reads until the buffer is full or the stream ends.
fn fill(reader: &mut dyn Read, buf: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match reader.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}
