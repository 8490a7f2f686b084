//! The index file of an object: where in the segments its bytes lie. It is the daemon's alone, and survives it.
//!
//! ```text
//! header   64 bytes   title, version, checksum; the place of the object's head
//! record   32 bytes   kind and checksum; a range of the object in blocks, and where it lies, or that it lies nowhere
//! ```
//!
//! Records are only added; the later one wins. One that was cut short ends the file. No record crosses a page, so that a
//! process that is killed while it writes one leaves all of it or nothing.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
};

use iov_store::SEGMENT_BLOCK;
use iov_types::{Error, Result};

use super::Piece;

const TITLE: &[u8; 8] = b"IOVINDEX";
const VERSION: u32 = 1;
const HEADER: usize = 64;
const RECORD: usize = 32;
const MAPPED: u32 = 1;
const CUT: u32 = 2;

/// Where the stretches of an object lie, by their first byte.
pub(super) type Map = BTreeMap<u64, Piece>;

/// A change of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// From this byte on the object lies there; nothing lay there before.
    Mapped(u64, Piece),
    /// Bytes from the first up to the second lie nowhere.
    Cut(u64, u64),
}

/// Records of an index that may be superfluous before it is written anew.
const WASTE: usize = 256;

/// An open index.
pub(super) struct Index {
    file: OwnedFd,
    records: usize,
}

/// Where the bytes of an object lie cannot be read.
pub(super) fn damaged() -> Error {
    Error::corrupt(
        "the index of an object is damaged: where its bytes lie is not known; restore the object from a copy of the store, \
         or remove it",
    )
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |n, b| (n << 8) | u64::from(*b))
}

fn short(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |n, b| (n << 8) | u32::from(*b))
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn header(head: Piece) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    put(&mut out, 0, TITLE);
    put(&mut out, 8, &VERSION.to_le_bytes());
    put(&mut out, 12, &head.segment.to_le_bytes());
    put(&mut out, 16, &head.at.to_le_bytes());
    let sum = checksum(&out[..HEADER - 4]);
    put(&mut out, HEADER - 4, &sum.to_le_bytes());
    out
}

/// Blocks up to 2^32 and offsets up to 2^63 fit.
fn record(change: Change) -> [u8; RECORD] {
    let (kind, offset, blocks, segment, at) = match change {
        Change::Mapped(offset, piece) => (MAPPED, offset, piece.len / SEGMENT_BLOCK, piece.segment, piece.at),
        Change::Cut(from, to) => (CUT, from, 0, 0, to),
    };
    let mut out = [0; RECORD];
    put(&mut out, 0, &offset.to_le_bytes());
    put(&mut out, 8, &at.to_le_bytes());
    put(&mut out, 16, &(blocks as u32).to_le_bytes());
    put(&mut out, 20, &segment.to_le_bytes());
    put(&mut out, 24, &kind.to_le_bytes());
    let sum = checksum(&out[..RECORD - 4]);
    put(&mut out, RECORD - 4, &sum.to_le_bytes());
    out
}

fn parse(bytes: &[u8]) -> Option<Change> {
    if short(bytes, RECORD - 4) != checksum(&bytes[..RECORD - 4]) {
        return None;
    }
    let (offset, at) = (number(bytes, 0), number(bytes, 8));
    match short(bytes, 24) {
        MAPPED => {
            let len = u64::from(short(bytes, 16)) * SEGMENT_BLOCK;
            Some(Change::Mapped(offset, Piece { segment: short(bytes, 20), at, len }))
        }
        CUT => Some(Change::Cut(offset, at)),
        _ => None,
    }
}

/// Applies a change; what lies nowhere any more.
pub(super) fn apply(map: &mut Map, change: Change) -> Vec<Piece> {
    match change {
        Change::Mapped(offset, piece) => {
            map.insert(offset, piece);
            Vec::new()
        }
        Change::Cut(from, to) => cut(map, from, to, |piece| piece),
    }
}

/// Takes what lies from `from` to `to` out of a map by offset, in a time that goes by how much that is.
pub(super) fn cut<T: Clone>(
    map: &mut BTreeMap<u64, T>,
    from: u64,
    to: u64,
    piece_of: impl Fn(&mut T) -> &mut Piece,
) -> Vec<Piece> {
    let first = map.range(..=from).next_back().map_or(from, |(at, _)| *at);
    let touched: Vec<u64> = map.range(first..to).map(|(at, _)| *at).collect();
    let mut out = Vec::new();
    for at in touched {
        let Some(mut there) = map.remove(&at) else { continue };
        let piece = *piece_of(&mut there);
        let (keep, until) = (from.saturating_sub(at), (at + piece.len).min(to).saturating_sub(at));
        if keep >= piece.len {
            map.insert(at, there); // it ends before
            continue;
        }
        let mut part = |at: u64, piece: Piece| {
            *piece_of(&mut there) = piece;
            map.insert(at, there.clone());
        };
        if keep > 0 {
            part(at, piece.part(0, keep));
        }
        if until < piece.len {
            part(at + until, piece.part(until, u64::MAX));
        }
        out.push(piece.part(keep, until - keep));
    }
    out
}

fn write_all(file: impl AsFd, mut bytes: &[u8], mut at: u64) -> Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(&file, bytes, at) {
            Ok(n) => (bytes, at) = (&bytes[n..], at + n as u64),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::NOSPC) => {
                return Err(Error::exhausted("the shared memory of this machine is full: free some space"));
            }
            Err(e) => return Err(Error::from(std::io::Error::from(e)).context("writing the index of an object")),
        }
    }
    Ok(())
}

impl Index {
    /// Writes the index of a new object into an empty file.
    pub(super) fn create(file: OwnedFd, head: Piece, map: &Map) -> Result<Index> {
        let mut bytes = header(head).to_vec();
        bytes.extend(map.iter().flat_map(|(offset, piece)| record(Change::Mapped(*offset, *piece))));
        // The header comes last: without it and without records the file is one that was never finished.
        write_all(&file, &bytes[HEADER..], HEADER as u64)?;
        write_all(&file, &bytes[..HEADER], 0)?;
        Ok(Index { file, records: map.len() })
    }

    /// Reads an index: where the head is, and all else; `None`: it was never finished.
    pub(super) fn open(file: OwnedFd) -> Result<Option<(Index, Piece, Map)>> {
        let mut bytes = Vec::new();
        read(&file, &mut bytes)?;
        if bytes.len() < HEADER || (bytes.len() == HEADER && bytes.iter().all(|b| *b == 0)) {
            return Ok(None);
        }
        Index::parse(file, &bytes).map(Some)
    }

    fn parse(file: OwnedFd, bytes: &[u8]) -> Result<(Index, Piece, Map)> {
        let (title, rest) = bytes.split_at(HEADER);
        if title[..8] != TITLE[..] || short(title, HEADER - 4) != checksum(&title[..HEADER - 4]) {
            return Err(damaged());
        }
        if short(title, 8) != VERSION {
            return Err(Error::version("the index of an object is of a newer format: update the daemon"));
        }
        let head = Piece { segment: short(title, 12), at: number(title, 16), len: iov_store::HEAD_BYTES };
        let (mut map, mut records) = (Map::new(), 0);
        for bytes in rest.chunks_exact(RECORD) {
            let Some(change) = parse(bytes) else { break };
            check(&map, change)?;
            apply(&mut map, change);
            records += 1;
        }
        Ok((Index { file, records }, head, map))
    }

    /// Adds changes.
    pub(super) fn add(&mut self, changes: impl IntoIterator<Item = Change>) -> Result<()> {
        let bytes: Vec<u8> = changes.into_iter().flat_map(record).collect();
        let at = HEADER + self.records * RECORD;
        if let Err(e) = write_all(&self.file, &bytes, at as u64) {
            // What there is of it must not be found by the next daemon.
            let _ = rustix::fs::ftruncate(&self.file, at as u64);
            return Err(e);
        }
        self.records += bytes.len() / RECORD;
        Ok(())
    }

    /// Whether it holds much that was changed since; an object has so many stretches now.
    pub(super) fn is_wasteful(&self, stretches: usize) -> bool {
        self.records > 2 * stretches + WASTE
    }

    /// The file.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }
}

fn read(file: &OwnedFd, out: &mut Vec<u8>) -> Result<()> {
    let stat = rustix::fs::fstat(file).map_err(|e| Error::from(std::io::Error::from(e)))?;
    out.resize(stat.st_size as usize, 0);
    let mut done = 0;
    while done < out.len() {
        match rustix::io::pread(file, &mut out[done..], done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::from(std::io::Error::from(e)).context("reading the index of an object")),
        }
    }
    out.truncate(done);
    Ok(())
}

/// What no daemon has written.
fn check(map: &Map, change: Change) -> Result<()> {
    let aligned = |n: u64| n.is_multiple_of(SEGMENT_BLOCK);
    let good = match change {
        Change::Mapped(offset, piece) => {
            let end = offset.checked_add(piece.len).filter(|end| *end <= 1 << 63);
            let before = map.range(..end.unwrap_or(0)).next_back();
            aligned(offset)
                && aligned(piece.at)
                && piece.len > 0
                && end.is_some()
                && before.is_none_or(|(at, p)| at + p.len <= offset)
        }
        Change::Cut(from, to) => aligned(from) && aligned(to) && from <= to,
    };
    if good { Ok(()) } else { Err(damaged()) }
}
