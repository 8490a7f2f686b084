//! Compares targets with the catalog in a thread of its own, after an end that was not in order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use iov_catalog::{Checked, Service};
use iov_store::seam;

use crate::log;

/// Findings that are told one by one.
const TOLD: usize = 20;

/// How often somebody who waits looks whether it is to end, in nanoseconds.
const LOOK_NS: u64 = 50_000_000;

/// How long the end of the daemon waits for it, in nanoseconds.
const PATIENCE_NS: i64 = 5_000_000_000;

/// A check that may be running.
pub(crate) struct Check {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Check {
    /// Begins one if it is needed. `pause_ns`: for so long what is not finished counts as under way.
    pub(crate) fn begin(catalog: &Arc<Service>, pause_ns: i64) -> Check {
        let over = Arc::new(AtomicBool::new(false));
        if !catalog.needs_check() {
            return Check { over, thread: None };
        }
        let (catalog, stop) = (catalog.clone(), over.clone());
        let work = move || {
            // Nobody waits for it.
            seam::in_background();
            let rest = || {
                let until_ns = seam::monotonic_ns().saturating_add(pause_ns);
                while !stop.load(Relaxed) && seam::monotonic_ns() < until_ns {
                    seam::sleep(LOOK_NS);
                }
                stop.load(Relaxed)
            };
            if let Some(checked) = catalog.check(&rest, &|| stop.load(Relaxed)) {
                tell(&checked);
            }
        };
        let thread = seam::spawn("iovd-check", work);
        if let Err(e) = &thread {
            log::line(&format!("targets are not compared with the catalog, as no thread begins: {e}"));
        }
        Check { over, thread: thread.ok() }
    }

    /// Ends it, done or not. One that waits for a slow medium ends with the process: it only looks.
    pub(crate) fn end(self) {
        self.over.store(true, Relaxed);
        let until_ns = seam::monotonic_ns().saturating_add(PATIENCE_NS);
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && seam::monotonic_ns() < until_ns {
            seam::sleep(LOOK_NS / 10);
        }
    }
}

fn tell(checked: &Checked) {
    let Checked { objects, removed, unknown, missing, unasked } = checked;
    log::line(&format!(
        "the last end was not in order: {objects} objects were compared with the catalog; {removed} empty ones of no collection \
         were removed, {} with bytes belong to no collection, {} collections lack theirs",
        unknown.len(),
        missing.len()
    ));
    for (target, object, bytes) in unknown.iter().take(TOLD) {
        log::line(&format!(
            "target {target} has {bytes} bytes of {}, which no collection has: is the metadata an older copy? If not, remove \
             them there",
            object.collection
        ));
    }
    for (target, workspace, collection) in missing.iter().take(TOLD) {
        log::line(&format!(
            "target {target} lacks the bytes of collection {collection} in workspace {workspace}: restore them from a copy, or \
             delete it"
        ));
    }
    for target in unasked {
        log::line(&format!("target {target} was not compared, as it did not answer"));
    }
}
