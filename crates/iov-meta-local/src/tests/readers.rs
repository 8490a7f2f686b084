//! Readers while buffers are sealed, moved and merged: what one transaction wrote is seen whole, and never goes back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use iov_store::{KeyRange, MetadataStore};

use super::kit::{Place, apply, open, put, tiny, wait_until, writes};
use crate::Options;

const KEYS: [&str; 8] = ["Ra", "Rz", "Na", "Nz", "Ia", "Iz", "A", "z"];

fn values(found: &[iov_store::Record]) -> u64 {
    assert_eq!(found.len(), KEYS.len(), "every key has a value");
    let first = &found[0].value[..8];
    assert!(found.iter().all(|r| r.value[..8] == *first), "a part of a transaction shows");
    assert!(found.iter().all(|r| r.revision == found[0].revision), "one transaction, one revision");
    u64::from_le_bytes(first.try_into().expect("8 bytes"))
}

#[test]
fn o5_readers_see_whole_transactions_while_buffers_move() {
    let place = Place::new("readers");
    let store = Arc::new(open(place.path(), &Options { write_buffer: 8 << 10, ..tiny() }));
    let write = |i: u64| {
        let value = [&i.to_le_bytes()[..], &[7; 200]].concat();
        KEYS.iter().map(|key| put(key, &value)).collect::<Vec<_>>()
    };
    apply(&store, write(0));
    let (stop, reads, published) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (store, stop, reads, published) = (&store, &stop, &reads, &published);
            scope.spawn(move || {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let floor = published.load(Ordering::Acquire);
                    let now = match reader {
                        0 => {
                            let keys = KEYS.map(str::as_bytes);
                            let found = store.get(&keys).expect("a get");
                            values(&found.into_iter().flatten().collect::<Vec<_>>())
                        }
                        1 => {
                            let range = KeyRange { from: vec![], to: None };
                            let found = store.scan(&range, None, 100).expect("a scan");
                            values(&found.into_iter().map(|(_, r)| r).collect::<Vec<_>>())
                        }
                        _ => {
                            // One after the other, in one view, while much goes on.
                            let view = store.snapshot().expect("a view");
                            let get = |key: &&str| view.get(&[key.as_bytes()]).expect("a get").remove(0);
                            values(&KEYS.iter().filter_map(get).collect::<Vec<_>>())
                        }
                    };
                    assert!(now >= last && now >= floor, "T2: {now} after {last}, and {floor} was acknowledged");
                    last = now;
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for i in 1..3000 {
            apply(&store, write(i));
            published.store(i, Ordering::Release);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let stats = store.stats();
    assert!(stats.applied > 100, "{} buffers were moved", stats.applied);
    assert!(reads.load(Ordering::Relaxed) > 100, "the readers were at work");
}

#[test]
fn o5_a_view_stays_as_it_was_while_everything_is_overwritten_and_merged() {
    let place = Place::new("old-view");
    let store = open(place.path(), &tiny());
    let fill = |round: u8| {
        for n in 0..40 {
            let write =
                |i: u32| put([b"RNIz"[i as usize % 4..][..1].to_vec(), i.to_be_bytes().into()].concat(), [round; 100]);
            apply(&store, (n * 20..n * 20 + 20).map(write).collect());
        }
    };
    fill(0);
    let views: Vec<_> = (1..12)
        .map(|round| {
            let view = store.snapshot().expect("a view");
            fill(round);
            (round - 1, view)
        })
        .collect();
    wait_until("everything to be moved", || store.engine().parts().sealed.is_empty());
    assert!(store.stats().held > 0, "views hold buffers that are in tables");
    for (round, view) in &views {
        let found = view.scan(&KeyRange { from: vec![], to: None }, None, 10_000).expect("a scan");
        assert_eq!(found.len(), 800, "view {round}");
        assert!(found.iter().all(|(_, r)| r.value[..] == [*round; 100]), "view {round} shows its own round");
        let keys: Vec<_> = found.iter().map(|(k, _)| &k[..]).collect();
        let got = view.get(&keys).expect("a get");
        assert!(got.iter().zip(&found).all(|(g, (_, r))| g.as_ref() == Some(r)), "view {round} by keys");
    }
    drop(views);
    wait_until("buffers to be freed", || store.stats().held == 0);
}

#[test]
fn b3_a_commit_that_only_writes_reads_nothing() {
    let place = Place::new("blind");
    let store = open(place.path(), &tiny());
    for i in 0..500u32 {
        let txn = |part: u32| writes(vec![put([&b"R"[..], &(i % 50 + part).to_be_bytes()].concat(), [1; 100])]);
        store.commit(vec![txn(0), txn(100)]).expect("a commit");
    }
    let stats = store.stats();
    assert!(stats.applied > 2, "tables were there to be read");
    assert_eq!((stats.table_reads, stats.cache_hits), (0, 0));
    assert_eq!(stats.log_writes, 500, "one write to the log for each call");
}
