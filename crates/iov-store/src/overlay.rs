//! Which bytes of an object a stage has changed, and where the new ones lie: disjoint pieces, the newest on top.

use std::collections::BTreeMap;

use iov_types::Range;

/// Where the bytes of a piece come from.
pub trait PieceSource: Copy + PartialEq {
    /// The source of what follows after `n` bytes.
    fn after(self, n: u64) -> Self;
}

/// Pieces by their first byte: (end, source).
#[derive(Debug)]
pub struct Overlay<S>(BTreeMap<u64, (u64, S)>);

impl<S> Default for Overlay<S> {
    fn default() -> Overlay<S> {
        Overlay(BTreeMap::new())
    }
}

impl<S: PieceSource> Overlay<S> {
    /// Lays a piece over what is there.
    pub fn lay(&mut self, range: Range, source: S) {
        let (mut from, mut to) = (range.offset, range.end());
        if from == to {
            return;
        }
        while let Some((&f, &(t, old))) = self.0.range(..to).next_back() {
            if t <= from {
                break;
            }
            self.0.remove(&f);
            if to < t {
                self.0.insert(to, (t, old.after(to - f)));
            }
            if f < from {
                self.0.insert(f, (from, old));
            }
        }
        let mut source = source;
        if let Some((&f, &(t, old))) = self.0.range(..from).next_back()
            && t == from
            && old.after(from - f) == source
        {
            (from, source) = (f, old);
        }
        if let Some((&f, &(t, next))) = self.0.range(to..).next()
            && f == to
            && source.after(to - from) == next
        {
            self.0.remove(&f);
            to = t;
        }
        self.0.insert(from, (to, source));
    }

    /// Whether a range shares a byte with any piece.
    pub fn touches(&self, range: Range) -> bool {
        range.len > 0 && self.0.range(..range.end()).next_back().is_some_and(|(_, (end, _))| *end > range.offset)
    }

    /// Whether there are no pieces.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many pieces there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The pieces of a range cut to it, and the gaps between them as `None`, in order.
    pub fn cover(&self, range: Range) -> impl Iterator<Item = (Range, Option<S>)> + '_ {
        let first = match self.0.range(..=range.offset).next_back() {
            Some((f, (t, _))) if *t > range.offset => *f,
            _ => range.offset,
        };
        let mut pieces = self.0.range(first..range.end().max(first)).peekable();
        let mut at = range.offset;
        std::iter::from_fn(move || {
            if at >= range.end() {
                return None;
            }
            let (to, source) = match pieces.peek() {
                Some((f, (t, source))) if **f <= at => {
                    let cut = (*t.min(&range.end()), Some(source.after(at - **f)));
                    pieces.next();
                    cut
                }
                Some((f, _)) => (**f, None),
                None => (range.end(), None),
            };
            let piece = Range { offset: at, len: to - at };
            at = to;
            Some((piece, source))
        })
    }
}
