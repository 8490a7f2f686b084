//! Facts: workspaces, collections, groups, metadata, leases, locks.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex},
};

use iov_types::{
    Capability, Error, Result,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use crate::{ChangeView, OpCx};

/// Replies in the order of the operations. After a failure under `UntilFailure`, `DryRun` or `All` it ends with the operation that failed.
/// The outer error is of the submission as a whole (transport, commit, a forgotten batch id).
pub type Answer = Result<Vec<Result<CatalogReply>>>;

/// Called once with the answer, from any thread, perhaps before `submit` returns.
pub type OnAnswer = Box<dyn FnOnce(Answer) + Send>;

/// What a catalog can do, and the store behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogCapability {
    /// What its targets can do; controls are admitted against it.
    pub targets: Capability,
    /// Most operations in one submission.
    pub max_ops: usize,
    /// Whether only one user can ever reach it (A2).
    pub single_user: bool,
    /// Collections up to this many bytes live in their record; 0 = none do.
    pub inline_bytes: u64,
    /// How long exclusive holds and locks outlive a session that does not renew them, in nanoseconds (X1, O11);
    /// `i64::MAX` where a session cannot be lost sight of.
    pub lease_ns: i64,
}

/// A way from this process to a daemon of its store.
#[derive(Clone, Debug)]
pub struct Route {
    /// The target that it leads to; 0 = the catalog, and the first target.
    pub target: u32,
    /// By what: `unix`, `tcp` or `tls`.
    pub by: &'static str,
    /// The address of the other side; empty for a socket of this machine.
    pub at: String,
    /// Connections that there are.
    pub connections: u32,
    /// The shortest of a few round trips, in nanoseconds; why there is none.
    pub round_trip_ns: Result<u64>,
}

/// The typed metadata side. Invariants and permissions are checked behind it, never by clients (A1).
pub trait Catalog: Send + Sync {
    /// What it can do.
    fn capability(&self) -> &CatalogCapability;

    /// Takes operations, in order, in one request.
    fn submit(&self, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission, done: OnAnswer);

    /// Gives a remote catalog the chance to receive answers in this thread, for at most `timeout_ns` (0 = without
    /// blocking). `false`: nothing to drive here, answers come from other threads.
    fn drive(&self, timeout_ns: i64) -> bool {
        let _ = timeout_ns;
        false
    }

    /// Which connection to the catalog there is, counted from its first: what was learned over another one may not hold
    /// any more. One in this process is never lost.
    fn connection(&self) -> u64 {
        0
    }

    /// Where the catalog says which facts change, for those of its host who remember them. `None`: nobody can tell, or there is no
    /// connection to it just now. Another one than before: nothing holds that was remembered by the one before.
    fn changes(&self) -> Option<Arc<ChangeView>> {
        None
    }

    /// The ways to the store's daemons, each of them tried; none to what is in this process.
    fn routes(&self, _cx: &OpCx) -> Vec<Route> {
        Vec::new()
    }

    /// Adds the connection on which answers come to a set of epoll, once for each connection, edge-triggered: whoever
    /// looks at the set hears that there is something to [`Catalog::drive`]. Without a connection there is nothing to add.
    fn watch(&self, _set: &OwnedFd) {}
}

/// Submits and waits for the answer, until the context's deadline.
pub fn ask(catalog: &dyn Catalog, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission) -> Answer {
    let slot = Arc::new((Mutex::new(None), Condvar::new()));
    let to = slot.clone();
    catalog.submit(
        cx,
        ops,
        how,
        Box::new(move |answer| {
            *to.0.lock().expect("no panic while held") = Some(answer);
            to.1.notify_all();
        }),
    );
    loop {
        let guard = slot.0.lock().map_err(|_| Error::internal("an answer panicked"))?;
        let mut guard = guard;
        if let Some(answer) = guard.take() {
            return answer;
        }
        let left = cx.left_ns();
        if left == 0 {
            return Err(Error::timeout("the catalog did not answer in time; it may have done what was asked")
                .with_outcome(iov_types::Outcome::Unknown));
        }
        drop(guard);
        if !catalog.drive(left) {
            let guard = slot.0.lock().map_err(|_| Error::internal("an answer panicked"))?;
            if guard.is_none() {
                let wait = std::time::Duration::from_nanos(left as u64);
                drop(slot.1.wait_timeout(guard, wait).map_err(|_| Error::internal("an answer panicked"))?);
            }
        }
    }
}
