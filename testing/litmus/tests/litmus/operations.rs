//! The daemon dies at each fail point of one operation on one collection: all of it is there afterwards, or nothing.

use std::time::{Duration, Instant};

use iov_litmus::{Store, Worker, in_shared_memory, is_striped, over_tcp, worker::data};
use iov_media::fail::POINTS;

use crate::{
    crash::{Death, Found, at_each_point, die_of},
    kit::collection,
};

/// What an operation needs: `NAME` is a new name for each death, `H` its handle.
struct Operation {
    name: &'static str,
    points: &'static [&'static str],
    controls: &'static str,
    /// Before the daemon is armed.
    before: &'static [&'static str],
    /// Behind that, by the one that acts.
    open: &'static str,
    act: &'static str,
    /// What a process that has just come asks; the answers of the old state and of the new one.
    look: &'static [(&'static str, &'static str, &'static str)],
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "append",
        points: &["append."],
        controls: "mutability=append",
        before: &["append H 5000 w1.0"],
        open: "lookup H NAME",
        act: "append H 100000 w1.1",
        look: &[("stat H", "ok 5000", "ok 105000"), ("records H", "1", "2")],
    },
    Operation {
        name: "first append",
        points: &["append.", "sidecar."],
        controls: "mutability=append",
        before: &[],
        open: "lookup H NAME",
        act: "append H 100000 w1.0",
        look: &[("stat H", "ok 0", "ok 100000"), ("records H", "0", "1")],
    },
    Operation {
        name: "write of units of 47,008 bytes",
        points: &["unit."],
        controls: "atomicity=unit request_size=47008..47008",
        before: &["write H 0 188032 1"],
        open: "lookup H NAME",
        act: "write H 47008 94016 2",
        look: &[
            ("read H 0 47008", "ok 47008:1*47008", "ok 47008:1*47008"),
            ("read H 47008 47008", "ok 47008:1*47008", "ok 47008:2*47008"),
            ("read H 94016 47008", "ok 47008:1*47008", "ok 47008:2*47008"),
            ("read H 141024 50000", "ok 47008:1*47008", "ok 47008:1*47008"),
        ],
    },
    Operation {
        name: "write of a unit of 4 KiB",
        points: &["unit."],
        controls: "atomicity=unit(4K)",
        // More than a record holds.
        before: &["write H 0 40960 1"],
        open: "lookup H NAME",
        act: "write H 1000 2000 2",
        look: &[("read H 0 50000", "ok 40960:1*40960", "ok 40960:1*1000,2*2000,1*37960")],
    },
    Operation {
        name: "seal",
        points: &["seal."],
        controls: "mutability=immutable",
        before: &["write H 0 100000 1"],
        open: "lookup H NAME",
        act: "seal H",
        look: &[
            ("stat H", "ok 100000 Some(Staging)", "ok 100000 Some(Sealed)"),
            ("read H 0 9", "ok 9:1*9", "ok 9:1*9"),
            ("write H 0 9 1", "ok", "err Immutable M2"),
        ],
    },
    Operation {
        name: "delete",
        points: &["remove."],
        controls: "",
        before: &["write H 0 100000 1"],
        open: "find iov.size = 0",
        act: "delete NAME",
        look: &[("find iov.name = \"NAME\"", "ok NAME", "ok"), ("lookup G NAME", "ok", "err NotFound")],
    },
    Operation {
        name: "durable publication",
        points: &["sync.stage"],
        controls: "persistence=durable atomicity=publication",
        before: &["write H 0 100000 1", "commit H"],
        open: "lookup H NAME",
        act: "all | write H 0 100000 2 ; commit H",
        look: &[("read H 0 200000", "ok 100000:1*100000", "ok 100000:2*100000")],
    },
    Operation {
        name: "open behind a dead holder",
        points: &["fence.", "sidecar."],
        controls: "concurrency=exclusive",
        before: &["write H 0 100000 1"],
        open: "find iov.size = 0",
        act: "lookup H NAME",
        look: &[("lookup H NAME", "ok", "ok"), ("read H 0 200000", "ok 100000:1*100000", "ok 100000:1*100000")],
    },
    Operation {
        name: "durable write",
        points: &["sync.data", "sums."],
        controls: "persistence=durable point=request",
        before: &["write H 0 100000 1"],
        open: "lookup H NAME",
        act: "write H 0 100000 2",
        look: &[("read H 0 200000", "ok 100000:1*100000", "ok 100000:2*100000")],
    },
];

/// The operations of this file.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    OPERATIONS.iter().map(|o| o.name)
}

/// What a command finds; `records H` is the number of whole records of a log.
fn look(w: &mut Worker, store: &Store, command: &str, name: &str) -> String {
    if command != "records H" {
        return w.ask(command);
    }
    let c = ioverbs::lookup(&store.workspace(), None, name, Default::default()).expect("the log");
    let mut log = vec![0; ioverbs::stat(&c).expect("stat").bytes as usize];
    assert_eq!(
        ioverbs::read_at(&c, 0, &mut log).expect("a read"),
        log.len(),
        "M4: readers get as far as the size says"
    );
    data::records(&log).unwrap_or_else(|e| panic!("M4: {e}")).len().to_string()
}

/// Whether these are the bytes before and behind a write of 2 over 1, each old or new.
fn is_mixed(got: &str) -> bool {
    let Some((_, runs)) = got.split_once(':') else { return false };
    runs.split(',').all(|run| run.starts_with("1*") || run.starts_with("2*"))
}

fn found(store: &Store, o: &Operation, name: &str) -> Found {
    let mut w = store.worker();
    // A collection that is gone is told by what is looked at. Of the worker that has just ended the daemon may not have
    // heard yet.
    let until = Instant::now() + Duration::from_secs(30);
    while w.ask(&format!("lookup H {name}")).starts_with("err Busy") && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut all = Vec::new();
    for (command, old, new) in o.look {
        let command = command.replace("NAME", name);
        let got = look(&mut w, store, &command, name);
        let fits = |text: &str| {
            let text = text.replace("NAME", name);
            got == text || (text.len() > 2 && got.starts_with(&format!("{text} ")))
        };
        match (fits(old), fits(new)) {
            (true, true) => {}
            (true, false) => all.push(Found::Old),
            (false, true) => all.push(Found::New),
            // Over several targets a write may be there in part, in any of its bytes (M1).
            (false, false) if is_striped() && is_mixed(&got) => all.push(Found::Old),
            (false, false) => panic!("{}: {command:?} finds {got:?}, neither {old:?} nor {new:?}", o.name),
        }
    }
    if is_striped() && o.name.starts_with("write of units") {
        // Each unit is one or the other.
        return if all.contains(&Found::Old) { Found::Old } else { Found::New };
    }
    assert!(all.windows(2).all(|f| f[0] == f[1]), "{}: neither old nor new: {all:?}", o.name);
    // Where nothing of it can be told apart, all that was looked at is right.
    all.first().copied().unwrap_or(Found::New)
}

fn run(o: &Operation) {
    let times = if o.name.starts_with("write of units") { 2 } else { 1 };
    at_each_point(o.name, o.points, times, |store, death: &Death| {
        let name = format!("c{}", death.k);
        let mut w = store.worker();
        collection(&mut w, &name, "sequential", o.controls, 0);
        w.ok(&format!("lookup H {name}"));
        o.before.iter().for_each(|line| drop(w.ok(line)));
        w.ok("drop H");
        drop(w);
        death.arm(store);
        let mut w = store.worker();
        w.ok(&o.open.replace("NAME", &name));
        let answer = die_of(store, &mut w, &o.act.replace("NAME", &name))?;
        drop(w);
        let before = found(store, o, &name);
        store.restart();
        let found = found(store, o, &name);
        assert_eq!(found, before, "{}: the same after another start", o.name);
        Some((found, answer))
    });
}

fn named(start: &str) {
    let mut some = false;
    for o in OPERATIONS.iter().filter(|o| o.name.starts_with(start)) {
        run(o);
        some = true;
    }
    assert!(some, "there is such an operation");
}

#[test]
fn m4_an_append_is_there_or_not() {
    named("append");
    named("first append");
}

#[test]
fn t16_units_are_old_or_new_when_the_daemon_dies() {
    named("write of");
}

#[test]
fn m2_a_seal_holds_or_has_not_been() {
    named("seal");
}

#[test]
fn o10_a_delete_is_done_or_not() {
    if over_tcp() {
        // What somebody over a network may come back for stays until his lease ends: nobody can tell whether he lives.
        return;
    }
    named("delete");
}

#[test]
fn p3_what_is_durable_is_there_once_it_is_acknowledged() {
    // Shared memory does not offer it (P3).
    if !in_shared_memory() {
        named("durable");
    }
}

#[test]
fn x1_a_takeover_is_done_or_not() {
    if over_tcp() {
        // A holder over a network that went while no daemon was there is waited for until its lease ends: nobody can tell.
        return;
    }
    named("open behind");
}

/// A close that syncs ends the hold all the same.
#[test]
fn x1_a_durable_close_ends_the_hold() {
    if in_shared_memory() {
        return; // which is not durable (P3)
    }
    let store = Store::new();
    let (mut one, mut two) = (store.worker(), store.worker());
    one.ok("create H c persistence=durable concurrency=exclusive");
    one.ok("write H 0 100000 1");
    assert!(two.ask("lookup H c").starts_with("err Busy X1"));
    one.ok("close H");
    two.ok("lookup H c");
    assert_eq!(two.ok("read H 0 200000"), "100000:1*100000");
}

#[test]
fn every_fail_point_is_passed_by_some_operation() {
    let own = OPERATIONS.iter().flat_map(|o| o.points.iter().copied());
    // Those of rollback batches and publications; a relocation needs a client that is stuck, as in the tests of the target.
    let passed: Vec<&str> = own.chain(["stage.", "freeze.", "publish.", "relocate."]).collect();
    let left: Vec<_> = POINTS.iter().filter(|p| !passed.iter().any(|start| p.starts_with(start))).collect();
    assert!(left.is_empty(), "no operation is killed at {left:?}");
}
