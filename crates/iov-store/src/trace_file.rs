//! Traces in files: every call to a target, as [`Trace`](crate::Trace) tells of it. The format stands in `docs/format.md`.

use std::{
    fs::File,
    io::{BufReader, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use iov_types::{Error, Kind, ObjectId, Outcome, Persistence, Result, Uuid, VerbKind};

use crate::{TraceEvent, seam};

#[cfg(test)]
mod tests;

const MAGIC: &[u8; 8] = b"iovtrace";
const VERSION: u32 = 1;
const HEAD: usize = 32;
const RECORD: usize = 96;
const STAGED: u8 = 1;

/// A trace that is being written. Each call is one `write()`, so that a process that is killed loses none that were told.
pub struct TraceWriter(Mutex<Open>);

struct Open {
    file: File,
    /// Bytes up to the end of the last whole record.
    len: u64,
    sequence: u32,
}

/// What a trace tells of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceEntry {
    /// A process began to write here, at so many nanoseconds since 1970.
    Begin(u64),
    /// A call; `started_ns` is in nanoseconds since 1970.
    Call(TraceEvent),
    /// So many calls could not be written, as by a full disk.
    Missing(u64),
    /// A record that is not as it was written.
    Damaged,
}

fn head() -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..16].copy_from_slice(&(RECORD as u32).to_le_bytes());
    head
}

fn check_head(found: &[u8]) -> Result<()> {
    if found.get(..8) != Some(&MAGIC[..]) {
        return Err(Error::invalid("this is not a trace; iov up --trace FILE writes one"));
    }
    if found != head() {
        return Err(Error::version("the trace was written by a newer release: read it with that one"));
    }
    Ok(())
}

impl TraceWriter {
    /// Begins a trace, or goes on with one.
    pub fn open(path: &Path) -> Result<TraceWriter> {
        let of = |e: std::io::Error| Error::from(e).context(format!("the trace {}", path.display()));
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(of)?;
        // Where there are no locks, two daemons are the user's to keep apart.
        if matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)) {
            return Err(Error::busy("another daemon writes this trace: give one of its own").context(path.display()));
        }
        let len = file.metadata().map_err(of)?.len();
        if len == 0 {
            file.write_all(&head()).map_err(of)?;
        } else {
            let mut found = vec![0; HEAD.min(len as usize)];
            file.read_exact(&mut found).map_err(of)?;
            check_head(&found).map_err(|e| e.context(path.display()))?;
        }
        // One that was cut short by a crash of the machine.
        let len = HEAD as u64 + len.saturating_sub(HEAD as u64) / RECORD as u64 * RECORD as u64;
        let writer = TraceWriter(Mutex::new(Open { file, len, sequence: 0 }));
        writer.put(|record| {
            record[..8].copy_from_slice(&(seam::now_ns() as u64).to_le_bytes());
        })?;
        Ok(writer)
    }

    /// Writes a call down. Where that fails, its number is missing in what follows.
    pub fn record(&self, event: &TraceEvent) {
        let ago = seam::monotonic_ns().saturating_sub(event.started_ns);
        let when = seam::now_ns().saturating_sub(ago) as u64;
        // What the trace is of must not fail with the trace.
        let _ = self.put(|record| fill(record, event, when));
    }

    fn put(&self, fill: impl FnOnce(&mut [u8; RECORD])) -> Result<()> {
        let mut record = [0; RECORD];
        fill(&mut record);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        record[80..84].copy_from_slice(&open.sequence.to_le_bytes());
        open.sequence = open.sequence.wrapping_add(1);
        let sum = crc_fast::crc32_iscsi(&record[..92]);
        record[92..].copy_from_slice(&sum.to_le_bytes());
        let at = open.len;
        // Over what a write that failed half-way has left.
        open.file.seek(SeekFrom::Start(at)).and_then(|_| open.file.write_all(&record)).map_err(Error::from)?;
        open.len += RECORD as u64;
        Ok(())
    }
}

fn fill(record: &mut [u8; RECORD], event: &TraceEvent, when: u64) {
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &when.to_le_bytes());
    put(8, &(event.duration_ns.max(0) as u64).to_le_bytes());
    put(16, &event.object.collection.0);
    put(32, &event.object.slot.to_le_bytes());
    put(40, &event.offset.to_le_bytes());
    put(48, &event.len.to_le_bytes());
    put(56, &event.bytes.to_le_bytes());
    put(64, &event.session.0);
    put(84, &event.error.map_or(0, Kind::code).to_le_bytes());
    let flags = if event.staged { STAGED } else { 0 };
    put(88, &[event.verb as u8, event.outcome as u8, flags, event.durability.map_or(0, |level| level as u8 + 1)]);
}

/// A trace that is being read, also while it grows.
pub struct TraceReader {
    file: BufReader<File>,
    /// The number that the next record should have.
    next: u32,
    /// A record that comes behind those that are missing.
    held: Option<TraceEntry>,
}

impl TraceReader {
    /// Opens a trace.
    pub fn open(path: &Path) -> Result<TraceReader> {
        let of = |e: std::io::Error| Error::from(e).context(path.display());
        let mut file = BufReader::with_capacity(RECORD * 1024, File::open(path).map_err(of)?);
        let mut found = Vec::new();
        file.by_ref().take(HEAD as u64).read_to_end(&mut found).map_err(of)?;
        check_head(&found).map_err(|e| e.context(path.display()))?;
        Ok(TraceReader { file, next: 0, held: None })
    }

    fn read(&mut self) -> Result<Option<TraceEntry>> {
        let mut record = [0; RECORD];
        match self.file.read_exact(&mut record) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(Error::from(e)),
        }
        let u32_at = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"));
        if u32_at(92) != crc_fast::crc32_iscsi(&record[..92]) {
            self.next = self.next.wrapping_add(1);
            return Ok(Some(TraceEntry::Damaged));
        }
        let entry = decode(&record).unwrap_or(TraceEntry::Damaged);
        let sequence = u32_at(80);
        let missing = sequence.wrapping_sub(self.next);
        self.next = sequence.wrapping_add(1);
        if matches!(entry, TraceEntry::Begin(_)) || missing == 0 {
            return Ok(Some(entry));
        }
        self.held = Some(entry);
        Ok(Some(TraceEntry::Missing(u64::from(missing))))
    }
}

/// What a whole record says, if this release knows it.
fn decode(record: &[u8; RECORD]) -> Option<TraceEntry> {
    let u64_at = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
    let uuid_at = |at: usize| Uuid(record[at..at + 16].try_into().expect("sixteen bytes"));
    if record[88] == 0 {
        return Some(TraceEntry::Begin(u64_at(0)));
    }
    let error = match i32::from_le_bytes(record[84..88].try_into().expect("four bytes")) {
        0 => None,
        code => Some(Kind::from_code(code)?),
    };
    let outcomes = [Outcome::Applied, Outcome::NotApplied, Outcome::Unknown];
    let levels = [Persistence::Volatile, Persistence::Process, Persistence::Durable, Persistence::Replicated];
    Some(TraceEntry::Call(TraceEvent {
        verb: VerbKind::from_code(record[88])?,
        object: ObjectId { collection: uuid_at(16), slot: u64_at(32) },
        session: uuid_at(64),
        staged: record[90] & STAGED != 0,
        durability: match record[91] {
            0 => None,
            level => Some(levels.into_iter().find(|l| *l as u8 + 1 == level)?),
        },
        offset: u64_at(40),
        len: u64_at(48),
        bytes: u64_at(56),
        error,
        outcome: outcomes.into_iter().find(|o| *o as u8 == record[89])?,
        started_ns: u64_at(0) as i64,
        duration_ns: u64_at(8) as i64,
    }))
}

impl Iterator for TraceReader {
    type Item = Result<TraceEntry>;

    fn next(&mut self) -> Option<Result<TraceEntry>> {
        match self.held.take() {
            Some(entry) => Some(Ok(entry)),
            None => self.read().transpose(),
        }
    }
}
