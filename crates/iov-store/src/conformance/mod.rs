//! The suites that every implementation of the traits must pass, shipped with the traits.
//!
//! A suite takes a way to make a fresh, empty implementation and panics with the names of the checks that failed. The
//! checks a capability does not call for are left out. A name begins with the clause or litmus test that it checks.

mod append;
mod bytes;
mod freeze;
mod guard;
mod kit;
mod life;
mod metadata;
mod metadata_random;
mod order;
mod race;
mod reopen;
mod stage;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

pub use kit::{Answered, Probe, Rng, run_many};

use crate::{Backend, MetadataStore};

/// Makes a fresh, empty target. Its stages should hold at most 16 MiB, so that the bound can be reached (B4).
pub type MakeBackend<'a> = &'a dyn Fn() -> Arc<dyn Backend>;

/// Makes a fresh, empty metadata engine.
pub type MakeStore<'a> = &'a dyn Fn() -> Arc<dyn MetadataStore>;

/// Opens the metadata engine in a directory, and makes it if it is not there.
pub type MakeStoreAt<'a> = &'a dyn Fn(&Path) -> Arc<dyn MetadataStore>;

/// One check of a suite.
pub struct Check<F> {
    /// The clause, and what is checked.
    pub name: &'static str,
    needs: fn(&iov_types::Capability) -> bool,
    body: F,
}

/// A check of a target.
pub type BackendCheck = Check<fn(MakeBackend<'_>)>;
/// A check of a metadata engine.
pub type StoreCheck = Check<fn(MakeStore<'_>)>;
/// A check of a metadata engine that outlives its process.
pub type ReopenCheck = Check<fn(MakeStoreAt<'_>, &Path)>;

/// What a check needs; nothing if nothing is said.
macro_rules! needs {
    () => {
        |_| true
    };
    ($needs:expr) => {
        $needs
    };
}
use needs;

/// Makes a list of checks out of functions; `if` names what a target must be capable of.
macro_rules! checks {
    ($kind:ty: $($name:ident $(if $needs:expr)?),* $(,)?) => {{
        let list: Vec<$kind> = vec![$(crate::conformance::Check {
            name: stringify!($name),
            needs: crate::conformance::needs!($($needs)?),
            body: $name,
        }),*];
        list
    }};
}
use checks;

impl<F> Check<F> {
    /// Runs the body; a panic comes back as a text that begins with the name.
    fn outcome(&self, run: impl FnOnce(&F)) -> Result<(), String> {
        catch_unwind(AssertUnwindSafe(|| run(&self.body))).map_err(|payload| {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text");
            format!("{}: {text}", self.name)
        })
    }
}

fn report(suite: &str, failures: Vec<String>) {
    assert!(failures.is_empty(), "{} of the {suite} checks failed:\n{}", failures.len(), failures.join("\n"));
}

/// Every check of a target.
pub fn backend_checks() -> Vec<BackendCheck> {
    [
        bytes::checks(),
        order::checks(),
        life::checks(),
        append::checks(),
        guard::checks(),
        stage::checks(),
        freeze::checks(),
        race::checks(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Runs all checks that the target's capability calls for.
pub fn backend(make: MakeBackend<'_>) {
    let capability = make().capability().clone();
    let called_for = backend_checks().into_iter().filter(|c| (c.needs)(&capability));
    report("backend", called_for.filter_map(|c| c.outcome(|body| body(make)).err()).collect());
}

/// Runs one check of a target by name, whatever its capability says.
pub fn backend_check(name: &str, make: MakeBackend<'_>) {
    let check = backend_checks().into_iter().find(|c| c.name == name);
    let check = check.unwrap_or_else(|| panic!("no backend check is named {name}"));
    report(name, check.outcome(|body| body(make)).err().into_iter().collect());
}

/// Every check of a metadata engine.
pub fn metadata_checks() -> Vec<StoreCheck> {
    [metadata::checks(), metadata_random::checks()].into_iter().flatten().collect()
}

/// Runs all checks of a metadata engine.
pub fn metadata(make: MakeStore<'_>) {
    report("metadata", metadata_checks().iter().filter_map(|c| c.outcome(|body| body(make)).err()).collect());
}

/// Runs one check of a metadata engine by name.
pub fn metadata_check(name: &str, make: MakeStore<'_>) {
    let check = metadata_checks().into_iter().find(|c| c.name == name);
    let check = check.unwrap_or_else(|| panic!("no metadata check is named {name}"));
    report(name, check.outcome(|body| body(make)).err().into_iter().collect());
}

/// Runs all checks of a metadata engine that outlives its process, each in an empty folder below `scratch`.
pub fn reopen(make_at: MakeStoreAt<'_>, scratch: &Path) {
    let run = |check: &ReopenCheck| check.outcome(|body| body(make_at, &scratch.join(check.name))).err();
    report("reopen", reopen::checks().iter().filter_map(run).collect());
}
