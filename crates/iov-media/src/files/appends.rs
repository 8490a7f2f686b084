//! The log of appends of one object: where its bytes end, and which appends were carried out (M4).
//!
//! A ring of records behind the sidecar's slots, one per change of the length. Bytes are written first, their record
//! last; what lies behind the end of the newest record is the rest of an append that was cut short, and nobody sees it.
//! An object without such a log ends where its file ends.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::AsFd,
};

use iov_types::{Clause, Error, Range, Result, Uuid, limits::BATCH_MEMORY_NS};

use super::{
    io,
    sidecar::{APPENDS_AT, SLOTS, number, short},
};

/// Batch id and sequence number: the identity of an append (M4).
pub(super) type Key = (Uuid, u64);

/// Records in the ring: so many appends of one object can be told from new ones. More than the writers of a node have
/// under way, and few enough to be read when the object is first used (4 MiB).
pub(super) const RING: u64 = 65_536;

const RECORD: usize = 64;

/// A record: checksum, flags, count, batch, sequence number, offset, end, newest time forgotten.
struct Record {
    count: u64,
    key: Option<Key>,
    offset: u64,
    end: u64,
    forgotten_ms: u64,
}

const HAS_KEY: u32 = 1;

impl Record {
    fn encode(&self) -> [u8; RECORD] {
        let mut out = [0; RECORD];
        let (batch, sequence) = self.key.unwrap_or_default();
        out[4..8].copy_from_slice(&u32::from(self.key.is_some()).to_le_bytes());
        out[8..16].copy_from_slice(&self.count.to_le_bytes());
        out[16..32].copy_from_slice(&batch.0);
        for (i, n) in [sequence, self.offset, self.end, self.forgotten_ms].into_iter().enumerate() {
            out[32 + 8 * i..40 + 8 * i].copy_from_slice(&n.to_le_bytes());
        }
        let sum = io::checksum(&out[4..]);
        out[..4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        if short(bytes, 0) != io::checksum(&bytes[4..RECORD]) {
            return None;
        }
        let mut batch = Uuid::NIL;
        batch.0.copy_from_slice(&bytes[16..32]);
        Some(Record {
            count: number(bytes, 8),
            key: (short(bytes, 4) & HAS_KEY != 0).then_some((batch, number(bytes, 32))),
            offset: number(bytes, 40),
            end: number(bytes, 48),
            forgotten_ms: number(bytes, 56),
        })
    }

    fn place(count: u64) -> u64 {
        APPENDS_AT + (count % RING) * RECORD as u64
    }
}

/// The ranges of a sidecar that its slots, and `more` records behind those of a log, will fill.
pub(super) fn room(log: Option<&Appends>, more: u64) -> Vec<Range> {
    let slots = Range { offset: 0, len: SLOTS };
    let (count, more) = match log {
        None if more == 0 => return vec![slots],
        None => (0, more + 1), // the one that begins the log
        Some(log) => (log.count, more.max(1)),
    };
    let first = (count + 1) % RING;
    let (from, to) = if first + more > RING { (0, RING) } else { (first, first + more) };
    let record = RECORD as u64;
    vec![slots, Range { offset: APPENDS_AT + from * record, len: (to - from) * record }]
}

/// What is known of a batch with appends in the ring.
#[derive(Default)]
struct Batch {
    offsets: HashMap<u64, u64>,
    /// The highest sequence number that has left the ring.
    forgotten: Option<u64>,
}

/// The log, as far as it is needed again.
#[derive(Default)]
pub(super) struct Appends {
    end: u64,
    /// Records written so far; the newest has this number.
    count: u64,
    batches: HashMap<Uuid, Batch>,
    /// Number and key of the records in the ring that have one, the oldest first.
    order: VecDeque<(u64, Key)>,
    /// The newest time of a batch of which nothing is left in the ring.
    forgotten_ms: u64,
}

/// Whether a batch id is older than what is remembered anywhere; ids of other versions than 7 tell no time.
fn is_old(batch: Uuid, now_ns: i64) -> bool {
    batch.version() == 7 && batch.unix_ms() < now_ns.saturating_sub(BATCH_MEMORY_NS).max(0) as u64 / 1_000_000
}

/// Refuses an append whose batch is older than what is remembered (B3).
pub(super) fn check_age(batch: Uuid, now_ns: i64) -> Result<()> {
    if is_old(batch, now_ns) {
        let why = "the batch id is older than 24 hours: whether it was carried out is no longer known; look, then use a \
                   new one";
        return Err(Error::stale(why).with_clause(Clause::B3));
    }
    Ok(())
}

impl Appends {
    /// Reads the log; `None` if there is none.
    pub(super) fn load(file: impl AsFd) -> Result<Option<Appends>> {
        let file = file.as_fd();
        let length = io::length(file)?.saturating_sub(APPENDS_AT).min(RING * RECORD as u64);
        let mut bytes = vec![0; length as usize / RECORD * RECORD];
        io::read(file, &mut bytes, APPENDS_AT)?;
        let mut records = Vec::new();
        for (place, bytes) in bytes.chunks_exact(RECORD).enumerate() {
            if bytes.iter().all(|b| *b == 0) {
                continue;
            }
            match Record::decode(bytes) {
                Some(record) if record.count > 0 && record.count % RING == place as u64 => records.push(record),
                _ => {
                    return Err(Error::corrupt(
                        "a record of an object's log of appends is damaged: where its bytes end is not known; \
                         restore the object from a copy of the store",
                    )
                    .with_clause(Clause::M4));
                }
            }
        }
        records.sort_unstable_by_key(|r| r.count);
        // Where a page did not come to disk, that of a round before is there: what it tells of has left the ring.
        let newest = records.last().map_or(0, |r: &Record| r.count);
        records.retain(|r| r.count + RING > newest);
        // Records behind a gap were not on disk in full when the power went; what was synced lies before it (P3).
        let whole = records.windows(2).position(|w| w[1].count != w[0].count + 1).map_or(records.len(), |i| i + 1);
        records.truncate(whole);
        let Some(last) = records.last() else { return Ok(None) };
        let mut log = Appends { end: last.end, forgotten_ms: last.forgotten_ms, ..Appends::default() };
        let wrapped = records[0].count > 1;
        for record in records {
            log.count = record.count - 1;
            if let (Some((batch, sequence)), true) = (record.key, wrapped) {
                // Those before it may have left the ring.
                let known = log.batches.entry(batch).or_default();
                if known.offsets.is_empty() && known.forgotten.is_none() {
                    known.forgotten = sequence.checked_sub(1);
                }
            }
            log.note(record.key, record.offset);
        }
        Ok(Some(log))
    }

    /// Begins a log with the present end.
    pub(super) fn begin(file: impl AsFd, end: u64) -> Result<Appends> {
        let mut log = Appends::default();
        log.commit(file, None, 0, end)?;
        Ok(log)
    }

    /// Where the bytes end.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Where an append went, if it was carried out.
    pub(super) fn find(&self, (batch, sequence): &Key) -> Option<u64> {
        self.batches.get(batch)?.offsets.get(sequence).copied()
    }

    /// Refuses an append that may have been carried out so long ago that the ring has lost it.
    pub(super) fn check_known(&self, (batch, sequence): &Key) -> Result<()> {
        let lost = match self.batches.get(batch) {
            Some(known) => known.forgotten.is_some_and(|last| *sequence <= last),
            None => batch.version() == 7 && batch.unix_ms() <= self.forgotten_ms,
        };
        if lost {
            return Err(Error::stale(format!(
                "more than {RING} appends came since this batch: whether it was carried out is no longer known; look, \
                 then use a new batch"
            ))
            .with_clause(Clause::M4));
        }
        Ok(())
    }

    /// Records that bytes up to `end` are there, by the append `key` at `offset` if there is one.
    pub(super) fn commit(&mut self, file: impl AsFd, key: Option<Key>, offset: u64, end: u64) -> Result<()> {
        let count = self.count + 1;
        let forgotten_ms = self.forgotten_after(count);
        let record = Record { count, key, offset, end, forgotten_ms };
        io::write_all(file, &record.encode(), Record::place(count))?;
        self.note(key, offset);
        self.end = end;
        Ok(())
    }

    /// Records many appends that became visible at once; only the last tells the end.
    pub(super) fn commit_all(&mut self, file: impl AsFd, appended: &[(Key, u64)], end: u64) -> Result<()> {
        let file = file.as_fd();
        let mut bytes = Vec::with_capacity(RECORD * appended.len().min(RING as usize));
        let mut place = Record::place(self.count + 1);
        let old_end = self.end;
        for (i, (key, offset)) in appended.iter().enumerate() {
            let count = self.count + 1;
            let end = if i + 1 == appended.len() { end } else { old_end };
            let forgotten_ms = self.forgotten_after(count);
            if Record::place(count) != place + bytes.len() as u64 {
                io::write_all(file, &bytes, place)?;
                bytes.clear();
                place = Record::place(count);
            }
            let record = Record { count, key: Some(*key), offset: *offset, end, forgotten_ms };
            bytes.extend(record.encode());
            self.note(Some(*key), *offset);
        }
        io::write_all(file, &bytes, place)?;
        if appended.is_empty() && self.end != end {
            self.commit(file, None, 0, end)?;
        }
        self.end = end;
        Ok(())
    }

    /// What will be forgotten for good once record number `count` is written.
    fn forgotten_after(&self, count: u64) -> u64 {
        match self.order.front() {
            Some((oldest, (batch, _))) if oldest + RING <= count => {
                let last = self.batches.get(batch).is_none_or(|b| b.offsets.len() <= 1);
                if last && batch.version() == 7 { self.forgotten_ms.max(batch.unix_ms()) } else { self.forgotten_ms }
            }
            _ => self.forgotten_ms,
        }
    }

    /// Takes note of the next record, and forgets the one whose place it takes.
    fn note(&mut self, key: Option<Key>, offset: u64) {
        self.count += 1;
        self.forgotten_ms = self.forgotten_after(self.count);
        if let Some((oldest, (batch, sequence))) = self.order.front().copied()
            && oldest + RING <= self.count
        {
            self.order.pop_front();
            if let Some(known) = self.batches.get_mut(&batch) {
                known.offsets.remove(&sequence);
                known.forgotten = known.forgotten.max(Some(sequence));
                if known.offsets.is_empty() {
                    self.batches.remove(&batch);
                }
            }
        }
        if let Some((batch, sequence)) = key {
            self.batches.entry(batch).or_default().offsets.insert(sequence, offset);
            self.order.push_back((self.count, (batch, sequence)));
        }
    }
}
