//! What waits for a connection that broke, and the thread that makes it anew: starting and testing a request never wait
//! for a daemon (O8).

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use iov_store::{OpCx, seam};
use iov_types::{Clause, Error, Kind, Outcome, Result};

use crate::link::{Link, Up, lock};

type OnUp = Box<dyn FnOnce(Result<Arc<Up>>) + Send>;

/// How long, at first and at most, one connection is tried for before others are looked after.
const SLICE_NS: (i64, i64) = (200_000_000, 5_000_000_000);

struct Job {
    cx: OpCx,
    lane: u32,
    /// When it was begun: what is sent again comes before what was begun behind it.
    begun: u64,
    go: OnUp,
}

/// What is to be sent once there is a connection, in the order in which it was begun.
#[derive(Default)]
pub(crate) struct Queue {
    jobs: VecDeque<Job>,
    /// A thread takes care of it; what comes now waits behind the rest of its lane.
    mending: bool,
    /// The lane of which it is sending something just now.
    sending: Option<u32>,
}

impl Queue {
    fn put(&mut self, job: Job) {
        let behind = self.jobs.iter().rposition(|other| other.begun <= job.begun).map_or(0, |at| at + 1);
        self.jobs.insert(behind, job);
    }
}

fn late() -> Error {
    Error::timeout("the store's daemon does not answer; see its log, or end it and try again").with_clause(Clause::O8)
}

impl Link {
    /// Calls `go` with a connection that works: now if there is one, else when it is made anew, or cannot be by the
    /// deadline of `cx`. Does not wait for that.
    pub(crate) fn with_up(self: &Arc<Link>, cx: &OpCx, go: OnUp) {
        self.with_lane(0, self.begin(), cx, go);
    }

    /// The number of something that begins now, by which it is sent in order however often.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed)
    }

    /// The same for a lane, which has a connection of its own, perhaps, and for what was `begun` before.
    pub(crate) fn with_lane(self: &Arc<Link>, lane: u32, begun: u64, cx: &OpCx, go: OnUp) {
        let up = self.current_of(lane);
        // Not under the lock: whoever still waits for a connection that ended comes back here.
        up.iter().for_each(|up| up.connection.look());
        let mut queue = lock(&self.queue);
        let waits = queue.sending == Some(lane) || queue.jobs.iter().any(|job| job.lane == lane);
        if let Some(up) = up.filter(|up| !waits && !up.connection.is_broken()) {
            drop(queue);
            return go(Ok(up));
        }
        if let Err(e) = self.check_open() {
            drop(queue);
            return go(Err(e));
        }
        queue.put(Job { cx: cx.clone(), lane, begun, go });
        if std::mem::replace(&mut queue.mending, true) {
            return;
        }
        drop(queue);
        let link = self.clone();
        if seam::spawn("iov-mend", move || link.mend()).is_err() {
            // Slower, not wrong.
            self.mend();
        }
    }

    /// A connection that works; waits until it is made anew.
    pub(crate) fn up(self: &Arc<Link>, cx: &OpCx) -> Result<Arc<Up>> {
        let slot = Arc::new((Mutex::new(None), Condvar::new()));
        let to = slot.clone();
        self.with_up(
            cx,
            Box::new(move |up| {
                *lock(&to.0) = Some(up);
                to.1.notify_all();
            }),
        );
        let mut arrived = lock(&slot.0);
        loop {
            if let Some(up) = arrived.take() {
                return up;
            }
            let left = cx.left_ns();
            if left == 0 {
                return Err(late());
            }
            let wait = Duration::from_nanos(left as u64);
            arrived = slot.1.wait_timeout(arrived, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn mend(&self) {
        loop {
            let cx = {
                let mut queue = lock(&self.queue);
                let Some(longest) = queue.jobs.iter().map(|job| &job.cx).max_by_key(|cx| cx.deadline_ns) else {
                    queue.mending = false;
                    break;
                };
                longest.clone()
            };
            let up = self.current().map_or_else(|| self.renew(&cx), Ok);
            // Those that came meanwhile may have longer.
            let in_time = up.is_ok() || cx.left_ns() > 0;
            let mut lanes: Vec<u32> = lock(&self.queue).jobs.iter().map(|job| job.lane).collect();
            lanes.sort_unstable();
            lanes.dedup();
            for lane in lanes {
                match &up {
                    Ok(first) if lane > 0 => match self.try_lane(lane, first) {
                        Some(up) => self.let_go(lane, &up, in_time),
                        None => self.let_go(lane, &Err(late()), false),
                    },
                    up => self.let_go(lane, up, in_time),
                }
            }
            self.mended_or_not.notify_all();
        }
        self.mended_or_not.notify_all();
    }

    /// Connects a lane, for a part of the time that is left: others must not wait for one that cannot be connected. `None`:
    /// not yet.
    fn try_lane(&self, lane: u32, first: &Arc<Up>) -> Option<Result<Arc<Up>>> {
        let of_lane = |job: &&Job| job.lane == lane;
        let cx = {
            let queue = lock(&self.queue);
            queue.jobs.iter().filter(of_lane).map(|job| &job.cx).max_by_key(|cx| cx.deadline_ns)?.clone()
        };
        let patience_ns = &self.lanes.lane(lane).patience_ns;
        // Longer from time to time: the other side may be far away.
        let slice_ns = patience_ns.load(Ordering::Relaxed).clamp(SLICE_NS.0, SLICE_NS.1);
        let slice = OpCx { deadline_ns: cx.deadline_ns.min(seam::monotonic_ns() + slice_ns), ..cx.clone() };
        match self.connect_lane(lane, first, &slice) {
            Err(e) if matches!(e.kind(), Kind::Unavailable | Kind::Timeout) && cx.left_ns() > 0 => {
                patience_ns.store(slice_ns * 2, Ordering::Relaxed);
                None
            }
            // First the first one, once more.
            Err(e) if e.kind() == Kind::Stale && first.connection.is_broken() => None,
            up => {
                patience_ns.store(0, Ordering::Relaxed);
                Some(up)
            }
        }
    }

    /// Lets the jobs of a lane go, in order; if not `in_time`, only those whose time is up. One at a time: while one is sent, the
    /// others stay where their deadlines are seen. What breaks again, or comes meanwhile, is in the queue for the next turn, and
    /// so are the others once the connection has broken: nothing passes what was sent over it.
    fn let_go(&self, lane: u32, up: &Result<Arc<Up>>, in_time: bool) {
        let jobs = lock(&self.queue).jobs.iter().filter(|job| job.lane == lane).count();
        for _ in 0..jobs {
            if up.as_ref().is_ok_and(|up| up.connection.is_broken()) {
                return;
            }
            let job = {
                let mut queue = lock(&self.queue);
                let next = queue.jobs.iter().position(|job| job.lane == lane && (in_time || job.cx.left_ns() == 0));
                let job = next.and_then(|at| queue.jobs.remove(at));
                queue.sending = job.is_some().then_some(lane);
                job
            };
            let Some(job) = job else { return };
            let late = up.is_ok() && job.cx.left_ns() == 0;
            (job.go)(if late { Err(self::late()) } else { up.clone() });
            lock(&self.queue).sending = None;
        }
    }

    /// Whether it is being made anew.
    pub fn is_mending(&self) -> bool {
        lock(&self.queue).mending
    }

    /// Waits a while for the connection if it is being made anew; `false`: it is not.
    pub(crate) fn wait_mended(&self, timeout_ns: i64) -> bool {
        let queue = lock(&self.queue);
        if !queue.mending {
            return false;
        }
        if timeout_ns > 0 {
            let first = queue.jobs.iter().map(|job| job.cx.left_ns()).min().unwrap_or(i64::MAX);
            let wait = Duration::from_nanos(timeout_ns.min(first).max(0) as u64);
            drop(self.mended_or_not.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner));
        }
        true
    }

    /// Tells all who wait for a connection that none is to be had for now.
    pub fn give_up(&self) {
        let jobs = std::mem::take(&mut lock(&self.queue).jobs);
        for job in jobs {
            (job.go)(Err(
                Error::unavailable("the daemon of a target cannot be reached").with_outcome(Outcome::NotApplied)
            ));
        }
    }

    /// Tells those whose time is up.
    pub(crate) fn expire(&self) {
        if self.has_siblings() {
            self.siblings().iter().for_each(|sibling| sibling.expire());
        }
        self.tickets.expire();
        self.grants_asked.expire();
        self.sums_asked.expire();
        for lane in self.lanes.all() {
            lane.gate.take_out(|part| part.is_late()).into_iter().for_each(|part| part.give_up(late()));
        }
        let mut queue = lock(&self.queue);
        if queue.jobs.is_empty() {
            return;
        }
        let jobs = std::mem::take(&mut queue.jobs);
        let (over, left): (VecDeque<Job>, VecDeque<Job>) = jobs.into_iter().partition(|job| job.cx.left_ns() == 0);
        queue.jobs = left;
        drop(queue);
        over.into_iter().for_each(|job| (job.go)(Err(late())));
    }
}

#[cfg(test)]
mod tests;
