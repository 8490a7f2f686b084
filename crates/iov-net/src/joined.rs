//! The pieces of one large read or write, joined to one answer.

use std::sync::{Arc, Mutex, PoisonError};

use iov_store::Sink;
use iov_types::{Error, Evidence, Outcome, Result};

use crate::part::after;

/// Reads the whole once more, or says that there is no time for that.
pub(crate) type Again = Box<dyn FnOnce(Arc<dyn Sink>, usize) + Send>;

/// How they end.
struct Pieces {
    left: usize,
    /// How many bytes each has moved.
    moved: Vec<u64>,
    last: Evidence,
    any_done: bool,
    /// Pieces were read in different versions: the object was published meanwhile (M1).
    mixed: bool,
    failed: Option<Error>,
    /// Of a read.
    again: Option<Again>,
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
    /// With `again` it is a read, else a write.
    pub(crate) fn new(index: usize, sink: Arc<dyn Sink>, lens: Vec<u64>, again: Option<Again>) -> Joined {
        let (moved, reads) = (vec![0; lens.len()], again.is_some());
        let last = Evidence::default();
        let state = Pieces { left: lens.len(), moved, last, any_done: false, mixed: false, failed: None, again };
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
                state.mixed |= self.reads && state.any_done && state.last.version != e.version;
                state.last = e;
                state.any_done = true;
            }
            // One of which nobody knows whether it took effect says more than one that did not.
            Err(e) if state.failed.as_ref().is_none_or(|f| f.outcome() == Outcome::NotApplied) => {
                state.failed = Some(e)
            }
            Err(_) => {}
        }
        if state.left == 0 {
            let again = state.again.take().filter(|_| state.mixed && state.failed.is_none());
            if let Some(again) = again {
                drop(state);
                return again(self.sink.clone(), self.index);
            }
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
        let again: Again = Box::new(|_, _| panic!("all is of one version"));
        let joined = Joined::new(7, told.clone(), vec![100, 100, 50], reads.then_some(again));
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

    #[test]
    fn m1_what_is_of_two_versions_is_read_again() {
        for versions in [[1, 1, 2], [2, 1, 1], [1, 2, 1]] {
            let told = Arc::<Told>::default();
            let again: Again =
                Box::new(|sink, index| sink.complete(index, Ok(Evidence { bytes: 42, ..Evidence::default() })));
            let joined = Joined::new(7, told.clone(), vec![100; 3], Some(again));
            for (piece, version) in versions.into_iter().enumerate() {
                joined.complete(piece, Ok(Evidence { bytes: 100, version, ..Evidence::default() }));
            }
            assert_eq!(*told.0.lock().unwrap(), [(7, 42)], "{versions:?}");
        }
    }
}
