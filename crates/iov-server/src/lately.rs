//! Identities that were noted last: enough of them that whoever asks about one comes in time.

use std::collections::{HashSet, VecDeque};

use iov_types::Uuid;

/// How many.
const MOST: usize = 1 << 16;

/// The last of many.
#[derive(Default)]
pub(crate) struct Lately {
    all: HashSet<Uuid>,
    order: VecDeque<Uuid>,
}

impl Lately {
    pub(crate) fn note(&mut self, uuid: Uuid) {
        if self.all.insert(uuid) {
            self.order.push_back(uuid);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }

    pub(crate) fn forget(&mut self, uuid: Uuid) {
        if self.all.remove(&uuid) {
            self.order.retain(|noted| *noted != uuid);
        }
    }

    pub(crate) fn has(&self, uuid: Uuid) -> bool {
        self.all.contains(&uuid)
    }
}
