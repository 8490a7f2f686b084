use std::io::{Read, Write};

use crate::store::{Ran, Store, pattern, signal, until};

/// A put that has stored a part of its input, and waits for more.
fn half_put(store: &Store, args: &[&str]) -> (std::process::Child, std::process::ChildStdin) {
    let mut child = store.start(args);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&pattern(20 << 20)).unwrap();
    until("the first pieces are stored", || store.count() != "0");
    (child, stdin)
}

#[test]
fn ctrl_c_takes_a_half_put_back() {
    for name in ["INT", "TERM"] {
        let store = Store::with_workspace();
        let (child, _stdin) = half_put(&store, &["put", "-", "w/f"]);
        assert_eq!(store.iov(&["ls", "w"]).ok().text(), "");
        signal(&child, name);
        let ran = Ran::new(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(130), "{ran:?}");
        assert_eq!(store.count(), "0");
    }
}

#[test]
fn a_killed_put_shows_nothing_and_what_it_left_can_be_found() {
    let store = Store::with_workspace();
    let (child, _stdin) = half_put(&store, &["put", "-", "w/f"]);
    signal(&child, "KILL");
    assert_eq!(Ran::new(child.wait_with_output().unwrap()).code, None);
    assert_eq!(store.iov(&["ls", "w"]).ok().text(), "");
    let left = store.iov(&["find", "w", "not exists(iov.name)"]).ok().lines();
    assert_eq!(left.len(), 1, "{left:?}");
    store.iov(&["rm", &left[0]]).ok();
    assert_eq!(store.count(), "0");
}

#[test]
fn ctrl_c_takes_a_half_get_back() {
    let store = Store::with_workspace();
    let bytes = pattern(64 << 20);
    store.with_stdin(&bytes, &["put", "-", "w/f"]).ok();
    let child = store.start(&["get", "w/f", "back"]);
    signal(&child, "INT");
    let ran = Ran::new(child.wait_with_output().unwrap());
    // It may have been faster than the signal, or not yet have begun to listen: then the signal itself ends it.
    if ran.code == Some(0) {
        assert!(std::fs::read(store.path("back")).unwrap() == bytes);
    } else {
        assert!(matches!(ran.code, Some(130) | None), "{ran:?}");
        assert!(!store.path("back").exists());
    }
    assert!(!store.path("back.part").exists());
}

#[test]
fn a_put_that_is_stopped_by_a_full_limit_leaves_nothing_behind() {
    let store = Store::new();
    store.iov(&["ws", "create", "w", "--quota", "4MiB"]).ok();
    let file = store.file("f", &pattern(12 << 20));
    store.iov(&["put", &file, "w"]).fails(73, &["IOV_EEXHAUSTED"]);
    assert_eq!(store.count(), "0");
}

#[test]
fn a_reader_that_goes_ends_find_quietly() {
    let store = Store::with_workspace();
    let mut args = vec!["put".to_owned()];
    std::fs::create_dir(store.path("many")).unwrap();
    args.extend((0..3000).map(|i| store.file(&format!("many/a_rather_long_name_{i}"), b"")));
    args.push("w".into());
    store.iov(&args.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    let mut child = store.start(&["ls", "-l", "w"]);
    let mut first = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (Some(141), ""));
}
