//! The log of one stage of one object: what was changed, in order, as it is on disk.
//!
//! A header, then records of 64 bytes, each followed by its bytes unless these lie in the image. A record is complete
//! when its last byte is there: one that reaches behind the end of the file was cut short and had not been acknowledged.
//! Checksums cover the place as well, so that a record is only good where it was written.

use std::os::fd::{AsFd, BorrowedFd};

use iov_types::{Clause, Error, ObjectId, Range, Result, Uuid};

use crate::files::{
    appends::Key,
    io,
    sidecar::{number, short},
};

/// Length of the header, and of a record without its bytes.
pub(crate) const RECORD: u64 = 64;
const TITLE: &[u8; 8] = b"IOVSTAGE";
const VERSION: u32 = 1;

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Bytes at an offset; in the image if so.
    Write {
        image: bool,
    },
    Append,
    /// To `offset` bytes.
    Truncate,
    Punch,
    Allocate {
        keep_size: bool,
    },
    /// What publishing will do, decided when the object was frozen: a payload of numbers.
    Plan,
    /// Publishing has begun, and must be brought to its end.
    Decided,
}

const KINDS: [Kind; 9] = [
    Kind::Write { image: false },
    Kind::Write { image: true },
    Kind::Append,
    Kind::Truncate,
    Kind::Punch,
    Kind::Allocate { keep_size: false },
    Kind::Allocate { keep_size: true },
    Kind::Plan,
    Kind::Decided,
];

/// A record without its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) range: Range,
    pub(crate) key: Option<Key>,
    pub(crate) max_size: u64,
    /// CRC-32C of the bytes.
    pub(crate) sum: u32,
}

impl Record {
    /// A record without bytes and without demands.
    pub(crate) fn plain(kind: Kind, range: Range) -> Record {
        Record { kind, range, key: None, max_size: 0, sum: io::checksum(&[]) }
    }

    /// How many bytes follow in the log.
    pub(crate) fn payload(&self) -> u64 {
        match self.kind {
            Kind::Write { image: false } | Kind::Append | Kind::Plan => self.range.len,
            _ => 0,
        }
    }

    pub(crate) fn encode(&self, place: u64) -> [u8; RECORD as usize] {
        let mut out = [0; RECORD as usize];
        let kind = KINDS.iter().position(|k| *k == self.kind).map_or(0, |i| i + 1) as u8;
        let (batch, sequence) = self.key.unwrap_or_default();
        out[4..8].copy_from_slice(&self.sum.to_le_bytes());
        (out[8], out[9]) = (kind, u8::from(self.key.is_some()));
        out[16..32].copy_from_slice(&batch.0);
        for (i, n) in [sequence, self.range.offset, self.range.len, self.max_size].into_iter().enumerate() {
            out[32 + 8 * i..40 + 8 * i].copy_from_slice(&n.to_le_bytes());
        }
        let sum = header_sum(&out, place);
        out[..4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8], place: u64) -> Option<Record> {
        if short(bytes, 0) != header_sum(bytes, place) {
            return None;
        }
        let mut batch = Uuid::NIL;
        batch.0.copy_from_slice(&bytes[16..32]);
        Some(Record {
            kind: *KINDS.get((bytes[8] as usize).checked_sub(1)?)?,
            range: Range::new(number(bytes, 40), number(bytes, 48)).ok()?,
            key: (bytes[9] == 1).then_some((batch, number(bytes, 32))),
            max_size: number(bytes, 56),
            sum: short(bytes, 4),
        })
    }
}

fn header_sum(bytes: &[u8], place: u64) -> u32 {
    let mut sum = io::Checksum::new();
    sum.add(&bytes[4..RECORD as usize]);
    sum.add(&place.to_le_bytes());
    sum.value()
}

/// The bytes with which a log begins.
pub(crate) fn header(stage: Uuid, id: ObjectId) -> [u8; RECORD as usize] {
    let mut out = [0; RECORD as usize];
    out[..8].copy_from_slice(TITLE);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..28].copy_from_slice(&stage.0);
    out[28..44].copy_from_slice(&id.collection.0);
    out[44..52].copy_from_slice(&id.slot.to_le_bytes());
    let sum = io::checksum(&out[..60]);
    out[60..].copy_from_slice(&sum.to_le_bytes());
    out
}

pub(crate) fn damaged(what: &str) -> Error {
    Error::corrupt(format!("{what}: staged changes are damaged; drop the batch and repeat it")).with_clause(Clause::B3)
}

/// Reads a log from the beginning: calls `found` with each complete record and its place; where they end.
pub(crate) fn scan(
    file: impl AsFd,
    stage: Uuid,
    id: ObjectId,
    mut found: impl FnMut(u64, Record) -> Result<()>,
) -> Result<u64> {
    let file = file.as_fd();
    let length = io::length(file)?;
    let mut bytes = [0; RECORD as usize];
    if io::read_exact(file, &mut bytes, 0)?.is_none() {
        return Ok(0); // cut short when it was made
    }
    if bytes != header(stage, id) {
        let newer =
            bytes[..8] == TITLE[..] && short(&bytes, 60) == io::checksum(&bytes[..60]) && short(&bytes, 8) > VERSION;
        return Err(if newer {
            Error::version("staged changes of a newer format; update the daemon")
        } else {
            damaged("the header of a log")
        });
    }
    let mut place = RECORD;
    while io::read_exact(file, &mut bytes, place)?.is_some() {
        let record = Record::decode(&bytes, place).ok_or_else(|| damaged("a record of a log"))?;
        let next = place + RECORD + record.payload();
        if next > length {
            break; // cut short
        }
        found(place, record)?;
        place = next;
    }
    Ok(place)
}

/// Checks the bytes of a record, which lie at `at` of what `read_exact` reads.
pub(crate) fn verify(
    read_exact: impl Fn(&mut [u8], u64) -> Result<Option<()>>,
    record: &Record,
    at: u64,
) -> Result<()> {
    let (mut sum, mut done) = (io::Checksum::new(), 0);
    let mut piece = vec![0; io::PIECE.min(record.range.len as usize)];
    while done < record.range.len {
        let n = piece.len().min((record.range.len - done) as usize);
        read_exact(&mut piece[..n], at + done)?.ok_or_else(|| damaged("the bytes of a record"))?;
        sum.add(&piece[..n]);
        done += n as u64;
    }
    if sum.value() == record.sum { Ok(()) } else { Err(damaged("the bytes of a record")) }
}

/// Checks the bytes of the record at `place`.
pub(crate) fn verify_at(file: BorrowedFd<'_>, place: u64) -> Result<()> {
    let mut bytes = [0; RECORD as usize];
    io::read_exact(file, &mut bytes, place)?.ok_or_else(|| damaged("a record of a log"))?;
    let record = Record::decode(&bytes, place).ok_or_else(|| damaged("a record of a log"))?;
    verify(|out, at| io::read_exact(file, out, at), &record, place + RECORD)
}

/// Whether the last record says that publishing has begun, whatever the others are.
pub(crate) fn ends_decided(file: impl AsFd) -> Result<bool> {
    let file = file.as_fd();
    let Some(place) = io::length(file)?.checked_sub(RECORD) else { return Ok(false) };
    let mut bytes = [0; RECORD as usize];
    io::read_exact(file, &mut bytes, place)?;
    Ok(Record::decode(&bytes, place).is_some_and(|record| record.kind == Kind::Decided))
}
