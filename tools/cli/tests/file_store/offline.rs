//! Reading a store without its daemon.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::store::{Store, pattern, until};

/// Every file and directory of a store: bytes, mode, time.
pub(crate) fn tree(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64)> {
    let mut out = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let facts = path.symlink_metadata().unwrap();
        let bytes = if facts.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        out.insert(path.clone(), (bytes, facts.mode(), facts.mtime(), facts.mtime_nsec()));
        if facts.is_dir() {
            out.extend(tree(&path));
        }
    }
    out
}

/// What differs, by name.
#[track_caller]
fn same(before: &BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64)>, dir: &Path) {
    let after = tree(dir);
    let differs = |(path, facts): (&PathBuf, &_)| (after.get(path) != Some(facts)).then(|| path.clone());
    let changed: Vec<_> =
        before.iter().filter_map(differs).chain(after.keys().filter(|p| !before.contains_key(*p)).cloned()).collect();
    assert!(changed.is_empty(), "these have changed: {changed:?}");
}

fn filled(store: &Store) {
    let small = store.file("small", b"some bytes");
    let large = store.file("large", &pattern(3 << 20));
    store.iov(&["put", &small, &large, "w", "-m", "n=1"]).ok();
    store.iov(&["put", "-p", &large, "w/g/durable", "-c", "persistence=durable"]).ok();
    store.iov(&["put", &small, "w/g/sealed", "-c", "mutability=immutable"]).ok();
    store.iov(&["put", &large, "w/g/log", "-c", "mutability=append"]).ok();
    store.iov(&["put", &large, "w/g/held", "-c", "concurrency=exclusive"]).ok();
}

fn kill_daemon(store: &Store) {
    let pid = store.iov(&["status", "--json"]).ok().json()["daemon"]["pid"].to_string();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    until("it is dead", || {
        !Path::new(&format!("/proc/{pid}/fd")).exists() || std::fs::read_dir(format!("/proc/{pid}/fd")).is_err()
    });
}

/// Facts without the version, which grows with each start behind a crash.
fn store_json(text: &[u8]) -> Vec<u8> {
    let mut facts: serde_json::Value = serde_json::from_slice(text).unwrap();
    facts.as_array_mut().unwrap().iter_mut().for_each(|fact| drop(fact.as_object_mut().unwrap().remove("version")));
    facts.to_string().into_bytes()
}

/// A listing without the times of groups, of which a daemon that was killed may forget the last minute.
fn listed(text: &[u8]) -> Vec<u8> {
    let mut facts: serde_json::Value = serde_json::from_slice(text).unwrap();
    for fact in facts.as_array_mut().unwrap().iter_mut().filter(|fact| fact["kind"] == "group") {
        assert!(fact.as_object_mut().unwrap().remove("mtime").is_some());
    }
    facts.to_string().into_bytes()
}

/// Everything that reads says the same with and without the daemon.
fn reads(store: &Store, dir: &str) -> Vec<Vec<u8>> {
    let offline = |args: &[&str]| {
        let all = if dir.is_empty() { args.to_vec() } else { [&["--offline", dir], args].concat() };
        store.iov(&all).ok().out
    };
    let stat = store_json(&offline(&["stat", "w/large", "w/g/sealed", "w/small", "--json"]));
    vec![
        stat,
        listed(&offline(&["ls", "-r", "--json", "w"])),
        offline(&["ls"]),
        offline(&["find", "w", "n = 1"]),
        offline(&["cat", "w/small", "w/large", "w/g/durable", "w/g/sealed", "w/g/log", "w/g/held"]),
        offline(&["get", "w/g/sealed", "-"]),
        offline(&["ws", "list"]),
        offline(&["ws", "show", "w", "--json"]),
    ]
}

#[test]
fn a_store_is_read_without_its_daemon_and_stays_as_it_is() {
    for killed in [false, true] {
        let store = Store::with_workspace();
        filled(&store);
        // The first one moves small ones out of their records, which shows in the space that they take.
        reads(&store, "");
        let expected = reads(&store, "");
        match killed {
            true => kill_daemon(&store),
            false => drop(store.iov(&["down"]).ok()),
        }
        let before = tree(&store.path("store"));
        for (found, expected) in reads(&store, "store").iter().zip(&expected) {
            assert_eq!(String::from_utf8_lossy(found), String::from_utf8_lossy(expected), "killed: {killed}");
        }
        let df = store.iov(&["--offline", "store", "df", "--json"]).ok().json();
        assert!(df["capacity"].as_u64() > Some(0) && df["medium"] == "files", "{df}");
        store.iov(&["--offline", "store", "get", "-r", "w", "got"]).ok();
        store.iov(&["--offline", "store", "export", "--all", "out"]).ok();
        same(&before, &store.path("store"));
        assert_eq!(std::fs::read(store.path("out/w/g/log")).unwrap(), pattern(3 << 20));
        assert_eq!(std::fs::read(store.path("got/g/durable")).unwrap(), pattern(3 << 20));
        // And it goes on.
        assert!(reads(&store, "") == expected);
    }
}

#[test]
fn what_would_change_a_store_is_refused() {
    let store = Store::with_workspace();
    filled(&store);
    store.iov(&["down"]).ok();
    let before = tree(&store.path("store"));
    for args in [
        &["put", "small", "w/new"][..],
        &["rm", "w/small"],
        &["mv", "w/small", "w/other"],
        &["cp", "w/small", "w/other"],
        &["tag", "w/small", "a=1"],
        &["ws", "create", "v"],
        &["ws", "set", "w", "--quota", "1GiB"],
        &["import", "out", "v"],
        &["up"],
        &["down"],
        &["status"],
    ] {
        store.iov(&[&["--offline", "store"], args].concat()).fails(64, &["--offline only reads"]);
    }
    store.iov(&["--offline", "store", "-S", "file:store", "ls"]).fails(64, &["--offline"]);
    store.iov(&["--offline", "store", "ls", "iov://host/w"]).fails(64, &["names another one"]);
    store.iov(&["--offline", "nowhere", "ls"]).fails(66, &["nowhere"]);
    std::fs::create_dir(store.path("empty")).unwrap();
    store.iov(&["--offline", "empty", "ls"]).fails(66, &["there is no store"]);
    assert!(std::fs::read_dir(store.path("empty")).unwrap().next().is_none());
    same(&before, &store.path("store"));
}

#[test]
fn who_reads_and_who_serves_keep_out_of_each_others_way() {
    let store = Store::with_workspace();
    filled(&store);
    store.iov(&["--offline", "store", "ls"]).fails(75, &["a daemon serves the store", "leave --offline out"]);
    store.iov(&["ls", "w"]).ok();
    store.iov(&["down"]).ok();
    // One that reads and waits for who takes what it writes.
    let mut reading = store.start(&["--offline", "store", "cat", "w/large", "w/large", "w/large"]);
    let mut first = [0; 1];
    std::io::Read::read_exact(reading.stdout.as_mut().unwrap(), &mut first).unwrap();
    store.iov(&["--offline", "store", "ls", "w"]).ok();
    store.iov(&["ls", "w"]).fails(75, &["somebody reads the store without its daemon"]);
    reading.kill().unwrap();
    reading.wait().unwrap();
    store.iov(&["ls", "w"]).ok();
}

#[test]
fn a_copy_is_read_wherever_it_came_from() {
    let store = Store::with_workspace();
    filled(&store);
    let expected = reads(&store, "");
    store.iov(&["down"]).ok();
    // As a kill leaves it on another host.
    std::fs::write(store.path("store/lock"), "elsewhere\n00000000-0000-0000-0000-000000000000\n1\n").unwrap();
    assert_eq!(reads(&store, "store")[1..], expected[1..]);
    // And without any lock.
    for lock in ["lock", "meta/lock", "sums/lock"] {
        std::fs::remove_file(store.path("store").join(lock)).unwrap();
    }
    let before = tree(&store.path("store"));
    assert_eq!(reads(&store, "store")[1..], expected[1..]);
    same(&before, &store.path("store"));
}

#[test]
fn i1_damage_is_found_without_the_daemon() {
    let store = Store::with_workspace();
    filled(&store);
    let stat = store.iov(&["stat", "w/g/durable", "--json"]).ok().json();
    let uuid = stat[0]["uuid"].as_str().unwrap()[5..].replace('-', "");
    store.iov(&["down"]).ok();
    let file = store.files("data").into_iter().find(|path| path.ends_with(format!("{uuid}-0"))).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[1 << 20] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let before = tree(&store.path("store"));
    store.iov(&["--offline", "store", "cat", "w/g/durable"]).fails(65, &["are not what was written"]);
    let ran = store.iov(&["--offline", "store", "export", "w", "out"]).fails(65, &["w/g/durable", "IOV_ECORRUPT"]);
    assert!(!ran.err.contains("w/large"), "{}", ran.err);
    assert_eq!(std::fs::read(store.path("out/w/large")).unwrap(), pattern(3 << 20));
    assert!(!store.path("out/w/g/durable").exists());
    // A file that is gone.
    let stat = store.iov(&["--offline", "store", "stat", "w/large", "--json"]).ok().json();
    let uuid = stat[0]["uuid"].as_str().unwrap()[5..].replace('-', "");
    let file = store.files("data").into_iter().find(|path| path.ends_with(format!("{uuid}-0"))).unwrap();
    same(&before, &store.path("store"));
    std::fs::remove_file(file).unwrap();
    store.iov(&["--offline", "store", "cat", "w/large"]).fails(65, &["gone"]);
}

#[test]
fn a_store_that_cannot_be_written_is_read() {
    let store = Store::with_workspace();
    filled(&store);
    reads(&store, "");
    let expected = reads(&store, "");
    kill_daemon(&store);
    std::fs::create_dir(store.path("ro")).unwrap();
    let mount = |args: &[&str]| {
        Command::new("mount").args(args).current_dir(store.dir.path()).output().unwrap().status.success()
    };
    if !mount(&["--bind", "store", "ro"]) {
        println!("left out: mounting takes the right to");
        return;
    }
    let read_only = mount(&["-o", "remount,bind,ro", "ro"]);
    let before = tree(&store.path("store"));
    let ran = read_only.then(|| {
        assert!(std::fs::write(store.path("ro/new"), "x").is_err(), "it is read-only");
        let ran = store.iov(&["--offline", "ro", "export", "--all", "out"]);
        (reads(&store, "ro"), ran)
    });
    assert!(Command::new("umount").arg(store.path("ro")).status().unwrap().success());
    let Some((found, ran)) = ran else { return };
    ran.ok();
    assert!(found == expected);
    same(&before, &store.path("store"));
}

#[test]
fn bytes_elsewhere_are_found_and_those_that_are_gone_are_told() {
    for storage in ["files:", "shmem:64MiB", "heap:64MiB", "null"] {
        let store = Store::new();
        let place = store.path("bytes");
        let whole = if storage == "files:" { format!("files:{}", place.display()) } else { storage.to_owned() };
        store.iov(&["up", "--storage", &whole]).ok();
        store.iov(&["ws", "create", "w"]).ok();
        let large = store.file("large", &pattern(3 << 20));
        store.iov(&["put", &large, "w"]).ok();
        match storage {
            "shmem:64MiB" => drop(store.iov(&["down", "--keep"]).ok()),
            _ => drop(store.iov(&["down"]).ok()),
        }
        let before = tree(&store.path("store"));
        assert_eq!(store.iov(&["--offline", "store", "ls", "w"]).ok().text(), "large\n", "{storage}");
        let cat = store.iov(&["--offline", "store", "cat", "w/large"]);
        match storage {
            "heap:64MiB" | "null" => drop(cat.fails(66, &["IOV_ELOST", "has ended since"])),
            _ => assert!(cat.ok().out == pattern(3 << 20), "{storage}"),
        }
        same(&before, &store.path("store"));
        if storage == "shmem:64MiB" {
            store.iov(&["down"]).ok();
            store.iov(&["--offline", "store", "cat", "w/large"]).fails(66, &["IOV_ELOST", "shared memory"]);
        }
    }
}

/// Stores a publication and lets the daemon die of it at a point, as often as it comes back.
fn die_at(store: &Store, point: &str) -> String {
    store.iov(&["down"]).ok();
    let large = store.file("large", &pattern(3 << 20));
    let mut command = store.command(&["put", &large, "w/published", "-c", "atomicity=publication", "--timeout", "3s"]);
    let ran = command.env("IOV_FAIL_POINT", format!("{point}:1:kill")).output().unwrap();
    assert!(!ran.status.success(), "{ran:?}");
    until("nobody serves it", || store.iov(&["status"]).text().contains("no daemon runs"));
    let found = store.iov(&["--offline", "store", "find", "w", "not exists(iov.name)"]).ok().text();
    found.trim().to_owned()
}

#[test]
fn b3_a_batch_that_was_committed_is_shown_though_nobody_has_published_it() {
    let store = Store::with_workspace();
    let address = die_at(&store, "publish.0.begin");
    let before = tree(&store.path("store"));
    assert!(!store.files("stage").is_empty());
    let stat = store.iov(&["--offline", "store", "stat", &address, "--json"]).ok().json();
    assert_eq!(stat[0]["size"], 3 << 20, "{stat}");
    assert!(store.iov(&["--offline", "store", "cat", &address]).ok().out == pattern(3 << 20));
    store.iov(&["--offline", "store", "export", "w", "out"]).ok();
    same(&before, &store.path("store"));
    let file = std::fs::read_dir(store.path("out/w/.iov-unnamed")).unwrap().next().unwrap().unwrap().path();
    assert!(std::fs::read(file).unwrap() == pattern(3 << 20));
    // The daemon comes to the same.
    assert!(store.cat(&address) == pattern(3 << 20));
}

#[test]
fn what_was_half_published_is_refused_and_everything_else_is_read() {
    let store = Store::with_workspace();
    let small = store.file("small", b"some bytes");
    store.iov(&["put", &small, "w", "-c", "consistency=commit"]).ok();
    let address = die_at(&store, "publish.5.recorded");
    let before = tree(&store.path("store"));
    store
        .iov(&["--offline", "store", "cat", &address])
        .fails(65, &["cut short by a crash", "next: repeat the command without --offline"]);
    assert_eq!(store.iov(&["--offline", "store", "cat", "w/small"]).ok().text(), "some bytes");
    store.iov(&["--offline", "store", "ls", "-l", "w"]).ok();
    store.iov(&["--offline", "store", "export", "w", "out"]).fails(65, &["cut short by a crash"]);
    assert_eq!(std::fs::read(store.path("out/w/small")).unwrap(), b"some bytes");
    same(&before, &store.path("store"));
    assert!(store.cat(&address) == pattern(3 << 20));
}
