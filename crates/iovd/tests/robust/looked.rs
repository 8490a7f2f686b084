//! Several clients of one host at a time: a worker of the daemon looks at what all of them send.

use std::sync::atomic::{AtomicBool, Ordering};

use ioverbs::{BatchAttr, Controls, EntryKind, Lent, Metadata, Name, Op, Output, Workspace};

use crate::kit::{Store, batch, create};

/// Makes so many collections, one after the other.
fn make(ws: &Workspace, of: &str, n: usize) {
    for i in 0..n {
        ioverbs::close(&create(ws, &format!("{of}-{i}"), "")).unwrap();
    }
}

/// The same at once: the daemon is busy for long.
fn make_at_once(ws: &Workspace, of: &str, n: usize) {
    let create = |i| Op::Create {
        out: ws.pending(EntryKind::Collection),
        parent: None,
        name: Some(Name::new(format!("{of}-{i}")).unwrap()),
        metadata: Metadata::new(),
        controls: Controls::default(),
    };
    batch(ws.session(), BatchAttr::default(), (0..n).map(|i| Lent::from(create(i))).collect()).unwrap();
}

#[test]
fn all_are_served_while_one_asks_for_much_and_others_come_and_go() {
    let store = Store::new();
    let first = store.in_workspace();
    let over = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let (store, over) = (&store, &over);
        let asking: Vec<_> = (0..4)
            .map(|t| {
                let ws = store.again();
                scope.spawn(move || make(&ws, &format!("t{t}"), 1500))
            })
            .collect();
        let heavy = scope.spawn(|| {
            let ws = store.again();
            let rounds = (0..).take_while(|_| !over.load(Ordering::Relaxed));
            rounds.map(|k| make_at_once(&ws, &format!("h{k}"), 2000)).count()
        });
        let passing = scope.spawn(|| {
            let rounds = (0..).take_while(|_| !over.load(Ordering::Relaxed));
            // A session of its own each time, which ends with its connection.
            rounds.map(|k| make(&store.again(), &format!("p{k}"), 20)).count()
        });
        asking.into_iter().for_each(|thread| thread.join().unwrap());
        over.store(true, Ordering::Relaxed);
        4 * 1500 + heavy.join().unwrap() * 2000 + passing.join().unwrap() * 20
    });
    let Output::Stat(stat) = ioverbs::run(first.session(), Op::WorkspaceStat { w: first.clone() }).unwrap().output
    else {
        panic!("no facts");
    };
    assert_eq!(stat.entries as usize, made);
}
