//! What is on disk afterwards: which files there are, what is in the cache, what damage does.

use std::os::unix::fs::{FileExt, MetadataExt};

use iov_media::Files;
use iov_types::{Clause, Demand, Kind, ObjectId, ObjectVerb, Outcome, Persistence};

use crate::kit::{
    all, bytes, cached_pages, call, data_path, directory, object, open, segments, send, staged, try_all, uuid, write,
};

fn files_below(root: &std::path::Path) -> Vec<String> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(root).expect("a folder").map(|e| e.expect("an entry")) {
        match entry.file_type().expect("its type").is_dir() {
            true => out.extend(files_below(&entry.path())),
            false => out.push(entry.path().to_string_lossy().into_owned()),
        }
    }
    out
}

#[test]
fn o2_a_plain_object_is_one_file() {
    let directory = directory();
    let files = open(directory.path());
    let count = || files_below(&directory.path().join("data")).len();
    for verb in [ObjectVerb::Stat, ObjectVerb::Sync, ObjectVerb::Freeze { stage: uuid(1) }] {
        call(&*files, object(1), verb).expect("a look");
    }
    call(&*files, object(1), ObjectVerb::Discard { stage: uuid(1) }).expect("a discard");
    assert_eq!(count(), 0, "looking makes no file");
    write(&*files, object(1), 0, b"bytes").expect("a write");
    assert_eq!(count(), 1);
    call(&*files, object(1), ObjectVerb::Seal).expect("a seal");
    assert_eq!(count(), 1, "a seal needs no sidecar");
    assert_eq!(std::fs::metadata(data_path(directory.path(), object(1))).expect("facts").mode() & 0o777, 0o400);
    call(&*files, object(2), ObjectVerb::Fence { epoch: 3 }).expect("a fence");
    assert_eq!(count(), 3, "an epoch does");
    send(&*files, object(2), ObjectVerb::Write { offset: 0 }, staged(uuid(1)), &bytes(1, 50_000)).expect("a write");
    call(&*files, object(2), ObjectVerb::Remove).expect("a remove");
    assert_eq!((count(), files_below(&directory.path().join("stage")).len()), (1, 0));
    send(&*files, object(3), ObjectVerb::Write { offset: 0 }, staged(uuid(1)), &bytes(1, 50_000)).expect("a write");
    assert_eq!(count(), 1, "what is staged is elsewhere");
    let image = std::fs::read_dir(directory.path().join("stage")).expect("the folder");
    let image = image.map(|e| e.expect("an entry").path()).find(|p| p.to_string_lossy().ends_with(".image"));
    let inode = std::fs::metadata(image.expect("an image")).expect("facts").ino();
    call(&*files, object(3), ObjectVerb::Publish { stage: uuid(1) }).expect("a publication");
    let data = std::fs::metadata(data_path(directory.path(), object(3))).expect("facts");
    assert_eq!(data.ino(), inode, "the image became the object: no byte was copied");
}

#[test]
fn p2_everything_is_there_after_a_restart() {
    let directory = directory();
    let files = open(directory.path());
    write(&*files, object(1), 5, b"plain").expect("a write");
    call(&*files, object(1), ObjectVerb::Seal).expect("a seal");
    call(&*files, object(2), ObjectVerb::Fence { epoch: 9 }).expect("a fence");
    send(&*files, object(3), ObjectVerb::Append, Demand::default(), b"record").expect("an append");
    send(&*files, object(4), ObjectVerb::Append, staged(uuid(1)), b"staged").expect("an append");
    call(&*files, object(4), ObjectVerb::Freeze { stage: uuid(1) }).expect("a freeze");
    send(&*files, object(3), ObjectVerb::Append, staged(uuid(2)), b"staged").expect("an append");
    drop(files);
    let files = open(directory.path());
    assert_eq!(all(&*files, object(1)), b"\0\0\0\0\0plain");
    assert_eq!(write(&*files, object(1), 0, b"x").err().map(|e| e.kind()), Some(Kind::Immutable));
    assert_eq!(call(&*files, object(2), ObjectVerb::Stat).expect("stat").epoch, 9);
    assert_eq!(all(&*files, object(3)), b"record");
    let short = iov_store::OpCx { deadline_ns: 0, ..crate::kit::cx() };
    let stat = iov_types::ObjectOp { object: object(4), verb: ObjectVerb::Stat, demand: Demand::default() };
    let frozen = iov_store::run_one(&*files, &short, stat, iov_store::Memory::default());
    assert_eq!(frozen.err().map(|e| e.kind()), Some(Kind::Timeout), "B3: a freeze holds until it is decided");
    files.drop_stages(&[uuid(2)]).expect("the end of recovery");
    assert_eq!(all(&*files, object(4)), b"", "dropped");
    call(&*files, object(3), ObjectVerb::Publish { stage: uuid(2) }).expect("a publication");
    assert_eq!(all(&*files, object(3)), b"recordstaged");
    let incarnation = iov_store::Backend::capability(&*files).incarnation;
    drop(files);
    let files = open(directory.path());
    assert_eq!(iov_store::Backend::capability(&*files).incarnation, incarnation, "P1: the same store");
    let fresh = crate::kit::directory();
    assert!(iov_store::Backend::capability(&*open(fresh.path())).incarnation > incarnation, "P1: a later one");
}

/// An object with a sidecar and appends; then its sidecar is damaged at a place.
fn damaged(at: u64, len: usize) -> (Files, tempfile::TempDir) {
    let directory = directory();
    let files = open(directory.path());
    call(&*files, object(1), ObjectVerb::Fence { epoch: 4 }).expect("a fence");
    for _ in 0..3 {
        send(&*files, object(1), ObjectVerb::Append, Demand::default(), b"record").expect("an append");
    }
    write(&*files, object(2), 0, b"another").expect("a write");
    drop(files);
    let mut side = data_path(directory.path(), object(1)).into_os_string();
    side.push(".side");
    let side = std::fs::File::options().write(true).open(side).expect("the sidecar");
    side.write_all_at(&vec![0x99; len], at).expect("damage");
    (std::sync::Arc::into_inner(open(directory.path())).expect("the only one"), directory)
}

#[test]
fn i1_a_damaged_sidecar_is_repaired_or_told() {
    for (at, len) in [(0, 512), (512, 512), (100, 1), (600, 3)] {
        let (files, _directory) = damaged(at, len);
        assert_eq!(all(&files, object(1)), b"recordrecordrecord", "{len} bytes at {at}");
        assert_eq!(call(&files, object(1), ObjectVerb::Stat).expect("stat").epoch, 4);
    }
    for (at, len) in [(0, 1024), (4096 + 64, 1), (4096 + 4 * 64 + 50, 1)] {
        let (files, directory) = damaged(at, len);
        for result in [try_all(&files, object(1)), write(&files, object(1), 0, b"x").map(|_| vec![])] {
            assert_eq!(result.err().map(|e| e.kind()), Some(Kind::Corrupt), "{len} bytes at {at}");
        }
        assert_eq!(all(&files, object(2)), b"another", "others are served");
        call(&files, object(1), ObjectVerb::Remove).expect("its space is not lost");
        assert!(!data_path(directory.path(), object(1)).exists(), "{len} bytes at {at}");
        write(&files, object(1), 0, b"anew").expect("another one of that name");
        assert_eq!(all(&files, object(1)), b"anew");
    }
}

#[test]
fn m4_a_file_shorter_than_its_appends_is_told() {
    let directory = directory();
    let files = open(directory.path());
    send(&*files, object(1), ObjectVerb::Append, Demand::default(), b"record").expect("an append");
    std::fs::File::options()
        .write(true)
        .open(data_path(directory.path(), object(1)))
        .expect("the object")
        .set_len(3)
        .expect("a cut");
    let e = try_all(&*files, object(1)).expect_err("bytes are missing");
    assert_eq!((e.kind(), e.clause()), (Kind::Corrupt, Some(Clause::M4)));
}

#[test]
fn b3_a_publication_that_was_decided_and_is_damaged_shows_to_nobody() {
    let directory = directory();
    {
        let files = open(directory.path());
        write(&*files, object(1), 0, &bytes(1, 10_000)).expect("a write");
        write(&*files, object(2), 0, b"another").expect("a write");
        for at in [0, 5000] {
            let data = bytes(2, 1000);
            send(&*files, object(1), ObjectVerb::Write { offset: at }, staged(uuid(1)), &data).expect("a staged write");
        }
    }
    // A daemon of its own dies in the middle of publishing.
    let variables = [
        ("IOV_TEST_SCENARIO", "publishing over a base, repeated"),
        ("IOV_TEST_POINT", "publish.2.half_applied:2:kill"),
    ];
    let other = crate::kit::directory();
    assert_eq!(crate::kit::Peer::start("daemon", other.path(), &variables).end(), Some(9));
    let log = files_below(&other.path().join("stage")).into_iter().find(|f| f.ends_with(".log")).expect("a log");
    let log = std::fs::File::options().write(true).open(log).expect("the log");
    log.write_all_at(&[0x55], 150).expect("a rotten byte");
    let files = open(other.path());
    assert_eq!(files.troubles().len(), 1);
    let e = try_all(&*files, object(1)).expect_err("neither old nor new");
    assert_eq!(e.kind(), Kind::Corrupt, "{e:?}");
    write(&*files, object(2), 0, b"fine").expect("others are served");
    call(&*files, object(1), ObjectVerb::Remove).expect("it can be removed");
    assert_eq!(all(&*files, object(1)), b"");
}

#[test]
fn p3_a_stage_that_comes_back_with_the_power_is_not_published_again() {
    let variables =
        [("IOV_TEST_SCENARIO", "publishing over a base, repeated"), ("IOV_TEST_POINT", "publish.6.version:1:kill")];
    let directory = directory();
    assert_eq!(crate::kit::Peer::start("daemon", directory.path(), &variables).end(), Some(9));
    let kept: Vec<_> = files_below(&directory.path().join("stage"))
        .into_iter()
        .map(|path| (std::fs::read(&path).expect("a file of the stage"), path))
        .collect();
    assert!(!kept.is_empty());
    let files = open(directory.path());
    write(&*files, object(1), 10, b"newer").expect("a write");
    let before = all(&*files, object(1));
    drop(files);
    // A file system may lose that files were removed.
    for (bytes, path) in kept {
        std::fs::write(path, bytes).expect("a file of the stage");
    }
    let files = open(directory.path());
    assert!(all(&*files, object(1)) == before, "newer bytes stay");
    assert_eq!((files.stages(), files.troubles()), (vec![], &[][..]));
}

#[test]
fn b3_damaged_stages_are_refused_and_can_be_dropped() {
    let directory = directory();
    let files = open(directory.path());
    write(&*files, object(1), 0, b"base").expect("a write");
    send(&*files, object(1), ObjectVerb::Write { offset: 0 }, staged(uuid(1)), b"new!").expect("a staged write");
    drop(files);
    let log = files_below(&directory.path().join("stage")).pop().expect("a log");
    std::fs::File::options().write(true).open(log).expect("the log").write_all_at(b"?", 130).expect("damage");
    let files = open(directory.path());
    assert_eq!(all(&*files, object(1)), b"base");
    for verb in [ObjectVerb::Freeze { stage: uuid(1) }, ObjectVerb::Publish { stage: uuid(1) }] {
        assert_eq!(call(&*files, object(1), verb).err().map(|e| e.kind()), Some(Kind::Corrupt));
    }
    call(&*files, object(1), ObjectVerb::Discard { stage: uuid(1) }).expect("a discard");
    assert_eq!(files_below(&directory.path().join("stage")).len(), 0);
    write(&*files, object(1), 0, b"BASE").expect("a write");
}

#[test]
fn m1_a_unit_that_cannot_be_known_is_told() {
    let variables = [("IOV_TEST_SCENARIO", "a change of units"), ("IOV_TEST_POINT", "unit.3.half_applied:1:kill")];
    let directory = directory();
    assert_eq!(crate::kit::Peer::start("daemon", directory.path(), &variables).end(), Some(9));
    let journal = files_below(&directory.path().join("journal")).pop().expect("a journal");
    std::fs::File::options().write(true).open(journal).expect("a journal").write_all_at(b"?", 5000).expect("damage");
    for _ in 0..2 {
        let files = open(directory.path());
        let e = try_all(&*files, object(1)).expect_err("a unit holds a part of a change");
        assert_eq!((e.kind(), e.clause()), (Kind::Corrupt, Some(Clause::M1)), "{e:?}");
        let unit = Demand { unit: 4096, ..Demand::default() };
        send(&*files, object(2), ObjectVerb::Write { offset: 0 }, unit, &[1; 4096]).expect("others are served");
    }
}

#[test]
fn h2_once_leaves_nothing_in_the_cache() {
    let directory = directory();
    let files = open(directory.path());
    let len = 4 << 20;
    let cached = |id: ObjectId| cached_pages(&data_path(directory.path(), id), len);
    let demand = |once| Demand { once, durability: Some(Persistence::Durable), ..Demand::default() };
    for (slot, once) in [(1, false), (2, true)] {
        send(&*files, object(slot), ObjectVerb::Write { offset: 0 }, demand(once), &bytes(1, len)).expect("a write");
        let pages = cached(object(slot));
        assert_eq!(pages == 0, once, "{pages} pages are cached after a write, once = {once}");
    }
}

#[test]
fn o8_errors_tell_whether_anything_was_done() {
    let directory = directory();
    let files = open(directory.path());
    let e = write(&*files, object(1), 1 << 62, b"x").expect_err("no file system here holds that");
    assert_eq!((e.kind(), e.outcome()), (Kind::FileTooBig, Outcome::NotApplied));
    assert_eq!(files_below(&directory.path().join("data")).len(), 0);
    let path = data_path(directory.path(), object(2));
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::os::unix::fs::symlink("/etc/hostname", &path).expect("a symbolic link");
    let e = try_all(&*files, object(2)).expect_err("a symbolic link is not followed");
    assert!(e.detail().contains("symbolic link"), "{e:?}");
}

/// A daemon was killed while it made an object: its index is there, and says nothing yet.
#[test]
fn g5_an_object_that_was_never_finished_gets_space_of_its_own_workspace() {
    let directory = segments();
    let of_three = || Demand { domain: Some(uuid(3)), ..Demand::default() };
    send(&*open(directory.path()), object(1), ObjectVerb::Create, of_three(), &[]).expect("an object");
    std::fs::write(data_path(directory.path(), object(1)), "").expect("an empty index");
    let files = open(directory.path());
    assert_eq!(call(&*files, object(1), ObjectVerb::Stat).expect("facts").size, 0);
    send(&*files, object(1), ObjectVerb::Write { offset: 0 }, of_three(), &bytes(1, 100_000)).expect("a write");
    assert_eq!(all(&*files, object(1)), bytes(1, 100_000));
    let domains: Vec<String> = files_below(&directory.path().join("segments"))
        .iter()
        .filter_map(|path| path.rsplit_once('/')?.1.split_once('-').map(|(_, domain)| domain.to_owned()))
        .collect();
    assert_eq!(domains, ["03".repeat(16)]);
}

/// A batch that has frozen an object, and never reached its point P, stays there for its client through a restart. The next
/// restart must not take its word for it against a batch that did.
#[test]
fn b3_a_start_brings_the_batch_to_its_end_whose_freeze_came_last() {
    for first_is_earlier in [true, false] {
        let directory = directory();
        // Whatever the order in which a start finds them.
        let (never, reached) = if first_is_earlier { (uuid(1), uuid(2)) } else { (uuid(2), uuid(1)) };
        let files = open(directory.path());
        write(&*files, object(1), 0, b"old").expect("a write");
        send(&*files, object(1), ObjectVerb::Write { offset: 0 }, staged(never), b"bad").expect("a stage");
        call(&*files, object(1), ObjectVerb::Freeze { stage: never }).expect("a freeze");
        drop(files);
        let files = open(directory.path());
        files.thaw_stages(&[]).expect("its client may come back");
        send(&*files, object(1), ObjectVerb::Write { offset: 0 }, staged(reached), b"new").expect("a stage");
        call(&*files, object(1), ObjectVerb::Freeze { stage: reached }).expect("another freeze");
        drop(files);
        let files = open(directory.path());
        let soon = iov_store::OpCx::own(2_000_000_000);
        let verb = ObjectVerb::Publish { stage: reached };
        let publish = iov_types::ObjectOp { object: object(1), verb, demand: Demand::default() };
        iov_store::run_one(&*files, &soon, publish, iov_store::Memory::default())
            .expect("nobody can thaw the other now");
        files.thaw_stages(&[]).expect("the end of recovery");
        assert_eq!(all(&*files, object(1)), b"new");
        call(&*files, object(1), ObjectVerb::Discard { stage: never }).expect("its client gives it up");
        assert_eq!(all(&*files, object(1)), b"new");
    }
}
