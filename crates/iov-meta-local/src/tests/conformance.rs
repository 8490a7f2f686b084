//! The suites that every metadata engine must pass.

use iov_store::conformance;

use super::kit::{Place, open, shared, tiny};
use crate::Options;

#[test]
fn the_store_passes_the_metadata_suite() {
    let place = Place::new("suite");
    let n = std::cell::Cell::new(0);
    conformance::metadata(&|| {
        n.set(n.get() + 1);
        shared(open(&place.path().join(n.get().to_string()), &Options::default()))
    });
}

#[test]
fn a_store_that_moves_every_commit_into_tables_passes_the_metadata_suite() {
    let place = Place::new("suite-tiny");
    let n = std::cell::Cell::new(0);
    // A buffer for each commit, and no cache: everything is read from tables.
    let options = Options { write_buffer: 1, record_cache: 0, ..tiny() };
    conformance::metadata(&|| {
        n.set(n.get() + 1);
        shared(open(&place.path().join(n.get().to_string()), &options))
    });
}

#[test]
fn p7_the_store_passes_the_reopen_suite() {
    let place = Place::new("reopen");
    conformance::reopen(&|at| shared(open(at, &Options::default())), &place.path().join("large"));
    conformance::reopen(&|at| shared(open(at, &tiny())), &place.path().join("tiny"));
}
