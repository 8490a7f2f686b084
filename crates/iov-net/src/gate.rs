//! Keeps large transfers from filling a connection: a few pieces are under way at a time, and what is small goes by the others.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use iov_types::ObjectId;

/// Most pieces of large transfers under way over one connection: enough that both sides always have something to do.
const WINDOW: usize = 8;

/// What wants to go.
pub(crate) trait Goes {
    /// A piece of a large transfer.
    fn is_bulk(&self) -> bool;
    /// Whether it is about this object: such stay in order.
    fn concerns(&self, object: ObjectId) -> bool;
    /// All that it is about.
    fn objects(&self) -> Vec<ObjectId>;
}

struct State<T> {
    under_way: usize,
    waiting: VecDeque<T>,
    /// Somebody lets them go, one after the other.
    letting_go: bool,
}

/// The way to a connection.
pub(crate) struct Gate<T>(Mutex<State<T>>);

impl<T> Default for Gate<T> {
    fn default() -> Self {
        Gate(Mutex::new(State { under_way: 0, waiting: VecDeque::new(), letting_go: false }))
    }
}

impl<T: Goes> Gate<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It comes back if it may go now; else it goes later. Each piece of a large transfer that goes must [`Gate::leave`].
    pub(crate) fn enter(&self, new: T) -> Option<T> {
        let mut state = self.lock();
        // One that was let go just now may not have been sent yet: nothing of its object may come first.
        let must_wait = match new.is_bulk() {
            true => state.under_way >= WINDOW || !state.waiting.is_empty() || state.letting_go,
            false => {
                state.letting_go
                    || !state.waiting.is_empty()
                        && new.objects().into_iter().any(|object| state.waiting.iter().any(|w| w.concerns(object)))
            }
        };
        if must_wait {
            state.waiting.push_back(new);
            return None;
        }
        state.under_way += usize::from(new.is_bulk());
        Some(new)
    }

    /// A piece of a large transfer has ended: `go` is called with what may go now. It may end at once, and leave.
    pub(crate) fn leave(&self, go: impl Fn(T)) {
        let mut state = self.lock();
        state.under_way -= 1;
        if std::mem::replace(&mut state.letting_go, true) {
            return;
        }
        while state.waiting.front().is_some_and(|next| !next.is_bulk() || state.under_way < WINDOW) {
            let Some(next) = state.waiting.pop_front() else { break };
            state.under_way += usize::from(next.is_bulk());
            drop(state);
            go(next);
            state = self.lock();
        }
        state.letting_go = false;
    }

    /// Takes out what waits and is of a kind.
    pub(crate) fn take_out(&self, of_a_kind: impl Fn(&T) -> bool) -> Vec<T> {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            return Vec::new();
        }
        let (out, stay): (VecDeque<T>, _) = std::mem::take(&mut state.waiting).into_iter().partition(of_a_kind);
        state.waiting = stay;
        out.into()
    }
}

#[cfg(test)]
mod tests;
