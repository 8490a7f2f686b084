//! The one thread that goes on with requests while nobody waits. None is started before it is needed.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use iov_store::seam;

use crate::{request::RequestInner, session::lock};

#[derive(Default)]
struct Queue {
    requests: VecDeque<Weak<RequestInner>>,
    running: bool,
    /// When the thread looks again by itself, on the monotonic clock; 0 = it looks before it sleeps.
    looks_at: i64,
}

/// What the thread shares with its session.
#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// The session is gone. Not in the queue: whoever says so may find that locked.
    ended: AtomicBool,
    /// The request that it goes on with just now, by its address; 0 = none.
    at: AtomicUsize,
}

/// Requests to go on with.
#[derive(Default)]
pub(crate) struct Progress(Arc<Shared>);

/// The thread goes when it has had nothing to do for this long: an idle library costs nothing.
const IDLE_NS: i64 = 5_000_000_000;
/// How long whoever has started a request is left alone to wait for it.
const GRACE_NS: i64 = 100_000;
/// So often it looks for new requests while they come: to wake a thread costs whoever starts one more than all the rest, as the
/// other core has to be interrupted for it.
const TICK_NS: i64 = 50_000;
/// So long after the last new request it goes on looking, at a few per cent of a core.
const LINGER_NS: i64 = 5_000_000;
/// How long it receives answers before it looks for new requests.
const ROUND_NS: i64 = 20_000_000;

impl Progress {
    /// The thread is to go on with a request, now.
    pub(crate) fn push(&self, request: &Arc<RequestInner>) {
        self.push_within(request, 0);
    }

    /// The same within a moment: where the thread looks by itself, it is not woken.
    pub(crate) fn push_soon(&self, request: &Arc<RequestInner>) {
        self.push_within(request, TICK_NS);
    }

    fn push_within(&self, request: &Arc<RequestInner>, ns: i64) {
        let mut queue = lock(&self.0.queue);
        queue.requests.push_back(Arc::downgrade(request));
        if !queue.running || (queue.looks_at > 0 && queue.looks_at - seam::monotonic_ns() > ns) {
            self.run_soon(queue);
        }
    }

    /// Whether the thread runs, and so goes on with what was pushed.
    pub(crate) fn runs(&self) -> bool {
        lock(&self.0.queue).running
    }

    /// Whether it is busy with another request, which may take long.
    pub(crate) fn is_busy_with_another(&self, request: &RequestInner) -> bool {
        let at = self.0.at.load(Ordering::SeqCst);
        at != 0 && at != std::ptr::from_ref(request).addr()
    }

    fn run_soon(&self, mut queue: MutexGuard<'_, Queue>) {
        if !queue.running {
            let shared = self.0.clone();
            // Without a thread a request goes on when somebody waits for it: slower, not wrong.
            queue.running = seam::spawn("iov-progress", move || run(&shared)).is_ok();
        }
        drop(queue);
        self.0.changed.notify_one();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        // In a forked child the thread does not exist, and its lock may never be given back. Where the thread has it, it
        // sees the end at its next turn.
        drop(self.0.queue.try_lock());
        self.0.changed.notify_all();
    }
}

/// What the thread has under way. Letting a request go may end its session, and with that more: never under the lock.
#[derive(Default)]
struct Underway {
    /// Nobody else goes on with these.
    requests: Vec<Arc<RequestInner>>,
    /// These are left to whoever has started them, each until then.
    alone: VecDeque<(i64, Weak<RequestInner>)>,
}

impl Shared {
    /// Sleeps until it is woken, at most so long.
    fn sleep<'a>(&self, mut queue: MutexGuard<'a, Queue>, ns: i64) -> MutexGuard<'a, Queue> {
        queue.looks_at = seam::monotonic_ns().saturating_add(ns);
        let wait = self.changed.wait_timeout(queue, Duration::from_nanos(ns as u64));
        let (mut queue, _) = wait.unwrap_or_else(PoisonError::into_inner);
        queue.looks_at = 0;
        queue
    }

    fn drive(&self, request: &Arc<RequestInner>) -> bool {
        self.at.store(Arc::as_ptr(request).addr(), Ordering::SeqCst);
        let done = request.drive_in_passing();
        self.at.store(0, Ordering::SeqCst);
        done
    }
}

impl Underway {
    /// The time until a request is not left alone any more.
    fn alone_for(&self) -> Option<i64> {
        self.alone.front().map(|(until, _)| until - seam::monotonic_ns())
    }

    fn begin(&mut self, shared: &Shared, request: &Weak<RequestInner>) {
        let Some(request) = request.upgrade() else { return };
        if request.leave_alone() {
            self.alone.push_back((seam::monotonic_ns() + GRACE_NS, Arc::downgrade(&request)));
        // Two threads that drive the same request only get in each other's way.
        } else if !request.has_waiter()
            && !shared.drive(&request)
            && !self.requests.iter().any(|r| Arc::ptr_eq(r, &request))
        {
            self.requests.push(request);
        }
    }

    /// Receives answers for a while and goes on with what they are for.
    fn go_on(&self, shared: &Shared, first: &RequestInner) {
        let round = self.alone_for().map_or(ROUND_NS, |left| left.clamp(0, ROUND_NS));
        if !first.receive(round) {
            // Answers come from other threads and wake us; a deadline announces itself to nobody.
            let queue = lock(&shared.queue);
            if queue.requests.is_empty() && !shared.ended.load(Ordering::SeqCst) {
                drop(shared.sleep(queue, round));
            }
        }
        for request in &self.requests {
            shared.drive(request);
        }
    }
}

fn run(shared: &Shared) {
    let mut underway = Underway::default();
    let mut queue = lock(&shared.queue);
    // When a request came last.
    let mut last = seam::monotonic_ns();
    while !shared.ended.load(Ordering::SeqCst) {
        let due = underway.alone_for().is_some_and(|left| left <= 0);
        let next = if due { underway.alone.pop_front().map(|(_, r)| r) } else { queue.requests.pop_front() };
        if let Some(request) = next {
            drop(queue);
            underway.begin(shared, &request);
            last = seam::monotonic_ns();
            queue = lock(&shared.queue);
            continue;
        }
        // A waiter that gives up puts its request back into the queue.
        let is_over = |r: &Arc<RequestInner>| r.is_done() || r.has_waiter();
        if underway.requests.iter().any(is_over) {
            drop(queue);
            underway.requests.retain(|r| !is_over(r));
            queue = lock(&shared.queue);
            continue;
        }
        if let Some(first) = underway.requests.first() {
            drop(queue);
            underway.go_on(shared, first);
            queue = lock(&shared.queue);
            continue;
        }
        let quiet = seam::monotonic_ns() - last;
        if quiet >= IDLE_NS && underway.alone.is_empty() {
            break;
        }
        let pause = if quiet < LINGER_NS { TICK_NS } else { IDLE_NS };
        queue = shared.sleep(queue, underway.alone_for().map_or(pause, |left| left.clamp(0, pause)));
    }
    queue.running = false;
}

#[cfg(test)]
mod tests;
