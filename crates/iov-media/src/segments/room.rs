//! Free stretches of segments: by place, so that neighbours merge, and by length, so that the best fit is found at once.

use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// A stretch of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Piece {
    /// Number of the segment.
    pub segment: u32,
    /// First byte.
    pub at: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.at + self.len
    }

    /// The part from `skip` on, at most `len` bytes.
    pub(crate) fn part(&self, skip: u64, len: u64) -> Piece {
        Piece { at: self.at + skip, len: len.min(self.len.saturating_sub(skip)), ..*self }
    }
}

/// Stretches that do not touch each other.
#[derive(Default)]
pub(crate) struct Room {
    by_place: BTreeMap<(u32, u64), u64>,
    by_len: BTreeSet<(u64, u32, u64)>,
    total: u64,
}

impl Room {
    /// Bytes in all.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    fn put(&mut self, piece: Piece) {
        self.by_place.insert((piece.segment, piece.at), piece.len);
        self.by_len.insert((piece.len, piece.segment, piece.at));
        self.total += piece.len;
    }

    fn drop(&mut self, piece: Piece) {
        self.by_place.remove(&(piece.segment, piece.at));
        self.by_len.remove(&(piece.len, piece.segment, piece.at));
        self.total -= piece.len;
    }

    /// Adds a stretch that is in none of it; it merges with its neighbours.
    pub(crate) fn add(&mut self, mut piece: Piece) {
        if piece.len == 0 {
            return;
        }
        let before = self.by_place.range(..(piece.segment, piece.at)).next_back();
        let before = before.map(|((segment, at), len)| Piece { segment: *segment, at: *at, len: *len });
        if let Some(before) = before.filter(|b| b.segment == piece.segment && b.end() == piece.at) {
            self.drop(before);
            piece = Piece { at: before.at, len: before.len + piece.len, ..piece };
        }
        if let Some(len) = self.by_place.get(&(piece.segment, piece.end())).copied() {
            self.drop(Piece { at: piece.end(), len, ..piece });
            piece.len += len;
        }
        self.put(piece);
    }

    /// Takes `len` bytes in one stretch: of those that are long enough, from the shortest.
    pub(crate) fn take(&mut self, len: u64) -> Option<Piece> {
        let (long, segment, at) = self.by_len.range((len, 0, 0)..).next().copied()?;
        let whole = Piece { segment, at, len: long };
        self.drop(whole);
        self.add(whole.part(len, u64::MAX));
        Some(whole.part(0, len))
    }

    /// Takes the longest stretch, or `most` bytes of it.
    pub(crate) fn take_longest(&mut self, most: u64) -> Option<Piece> {
        let longest = self.by_len.last()?.0;
        self.take(longest.min(most))
    }

    /// Takes out whatever of a stretch is here.
    pub(crate) fn carve(&mut self, piece: Piece) {
        let from = self.by_place.range(..=(piece.segment, piece.at)).next_back();
        let from = from.filter(|((segment, _), _)| *segment == piece.segment).map_or(piece.at, |((_, at), _)| *at);
        let touched: Vec<Piece> = self
            .by_place
            .range((piece.segment, from)..(piece.segment, piece.end()))
            .map(|((segment, at), len)| Piece { segment: *segment, at: *at, len: *len })
            .filter(|p| p.end() > piece.at)
            .collect();
        for old in touched {
            self.drop(old);
            self.add(old.part(0, piece.at.saturating_sub(old.at)));
            if old.end() > piece.end() {
                self.add(old.part(piece.end() - old.at, u64::MAX));
            }
        }
    }

    /// How many bytes of a stretch are here.
    pub(crate) fn covered(&self, piece: Piece) -> u64 {
        let from = self.by_place.range(..=(piece.segment, piece.at)).next_back();
        let from = from.filter(|((segment, _), _)| *segment == piece.segment).map_or(piece.at, |((_, at), _)| *at);
        let each = self.by_place.range((piece.segment, from)..(piece.segment, piece.end()));
        each.map(|((_, at), len)| (at + len).min(piece.end()).saturating_sub((*at).max(piece.at))).sum()
    }
}
