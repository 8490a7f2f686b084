use std::os::unix::fs::FileExt;

use iov_types::{Kind, Uuid};

use super::{Rng, file};
use crate::files::{
    appends::{Appends, RING},
    sidecar::APPENDS_AT,
};

fn batch(ms: u64, n: u8) -> Uuid {
    Uuid::v7(ms, [n; 10])
}

#[test]
fn m4_the_log_is_read_as_it_was_written() {
    let file = file();
    assert!(Appends::load(&file).expect("an empty file").is_none());
    let mut log = Appends::begin(&file, 100).expect("a log");
    for i in 0..1000 {
        log.commit(&file, (i % 3 > 0).then_some((batch(i / 50, 1), i)), 100 + i, 101 + i).expect("a record");
    }
    let mut again = Appends::load(&file).expect("the log").expect("there is one");
    assert_eq!(again.end(), 1100);
    for i in 0..1000 {
        let key = (batch(i / 50, 1), i);
        assert_eq!(again.find(&key), (i % 3 > 0).then_some(100 + i), "append {i}");
        assert_eq!(log.find(&key), again.find(&key));
        again.check_known(&key).expect("nothing has left the ring");
    }
    again.commit(&file, None, 0, 5).expect("a cut");
    assert_eq!(Appends::load(&file).expect("the log").expect("there is one").end(), 5);
}

#[test]
fn m4_what_left_the_ring_is_refused_not_repeated() {
    let file = file();
    let mut log = Appends::begin(&file, 0).expect("a log");
    let total = RING + 5000;
    // One batch with many appends, and one batch for each.
    for i in 0..total {
        let key = if i % 2 == 0 { (batch(500_000, 1), i) } else { (batch(1000 + i, 2), 0) };
        log.commit(&file, Some(key), i, i + 1).expect("a record");
    }
    for log in [&log, &Appends::load(&file).expect("the log").expect("there is one")] {
        assert_eq!(log.end(), total);
        for i in 0..total {
            let key = if i % 2 == 0 { (batch(500_000, 1), i) } else { (batch(1000 + i, 2), 0) };
            match log.find(&key) {
                Some(offset) => assert_eq!(offset, i),
                None => {
                    assert!(i <= 5001, "append {i} is still in the ring");
                    assert_eq!(log.check_known(&key).err().map(|e| e.kind()), Some(Kind::Stale), "append {i}");
                }
            }
        }
        log.check_known(&(batch(500_000, 1), total + 2)).expect("a new append of the large batch");
        log.check_known(&(batch(700_000, 3), 0)).expect("a new batch");
    }
}

#[test]
fn m4_many_records_at_once_wrap_as_single_ones() {
    let (one, many) = (file(), file());
    let (mut a, mut b) = (Appends::begin(&one, 0).expect("a log"), Appends::begin(&many, 0).expect("a log"));
    let mut i = 0;
    for n in [1, 60_000, 10_000, 3, 66_000] {
        let keys: Vec<_> = (i..i + n).map(|i| ((batch(7, 7), i), i)).collect();
        i += n;
        for (key, offset) in &keys {
            a.commit(&one, Some(*key), *offset, i).expect("a record");
        }
        b.commit_all(&many, &keys, i).expect("records");
    }
    let read = |file| Appends::load(file).expect("the log").expect("there is one");
    let (a, b) = (read(&one), read(&many));
    assert_eq!((a.end(), b.end()), (i, i));
    assert!((0..i).all(|n| a.find(&(batch(7, 7), n)) == b.find(&(batch(7, 7), n))));
    assert_eq!(b.find(&(batch(7, 7), i - 1)), Some(i - 1));
}

#[test]
fn m4_a_damaged_record_is_an_error() {
    let mut rng = Rng(42);
    for round in 0..200 {
        let file = file();
        let mut log = Appends::begin(&file, 0).expect("a log");
        for i in 0..20 {
            log.commit(&file, Some((batch(9, 9), i)), i, i + 1).expect("a record");
        }
        let at = APPENDS_AT + 64 + rng.below(21 * 64);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        file.write_all_at(&[byte[0] ^ (1 << (round % 8))], at).expect("a flipped bit");
        let result = Appends::load(&file);
        assert_eq!(result.err().map(|e| e.kind()), Some(Kind::Corrupt), "a flipped bit at {at}");
    }
}

/// Where a page of the ring was lost, records of the round before are there: the end is not theirs (P3).
#[test]
fn p3_a_page_of_the_round_before_does_not_throw_the_end_back() {
    let file = file();
    let mut log = Appends::begin(&file, 0).expect("a log");
    let keys = |range: std::ops::Range<u64>| range.map(|i| ((batch(7, 7), i), i)).collect::<Vec<_>>();
    let synced = RING + 6400;
    log.commit_all(&file, &keys(0..synced), synced).expect("records");
    // The page on which the next one lies, as it came to disk; those behind it came later.
    let place = APPENDS_AT + (synced + 2) % RING * 64;
    let (page, mut lost) = (place / 4096 * 4096, vec![0; 4096]);
    file.read_exact_at(&mut lost, page).expect("a page");
    log.commit_all(&file, &keys(synced..synced + 128), synced + 128).expect("records");
    file.write_all_at(&lost, page).expect("the page as it was");
    let end = Appends::load(&file).expect("the log").expect("there is one").end();
    assert!((synced..=synced + 128).contains(&end), "{end} of {synced}");
}

#[test]
fn m4_records_behind_a_gap_had_not_been_on_disk() {
    let file = file();
    let mut log = Appends::begin(&file, 0).expect("a log");
    for i in 0..20 {
        log.commit(&file, None, 0, i + 1).expect("a record");
    }
    file.write_all_at(&[0; 64], APPENDS_AT + 11 * 64).expect("a record that never came to disk");
    assert_eq!(Appends::load(&file).expect("the log").expect("there is one").end(), 9);
}
