//! The one thread that goes on with requests while nobody waits, and renews leases. None is started before it is needed.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    time::Duration,
};

use iov_store::{Catalog, OpCx, seam};
use iov_types::{
    Caller, Counters,
    catalog::{CatalogOp, Submission},
};

use crate::{request::RequestInner, session::lock};

#[derive(Default)]
struct Queue {
    requests: VecDeque<Weak<RequestInner>>,
    running: bool,
    ended: bool,
    renews: Option<Renewal>,
}

/// What it takes to renew a session's leases.
#[derive(Clone)]
pub(crate) struct Renewal {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) caller: Caller,
    pub(crate) counters: Arc<Counters>,
    pub(crate) every_ns: i64,
}

/// Requests to go on with.
#[derive(Default)]
pub(crate) struct Progress(Arc<(Mutex<Queue>, Condvar)>);

/// The thread goes when it has had nothing to do for this long: an idle library costs nothing.
const IDLE: Duration = Duration::from_secs(5);
/// How long whoever has started a request is left alone to wait for it.
const GRACE: Duration = Duration::from_micros(100);
/// How long it receives answers before it looks for new requests.
const ROUND_NS: i64 = 20_000_000;

impl Progress {
    pub(crate) fn push(&self, request: &Arc<RequestInner>) {
        let mut queue = lock(&self.0.0);
        queue.requests.push_back(Arc::downgrade(request));
        self.run_soon(queue);
    }

    /// Renews the session's leases from now on: it holds something exclusively, or a lock (X1, O11).
    pub(crate) fn renew(&self, renewal: Renewal) {
        let mut queue = lock(&self.0.0);
        if queue.renews.is_none() && renewal.every_ns < i64::MAX / 4 {
            queue.renews = Some(renewal);
            self.run_soon(queue);
        }
    }

    fn run_soon(&self, mut queue: std::sync::MutexGuard<'_, Queue>) {
        if !queue.running {
            let shared = self.0.clone();
            // Without a thread a request goes on when somebody waits for it: slower, not wrong.
            queue.running = seam::spawn("iov-progress", move || run(&shared)).is_ok();
        }
        drop(queue);
        self.0.1.notify_one();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // In a forked child the thread does not exist, and its lock may never be given back.
        if let Ok(mut queue) = self.0.0.try_lock() {
            queue.ended = true;
        }
        self.0.1.notify_all();
    }
}

fn run(shared: &(Mutex<Queue>, Condvar)) {
    let mut waiting: Vec<Arc<RequestInner>> = Vec::new();
    let mut last_renewal = seam::monotonic_ns();
    let mut queue = lock(&shared.0);
    loop {
        if queue.ended {
            break;
        }
        if let Some(request) = queue.requests.pop_front() {
            // The last one to let a request go ends more than that: not under the lock.
            drop(queue);
            let Some(request) = request.upgrade() else {
                queue = lock(&shared.0);
                continue;
            };
            if request.leave_alone() {
                queue = lock(&shared.0);
                queue.requests.push_back(Arc::downgrade(&request));
                drop(shared.1.wait_timeout(queue, GRACE).unwrap_or_else(PoisonError::into_inner));
            // Two threads that drive the same request only get in each other's way.
            } else if !request.has_waiter() && !request.drive() && !waiting.iter().any(|r| Arc::ptr_eq(r, &request)) {
                waiting.push(request);
            }
            queue = lock(&shared.0);
            continue;
        }
        let renews = queue.renews.clone();
        if let Some(renewal) = &renews
            && seam::monotonic_ns() - last_renewal >= renewal.every_ns
        {
            drop(queue);
            last_renewal = seam::monotonic_ns();
            renew(renewal);
            queue = lock(&shared.0);
            continue;
        }
        // A waiter that gives up puts its request back into the queue.
        waiting.retain(|r| !r.is_done() && !r.has_waiter());
        if let Some(request) = waiting.first() {
            drop(queue);
            if !request.receive(ROUND_NS) {
                // Answers come from other threads and wake us; a deadline announces itself to nobody.
                let queue = lock(&shared.0);
                if queue.requests.is_empty() && !queue.ended {
                    let pause = Duration::from_nanos(ROUND_NS as u64);
                    drop(shared.1.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner));
                }
            }
            for request in &waiting {
                request.drive();
            }
            queue = lock(&shared.0);
            continue;
        }
        let pause = match &renews {
            Some(renewal) => {
                let next = renewal.every_ns - (seam::monotonic_ns() - last_renewal);
                Duration::from_nanos(next.max(1_000_000) as u64)
            }
            None => IDLE,
        };
        let (back, timeout) = shared.1.wait_timeout(queue, pause).unwrap_or_else(PoisonError::into_inner);
        queue = back;
        if timeout.timed_out() && queue.requests.is_empty() && queue.renews.is_none() {
            break;
        }
    }
    queue.running = false;
}

fn renew(renewal: &Renewal) {
    Counters::add(&renewal.counters.lease_renewals, 1);
    let cx = OpCx::new(renewal.caller.clone(), renewal.every_ns);
    // A renewal that fails shows when the hold is used: fenced, or unavailable.
    let _ = iov_store::ask(&*renewal.catalog, &cx, vec![CatalogOp::Renew], Submission::Each);
}
