//! Places where a test lets a process fail or die. Always compiled in; while none is armed, each costs one relaxed load.
//!
//! Armed by [`arm`], or by `IOV_FAIL_POINT=name:n[:kill]` in the environment of the process that opens the first target:
//! at the n-th time that `name` is passed, the operation fails, or the process kills itself (`kill`).

use std::sync::{
    Mutex, Once, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use iov_types::{Error, Outcome, Result};

/// The environment variable.
pub const VARIABLE: &str = "IOV_FAIL_POINT";

/// Every place, in the order in which an operation passes them. A number says how many steps of it are done.
pub const POINTS: &[&str] = &[
    "append.0.begin",
    "append.1.half_written",
    "append.2.written",
    "append.3.committed",
    "unit.0.begin",
    "unit.1.payload",
    "unit.2.journaled",
    "unit.3.half_applied",
    "unit.4.applied",
    "unit.5.retired",
    "stage.0.begin",
    "stage.1.half_written",
    "stage.2.written",
    "freeze.0.begin",
    "freeze.1.planned",
    "freeze.2.revoked",
    "publish.0.begin",
    "publish.1.decided",
    "publish.2.half_applied",
    "publish.3.applied",
    "publish.4.renamed",
    "publish.5.recorded",
    "publish.6.version",
    "publish.7.half_removed",
    "publish.8.removed",
    "seal.0.begin",
    "seal.1.revoked",
    "seal.2.sealed",
    "fence.0.begin",
    "fence.1.revoked",
    "fence.2.fenced",
    "relocate.0.begin",
    "relocate.1.half_copied",
    "relocate.2.copied",
    "relocate.3.renamed",
    "sidecar.0.begin",
    "sidecar.1.first_slot",
    "sidecar.2.second_slot",
    "remove.0.begin",
    "remove.1.data",
    "remove.2.sidecar",
    "sums.0.opened",
    "sums.1.summed",
    "sums.2.committed",
    "sync.data",
    "sync.stage",
];

struct Plan {
    name: &'static str,
    left: u64,
    kill: bool,
}

static ARMED: AtomicBool = AtomicBool::new(false);
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);
static ENVIRONMENT: Once = Once::new();

/// Arms one point: `name:n` or `name:n:kill`. An empty text disarms.
pub fn arm(text: &str) -> Result<()> {
    let plan = if text.is_empty() { None } else { Some(parse(text)?) };
    let mut slot = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
    ARMED.store(plan.is_some(), Ordering::Relaxed);
    *slot = plan;
    Ok(())
}

fn parse(text: &str) -> Result<Plan> {
    let wrong = |why: &str| Error::invalid(format!("fail point {text:?} {why}; it is \"name:n\" or \"name:n:kill\""));
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let name = POINTS.iter().find(|p| **p == name).ok_or_else(|| wrong("names no fail point"))?;
    let left = parts.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    let left = left.ok_or_else(|| wrong("does not say at the how many-th time"))?;
    match (parts.next(), parts.next()) {
        (None, _) => Ok(Plan { name, left, kill: false }),
        (Some("kill"), None) => Ok(Plan { name, left, kill: true }),
        _ => Err(wrong("ends with something unknown")),
    }
}

/// Arms what the environment says, once per process.
pub(crate) fn arm_from_environment() -> Result<()> {
    let mut result = Ok(());
    ENVIRONMENT.call_once(|| {
        if let Some(text) = std::env::var_os(VARIABLE) {
            result = arm(&text.to_string_lossy());
        }
    });
    result
}

/// Passes a point.
#[inline]
pub(crate) fn point(name: &'static str) -> Result<()> {
    if ARMED.load(Ordering::Relaxed) { hit(name) } else { Ok(()) }
}

/// Whether a point is armed: lets a writer stop half-way there, which it never does otherwise.
#[inline]
pub(crate) fn is_armed(name: &'static str) -> bool {
    ARMED.load(Ordering::Relaxed)
        && PLAN.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|p| p.name == name)
}

#[cold]
fn hit(name: &'static str) -> Result<()> {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list of fail points");
    let mut slot = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(plan) = slot.as_mut().filter(|p| p.name == name) else { return Ok(()) };
    plan.left -= 1;
    if plan.left > 0 {
        return Ok(());
    }
    if plan.kill {
        // Nothing of this process runs after the system call.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .map_err(|e| Error::internal(format!("cannot kill this process: {e}")))?;
    }
    *slot = None;
    ARMED.store(false, Ordering::Relaxed);
    Err(Error::unavailable(format!("failed at the fail point {name}")).with_outcome(Outcome::Unknown))
}

#[cfg(test)]
mod tests;
