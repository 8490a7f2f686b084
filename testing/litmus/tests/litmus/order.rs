//! T1–T8: who sees a write, and when.

use iov_litmus::{Store, Worker, rounds};
use ioverbs::seam;

use crate::kit::{LEVELS, LITMUS, PAIRS, Seen, at_each_level, collection, two, value};

/// The collections of a test at a level: two, so that A and B may lie in one or in both.
fn store(level: &str, size: usize) -> Store {
    let store = Store::at(level);
    let mut w = store.worker();
    collection(&mut w, "a", level, "", size);
    collection(&mut w, "b", level, "", size);
    store
}

#[test]
fn t1_a_process_reads_what_it_wrote() {
    at_each_level("T1 read your writes", 4, |level| {
        let store = store(level, 0);
        let mut seen = Seen::default();
        for pair in PAIRS {
            let [mut w, _] = two(&store, pair, ["a", "b"]);
            // Small ones go by the daemon at first, large ones past it; unaligned ones cross pages.
            for len in [1, 8, 4096, 47_008, 300_000] {
                for at in [0, 1, 4095, 1 << 20] {
                    for v in 1..=2 {
                        w.ok(&format!("write A {at} {len} {v}"));
                        seen.note(value(&w.ok(&format!("read A {at} {len}"))) != v);
                    }
                }
            }
        }
        seen
    });
}

/// C1 does something to unit after unit, tells it, and C2 looks.
fn told(level: &str, writer: &[&str], reader: &[&str]) -> Seen {
    let store = store(level, 4 << 20);
    let mut seen = Seen::default();
    for pair in PAIRS {
        let [mut c1, mut c2] = two(&store, pair, ["a", "b"]);
        for v in 1..=rounds(30) {
            for len in [8, 47_008] {
                let at = v % 64 * 48_000;
                let byte = v % 200 + 1;
                for step in writer {
                    c1.ok(&step.replace("WRITE", &format!("write A {at} {len} {byte}")));
                }
                let read = reader.iter().map(|step| c2.ok(&step.replace("READ", &format!("read A {at} {len}"))));
                let last = read.last().expect("a read");
                seen.note(u64::from(value(&last)) != byte);
            }
        }
    }
    seen
}

#[test]
fn t5_a_write_that_is_done_is_seen() {
    at_each_level("T5 real time", 1, |level| told(level, &["WRITE"], &["READ"]));
}

#[test]
fn t6_a_committed_write_is_seen() {
    at_each_level("T6 commit", 2, |level| told(level, &["WRITE", "commit A"], &["READ"]));
}

#[test]
fn t7_a_closed_write_is_seen_by_the_next_open() {
    let writer = ["WRITE", "close A", "lookup A a"];
    at_each_level("T7 close, open", 3, |level| told(level, &writer, &["lookup A a", "READ"]));
}

/// Both do their part of each round at the same instant; what the two answered in each round.
fn raced(workers: &mut [Worker; 2], parts: [&str; 2], rounds: u64) -> Vec<[Vec<String>; 2]> {
    let begin = seam::monotonic_ns() + 20_000_000;
    for (w, part) in workers.iter_mut().zip(parts) {
        w.tell(&format!("race {rounds} {begin} 400000 | {part}"));
    }
    let answers = workers.each_ref().map(Worker::heard_ok);
    let [one, two] =
        answers.map(|a| a.split('|').map(|r| r.split(';').map(str::to_owned).collect()).collect::<Vec<_>>());
    assert_eq!((one.len(), two.len()), (rounds as usize, rounds as usize));
    one.into_iter().zip(two).map(|(a, b)| [a, b]).collect()
}

/// Races two programs over A and B in two collections and in one, in small accesses and in large ones.
fn race(level: &str, parts: [&str; 2], weak: impl Fn(&[Vec<String>; 2]) -> bool) -> Seen {
    const ROUNDS: u64 = 60;
    let mut seen = Seen::default();
    for _ in 0..rounds(1) {
        for names in [["a", "b"], ["a", "a"]] {
            let store = store(level, 0);
            for (n, pair) in PAIRS.into_iter().enumerate() {
                let mut workers = two(&store, pair, names);
                // Places that nobody has used: all they hold is 0.
                let place = |text: &str| {
                    let base = n as u64 * (ROUNDS << 20);
                    let far = if names[0] == names[1] { base + 500_000 } else { base };
                    text.replace("@A", &format!("A {{m}}+{base} 4096")).replace("@B", &format!("B {{m}}+{far} 4096"))
                };
                let parts = parts.map(place);
                let parts = parts.each_ref().map(String::as_str);
                for round in raced(&mut workers, parts, ROUNDS) {
                    seen.note(weak(&round));
                }
            }
        }
    }
    seen
}

#[test]
fn t3_two_writes_are_not_both_passed_by_reads() {
    at_each_level("T3 store buffering", 1, |level| {
        let parts = ["write @A 1 ; read @B", "write @B 1 ; read @A"];
        race(level, parts, |[one, two]| value(&one[1]) == 0 && value(&two[1]) == 0)
    });
}

#[test]
fn t4_who_sees_the_later_write_sees_the_earlier() {
    at_each_level("T4 message passing, raw", 1, |level| {
        let parts = ["write @A 1 ; write @B 1", "read @B ; read @A"];
        race(level, parts, |[_, two]| last(&two[0]) == 1 && value(&two[1]) == 0)
    });
}

/// The newest value among the bytes that were read: a read that races a write may see both.
fn last(answer: &str) -> u8 {
    let runs = answer.trim_start_matches("ok").trim().split_once(':').expect("runs").1;
    runs.split(',').filter_map(|r| r.split_once('*')?.0.parse().ok()).max().unwrap_or(0)
}

#[test]
fn t2_what_a_handle_reads_never_goes_back() {
    at_each_level("T2 monotonic reads", 4, |level| {
        let store = store(level, 4096);
        let mut seen = Seen::default();
        for pair in PAIRS {
            let [mut c1, mut c2] = two(&store, pair, ["a", "b"]);
            // As many at a time as a byte tells apart: who reads may be held up for longer than any number of writes takes.
            for _ in 0..rounds(12) / 12 {
                c1.ok("write A 0 1 0");
                c2.tell("watch | read A 0 1");
                assert_eq!(c2.hear().as_deref(), Some("watching"));
                c1.ok("repeat 240 | write A 0 1 {b}");
                c2.tell("enough");
                let watched = c2.heard_ok();
                let values: Vec<u8> = watched.split('|').skip(1).map(value).collect();
                values.windows(2).for_each(|v| seen.note(v[1] < v[0]));
                seen.rounds += watched.split('|').next().and_then(|n| n.parse::<u64>().ok()).expect("a number");
            }
        }
        seen
    });
}

#[test]
fn t8_racing_writes_leave_one_value_for_all() {
    let verdicts = LEVELS.map(|level| {
        let store = store(level, 0);
        let mut agreed = 0;
        for pair in PAIRS {
            let mut workers = two(&store, pair, ["a", "b"]);
            let parts = ["write A {m} 47008 1 ; commit A", "write A {m} 47008 2 ; commit A"];
            raced(&mut workers, parts, rounds(20));
            drop(workers);
            let looks: Vec<String> = [&[][..], &["nodirect"], &[], &["nodirect"]]
                .iter()
                .map(|flags| {
                    let mut w = store.worker_with(flags);
                    w.ok("lookup A a");
                    w.ok(&format!("repeat {} | read A {{m}} 47008", rounds(20)))
                })
                .collect();
            for n in 0..looks[0].split('|').count() {
                let round: Vec<&str> = looks.iter().map(|l| l.split('|').nth(n).expect("a round")).collect();
                assert!(round.iter().all(|r| *r == round[0]), "T8 ({level}): {round:?}");
                assert!(round[0].starts_with("ok 47008:1*") || round[0].starts_with("ok 47008:2*"), "{round:?}");
                agreed += 1;
            }
        }
        (level, format!("holds: {agreed} races, 4 readers"))
    });
    LITMUS.tell(&["T8 convergence"], &verdicts);
}

#[test]
fn t20_a_read_sees_the_write_before_it_in_its_batch() {
    at_each_level("T20 in a batch", 4, |level| {
        let store = store(level, 0);
        let mut seen = Seen::default();
        for pair in PAIRS {
            let [mut w, _] = two(&store, pair, ["a", "b"]);
            let policies: &[&str] = match level {
                "eventual" => &["continue", "stop"],
                _ => &["continue", "stop", "rollback"],
            };
            for (policy, len) in policies.iter().flat_map(|p| [(p, 8), (p, 47_008), (p, 3_000_000)]) {
                for v in 1..=rounds(4) % 200 {
                    let step = format!("write A 5 {len} {v} / read A 5 {len} / write A 6 1 0 / read A 5 3");
                    let answers = w.ok(&format!("batch {policy} / {step}"));
                    let answers: Vec<&str> = answers.split(" / ").collect();
                    seen.note(answers[1] != format!("ok {len}:{v}*{len}"));
                    seen.note(answers[3] != format!("ok 3:{v}*1,0*1,{v}*1"));
                }
            }
        }
        seen
    });
}
