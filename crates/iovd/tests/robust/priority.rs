//! What nobody waits for gives way to what somebody waits for.

use std::path::Path;

use ioverbs::{Priority, SessionAttr, Which, Workspace, open};

use crate::kit::{Daemon, Store, create, lookup, read, wait_until};

const MIB: usize = 1 << 20;
/// More than there are threads for them.
const BACKGROUND: usize = 6;

/// A backend whose writes in the background can be held.
fn held_library(dir: &Path) -> String {
    let (library, root) = (dir.join("held.so"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let status = std::process::Command::new("cc")
        .args(["-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread", "-I"])
        .arg(root.join("bindings/c/include"))
        .arg("-I")
        .arg(root.join("examples/backend"))
        .arg("-o")
        .args([&library, &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/robust/priority/held.c")])
        .status();
    assert!(status.unwrap().success());
    library.display().to_string()
}

fn through(url: &str, priority: Priority) -> Workspace {
    let attr = SessionAttr { nodirect: true, priority, ..SessionAttr::default() };
    open(Some(url), attr).unwrap().load_workspace(Which::parse("w").unwrap()).unwrap()
}

/// Held writes of sessions in the background keep nobody else from anything, and get on once they can.
fn background_gives_way(more: &[&str], url: impl Fn(&Store) -> String) {
    let scratch = tempfile::tempdir().unwrap();
    let bytes = scratch.path().join("bytes");
    let beside = |what: &str| scratch.path().join(format!("bytes.{what}"));
    let storage = format!("virtual:{},{}", held_library(scratch.path()), bytes.display());
    let store = Store::new();
    let _daemon: Daemon = store.daemon(&[&["--storage", &storage], more].concat(), &[]);
    store.in_workspace();
    let url = url(&store);
    std::fs::write(beside("hold"), b"").unwrap();
    let threads: Vec<_> = (0..BACKGROUND)
        .map(|i| {
            let url = url.clone();
            std::thread::spawn(move || {
                let ws = through(&url, Priority::Background);
                let c = create(&ws, &format!("background{i}"), "");
                ioverbs::write_at(&c, 0, &vec![1; MIB]).unwrap();
                // The session goes on at both priorities: what keeps it alive is never in the background.
                ioverbs::close(&c).unwrap();
            })
        })
        .collect();
    wait_until("a write in the background", || std::fs::read(beside("seen")).is_ok_and(|seen| seen.contains(&b'1')));
    let ws = through(&url, Priority::Foreground);
    for name in ["one", "two", "three"] {
        let c = create(&ws, name, "");
        ioverbs::write_at(&c, 0, &vec![2; MIB]).unwrap();
        assert!(read(&lookup(&ws, name)) == vec![2; MIB]);
    }
    assert!(threads.iter().all(|thread| !thread.is_finished()), "they are held all the while");
    assert!(store.status("background_requests").unwrap() > 0);
    std::fs::remove_file(beside("hold")).unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for i in 0..BACKGROUND {
        assert!(read(&lookup(&ws, &format!("background{i}"))) == vec![1; MIB]);
    }
    let seen = std::fs::read(beside("seen")).unwrap();
    let of = |priority: u8| seen.iter().filter(|seen| **seen == priority).count();
    assert_eq!((of(b'0'), of(b'?')), (3, 0), "the medium hears of it as well");
    assert!(of(b'1') >= BACKGROUND);
    drop(ws);
    store.shut_down();
}

#[test]
fn what_nobody_waits_for_gives_way() {
    background_gives_way(&[], Store::url);
}

#[test]
fn what_nobody_waits_for_gives_way_over_a_network() {
    background_gives_way(&["--listen", "127.0.0.1:0", "--no-secret", "--workers", "1"], |store| {
        let addresses = ioverbs::daemon_addresses_within(&store.url(), 10_000_000_000).unwrap().unwrap();
        format!("iov://{}?secret=none", addresses[0])
    });
}

#[test]
fn sessions_of_the_foreground_are_served_in_the_foreground() {
    let store = Store::new();
    let _daemon = store.daemon(&[], &[]);
    store.in_workspace();
    let ws = through(&store.url(), Priority::Foreground);
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![2; MIB]).unwrap();
    ioverbs::close(&c).unwrap();
    assert_eq!(store.status("background_requests"), Some(0));
    drop(ws);
    store.shut_down();
}
