//! SIGKILL at moments that nobody has chosen, under load: of a client in its own copy, and of the daemon.

use std::collections::BTreeMap;

use iov_litmus::{Store, Worker, rounds};
use ioverbs::seam;

use crate::{
    crash::CRASHES,
    kit::{PAIRS, collection},
    sharing::{acknowledged, append_stream, check_log},
};

/// A moment that differs from round to round, up to so many milliseconds.
fn some_time(round: u64, up_to_ms: u64) {
    seam::sleep(round * 7_919_000 % (up_to_ms * 1_000_000));
}

/// The acknowledged rounds of a stream, with their answers.
fn acks(lines: &[String]) -> BTreeMap<u64, Vec<String>> {
    let acks = lines.iter().filter_map(|l| l.strip_prefix("ack ")?.split_once(' '));
    acks.map(|(i, a)| (i.parse().expect("a round"), a.split(';').map(str::to_owned).collect())).collect()
}

fn none_lost(operation: &str, who: &str, what: &str) {
    CRASHES.tell(&[operation, who], &[("found afterwards", format!("none lost: {what}"))]);
}

#[test]
fn p2_what_a_client_was_told_survives_it() {
    const PIECE: usize = 4 << 20;
    const PIECES: usize = 12;
    let mut store = Store::new();
    let mut w = store.worker();
    collection(&mut w, "c", "sequential", "", 0);
    w.ok("lookup C c");
    let n = rounds(12);
    let (mut pieces, mut torn) = (0, 0);
    for round in 0..n {
        w.ok(&format!("write C 0 {} 251", PIECES * PIECE));
        let mut writer = store.worker_with(PAIRS[round as usize % 2][0]);
        writer.ok("lookup H c");
        // It begins anew before it comes to the end: 250 rounds are more than can pass in that time.
        writer.tell(&format!("stream | write H {{i}}*{PIECE} {PIECE} {{b}}"));
        writer.hear().expect("the first piece");
        some_time(round, 9);
        let told = acks(&writer.last_words());
        assert!(told.values().all(|a| a[0] == "ok"), "{told:?}");
        let last = told.keys().max().map_or(0, |n| *n as usize);
        for look in 0..2 {
            for i in 0..=last + 1 {
                let got = w.ok(&format!("insist | read C {} {PIECE}", i * PIECE));
                let new = format!("{PIECE}:{}*{PIECE}", i % 250 + 1);
                if i <= last {
                    assert_eq!(got, new, "P2: piece {i} was acknowledged");
                } else {
                    // The one in flight: each byte old or new.
                    let runs = got.split_once(':').expect("runs").1;
                    let own = |run: &str| {
                        run == "…" || run.starts_with("251*") || run.starts_with(&format!("{}*", i % 250 + 1))
                    };
                    assert!(runs.is_empty() || runs.split(',').all(own), "M1: piece {i} in flight: {got}");
                    torn += u64::from(look == 0 && runs.contains(','));
                }
            }
            if look == 0 && round % 4 == 0 {
                store.restart();
                w = store.worker();
                w.ok("lookup C c");
            }
        }
        pieces += last + 1;
    }
    none_lost("writes", "SIGKILL of the writer", &format!("{n} dead writers, {pieces} pieces, {torn} cut within one"));
}

/// Streams of work on one store; what each of them was told.
struct Load {
    creates: Worker,
    deletes: Worker,
    appends: Worker,
    batches: Worker,
}

impl Load {
    fn start(store: &Store, round: u64) -> Load {
        let [mut creates, mut deletes, mut appends, mut batches] =
            [&[][..], &["nodirect"], &[], &[]].map(|flags| store.worker_with(flags));
        creates.tell(&format!("stream | create X a{round}.{{i}} ; write X 0 20000 {{b}} ; close X"));
        deletes.tell(&format!("stream | create X d{round}.{{i}} ; write X 0 5000 1 ; close X ; delete d{round}.{{i}}"));
        appends.ok("lookup H c");
        append_stream(&mut appends, round as usize);
        batches.ok("lookup A a");
        batches.ok("lookup B b");
        batches.tell(&format!(
            "stream | batch rollback / write A 0 100000 {{b}} / put A k {{i}} / create N n{round}.{{i}} / write B 0 47008 {{b}}"
        ));
        Load { creates, deletes, appends, batches }
    }
}

fn ok(w: &mut Worker, line: &str) -> String {
    w.ok(&format!("insist | {line}"))
}

/// Creates and writes that were acknowledged are there, deletes that were stay.
fn check_names(w: &mut Worker, round: u64, creates: &[String], deletes: &[String]) -> usize {
    let mut checked = 0;
    for (i, a) in acks(creates) {
        if a[0] == "ok" {
            ok(w, &format!("lookup X a{round}.{i}"));
            let got = ok(w, "read X 0 30000");
            if a[1] == "ok" {
                assert_eq!(got, format!("20000:{}*20000", i % 250 + 1), "P2: a{round}.{i}");
            }
            checked += 1;
        }
    }
    for (i, a) in acks(deletes) {
        let found = w.ask(&format!("lookup X d{round}.{i}"));
        if a[3] == "ok" {
            assert!(found.starts_with("err NotFound"), "O10: d{round}.{i} was deleted: {found}");
        } else if a[0] == "ok" && a[3].starts_with("err") && !a[3].contains("Unknown") {
            assert_eq!(found, "ok", "P7: d{round}.{i} was created, and not deleted: {a:?}");
        }
        checked += 1;
    }
    checked
}

/// Of the batches, one is there as a whole: the last that was acknowledged, or one behind it.
fn check_batches(w: &mut Worker, round: u64, batches: &[String]) -> usize {
    let told = acks(batches);
    let done = told.iter().filter(|(_, a)| !a[0].contains("err"));
    let last = done.clone().map(|(i, _)| *i).max();
    ok(w, "lookup A a");
    ok(w, "lookup B b");
    let Some(last) = last else { return 0 };
    let k: u64 = ok(w, "get A k").parse().expect("a number");
    assert!(k >= last, "B3: batch {last} was acknowledged, {k} is there");
    let byte = k % 250 + 1;
    assert_eq!(ok(w, "read A 0 200000"), format!("100000:{byte}*100000"), "B3: A of batch {k}");
    assert_eq!(ok(w, "read B 0 50000"), format!("47008:{byte}*47008"), "B3: B of batch {k}");
    ok(w, &format!("lookup N n{round}.{k}"));
    let next = w.ask(&format!("lookup N n{round}.{}", k + 1));
    assert!(next.starts_with("err NotFound"), "B3: nothing of batch {}: {next}", k + 1);
    for (i, _) in done {
        ok(w, &format!("lookup N n{round}.{i}"));
    }
    told.len()
}

#[test]
fn p2_what_anybody_was_told_survives_the_daemon() {
    let mut store = Store::new();
    let mut w = store.worker();
    collection(&mut w, "a", "sequential", "", 0);
    collection(&mut w, "b", "sequential", "", 0);
    collection(&mut w, "c", "sequential", "mutability=append", 0);
    drop(w);
    let n = rounds(6);
    let (mut logs, mut checked) = (Vec::new(), [0; 3]);
    for round in 0..n {
        let mut load = Load::start(&store, round);
        // Each has done something; then the daemon dies, and the library of whoever comes first starts the next one.
        let parts = [&load.creates, &load.deletes, &load.appends, &load.batches];
        let mut told = parts.map(|w| vec![w.hear().expect("the worker lives")]);
        some_time(round, 60);
        store.kill_daemon();
        seam::sleep(30_000_000);
        let parts = [&mut load.creates, &mut load.deletes, &mut load.appends, &mut load.batches];
        for (told, w) in told.iter_mut().zip(parts) {
            told.extend(w.last_words());
        }
        drop(load);
        store.restart();
        let [creates, deletes, appends, batches] = told;
        let mut w = store.worker();
        checked[0] += check_names(&mut w, round, &creates, &deletes);
        checked[1] += check_batches(&mut w, round, &batches);
        logs.push(acknowledged(&appends));
        // Of each round, what was in flight when the daemon died, and when the writer did.
        checked[2] = check_log(&store, &logs, 4 * logs.len());
    }
    let who = "SIGKILL of the daemon";
    none_lost("creates, writes and deletes", who, &format!("{n} deaths, {} names", checked[0]));
    none_lost("rollback batches", who, &format!("{n} deaths, {} batches", checked[1]));
    none_lost("appends", who, &format!("{n} deaths, {} records", checked[2]));
}
