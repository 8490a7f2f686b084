//! The one thread that goes on with requests while nobody waits. None is started before it is needed.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    time::Duration,
};

use iov_store::seam;

use crate::{request::RequestInner, session::lock};

#[derive(Default)]
struct Queue {
    requests: VecDeque<Weak<RequestInner>>,
    running: bool,
    ended: bool,
}

/// Requests to go on with.
#[derive(Default)]
pub(crate) struct Progress(Arc<(Mutex<Queue>, Condvar)>);

/// The thread goes when it has had nothing to do for this long: an idle library costs nothing.
const IDLE: Duration = Duration::from_secs(5);

impl Progress {
    pub(crate) fn push(&self, request: &Arc<RequestInner>) {
        let mut queue = lock(&self.0.0);
        queue.requests.push_back(Arc::downgrade(request));
        if !queue.running {
            let shared = self.0.clone();
            // Without a thread the request goes on when somebody waits for it: slower, not wrong.
            queue.running = seam::spawn("iov-progress", move || run(&shared)).is_ok();
        }
        drop(queue);
        self.0.1.notify_one();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        lock(&self.0.0).ended = true;
        self.0.1.notify_all();
    }
}

fn run(shared: &(Mutex<Queue>, Condvar)) {
    let mut queue = lock(&shared.0);
    loop {
        if let Some(request) = queue.requests.pop_front() {
            drop(queue);
            if let Some(request) = request.upgrade() {
                request.drive();
            }
            queue = lock(&shared.0);
            continue;
        }
        if queue.ended {
            break;
        }
        let (back, timeout) = shared.1.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
        queue = back;
        if timeout.timed_out() && queue.requests.is_empty() {
            break;
        }
    }
    queue.running = false;
}
