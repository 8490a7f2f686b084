use iov_types::{Consistency, Controls};
use proptest::prelude::*;

use super::*;
use crate::{generate, resolve};

proptest! {
    #[test]
    fn strength_is_an_order(a in generate::effective(), b in generate::effective(), c in generate::effective()) {
        for control in Control::ALL {
            prop_assert!(at_least(*control, &a, &a));
            if at_least(*control, &a, &b) && at_least(*control, &b, &c) {
                prop_assert!(at_least(*control, &a, &c), "{:?}", control);
            }
        }
    }

    #[test]
    fn the_part_of_two_ranges_is_inside_both(a in generate::effective(), b in generate::effective()) {
        let (a, b) = (a.request_size, b.request_size);
        if let Some(part) = intersect(a, b) {
            prop_assert!(within(part, a) && within(part, b));
            prop_assert_eq!(intersect(b, a), Some(part));
        }
        prop_assert_eq!(intersect(a, Limits::default()).is_some(), upper(a) >= a.min);
    }
}

/// What has happened before a read R that another process does, and when, counted from the moment at which W completed.
#[derive(Clone, Copy, Debug)]
struct Situation {
    /// W completed before R started.
    completed: bool,
    /// After W the writer committed or closed, and that came before R by program order and messages.
    committed: bool,
    /// The writer closed, and the reader opened after that.
    closed_and_opened: bool,
    /// Nanoseconds between the completion of W and the start of R.
    elapsed: u64,
}

/// The clauses C1 to C4 as one line each: whether R must return W or newer. Otherwise both old and new are allowed.
fn must_see(level: Consistency, t: u64, s: Situation) -> bool {
    s.completed
        && match level {
            Consistency::Sequential => true,
            Consistency::Commit => s.committed,
            Consistency::Session => s.closed_and_opened,
            Consistency::Eventual => s.elapsed >= t,
        }
}

fn situations() -> impl Strategy<Value = Situation> {
    // A close commits (C3), and nothing is published before it has completed.
    (0u8..4, 0u64..20).prop_map(|(progress, elapsed)| Situation {
        completed: progress > 0,
        committed: progress > 1,
        closed_and_opened: progress > 2,
        elapsed,
    })
}

fn level() -> impl Strategy<Value = (Consistency, u64)> {
    (proptest::sample::select(Consistency::ALL), 1u64..15)
}

proptest! {
    #[test]
    fn c6_a_stronger_level_allows_no_outcome_that_a_weaker_one_forbids(
        (a, t) in level(), (b, u) in level(), s in situations(),
    ) {
        let (stronger, weaker) = if consistency(a, t) >= consistency(b, u) { ((a, t), (b, u)) } else { ((b, u), (a, t)) };
        // Where W was never published, C4 sets a time to which C2 and C3 set none. A writer that publishes is the
        // case that C6 compares: a level weaker than session must not show more to those who do all that it asks for.
        let compared = weaker.0 != Consistency::Eventual || stronger.0 == Consistency::Eventual || s.closed_and_opened;
        if compared && must_see(weaker.0, weaker.1, s) {
            prop_assert!(must_see(stronger.0, stronger.1, s), "{:?} {:?} {:?}", stronger, weaker, s);
        }
    }
}

#[test]
fn c6_the_litmus_table_grows_with_weaker_levels() {
    // Whether the old value is forbidden in T5, T6 and T7, before T has passed.
    let situation = |progress: u8| Situation {
        completed: progress > 0,
        committed: progress > 1,
        closed_and_opened: progress > 2,
        elapsed: 0,
    };
    let forbidden = |level| [1, 2, 3].map(|p| must_see(level, 5, situation(p)));
    assert_eq!(
        Consistency::ALL.iter().map(|l| forbidden(*l)).collect::<Vec<_>>(),
        [[true, true, true], [false, true, true], [false, false, true], [false, false, false],]
    );
}

#[test]
fn each_control_goes_from_weak_to_strong_as_documented() {
    let chains = [
        &[
            "consistency=eventual(9s)",
            "consistency=eventual(5s)",
            "consistency=session",
            "consistency=commit",
            "consistency=sequential",
        ][..],
        &["concurrency=shared", "concurrency=exclusive"],
        &["mutability=overwrite", "mutability=append", "mutability=immutable"],
        &["atomicity=none", "atomicity=unit(4KiB)", "atomicity=unit(8KiB)", "atomicity=publication"],
        &["persistence=volatile", "persistence=process", "persistence=durable", "persistence=replicated"],
        &["request_size=1..", "request_size=1..100", "request_size=10..100", "request_size=10"],
        &["collection_size=..9", "collection_size=..8", "collection_size=2..8"],
    ];
    let effective = |text: &str| {
        let mut c = Controls::default();
        crate::text::parse(&mut c, text).unwrap();
        resolve::create(&Controls::default(), &c, &generate::able()).unwrap()
    };
    for chain in chains {
        for (weak, strong) in chain.iter().zip(&chain[1..]) {
            let (w, s) = (effective(weak), effective(strong));
            assert!(all_at_least(&s, &w) && !all_at_least(&w, &s), "{weak} < {strong}");
        }
    }
    let (a, b) = (effective("atomicity=unit(4KiB)"), effective("atomicity=unit(47008)"));
    assert!(!all_at_least(&a, &b) && !all_at_least(&b, &a), "units that share no boundaries cannot be compared");
}
