//! Backends of three kinds behind one suite: a heap of this project exported as a table, the directory in C, and ones that do
//! everything wrong.

mod bad;
mod directory;
mod flat;
mod layout;

use std::{ffi::CStr, path::Path, process::Command, sync::Arc};

use iov_store::{Backend, Heap, conformance};
use iov_types::{Capability, Persistence, Result};
use proptest::prelude::*;

use crate::{Foreign, Setup, Source, abi::Ops, export, open};

/// A heap as a table. Its configuration is not looked at.
struct HeapBackend;

impl export::Exported for HeapBackend {
    const NAME: &'static CStr = c"heap";

    fn open(_: &str) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Heap::new(Capability {
            medium: "heap",
            durability: Persistence::Volatile,
            max_unit: iov_types::limits::MAX_UNIT,
            staging: true,
            stage_bytes: 1 << 30,
            once: true,
            bursty: true,
            targets: 1,
            incarnation: 7,
        })))
    }
}

static HEAP: Ops = export::table::<HeapBackend>();

fn setup(config: &str) -> Setup<'_> {
    Setup { config, stages: None, at_most: Persistence::Replicated, stage_bytes: 4 << 20, log: Box::new(|_, _| {}) }
}

fn heap() -> Foreign {
    open(&Source::Linked(&HEAP), setup("")).unwrap()
}

/// Compiles a C source against the header of this project.
fn compile(source: &Path, out: &Path, more: &[&str]) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/c/include");
    let status = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"])
        .args(more)
        .arg("-I")
        .arg(include)
        .arg("-o")
        .args([out, source])
        .status()
        .expect("cc runs");
    assert!(status.success(), "{} does not compile", source.display());
}

#[test]
fn a_linked_table_passes_the_backend_suite() {
    let target = heap();
    let can = target.capability();
    assert_eq!((can.medium, can.incarnation, can.staging), (Capability::RUN_TIME, 7, true));
    assert_eq!(target.medium().name(), "heap");
    conformance::backend(&|| Arc::new(heap()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn o6_a_linked_table_does_what_the_model_does(steps in testing_model::steps(80)) {
        // The model has no bound.
        let setup = Setup { stage_bytes: 1 << 30, ..setup("") };
        let target: Arc<dyn Backend> = Arc::new(open(&Source::Linked(&HEAP), setup).unwrap());
        if let Err(difference) = testing_model::compare_dense(&target, &steps) {
            prop_assert!(false, "{difference}");
        }
    }
}
