//! SIGKILL: every acknowledged commit is there, whole. The child is this test program itself.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use iov_store::{Guard, KeyRange, MetadataStore, Txn};

use super::kit::{Place, Rng, open};
use crate::{LocalStore, Options};

const DIR: &str = "IOV_META_KILL_DIR";
/// Collections in a batch; each has a key in every family.
const BATCH: u64 = 50;
/// The batch that number is deleted by one this much later.
const LIVES: u64 = 40;

fn options() -> Options {
    // A buffer holds a dozen batches: moving, marking and deleting segments goes on all the time.
    Options { write_buffer: 256 << 10, record_cache: 1 << 20, table_cache: 1 << 20, ..Options::default() }
}

fn keys(batch: u64, i: u64) -> [Vec<u8>; 4] {
    let n = (batch * BATCH + i).to_be_bytes();
    // Names in random order.
    let name = Rng(batch * BATCH + i).next().to_be_bytes();
    [[&b"R"[..], &n].concat(), [&b"N"[..], &name].concat(), [&b"I"[..], &name, &n].concat(), [&b"B"[..], &n].concat()]
}

fn batch(number: u64) -> Vec<Txn> {
    let mut made = Txn::default();
    for i in 0..BATCH {
        let keys = keys(number, i);
        made.guards.push(Guard::Absent(keys[1].clone()));
        let value = Bytes::from([&number.to_le_bytes()[..], &[i as u8; 200]].concat());
        made.writes.extend(keys.map(|key| (key, Some(value.clone()))));
    }
    let last =
        Txn { guards: vec![], writes: vec![(b"last".to_vec(), Some(Bytes::copy_from_slice(&number.to_le_bytes())))] };
    let mut txns = vec![made, last];
    if let Some(old) = number.checked_sub(LIVES) {
        let gone = (0..BATCH).flat_map(|i| keys(old, i)).map(|key| (key, None)).collect();
        txns.push(Txn { guards: vec![], writes: gone });
    }
    txns
}

/// Not a test by itself: what the killed process does.
#[test]
#[ignore = "run by the tests of kills"]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let store = open(Path::new(&dir), &options());
    let mut number = state(&store).map_or(0, |last| last + 1);
    let mut out = std::io::stdout();
    loop {
        let commits = store.commit(batch(number)).expect("a commit");
        assert!(commits.iter().all(Result::is_ok), "{commits:?}");
        writeln!(out, "\ndone {number}").and_then(|()| out.flush()).expect("a pipe");
        number += 1;
    }
}

fn state(store: &LocalStore) -> Option<u64> {
    let last = store.get(&[b"last"]).expect("a get").remove(0)?;
    Some(u64::from_le_bytes(last.value[..].try_into().expect("8 bytes")))
}

/// What the store must hold if `last` is its last batch.
fn check(store: &LocalStore, last: u64, when: &str) {
    let first = (last + 1).saturating_sub(LIVES);
    let mut expected = 0;
    for number in first.saturating_sub(3)..=last {
        for i in 0..BATCH {
            let keys = keys(number, i);
            let found = store.get(&keys.each_ref().map(|k| &k[..])).expect("a get");
            for (key, record) in keys.iter().zip(found) {
                let right =
                    record.as_ref().is_some_and(|r| r.value[..8] == number.to_le_bytes() && r.value[8] == i as u8);
                assert_eq!(
                    right,
                    number >= first,
                    "{when}, batch {number} of {first}..={last}, key {key:02x?}: {record:?}"
                );
            }
        }
        expected += if number >= first { BATCH } else { 0 };
    }
    for tag in [b"R", b"N", b"I", b"B"] {
        let found = store.scan(&KeyRange::prefix(tag), None, usize::MAX).expect("a scan");
        assert_eq!(found.len() as u64, expected, "{when}: batches are whole, and the old ones gone");
    }
}

fn kill_after(dir: &Path, time: Duration) -> Option<u64> {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(["--exact", "tests::kill::child", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a child");
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    let reader = std::thread::spawn(move || {
        let number = |line: String| line.strip_prefix("done ").and_then(|n| n.parse::<u64>().ok());
        out.lines().map_while(Result::ok).filter_map(number).last()
    });
    std::thread::sleep(time);
    assert!(child.try_wait().expect("a state").is_none(), "the child is still at it");
    child.kill().expect("a kill");
    child.wait().expect("its end");
    reader.join().expect("what it said")
}

fn kills(rounds: u64, seed: u64) {
    let place = Place::new("kill");
    let (mut rng, mut before, mut applied) = (Rng(seed), None, 0);
    for round in 0..rounds {
        let acknowledged = kill_after(place.path(), Duration::from_millis(150 + rng.below(400)));
        let store = open(place.path(), &options());
        let last = state(&store);
        assert!(
            last >= acknowledged && last >= before,
            "round {round}: {acknowledged:?} was acknowledged, {last:?} is there"
        );
        // One batch can have been written whose word did not get out.
        if let (Some(last), Some(acknowledged)) = (last, acknowledged) {
            assert!(last <= acknowledged + 1, "round {round}: {last} after {acknowledged}");
        }
        check(&store, last.expect("something was committed"), &format!("round {round}"));
        applied += store.engine().parts().pin.epoch;
        drop(store);
        check(&open(place.path(), &options()), last.expect("as before"), &format!("round {round}, again"));
        before = last;
    }
    assert!(applied > 0, "buffers were moved into tables meanwhile");
}

#[test]
fn p2_nothing_acknowledged_is_lost_by_a_kill() {
    kills(6, 1);
}

#[test]
#[ignore = "takes a minute"]
fn p2_nothing_acknowledged_is_lost_by_many_kills() {
    kills(60, 2);
}
