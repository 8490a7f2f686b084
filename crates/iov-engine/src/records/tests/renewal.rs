//! How long records last, and what they are renewed along with.

use super::*;

#[test]
fn m3_records_in_use_are_renewed_along_with_another_request() {
    let rig = Rig::new();
    rig.open_all(1..=4);
    later(LEASE / 2);
    assert!(rig.knows(1) && rig.knows(2) && rig.knows(4));
    rig.ask(CatalogOp::WorkspaceStat { ws: WS });
    assert_eq!(rig.along(), [], "not before the last third");
    later(LEASE / 3);
    lock(&rig.inner.gone).push(uuid(2));
    rig.ask(CatalogOp::WorkspaceStat { ws: WS });
    assert_eq!(rig.along(), [uuid(1), uuid(2), uuid(4)], "what was not used is not renewed");
    assert_eq!(rig.renewals(), 1);
    // The dry run has ended where one was gone.
    assert!(!rig.knows(2));
    rig.ask(CatalogOp::WorkspaceStat { ws: WS });
    assert_eq!(rig.along(), [], "not again at once");
    later(LEASE / 16);
    rig.ask(CatalogOp::WorkspaceStat { ws: WS });
    assert_eq!((rig.along(), rig.renewals()), (vec![uuid(4)], 2));
    later(LEASE / 4);
    assert!(rig.knows(1) && !rig.knows(2) && !rig.knows(3) && rig.knows(4));
    later(LEASE * 3 / 4 - LEASE / 16);
    assert!(!rig.knows(1) && rig.knows(4), "it lasts as long as any");
    later(LEASE / 16);
    assert!(!rig.knows(4));
}

#[test]
fn m3_a_renewed_record_says_what_the_catalog_says_now() {
    let rig = Rig::with(0, true, None);
    rig.submit(vec![open(1)], Submission::Each);
    rig.inner.answer_all();
    rig.records.keep_bytes(uuid(1), &vec![1; 100].into());
    let renew = |answer: Result<CatalogReply>, meanwhile: &dyn Fn()| {
        assert!(rig.knows(1));
        later(LEASE * 3 / 4);
        rig.submit(vec![CatalogOp::WorkspaceStat { ws: WS }], Submission::Each);
        assert_eq!(rig.along(), [uuid(1)]);
        lock(&rig.inner.waiting)[0].1 = Ok(vec![answer]);
        meanwhile();
        rig.inner.answer_all();
    };
    let opened = |opened: Opened| Ok(CatalogReply::Opened(Box::new(opened)));
    // Its bytes have moved.
    renew(opened(Opened { inline: false, ..sealed(1) }), &|| assert!(rig.knows(1)));
    let (now, bytes) = rig.find(&open(1)).unwrap();
    assert!(!now.inline && bytes.is_some_and(|b| b.len() == 100));
    // Whoever finds it while it is renewed, uses it.
    renew(opened(sealed(1)), &|| assert!(rig.knows(1)));
    later(LEASE * 3 / 4);
    rig.submit(vec![CatalogOp::WorkspaceStat { ws: WS }], Submission::Each);
    assert_eq!(rig.along(), [uuid(1)]);
    rig.inner.answer_all();
    // Nobody has looked: it ends with its lease, no sooner.
    renew(Err(Error::unavailable("nobody there")), &|| ());
    assert!(rig.knows(1));
    rig.submit(vec![open(1)], Submission::Each);
    rig.inner.answer_all();
    // It changed while it was asked for.
    renew(opened(sealed(1)), &|| rig.records.forget(Change::One(uuid(1))));
    assert!(!rig.knows(1));
    // What an open would not be granted, or not so, is not known.
    for other in [Err(Error::denied("no")), opened(Opened { epoch: 3, ..sealed(1) })] {
        rig.submit(vec![open(1)], Submission::Each);
        rig.inner.answer_all();
        renew(other, &|| ());
        assert!(!rig.knows(1));
    }
}

#[test]
fn x1_a_hold_of_somebody_else_is_heard_of_when_the_lease_is_over() {
    let rig = Rig::new();
    rig.open_all(1..=2);
    lock(&rig.inner.held).push(uuid(1));
    // In use all the time, by a program that asks of other things in between.
    for _ in 0..20 {
        let _ = (rig.knows(1), rig.knows(2));
        later(LEASE / 20);
        rig.ask(CatalogOp::WorkspaceStat { ws: WS });
    }
    assert!(!rig.knows(1), "the catalog would say that it is busy");
    assert!(rig.knows(2));
}

#[test]
fn m3_a_program_that_opens_what_it_knows_asks_once_in_a_lease() {
    let rig = Rig::new();
    rig.open_all(0..100);
    let before = lock(&rig.inner.asked).len();
    let mut visited = 0;
    for _ in 0..5 * 20 {
        later(LEASE / 20);
        for n in 0..100 {
            visited += 1;
            if !rig.knows(n) {
                rig.ask(open(n));
            }
        }
    }
    let asked = lock(&rig.inner.asked).len() - before;
    assert!((10..=16).contains(&asked), "{asked} requests for {visited} opens within 5 leases");
}

#[test]
fn m3_whatever_is_asked_records_are_renewed_along_with_it() {
    let stat = CatalogOp::WorkspaceStat { ws: WS };
    for (op, how, renewed) in [
        (stat.clone(), Submission::UntilFailure, vec![uuid(1)]),
        (stat.clone(), Submission::All { batch: uuid(5), remember: false, staged: Vec::new() }, vec![uuid(1)]),
        (delete(2), Submission::Each, vec![uuid(1)]),
        (delete(1), Submission::Each, vec![]),
        (stat, Submission::DryRun, vec![]),
        (CatalogOp::Goodbye, Submission::Each, vec![]),
    ] {
        let rig = Rig::new();
        rig.ask(open(1));
        assert!(rig.knows(1));
        later(LEASE * 3 / 4);
        rig.submit(vec![op.clone()], how);
        assert_eq!(rig.along(), renewed, "{op:?}");
    }
    // Not more at once than others can wait for.
    let rig = Rig::new();
    rig.open_all(0..3000);
    assert!((0..3000).all(|n| rig.knows(n)));
    later(LEASE * 3 / 4);
    for renewed in [1024, 1024, 952, 0] {
        rig.ask(CatalogOp::WorkspaceStat { ws: WS });
        assert_eq!(rig.along().len(), renewed);
        later(LEASE / 16);
    }
}
