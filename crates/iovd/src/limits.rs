//! The limits of resources that a daemon runs under.

use iov_types::{Error, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const NO_LIMIT: Rlimit = Rlimit { current: None, maximum: None };

/// Descriptors that a connection takes.
const PER_CONNECTION: usize = 3;

/// Takes off the limits of whoever happened to start this daemon: it serves others too, and must not end where one user's
/// shell would. Returns sentences for the log about what cannot be taken off.
pub(crate) fn shed() -> Vec<String> {
    let limits = [
        (Resource::As, "RLIMIT_AS"),
        (Resource::Data, "RLIMIT_DATA"),
        (Resource::Cpu, "RLIMIT_CPU"),
        (Resource::Fsize, "RLIMIT_FSIZE"),
    ];
    let mut left = Vec::new();
    for (resource, name) in limits {
        let maximum = getrlimit(resource).maximum;
        // Only the superuser may go beyond the maximum.
        if setrlimit(resource, NO_LIMIT).is_err() {
            let _ = setrlimit(resource, Rlimit { current: maximum, maximum });
        }
        if let Some(limit) = getrlimit(resource).current {
            left.push(format!(
                "whoever started this daemon has limited it, {name} = {limit}: that cannot be taken off"
            ));
        }
    }
    left
}

/// Below so many descriptors a daemon refuses to serve: it would take connections and have nothing left for their requests.
const FEWEST: u64 = 64;
/// What the superuser takes where the maximum that was inherited is lower.
const PLENTY: u64 = 4096;

/// Takes as many descriptors as the system gives, and tells how many connections they are enough for.
pub(crate) fn connections(on_demand: bool) -> Result<usize> {
    if on_demand && getrlimit(Resource::Nofile).maximum.is_some_and(|most| most < PLENTY) {
        // Only the superuser may.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(PLENTY), maximum: Some(PLENTY) });
    }
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // A limit that cannot be raised is lived with.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current };
    let limit = limit.unwrap_or(u64::MAX).min(1 << 20);
    if limit < FEWEST {
        return Err(Error::exhausted(format!(
            "the store's daemon needs {FEWEST} descriptors at least, and whoever starts it may have {limit}: raise the limit \
             (ulimit -n), or start iovd from elsewhere"
        )));
    }
    let limit = limit as usize;
    // Each has a socket, a process to watch, and a file now and then; half is for the store.
    Ok((limit / 2 / PER_CONNECTION).clamp(4, 8192))
}
