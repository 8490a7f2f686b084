//! The buffers of a session, and who is just using them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use ioverbs::{Error, Result};

use super::mapping::Mapping;
use crate::submit::{Lent, lock};

struct Buffer {
    len: usize,
    users: Arc<AtomicUsize>,
    /// Ours; `None` for memory of the program.
    mapping: Option<Mapping>,
}

/// By address; they never overlap.
#[derive(Default)]
pub(crate) struct Buffers {
    /// How many there are: most sessions have none, and pay nothing for it.
    count: AtomicUsize,
    map: Mutex<BTreeMap<usize, Buffer>>,
}

/// Keeps buffers from being freed while a request uses them.
#[derive(Default)]
pub(crate) struct Uses(Vec<Arc<AtomicUsize>>);

impl Drop for Uses {
    fn drop(&mut self) {
        for users in &self.0 {
            users.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Buffers {
    pub(super) fn add(&self, address: usize, len: usize, mapping: Option<Mapping>) -> Result<()> {
        let end = address.checked_add(len).ok_or_else(|| Error::invalid("the memory does not end"))?;
        let mut map = lock(&self.map);
        if map.range(..end).next_back().is_some_and(|(start, b)| start + b.len > address) {
            return Err(Error::invalid(format!(
                "{address:#x}: some of these bytes are a buffer of the session already"
            )));
        }
        map.insert(address, Buffer { len, users: Arc::default(), mapping });
        self.count.store(map.len(), Ordering::Release);
        Ok(())
    }

    pub(super) fn remove(&self, address: usize, ours: bool) -> Result<()> {
        let mut map = lock(&self.map);
        match map.get(&address) {
            Some(b) if b.mapping.is_some() == ours => {
                if b.users.load(Ordering::Acquire) > 0 {
                    return Err(Error::busy("a request uses the buffer: wait for it"));
                }
            }
            Some(_) if ours => {
                return Err(Error::invalid("the program registered this memory: end that by iov_buffer_unregister"));
            }
            Some(_) => return Err(Error::invalid("the session allocated this memory: free it by iov_buffer_free")),
            None => {
                return Err(Error::invalid(format!("{address:#x} is not the beginning of a buffer of this session")));
            }
        }
        map.remove(&address);
        self.count.store(map.len(), Ordering::Release);
        Ok(())
    }

    /// The buffers that these stretches of memory touch, in use from now on.
    #[inline]
    pub(crate) fn uses(&self, lent: &[Lent]) -> Uses {
        if lent.is_empty() || self.count.load(Ordering::Acquire) == 0 {
            return Uses::default();
        }
        let map = lock(&self.map);
        let mut uses = Uses::default();
        for &(address, len) in lent {
            let end = address.saturating_add(len);
            for (_, buffer) in map.range(..end).rev().take_while(|(start, b)| *start + b.len > address) {
                buffer.users.fetch_add(1, Ordering::Relaxed);
                uses.0.push(buffer.users.clone());
            }
        }
        uses
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Leaves the memory of all buffers to the program: it may still use what it has not freed.
    pub(crate) fn leave(&self) {
        for (_, buffer) in std::mem::take(&mut *lock(&self.map)) {
            if let Some(mapping) = buffer.mapping {
                std::mem::forget(mapping);
            }
        }
    }
}
