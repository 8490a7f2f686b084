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

use kit::{LITMUS, ROWS};

#[test]
fn the_document_has_one_row_for_each_test() {
    LITMUS.has_exactly(|key| ROWS.contains(&key[0].as_str()), ROWS.len());
}
