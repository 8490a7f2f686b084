//! Who moves what when: pieces of the footprint in turns, so that both sides meet the same conditions.

use std::ops::Range;

use anyhow::Result;

use crate::worker::clock;

/// How the work of one round is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// Bytes that each side moves in a round.
    pub(crate) footprint: u64,
    /// Bytes that a side moves in one turn; divides the footprint.
    pub(crate) piece: u64,
    /// Bytes of one request; divides the piece.
    pub(crate) request: u64,
}

/// One turn: each side moves a piece, given by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) ours: u64,
    pub(crate) bare: u64,
    /// Whether the bare side is the second one.
    pub(crate) ours_first: bool,
}

impl Schedule {
    /// The turns of a round. The bare side is `ahead` bytes ahead (whole pieces), and starts over at the end: with half of
    /// the footprint, neither finds in a cache what the other has just moved. Each goes first in every other turn.
    pub(crate) fn turns(self, ahead: u64, round: u64) -> impl Iterator<Item = Turn> {
        (0..self.footprint / self.piece).map(move |k| {
            let ours = k * self.piece;
            Turn { ours, bare: (ours + ahead) % self.footprint, ours_first: (k + round).is_multiple_of(2) }
        })
    }

    /// The offsets of the requests that move the piece at `at`.
    pub(crate) fn requests(self, at: u64) -> impl Iterator<Item = u64> {
        let piece: Range<u64> = at..at + self.piece;
        piece.step_by(self.request as usize)
    }

    /// Runs a round, given what each side does for the request at an offset; `with` is what both use. Seconds of ours and
    /// of the bare side.
    pub(crate) fn run<C: ?Sized>(
        self,
        ahead: u64,
        round: u64,
        with: &mut C,
        mut ours: impl FnMut(&mut C, u64) -> Result<()>,
        mut bare: impl FnMut(&mut C, u64) -> Result<()>,
    ) -> Result<(f64, f64)> {
        self.run_pieces(
            ahead,
            round,
            with,
            |with, at| self.requests(at).try_for_each(|offset| ours(with, offset)),
            |with, at| self.requests(at).try_for_each(|offset| bare(with, offset)),
        )
    }

    /// The same, given what each side does for the piece at an offset.
    pub(crate) fn run_pieces<C: ?Sized>(
        self,
        ahead: u64,
        round: u64,
        with: &mut C,
        mut ours: impl FnMut(&mut C, u64) -> Result<()>,
        mut bare: impl FnMut(&mut C, u64) -> Result<()>,
    ) -> Result<(f64, f64)> {
        let (mut our_seconds, mut bare_seconds) = (0.0, 0.0);
        for turn in self.turns(ahead, round) {
            for is_ours in [turn.ours_first, !turn.ours_first] {
                let (spent, at) = if is_ours { (&mut our_seconds, turn.ours) } else { (&mut bare_seconds, turn.bare) };
                let from = clock();
                if is_ours {
                    ours(with, at)?
                } else {
                    bare(with, at)?
                }
                *spent += clock() - from;
            }
        }
        Ok((our_seconds, bare_seconds))
    }
}
