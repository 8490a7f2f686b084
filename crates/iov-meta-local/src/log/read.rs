//! Reading one segment, frame by frame.

use bytes::Bytes;
use iov_types::Result;

use super::{
    frame::{self, HEAD, Head, Kind, MAGIC, Write},
    segment::{SEGMENT_HEAD, decode_head},
};

/// What follows at a place of a segment.
pub(super) enum Next {
    /// A good frame that ends at an offset.
    Frame(Head, usize),
    /// The end.
    End,
    /// The file ends within a frame, as after a process that was killed in its write.
    Torn,
    /// Something that no frame looks like.
    Bad,
}

/// A segment's bytes.
pub(super) struct Reader {
    pub(super) generation: u64,
    pub(super) salt: u64,
    pub(super) bytes: Bytes,
}

impl Reader {
    /// `None` if the segment's own head is not good.
    pub(super) fn new(generation: u64, bytes: Vec<u8>) -> Option<Reader> {
        let salt = decode_head(&bytes, generation)?;
        Some(Reader { generation, salt, bytes: Bytes::from(bytes) })
    }

    /// Where the first frame is.
    pub(super) const FIRST: usize = SEGMENT_HEAD;

    /// What is at an offset.
    pub(super) fn next(&self, at: usize) -> Next {
        let rest = &self.bytes[at..];
        if rest.is_empty() {
            return Next::End;
        }
        if rest.len() < HEAD {
            return Next::Torn;
        }
        let Some(head) = Head::decode(rest, self.salt) else { return Next::Bad };
        // The head has a sum of its own, so its length can be believed.
        match rest.get(HEAD..HEAD + head.body_len as usize) {
            None => Next::Torn,
            Some(body) if head.fits(body) => Next::Frame(head, at + HEAD + body.len()),
            Some(_) => Next::Bad,
        }
    }

    /// Whether good frames numbered `sequence` or higher begin at or behind an offset, and up to where they say that
    /// the log had been synced.
    pub(super) fn good_frames_behind(&self, at: usize, sequence: u64) -> Option<u64> {
        let (mut from, mut synced) = (at, None);
        while let Some(found) = find(self.bytes.get(from..).unwrap_or_default(), &MAGIC) {
            from += found;
            match self.next(from) {
                Next::Frame(head, end) if head.sequence >= sequence => {
                    synced = synced.max(Some(head.synced));
                    from = end;
                }
                _ => from += 1,
            }
        }
        synced
    }

    /// A frame's bytes, and the writes in it.
    pub(super) fn writes(&self, at: usize, end: usize, head: &Head) -> Result<(Bytes, Vec<Write>)> {
        let frame = self.bytes.slice(at..end);
        let writes = match head.kind {
            Kind::Commit => frame::writes(&frame, head)?,
            Kind::Mark => Vec::new(),
        };
        Ok((frame, writes))
    }

    /// The boot that a mark names.
    pub(super) fn boot(&self, at: usize, end: usize) -> Option<[u8; 16]> {
        self.bytes[at + HEAD..end].try_into().ok()
    }
}

fn find(hay: &[u8], needle: &[u8; 4]) -> Option<usize> {
    hay.windows(4).position(|w| w == needle)
}
