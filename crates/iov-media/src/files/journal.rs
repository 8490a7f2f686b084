//! The redo journal through which units change as a whole (M1): the new bytes first, then the mark that they are
//! complete, then the object, then the mark is taken away. After a crash what is marked is done again.
//!
//! A few files that keep their space; objects share them by their id, so that one object always uses the same.

use std::sync::{Mutex, PoisonError};

use iov_types::{Clause, Error, ObjectId, Range, Result, Uuid};

use super::{
    disk::Disk,
    io,
    sidecar::{number, short},
    tree::FileName,
};
use crate::fail;

/// Journal files: so many objects can change units at the same time.
pub(super) const FILES: usize = 16;
/// Where the bytes begin.
const PAYLOAD_AT: u64 = 4096;
/// One sector. The mark is there twice, so that damage to one copy does not hide whether there was one.
const HEADER: usize = 512;
const TITLE: &[u8; 8] = b"IOVUNIT\0";
const VERSION: u32 = 1;
/// The bytes were synced before the mark was written.
const SYNCED: u32 = 1;

/// A change that is made whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UnitChange<'a> {
    Write { offset: u64, data: &'a [u8] },
    Truncate { size: u64 },
    Punch(Range),
}

/// What recovery finds in a journal file.
#[derive(Debug)]
pub(super) enum Found {
    /// The change, complete.
    Whole { id: ObjectId, change: Owned },
    /// The mark is there, the bytes are not the ones it stands for: the object may hold a part of them.
    Damaged { id: ObjectId },
}

/// A [`UnitChange`] that owns its bytes.
#[derive(Debug)]
pub(super) enum Owned {
    Write { offset: u64, data: Vec<u8> },
    Truncate { size: u64 },
    Punch(Range),
}

impl Owned {
    /// Where an object that ended at `before` ends after it.
    pub(super) fn end(&self, before: u64) -> u64 {
        match self {
            Owned::Write { offset, data } => before.max(offset + data.len() as u64),
            Owned::Truncate { size } => *size,
            Owned::Punch(_) => before,
        }
    }

    pub(super) fn as_change(&self) -> UnitChange<'_> {
        match self {
            Owned::Write { offset, data } => UnitChange::Write { offset: *offset, data },
            Owned::Truncate { size } => UnitChange::Truncate { size: *size },
            Owned::Punch(range) => UnitChange::Punch(*range),
        }
    }
}

/// The journal files.
pub(super) struct Journal {
    /// Each lock is held while its file is in use; true: its mark must stay until the next start.
    locks: [Mutex<bool>; FILES],
    /// Tells a crash of the daemon from one of the machine.
    boot: Uuid,
}

/// The random id of this boot of the machine; nil if the system has none.
fn boot_id() -> Uuid {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Uuid::parse(&format!("uuid:{}", text.trim())).unwrap_or(Uuid::NIL)
}

impl Journal {
    pub(super) fn new() -> Journal {
        Journal { locks: Default::default(), boot: boot_id() }
    }

    fn place(id: ObjectId) -> usize {
        (id.collection.0[14] as usize + id.slot as usize) % FILES
    }

    /// The file that an object uses.
    pub(super) fn file(id: ObjectId) -> FileName {
        FileName::Journal(Journal::place(id))
    }

    /// Makes a change whole. `apply` makes it in the object, and may be called again after a crash.
    pub(super) fn run(
        &self,
        disk: &Disk,
        id: ObjectId,
        change: UnitChange<'_>,
        durable: bool,
        apply: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut stuck = self.locks[Journal::place(id)].lock().unwrap_or_else(PoisonError::into_inner);
        if *stuck {
            return Err(Error::unavailable("an earlier change of a unit could not be finished; restart the daemon")
                .with_clause(Clause::M1));
        }
        let name = Journal::file(id);
        let file = disk.get_or_create(name)?;
        let (kind, range, data): (u32, _, &[u8]) = match change {
            UnitChange::Write { offset, data } => (1, Range { offset, len: data.len() as u64 }, data),
            UnitChange::Truncate { size } => (2, Range { offset: size, len: 0 }, &[]),
            UnitChange::Punch(range) => (3, range, &[]),
        };
        io::write_all(&file, data, PAYLOAD_AT).map_err(|e| e.with_outcome(iov_types::Outcome::NotApplied))?;
        fail::point("unit.1.payload")?;
        if durable {
            // The bytes before their mark: a mark on disk then never stands for bytes that are not.
            io::sync_data(&file)?;
        }
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(TITLE);
        for (i, n) in [VERSION, kind, if durable { SYNCED } else { 0 }, io::checksum(data)].into_iter().enumerate() {
            header[8 + 4 * i..12 + 4 * i].copy_from_slice(&n.to_le_bytes());
        }
        for (i, n) in [range.offset, range.len, id.slot].into_iter().enumerate() {
            header[24 + 8 * i..32 + 8 * i].copy_from_slice(&n.to_le_bytes());
        }
        header[48..64].copy_from_slice(&id.collection.0);
        header[64..80].copy_from_slice(&self.boot.0);
        let sum = io::checksum(&header[..HEADER - 4]);
        header[HEADER - 4..].copy_from_slice(&sum.to_le_bytes());
        io::write_all(&file, &[header, header].concat(), 0)?;
        if durable {
            io::sync_data(&file)?;
        }
        fail::point("unit.2.journaled")?;
        if let Err(e) = apply() {
            *stuck = true;
            return Err(e.context("a unit may hold a part of a change; restart the daemon").with_clause(Clause::M1));
        }
        fail::point("unit.4.applied")?;
        io::write_all(&file, &[0; 2 * HEADER], 0)?;
        fail::point("unit.5.retired")
    }

    /// What an earlier daemon left in journal file `n`.
    pub(super) fn find(&self, disk: &Disk, n: usize) -> Result<Option<Found>> {
        let Some(file) = disk.get(FileName::Journal(n), true)? else { return Ok(None) };
        let mut copies = [0; 2 * HEADER];
        io::read(&file, &mut copies, 0)?;
        let good =
            |copy: &&[u8]| short(copy, HEADER - 4) == io::checksum(&copy[..HEADER - 4]) && copy[..8] == TITLE[..];
        let Some(header) = copies.chunks_exact(HEADER).find(good) else {
            // Both copies are there, or none; one that has rotted does not hide which.
            if copies.chunks_exact(HEADER).any(|copy| copy.iter().all(|b| *b == 0)) {
                return Ok(None);
            }
            return Err(Error::corrupt(format!(
                "the marks in journal/{n} are damaged: a unit may hold a part of a change; look at the object that was \
                 written last, then remove the file"
            ))
            .with_clause(Clause::M1));
        };
        if short(header, 8) != VERSION {
            return Err(Error::version("a journal of a newer format; start the daemon that has written it once more"));
        }
        let mut collection = Uuid::NIL;
        collection.0.copy_from_slice(&header[48..64]);
        let id = ObjectId { collection, slot: number(header, 40) };
        let damaged = || Error::corrupt("a journal holds a range that cannot be").with_clause(Clause::M1);
        let range = Range::new(number(header, 24), number(header, 32)).map_err(|_| damaged())?;
        let change = match short(header, 12) {
            1 => {
                if range.len > iov_types::limits::MAX_UNIT.max(io::PIECE as u64) {
                    return Err(damaged());
                }
                let mut data = vec![0; range.len as usize];
                let whole = io::read_exact(&file, &mut data, PAYLOAD_AT)?.is_some();
                if !whole || io::checksum(&data) != short(header, 20) {
                    let unsynced = short(header, 16) & SYNCED == 0;
                    // The power went before the bytes were on disk: only what was synced was promised to be whole then.
                    let lost_power = unsynced && header[64..80] != self.boot.0;
                    return if lost_power { Ok(None) } else { Ok(Some(Found::Damaged { id })) };
                }
                Owned::Write { offset: range.offset, data }
            }
            2 => Owned::Truncate { size: range.offset },
            3 => Owned::Punch(range),
            _ => return Err(damaged()),
        };
        Ok(Some(Found::Whole { id, change }))
    }

    /// Leaves journal file `n` as it is: what it stands for cannot be done now.
    pub(super) fn keep(&self, n: usize) {
        *self.locks[n].lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Takes the mark away from journal file `n`.
    pub(super) fn retire(&self, disk: &Disk, n: usize) -> Result<()> {
        let Some(file) = disk.get(FileName::Journal(n), true)? else { return Ok(()) };
        io::write_all(&file, &[0; 2 * HEADER], 0)?;
        io::sync_data(&file)
    }
}
