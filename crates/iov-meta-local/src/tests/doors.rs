//! Opening, and what is refused there; input that cannot be right.

use std::os::fd::AsRawFd;

use bytes::Bytes;
use iov_store::{Guard, MetadataStore, Txn};
use iov_types::Kind;

use super::kit::{Place, all, apply, open, put, tiny, try_open, value, writes};
use crate::{LocalStore, Options, tables::KEY_BYTES};

fn refused(path: &std::path::Path) -> iov_types::Error {
    try_open(path, &tiny()).err().expect("it is refused")
}

#[test]
fn a_newer_format_is_refused() {
    let place = Place::new("newer");
    let store = open(place.path(), &tiny());
    apply(&store, vec![put("R", "v")]);
    drop(store);
    let format = place.path().join("format");
    let text = std::fs::read_to_string(&format).expect("the file");
    assert_eq!(text, "ioverbs metadata engine, format 1\n");
    std::fs::write(&format, text.replace('1', "2")).expect("a newer format");
    let e = refused(place.path());
    assert!(e.kind() == Kind::Version && e.detail().contains("format 2") && e.detail().contains("update"), "{e:?}");
    std::fs::write(&format, text).expect("the old one");
    assert_eq!(all(&open(place.path(), &tiny())).len(), 1, "it was not touched");
}

#[test]
fn a_store_can_be_open_once() {
    let place = Place::new("twice");
    let store = open(place.path(), &tiny());
    apply(&store, vec![put("R", "v")]);
    let refused = |path: &std::path::Path| LocalStore::open(path, tiny()).err().expect("it is refused");
    let e = refused(place.path());
    assert!(e.kind() == Kind::Busy && e.detail().contains("is open already"), "{e:?}");
    // A view holds it too: tables it reads must not be merged away by somebody else.
    let view = store.snapshot().expect("a view");
    drop(store);
    assert_eq!(refused(place.path()).kind(), Kind::Busy);
    assert!(view.get(&[b"R"]).expect("a get")[0].is_some());
    drop(view);
    assert_eq!(all(&open(place.path(), &tiny())).len(), 1);
}

#[test]
fn a_store_is_reached_through_a_descriptor_and_moves_with_its_directory() {
    let place = Place::new("descriptor");
    let (first, second) = (place.path().join("first"), place.path().join("second"));
    std::fs::create_dir(&first).expect("a directory");
    let dir = std::fs::File::open(&first).expect("the directory");
    let store = open(std::path::Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())), &tiny());
    drop(dir);
    std::fs::rename(&first, &second).expect("another name");
    // Another directory takes the name.
    std::fs::create_dir(&first).expect("a directory");
    for i in 0..300 {
        apply(&store, vec![put(format!("R{i}"), [1; 300])]);
    }
    super::kit::wait_applied(&store, 2);
    drop(store);
    assert_eq!(std::fs::read_dir(&first).expect("the new one").count(), 0, "nothing went there");
    assert_eq!(all(&open(&second, &tiny())).len(), 300);
}

#[test]
fn a2_only_the_owner_can_enter() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("modes");
    let path = place.path().join("store");
    drop(open(&path, &tiny()));
    for (name, mode) in [("", 0o700), ("log", 0o700), ("tables", 0o700), ("format", 0o600), ("applied", 0o600)] {
        let is = std::fs::metadata(path.join(name)).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(is, mode, "{name}: {is:o}");
    }
}

#[test]
fn a_store_that_was_being_made_is_made_and_one_without_its_format_is_refused() {
    let place = Place::new("making");
    drop(open(place.path(), &tiny()));
    // All is there but the last file, as after a kill before it.
    std::fs::remove_file(place.path().join("format")).expect("the format");
    let log = std::fs::File::options().write(true).open(super::torn::newest_segment(place.path())).expect("the log");
    log.set_len(crate::log::EMPTY_SEGMENT).expect("without what the opening added");
    let store = open(place.path(), &tiny());
    apply(&store, vec![put("R", "v")]);
    drop(store);
    std::fs::remove_file(place.path().join("format")).expect("the format");
    let e = refused(place.path());
    assert!(e.kind() == Kind::Corrupt && e.detail().contains("`format` is missing"), "{e:?}");
    std::fs::write(place.path().join("format"), "ioverbs metadata engine, format 1\n").expect("the format");
    assert_eq!(all(&open(place.path(), &tiny())).len(), 1);
}

#[test]
fn what_is_no_directory_is_refused() {
    let place = Place::new("file");
    let file = place.path().join("file");
    std::fs::write(&file, "x").expect("a file");
    let e = refused(&file);
    assert!(
        matches!(e.kind(), Kind::Exists | Kind::Invalid | Kind::Unavailable) && e.detail().contains("file"),
        "{e:?}"
    );
}

#[test]
fn a_key_that_is_too_long_fails_alone() {
    let place = Place::new("long");
    let store = open(place.path(), &Options { write_buffer: 1, ..tiny() });
    for tag in [b'R', b'N', b'I', b'x'] {
        let key = |len: usize| vec![tag; len];
        let txns = vec![writes(vec![put(key(KEY_BYTES + 1), "v")]), writes(vec![put(key(KEY_BYTES), "v")])];
        let commits = store.commit(txns).expect("a commit");
        assert_eq!(commits[0].as_ref().map_err(|e| e.kind()), Err(Kind::TooBig));
        assert!(commits[1].is_ok());
        assert!(value(&store, key(KEY_BYTES)).is_some());
        assert_eq!(value(&store, key(KEY_BYTES + 1)), None, "nor can it be found");
        let guards = vec![Guard::Absent(key(KEY_BYTES + 1)), Guard::Absent(key(1 << 20))];
        assert!(store.commit(vec![Txn { guards, writes: vec![] }]).expect("a commit")[0].is_ok());
    }
    super::kit::wait_until("tables", || store.engine().parts().sealed.is_empty());
    drop(store);
    assert_eq!(all(&open(place.path(), &tiny())).len(), 4);
}

#[test]
fn a_commit_that_is_too_large_for_the_log_is_refused_whole() {
    let place = Place::new("large");
    let store = open(place.path(), &Options::default());
    let value = Bytes::from(vec![1; 64 << 20]);
    let txns: Vec<_> = (0..5).map(|i| writes(vec![(vec![b'R', i], Some(value.clone()))])).collect();
    let e = store.commit(txns).expect_err("too large");
    assert!(e.kind() == Kind::TooBig && e.detail().contains("several calls"), "{e:?}");
    assert_eq!(all(&store).len(), 0);
    apply(&store, vec![put("R", "v")]);
}

#[test]
fn what_an_interrupted_start_left_of_a_segment_goes() {
    let place = Place::new("unfinished");
    let store = open(place.path(), &tiny());
    apply(&store, vec![put("R", "v")]);
    drop(store);
    let log = place.path().join("log");
    let (ours, other) = (log.join("0000000000000001.new"), log.join("notes.new"));
    std::fs::write(&ours, [1; 5000]).expect("a part of a segment");
    std::fs::write(&other, "x").expect("a file");
    drop(open(place.path(), &tiny()));
    assert!(!ours.exists() && other.exists(), "what is not ours stays");
    assert_eq!(all(&open(place.path(), &tiny())).len(), 1);
}
