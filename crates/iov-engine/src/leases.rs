//! The thread that renews a session's leases, whatever others are waiting for. None is started before it is needed.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use iov_store::{Catalog, OpCx, seam};
use iov_types::{
    Caller, Counters,
    catalog::{CatalogOp, Submission},
};

use crate::session::lock;

/// What it takes to renew a session's leases.
pub(crate) struct Renewal {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) caller: Caller,
    pub(crate) counters: Arc<Counters>,
    pub(crate) every_ns: i64,
}

/// What the thread shares with its session.
#[derive(Default)]
pub(crate) struct Shared {
    running: Mutex<bool>,
    changed: Condvar,
    /// The session is gone. Not under the lock: whoever says so may find that taken.
    ended: AtomicBool,
}

/// Leases to keep alive.
#[derive(Default)]
pub(crate) struct Leases(pub(crate) Arc<Shared>);

impl Leases {
    /// Renews the session's leases from now on: it holds something exclusively, or a lock (X1, O11).
    pub(crate) fn keep(&self, renewal: Renewal) {
        let mut running = lock(&self.0.running);
        if *running || renewal.every_ns >= i64::MAX / 4 {
            return;
        }
        let shared = self.0.clone();
        // Without a thread what is held ends with its lease, and its next use says so.
        *running = seam::spawn("iov-leases", move || run(&shared, &renewal)).is_ok();
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        // In a forked child the thread does not exist, and its lock may never be given back. Where the thread has it, it
        // sees the end at its next turn.
        drop(self.0.running.try_lock());
        self.0.changed.notify_all();
    }
}

fn run(shared: &Shared, renewal: &Renewal) {
    let mut last = seam::monotonic_ns();
    while !shared.ended.load(Ordering::SeqCst) {
        let left = renewal.every_ns - (seam::monotonic_ns() - last);
        if left > 0 {
            let running = lock(&shared.running);
            if !shared.ended.load(Ordering::SeqCst) {
                let left = Duration::from_nanos(left as u64);
                drop(shared.changed.wait_timeout(running, left).unwrap_or_else(PoisonError::into_inner));
            }
            continue;
        }
        last = seam::monotonic_ns();
        Counters::add(&renewal.counters.lease_renewals, 1);
        let cx = OpCx::new(renewal.caller.clone(), renewal.every_ns);
        // A renewal that fails shows when the hold is used: fenced, or unavailable.
        let _ = iov_store::ask(&*renewal.catalog, &cx, vec![CatalogOp::Renew], Submission::Each);
    }
}
