//! From a collection to a local file or to standard output.

use std::{
    ffi::OsStr,
    fs::{File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileExt, MetadataExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
};

use ioverbs::{Collection, EntryKind, Error, Op, Output, Range, Result, Stat, seam};
use rustix::fs::{AtFlags, CWD, OFlags};

use super::{
    JOBS, PIECE, SPARSE,
    extents::{Pieces, of_collection, sum},
    pool,
};
use crate::{
    ctx::Ctx,
    failure::{Done, local},
    locate::Spot,
    modes,
    progress::Progress,
    quantity::Span,
};

/// An open collection and the part of it that is wanted.
struct Source {
    c: Collection,
    stat: Stat,
    from: u64,
    to: u64,
    data: Vec<Range>,
}

fn open(spot: &Spot, span: Span) -> Done<Source> {
    let c = spot.open(EntryKind::Collection)?;
    let stat = stat(&c)?;
    let (from, to) = span.within(stat.bytes)?;
    let data = match stat.bytes <= SPARSE {
        true => vec![Range { offset: from, len: to - from }],
        false => of_collection(&c, from, to)?,
    };
    Ok(Source { c, stat, from, to, data })
}

fn stat(c: &Collection) -> Result<Stat> {
    match ioverbs::run(c.session(), Op::Stat { c: c.clone() })?.output {
        Output::Stat(stat) => Ok(*stat),
        _ => Err(Error::internal("a stat returned no facts")),
    }
}

/// Reads a piece whole.
fn read(c: &Collection, offset: u64, buf: &mut [u8]) -> Result<()> {
    match ioverbs::read_at(c, offset, buf)? {
        n if n == buf.len() => Ok(()),
        n => Err(Error::conflict(format!(
            "it became shorter while it was read: {n} of {} bytes at {offset}; read it again",
            buf.len()
        ))),
    }
}

impl Source {
    /// Ends the open; warns of a copy that may be of two versions.
    fn end(self, ctx: &mut Ctx) -> Done<u64> {
        let now = stat(&self.c)?;
        if (now.bytes, now.mtime_ns, now.version) != (self.stat.bytes, self.stat.mtime_ns, self.stat.version) {
            ctx.warn(
                "it was changed while it was read; the copy may be of both versions: read it again, or seal it first",
            );
        }
        ioverbs::close(&self.c)?;
        Ok(self.to - self.from)
    }
}

/// A name beside the target that nothing else has: `TARGET.*.part`, or less of it where that were too long for a file's name.
fn part_of(target: &Path) -> PathBuf {
    const LONGEST: usize = 255;
    let name = target.file_name().unwrap_or_default().as_bytes();
    let end = format!(".{}.part", &seam::new_uuid().to_string()[29..]);
    let part = [&name[..name.len().min(LONGEST - end.len())], end.as_bytes()].concat();
    target.with_file_name(OsStr::from_bytes(&part))
}

/// How something is written to a path.
#[derive(PartialEq, Eq)]
pub(crate) enum Way {
    /// To standard output.
    Out,
    /// As it is: a pipe or a device has no half.
    Stream,
    /// Beside it, to take its place.
    File,
}

impl Way {
    /// To a path of the command line.
    pub(crate) fn to(path: &Path) -> Way {
        let out = || Path::new("/proc/self/fd").canonicalize().map(|own| own.join("1"));
        match in_proc(path) {
            _ if path.as_os_str() == "-" => Way::Out,
            Some(at) if out().is_ok_and(|out| out == at) => Way::Out,
            // It is written into: a process's own directory, or one that it has open.
            _ if path.is_dir() => Way::File,
            // What a process has open is no name that another file could take.
            Some(_) => Way::Stream,
            None if path.metadata().is_ok_and(|m| !m.is_file()) => Way::Stream,
            None => Way::File,
        }
    }
}

/// What a path leads to link by link, if that is of the system's directory of processes: `/dev/stdout` is a link into it.
fn in_proc(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    // The kernel follows no more either.
    for _ in 0..40 {
        let dir =
            path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).canonicalize().ok()?;
        let at = dir.join(path.file_name()?);
        if dir.starts_with("/proc") {
            return Some(at);
        }
        path = dir.join(at.read_link().ok()?);
    }
    None
}

/// Opens what is written to as it is.
pub(crate) fn open_stream(path: &Path) -> Result<File> {
    // A file that the shell has opened may have bytes already.
    let append = path.metadata().is_ok_and(|m| m.is_file());
    OpenOptions::new().write(true).append(append).open(path).map_err(|e| local("the file", path, e))
}

/// A file that takes its name when it is complete.
pub(crate) struct Part {
    /// Its name until then, where it has one.
    path: Option<PathBuf>,
    target: PathBuf,
    file: Arc<File>,
}

impl Part {
    /// Makes it with a mode.
    pub(crate) fn new(target: &Path, mode: u32) -> Result<Part> {
        match nameless(target, mode) {
            Some(file) => Ok(Part { path: None, target: target.to_owned(), file: Arc::new(file) }),
            None => Part::named(target, mode),
        }
    }

    /// Under a name of its own: whatever else is called like a part is somebody's file, or was fetched just now.
    pub(crate) fn named(target: &Path, mode: u32) -> Result<Part> {
        let path = part_of(target);
        let file = OpenOptions::new().create_new(true).read(true).write(true).mode(mode).open(&path);
        // Nobody has said that name: what may be wrong is where it is to lie.
        let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = Arc::new(file.map_err(|e| local("a new file in", dir, e))?);
        Ok(Part { path: Some(path), target: target.to_owned(), file })
    }

    /// The open file.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Gives it its name, in one step.
    pub(crate) fn finish(mut self) -> Result<()> {
        let failed = |e| local("the file", &self.target, e);
        if self.path.is_none() {
            let link = |to: &Path| rustix::fs::linkat(CWD, by_number(&self.file), CWD, to, AtFlags::SYMLINK_FOLLOW);
            if link(&self.target).is_ok() {
                return Ok(());
            }
            // It takes the place of what is there: only what has a name can.
            let path = part_of(&self.target);
            link(&path).map_err(|e| failed(e.into()))?;
            self.path = Some(path);
        }
        if let Some(path) = &self.path {
            std::fs::rename(path, &self.target).map_err(failed)?;
        }
        self.path = None;
        Ok(())
    }
}

/// A file without a name beside a target: it goes with its process, however that ends. Not every file system has such.
fn nameless(target: &Path, mode: u32) -> Option<File> {
    let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE.bits() as i32;
    let file = OpenOptions::new().read(true).write(true).mode(mode).custom_flags(flags).open(dir).ok()?;
    let (made, found) = (file.metadata().ok()?, std::fs::metadata(by_number(&file)).ok()?);
    // Without /proc it could get no name; and there are kernels that forget the umask.
    let is_good = (made.dev(), made.ino()) == (found.dev(), found.ino()) && made.mode() & modes::umask() == 0;
    is_good.then_some(file)
}

/// An open file as what a link can be made to.
fn by_number(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A leftover that cannot be removed either is found by its name.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Makes a symbolic link, in the place of what has that name.
pub(crate) fn to_link(bytes: &[u8], target: &Path) -> Result<()> {
    let failed = |e| local("the link", target, e);
    let path = part_of(target);
    std::os::unix::fs::symlink(OsStr::from_bytes(bytes), &path).map_err(failed)?;
    std::fs::rename(&path, target).map_err(|e| {
        // It is found by its name.
        let _ = std::fs::remove_file(&path);
        failed(e)
    })
}

/// Writes a part of a collection to a file, holes as holes. Tells its length.
pub(crate) fn to_file(
    ctx: &mut Ctx,
    (spot, span): (&Spot, Span),
    (target, mode): (&Path, u32),
    progress: &mut Progress,
) -> Done<u64> {
    let source = open(spot, span)?;
    let part = Part::new(target, mode)?;
    let len = source.to - source.from;
    part.file.set_len(len).map_err(|e| local("the file", target, e))?;
    progress.more(sum(&source.data));
    let (c, file, from, name) = (source.c.clone(), part.file.clone(), source.from, target.to_owned());
    let work = move |piece: Range, buf: &mut [u8]| -> Result<u64> {
        read(&c, piece.offset, buf)?;
        file.write_all_at(buf, piece.offset - from).map_err(|e| local("writing", &name, e))?;
        Ok(piece.len)
    };
    pool::run(ctx, source.data.clone(), progress, Arc::new(work))?;
    let bytes = source.end(ctx)?;
    part.finish()?;
    Ok(bytes)
}

struct Reader {
    filled: Receiver<Result<Vec<u8>>>,
    back: Sender<Vec<u8>>,
}

/// Writes a part of a collection to standard output, reading ahead. Tells its length.
pub(crate) fn to_out(ctx: &mut Ctx, spot: &Spot, span: Span) -> Done<u64> {
    let source = open(spot, span)?;
    let pieces: Vec<Range> = Pieces::new(source.data.clone(), PIECE).collect();
    let readers = if pieces.len() > 1 { readers(&source.c, &pieces)? } else { Vec::new() };
    let mut at = source.from;
    for (i, piece) in pieces.iter().enumerate() {
        ctx.stop.check()?;
        zeros(ctx, piece.offset - at)?;
        let buf = match readers.get(i % readers.len().max(1)) {
            Some(reader) => {
                reader.filled.recv().unwrap_or_else(|_| Err(Error::internal("a read ended without a result")))?
            }
            None => {
                let mut buf = vec![0; piece.len as usize];
                read(&source.c, piece.offset, &mut buf)?;
                buf
            }
        };
        ctx.out.bytes(&buf)?;
        if let Some(reader) = readers.get(i % readers.len().max(1)) {
            // The reader is gone once it has read its last piece.
            let _ = reader.back.send(buf);
        }
        at = piece.end();
    }
    zeros(ctx, source.to - at)?;
    drop(readers);
    source.end(ctx)
}

/// Threads of which the first reads pieces 0, n, 2n …, the second 1, n + 1 …; each is one piece ahead.
fn readers(c: &Collection, pieces: &[Range]) -> Result<Vec<Reader>> {
    let n = JOBS.min(pieces.len());
    let start = |i: usize| {
        let (full, filled) = sync_channel(1);
        let (back, empty) = channel::<Vec<u8>>();
        let mine: Vec<Range> = pieces.iter().copied().skip(i).step_by(n).collect();
        let c = c.clone();
        let body = move || read_on(&c, &mine, &full, &empty);
        seam::spawn("iov-reader", body).map_err(|e| Error::from(e).context("a thread to read with"))?;
        Ok(Reader { filled, back })
    };
    (0..n).map(start).collect()
}

fn read_on(c: &Collection, pieces: &[Range], full: &SyncSender<Result<Vec<u8>>>, empty: &Receiver<Vec<u8>>) {
    for piece in pieces {
        let mut buf = empty.try_recv().unwrap_or_default();
        buf.resize(piece.len as usize, 0);
        let result = read(c, piece.offset, &mut buf);
        let failed = result.is_err();
        if full.send(result.map(|()| buf)).is_err() || failed {
            return;
        }
    }
}

fn zeros(ctx: &mut Ctx, mut n: u64) -> Done {
    let zeros = [0; 16 << 10];
    while n > 0 {
        ctx.stop.check()?;
        let some = n.min(zeros.len() as u64);
        ctx.out.bytes(&zeros[..some as usize])?;
        n -= some;
    }
    Ok(())
}
