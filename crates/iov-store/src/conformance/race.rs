//! Racing reads and writes: units are whole, neighbours are unharmed, no byte comes from nowhere.

use std::sync::atomic::Ordering;

use super::{
    BackendCheck, MakeBackend, Probe, checks,
    kit::{Thread, pattern, together},
};

pub(super) fn checks() -> Vec<BackendCheck> {
    checks![BackendCheck:
        t16_units_are_old_or_new if |c| c.max_unit >= 47_008,
        c5_every_byte_is_one_that_somebody_wrote,
        t9_neighbours_do_not_damage_each_other,
        t18_a_size_counts_only_what_was_written,
        x3_disjoint_changes_of_one_object_are_all_there,
    ]
}

fn t16_units_are_old_or_new(make: MakeBackend<'_>) {
    let target = make();
    for (n, unit) in [4096u64, 47_008].into_iter().enumerate() {
        let object = Probe::new(&target, n as u64).with(|d| d.unit = unit);
        let at = unit * 3;
        object.write(at, &vec![1; unit as usize]).expect("a write");
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let object = object.clone();
                Thread::start(move |stop| {
                    while !stop.load(Ordering::Relaxed) {
                        let bytes = object.read(at, unit as usize).expect("a read");
                        assert!(bytes.iter().all(|b| *b == bytes[0]), "T16: a unit of {unit} bytes is torn");
                    }
                })
            })
            .collect();
        let to = object.clone();
        together(2, move |writer| {
            for i in 0..150 {
                to.write(at, &vec![(writer * 100 + i % 100) as u8; unit as usize]).expect("a write");
            }
        });
        // Copied units are units as well.
        let source = Probe::new(&target, 100);
        for value in 0..50u8 {
            source.write(0, &vec![value; unit as usize]).expect("a write");
            object.copy(&source, 0, at, unit).expect("a copy");
        }
        readers.into_iter().for_each(Thread::stop);
    }
}

fn c5_every_byte_is_one_that_somebody_wrote(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    const LEN: usize = 70_000;
    object.write(0, &[1; LEN]).expect("a write");
    let reader = {
        let object = object.clone();
        Thread::start(move |stop| {
            while !stop.load(Ordering::Relaxed) {
                let bytes = object.read(1234, 60_000).expect("a read");
                assert_eq!(bytes.len(), 60_000, "a read inside the object is not short");
                assert!(bytes.iter().all(|b| (1..=3).contains(b)), "a byte that nobody wrote");
            }
        })
    };
    let to = object.clone();
    together(2, move |writer| {
        for i in 0..150usize {
            to.write(i as u64 * 7, &vec![writer as u8 + 2; LEN - i * 11]).expect("a write");
        }
    });
    reader.stop();
}

fn t9_neighbours_do_not_damage_each_other(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    const LEN: usize = 47_008;
    let to = object.clone();
    together(16, move |writer| {
        // Every second one goes backwards, so that neighbours meet at their borders at the same time.
        let order = |i: usize| if writer % 2 == 0 { i } else { 7 - i };
        for data in [pattern(99, LEN), pattern(writer as u64, LEN)] {
            for i in (0..8).map(order) {
                let (from, end) = (i * LEN / 8, (i + 1) * LEN / 8);
                to.write((writer * LEN + from) as u64, &data[from..end]).expect("a write");
            }
        }
    });
    let bytes = object.all();
    assert_eq!(bytes.len(), 16 * LEN);
    for writer in 0..16 {
        let right = bytes[writer * LEN..][..LEN] == pattern(writer as u64, LEN);
        assert!(right, "T9: the bytes of writer {writer} are damaged");
    }
}

fn t18_a_size_counts_only_what_was_written(make: MakeBackend<'_>) {
    let object = Probe::new(&make(), 1);
    let watcher = {
        let object = object.clone();
        Thread::start(move |stop| {
            while !stop.load(Ordering::Relaxed) {
                let size = object.stat().size;
                assert!(size.is_multiple_of(5000) && size <= 50_000, "T18: size {size} was never one");
                let bytes = object.read(0, 60_000).expect("a read");
                assert!(bytes.len().is_multiple_of(5000), "T18: a read of {} bytes", bytes.len());
                assert!(bytes.iter().all(|b| *b != 0), "T18: the size counts bytes that nobody wrote");
            }
        })
    };
    for _ in 0..30 {
        for i in 0..10 {
            object.append(&pattern(i, 5000)).expect("an append");
        }
        for size in [35_000, 5000, 0] {
            object.truncate(size).expect("a cut");
        }
    }
    watcher.stop();
}

fn x3_disjoint_changes_of_one_object_are_all_there(make: MakeBackend<'_>) {
    let target = make();
    let object = Probe::new(&target, 1);
    const PIECE: u64 = 500;
    let at = |writer: u64, i: u64| (i * 8 + writer) * PIECE; // everybody's pieces lie between everybody else's
    let to = object.clone();
    together(8, move |writer| {
        let writer = writer as u64;
        for i in 0..20 {
            to.write(at(writer, i), &pattern(writer * 20 + i, PIECE as usize)).expect("a write");
            if i % 5 == 4 {
                to.punch(at(writer, i), 100).expect("a punch");
            }
        }
    });
    let bytes = object.all();
    for writer in 0..8u64 {
        for i in 0..20 {
            let mut expected = pattern(writer * 20 + i, PIECE as usize);
            if i % 5 == 4 {
                expected[..100].fill(0);
            }
            assert!(bytes[at(writer, i) as usize..][..PIECE as usize] == expected, "piece {i} of writer {writer}");
        }
    }
}
