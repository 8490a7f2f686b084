//! T13, T14, T21–T23: names, search, deleted collections, renames, forks.

use iov_litmus::{Store, Worker, rounds};
use ioverbs::seam;

use crate::kit::{LEVELS, LITMUS, PAIRS, collection};

#[test]
fn t13_one_of_two_creates_of_a_name_wins() {
    let verdicts = LEVELS.map(|level| {
        let store = Store::at(level);
        let n = rounds(60);
        let (mut both, mut wins) = (PAIRS[0].map(|f| store.worker_with(f)), [0, 0]);
        let begin = seam::monotonic_ns() + 20_000_000;
        for (p, w) in both.iter_mut().enumerate() {
            // The loser hears it at its create, or at its publish; what it has written then belongs to nobody.
            let round = format!("create X n{{i}} ; wscommit ; write X 0 8 {} ; close X ; drop X", p + 1);
            w.tell(&format!("race {n} {begin} 2000000 | {round}"));
        }
        let answers = both.each_ref().map(Worker::heard_ok);
        let mut reader = store.worker();
        for i in 0..n as usize {
            let round =
                answers.each_ref().map(|a| a.split('|').nth(i).expect("a round").split(';').collect::<Vec<_>>());
            let won = round.each_ref().map(|r| r[0].starts_with("ok") && r[1].starts_with("ok"));
            assert!(won[0] != won[1], "T13 ({level}): exactly one wins n{i}: {round:?}");
            let loser = usize::from(won[0]);
            assert!(round[loser][..2].iter().any(|a| a.starts_with("err Exists")), "T13 ({level}): {round:?}");
            let got = reader.ok(&format!("many | lookup R n{i} ; read R 0 9"));
            assert_eq!(got, format!("ok;ok 8:{}*8", 2 - loser), "T13 ({level}): n{i} is the winner's");
            wins[1 - loser] += 1;
        }
        assert_eq!(reader.ok("find iov.name ~ \"n*\"").split(',').count(), n as usize, "each name once");
        (level, format!("holds: {} names", n))
    });
    LITMUS.tell(&["T13 names"], &verdicts);
}

#[test]
fn t14_search_finds_what_was_published_and_never_what_was_deleted() {
    let verdicts = LEVELS.map(|level| {
        let store = Store::at(level);
        let (mut one, mut two) = (store.worker(), store.worker());
        let n = rounds(30);
        for i in 0..n {
            one.ok(&format!("many | create X n{i} ; put X k {i} ; write X 0 {} 1 ; close X ; wscommit", i + 1));
            assert_eq!(two.ok(&format!("find k = {i}")), format!("n{i}"), "T14 ({level})");
            assert_eq!(two.ok(&format!("find k >= 0 and iov.size = {}", i + 1)), format!("n{i}"), "T14 ({level})");
            // Another value: found by that, and no more by the one before.
            one.ok(&format!("many | lookup X n{i} ; put X k {} ; close X ; wscommit", i + 1_000_000));
            assert_eq!(two.ok(&format!("find k = {i}")), "", "T14 ({level})");
            assert_eq!(two.ok(&format!("find k = {}", i + 1_000_000)), format!("n{i}"), "T14 ({level})");
            if i % 2 == 0 {
                one.ok(&format!("many | delete n{i} ; wscommit"));
                assert_eq!(two.ok(&format!("find iov.name = \"n{i}\"")), "", "T14 ({level})");
                assert_eq!(two.ok(&format!("find k = {}", i + 1_000_000)), "", "T14 ({level})");
            }
        }
        (level, format!("holds: {n} collections"))
    });
    LITMUS.tell(&["T14 search"], &verdicts);
}

#[test]
fn t21_a_deleted_collection_never_shows_foreign_bytes() {
    let verdicts = LEVELS.map(|level| {
        let store = Store::at(level);
        let n = rounds(8);
        let mut after = [0, 0];
        for round in 0..n {
            for pair in PAIRS {
                let [mut reader, mut other] = pair.map(|f| store.worker_with(f));
                collection(&mut other, "c", level, "", 300_000);
                other.ok("lookup H c");
                other.ok("write H 0 300000 1");
                other.ok("close H");
                reader.ok("lookup H c");
                // Twice: the second goes past the daemon.
                for _ in 0..2 {
                    assert_eq!(reader.ok("read H 0 300000"), "300000:1*300000");
                }
                reader.tell("watch | read H 0 300000");
                assert_eq!(reader.hear().as_deref(), Some("watching"));
                other.ok("many | delete c ; wscommit");
                // The same name, the same length, and many more of it: whatever space was freed is used again.
                other.ok(&format!("create X c consistency={level}"));
                other.ok("write X 0 300000 9");
                other.ok("close X");
                other.ok(&format!(
                    "repeat 6 | create X s{round}.{{i}} ; write X 0 300000 9 ; close X ; delete s{round}.{{i}}"
                ));
                reader.tell("enough");
                for answer in reader.heard_ok().split('|').skip(1) {
                    let own = answer == "ok 300000:1*300000";
                    assert!(own || answer.starts_with("err"), "T21 ({level}): {answer}");
                    after[usize::from(own)] += 1;
                }
                let fresh = other.ok("many | lookup Y c ; read Y 0 300001");
                assert_eq!(fresh, "ok;ok 300000:9*300000", "T21 ({level}): the new one is the new one's");
                other.ok("many | delete c ; drop Y ; wscommit");
            }
        }
        (level, format!("holds: {} deletes under a reader", n * 3))
    });
    LITMUS.tell(&["T21 reuse"], &verdicts);
}

#[test]
fn t22_an_open_finds_one_of_the_two_that_a_rename_exchanges() {
    let verdicts = LEVELS.map(|level| {
        let store = Store::at(level);
        let mut writer = store.worker();
        collection(&mut writer, "target", level, "", 0);
        writer.ok("many | lookup H target ; write H 0 5000 1 ; close H ; wscommit");
        let mut observers: Vec<Worker> = [&[][..], &["nodirect"]].map(|f| store.worker_with(f)).into();
        for o in &mut observers {
            o.tell("watch | lookup T target ; read T 0 5000 ; drop T");
            assert_eq!(o.hear().as_deref(), Some("watching"));
        }
        let n = rounds(60);
        let step =
            format!("create X new{{i}} consistency={level} ; write X 0 5000 {{b}} ; close X ; rename new{{i}} target");
        let done = writer.ok(&format!("repeat {n} | {step}"));
        assert!(!done.contains("err"), "{done}");
        let mut looks = 0;
        for o in &mut observers {
            o.tell("enough");
            let watched = o.heard_ok();
            let mut last = 0;
            for round in watched.split('|').skip(1) {
                let answers: Vec<&str> = round.split(';').collect();
                assert_eq!(answers[0], "ok", "T22 ({level}): never none");
                // What was replaced after it was opened may be gone by the time it is read; then an error says so.
                if let Some(read) = answers[1].strip_prefix("ok ") {
                    let value = crate::kit::value(read);
                    assert!(read.starts_with("5000:") && value > 0, "T22 ({level}): {read} is whole");
                    assert!(value >= last || last > 125 && value < 125, "T22 ({level}): {value} after {last}");
                    last = value;
                }
            }
            looks += watched.split('|').next().and_then(|n| n.parse::<u64>().ok()).expect("a number");
        }
        (level, format!("holds: {n} renames, {looks} opens"))
    });
    LITMUS.tell(&["T22 rename over, open"], &verdicts);
}

#[test]
fn t23_a_child_has_no_use_for_its_parents_handles() {
    let verdicts = LEVELS.map(|level| {
        let store = Store::at(level);
        let n = rounds(3);
        for flags in [&[][..], &["nodirect"]] {
            let mut w = store.worker_with(flags);
            collection(&mut w, "c", level, "", 0);
            w.ok("lookup H c");
            for _ in 0..n {
                w.ok("write H 0 300000 1");
                w.ok("write H 0 300000 1");
                let all = [
                    "write H 0 300000 9",
                    "read H 0 9",
                    "stat H",
                    "commit H",
                    "truncate H 0",
                    "close H",
                    "put H k 1",
                    "create X x",
                    "delete c",
                    "find iov.size > 0",
                    "batch rollback / write H 0 5 9 / put H k 1",
                ];
                for line in all {
                    let child = w.ok(&format!("fork | {line}"));
                    assert!(child.starts_with("err Forked"), "T23 ({level}): {line:?} in a child: {child}");
                }
                // What the child opens itself is its own, and the parent's goes on as before.
                let child = w.ok("fork | reopen lookup K c & write K 300000 5 2 & read K 299999 9");
                assert_eq!(child, "ok 6:1*1,2*5", "T23 ({level})");
                assert_eq!(w.ok("read H 0 400000"), "300005:1*300000,2*5", "T23 ({level}): the parent's");
                w.ok("truncate H 300000");
            }
            w.ok("many | close H ; delete c ; wscommit");
        }
        (level, format!("holds: {} children", n * 24))
    });
    LITMUS.tell(&["T23 fork"], &verdicts);
}
