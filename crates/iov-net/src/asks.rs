//! Questions to the daemon that several have at the same time: one asks, and all hear the answer.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

use iov_store::seam;

struct Parked<V> {
    deadline_ns: i64,
    /// `None`: its deadline has passed.
    told: Box<dyn FnOnce(Option<V>) + Send>,
}

/// Questions under way, and who waits for their answers besides whoever asked.
pub(crate) struct Asks<K, V>(Mutex<HashMap<K, Vec<Parked<V>>>>);

impl<K, V> Default for Asks<K, V> {
    fn default() -> Self {
        Asks(Mutex::default())
    }
}

impl<K: Eq + Hash + Copy, V: Clone> Asks<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Vec<Parked<V>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer of whoever is asking already: `told` is called once with it, or with `None` behind the
    /// deadline. If nobody is, `with` comes back: then the caller asks, and calls [`Asks::answered`] whatever comes of it.
    pub(crate) fn join<T: Send + 'static>(
        &self,
        key: K,
        deadline_ns: i64,
        with: T,
        told: impl FnOnce(T, Option<V>) + Send + 'static,
    ) -> Option<T> {
        match self.lock().entry(key) {
            Entry::Vacant(nobody) => {
                nobody.insert(Vec::new());
                Some(with)
            }
            Entry::Occupied(mut others) => {
                let told = Box::new(move |answer| told(with, answer));
                others.get_mut().push(Parked { deadline_ns, told });
                None
            }
        }
    }

    /// The answer has come, or none will: whoever asks from now on asks anew.
    pub(crate) fn answered(&self, key: K, answer: V) {
        let parked = self.lock().remove(&key).unwrap_or_default();
        parked.into_iter().for_each(|parked| (parked.told)(Some(answer.clone())));
    }

    /// Tells those whose time is up.
    pub(crate) fn expire(&self) {
        let mut all = self.lock();
        if all.values().all(Vec::is_empty) {
            return;
        }
        let now = seam::monotonic_ns();
        let is_late = |parked: &mut Parked<V>| parked.deadline_ns <= now;
        let late: Vec<_> = all.values_mut().flat_map(|parked| parked.extract_if(.., is_late)).collect();
        drop(all);
        late.into_iter().for_each(|parked| (parked.told)(None));
    }
}

#[cfg(test)]
mod tests;
