use std::{cell::Cell, os::unix::fs::FileExt};

use iov_types::{Clause, Error, Kind};

use super::{disk, id};
use crate::files::journal::{Found, Journal, Owned, UnitChange};

const CHANGE: UnitChange<'_> = UnitChange::Write { offset: 4096, data: b"the new bytes of a unit" };

/// A journal in which a change was marked but not retired.
fn cut_short(durable: bool) -> (tempfile::TempDir, crate::files::disk::Disk, Journal, usize) {
    let (directory, disk) = disk();
    let journal = Journal::new();
    let failed = journal.run(&disk, id(5), CHANGE, durable, || Err(Error::internal("cut short")));
    assert_eq!(failed.expect_err("it was cut short").clause(), Some(Clause::M1));
    let n = (0..16).find(|n| directory.path().join(format!("journal/{n}")).exists()).expect("a journal file");
    (directory, disk, Journal::new(), n)
}

#[test]
fn m1_a_change_cut_short_is_found_whole() {
    let (_directory, disk, journal, n) = cut_short(false);
    match journal.find(&disk, n).expect("a journal") {
        Some(Found::Whole { id: object, change: Owned::Write { offset: 4096, data } }) => {
            assert_eq!((object, &data[..]), (id(5), &b"the new bytes of a unit"[..]));
        }
        other => panic!("{other:?}"),
    }
    journal.retire(&disk, n).expect("retiring it");
    assert!(journal.find(&disk, n).expect("a journal").is_none());
}

#[test]
fn m1_a_change_that_is_done_leaves_nothing() {
    let (_directory, disk) = disk();
    let (journal, applied) = (Journal::new(), Cell::new(0));
    for change in [CHANGE, UnitChange::Truncate { size: 5 }] {
        let apply = || {
            applied.set(applied.get() + 1);
            Ok(())
        };
        journal.run(&disk, id(1), change, true, apply).expect("a change");
    }
    assert_eq!(applied.get(), 2);
    assert!((0..16).all(|n| journal.find(&disk, n).expect("a journal").is_none()));
}

#[test]
fn m1_damage_to_a_journal_is_told_or_repaired() {
    for durable in [false, true] {
        for at in (0..1024).step_by(7).chain(4096..4119) {
            let (directory, disk, journal, n) = cut_short(durable);
            let path = directory.path().join(format!("journal/{n}"));
            let file = std::fs::File::options().read(true).write(true).open(path).expect("the journal");
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("a byte");
            file.write_all_at(&[byte[0] ^ 4], at).expect("a flipped bit");
            match journal.find(&disk, n).expect("one mark is good") {
                // The other mark stands for it.
                Some(Found::Whole { change: Owned::Write { offset: 4096, data }, .. }) if at < 4096 => {
                    assert_eq!(data, b"the new bytes of a unit", "a flipped bit at {at}");
                }
                Some(Found::Damaged { id: object }) if at >= 4096 => assert_eq!(object, id(5)),
                other => panic!("a flipped bit at {at}: {other:?}"),
            }
            file.write_all_at(b"??", 100).expect("damage to one mark");
            file.write_all_at(b"??", 612).expect("damage to the other");
            assert_eq!(journal.find(&disk, n).err().map(|e| e.kind()), Some(Kind::Corrupt));
        }
    }
}

#[test]
fn m1_a_rotten_bit_in_a_retired_journal_is_harmless() {
    let (directory, disk, journal, n) = cut_short(false);
    journal.retire(&disk, n).expect("retiring it");
    let file = std::fs::File::options().write(true).open(directory.path().join(format!("journal/{n}")));
    file.expect("the journal").write_all_at(&[1], 300).expect("a flipped bit");
    assert!(journal.find(&disk, n).expect("a journal").is_none());
}
