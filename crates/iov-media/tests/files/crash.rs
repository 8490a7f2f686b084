//! The daemon is killed at every numbered step of every operation: afterwards all of it is there, or nothing.

use std::{collections::BTreeSet, path::Path};

use iov_media::{Files, Peer as Client, fail};
use iov_store::{ClientPage, LeaseAccess};
use iov_types::{Demand, Kind, ObjectVerb, Persistence, Range, Uuid};

use crate::kit::{
    Parent, Peer, all, bytes, call, cx, data_path, directory, object, open, send, staged, try_all, uuid, write,
};

/// An operation, what stands before it, and what may stand afterwards.
struct Scenario {
    name: &'static str,
    /// The beginnings of the fail points that it passes.
    points: &'static [&'static str],
    before: fn(&Files),
    act: fn(&Files),
    /// Looks at the target that was opened again; `done` if the operation is known to have taken effect, or not.
    after: fn(&Files, Expect),
}

/// What must be there.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Expect {
    Old,
    New,
    Either,
}

impl Expect {
    /// Whether it is new, and may be.
    fn check(self, old: bool, new: bool) -> bool {
        let fits = match self {
            Expect::Old => old,
            Expect::New => new,
            Expect::Either => old || new,
        };
        assert!(fits, "{self:?} is expected: old {old}, new {new}");
        new && self != Expect::Old
    }
}

const STAGE: Uuid = Uuid([0x11; 16]);
const RECORD: usize = 100_000;
const UNIT: u64 = 47_008;

fn keyed(n: u64) -> Demand {
    Demand { batch: Some((Uuid([0x77; 16]), n)), ..Demand::default() }
}

fn append(files: &Files, demand: Demand, data: &[u8]) -> u64 {
    send(files, object(1), ObjectVerb::Append, demand, data).expect("an append").offset
}

fn durable(demand: Demand) -> Demand {
    Demand { durability: Some(Persistence::Durable), ..demand }
}

fn units() -> Demand {
    Demand { unit: UNIT, ..Demand::default() }
}

fn new_record() -> Vec<u8> {
    bytes(9, RECORD)
}

fn appended(files: &Files, base: &[u8], expect: Expect) {
    let found = all(files, object(1));
    let whole = [base, &new_record()].concat();
    expect.check(found == base, found == whole);
    // The client hears nothing and tries again.
    assert_eq!(append(files, keyed(0), &new_record()), base.len() as u64);
    assert!(all(files, object(1)) == whole, "M4: exactly once");
}

fn unit_range() -> (u64, Vec<u8>) {
    // The end of one unit, a whole one, the beginning of a third.
    (UNIT - 1000, bytes(2, 2000 + UNIT as usize))
}

fn units_are_whole(files: &Files, expect: Expect) {
    let found = all(files, object(1));
    let old = bytes(1, 4 * UNIT as usize);
    let (at, data) = unit_range();
    let mut new = old.clone();
    new[at as usize..at as usize + data.len()].copy_from_slice(&data);
    for n in 0..4 {
        let unit = |b: &[u8]| b[n * UNIT as usize..(n + 1) * UNIT as usize].to_vec();
        let (is, old, new) = (unit(&found), unit(&old), unit(&new));
        expect.check(is == old, is == new);
    }
}

/// Fills the stage of object 1, whose base is `base`.
fn stage_changes(files: &Files) {
    let stage = |verb, data: &[u8]| send(files, object(1), verb, staged(STAGE), data).expect("a staged change");
    stage(ObjectVerb::Write { offset: 10 }, &bytes(3, 100));
    stage(ObjectVerb::Write { offset: 5000 }, &bytes(4, 60_000));
    stage(ObjectVerb::Punch(Range { offset: 6000, len: 100 }), &[]);
    let keyed = Demand { stage: Some(STAGE), ..keyed(0) };
    send(files, object(1), ObjectVerb::Append, keyed, &bytes(5, 3000)).expect("a staged append");
}

fn changed(base: &[u8]) -> Vec<u8> {
    let mut out = base.to_vec();
    out.resize(base.len().max(65_000), 0);
    out[10..110].copy_from_slice(&bytes(3, 100));
    out[5000..65_000].copy_from_slice(&bytes(4, 60_000));
    out[6000..6100].fill(0);
    out.extend(bytes(5, 3000));
    out
}

fn publish(files: &Files) {
    let stage = STAGE;
    call(files, object(1), ObjectVerb::Freeze { stage }).expect("a freeze");
    call(files, object(1), ObjectVerb::Publish { stage }).expect("a publication");
}

/// Publishes what is left, as recovery does when the catalog says that point P was reached.
fn published(files: &Files, base: &[u8], expect: Expect) {
    let stage = STAGE;
    if expect == Expect::New {
        // Publishing had begun, so it was finished before anybody could look.
        assert!(files.stages().is_empty());
        assert!(all(files, object(1)) == changed(base));
    }
    call(files, object(1), ObjectVerb::Publish { stage }).expect("a publication, again");
    assert!(all(files, object(1)) == changed(base), "B3: all of it");
    let stat = call(files, object(1), ObjectVerb::Stat).expect("stat");
    assert_eq!(stat.version, 1, "published once");
    let offset = append(files, keyed(0), &bytes(5, 3000));
    assert_eq!((offset, all(files, object(1)).len() as u64), (stat.size - 3000, stat.size), "M4: exactly once");
}

fn dropped(files: &Files, base: &[u8], expect: Expect) {
    files.drop_stages(&[]).expect("dropping what reached no point P");
    let found = all(files, object(1));
    if !expect.check(found == base, found == changed(base)) {
        assert_eq!(append(files, keyed(0), b"x"), base.len() as u64, "a retry of a batch that had no effect has one");
    }
}

fn base() -> Vec<u8> {
    bytes(1, 80_000)
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "an append",
        points: &["append."],
        before: |files| {
            append(files, keyed(7), b"base");
        },
        act: |files| {
            append(files, keyed(0), &new_record());
        },
        after: |files, expect| appended(files, b"base", expect),
    },
    Scenario {
        name: "the first append to an object of plain bytes",
        points: &["append."],
        before: |files| {
            write(files, object(1), 0, b"plain").expect("a write");
        },
        act: |files| {
            append(files, durable(keyed(0)), &new_record());
        },
        after: |files, expect| appended(files, b"plain", expect),
    },
    Scenario {
        name: "the first append of all",
        points: &["append.", "sidecar."],
        before: |_| (),
        act: |files| {
            append(files, keyed(0), &new_record());
        },
        after: |files, expect| appended(files, b"", expect),
    },
    Scenario {
        name: "a change of units",
        points: &["unit."],
        before: |files| {
            write(files, object(1), 0, &bytes(1, 4 * UNIT as usize)).expect("a write");
        },
        act: |files| {
            let (offset, data) = unit_range();
            send(files, object(1), ObjectVerb::Write { offset }, units(), &data).expect("a write of units");
        },
        after: units_are_whole,
    },
    Scenario {
        name: "a durable change of units",
        points: &["unit."],
        before: |files| {
            write(files, object(1), 0, &bytes(1, 4 * UNIT as usize)).expect("a write");
        },
        act: |files| {
            let (offset, data) = unit_range();
            send(files, object(1), ObjectVerb::Write { offset }, durable(units()), &data).expect("a write of units");
        },
        after: units_are_whole,
    },
    Scenario {
        name: "a cut through a unit of an object with appends",
        points: &["unit.1", "unit.2", "unit.4", "unit.5"],
        before: |files| {
            append(files, Demand::default(), &bytes(1, 3 * UNIT as usize));
        },
        act: |files| {
            let size = UNIT + 5;
            send(files, object(1), ObjectVerb::Truncate { size }, units(), &[]).expect("a cut");
        },
        after: |files, expect| {
            let (found, old) = (all(files, object(1)), bytes(1, 3 * UNIT as usize));
            // The end is told first: that the bytes behind it go later is nobody's business.
            let expect = if expect == Expect::Old { Expect::Either } else { expect };
            expect.check(found == old, found == old[..UNIT as usize + 5]);
            append(files, Demand::default(), b"behind");
            assert!(all(files, object(1)).ends_with(b"behind"));
        },
    },
    Scenario {
        name: "staging",
        points: &["stage."],
        before: |files| {
            write(files, object(1), 0, &base()).expect("a write");
            send(files, object(1), ObjectVerb::Write { offset: 0 }, staged(STAGE), &bytes(8, 20_000)).expect("a write");
        },
        act: |files| {
            let offset = 30_000;
            send(files, object(1), ObjectVerb::Write { offset }, staged(STAGE), &bytes(9, 20_000)).expect("a write");
        },
        after: |files, _| {
            assert!(all(files, object(1)) == base(), "nothing shows");
            call(files, object(1), ObjectVerb::Publish { stage: STAGE }).expect("a publication");
            let found = all(files, object(1));
            assert!(found[..20_000] == bytes(8, 20_000), "what was acknowledged is there");
            let (is, old, new) = (&found[30_000..50_000], &base()[30_000..50_000], &bytes(9, 20_000)[..]);
            assert!(is == old || is == new, "what was not is there or not");
        },
    },
    Scenario {
        name: "publishing over a base, repeated",
        points: &["freeze.", "publish.", "sidecar."],
        before: |files| {
            write(files, object(1), 0, &base()).expect("a write");
            stage_changes(files);
        },
        act: publish,
        after: |files, expect| published(files, &base(), expect),
    },
    Scenario {
        name: "publishing over a base, dropped",
        points: &["freeze.", "publish."],
        before: |files| {
            write(files, object(1), 0, &base()).expect("a write");
            stage_changes(files);
        },
        act: publish,
        after: |files, expect| dropped(files, &base(), expect),
    },
    Scenario {
        name: "publishing a new object, repeated",
        points: &["freeze.", "publish."],
        before: stage_changes,
        act: publish,
        after: |files, expect| published(files, &[], expect),
    },
    Scenario {
        name: "publishing a new object, dropped",
        points: &["freeze.", "publish."],
        before: stage_changes,
        act: publish,
        after: |files, expect| dropped(files, &[], expect),
    },
    Scenario {
        name: "publishing what was synced",
        points: &["publish."],
        before: |files| {
            write(files, object(1), 0, &base()).expect("a write");
            stage_changes(files);
            send(files, object(1), ObjectVerb::Sync, durable(staged(STAGE)), &[]).expect("a sync of the stage");
        },
        act: publish,
        after: |files, expect| published(files, &base(), expect),
    },
    Scenario {
        name: "a seal",
        points: &["seal."],
        before: |files| {
            write(files, object(1), 0, b"sealed?").expect("a write");
        },
        act: |files| {
            call(files, object(1), ObjectVerb::Seal).expect("a seal");
        },
        after: |files, expect| {
            let late = write(files, object(1), 0, b"late").map_err(|e| e.kind());
            expect.check(late.is_ok(), late == Err(Kind::Immutable));
            let bytes: &[u8] = if late.is_ok() { b"lateed?" } else { b"sealed?" };
            assert_eq!(all(files, object(1)), bytes);
        },
    },
    Scenario {
        name: "a fence",
        points: &["fence.", "sidecar."],
        before: |files| {
            write(files, object(1), 0, b"bytes").expect("a write");
        },
        act: |files| {
            call(files, object(1), ObjectVerb::Fence { epoch: 5 }).expect("a fence");
        },
        after: |files, expect| {
            let old = Demand { epoch: 4, ..Demand::default() };
            let late = send(files, object(1), ObjectVerb::Write { offset: 0 }, old, b"B").map_err(|e| e.kind());
            expect.check(late.is_ok(), late == Err(Kind::Fenced));
        },
    },
    Scenario {
        name: "a second fence",
        points: &["sidecar."],
        before: |files| {
            call(files, object(1), ObjectVerb::Fence { epoch: 3 }).expect("a fence");
        },
        act: |files| {
            send(files, object(1), ObjectVerb::Fence { epoch: 5 }, durable(Demand::default()), &[]).expect("a fence");
        },
        after: |files, expect| {
            let epoch = call(files, object(1), ObjectVerb::Stat).expect("stat").epoch;
            expect.check(epoch == 3, epoch == 5);
        },
    },
    Scenario {
        name: "a remove",
        points: &["remove."],
        before: |files| {
            write(files, object(1), 0, b"bytes").expect("a write");
            call(files, object(1), ObjectVerb::Fence { epoch: 3 }).expect("a fence");
            stage_changes(files);
        },
        act: |files| {
            call(files, object(1), ObjectVerb::Remove).expect("a remove");
        },
        after: |files, expect| {
            let found = all(files, object(1));
            if expect.check(found == b"bytes", found.is_empty()) {
                call(files, object(1), ObjectVerb::Create).expect("a create");
                let stat = call(files, object(1), ObjectVerb::Stat).expect("stat");
                assert_eq!((stat.epoch, stat.version), (0, 0), "T21: nothing of the old one is left");
            }
        },
    },
];

/// What must be there after a death at a point. A number in its name says how far it had come.
fn expected(point: &str) -> Expect {
    match point {
        // What was told to be there was there.
        "append.3.committed" | "unit.5.retired" => Expect::New,
        "append.0.begin" | "append.1.half_written" | "append.2.written" => Expect::Old,
        "unit.0.begin" | "unit.1.payload" => Expect::Old,
        "freeze.0.begin" | "freeze.1.planned" | "freeze.2.revoked" | "publish.0.begin" => Expect::Old,
        "seal.0.begin" | "seal.1.revoked" | "fence.0.begin" | "fence.1.revoked" | "remove.0.begin" => Expect::Old,
        "seal.2.sealed" | "fence.2.fenced" | "remove.1.data" | "remove.2.sidecar" => Expect::New,
        "sidecar.0.begin" => Expect::Either,
        point if point.starts_with("publish.") || point.starts_with("unit.") => Expect::New,
        _ => Expect::Either,
    }
}

/// The child: does what the scenario does, and dies of it.
pub(crate) fn daemon(root: &Path) {
    let name = std::env::var("IOV_TEST_SCENARIO").expect("a scenario");
    let scenario = SCENARIOS.iter().find(|s| s.name == name).expect("a known scenario");
    let files = open(root);
    (scenario.before)(&files);
    if let Ok(point) = std::env::var("IOV_TEST_POINT") {
        fail::arm(&point).expect("a known fail point");
    }
    (scenario.act)(&files);
}

/// Runs a scenario to its death at the n-th passage of a point; false if it came to its end.
fn dies(scenario: &Scenario, point: &str, n: u32, root: &Path) -> bool {
    let armed = format!("{point}:{n}:kill");
    let variables = [("IOV_TEST_SCENARIO", scenario.name), ("IOV_TEST_POINT", armed.as_str())];
    let child = Peer::start("daemon", root, &variables);
    child.end() == Some(rustix::process::Signal::KILL.as_raw())
}

/// Runs all scenarios with names that begin so; the points at which a child died.
fn run(which: &str) -> BTreeSet<&'static str> {
    let mut died = BTreeSet::new();
    for scenario in SCENARIOS.iter().filter(|s| s.name.starts_with(which)) {
        for point in fail::POINTS.iter().filter(|p| scenario.points.iter().any(|start| p.starts_with(start))) {
            for n in 1..=3 {
                let directory = directory();
                if !dies(scenario, point, n, directory.path()) {
                    break;
                }
                died.insert(*point);
                println!("{}: killed at {point}, the {n}. time", scenario.name);
                let files = open(directory.path());
                assert!(files.troubles().is_empty(), "{:?}", files.troubles());
                (scenario.after)(&files, expected(point));
                // What recovery has done is done: a second one finds nothing.
                let bytes = try_all(&*files, object(1)).ok();
                drop(files);
                let again = open(directory.path());
                assert_eq!(try_all(&*again, object(1)).ok(), bytes, "the same after another start");
            }
        }
    }
    died
}

fn check_all_died(starts: &[&str], died: &BTreeSet<&str>) {
    let expected: Vec<_> = fail::POINTS.iter().filter(|p| starts.iter().any(|start| p.starts_with(start))).collect();
    let missing: Vec<_> = expected.iter().filter(|p| !died.contains(**p)).collect();
    assert!(missing.is_empty(), "no scenario passes {missing:?}");
}

#[test]
fn m4_an_append_is_there_or_not() {
    let mut died = run("an append");
    died.extend(run("the first append"));
    check_all_died(&["append."], &died);
}

#[test]
fn m1_units_are_old_or_new() {
    let mut died = run("a change of units");
    died.extend(run("a durable change"));
    died.extend(run("a cut through"));
    check_all_died(&["unit."], &died);
}

#[test]
fn b3_a_publication_is_there_or_not() {
    let mut died = run("publishing");
    died.extend(run("staging"));
    check_all_died(&["stage.", "freeze.", "publish."], &died);
}

#[test]
fn m2_seals_fences_and_removals_are_done_or_not() {
    let mut died = run("a seal");
    died.extend(run("a fence"));
    died.extend(run("a second fence"));
    died.extend(run("a remove"));
    check_all_died(&["seal.", "fence.", "sidecar.", "remove."], &died);
}

/// The child of the next test: a daemon that meets a stuck client, its parent.
pub(crate) fn relocating_daemon(root: &Path, mut parent: Parent) {
    let files = open(root);
    write(&*files, object(1), 0, &base()).expect("a write");
    let pid = rustix::process::getppid().expect("a parent").as_raw_nonzero().get() as u32;
    let uid = rustix::process::geteuid().as_raw();
    files.open_session(uuid(1), Client { pid, uid }).expect("a session");
    let granted = files.grant(&cx(), uuid(1), object(1), LeaseAccess::Write, 0).expect("a grant");
    parent.say(&format!("{} {}", granted.slot, granted.generation));
    parent.hear().expect("the parent is stuck now");
    fail::arm(&std::env::var("IOV_TEST_POINT").expect("a fail point")).expect("a known fail point");
    call(&*files, object(1), ObjectVerb::Seal).expect("a seal");
}

#[test]
fn g2_a_daemon_dies_while_it_moves_bytes_away_from_a_stuck_client() {
    let mut died = BTreeSet::new();
    for point in fail::POINTS.iter().filter(|p| p.starts_with("relocate.")) {
        let directory = directory();
        let root = directory.path();
        let armed = format!("{point}:1:kill");
        let mut daemon = Peer::start("relocating", root, &[("IOV_TEST_POINT", armed.as_str())]);
        let numbers: Vec<u64> = daemon.hear().split(' ').map(|n| n.parse().expect("a number")).collect();
        let file = std::fs::File::options().write(true).open(data_path(root, object(1))).expect("the object");
        let page = std::fs::read_dir(root.join("leases")).expect("pages").next().expect("a page").expect("a page");
        let page = std::fs::File::options().read(true).write(true).open(page.path()).expect("the page");
        let slot = ClientPage::map(&page).expect("a page").slot(numbers[0] as u32, numbers[1]).expect("a slot");
        let guard = slot.begin_write().expect("leave to write");
        daemon.tell("stuck");
        assert_eq!(daemon.end(), Some(9), "killed at {point}");
        died.insert(*point);
        let files = open(root);
        // Now the write comes through after all.
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 1000], 0).expect("a late write");
        assert!(!guard.finish(), "{point}: the client hears that it was void");
        assert!(all(&*files, object(1)) == base(), "{point}: nothing of it appears");
        files.sweep_sessions().expect("a sweep");
        assert_eq!(std::fs::read_dir(root.join("leases")).expect("pages").count(), 0, "then the page goes");
        assert_eq!(std::fs::read_dir(root.join("temp")).expect("the folder").count(), 0, "nothing is left over");
    }
    check_all_died(&["relocate."], &died);
}

#[test]
fn p2_a_fail_point_can_be_armed_from_outside() {
    let run = |point| {
        let directory = directory();
        let variables = [("IOV_TEST_SCENARIO", "a seal"), (fail::VARIABLE, point)];
        let mut child = Peer::start("daemon", directory.path(), &variables);
        child.child.wait().expect("its end")
    };
    assert!(run("fence.0.begin:1:kill").success(), "a seal does not pass that point");
    let killed = std::os::unix::process::ExitStatusExt::signal(&run("seal.1.revoked:1:kill"));
    assert_eq!(killed, Some(9));
    assert_eq!(run("seal.1.revoked:1").code(), Some(101), "the operation fails");
    assert_eq!(run("seal.1").code(), Some(101), "what cannot be understood is an error");
}
