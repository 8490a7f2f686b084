//! Steps one after the other, each of which may end at once or later, in any thread.

use std::sync::{Mutex, PoisonError};

/// Keeps steps from running inside each other: one that ends at once would else run the next one on its own stack.
#[derive(Default)]
pub(super) struct Chain(Mutex<State>);

#[derive(Default)]
struct State {
    running: bool,
    again: bool,
}

impl Chain {
    /// The last step has ended: takes the next one, unless whoever runs already is to take it.
    pub(super) fn kick(&self, mut step: impl FnMut()) {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = lock();
            if std::mem::replace(&mut state.running, true) {
                state.again = true;
                return;
            }
        }
        loop {
            step();
            let mut state = lock();
            if !std::mem::take(&mut state.again) {
                state.running = false;
                return;
            }
        }
    }
}
