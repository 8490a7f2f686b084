//! The bytes of a frame. `docs/format.md` draws them.

use iov_types::{Error, Result};

use crate::{
    files::{checksum, u64_at},
    tables::{Family, KEY_BYTES},
};

/// Bytes of a frame's head.
pub(crate) const HEAD: usize = 56;
/// Largest frame: a request's body many times over, and a number that a damaged head cannot exceed unnoticed.
pub(crate) const FRAME_BYTES: usize = 256 << 20;
/// What a head begins with.
pub(crate) const MAGIC: [u8; 4] = *b"IOVF";
/// Stands in the place of a value's length for a delete.
const DELETE: u32 = u32::MAX;

/// What a frame is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Transactions.
    Commit = 1,
    /// The boot of the machine under which the following frames were written.
    Mark = 2,
}

/// A frame's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) body_len: u32,
    /// Transactions in the body.
    pub(crate) txns: u32,
    /// One more than that of the frame before, also across segments.
    pub(crate) sequence: u64,
    /// Revision of the first transaction; of a mark, the last one given out.
    pub(crate) revision: u64,
    /// All frames up to this one had been synced when this one was written.
    pub(crate) synced: u64,
    body_sum: u64,
}

impl Head {
    /// The last revision given out once the frame is written.
    pub(crate) fn last_revision(&self) -> u64 {
        match self.kind {
            Kind::Commit => self.revision.saturating_add(u64::from(self.txns)).saturating_sub(1),
            Kind::Mark => self.revision,
        }
    }

    fn encode(&self, salt: u64) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&MAGIC);
        head[4..6].copy_from_slice(&(self.kind as u16).to_le_bytes());
        head[8..12].copy_from_slice(&self.body_len.to_le_bytes());
        head[12..16].copy_from_slice(&self.txns.to_le_bytes());
        for (at, number) in [(16, self.sequence), (24, self.revision), (32, self.synced), (40, self.body_sum)] {
            head[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        // The salt stands where the sum will: a frame of another segment, or one stored as a value, does not pass.
        head[48..].copy_from_slice(&salt.to_le_bytes());
        let sum = checksum(&head);
        head[48..].copy_from_slice(&sum.to_le_bytes());
        head
    }

    /// Reads a head; `None` if it is not one of this segment.
    pub(crate) fn decode(bytes: &[u8], salt: u64) -> Option<Head> {
        let mut head: [u8; HEAD] = bytes.get(..HEAD)?.try_into().ok()?;
        let sum = u64_at(&head, 48);
        head[48..].copy_from_slice(&salt.to_le_bytes());
        if head[..4] != MAGIC || checksum(&head) != sum || head[6..8] != [0, 0] {
            return None;
        }
        let kind = match u16::from_le_bytes([head[4], head[5]]) {
            1 => Kind::Commit,
            2 => Kind::Mark,
            _ => return None,
        };
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Some(Head {
            kind,
            body_len: u32_at(8),
            txns: u32_at(12),
            sequence: u64_at(&head, 16),
            revision: u64_at(&head, 24),
            synced: u64_at(&head, 32),
            body_sum: u64_at(&head, 40),
        })
    }

    /// Whether a body is the one that was written.
    pub(crate) fn fits(&self, body: &[u8]) -> bool {
        body.len() == self.body_len as usize && checksum(body) == self.body_sum
    }
}

/// Bytes of a mark.
pub(crate) const MARK: usize = HEAD + 16;

/// One put or delete in a frame: where its key begins, before which its lengths stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Write {
    pub(crate) at: u32,
    pub(crate) key_len: u16,
    pub(crate) family: Family,
    /// Number of the transaction in the frame.
    pub(crate) txn: u32,
}

/// The key of a write at an offset of a frame.
pub(crate) fn key_of(frame: &[u8], at: u32, key_len: u16) -> &[u8] {
    &frame[at as usize..][..key_len as usize]
}

/// Its value; `None` is a delete.
pub(crate) fn value_of(frame: &[u8], at: u32, key_len: u16) -> Option<&[u8]> {
    let at = at as usize;
    let len = u32::from_le_bytes([frame[at - 4], frame[at - 3], frame[at - 2], frame[at - 1]]);
    (len != DELETE).then(|| &frame[at + key_len as usize..][..len as usize])
}

/// A frame while it is made.
pub(crate) struct Frame {
    bytes: Vec<u8>,
    writes: Vec<Write>,
    txns: u32,
}

impl Frame {
    /// An empty one with room for that many bytes and writes.
    pub(crate) fn with_capacity(body: usize, writes: usize) -> Frame {
        let mut bytes = Vec::with_capacity(HEAD + body);
        bytes.resize(HEAD, 0);
        Frame { bytes, writes: Vec::with_capacity(writes), txns: 0 }
    }

    /// Bytes that a transaction takes.
    pub(crate) fn txn_bytes(writes: &[(Vec<u8>, Option<bytes::Bytes>)]) -> usize {
        writes.iter().fold(4, |sum, (key, value)| sum + 6 + key.len() + value.as_ref().map_or(0, |v| v.len()))
    }

    /// Adds a transaction.
    pub(crate) fn push(&mut self, writes: &[(Vec<u8>, Option<bytes::Bytes>)]) {
        self.bytes.extend_from_slice(&(writes.len() as u32).to_le_bytes());
        for (key, value) in writes {
            let key_len = key.len() as u16;
            self.bytes.extend_from_slice(&key_len.to_le_bytes());
            self.bytes.extend_from_slice(&value.as_ref().map_or(DELETE, |v| v.len() as u32).to_le_bytes());
            self.writes.push(Write { at: self.bytes.len() as u32, key_len, family: Family::of(key), txn: self.txns });
            self.bytes.extend_from_slice(key);
            self.bytes.extend_from_slice(value.as_deref().unwrap_or_default());
        }
        self.txns += 1;
    }

    /// Bytes of it, with its head.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many transactions there are.
    pub(crate) fn txns(&self) -> u32 {
        self.txns
    }

    /// Sets the head and ends the frame.
    pub(crate) fn finish(mut self, sequence: u64, revision: u64, synced: u64, salt: u64) -> (Vec<u8>, Vec<Write>) {
        seal(&mut self.bytes, Kind::Commit, self.txns, [sequence, revision, synced], salt);
        (self.bytes, self.writes)
    }
}

/// A mark.
pub(crate) fn mark(boot: [u8; 16], sequence: u64, revision: u64, synced: u64, salt: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    bytes.extend_from_slice(&boot);
    seal(&mut bytes, Kind::Mark, 0, [sequence, revision, synced], salt);
    bytes
}

fn seal(bytes: &mut [u8], kind: Kind, txns: u32, [sequence, revision, synced]: [u64; 3], salt: u64) {
    let (head, body) = bytes.split_at_mut(HEAD);
    let body_sum = checksum(body);
    let new = Head { kind, body_len: body.len() as u32, txns, sequence, revision, synced, body_sum };
    head.copy_from_slice(&new.encode(salt));
}

/// The writes of a frame. A checksum says who wrote the bytes, not that they make sense: every length is checked.
pub(crate) fn writes(frame: &[u8], head: &Head) -> Result<Vec<Write>> {
    let wrong = || Error::corrupt("a frame of the log has lengths that do not add up");
    let mut out = Vec::new();
    let mut at = HEAD;
    let mut take = |n: usize| {
        let part = frame.get(at..at.checked_add(n)?)?;
        at += n;
        Some((at - n, part))
    };
    for txn in 0..head.txns {
        let (_, count) = take(4).ok_or_else(wrong)?;
        for _ in 0..u32::from_le_bytes([count[0], count[1], count[2], count[3]]) {
            let (_, lens) = take(6).ok_or_else(wrong)?;
            let key_len = u16::from_le_bytes([lens[0], lens[1]]);
            let (key_at, key) = take(key_len as usize).ok_or_else(wrong)?;
            out.push(Write { at: key_at as u32, key_len, family: Family::of(key), txn });
            let value_len = u32::from_le_bytes([lens[2], lens[3], lens[4], lens[5]]);
            if value_len != DELETE {
                take(value_len as usize).ok_or_else(wrong)?;
            }
        }
    }
    if at != frame.len() { Err(wrong()) } else { Ok(out) }
}

const _: () = assert!(KEY_BYTES <= u16::MAX as usize, "a key's length takes two bytes");
