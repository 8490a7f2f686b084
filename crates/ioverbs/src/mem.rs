//! `mem:` stores: facts and bytes in this process, gone with it. `mem:` is one store for the whole process, `mem:NAME`
//! another.

use std::{
    collections::HashMap,
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicPtr, Ordering},
    },
};

use iov_catalog::{Options, Service};
use iov_engine::{Session, SessionAttr, Sides};
use iov_store::{Heap, MemoryStore, seam};
use iov_types::Result;

use crate::identity;

/// The stores of one process, by name.
struct Stores {
    generation: u64,
    by_name: Mutex<HashMap<String, Sides>>,
}

static STORES: AtomicPtr<Stores> = AtomicPtr::new(ptr::null_mut());

/// Those of this process. A child of fork must not touch what other threads of its parent may have locked: it gets stores
/// of its own, and the parent's stay as they are, for ever.
fn stores() -> &'static Stores {
    let generation = seam::fork_generation();
    let mut current = STORES.load(Ordering::Acquire);
    loop {
        // SAFETY: what was put there is never freed.
        match unsafe { current.as_ref() } {
            Some(stores) if stores.generation == generation => return stores,
            _ => {}
        }
        let new = Box::into_raw(Box::new(Stores { generation, by_name: Mutex::default() }));
        match STORES.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => current = new,
            Err(now) => {
                // SAFETY: another thread was faster, and nobody has seen ours.
                drop(unsafe { Box::from_raw(new) });
                current = now;
            }
        }
    }
}

/// A catalog whose bytes are in a heap, and nothing in it yet.
pub(crate) fn catalog(heap: &Arc<Heap>) -> Result<Arc<Service>> {
    let options = Options {
        single_user: true,
        lease_ns: i64::MAX,
        inline_bytes: 0,
        store_uuid: seam::new_uuid(),
        uid: identity::caller().uid,
    };
    Service::open(Arc::new(MemoryStore::new()), heap.clone(), options).map(Arc::new)
}

fn make() -> Result<Sides> {
    let heap = Arc::new(Heap::new(iov_semantics::stores::mem(1)));
    Ok(Sides { catalog: catalog(&heap)?, backend: heap })
}

pub(crate) fn open(url: &str, name: &str, attr: SessionAttr) -> Result<Session> {
    let mut by_name = stores().by_name.lock().unwrap_or_else(PoisonError::into_inner);
    let sides = match by_name.get(name) {
        Some(sides) => sides.clone(),
        None => by_name.entry(name.into()).or_insert(make()?).clone(),
    };
    drop(by_name);
    Ok(Session::new(url, sides, identity::caller(), attr, Arc::default()))
}
