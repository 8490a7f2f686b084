//! T9–T11, T16, T18: many writers of one collection, appends, seals, units, sizes.

use iov_litmus::{Store, Worker, is_striped, rounds, worker::data};
use ioverbs::seam;

use crate::kit::{LEVELS, LITMUS, PAIRS, collection};

/// Four processes, every other one without direct access, that have `c` open as H.
fn four(store: &Store) -> Vec<Worker> {
    (0..4)
        .map(|n| {
            let mut w = store.worker_with(if n % 2 == 0 { &[] } else { &["nodirect"] });
            w.ok("lookup H c");
            w
        })
        .collect()
}

#[test]
fn t9_neighbours_never_damage_each_other() {
    const LEN: usize = 47_008;
    let verdicts = LEVELS.map(|level| {
        let store = Store::at(level);
        let mut made = store.worker();
        collection(&mut made, "c", level, "", 0);
        let mut writers = four(&store);
        let n = rounds(3);
        for round in 0..n {
            for (p, w) in writers.iter_mut().enumerate() {
                // Four threads each; a writer's pieces lie 16 pieces apart, its neighbours' between them.
                let threads: Vec<String> = (0..4)
                    .map(|piece| {
                        let first = (piece * 16 + p * 4) * LEN;
                        format!("write H {first}+{{t}}*{LEN} {LEN} {}", round as usize * 16 % 200 + p * 4 + 1)
                    })
                    .collect();
                w.tell(&format!("threads 4 1 | {}", threads.join(" ; ")));
            }
            writers.iter().for_each(|w| drop(w.heard_ok()));
            for w in &mut writers {
                w.ok("commit H");
                w.ok("close H");
                w.ok("lookup H c");
            }
            for flags in [&[][..], &["nodirect"]] {
                let mut reader = store.worker_with(flags);
                reader.ok("lookup H c");
                for piece in 0..64 {
                    let (at, p) = (piece * LEN, piece % 16 / 4);
                    let byte = round as usize * 16 % 200 + p * 4 + 1;
                    let got = reader.ok(&format!("read H {at} {LEN}"));
                    assert_eq!(got, format!("{LEN}:{byte}*{LEN}"), "T9 ({level}): piece {piece}, round {round}");
                }
                assert!(reader.ok("stat H").starts_with(&format!("{} ", 64 * LEN)));
            }
        }
        (level, format!("holds: {} writes", n * 64))
    });
    LITMUS.tell(&["T9 false sharing"], &verdicts);
}

/// What a stream of appends has told: the number of each record and where it is.
pub(crate) fn acknowledged(lines: &[String]) -> Vec<(u32, u64)> {
    let acks = lines.iter().filter_map(|l| l.strip_prefix("ack "));
    acks.flat_map(|ack| {
        let (number, answers) = ack.split_once(' ').expect("a number");
        let number: u32 = number.parse().expect("a number");
        answers.split(';').enumerate().filter_map(move |(k, a)| {
            let at = a.strip_prefix("ok ")?;
            Some((number * 2 + k as u32, at.parse().expect("an offset")))
        })
    })
    .collect()
}

/// Orders a stream of appends of writer `p`: a short record and a long one in turn, numbered 2i and 2i + 1.
pub(crate) fn append_stream(w: &mut Worker, p: usize) {
    w.tell(&format!("stream | append H {} w{p}.{{i}}+{{i}} ; append H {} w{p}.{{i}}+{{i}}+1", 100 + p, 47_008 + p));
}

/// Every acknowledged record is where it was told to be, exactly once, whole and in order; nothing else but, at most,
/// what was in flight.
pub(crate) fn check_log(store: &Store, acks: &[Vec<(u32, u64)>], in_flight: usize) -> usize {
    let c = ioverbs::lookup(&store.workspace(), None, "c", Default::default()).expect("the log");
    let mut log = vec![0; ioverbs::stat(&c).expect("stat").bytes as usize];
    assert_eq!(ioverbs::read_at(&c, 0, &mut log).expect("a read"), log.len());
    let records = data::records(&log).unwrap_or_else(|e| panic!("T10: {e}"));
    let mut extra = 0;
    for (p, acks) in acks.iter().enumerate() {
        let own: Vec<_> = records.iter().filter(|r| usize::from(r.writer) == p).collect();
        assert!(own.windows(2).all(|r| r[0].number < r[1].number), "T10: writer {p} in order, each once");
        for (number, at) in acks {
            let found = own.iter().find(|r| r.number == *number);
            let found =
                found.unwrap_or_else(|| panic!("T10: record {number} of writer {p} was acknowledged, and is gone"));
            assert_eq!(found.offset as u64, *at, "T10: record {number} of writer {p}");
        }
        extra += own.len() - acks.len();
    }
    assert!(extra <= in_flight, "T10: {extra} records that nobody was told of");
    records.len()
}

#[test]
fn t10_appends_are_whole_ordered_and_there_once() {
    let verdicts = LEVELS.map(|level| {
        let store = Store::at(level);
        let mut w = store.worker();
        collection(&mut w, "c", level, "mutability=append", 0);
        let mut writers = four(&store);
        for (p, w) in writers.iter_mut().enumerate() {
            append_stream(w, p);
        }
        // Each has told so many; one is killed in the midst of it, the others go on for as long again.
        let m = rounds(10);
        let hear = |w: &Worker| (0..m).map(|_| w.hear().expect("the worker lives")).collect::<Vec<_>>();
        let mut told: Vec<Vec<String>> = writers.iter().map(hear).collect();
        told[1].extend(writers[1].last_words());
        for p in [0, 2, 3] {
            told[p].extend(hear(&writers[p]));
            writers[p].tell("enough");
            while let Some(line) = writers[p].hear().filter(|l| l != "ok") {
                told[p].push(line);
            }
            assert!(told[p].iter().all(|l| !l.contains("err")), "{:?}", told[p].last());
        }
        drop(writers);
        let acks: Vec<_> = told.iter().map(|t| acknowledged(t)).collect();
        // The killed one may have appended two records that it could not tell of any more.
        let records = check_log(&store, &acks, 2);
        (level, format!("holds: {records} records, one writer killed"))
    });
    LITMUS.tell(&["T10 append"], &verdicts);
}

#[test]
fn t11_a_write_is_before_the_seal_or_fails() {
    let verdicts = LEVELS.map(|level| {
        let store = Store::at(level);
        let mut caught = 0;
        let n = rounds(3);
        for round in 0..n * 4 {
            let (name, pair) = (format!("c{round}"), PAIRS[round as usize % 3]);
            let [mut writer, mut sealer] = pair.map(|flags| store.worker_with(flags));
            writer.ok(&format!("create H {name} consistency={level} mutability=immutable"));
            sealer.ok(&format!("lookup H {name}"));
            // By steps of 4 KiB, or of 128 KiB, which takes so long that the seal comes in the midst of it.
            let (step, len) = if round % 2 == 0 { ("{o}", 4096) } else { ("{o}*32", 128 << 10) };
            writer.tell(&format!("stream | write H {step} {len} 7"));
            let mut acks = 0;
            for _ in 0..3 {
                acks += usize::from(writer.hear().expect("the writer lives").ends_with("ok"));
            }
            seam::sleep(round * 7919 % 30 * 20_000);
            sealer.ok("seal H");
            let size: u64 = sealer.ok("stat H").split(' ').next().and_then(|n| n.parse().ok()).expect("a size");
            writer.tell("enough");
            let look = format!("many | stat H ; read H 0 {}", size + 1);
            let sealed = sealer.ok(&look);
            let mut refused = 0;
            while let Some(line) = writer.hear().filter(|l| l != "ok") {
                match line.split_once(' ').and_then(|(_, rest)| rest.split_once(' ')) {
                    Some((_, "ok")) => {
                        assert_eq!(refused, 0, "T11 ({level}): a write behind the seal");
                        acks += 1;
                    }
                    Some((_, e)) if e.starts_with("err Immutable M2") => refused += 1,
                    _ => panic!("T11 ({level}): {line}"),
                }
            }
            let told = acks * len;
            // What was under way over several targets when the seal came has failed, and may be there in part (M1).
            let within = if is_striped() { told..=told + len } else { told..=told };
            let size = if within.contains(&(size as usize)) { size as usize } else { told };
            let whole = format!("ok {size} Some(Sealed);ok {size}:7*{size}");
            assert_eq!(sealed, whole, "T11 ({level}): what was told to be written is there, and nothing else");
            assert_eq!(sealer.ok(&look), whole, "and stays");
            // Many rounds must not fill the shared memory.
            writer.ok("close H");
            sealer.ok("close H");
            sealer.ok(&format!("delete {name}"));
            caught += u64::from(refused > 0);
        }
        assert!(caught > 0, "some writes came too late");
        (level, format!("holds: {} seals", n * 4))
    });
    LITMUS.tell(&["T11 seal race"], &verdicts);
}

#[test]
fn t16_a_unit_is_old_or_new_and_writers_die() {
    let verdicts = LEVELS.map(|level| {
        let store = Store::at(level);
        let mut w = store.worker();
        collection(&mut w, "c", level, "atomicity=unit(4K)", 40_960);
        collection(&mut w, "d", level, "atomicity=unit request_size=47008..47008", 47_008);
        let mut observers: Vec<Worker> = [&[][..], &["nodirect"]].map(|f| store.worker_with(f)).into();
        for o in &mut observers {
            o.ok("lookup C c");
            o.ok("lookup D d");
            o.tell("watch | read C 8192 4096 ; read D 0 47008");
            assert_eq!(o.hear().as_deref(), Some("watching"));
        }
        let n = rounds(6);
        for round in 0..n {
            let mut writers: Vec<Worker> = PAIRS[round as usize % 3].map(|f| store.worker_with(f)).into();
            for (p, w) in writers.iter_mut().enumerate() {
                w.ok("lookup C c");
                w.ok("lookup D d");
                let byte = round as usize * 2 % 200 + p + 1;
                w.tell(&format!("stream | write C 8192 4096 {byte} ; write D 0 47008 {byte}"));
            }
            seam::sleep(5_000_000 + round * 7919 % 10 * 1_000_000);
            for w in &mut writers {
                let told = w.last_words();
                assert!(told.iter().all(|l| !l.contains("err")), "{:?}", told.last());
            }
        }
        let mut seen = 0;
        for o in &mut observers {
            o.tell("enough");
            let watched = o.heard_ok();
            for answer in watched.split('|').skip(1).flat_map(|r| r.split(';')) {
                assert!(!answer.contains(',') && answer.starts_with("ok"), "T16 ({level}): a torn unit: {answer}");
            }
            seen += watched.split('|').next().and_then(|n| n.parse::<u64>().ok()).expect("a number");
        }
        (level, format!("holds: {} dead writers, {seen} looks", n * 2))
    });
    LITMUS.tell(&["T16 units"], &verdicts);
}

#[test]
fn t18_a_size_counts_no_byte_that_nobody_wrote() {
    let verdicts = LEVELS.map(|level| {
        let store = Store::at(level);
        let mut looks = 0;
        for (name, controls, work) in [
            (
                "c",
                "",
                "truncate H 0 ; write H 0 50000 7 ; write H 50000 3 7 ; write H 50003 47008 7 ; truncate H 60000",
            ),
            ("d", "mutability=append", "append H 5003 7 ; append H 47008 7"),
        ] {
            let mut writer = store.worker();
            collection(&mut writer, name, level, controls, 0);
            writer.ok(&format!("lookup H {name}"));
            let mut observers: Vec<Worker> = [&[][..], &["nodirect"]].map(|f| store.worker_with(f)).into();
            for o in &mut observers {
                o.ok(&format!("lookup H {name}"));
                o.tell("watch | stat H ; read H 0 100000000 ; stat H");
                assert_eq!(o.hear().as_deref(), Some("watching"));
            }
            writer.ok(&format!("repeat {} | {work}", rounds(40)));
            for o in &mut observers {
                o.tell("enough");
                let watched = o.heard_ok();
                for round in watched.split('|').skip(1) {
                    let answers: Vec<&str> = round.split(';').collect();
                    let read = answers[1].strip_prefix("ok ").unwrap_or_else(|| panic!("{round}"));
                    let (len, runs) = read.split_once(':').expect("runs");
                    assert!(runs.is_empty() || runs == format!("7*{len}"), "T18 ({level}, {name}): {round}");
                    if !controls.is_empty() {
                        let size = |a: &str| a.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a size");
                        let len: u64 = len.parse().expect("a length");
                        let within = size(answers[0]) <= len && len <= size(answers[2]);
                        assert!(within, "T18 ({level}): an append-only collection only grows: {round}");
                    }
                    looks += 1;
                }
            }
        }
        (level, format!("holds: {looks} different looks"))
    });
    LITMUS.tell(&["T18 size"], &verdicts);
}
