//! Exports of stores on files, and what comes back of them.

use std::os::unix::fs::{FileExt, MetadataExt};

use ioverbs::{EntryKind, Name, Op, SessionAttr, Which};
use serde_json::Value as Json;

use crate::store::{Ran, Store, finished, pattern, signal, until};

/// What a store tells of a workspace, as far as it is to come back.
fn facts(store: &Store, ws: &str) -> Vec<Json> {
    let keys = ["*", "iov.size", "iov.mtime", "iov.state", "iov.controls", "iov.mode", "iov.owner"];
    let mut args = vec!["find", ws, "--json"];
    keys.iter().for_each(|key| args.extend(["-k", *key]));
    let Json::Array(mut found) = store.iov(&args).ok().json() else { panic!("no list") };
    found.sort_by_key(|object| object.to_string());
    found
}

/// Opens a store whose daemon runs.
fn workspace(store: &Store) -> ioverbs::Workspace {
    store.iov(&["ls"]).ok();
    let attr = SessionAttr { nostart: true, ..SessionAttr::default() };
    let session = ioverbs::open(Some(&store.url()), attr).unwrap();
    session.load_workspace(Which::Name(Name::new("w").unwrap())).unwrap()
}

/// Of everything something: kinds of controls, names, sizes, holes, links, types.
fn filled() -> Store {
    let store = Store::new();
    store
        .iov(&["ws", "create", "w", "--index", "n", "--files", "100", "-m", "project=cfd", "-c", "consistency=session"])
        .ok();
    let small = store.file("small", b"some bytes");
    let large = store.file("large", &pattern((3 << 20) + 17));
    let empty = store.file("empty", b"");
    store.iov(&["put", &small, &large, &empty, "w", "-m", "i=-9223372036854775808", "-m", "s=\"ä\\", "-m", "n=7"]).ok();
    store.iov(&["put", "-p", &small, "w/g/h/sealed", "-c", "profile=dataset"]).ok();
    store.iov(&["put", &large, "w/g/durable", "-c", "persistence=durable,mutability=immutable"]).ok();
    store.iov(&["put", &large, "w/g/log", "-c", "mutability=append"]).ok();
    store.iov(&["put", &large, "w/g/units", "-c", "atomicity=unit,unit=64KiB"]).ok();
    store.iov(&["put", &large, "w/g/publication", "-c", "profile=checkpoint"]).ok();
    store.iov(&["put", &large, "w/g/exclusive", "-c", "concurrency=exclusive"]).ok();
    store.iov(&["put", &small, "w/."]).ok();
    store.iov(&["put", &small, "w/.."]).ok();
    store.iov(&["put", &small, "w/.iov-unnamed"]).ok();
    store.iov(&["put", &small, "w/new\nline"]).ok();
    let holes = std::fs::File::create(store.path("holes")).unwrap();
    holes.write_all_at(&pattern(70_000), 5 << 20).unwrap();
    holes.set_len(64 << 20).unwrap();
    store.iov(&["put", "holes", "w/g"]).ok();
    let ws = workspace(&store);
    // A name that is no text, a second name, a value of each kind, and one without a name.
    let mut md = ioverbs::Metadata::new();
    md.set("nan", ioverbs::Value::F64(f64::from_bits(0x7ff8_0000_0000_0042))).unwrap();
    md.set("bytes", ioverbs::Value::Bytes(vec![0, 255])).unwrap();
    md.set("time", ioverbs::Value::Time(-1)).unwrap();
    md.set("bool", ioverbs::Value::Bool(true)).unwrap();
    let c = ws.pending(EntryKind::Collection);
    let name = Name::new(b"not \xff text").unwrap();
    let controls = Default::default();
    ioverbs::run(ws.session(), Op::Create { out: c.clone(), parent: None, name: Some(name), metadata: md, controls })
        .unwrap();
    ioverbs::write_at(&c, 0, &pattern(20_000)).unwrap();
    ioverbs::run(ws.session(), Op::Link { c: c.clone(), parent: None, name: Name::new("second").unwrap() }).unwrap();
    ioverbs::close(&c).unwrap();
    // A symbolic link, as a mount makes it: what kind of file it is, it has from birth on.
    let c = ws.pending(EntryKind::Collection);
    let (name, metadata, controls) = (Some(Name::new("link").unwrap()), Default::default(), Default::default());
    let attr = ioverbs::Attr { mode: Some(0o120_777), ..Default::default() };
    let ops = vec![
        Op::Create { out: c.clone(), parent: None, name, metadata, controls }.into(),
        Op::SetAttr { c: c.clone(), attr }.into(),
        ioverbs::Lent::Write { c: c.clone(), offset: 0, data: b"small" },
        Op::Close { c }.into(),
    ];
    ioverbs::run_batch(ws.session(), Default::default(), ops).unwrap().iter().for_each(|s| s.result().unwrap());
    let c = ioverbs::create(&ws, None, None, Default::default(), Default::default()).unwrap();
    ioverbs::write_at(&c, 0, b"no name").unwrap();
    ioverbs::close(&c).unwrap();
    store
}

#[test]
fn a_store_comes_back_from_its_export() {
    let store = filled();
    store.iov(&["export", "--all", "out"]).ok();
    let file = |name: &str| std::fs::metadata(store.path(&format!("out/w/{name}"))).unwrap();
    assert_eq!(
        file("second").ino(),
        std::fs::metadata(store.path("out/w").join(name_of(b"not \xff text"))).unwrap().ino()
    );
    assert!(file("g/holes").len() == 64 << 20 && file("g/holes").blocks() * 512 < 2 << 20, "{:?}", file("g/holes"));
    assert_eq!(std::fs::read_dir(store.path("out/w/.iov-unnamed")).unwrap().count(), 1);
    let of_file = std::fs::metadata(store.path("out/w/large")).unwrap();
    let told = store.iov(&["stat", "w/large", "--json"]).ok().json()[0]["mtime"].as_str().unwrap().to_owned();
    assert!(told.contains(format!("{:09}", of_file.mtime_nsec()).trim_end_matches('0')), "{told}");

    let other = Store::new();
    let out = store.path("out").to_str().unwrap().to_owned();
    other.iov(&["import", &out]).ok();
    assert_eq!(facts(&other, "w"), facts(&store, "w"));
    for name in
        ["small", "large", "empty", "g/h/sealed", "g/log", "g/units", "g/exclusive", "g/holes", ".", "..", "second"]
    {
        let address = format!("w/{name}");
        assert!(other.cat(&address) == store.cat(&address), "{name}");
    }
    let stat = |store: &Store, name: &str| store.iov(&["stat", name, "--json"]).ok().json()[0].clone();
    for name in ["w/second", "w/g/holes", "w/g/durable"] {
        let (before, after) = (stat(&store, name), stat(&other, name));
        assert_eq!((&before["links"], &before["uuid"]), (&after["links"], &after["uuid"]), "{name}");
    }
    assert_eq!(stat(&other, "w/second")["links"], 2);
    assert!(stat(&other, "w/g/holes")["allocated"].as_u64() < Some(2 << 20));
    let quota = |store: &Store| store.iov(&["ws", "show", "w", "--json"]).ok().json()[0]["quota_collections"].clone();
    assert!(quota(&other) == quota(&store) && quota(&other) == 100);
    // What comes back is exported as it was.
    other.iov(&["export", "w", "out"]).ok();
    let lines = |store: &Store| {
        let text = std::fs::read_to_string(store.path("out/.iov-export/w.jsonl")).unwrap();
        let mut lines: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for line in &mut lines {
            for new in ["ctime", if line["is"] == "end" { "crc32c" } else { "version" }] {
                line.as_object_mut().unwrap().remove(new);
            }
            if line["is"] == "workspace" {
                line.as_object_mut().unwrap().remove("uuid");
            }
        }
        lines.sort_by_key(|line| line.to_string());
        lines
    };
    assert_eq!(lines(&other), lines(&store));
}

fn name_of(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

#[test]
fn an_export_leaves_collections_where_they_are() {
    let store = Store::with_workspace();
    let small = store.file("small", &pattern(8000));
    store.iov(&["put", &small, "w/a"]).ok();
    assert_eq!(store.files("data").len(), 0, "it lives in its record");
    store.iov(&["export", "w", "out"]).ok();
    assert_eq!(store.files("data").len(), 0);
    assert_eq!(std::fs::read(store.path("out/w/a")).unwrap(), pattern(8000));
}

#[test]
fn what_was_removed_comes_back_also_while_its_daemon_still_knows_it() {
    let store = Store::with_workspace();
    let large = store.file("large", &pattern(3 << 20));
    store.iov(&["put", &large, "w/a"]).ok();
    store.iov(&["export", "w", "out"]).ok();
    store.iov(&["rm", "w/a"]).ok();
    store.iov(&["import", "out", "--skip-existing"]).ok();
    assert_eq!(store.cat("w/a"), pattern(3 << 20));
    // Beside itself, under another name.
    store.iov(&["import", "out", "v"]).ok();
    store.iov(&["rm", "w/a"]).ok();
    assert_eq!(store.cat("v/a"), pattern(3 << 20));
}

#[test]
fn an_export_that_was_killed_is_repeated() {
    let store = Store::with_workspace();
    for n in 0..6 {
        let file = store.file("f", &pattern((24 << 20) + n));
        store.iov(&["put", &file, &format!("w/{n}")]).ok();
    }
    for name in ["KILL", "INT"] {
        let child = store.start(&["export", "w", "out"]);
        until("some of it is there", || std::fs::read_dir(store.path("out/w")).is_ok_and(|files| files.count() > 1));
        signal(&child, name);
        let ran: Ran = finished(child, 40);
        // It may have been faster.
        if ran.code != Some(0) {
            assert!(!store.path("out/.iov-export/w.jsonl").exists(), "{ran:?}");
            store.iov(&["import", "out", "v"]).fails(66, &["holds no export that is complete", "repeat"]);
        }
    }
    let list = store.iov(&["export", "w", "out", "--json"]).ok().json();
    let unchanged = list.as_array().unwrap().iter().filter(|o| o["outcome"] == "unchanged").count();
    assert!(unchanged > 0 && list.as_array().unwrap().len() == 6, "{list}");
    for n in 0..6 {
        assert!(std::fs::read(store.path(&format!("out/w/{n}"))).unwrap() == pattern((24 << 20) + n));
    }
    assert_eq!(std::fs::read_dir(store.path("out/.iov-export")).unwrap().count(), 2, "a lock and a sidecar");
    store.iov(&["import", "out", "v"]).ok();
    assert_eq!(store.cat("v/5"), pattern((24 << 20) + 5));
}

#[test]
fn exports_of_parts_add_up() {
    let store = Store::with_workspace();
    let small = store.file("small", b"some bytes");
    store.iov(&["put", &small, "w/a"]).ok();
    store.iov(&["put", "-p", &small, "w/g/b"]).ok();
    store.iov(&["put", &small, "w/c"]).ok();
    let ws = workspace(&store);
    let open = |name: &str| {
        let out = ws.pending(EntryKind::Collection);
        let which = Which::Name(Name::new(name).unwrap());
        ioverbs::run(ws.session(), Op::Open { out: out.clone(), parent: None, which, controls: Default::default() })
            .unwrap();
        out
    };
    let group = ws.pending(EntryKind::Group);
    let which = Which::Name(Name::new("g").unwrap());
    ioverbs::run(ws.session(), Op::Open { out: group.clone(), parent: None, which, controls: Default::default() })
        .unwrap();
    let c = open("a");
    ioverbs::run(ws.session(), Op::Link { c: c.clone(), parent: Some(group.clone()), name: Name::new("a2").unwrap() })
        .unwrap();
    ioverbs::close(&c).unwrap();
    ioverbs::close(&group).unwrap();
    store.iov(&["export", "w/a", "out"]).ok();
    store.iov(&["export", "w/g", "out"]).ok();
    store.iov(&["export", "w/c", "w/g/b", "out"]).ok();
    let other = Store::new();
    other.iov(&["import", store.path("out").to_str().unwrap()]).ok();
    assert_eq!(other.iov(&["ls", "-r", "w"]).ok().text(), store.iov(&["ls", "-r", "w"]).ok().text());
    let links = |name: &str| other.iov(&["stat", name, "--json"]).ok().json()[0]["links"].clone();
    assert!(links("w/a") == 2 && links("w/g/a2") == 2 && links("w/c") == 1);
    // What is there keeps its limits, as nothing else was asked for.
    other.iov(&["ws", "set", "w", "--files", "50"]).ok();
    other.iov(&["import", store.path("out").to_str().unwrap(), "--skip-existing"]).ok();
    assert_eq!(other.iov(&["ws", "show", "w", "--json"]).ok().json()[0]["quota_collections"], 50);
}

#[test]
fn a_store_is_not_exported_into_itself() {
    let store = Store::with_workspace();
    store.iov(&["export", "w", "store/out"]).fails(64, &["in the store's own directory"]);
    assert!(!store.path("store/out").exists());
}
