//! The heap target against the model.

use std::sync::Arc;

use iov_store::{Backend, Heap};
use iov_types::{Capability, Persistence, limits::MAX_UNIT};
use proptest::prelude::*;

fn heap() -> Arc<dyn Backend> {
    Arc::new(Heap::new(Capability {
        medium: "heap",
        durability: Persistence::Volatile,
        max_unit: MAX_UNIT,
        staging: true,
        stage_bytes: 1 << 30, // the model has no bound
        once: true,
        bursty: true,
        targets: 1,
        incarnation: 1,
    }))
}

/// As many as the environment says, else few enough for every run of the tests.
fn config() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { config.cases } else { 60 };
    ProptestConfig { cases, ..config }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn o6_the_heap_does_what_the_model_does(steps in testing_model::steps(120)) {
        if let Err(difference) = testing_model::compare(&heap(), &steps) {
            prop_assert!(false, "{difference}");
        }
    }
}
