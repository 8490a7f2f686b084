//! Small reads of many objects in one batch.

use std::sync::atomic::Ordering;

use ioverbs::{Batch, BatchAttr, Collection, Memory, Op, Workspace};

use crate::kit::{Store, create, lookup};

const FILES: usize = 60;
/// More than a record holds, so that a target has it.
const SIZE: usize = 10_000;

fn byte(i: usize, at: usize) -> u8 {
    (i * 31 + at) as u8
}

/// Reads all of them in one batch.
fn read(ws: &Workspace, all: &[Collection]) {
    let mut bytes = vec![0; FILES * SIZE];
    let mut batch = Batch::new(ws.session(), BatchAttr::default()).unwrap();
    for (c, part) in all.iter().zip(bytes.chunks_mut(SIZE)) {
        // SAFETY: waited for below.
        let memory = unsafe { Memory::writable(part.as_mut_ptr(), part.len()) };
        batch.push(Op::Read { c: c.clone(), chunks: vec![(0, memory)] }).unwrap();
    }
    batch.start().unwrap().wait(-1).unwrap();
    for (i, part) in bytes.chunks(SIZE).enumerate() {
        assert!(part.iter().enumerate().all(|(at, b)| *b == byte(i, at)), "file {i}");
    }
}

#[test]
fn reads_of_many_objects_are_asked_for_together_and_then_lent() {
    let store = Store::new();
    let ws = store.in_workspace();
    for i in 0..FILES {
        let bytes: Vec<u8> = (0..SIZE).map(|at| byte(i, at)).collect();
        let c = create(&ws, &i.to_string(), "");
        ioverbs::write_at(&c, 0, &bytes).unwrap();
        ioverbs::close(&c).unwrap();
    }
    let ws = store.again();
    let all: Vec<Collection> = (0..FILES).map(|i| lookup(&ws, &i.to_string())).collect();
    let counters = ws.session().counters();
    let cost = || (counters.grants.load(Ordering::Relaxed), counters.round_trips.load(Ordering::Relaxed));
    for round in 0..3 {
        let before = cost();
        read(&ws, &all);
        let (grants, trips) = (cost().0 - before.0, cost().1 - before.1);
        assert!(grants == 0 && trips <= 4, "round {round}: {grants} grants, {trips} questions for {FILES} objects");
    }
    // What is read again and again is read without a question.
    read(&ws, &all);
    let before = cost();
    read(&ws, &all);
    assert_eq!(cost(), before);
    // Several reads of one object are worth a grant at once.
    let one = lookup(&store.again(), "7");
    let counters = one.workspace().session().counters();
    let mut bytes = vec![0; SIZE];
    for _ in 0..2 {
        let mut batch = Batch::new(one.workspace().session(), BatchAttr::default()).unwrap();
        for (n, part) in bytes.chunks_mut(500).enumerate() {
            // SAFETY: waited for below.
            let memory = unsafe { Memory::writable(part.as_mut_ptr(), part.len()) };
            batch.push(Op::Read { c: one.clone(), chunks: vec![(500 * n as u64, memory)] }).unwrap();
        }
        batch.start().unwrap().wait(-1).unwrap();
    }
    assert_eq!(counters.grants.load(Ordering::Relaxed), 1);
    assert!(bytes.iter().enumerate().all(|(at, b)| *b == byte(7, at)));
}
