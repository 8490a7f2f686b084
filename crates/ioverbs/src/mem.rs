//! `mem:` stores: facts and bytes in this process, gone with it. `mem:` is one store for the whole process, `mem:NAME`
//! another.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use iov_catalog::{Options, Service};
use iov_engine::{Session, SessionAttr, Sides};
use iov_store::{Heap, MemoryStore, seam};
use iov_types::Result;

use crate::identity;

#[derive(Clone)]
struct Store {
    sides: Sides,
    generation: u64,
}

static STORES: Mutex<Option<HashMap<String, Store>>> = Mutex::new(None);

fn make() -> Result<Store> {
    let heap = Arc::new(Heap::new(iov_semantics::stores::mem(1)));
    let options = Options {
        single_user: true,
        lease_ns: i64::MAX,
        inline_bytes: 0,
        store_uuid: seam::new_uuid(),
        uid: identity::caller().uid,
    };
    let service = Service::open(Arc::new(MemoryStore::new()), heap.clone(), options)?;
    Ok(Store {
        sides: Sides { catalog: Arc::new(service), backend: heap },
        generation: seam::fork_generation(),
    })
}

pub(crate) fn open(url: &str, name: &str, attr: SessionAttr) -> Result<Session> {
    let generation = seam::fork_generation();
    // A child of fork must not touch what other threads of its parent may have locked: it gets a store of its own.
    let mut stores = match STORES.try_lock() {
        Ok(stores) => stores,
        Err(std::sync::TryLockError::Poisoned(p)) => p.into_inner(),
        Err(std::sync::TryLockError::WouldBlock) => STORES.lock().unwrap_or_else(PoisonError::into_inner),
    };
    let stores = stores.get_or_insert_with(HashMap::new);
    let store = match stores.get(name) {
        Some(store) if store.generation == generation => store.clone(),
        _ => {
            let store = make()?;
            if let Some(old) = stores.insert(name.into(), store.clone()) {
                // The parent's: dropping it here would take locks that nobody will ever give back.
                std::mem::forget(old);
            }
            store
        }
    };
    Ok(Session::new(url, store.sides, identity::caller(), attr, Arc::default()))
}
