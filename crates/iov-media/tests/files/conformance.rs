//! The suite that every target must pass, on files.

use std::{cell::RefCell, path::Path, sync::Arc};

use iov_media::{Options, Way};
use iov_store::{Backend, conformance};

use crate::kit::{memory, open_with, scratch};

/// Stages of 16 MiB, so that the bound can be reached; few objects in memory, so that they are read from disk again.
fn options() -> Options {
    Options { stage_bytes: 16 << 20, objects: 2, ..Options::default() }
}

fn suite(scratch: &Path, options: &Options) {
    let kept = RefCell::new(Vec::new());
    conformance::backend(&|| {
        let directory = tempfile::tempdir_in(scratch).expect("a directory");
        let files = open_with(directory.path(), options.clone()).expect("a target");
        kept.borrow_mut().push(directory);
        Arc::new(files) as Arc<dyn Backend>
    });
}

#[test]
fn files_pass_the_suite_on_disk() {
    suite(scratch(), &options());
}

#[test]
fn files_past_the_cache_pass_the_suite() {
    for way in [Way::Direct, Way::Ring] {
        suite(scratch(), &Options { way, ..options() });
    }
}

#[test]
fn files_pass_the_suite_with_few_descriptors() {
    suite(scratch(), &Options { descriptors: 8, ..options() });
}

#[test]
fn segments_pass_the_suite() {
    match memory() {
        Some(memory) => suite(memory, &Options { shared: Some(64 << 20), ..options() }),
        None => println!("skipped: there is no /dev/shm"),
    }
}

#[test]
fn files_pass_the_suite_in_memory() {
    match memory() {
        Some(memory) => suite(memory, &options()),
        None => println!("skipped: there is no /dev/shm"),
    }
}
