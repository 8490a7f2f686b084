//! T15: a rollback batch over two collections, a name and metadata, while somebody looks.

use iov_litmus::{Store, Worker, rounds};
use ioverbs::seam;

use crate::{
    crash::{Found, at_each_point, die_of},
    kit::{LEVELS, LITMUS, collection},
};

const A: usize = 200_000;
const B: usize = 47_008;

/// What an observer looks at, in its order.
fn looks(k: u32, level: &str) -> String {
    let look = format!("read A 0 {A} ; get A k ; lookup N n{k} ; read B 0 {B} ; stat B ; get B k");
    // At `session` an effect is seen at the next open.
    let open = "lookup A a ; lookup B b";
    match level {
        "session" => format!("watch | {open} ; {look}"),
        _ => format!("watch | {look}"),
    }
}

/// The batch that brings everything from k − 1 to k.
fn batch(k: u32) -> String {
    let byte = byte(k);
    let old = k - 1;
    // B grows by one byte each time, and the name of the last time goes.
    format!(
        "batch rollback / write A 0 {A} {byte} / put A k {k} / create N n{k} / write N 0 5 {byte} / write B 0 {} {byte} \
         / put B k {k} / delete n{old}",
        B as u32 + k
    )
}

fn byte(k: u32) -> u8 {
    (k % 250 + 1) as u8
}

/// Whether one answer of an observer is of the new state: `None` if it tells nothing.
fn is_new(step: usize, answer: &str, k: u32) -> Option<bool> {
    if answer.starts_with("err Unavailable") || answer.starts_with("err Timeout") {
        return None;
    }
    let (old, new) = (k - 1, k);
    let one = |old: String, new: String| match answer {
        a if a == old => Some(false),
        a if a == new => Some(true),
        other => panic!("step {step} of {k} got {other:?}: neither {old:?} nor {new:?}"),
    };
    let data = |n: usize| one(format!("ok {n}:{}*{n}", byte(old)), format!("ok {n}:{}*{n}", byte(new)));
    match step {
        0 => data(A),
        1 | 5 => one(format!("ok {old}"), format!("ok {new}")),
        2 => Some(if answer.starts_with("err NotFound") { false } else { one(String::new(), "ok".into())? }),
        3 => data(B),
        _ => one(format!("ok {} Some(Open)", B as u32 + old), format!("ok {} Some(Open)", B as u32 + new)),
    }
}

/// Fails if an observer got something old after something new; whether it got anything new.
fn check_order(watched: &str, k: u32, level: &str) -> bool {
    let mut new = false;
    for round in watched.split('|').skip(1) {
        for (step, answer) in round.split(';').skip(if level == "session" { 2 } else { 0 }).enumerate() {
            match is_new(step, answer, k) {
                Some(true) => new = true,
                Some(false) => assert!(!new, "T15 ({level}, {k}): after something new, {answer:?} in {watched:?}"),
                None => {}
            }
        }
    }
    new
}

/// All or none, as a process that has just come sees it.
fn found(store: &Store, k: u32) -> Found {
    let mut w = store.worker();
    w.ok("lookup A a");
    w.ok("lookup B b");
    let answers = w.ok(&looks(k, "").replace("watch", "many"));
    let got: Vec<bool> = answers
        .split(';')
        .enumerate()
        .map(|(step, answer)| is_new(step, answer, k).expect("the store is there"))
        .collect();
    assert!(got.iter().all(|new| *new == got[0]), "B3: all or none: {got:?}, {answers}");
    let expect_old = w.ask(&format!("lookup O n{}", k - 1));
    assert_eq!(expect_old == "ok", !got[0], "the name that goes: {expect_old}");
    if got[0] { Found::New } else { Found::Old }
}

fn watch(w: &mut Worker, k: u32, level: &str) {
    w.tell(&looks(k, level));
    assert_eq!(w.hear().as_deref(), Some("watching"));
}

fn watched(w: &mut Worker) -> String {
    w.tell("enough");
    w.heard_ok()
}

/// The collections at state k.
fn prepare(store: &Store, level: &str, k: u32) {
    let mut w = store.worker();
    collection(&mut w, "a", level, "", 0);
    collection(&mut w, "b", level, "", 0);
    bring(&mut w, k);
    w.ok(&format!("create N n{k}"));
}

fn open(store: &Store, flags: &[&str]) -> Worker {
    let mut w = store.worker_with(flags);
    w.ok("lookup A a");
    w.ok("lookup B b");
    w
}

/// Brings everything but the name to state k, without a rollback batch.
fn bring(w: &mut Worker, k: u32) {
    w.ok("lookup A a");
    w.ok("lookup B b");
    w.ok(&format!("write A 0 {A} {}", byte(k)));
    w.ok(&format!("truncate B {}", B as u32 + k));
    w.ok(&format!("write B 0 {} {}", B as u32 + k, byte(k)));
    w.ok(&format!("put A k {k}"));
    w.ok(&format!("put B k {k}"));
}

/// The daemon dies at each fail point.
#[test]
fn t15_a_rollback_batch_is_all_or_nothing_when_the_daemon_dies() {
    let mut state = 1;
    at_each_point("rollback batch", &["stage.", "freeze.", "publish."], 2, |store, death| {
        if death.k == 1 {
            prepare(store, "sequential", state);
        }
        let k = state + 1;
        death.arm(store);
        let (mut one, mut other, mut writer) = (open(store, &[]), open(store, &["nodirect"]), open(store, &[]));
        watch(&mut one, k, "sequential");
        watch(&mut other, k, "sequential");
        let answer = die_of(store, &mut writer, &batch(k));
        let saw = [watched(&mut one), watched(&mut other)].map(|w| check_order(&w, k, "sequential"));
        let before = found(store, k);
        store.restart();
        let found = found(store, k);
        assert_eq!(found, before, "the same after another start");
        let done = answer.as_deref().is_none_or(|a| !a.contains("err"));
        assert!(found == Found::New || !(done || saw.contains(&true)), "{answer:?}, {saw:?}, and then it is gone");
        if found == Found::New {
            state = k;
        }
        answer.map(|answer| (found, answer))
    });
}

/// Nobody dies, or the writer does at some moment; at each level.
#[test]
fn t15_a_rollback_batch_is_seen_as_a_whole() {
    let verdicts: Vec<_> = LEVELS[..3]
        .iter()
        .map(|level| {
            let store = Store::at(level);
            prepare(&store, level, 1);
            let mut observers = [open(&store, &[]), open(&store, &["nodirect"])];
            let mut state = 1;
            let n = rounds(24);
            for round in 0..n {
                let k = state + 1;
                let before = served(&store);
                let mut writer = open(&store, &[]);
                observers.iter_mut().for_each(|o| watch(o, k, level));
                writer.tell(&batch(k));
                let killed = round % 3 != 0;
                if killed {
                    seam::sleep(round * 7919 % 40 * 100_000);
                    writer.kill();
                    // What the daemon has read of a dead writer's requests it still carries out: that is over when it hears
                    // the end of the connection, which the next batch of this loop would not wait for.
                    settle(&store, before);
                } else {
                    let done = writer.heard_ok();
                    assert!(!done.contains("err"), "{done}");
                }
                let saw = observers.each_mut().map(|o| check_order(&watched(o), k, level));
                let found = found(&store, k);
                let must = !killed || saw.contains(&true);
                assert!(found == Found::New || !must, "{saw:?}, and then it is gone");
                if found == Found::New {
                    state = k;
                }
            }
            (*level, format!("holds: {n} batches, two of three with a dead writer"))
        })
        .collect();
    let mut verdicts = verdicts;
    let store = Store::new();
    let mut w = store.worker();
    collection(&mut w, "a", "eventual", "", 10);
    w.ok("lookup A a");
    let refused = w.ok("batch rollback / write A 0 5 1 / put A k 1");
    assert!(refused.contains("err Refused B3"), "{refused}");
    verdicts.push(("eventual", "refused: B3".to_owned()));
    LITMUS.tell(&["T15 rollback"], &verdicts);
}

/// How many connections and sessions the daemon has, with those of the one that asks.
fn served(store: &Store) -> (u64, u64) {
    let status = ioverbs::daemon_status(&store.url()).expect("a status").expect("a daemon");
    let count = |of: &str| status.iter().find(|(name, _)| name == of).expect("a count").1;
    (count("connections"), count("sessions"))
}

/// Waits until the daemon serves only living processes. Over a network the session of one that was killed may be kept for a while, as
/// its connection has broken; what came over that is done once it has ended.
fn settle(store: &Store, before: (u64, u64)) {
    let until = seam::monotonic_ns() + 60_000_000_000;
    // The two observers, and the one that asks.
    loop {
        let (connections, sessions) = served(store);
        if sessions <= 3 || connections <= before.0 {
            return;
        }
        assert!(seam::monotonic_ns() < until, "{connections} connections and {sessions} sessions, before {before:?}");
        seam::sleep(1_000_000);
    }
}
