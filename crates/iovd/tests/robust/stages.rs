//! Publications and rollback batches when clients or the daemon die at any moment (B3, M1).

use ioverbs::{BatchAttr, Lent, OnError, Outcome};

use crate::kit::{Peer, Store, batch, create, lookup, read, wait_until};

const PUBLISHED: &str = "atomicity=publication";

#[test]
fn m1_what_a_live_writer_has_staged_survives_sigkill_of_the_daemon() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "published", PUBLISHED);
    ioverbs::write_at(&c, 0, b"old old").unwrap();
    ioverbs::commit(&c).unwrap();
    ioverbs::write_at(&c, 0, b"new").unwrap();
    store.kill();
    let others = store.again();
    assert_eq!(read(&lookup(&others, "published")), b"old old");
    ioverbs::write_at(&c, 4, b"new").unwrap();
    assert_eq!(read(&c), b"new new", "C5: the writer reads what it wrote");
    store.kill();
    ioverbs::commit(&c).unwrap();
    let others = store.again();
    assert_eq!(read(&lookup(&others, "published")), b"new new");
    ioverbs::close(&c).unwrap();
    assert!(store.files("stage").is_empty(), "{:?}", store.files("stage"));
}

#[test]
fn m1_what_a_live_writer_holds_survives_a_daemon_that_it_never_met() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "published", PUBLISHED);
    ioverbs::write_at(&c, 0, b"new").unwrap();
    let held = create(&ws, "held", "concurrency=exclusive");
    ioverbs::write_at(&held, 0, &[1; 1 << 20]).unwrap();
    store.kill();
    for _ in 0..2 {
        let daemon = store.daemon(&[], &[]);
        // It has seen to what the one before has left.
        wait_until("the daemon", || store.status("pid") == Some(u64::from(daemon.pid())));
        daemon.kill();
    }
    let others = store.again();
    let busy = ioverbs::lookup(&others, None, "held", Default::default()).err().unwrap();
    assert_eq!(busy.kind(), ioverbs::Kind::Busy, "{busy}");
    ioverbs::write_at(&held, 0, b"still mine").unwrap();
    ioverbs::commit(&c).unwrap();
    assert_eq!(read(&lookup(&store.again(), "published")), b"new");
    ioverbs::close(&c).unwrap();
    drop((ws, c, held));
}

#[test]
fn m1_a_session_that_met_several_daemons_ends_once() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "published", PUBLISHED);
    let held = create(&ws, "held", "concurrency=exclusive");
    store.kill();
    for _ in 0..3 {
        let daemon = store.daemon(&[], &[]);
        ioverbs::write_at(&c, 0, b"new").unwrap();
        ioverbs::write_at(&held, 0, b"mine").unwrap();
        daemon.kill();
    }
    drop((c, held, ws));
    let others = store.again();
    wait_until("the end of the stage", || store.files("stage").is_empty());
    // The hold ends behind that.
    wait_until("the end of the hold", || ioverbs::lookup(&others, None, "held", Default::default()).is_ok());
}

#[test]
fn m1_what_a_session_staged_goes_when_it_ends_between_two_daemons() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "published", PUBLISHED);
    ioverbs::write_at(&c, 0, b"new").unwrap();
    let held = create(&ws, "held", "concurrency=exclusive");
    store.kill();
    let _daemon = store.daemon(&[], &[]);
    let others = store.again();
    assert!(!store.files("stage").is_empty(), "its writer may come back");
    drop((c, held, ws));
    wait_until("the end of the stage", || store.files("stage").is_empty());
    // The hold ends behind that.
    wait_until("the end of the hold", || ioverbs::lookup(&others, None, "held", Default::default()).is_ok());
}

#[test]
fn m1_what_a_dead_writer_has_staged_goes_with_it() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "published", PUBLISHED);
    ioverbs::write_at(&c, 0, b"old").unwrap();
    ioverbs::close(&c).unwrap();
    drop(c);

    let mut writer = Peer::start("stages and waits", &store);
    assert_eq!(writer.hear(), "staged");
    assert!(!store.files("stage").is_empty());
    writer.kill();
    wait_until("the end of the stage", || store.files("stage").is_empty());

    let mut writer = Peer::start("stages and waits", &store);
    assert_eq!(writer.hear(), "staged");
    store.kill();
    writer.kill();
    drop(ws);
    let ws = store.again();
    assert!(store.files("stage").is_empty(), "dropped at the start");
    assert_eq!(read(&lookup(&ws, "published")), b"old");

    let mut writer = Peer::start("stages and waits", &store);
    assert_eq!(writer.hear(), "staged");
    drop(ws);
    store.kill();
    let ws = store.again();
    assert!(!store.files("stage").is_empty(), "its writer lives and may go on");
    writer.kill();
    wait_until("the end of the stage", || store.files("stage").is_empty());
    assert_eq!(read(&lookup(&ws, "published")), b"old");
}

/// Places that the daemon passes when a batch commits.
const POINTS: &[&str] = &[
    "stage.0.begin",
    "stage.2.written",
    "freeze.0.begin",
    "freeze.1.planned",
    "freeze.2.revoked",
    "publish.0.begin",
    "publish.1.decided",
    "publish.2.half_applied",
    "publish.3.applied",
    "publish.4.renamed",
    "publish.5.recorded",
    "publish.6.version",
    "publish.7.half_removed",
    "publish.8.removed",
];

/// A batch over two collections and a name, with a daemon that is killed on its way; what came of it. `None`: the daemon
/// does not pass the point so often.
fn at(point: &str, n: u32, id: Option<ioverbs::Uuid>) -> Option<(ioverbs::Result<()>, Store)> {
    let store = Store::new();
    let ws = store.in_workspace();
    let (a, b) = (create(&ws, "a", ""), create(&ws, "b", ""));
    for c in [&a, &b] {
        ioverbs::write_at(c, 0, b"old").unwrap();
    }
    store.kill();
    let daemon = store.daemon(&[], &[("IOV_FAIL_POINT", &format!("{point}:{n}:kill"))]);
    let attr = BatchAttr { on_error: Some(OnError::Rollback), id, ..BatchAttr::default() };
    let out = ws.pending(ioverbs::EntryKind::Collection);
    let name = Some(ioverbs::Name::new("c").unwrap());
    let made = ioverbs::Op::Create {
        out: out.clone(),
        parent: None,
        name,
        metadata: Default::default(),
        controls: Default::default(),
    };
    let ops = vec![
        Lent::Write { c: a.clone(), offset: 0, data: b"new" },
        Lent::Plain(made),
        Lent::Write { c: b.clone(), offset: 0, data: b"new" },
    ];
    let done = batch(ws.session(), attr, ops);
    let died = store.status("pid") != Some(daemon.pid().into());
    died.then_some((done, store))
}

/// Goes through all points, and each as often as it is passed.
fn at_each_point(id: impl Fn() -> Option<ioverbs::Uuid>, check: impl Fn(&str, ioverbs::Result<()>, Store)) {
    for point in POINTS {
        let mut n = 1;
        while let Some((done, store)) = at(point, n, id()) {
            check(&format!("{point}, the {n}. time"), done, store);
            n += 1;
        }
        assert!(n > 1, "the daemon passes {point}");
    }
}

/// Old or new, all of it, and nobody has to wait for it.
fn check(store: &Store, point: &str) -> bool {
    let ws = store.again();
    let (a, b) = (read(&lookup(&ws, "a")), read(&lookup(&ws, "b")));
    let named = ioverbs::lookup(&ws, None, "c", Default::default()).is_ok();
    let new = a == b"new";
    assert!(new || a == b"old", "{point}: {a:?}");
    assert_eq!((a, named), (b, new), "{point}");
    ioverbs::write_at(&lookup(&ws, "a"), 3, b"!").unwrap();
    new
}

#[test]
fn b3_a_batch_with_an_id_comes_through_wherever_the_daemon_dies() {
    at_each_point(
        || Some(ioverbs::seam::new_uuid()),
        |point, done, store| {
            done.unwrap_or_else(|e| panic!("{point}: {e}"));
            assert!(check(&store, point), "{point}: told to be done");
        },
    );
}

#[test]
fn b3_a_batch_without_an_id_is_all_or_nothing_wherever_the_daemon_dies() {
    at_each_point(
        || None,
        |point, done, store| {
            let new = check(&store, point);
            match done {
                Ok(()) => assert!(new, "{point}: told to be done"),
                Err(_) if !new => {}
                Err(e) => assert_eq!(e.outcome(), Outcome::Unknown, "{point}: {e}"),
            }
            wait_until(&format!("the end of the stage, {point}"), || store.files("stage").is_empty());
        },
    );
}

#[test]
fn m1_a_publication_is_old_or_new_wherever_the_daemon_dies() {
    for point in POINTS {
        let store = Store::new();
        let ws = store.in_workspace();
        let c = create(&ws, "published", PUBLISHED);
        ioverbs::write_at(&c, 0, b"old").unwrap();
        ioverbs::commit(&c).unwrap();
        store.kill();
        let daemon = store.daemon(&[], &[("IOV_FAIL_POINT", &format!("{point}:1:kill"))]);
        let done = ioverbs::write_at(&c, 0, b"new").and_then(|()| ioverbs::commit(&c));
        assert_ne!(store.status("pid"), Some(daemon.pid().into()), "the daemon passes {point}");
        let got = read(&lookup(&store.again(), "published"));
        assert!(got == b"new" || (got == b"old" && done.is_err()), "{point}: {got:?} after {done:?}");
        // Whatever came of it, the handle goes on.
        ioverbs::write_at(&c, 0, b"later").unwrap();
        ioverbs::close(&c).unwrap();
        assert_eq!(read(&lookup(&store.again(), "published")), b"later");
        wait_until("the end of the stage", || store.files("stage").is_empty());
    }
}
