//! The daemon is killed at every numbered step of every operation: afterwards all of it is there, or nothing.

mod scenarios;

use std::{collections::BTreeSet, os::unix::fs::FileExt, path::Path};

use iov_media::{Files, Peer as Client, fail};
use iov_store::{ClientPage, LeaseAccess};
use iov_types::{Clause, Demand, Kind, ObjectVerb, Persistence};

use crate::kit::{
    ALL, Parent, Peer, all, call, cx, data_path, directory, look, object, open, segments, send, tree, try_all, uuid,
    write,
};
use scenarios::{Expect, SCENARIOS, Scenario, base};

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
    if std::env::var_os("IOV_TEST_KEPT").is_some() {
        keep(&files);
    }
    if let Ok(point) = std::env::var("IOV_TEST_POINT") {
        fail::arm(&point).expect("a known fail point");
    }
    (scenario.act)(&files);
}

/// From here on the object is kept by checksums (I1).
fn keep(files: &Files) {
    let durable = Demand { durability: Some(Persistence::Durable), ..Demand::default() };
    send(files, object(1), ObjectVerb::Sync, durable, &[]).expect("a sync");
}

/// Runs a scenario to its death at the n-th passage of a point; false if it came to its end.
fn dies(scenario: &Scenario, kept: bool, point: &str, n: u32, root: &Path) -> bool {
    let armed = format!("{point}:{n}:kill");
    let mut variables = vec![("IOV_TEST_SCENARIO", scenario.name), ("IOV_TEST_POINT", armed.as_str())];
    if kept {
        variables.push(("IOV_TEST_KEPT", "1"));
    }
    let child = Peer::start("daemon", root, &variables);
    child.end() == Some(rustix::process::Signal::KILL.as_raw())
}

/// What an object lies on: a file, one with checksums, or segments.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Medium {
    Files,
    Kept,
    Segments,
}

/// Runs all scenarios with names that begin so; the points at which a child died.
fn run(which: &str) -> BTreeSet<&'static str> {
    let mut died = BTreeSet::new();
    for scenario in SCENARIOS.iter().filter(|s| s.name.starts_with(which)) {
        let passes = |p: &&str| p.starts_with("sums.") || scenario.points.iter().any(|start| p.starts_with(start));
        let points = fail::POINTS.iter().copied().filter(passes);
        for (point, medium) in points.flat_map(|p| [(p, Medium::Files), (p, Medium::Kept), (p, Medium::Segments)]) {
            let kept = medium == Medium::Kept;
            for n in 1..=3 {
                let directory = if medium == Medium::Segments { segments() } else { directory() };
                if !dies(scenario, kept, point, n, directory.path()) {
                    break;
                }
                died.insert(point);
                println!("{}, {medium:?}: killed at {point}, the {n}. time", scenario.name);
                let looked = look_at(directory.path());
                let files = open(directory.path());
                assert!(files.troubles().is_empty(), "{:?}", files.troubles());
                // What was staged and not decided about waits for the catalog.
                if let Some(looked) = looked.filter(|_| files.stages().is_empty()) {
                    assert!(looked == try_all(&*files, object(1)).ok(), "who only looks sees what a start makes of it");
                }
                (scenario.after)(&files, expected(point));
                // What recovery has done is done: a second one finds nothing.
                let look = |files: &Files| {
                    let stat = call(files, object(1), ObjectVerb::Stat).ok();
                    (try_all(files, object(1)).ok(), stat.map(|s| (s.epoch, s.version, s.mtime_ns)))
                };
                let before = look(&files);
                drop(files);
                let files = open(directory.path());
                assert!(look(&files) == before, "the same after another start");
                let path = data_path(directory.path(), object(1));
                if kept && let Some(first) = before.0.as_ref().and_then(|bytes| bytes.first()) {
                    keep(&files); // where there was nothing to keep before the scenario
                    // Its mode may forbid it: what is sealed can rot as well.
                    let _ = std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600));
                    let file = std::fs::File::options().write(true).open(&path).expect("the file");
                    file.write_all_at(&[first ^ 1], 0).expect("some damage");
                    assert!(try_all(&*files, object(1)).is_err_and(|e| e.clause() == Some(Clause::I1)), "it is kept");
                }
            }
        }
    }
    died
}

/// What somebody finds who does not start anything; `None`: that it is not finished. Nothing changes by that.
fn look_at(directory: &Path) -> Option<Option<Vec<u8>>> {
    let before = tree(directory);
    let found = match try_all(&look(directory), object(1)) {
        Err(e) if e.kind() == Kind::Unavailable => None,
        found => Some(found.ok()),
    };
    assert!(tree(directory) == before, "looking changes nothing");
    found
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
    check_all_died(&["append.", "sums.0"], &died);
}

#[test]
fn m1_units_are_old_or_new() {
    let mut died = run("a change of units");
    died.extend(run("a durable change"));
    died.extend(run("a cut through"));
    check_all_died(&["unit.", "sums."], &died);
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
    let granted = files.grant(&cx(), uuid(1), object(1), LeaseAccess::Write, ALL, 0).expect("a grant");
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
        files.came_back(uuid(1));
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
