//! The pieces of one large read or write, joined to one answer.

use std::sync::{Arc, Mutex, PoisonError};

use iov_store::Sink;
use iov_types::{Error, Evidence, Outcome, Result};

use crate::part::after;

/// Stands for the version of what was read in several.
const MIXED: u64 = iov_store::MIXED_VERSION;

/// How they end.
struct Pieces {
    left: usize,
    /// How many bytes each has moved.
    moved: Vec<u64>,
    last: Evidence,
    any_done: bool,
    failed: Option<Error>,
}

/// Pieces by their numbers; the answer goes to one place of a sink.
pub(crate) struct Joined {
    index: usize,
    sink: Arc<dyn Sink>,
    /// How many bytes each has room for.
    lens: Vec<u64>,
    reads: bool,
    state: Mutex<Pieces>,
}

impl Joined {
    pub(crate) fn new(index: usize, sink: Arc<dyn Sink>, lens: Vec<u64>, reads: bool) -> Joined {
        let moved = vec![0; lens.len()];
        let state = Pieces { left: lens.len(), moved, last: Evidence::default(), any_done: false, failed: None };
        Joined { index, sink, lens, reads, state: Mutex::new(state) }
    }

    /// All that was written; of what was read, what comes before the first piece that was short. What the object got behind
    /// its end meanwhile, a later piece may have found: between the two nothing was read.
    fn bytes(&self, moved: &[u64]) -> u64 {
        let full = moved.iter().zip(&self.lens).take_while(|(moved, len)| moved == len).count();
        let counted = if self.reads { full + 1 } else { moved.len() };
        moved.iter().take(counted).sum()
    }
}

impl Sink for Joined {
    fn complete(&self, piece: usize, evidence: Result<Evidence>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.left -= 1;
        match evidence {
            Ok(e) => {
                state.moved[piece] = e.bytes;
                let mixed = self.reads && state.any_done && state.last.version != e.version;
                state.last = e;
                if mixed {
                    // Who puts several objects together has to know that this one was published meanwhile.
                    state.last.version = MIXED;
                }
                state.any_done = true;
            }
            // One of which nobody knows whether it took effect says more than one that did not.
            Err(e) if state.failed.as_ref().is_none_or(|f| f.outcome() == Outcome::NotApplied) => {
                state.failed = Some(e)
            }
            Err(_) => {}
        }
        if state.left == 0 {
            let partly = state.any_done;
            let result = match state.failed.take() {
                Some(e) => Err(after(partly, e)),
                None => Ok(Evidence { bytes: self.bytes(&state.moved), ..std::mem::take(&mut state.last) }),
            };
            drop(state);
            self.sink.complete(self.index, result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<(usize, u64)>>);

    impl Sink for Told {
        fn complete(&self, index: usize, evidence: Result<Evidence>) {
            self.0.lock().unwrap().push((index, evidence.unwrap().bytes));
        }
    }

    fn joined(reads: bool, moved: [u64; 3]) -> u64 {
        let told = Arc::<Told>::default();
        let joined = Joined::new(7, told.clone(), vec![100, 100, 50], reads);
        for piece in [2, 0, 1] {
            joined.complete(piece, Ok(Evidence { bytes: moved[piece], ..Evidence::default() }));
        }
        let all = told.0.lock().unwrap().clone();
        assert_eq!((all.len(), all[0].0), (1, 7));
        all[0].1
    }

    #[test]
    fn t18_what_is_read_has_no_gap() {
        assert_eq!(joined(true, [100, 100, 50]), 250);
        assert_eq!(joined(true, [100, 20, 0]), 120);
        assert_eq!(joined(true, [90, 60, 0]), 90, "the object has grown between the pieces");
        assert_eq!(joined(true, [0, 0, 10]), 0);
        assert_eq!(joined(false, [100, 100, 50]), 250);
    }
}
