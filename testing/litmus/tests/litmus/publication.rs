//! T24, M1: with `atomicity=publication` everything between two publishing points becomes visible together or not at all.

use iov_litmus::{Store, Worker, at_member, in_shared_memory, over_tcp, rounds};
use ioverbs::seam;

use crate::{
    crash::{Found, at_each_point, die_of},
    kit::{LEVELS, LITMUS, collection},
};

const SIZE: u32 = 200_000;

/// A version: everything is its byte, and so is the length.
fn version(byte: u8) -> String {
    let size = SIZE + u32::from(byte);
    format!("{size}:{byte}*{size}")
}

/// Overwrites all of it, by three writes and a truncate that any mixture would show.
fn overwrite(byte: u8) -> Vec<String> {
    let size = SIZE + u32::from(byte);
    vec![
        format!("truncate H {size}"),
        format!("write H 0 100000 {byte}"),
        format!("write H 150000 {} {byte}", size - 150_000),
        format!("write H 100000 50000 {byte}"),
    ]
}

fn writer(store: &Store) -> Worker {
    let mut w = store.worker();
    w.ok("lookup H c");
    w
}

/// Which of two versions a process finds that has just come.
fn found(store: &Store, old: u8, new: u8) -> Found {
    let got = writer(store).ok(&format!("read H 0 {}", 2 * SIZE));
    match got {
        got if got == version(new) => Found::New,
        got if got == version(old) => Found::Old,
        got => panic!("T24: neither version {old} nor {new}: {got}"),
    }
}

fn first(store: &Store, level: &str) {
    let mut w = store.worker();
    collection(&mut w, "c", level, "atomicity=publication", 0);
    w.ok("lookup H c");
    overwrite(1).iter().for_each(|line| drop(w.ok(line)));
    w.ok("commit H");
}

/// What an observer saw is one version after the other, each whole.
fn check_whole(watched: &str, old: u8, new: u8) -> bool {
    let mut seen_new = false;
    for got in watched.split('|').skip(1).filter(|got| !got.starts_with("err Unavailable")) {
        let is_new = got == format!("ok {}", version(new));
        assert!(is_new || got == format!("ok {}", version(old)), "T24: neither {old} nor {new}: {got}");
        assert!(is_new || !seen_new, "T24: {new}, and then {old} again");
        seen_new |= is_new;
    }
    seen_new
}

fn deaths(operation: &str, end: &str) {
    let mut state = 1;
    at_each_point(operation, &["stage.", "freeze.", "publish."], 1, |store, death| {
        if death.k == 1 {
            first(store, "sequential");
        }
        let new = state + 1;
        death.arm(store);
        let (mut w, mut observer) = (writer(store), writer(store));
        observer.tell(&format!("watch | read H 0 {}", 2 * SIZE));
        assert_eq!(observer.hear().as_deref(), Some("watching"));
        let mut lines = overwrite(new);
        lines.push(end.into());
        let answer = die_of(store, &mut w, &format!("all | {}", lines.join(" ; ")));
        observer.tell("enough");
        let saw = check_whole(&observer.heard_ok(), state, new);
        let before = found(store, state, new);
        drop((w, observer));
        store.restart();
        let found = found(store, state, new);
        assert_eq!(found, before, "the same after another start");
        let done = answer.as_deref().is_some_and(|a| !a.contains("err"));
        assert!(found == Found::New || !(saw || done), "{answer:?}, seen {saw}, and then it is gone");
        if found == Found::New {
            state = new;
        }
        answer.map(|answer| (found, answer))
    });
}

#[test]
fn t24_a_publication_is_whole_when_the_daemon_dies_of_its_commit() {
    deaths("publication by commit", "commit H");
}

#[test]
fn t24_a_publication_is_whole_when_the_daemon_dies_of_its_close() {
    deaths("publication by close", "close H");
}

/// The daemon is killed between two steps, and the writer repeats what failed: nothing of it may be missing.
#[test]
fn t24_a_writer_that_insists_publishes_all_of_it() {
    let mut store = Store::new();
    first(&store, "sequential");
    let mut new = 1;
    for end in ["commit H", "close H", "persist H"] {
        for killed_before in 0..=4 {
            new += 1;
            let mut w = writer(&store);
            for (n, line) in overwrite(new).iter().map(String::as_str).chain([end]).enumerate() {
                if n == killed_before {
                    store.restart();
                }
                w.ok(&format!("insist | {line}"));
            }
            let got = writer(&store).ok(&format!("read H 0 {}", 2 * SIZE));
            assert_eq!(got, version(new), "{end}, killed before step {killed_before}");
        }
    }
}

/// Whatever the first commit came to: who repeats it has published all of it, once it says so.
#[test]
fn m1_a_commit_whose_daemon_died_can_be_repeated() {
    let mut old = 1;
    let mut store = Store::new();
    first(&store, "sequential");
    for point in iov_media::fail::POINTS.iter().filter(|p| p.starts_with("freeze.") || p.starts_with("publish.")) {
        let new = old + 1;
        store.arm(&format!("{point}:1:kill"));
        let mut w = writer(&store);
        overwrite(new).iter().for_each(|line| drop(w.ok(line)));
        let first = w.ask("commit H");
        assert!(store.daemon().dies(), "{point}");
        let second = w.ask("insist | commit H");
        assert_eq!(second, "ok", "{point}, where the first had said {first:?}");
        assert_eq!(found(&store, old, new), Found::New, "{point}: {first:?}, {second:?}");
        drop(w);
        store.restart();
        old = new;
    }
}

/// A commit that fails because the store is out of reach leaves the changes to the next one.
#[test]
fn m1_a_commit_that_did_not_reach_the_store_can_be_repeated() {
    if over_tcp() || at_member() {
        return; // where a daemon that is away is waited for
    }
    let mut store = Store::new();
    first(&store, "sequential");
    let mut w = store.worker_with(&["nostart"]);
    w.ok("lookup H c");
    overwrite(2).iter().for_each(|line| drop(w.ok(line)));
    store.kill_for_good();
    let failed = w.ask("commit H");
    assert!(failed.starts_with("err Unavailable"), "{failed}");
    store.restart();
    w.ok("insist | commit H");
    assert_eq!(found(&store, 1, 2), Found::New, "the commit that succeeded tells of all that was written before it");
}

/// The writer dies at some moment, at each level.
#[test]
fn t24_a_publication_is_whole_when_its_writer_dies() {
    let verdicts: Vec<_> = LEVELS
        .iter()
        .map(|level| {
            let store = Store::at(level);
            first(&store, level);
            let mut observers = [writer(&store), store.worker_with(&["nodirect"])];
            observers[1].ok("lookup H c");
            let look = format!("read H 0 {}", 2 * SIZE);
            let open = if *level == "session" { "lookup H c ;" } else { "" };
            let n = rounds(20);
            let mut old = 1;
            for round in 0..n {
                let new = (old % 200) + 1;
                for o in &mut observers {
                    o.tell(&format!("watch | {open} {look}"));
                    assert_eq!(o.hear().as_deref(), Some("watching"));
                }
                let mut w = writer(&store);
                let mut lines = overwrite(new);
                lines.push("commit H".into());
                w.tell(&format!("many | {}", lines.join(" ; ")));
                seam::sleep(round * 7919 % 60 * 100_000);
                w.kill();
                // What the daemon had read of its requests is done in order, before this one's answer or not at all.
                let watched = observers.each_mut().map(|o| {
                    o.tell("enough");
                    o.heard_ok()
                });
                let now = found(&store, old, new);
                for watched in watched {
                    let watched = watched.replace("ok;", "");
                    assert!(!check_whole(&watched, old, new) || now == Found::New, "T24: seen, and then gone");
                }
                if now == Found::New {
                    old = new;
                }
            }
            (*level, format!("holds: {n} dead writers"))
        })
        .collect();
    LITMUS.tell(&["T24 publication"], &verdicts);
}

/// A handle that goes away with changes that it has not published takes them along.
#[test]
fn m1_a_handle_that_is_dropped_publishes_nothing() {
    // What shared memory offers ends with "process" (P3).
    let levels: &[&str] = if in_shared_memory() { &[""] } else { &["", "persistence=durable"] };
    for controls in levels {
        let store = Store::new();
        let mut w = store.worker();
        collection(&mut w, "c", "sequential", &format!("atomicity=publication {controls}"), 0);
        w.ok("all | lookup H c ; write H 0 10 1 ; commit H");
        assert_eq!(writer(&store).ok("read H 0 99"), "10:1*10", "{controls}");
        w.ok("write H 0 10 2");
        w.ok("drop H");
        assert_eq!(w.ok("all | lookup H c ; read H 0 99"), "10:1*10", "{controls}");
        assert_eq!(writer(&store).ok("read H 0 99"), "10:1*10", "{controls}");
    }
}
