//! `mem:` stores: facts and bytes in this process, gone with it. `mem:` is one store for the whole process, `mem:NAME`
//! another; `mem:NAME?storage=WHAT` says where its bytes lie, if whoever opens it first says so.

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
use iov_store::{Backend, MemoryStore, seam};
use iov_types::{Error, Result};

use crate::{identity, storage};

/// The stores of one process, by name.
struct Stores {
    generation: u64,
    /// With what was said of where their bytes lie.
    by_name: Mutex<HashMap<String, (Sides, String)>>,
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

/// A catalog whose bytes are at a target, and nothing in it yet.
pub(crate) fn catalog(target: Arc<dyn Backend>) -> Result<Arc<Service>> {
    let options = Options {
        single_user: true,
        lease_ns: i64::MAX,
        inline_bytes: 0,
        store_uuid: seam::new_uuid(),
        uid: identity::caller().uid,
    };
    Service::open(Arc::new(MemoryStore::new()), target, options).map(Arc::new)
}

fn make(storage: Option<&str>) -> Result<Sides> {
    let backend = storage.map_or_else(|| storage::target("heap"), storage::target)?;
    Ok(Sides { catalog: catalog(backend.clone())?, backend })
}

pub(crate) fn open(url: &str, rest: &str, attr: SessionAttr) -> Result<Session> {
    let (name, storage) = match rest.split_once('?') {
        None => (rest, None),
        Some((name, query)) => match query.split_once('=') {
            Some(("storage", what)) => (name, Some(what)),
            _ => return Err(Error::invalid(format!("{url}: behind the question mark comes storage=WHAT"))),
        },
    };
    let by_name = || stores().by_name.lock().unwrap_or_else(PoisonError::into_inner);
    let known = by_name().get(name).cloned();
    let (sides, there) = match known {
        Some(known) => known,
        None => {
            // Outside of the lock: a backend may open another store while it begins. Whoever was faster has made it.
            let made = (make(storage)?, storage.unwrap_or("heap").to_owned());
            by_name().entry(name.into()).or_insert(made).clone()
        }
    };
    // Who says nothing takes what there is.
    if storage.is_some_and(|asked| asked != there) {
        return Err(Error::exists(format!("{url}: in this process the store has storage={there} already")));
    }
    Ok(Session::new(url, sides, identity::caller(), attr, Arc::default()))
}
