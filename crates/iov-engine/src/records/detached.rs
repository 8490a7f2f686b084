//! Handles that were opened from a record, as long as the catalog does not know of them: what the session deletes itself, they
//! must go on reading (O10).

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, Weak},
};

use iov_types::Uuid;

use crate::{Collection, collection::CollectionInner, session::lock};

/// Workspace, collection, and the address of the handle, which only tells handles of one collection apart.
type Key = (Uuid, Uuid, usize);

/// The handles of one session.
#[derive(Default)]
pub(crate) struct Detached(Mutex<BTreeMap<Key, Weak<CollectionInner>>>);

fn key(ws: Uuid, uuid: Uuid, handle: &CollectionInner) -> Key {
    (ws, uuid, std::ptr::from_ref(handle).addr())
}

impl Detached {
    /// A handle is about to be opened from a record.
    pub(crate) fn add(&self, ws: Uuid, uuid: Uuid, handle: &Arc<CollectionInner>) {
        lock(&self.0).insert(key(ws, uuid, handle), Arc::downgrade(handle));
    }

    /// There is no such handle any more, or the catalog knows of it now.
    pub(crate) fn remove(&self, ws: Uuid, uuid: Uuid, handle: &CollectionInner) {
        lock(&self.0).remove(&key(ws, uuid, handle));
    }

    /// Those of one collection, or (`None`) of all of a workspace.
    pub(crate) fn of(&self, ws: Uuid, uuid: Option<Uuid>) -> Vec<Collection> {
        let first = (ws, uuid.unwrap_or(Uuid::NIL), 0);
        let last = (ws, uuid.unwrap_or(Uuid([0xff; 16])), usize::MAX);
        let handles = lock(&self.0);
        let of_it = handles.range((Bound::Included(first), Bound::Included(last)));
        of_it.filter_map(|(_, handle)| handle.upgrade().map(Collection)).collect()
    }
}
