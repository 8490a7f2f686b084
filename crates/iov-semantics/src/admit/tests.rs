use iov_types::{Concurrency, Controls, Kind, Mutability, Point, Redundancy};
use proptest::prelude::*;

use super::*;
use crate::{Publish, SyncPoint, generate, refusals, resolve, stores, strength, text};

fn contract(asked: &str) -> Contract {
    let mut c = Controls::default();
    text::parse(&mut c, asked).unwrap();
    let able = generate::able();
    let e = resolve::create(&Controls::default(), &c, &able).unwrap_or_else(|r| panic!("{asked}: {r}"));
    admit(&e, None, &able).unwrap()
}

fn refused(change: impl FnOnce(&mut Effective), capability: &Capability) -> Refusal {
    let mut e = generate::posix();
    change(&mut e);
    admit(&e, None, capability).expect_err("it cannot be had")
}

#[test]
fn a_contract_says_what_the_engine_must_do() {
    use Publish::*;
    for (asked, publish) in [
        ("consistency=sequential", AtOnce),
        ("consistency=sequential,atomicity=publication", AtCommit),
        ("consistency=commit", AtCommit),
        ("consistency=session", AtClose),
        ("consistency=session,atomicity=publication", AtClose),
        ("consistency=eventual", Within),
    ] {
        assert_eq!(contract(asked).publish, publish, "{asked}");
    }
    for (asked, sync) in [
        ("persistence=volatile@request", SyncPoint::Never),
        ("persistence=process@request", SyncPoint::Never),
        ("persistence=durable@request", SyncPoint::Request),
        ("persistence=durable@batch", SyncPoint::Batch),
        ("persistence=durable@close", SyncPoint::Close),
        ("persistence=replicated@explicit", SyncPoint::Explicit),
    ] {
        assert_eq!(contract(asked).sync, sync, "{asked}");
    }
    let plain = contract("");
    assert!(plain.read_ahead && plain.cacheable && !plain.once && !plain.staged && !plain.exclusive);
    assert_eq!((plain.unit, plain.max_size, plain.drain_ns), (0, 0, 0));
    assert!(contract("atomicity=publication").staged);
    assert_eq!(contract("atomicity=unit(47008)").unit, 47008);
    assert!(contract("concurrency=exclusive").exclusive);
    assert!(contract("mutability=append").append_only);
    assert!(contract("mutability=immutable").immutable);
    assert_eq!(contract("collection_size=..1MiB").max_size, 1 << 20);
    let once = contract("temporality=once");
    assert!(once.once && !once.cacheable);
    assert_eq!(contract("temporality=bursty(7s)").drain_ns, 7_000_000_000);
    assert!(!contract("spatiality=random").read_ahead && !contract("spatiality=strided(8,4)").read_ahead);
    assert!(contract("spatiality=contiguous").read_ahead);
}

#[test]
fn p3_p4_a_level_beyond_the_medium_is_refused() {
    for (level, clause) in
        [(Persistence::Process, Clause::P2), (Persistence::Durable, Clause::P3), (Persistence::Replicated, Clause::P4)]
    {
        let refusal = refused(|e| e.persistence = level, &stores::mem(1));
        assert_eq!((refusal.error.kind(), refusal.error.clause()), (Kind::Refused, Some(clause)));
        assert_eq!(refusal.offer_text(), "persistence=volatile");
    }
    let refusal = refused(|e| e.persistence = Persistence::Replicated, &stores::file(1));
    assert_eq!((refusal.error.clause(), refusal.offer_text()), (Some(Clause::P4), "persistence=durable"));
}

#[test]
fn m1_units_and_publications_need_a_target_that_can() {
    let able = generate::able();
    let unit = |n: u64| move |e: &mut Effective| (e.atomicity, e.atomic_unit) = (Atomicity::Unit, n);
    for n in [0, limits::MAX_UNIT + 1, u64::MAX] {
        let refusal = refused(unit(n), &able);
        assert_eq!((refusal.error.kind(), refusal.error.clause()), (Kind::Invalid, Some(Clause::M1)), "{n}");
    }
    assert_eq!(refused(unit(u64::MAX), &able).offer_text(), "atomicity=unit(1MiB)");
    let small = Capability { max_unit: 512, staging: false, ..able.clone() };
    let refusal = refused(unit(4096), &small);
    assert_eq!((refusal.error.kind(), refusal.offer_text()), (Kind::Refused, "atomicity=unit(512)"));
    let publication = |e: &mut Effective| e.atomicity = Atomicity::Publication;
    assert_eq!(refused(publication, &small).offer_text(), "atomicity=unit(512)");
    let none = Capability { max_unit: 0, ..small };
    assert_eq!(refused(publication, &none).offer_text(), "atomicity=none");
    let refusal = refused(unit(1), &none);
    assert_eq!((refusal.error.clause(), refusal.offer_text()), (Some(Clause::M1), "atomicity=none"));
}

#[test]
fn h2_hints_that_a_target_cannot_follow_are_refused() {
    let able = generate::able();
    let refusal = refused(|e| e.temporality = Temporality::Bursty, &stores::file(1));
    assert_eq!((refusal.error.clause(), refusal.offer_text()), (Some(Clause::H2), "temporality=multiple"));
    let refusal = refused(|e| e.temporality = Temporality::Once, &Capability { once: false, ..able.clone() });
    assert_eq!(refusal.error.clause(), Some(Clause::H2));
    for (stride, block) in [(0, 0), (0, 4), (4, 0), (4, 8)] {
        let strided = |e: &mut Effective| (e.spatiality, e.stride, e.block) = (Spatiality::Strided, stride, block);
        let refusal = refused(strided, &able);
        assert_eq!((refusal.error.kind(), refusal.offer_text()), (Kind::Invalid, "spatiality=any"));
    }
}

#[test]
fn h1_empty_ranges_are_invalid() {
    let refusal = refused(|e| e.collection_size = Limits { min: 8192, max: 4096 }, &generate::able());
    assert_eq!((refusal.error.kind(), refusal.error.clause()), (Kind::Invalid, Some(Clause::H1)));
    assert_eq!(refusal.offer_text(), "collection_size=4KiB..8KiB");
}

#[test]
fn b3_rollback_needs_one_point_and_staging() {
    let rollback = |e: &mut Effective| e.on_error = OnError::Rollback;
    let eventual = |e: &mut Effective| {
        rollback(e);
        e.consistency = Consistency::Eventual;
    };
    let able = generate::able();
    for refusal in [refused(eventual, &able), refused(rollback, &Capability { staging: false, ..able.clone() })] {
        assert_eq!((refusal.error.kind(), refusal.error.clause()), (Kind::Refused, Some(Clause::B3)));
        assert_eq!(refusal.offer_text(), "error=stop");
    }
}

#[test]
fn layouts_that_cannot_be_had_are_refused() {
    let plain = Layout::default();
    let (mirror, erasure) = (Some(Redundancy::Mirror), Some(Redundancy::Erasure));
    let name = || Some("fast".to_owned());
    for (layout, kind, clause, offer) in [
        (Layout { targets: 2, ..plain.clone() }, Kind::Refused, Some(Clause::O2), "layout with targets=1"),
        (
            Layout { redundancy: mirror, k: 2, ..plain.clone() },
            Kind::Refused,
            Some(Clause::P4),
            "layout with redundancy=none",
        ),
        (
            Layout { redundancy: erasure, k: 4, m: 2, ..plain.clone() },
            Kind::Refused,
            Some(Clause::P4),
            "layout with redundancy=none",
        ),
        (
            Layout { redundancy: mirror, k: 1, ..plain.clone() },
            Kind::Invalid,
            Some(Clause::P4),
            "layout with redundancy=none",
        ),
        (
            Layout { redundancy: erasure, k: 4, ..plain.clone() },
            Kind::Invalid,
            Some(Clause::P4),
            "layout with redundancy=none",
        ),
        (Layout { k: 2, ..plain.clone() }, Kind::Invalid, Some(Clause::P4), "layout with redundancy=none"),
        (Layout { backend: name(), ..plain.clone() }, Kind::Unsupported, None, "layout without a backend"),
        (Layout { policy: name(), ..plain.clone() }, Kind::Unsupported, None, "layout without a placement policy"),
    ] {
        let refusal = admit(&generate::posix(), Some(&layout), &stores::file(1)).unwrap_err();
        assert_eq!((refusal.error.kind(), refusal.error.clause()), (kind, clause), "{layout:?}");
        assert_eq!(refusal.offer_text(), offer, "{layout:?}");
    }
    let fine =
        Layout { targets: 1, chunk_size: 4096, redundancy: Some(Redundancy::None), revision: 7, ..plain.clone() };
    assert!(admit(&generate::posix(), Some(&fine), &stores::file(1)).is_ok());

    let able = generate::able();
    assert!(
        admit(&generate::posix(), Some(&Layout { redundancy: erasure, k: 6, m: 2, ..plain.clone() }), &able).is_ok()
    );
    let wide = Layout { redundancy: erasure, k: 7, m: 2, ..plain.clone() };
    assert_eq!(admit(&generate::posix(), Some(&wide), &able).unwrap_err().error.clause(), Some(Clause::P4));
    let replicated = Effective { persistence: Persistence::Replicated, ..generate::posix() };
    assert!(admit(&replicated, None, &able).is_ok());
    assert_eq!(admit(&replicated, Some(&fine), &able).unwrap_err().error.clause(), Some(Clause::P4));
}

#[test]
fn an_offer_shows_everything_that_differs() {
    let e = Effective {
        persistence: Persistence::Durable,
        on_error: OnError::Rollback,
        consistency: Consistency::Eventual,
        request_size: Limits { min: 2, max: 1 },
        ..generate::posix()
    };
    let refusal = admit(&e, None, &stores::mem(1)).unwrap_err();
    assert_eq!(refusal.reason(), "request_size=2..1 is empty: 2 is more than 1");
    assert_eq!(refusal.offer_text(), "persistence=volatile,request_size=1..2,error=stop");
    assert!(refusal.error.detail().ends_with(refusal.offer_text()));
}

/// Every value of every control is either refused with a clause, or there is a fact in the contract that follows from it.
#[test]
fn no_value_is_ignored() {
    let nothing = Controls::default();
    for capability in [stores::mem(1), stores::file(1), generate::able()] {
        for asked in refusals::probes() {
            let text = text::format(&asked);
            match resolve::create(&nothing, &asked, &capability) {
                Err(refusal) => assert!(refusal.error.clause().is_some(), "{text}"),
                Ok(e) => {
                    let contract = admit(&e, None, &capability).unwrap();
                    assert!(mentions(&contract, &asked), "{text} left no trace in {contract:?}");
                }
            }
        }
    }
}

fn mentions(c: &Contract, asked: &Controls) -> bool {
    let all = |checks: &[bool]| checks.iter().all(|c| *c);
    all(&[
        asked.consistency.is_none_or(|v| match v {
            Consistency::Sequential => c.publish == Publish::AtOnce,
            Consistency::Commit => c.publish == Publish::AtCommit,
            Consistency::Session => c.publish == Publish::AtClose,
            Consistency::Eventual => c.publish == Publish::Within && c.effective.eventual_ns != 0,
        }),
        asked.concurrency.is_none_or(|v| c.exclusive == (v == Concurrency::Exclusive)),
        asked
            .mutability
            .is_none_or(|v| (c.append_only, c.immutable) == (v == Mutability::Append, v == Mutability::Immutable)),
        asked.atomicity.is_none_or(|v| (c.unit != 0, c.staged) == (v == Atomicity::Unit, v == Atomicity::Publication)),
        asked
            .persistence
            .is_none_or(|v| c.durability == v && (c.sync == SyncPoint::Never) == (v <= Persistence::Process)),
        asked.point.is_none_or(|v: Point| c.effective.point == v),
        asked.temporality.is_none_or(|v| {
            (c.once, c.cacheable, c.drain_ns != 0)
                == (v == Temporality::Once, v != Temporality::Once, v == Temporality::Bursty)
        }),
        asked.spatiality.is_none_or(|v| {
            c.read_ahead == matches!(v, Spatiality::Any | Spatiality::Contiguous) && c.effective.spatiality == v
        }),
        asked.request_size.is_unset() || c.effective.request_size == asked.request_size,
        asked.collection_size.is_unset() || c.max_size == asked.collection_size.max,
        asked.on_error.is_none_or(|v| c.effective.on_error == v),
    ])
}

fn layout() -> impl Strategy<Value = Layout> {
    use proptest::{option, sample::select};
    let redundancy = select(vec![Redundancy::None, Redundancy::Mirror, Redundancy::Erasure]);
    let names = (option::weighted(0.1, "[a-z]{1,5}"), option::weighted(0.1, "[a-z]{1,5}"));
    (0u32..6, any::<u64>(), option::of(redundancy), 0u16..5, 0u16..4, names).prop_map(
        |(targets, chunk_size, redundancy, k, m, (backend, policy))| Layout {
            targets,
            chunk_size,
            redundancy,
            k,
            m,
            revision: 1,
            backend,
            policy,
            place: iov_types::Place::FIRST,
        },
    )
}

proptest! {
    #[test]
    fn an_offer_is_admitted(e in generate::effective(), layout in proptest::option::of(layout()), c in generate::capability()) {
        match admit(&e, layout.as_ref(), &c) {
            Ok(contract) => {
                prop_assert_eq!(admit(&contract.effective, layout.as_ref(), &c).unwrap(), contract.clone());
                prop_assert!(strength::all_at_least(&contract.effective, &normal(&e)));
            }
            Err(refusal) => {
                prop_assert!(admit(&refusal.offer, None, &c).is_ok(), "{}", refusal);
                prop_assert!(!refusal.offer_text().is_empty() && !refusal.reason().is_empty());
                prop_assert!(matches!(refusal.error.kind(), Kind::Refused | Kind::Invalid | Kind::Unsupported));
                prop_assert!(refusal.error.clause().is_some() || refusal.error.kind() == Kind::Unsupported);
            }
        }
    }

    /// Taking an offer in its textual form over what was asked is enough to be admitted.
    #[test]
    fn the_text_of_an_offer_is_enough(e in generate::effective(), c in generate::capability()) {
        if let Err(refusal) = admit(&e, None, &c) {
            let mut asked = Controls::from(&normal(&e));
            text::parse(&mut asked, refusal.offer_text()).unwrap();
            prop_assert_eq!(asked, Controls::from(&refusal.offer));
        }
    }

    /// An offer takes away only what stands in the way.
    #[test]
    fn an_offer_keeps_what_is_no_problem(e in generate::effective(), c in generate::capability()) {
        if let Err(refusal) = admit(&e, None, &c) {
            for control in Control::ALL.iter().filter(|k| !k.same(&refusal.offer, &normal(&e))) {
                let mut kept = Controls::from(&refusal.offer);
                control.copy(&Controls::from(&normal(&e)), &mut kept);
                let again = generate::over(&refusal.offer, &kept);
                prop_assert!(admit(&again, None, &c).is_err(), "{:?} was changed for nothing", control);
            }
        }
    }
}
