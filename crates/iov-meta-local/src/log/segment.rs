//! A file of the log, and the place where it is written.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use iov_store::Room;
use iov_types::{Error, Outcome, Result};

use super::{boot_id, frame, full, is_full, room::Behind};
use crate::{
    files::{self, Home, LOG, checksum, u64_at},
    hooks::{Hooks, Point},
};

/// Bytes of a segment's head.
pub(crate) const SEGMENT_HEAD: usize = 40;
/// Bytes of a segment that no commit has been written to.
pub(crate) const EMPTY_SEGMENT: u64 = (SEGMENT_HEAD + frame::MARK) as u64;
const MAGIC: [u8; 8] = *b"IOVMLOG1";

/// The path of a segment below the store's directory.
pub(crate) fn name(generation: u64) -> String {
    format!("{LOG}/{generation:016x}")
}

/// The generations whose segments are there, in order.
pub(crate) fn list(home: &Home) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let dir = match std::fs::read_dir(home.path(LOG)) {
        Ok(dir) => dir,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(home.failed(LOG, e)),
    };
    for entry in dir {
        let name = entry.map_err(|e| home.failed(LOG, e))?.file_name();
        // A file of another name is not ours, and none of our business.
        if let Some(name) = name.to_str().filter(|n| n.len() == 16)
            && let Ok(generation) = u64::from_str_radix(name, 16)
        {
            found.push(generation);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes what is left of segments whose replacing was interrupted: each takes as much as a segment, and nobody reads it.
pub(crate) fn forget_unfinished(home: &Home) -> Result<()> {
    for entry in std::fs::read_dir(home.path(LOG)).map_err(|e| home.failed(LOG, e))? {
        let file = entry.map_err(|e| home.failed(LOG, e))?.file_name();
        let of = file.to_str().and_then(|file| file.strip_suffix(".new"));
        if of.is_some_and(|of| of.len() == 16 && u64::from_str_radix(of, 16).is_ok()) {
            home.remove(Path::new(LOG).join(file))?;
        }
    }
    Ok(())
}

/// The head of a segment.
pub(crate) fn encode_head(generation: u64, salt: u64) -> [u8; SEGMENT_HEAD] {
    let mut head = [0; SEGMENT_HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&files::FORMAT.to_le_bytes());
    head[16..24].copy_from_slice(&generation.to_le_bytes());
    head[24..32].copy_from_slice(&salt.to_le_bytes());
    let sum = checksum(&head[..32]);
    head[32..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// The salt in the head of a segment; `None` if it is not the head of that generation's.
pub(crate) fn decode_head(bytes: &[u8], generation: u64) -> Option<u64> {
    let head = bytes.get(..SEGMENT_HEAD)?;
    let salt = u64_at(head, 24);
    (*head == encode_head(generation, salt)).then_some(salt)
}

/// One file of the log.
pub(crate) struct Segment {
    pub(crate) generation: u64,
    pub(crate) salt: u64,
    file: File,
    /// The last commit written to it, and the last one of those synced.
    written: AtomicU64,
    synced: AtomicU64,
    /// Its bytes, and the number of its last frame.
    bytes: AtomicU64,
    last: AtomicU64,
    /// Whether its entry in the directory survives power loss.
    entry: AtomicBool,
    hooks: Hooks,
}

impl Segment {
    /// One that is there already.
    pub(crate) fn open(home: &Home, generation: u64, salt: u64, tail: Tail, hooks: &Hooks) -> Result<Segment> {
        let name = name(generation);
        let file = File::options().read(true).write(true).open(home.path(&name)).map_err(|e| home.failed(&name, e))?;
        let segment = Segment::new(file, generation, salt, hooks);
        segment.ends(tail);
        Ok(segment)
    }

    fn new(file: File, generation: u64, salt: u64, hooks: &Hooks) -> Segment {
        Segment {
            generation,
            salt,
            file,
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            last: AtomicU64::new(0),
            entry: AtomicBool::new(false),
            hooks: hooks.clone(),
        }
    }

    /// Says that a commit is in it.
    pub(crate) fn wrote(&self, sequence: u64) {
        self.written.store(sequence, Ordering::Release);
    }

    fn ends(&self, tail: Tail) {
        self.bytes.store(tail.offset, Ordering::Relaxed);
        self.last.store(tail.sequence, Ordering::Release);
    }

    /// Bytes of it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The number of its last frame.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Whether there are commits in it that a loss of power could take.
    pub(crate) fn is_dirty(&self) -> bool {
        self.written.load(Ordering::Acquire) > self.synced.load(Ordering::Acquire)
    }

    /// Makes what is in it survive power loss.
    pub(crate) fn sync(&self, home: &Home) -> Result<()> {
        let written = self.written.load(Ordering::Acquire);
        let name = name(self.generation);
        self.hooks.check(Point::Sync).and_then(|()| self.file.sync_data()).map_err(|e| home.failed(&name, e))?;
        if !self.entry.load(Ordering::Acquire) {
            home.sync_dir(LOG)?;
            self.entry.store(true, Ordering::Release);
        }
        self.synced.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }

    /// Cuts it off.
    pub(crate) fn cut(&self, len: u64) -> io::Result<()> {
        self.hooks.check(Point::Cut)?;
        self.file.set_len(len)
    }

    /// Gives back the room behind its end: nothing more is written to it.
    pub(crate) fn trim(&self) {
        // A length that stays as it is frees what was allocated behind it. Without that, the room goes with the segment.
        let _ = self.file.set_len(self.bytes());
    }

    /// Takes room on the medium, without changing the length. What had been taken before stays if there is not enough.
    pub(super) fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        self.hooks.check(Point::Allocate)?;
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, flags, from, to.saturating_sub(from)))?)
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        if let Err(e) = self.hooks.check(Point::Write) {
            self.file.write_all_at(&bytes[..bytes.len() / 2], at)?;
            return Err(e);
        }
        self.file.write_all_at(bytes, at)
    }
}

/// Where the log ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tail {
    /// Bytes of the newest segment.
    pub(crate) offset: u64,
    /// The last frame.
    pub(crate) sequence: u64,
    /// The last revision given out.
    pub(crate) revision: u64,
}

/// Why nothing was written.
pub(crate) enum Failure {
    /// There was no room. The log is as before, and can be written again.
    Full(Error),
    /// It cannot be trusted any more (P8).
    Broken(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Full(e) | Failure::Broken(e) => e,
        }
    }
}

/// The end of the log. One thread at a time writes here.
pub(crate) struct Appender {
    pub(crate) segment: std::sync::Arc<Segment>,
    pub(crate) tail: Tail,
    /// Whether a mark names the boot of the machine under which frames are written now.
    pub(crate) marked: bool,
    pub(super) behind: Behind,
}

impl Appender {
    /// The end of a segment that is there already, behind which no room is known of.
    pub(crate) fn open(home: &Home, segment: std::sync::Arc<Segment>, tail: Tail) -> Appender {
        Appender { segment, tail, marked: false, behind: Behind::new(home, tail.offset) }
    }

    /// Makes a segment with its head and a mark, to write to from then on, and keeps room behind them.
    pub(crate) fn create(home: &Home, generation: u64, tail: Tail, synced: u64, hooks: &Hooks) -> Result<Appender> {
        let mut salt = [0; 8];
        iov_store::seam::random_bytes(&mut salt);
        let salt = u64::from_le_bytes(salt);
        let name = name(generation);
        let file = files::create(&home.path(&name), true).map_err(|e| home.unwritten(&name, e))?;
        let segment = std::sync::Arc::new(Segment::new(file, generation, salt, hooks));
        let (behind, start) = (Behind::new(home, 0), Tail { offset: 0, ..tail });
        let mut log = Appender { segment, tail: start, marked: true, behind };
        if let Err(failure) = log.make_room(home, EMPTY_SEGMENT, Room::Free) {
            // Without it the log simply ends with the segment before.
            home.remove(&name)?;
            return Err(failure.into());
        }
        let mut bytes = encode_head(generation, salt).to_vec();
        let sequence = tail.sequence + 1;
        bytes.extend_from_slice(&frame::mark(boot_id(hooks), sequence, tail.revision, synced, salt));
        if let Err(e) = log.segment.write(&bytes, 0) {
            home.remove(&name)?;
            return Err(home.unwritten(&name, e));
        }
        log.tail = Tail { offset: bytes.len() as u64, sequence, revision: tail.revision };
        log.segment.ends(log.tail);
        Ok(log)
    }

    /// Writes a frame, which is then part of the log; or nothing of it remains.
    pub(crate) fn append(&mut self, home: &Home, frame: &[u8], tail: Tail) -> std::result::Result<(), Failure> {
        let Err(e) = self.segment.write(frame, self.tail.offset) else {
            self.tail = Tail { offset: self.tail.offset + frame.len() as u64, ..tail };
            self.segment.ends(self.tail);
            return Ok(());
        };
        let name = name(self.segment.generation);
        let broken = |e: io::Error, what: &str| {
            let error = home.failed(&name, e).context(what).with_outcome(Outcome::Unknown);
            Failure::Broken(error)
        };
        // The room behind it goes with what is cut off, and is taken again before the next frame.
        self.behind.lost(self.tail.offset);
        if let Err(cut) = self.segment.cut(self.tail.offset) {
            return Err(broken(cut, "a part of a frame that could not be written cannot be cut off"));
        }
        if is_full(&e) {
            return Err(Failure::Full(full(&home.shown(&name), e)));
        }
        Err(broken(e, "writing the metadata log"))
    }

    /// Writes a mark: who comes later learns what has been synced, and under which boot the rest is written.
    pub(crate) fn mark(&mut self, home: &Home, synced: u64, hooks: &Hooks) -> std::result::Result<(), Failure> {
        let tail = Tail { sequence: self.tail.sequence + 1, ..self.tail };
        let bytes = frame::mark(boot_id(hooks), tail.sequence, tail.revision, synced, self.segment.salt);
        self.append(home, &bytes, tail)?;
        self.marked = true;
        Ok(())
    }
}
