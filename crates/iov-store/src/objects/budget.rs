//! How much each stage holds, over all objects of the heap (B4).

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use iov_types::{Clause, Error, Result, Uuid};

/// Bytes held by each stage, and the most that one may hold.
pub(super) struct Budget {
    limit: u64,
    used: Mutex<HashMap<Uuid, u64>>,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Budget {
        Budget { limit, used: Mutex::default() }
    }

    /// Takes room for `more` bytes, or refuses.
    pub(super) fn take(&self, stage: Uuid, more: u64) -> Result<()> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let has = used.get(&stage).copied().unwrap_or(0);
        if has.saturating_add(more) > self.limit {
            return Err(Error::too_big(format!(
                "the batch or publication holds {has} bytes and would hold {more} more; a heap store stages at most {}: \
                 commit in between, or split it",
                self.limit
            ))
            .with_clause(Clause::B4));
        }
        used.insert(stage, has + more);
        Ok(())
    }

    /// Gives room back.
    pub(super) fn give(&self, stage: Uuid, less: u64) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(has) = used.get_mut(&stage) {
            *has = has.saturating_sub(less);
            if *has == 0 {
                used.remove(&stage);
            }
        }
    }
}
