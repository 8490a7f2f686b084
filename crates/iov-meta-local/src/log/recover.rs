//! Reading the log when a store is opened: what is whole, what was torn, what is damaged.
//!
//! A frame that is not whole has one of three causes. A killed process leaves the last file ending within a frame: that
//! frame was never acknowledged and is cut off. A loss of power may leave any hole behind what had been synced, and
//! nothing behind the hole was promised to survive it: all of that is cut off. It is the cause only if the machine has
//! been started anew since. Everything else is damage of what was acknowledged, and the store is not opened.

use bytes::Bytes;
use iov_types::{Error, Result};

use super::{
    boot_id,
    frame::{Kind, Write},
    read::{Next, Reader},
    segment::{Tail, list, name},
};
use crate::{files::Applied, files::Home, hooks::Hooks};

/// What one segment holds.
pub(crate) struct Loaded {
    pub(crate) generation: u64,
    pub(crate) salt: u64,
    /// Its commits: revisions of the first and the last transaction, bytes, writes.
    pub(crate) frames: Vec<([u64; 2], Bytes, Vec<Write>)>,
    /// Where it ends.
    pub(crate) tail: Tail,
    /// Its last commit; 0 if it has none.
    pub(crate) committed: u64,
    /// Whether something behind that end has to be cut off.
    pub(crate) cut: bool,
}

/// What the log holds that is not in tables yet.
pub(crate) struct Recovered {
    /// Oldest first, at least one: the last is written on.
    pub(crate) segments: Vec<Loaded>,
    /// Segments to delete: in tables already, or behind a cut.
    pub(crate) stale: Vec<u64>,
    /// The last commit that is known to have been synced.
    pub(crate) synced: u64,
}

/// Where reading stopped.
struct Stop {
    segment: usize,
    at: usize,
    torn: bool,
}

struct Scan {
    readers: Vec<std::result::Result<Reader, (u64, usize)>>,
    loaded: Vec<Loaded>,
    sequence: u64,
    revision: u64,
    synced: u64,
    boot: Option<[u8; 16]>,
}

/// Reads the log behind what is in tables.
pub(crate) fn recover(home: &Home, applied: Applied, hooks: &Hooks) -> Result<Recovered> {
    let (stale, present): (Vec<_>, Vec<_>) = list(home)?.into_iter().partition(|g| *g <= applied.generation);
    for (n, generation) in present.iter().enumerate() {
        let expected = applied.generation + 1 + n as u64;
        if *generation != expected {
            return Err(missing(home, expected));
        }
    }
    if present.is_empty() {
        return Err(missing(home, applied.generation + 1));
    }
    let mut readers = Vec::new();
    for generation in present {
        let bytes = home.read(&name(generation))?.ok_or_else(|| missing(home, generation))?;
        let len = bytes.len();
        readers.push(Reader::new(generation, bytes).ok_or((generation, len)));
    }
    let mut scan = Scan {
        readers,
        loaded: Vec::new(),
        sequence: applied.sequence,
        revision: applied.revision,
        synced: applied.sequence,
        boot: None,
    };
    let stop = scan.read(home)?;
    let mut recovered = Recovered { segments: Vec::new(), stale, synced: scan.synced };
    if let Some(stop) = stop {
        scan.judge(home, &stop, hooks)?;
        let generations = scan.readers.iter().map(|r| r.as_ref().map_or_else(|(g, _)| *g, |r| r.generation));
        recovered.stale.extend(generations.skip(scan.loaded.len()));
    }
    recovered.segments = scan.loaded;
    Ok(recovered)
}

fn missing(home: &Home, generation: u64) -> Error {
    let file = home.shown(name(generation));
    Error::corrupt(format!(
        "{file} is missing, with commits that are not in tables: restore it, or the store from a copy"
    ))
}

impl Scan {
    /// Reads up to the end, or to where it cannot go on.
    fn read(&mut self, home: &Home) -> Result<Option<Stop>> {
        for segment in 0..self.readers.len() {
            let reader = match &self.readers[segment] {
                Ok(reader) => reader,
                // A new segment is written in one go and holds no commit before that has ended.
                Err((_, len)) => return Ok(Some(Stop { segment, at: 0, torn: *len < Reader::FIRST })),
            };
            let (generation, salt) = (reader.generation, reader.salt);
            let mut one =
                Loaded { generation, salt, frames: Vec::new(), tail: Tail::default(), committed: 0, cut: false };
            let mut at = Reader::FIRST;
            let stop = loop {
                let (head, end) = match reader.next(at) {
                    Next::Frame(head, end) if head.sequence == self.sequence + 1 => (head, end),
                    // The first mark is written together with the segment's head.
                    Next::End if at > Reader::FIRST => break None,
                    Next::Torn | Next::End => break Some(Stop { segment, at, torn: true }),
                    Next::Frame(..) | Next::Bad => break Some(Stop { segment, at, torn: false }),
                };
                if head.kind == Kind::Commit && head.revision != self.revision + 1 {
                    break Some(Stop { segment, at, torn: false });
                }
                let (bytes, writes) =
                    reader.writes(at, end, &head).map_err(|e| e.context(place(home, generation, at)))?;
                match head.kind {
                    Kind::Commit => {
                        one.committed = head.sequence;
                        one.frames.push(([head.revision, head.last_revision()], bytes, writes));
                    }
                    Kind::Mark => self.boot = reader.boot(at, end),
                }
                self.sequence = head.sequence;
                self.revision = head.last_revision();
                self.synced = self.synced.max(head.synced);
                at = end;
            };
            // One without its first mark was being made: nothing is in it.
            if at > Reader::FIRST {
                one.tail = Tail { offset: at as u64, sequence: self.sequence, revision: self.revision };
                one.cut = stop.is_some();
                self.loaded.push(one);
            }
            if stop.is_some() {
                return Ok(stop);
            }
        }
        Ok(None)
    }

    /// Whether what cannot be read may be cut off.
    fn judge(&mut self, home: &Home, stop: &Stop, hooks: &Hooks) -> Result<()> {
        let next = self.sequence + 1;
        let mut behind = None;
        for (n, reader) in self.readers.iter().enumerate().skip(stop.segment) {
            let from = if n == stop.segment { stop.at + 1 } else { Reader::FIRST };
            behind = behind.max(reader.as_ref().ok().and_then(|r| r.good_frames_behind(from, next)));
        }
        self.synced = self.synced.max(behind.unwrap_or(0));
        let generation = match &self.readers[stop.segment] {
            Ok(reader) => reader.generation,
            Err((generation, _)) => *generation,
        };
        let last = stop.segment + 1 == self.readers.len();
        let promised = self.synced >= next;
        let killed = stop.torn && last && behind.is_none();
        let now = boot_id(hooks);
        let power = self.boot.is_some_and(|boot| boot != now && boot != [0; 16]) && now != [0; 16];
        // There is always a whole segment: each is synced before the one before it is deleted.
        if !promised && (killed || power) && !self.loaded.is_empty() {
            return Ok(());
        }
        let what = match (promised, behind.is_some()) {
            (true, _) => "it had been synced",
            (_, true) => "good frames follow",
            _ => "no kill and no loss of power can have done this",
        };
        Err(Error::corrupt(format!(
            "{}: frame {next} of the log is damaged, and {what}; commits would be lost without a word, so the store is \
             not opened: restore it from a copy; or, to give up everything from that frame on, cut the file off at that \
             offset and delete those with higher names",
            place(home, generation, stop.at)
        )))
    }
}

fn place(home: &Home, generation: u64, at: usize) -> String {
    format!("{}, offset {at}", home.shown(name(generation)))
}
