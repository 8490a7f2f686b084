//! Each clause has a mutant that breaks it, and each check must catch one: so the checks are proven to be able to fail.

mod broken;
mod bytes;
mod guards;
mod stages;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};

use broken::{Mutant, heap};
use iov_store::conformance;

/// Panics are the point of this test: keep them quiet. One at a time, for the hook is everybody's.
fn quietly<T>(body: impl FnOnce() -> T) -> T {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = body();
    std::panic::set_hook(loud);
    result
}

/// Whether a check fails on this mutant. A race may be missed once, but not again and again.
fn is_caught(mutant: &Mutant) -> bool {
    (0..5).any(|_| catch_unwind(AssertUnwindSafe(|| conformance::backend_check(mutant.check, &*mutant.make))).is_err())
}

fn all() -> Vec<Mutant> {
    [bytes::mutants(), guards::mutants(), stages::mutants()].into_iter().flatten().collect()
}

#[test]
fn every_mutant_is_caught() {
    let survivors = quietly(|| {
        let survivors: Vec<_> = all().into_iter().filter(|m| !is_caught(m)).collect();
        survivors.iter().map(|m| format!("{}: a target that {}", m.check, m.what)).collect::<Vec<_>>()
    });
    assert!(survivors.is_empty(), "not caught by\n{}", survivors.join("\n"));
}

#[test]
fn every_check_catches_a_mutant() {
    let caught: Vec<_> = all().iter().map(|m| m.check).collect();
    let idle: Vec<_> = conformance::backend_checks().iter().map(|c| c.name).filter(|n| !caught.contains(n)).collect();
    assert!(idle.is_empty(), "checks that were never seen to fail: {idle:?}");
}

#[test]
fn the_wrapper_itself_breaks_nothing() {
    conformance::backend(&|| broken::wrap(heap(4 << 20), Box::new(|target, op, memory| target.run(op, memory))));
}

#[test]
fn the_model_catches_mutants_as_well() {
    use proptest::{
        strategy::{Strategy, ValueTree},
        test_runner::TestRunner,
    };
    let mut runner = TestRunner::deterministic();
    let sequences: Vec<_> =
        (0..120).map(|_| testing_model::steps(120).new_tree(&mut runner).expect("a sequence").current()).collect();
    let differs = |m: &Mutant| sequences.iter().any(|steps| testing_model::compare(&(m.make)(), steps).is_err());
    let subtle = [
        "o6_truncated_bytes_do_not_come_back",
        "o6_punched_bytes_are_gone",
        "o6_zero_bytes_change_nothing",
        "o6_allocated_space_reads_as_zeros",
        "o6_copies_what_is_there",
        "m2_a_seal_holds_against_stages",
        "x1_an_older_epoch_publishes_nothing",
        "h1_the_limit_holds_at_publication",
        "m4_a_dropped_append_can_be_repeated",
        "b3_appends_get_their_place_at_publication",
        "b3_a_stage_reads_what_it_has_staged",
    ];
    let all = all();
    let survivors: Vec<_> = quietly(|| {
        let wanted = all.iter().filter(|m| subtle.contains(&m.check));
        wanted.filter(|m| !catch_unwind(AssertUnwindSafe(|| differs(m))).unwrap_or(true)).map(|m| m.what).collect()
    });
    assert!(survivors.is_empty(), "the model does not notice a target that {survivors:?}");
}
