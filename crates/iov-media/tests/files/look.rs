//! Looking at a target that nobody serves.

use std::os::unix::fs::FileExt;

use iov_media::{Files, Options};
use iov_store::{Memory, run_one};
use iov_types::{Clause, Demand, Kind, ObjectId, ObjectOp, ObjectVerb, Persistence, Range, Result, Uuid};

use crate::kit::{
    all, bytes, call, cx, data_path, directory, look, object, open, segments, send, staged, tree, try_all, uuid, write,
};

/// Everything of an object as a stage shows it.
fn through(files: &Files, id: ObjectId, stage: Uuid) -> Result<Vec<u8>> {
    let mut out = vec![0; 1 << 20];
    // SAFETY: `run_one` waits for the evidence, and `out` lives longer.
    let memory = unsafe { Memory::writable(out.as_mut_ptr(), out.len()) };
    let op = ObjectOp { object: id, verb: ObjectVerb::Read { offset: 0 }, demand: staged(stage) };
    let read = run_one(files, &cx(), op, memory)?.bytes as usize;
    out.truncate(read);
    Ok(out)
}

#[test]
fn a_look_shows_bytes_holes_seals_and_appends_and_changes_nothing() {
    for directory in [directory(), segments()] {
        let files = open(directory.path());
        let (small, large) = (bytes(1, 5000), bytes(2, 300_000));
        write(&*files, object(1), 0, &small).expect("a write");
        write(&*files, object(2), 1 << 20, &large).expect("a write behind a hole");
        call(&*files, object(2), ObjectVerb::Seal).expect("a seal");
        for _ in 0..3 {
            send(&*files, object(3), ObjectVerb::Append, Demand::default(), &small).expect("an append");
        }
        let expected = [1, 2, 3].map(|n| all(&*files, object(n)));
        drop(files);
        let before = tree(directory.path());
        let looking = look(directory.path());
        let beside = look(directory.path());
        for n in [1, 2, 3] {
            assert!(all(&looking, object(n)) == expected[n as usize - 1], "object {n}");
            assert!(all(&beside, object(n)) == expected[n as usize - 1], "object {n}");
        }
        let range = Range { offset: 0, len: 2 << 20 };
        let extents = call(&looking, object(2), ObjectVerb::Extents { range, max: 100 }).expect("extents").extents;
        assert!(extents.len() == 2 && extents[1].range.offset == 1 << 20, "{extents:?}");
        for verb in [
            ObjectVerb::Write { offset: 0 },
            ObjectVerb::Append,
            ObjectVerb::Create,
            ObjectVerb::Seal,
            ObjectVerb::Remove,
            ObjectVerb::Truncate { size: 0 },
            ObjectVerb::Sync,
            ObjectVerb::Publish { stage: uuid(1) },
        ] {
            let e = send(&looking, object(1), verb.clone(), Demand::default(), b"x").expect_err("it is for reading");
            assert_eq!(e.kind(), Kind::Denied, "{verb:?}");
        }
        let root = std::fs::File::open(directory.path()).expect("the directory").into();
        assert_eq!(Files::open(root, Options::default()).err().expect("somebody looks").kind(), Kind::Busy);
        drop((looking, beside));
        assert!(tree(directory.path()) == before, "nothing has changed");
        assert!(all(&*open(directory.path()), object(1)) == expected[0]);
    }
}

#[test]
fn what_a_batch_has_staged_is_shown_to_who_names_it_and_nobody_waits_for_its_end() {
    for directory in [directory(), segments()] {
        let files = open(directory.path());
        let (old, new) = (bytes(1, 40_000), bytes(9, 70_000));
        write(&*files, object(1), 0, &old).expect("a write");
        let stage = uuid(0x11);
        send(&*files, object(1), ObjectVerb::Write { offset: 10_000 }, staged(stage), &new).expect("a staged write");
        call(&*files, object(1), ObjectVerb::Freeze { stage }).expect("a freeze");
        drop(files);
        let before = tree(directory.path());
        let looking = look(directory.path());
        assert!(all(&looking, object(1)) == old, "without the batch");
        let shown = through(&looking, object(1), stage).expect("with it");
        assert!(shown == [&old[..10_000], &new].concat());
        assert!(looking.stages() == vec![(stage, vec![object(1)])]);
        drop(looking);
        assert!(tree(directory.path()) == before);
        let files = open(directory.path());
        call(&*files, object(1), ObjectVerb::Publish { stage }).expect("it is published");
        assert!(all(&*files, object(1)) == shown);
    }
}

#[test]
fn i1_damage_is_found_by_who_looks() {
    let directory = directory();
    let files = open(directory.path());
    let durable = Demand { durability: Some(Persistence::Durable), ..Demand::default() };
    for n in [1, 2] {
        write(&*files, object(n), 0, &bytes(1, 50_000)).expect("a write");
        send(&*files, object(n), ObjectVerb::Sync, durable.clone(), &[]).expect("a sync");
    }
    // Open blocks are taken as they are.
    write(&*files, object(2), 4096, b"newer").expect("a write");
    let expected = all(&*files, object(2));
    drop(files);
    let file = std::fs::File::options().write(true).open(data_path(directory.path(), object(1))).expect("the file");
    file.write_all_at(b"rot", 5000).expect("some damage");
    let before = tree(directory.path());
    let looking = look(directory.path());
    let e = try_all(&looking, object(1)).expect_err("damage");
    assert_eq!((e.kind(), e.clause()), (Kind::Corrupt, Some(Clause::I1)));
    assert!(all(&looking, object(2)) == expected);
    drop(looking);
    assert!(tree(directory.path()) == before);
}
