use iov_types::{Capability, Clause, Controls, Kind, Layout, limits};
use proptest::prelude::*;

use super::*;
use crate::{Refusal, admit, generate, stores, strength::all_at_least};

fn controls(text: &str) -> Controls {
    let mut c = Controls::default();
    text::parse(&mut c, text).unwrap();
    c
}

fn created(text: &str) -> Effective {
    create(&Controls::default(), &controls(text), &generate::able()).unwrap_or_else(|r| panic!("{text}: {r}"))
}

fn opened(collection: &str, asked: &str) -> std::result::Result<String, Refusal> {
    open(&created(collection), &controls(asked), &generate::able()).map(|e| difference(&e, &created(collection)))
}

fn difference(a: &Effective, b: &Effective) -> String {
    let mut c = Controls::default();
    Control::ALL.iter().filter(|k| !k.same(a, b)).for_each(|k| k.copy(&Controls::from(a), &mut c));
    text::format(&c)
}

#[test]
fn the_defaults_are_the_first_values_of_the_table() {
    let nothing = Controls::default();
    let mem = create(&nothing, &nothing, &stores::mem(1)).unwrap();
    assert_eq!(mem, generate::posix());
    let file = create(&nothing, &nothing, &stores::file(1)).unwrap();
    assert_eq!(file, Effective { persistence: Persistence::Process, ..mem });
}

#[test]
fn what_is_asked_goes_before_the_workspace() {
    let workspace = controls("consistency=eventual(9s),atomicity=unit,request_size=1..10,persistence=durable@batch");
    let got = |asked: &str| create(&workspace, &controls(asked), &generate::able()).unwrap();
    let e = got("");
    assert_eq!((e.consistency, e.eventual_ns, e.point), (Consistency::Eventual, 9_000_000_000, Point::Batch));
    assert_eq!(got("consistency=commit").eventual_ns, 0);
    assert_eq!(got("consistency=eventual").eventual_ns, 9_000_000_000);
    assert_eq!(got("eventual=1s").eventual_ns, 1_000_000_000);
    assert_eq!(got("request_size=5..").request_size, iov_types::Limits { min: 5, max: 0 });
    assert_eq!(got("persistence=process").point, Point::Batch);
}

#[test]
fn parameters_have_their_defaults() {
    assert_eq!(created("consistency=eventual").eventual_ns, limits::EVENTUAL_NS);
    assert_eq!(created("temporality=bursty").drain_ns, crate::DEFAULT_DRAIN_NS);
    assert_eq!(created("atomicity=unit").atomic_unit, limits::DEFAULT_UNIT);
    assert_eq!(created("atomicity=unit,request_size=47008").atomic_unit, 47008);
    assert_eq!(created("atomicity=unit,request_size=2MiB").atomic_unit, limits::DEFAULT_UNIT);
    assert_eq!(created("atomicity=unit,request_size=1..2").atomic_unit, limits::DEFAULT_UNIT);
}

#[test]
fn a_parameter_without_its_value_is_an_error() {
    for (asked, clause, offer) in [
        ("eventual=5s", Clause::C4, "consistency=sequential"),
        ("consistency=commit,eventual=5s", Clause::C4, "consistency=commit"),
        ("unit=4KiB", Clause::M1, "atomicity=none"),
        ("drain=1s,temporality=once", Clause::H2, "temporality=once"),
        ("block=7", Clause::H2, "spatiality=any"),
    ] {
        let refusal = create(&Controls::default(), &controls(asked), &generate::able()).unwrap_err();
        assert_eq!((refusal.error.kind(), refusal.error.clause()), (Kind::Invalid, Some(clause)), "{asked}");
        assert_eq!(refusal.offer_text(), offer, "{asked}");
    }
    // In a workspace it waits for somebody who asks for the value.
    assert_eq!(create(&controls("unit=8KiB"), &controls("atomicity=unit"), &stores::mem(1)).unwrap().atomic_unit, 8192);
    assert_eq!(create(&controls("unit=8KiB"), &Controls::default(), &stores::mem(1)).unwrap().atomic_unit, 0);
}

#[test]
fn an_open_gets_the_same_or_stronger() {
    for (collection, asked, got) in [
        ("consistency=session", "consistency=commit", "consistency=commit"),
        ("consistency=commit", "consistency=session", "consistency=session"), // for reading
        ("consistency=eventual(5s)", "eventual=1s", "consistency=eventual(1s)"),
        ("", "concurrency=exclusive", "concurrency=exclusive"),
        ("concurrency=exclusive", "concurrency=shared", ""),
        ("mutability=immutable", "mutability=overwrite", ""),
        ("atomicity=publication", "atomicity=unit(4KiB)", ""),
        ("atomicity=unit(4KiB)", "atomicity=unit(8KiB)", "atomicity=unit(8KiB)"),
        ("atomicity=unit(8KiB)", "atomicity=unit(4KiB)", ""),
        ("atomicity=unit(8KiB)", "atomicity=none", ""),
        ("persistence=durable", "persistence=volatile", ""),
        ("persistence=process", "persistence=durable", "persistence=durable"),
        ("persistence=durable@close", "point=request", "point=request"),
        ("collection_size=..1GiB", "collection_size=..2GiB", ""),
        ("collection_size=..1GiB", "collection_size=4KiB..1MiB", "collection_size=4KiB..1MiB"),
        ("request_size=4KiB..", "request_size=..1MiB", "request_size=4KiB..1MiB"),
        ("spatiality=strided(8,4)", "spatiality=random,temporality=once", "temporality=once,spatiality=random"),
        ("spatiality=strided(8,4)", "block=2", "spatiality=strided(8,2)"),
        ("", "error=rollback", "error=rollback"),
    ] {
        assert_eq!(opened(collection, asked).unwrap(), got, "{collection:?} opened with {asked:?}");
    }
}

#[test]
fn an_open_is_refused_what_belongs_to_the_collection() {
    for (collection, asked, clause, offer) in [
        ("mutability=append", "mutability=immutable", Clause::M2, "mutability=append"),
        ("", "mutability=append", Clause::M4, "mutability=overwrite"),
        ("", "atomicity=unit", Clause::M1, "atomicity=none"),
        ("atomicity=unit(4KiB)", "atomicity=publication", Clause::M1, "atomicity=unit(4KiB)"),
        ("atomicity=unit(4KiB)", "unit=47008", Clause::M1, "atomicity=unit(4KiB)"),
        ("collection_size=..1MiB", "collection_size=2MiB..", Clause::H1, "collection_size=..1MiB"),
        (
            "request_size=4096",
            "request_size=47008,mutability=append",
            Clause::M4,
            "mutability=overwrite,request_size=4KiB",
        ),
        ("consistency=eventual(5s)", "error=rollback", Clause::B3, "error=stop"),
        ("consistency=session", "consistency=eventual(5s),error=rollback", Clause::B3, "error=stop"),
    ] {
        let refusal = opened(collection, asked).unwrap_err();
        assert_eq!(refusal.error.clause(), Some(clause), "{collection:?} opened with {asked:?}: {refusal}");
        assert_eq!(refusal.error.kind(), Kind::Refused);
        assert_eq!(refusal.offer_text(), offer, "{collection:?} opened with {asked:?}");
    }
    let too_large = opened("atomicity=unit(47008)", "unit=4700800").unwrap_err();
    assert_eq!((too_large.error.kind(), too_large.offer_text()), (Kind::Invalid, "atomicity=unit(47008)"));
    let contradiction = opened("", "request_size=2..1").unwrap_err();
    assert_eq!((contradiction.error.kind(), contradiction.offer_text()), (Kind::Invalid, "leave request_size out"));
}

#[test]
fn x1_a_batch_takes_no_hold() {
    let refusal = batch(&created(""), &controls("concurrency=exclusive"), &generate::able()).unwrap_err();
    assert_eq!((refusal.error.clause(), refusal.offer_text()), (Some(Clause::X1), "concurrency=shared"));
    let held = created("concurrency=exclusive");
    assert_eq!(
        batch(&held, &controls("concurrency=exclusive,point=batch"), &generate::able()).unwrap().point,
        Point::Batch
    );
}

#[test]
fn a_reader_with_a_weaker_level_does_not_write() {
    let levels = ["sequential", "commit", "session", "eventual(1s)", "eventual(5s)"];
    let clauses = [Clause::C1, Clause::C2, Clause::C3, Clause::C4, Clause::C4];
    for (i, (level, clause)) in levels.iter().zip(clauses).enumerate() {
        let collection = created(&format!("consistency={level}"));
        for (j, asked) in levels.iter().enumerate() {
            let handle = open(&collection, &controls(&format!("consistency={asked}")), &generate::able()).unwrap();
            assert_eq!(Control::Consistency.value(&handle), *asked);
            match writes_allowed(&collection, &handle) {
                Ok(()) => assert!(j <= i, "{asked} writes to {level}"),
                Err(e) => {
                    assert!(j > i, "{asked} does not write to {level}");
                    assert_eq!((e.kind(), e.clause()), (Kind::Refused, Some(clause)));
                    assert!(e.detail().ends_with(&format!("; offer: consistency={level}")), "{e}");
                }
            }
        }
    }
}

/// A collection that was really created on that capability, and the capability.
fn collection() -> impl Strategy<Value = (Effective, Capability)> {
    (generate::sensible(), generate::capability()).prop_map(|(asked, capability)| {
        let e = create(&Controls::default(), &asked, &capability).unwrap_or_else(|refusal| refusal.offer);
        (e, capability)
    })
}

proptest! {
    #[test]
    fn what_a_create_grants_is_admitted_and_stays(
        workspace in generate::controls(), asked in generate::controls(), capability in generate::capability(),
    ) {
        match create(&workspace, &asked, &capability) {
            Ok(e) => {
                prop_assert_eq!(&admit(&e, None, &capability).unwrap().effective, &e);
                prop_assert_eq!(create(&workspace, &Controls::from(&e), &capability).unwrap(), e.clone());
                prop_assert!(asked.consistency.is_none_or(|v| v == e.consistency));
                prop_assert!(asked.persistence.is_none_or(|v| v == e.persistence));
                prop_assert!(asked.atomic_unit == 0 || asked.atomic_unit == e.atomic_unit);
            }
            Err(refusal) => {
                prop_assert!(admit(&refusal.offer, None, &capability).is_ok());
                let taken = create(&Controls::default(), &Controls::from(&refusal.offer), &capability);
                prop_assert_eq!(taken.unwrap(), refusal.offer);
            }
        }
    }

    #[test]
    fn an_open_never_gets_less_than_the_collection_or_than_it_asked(
        (collection, capability) in collection(), asked in generate::sensible(), of_batch in any::<bool>(),
    ) {
        let resolve = if of_batch { batch } else { open };
        match resolve(&collection, &asked, &capability) {
            Ok(e) => {
                for control in Control::ALL.iter().filter(|c| **c != Control::Consistency) {
                    prop_assert!(strength::at_least(*control, &e, &collection), "{:?}", control);
                }
                let mut wanted = asked.clone();
                crate::control::fill(&mut wanted, &Controls::from(&collection));
                prop_assert!(all_at_least(&e, &with_defaults(&wanted, collection.persistence)));
                prop_assert_eq!(writes_allowed(&collection, &e).is_ok(), strength::at_least(Control::Consistency, &e, &collection));
                prop_assert_eq!(resolve(&collection, &Controls::from(&e), &capability).unwrap(), e.clone());
                prop_assert_eq!(&admit(&e, None, &capability).unwrap().effective, &e);
            }
            Err(refusal) => {
                prop_assert!(admit(&refusal.offer, Some(&Layout::default()), &capability).is_ok());
                let taken = resolve(&collection, &Controls::from(&refusal.offer), &capability);
                prop_assert_eq!(taken.unwrap(), refusal.offer);
            }
        }
    }

    #[test]
    fn asking_for_nothing_gets_the_collection((collection, capability) in collection()) {
        prop_assert_eq!(open(&collection, &Controls::default(), &capability).unwrap(), collection);
    }

    /// Asking for more never gets less: `b` asks for something, `a` for the same but where `more` is stronger.
    #[test]
    fn resolve_is_monotone(
        (collection, capability) in collection(), b in generate::sensible(), more in generate::sensible(),
    ) {
        let full = |c: &Controls| {
            let mut c = c.clone();
            crate::control::fill(&mut c, &Controls::from(&collection));
            with_defaults(&c, collection.persistence)
        };
        let mut a = b.clone();
        for control in Control::ALL.iter().filter(|c| c.is_set(&more)) {
            let mut with = a.clone();
            control.copy(&more, &mut with);
            if strength::at_least(*control, &full(&with), &full(&b)) {
                a = with;
            }
        }
        // A unit comes from the request size where none is asked: that is another promise, not more of the same.
        prop_assume!(all_at_least(&full(&a), &full(&b)));
        if let (Ok(a), Ok(b)) = (open(&collection, &a, &capability), open(&collection, &b, &capability)) {
            prop_assert!(all_at_least(&a, &b));
        }
    }

    #[test]
    fn a_create_gives_what_was_asked_or_nothing(
        b in generate::sensible(), more in generate::sensible(), capability in generate::capability(),
    ) {
        let nothing = Controls::default();
        let mut a = b.clone();
        Control::ALL.iter().filter(|c| c.is_set(&more)).for_each(|c| c.copy(&more, &mut a));
        let wanted = |c: &Controls| with_defaults(c, capability.durability.min(Persistence::Process));
        if let (Ok(got_a), Ok(got_b)) = (create(&nothing, &a, &capability), create(&nothing, &b, &capability)) {
            for control in Control::ALL {
                if strength::at_least(*control, &wanted(&a), &wanted(&b)) {
                    prop_assert!(strength::at_least(*control, &got_a, &got_b), "{:?}", control);
                }
            }
        }
    }
}
