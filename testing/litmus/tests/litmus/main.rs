//! The litmus tests of SEMANTICS, section 3, by processes on a `file:` store.
#![allow(clippy::disallowed_methods, missing_docs)]

mod crash;
mod kit;
mod names;
mod operations;
mod order;
mod publication;
mod random;
mod rollback;
mod sharing;

use crash::CRASHES;
use kit::{LITMUS, ROWS};

#[test]
fn the_document_of_litmus_tests_has_no_row_that_no_test_tells() {
    LITMUS.has_rows_of(|key| ROWS.contains(&key[0].as_str()));
}

#[test]
fn the_document_of_crashes_has_no_row_that_no_test_tells() {
    let known = |key: &[String]| operations::names().chain(crash::OTHERS.iter().copied()).any(|name| name == key[0]);
    CRASHES.has_rows_of(known);
}
