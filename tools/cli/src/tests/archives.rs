//! Exports and what comes back of them, on mem: stores; and the small things that they are made of.

use std::os::unix::{ffi::OsStrExt, fs::MetadataExt};

use ioverbs::{Metadata, Range, Uuid, Value, seam};
use serde_json::Value as Json;

use super::{World, arg, pattern};
use crate::archive::{
    names::{file_of, name_of},
    records::Line,
    sums::Sum,
    values,
};

#[test]
fn names_that_files_cannot_have_are_written_differently_and_read_back() {
    let uuid = seam::new_uuid();
    let mut files = Vec::new();
    for name in
        [&b"."[..], b"..", b".iov-", b".iov-export", b".iov-unnamed", b".iov-%2e", b"%2e", b".hidden", b"\xff\n", b"a"]
    {
        let file = file_of(name, uuid);
        assert!(!matches!(file.as_bytes(), b"." | b".." | b".iov-export" | b".iov-unnamed"), "{name:?}");
        assert_eq!(name_of(&file).unwrap().unwrap().as_bytes(), name);
        files.push(file);
    }
    files.sort();
    files.dedup();
    assert_eq!(files.len(), 10, "each has a file of its own");
    let long = [&b".iov-"[..], &[b'x'; 250]].concat();
    assert!(file_of(&long, uuid).len() <= 255);
    assert_eq!(name_of(".iov-export".as_ref()).unwrap(), None);
    assert_eq!(name_of(&file_of(&long, uuid)).unwrap(), None, "the sidecar knows it");
}

#[test]
fn every_value_comes_back_bit_by_bit() {
    let values = [
        Value::Str("a \"quoted\"\n\u{0} line".into()),
        Value::I64(i64::MIN),
        Value::I64(i64::MAX),
        Value::F64(0.1 + 0.2),
        Value::F64(-0.0),
        Value::F64(f64::INFINITY),
        Value::F64(f64::NEG_INFINITY),
        Value::F64(f64::from_bits(0x7ff8_0000_dead_beef)),
        Value::F64(f64::from_bits(0xfff0_0000_0000_0001)),
        Value::F64(5e-324),
        Value::F64(f64::MAX),
        Value::Bool(true),
        Value::Bytes(vec![0, 255, 10]),
        Value::Bytes(Vec::new()),
        Value::Time(i64::MIN),
        Value::Time(i64::MAX),
        Value::Time(-1),
        Value::Time(1_764_000_000_123_456_789),
    ];
    let mut metadata = Metadata::new();
    for (n, value) in values.iter().enumerate() {
        metadata.set(format!("{n:02}"), value.clone()).unwrap();
    }
    let text = values::to_json(metadata.iter()).to_string();
    let back = values::from_json(&serde_json::from_str(&text).unwrap()).unwrap();
    for ((_, back), value) in back.iter().zip(&values) {
        match (back, value) {
            (Value::F64(a), Value::F64(b)) => assert_eq!(a.to_bits(), b.to_bits()),
            _ => assert_eq!(back, value),
        }
    }
    for wrong in [r#"{}"#, r#"[{"key":"a","type":"i64","value":"x"}]"#, r#"[{"key":"iov.x","type":"str","value":""}]"#]
    {
        assert!(values::from_json(&serde_json::from_str(wrong).unwrap()).is_err(), "{wrong}");
    }
}

#[test]
fn checksums_of_pieces_and_holes_are_those_of_the_whole() {
    let mut whole = vec![0; 1 << 20];
    whole[5000..9000].copy_from_slice(&pattern(4000));
    whole[700_000..700_003].copy_from_slice(b"end");
    let piece =
        |from: usize, to: usize| (Range { offset: from as u64, len: (to - from) as u64 }, Sum::of(&whole[from..to]));
    let pieces = vec![piece(699_999, 700_010), piece(4096, 8192), piece(8192, 12_288)];
    assert_eq!(Sum::of_pieces(pieces, 1 << 20), Sum::of(&whole));
    assert_eq!(Sum::of(b"123456789").crc, 0xe306_9283);
    assert_eq!(Sum::zeros(70_001), Sum::of(&[0; 70_001]));
    assert_eq!(Sum::of_pieces(Vec::new(), 0), Sum::default());
    // Without going through them.
    assert_eq!(Sum::of_pieces(Vec::new(), 1 << 60).len, 1 << 60);
}

#[test]
fn a_line_of_a_sidecar_leads_nowhere_else() {
    let line = |file: &str| {
        let uuid = Uuid([7; 16]);
        Line::from_json(&format!(r#"{{"is":"link","uuid":"{uuid}","parent":null,"name":"a","file":"{file}"}}"#))
    };
    assert!(line("a/b").is_ok());
    for wrong in ["../a", "/etc/passwd", "a/../../b", "", ".", "./a"] {
        assert!(line(wrong).is_err(), "{wrong}");
    }
    for wrong in ["{}", "[]", "", r#"{"is":"other"}"#, r#"{"is":"link"}"#, r#"{"is":"export","version":2}"#] {
        assert!(Line::from_json(wrong).is_err(), "{wrong}");
    }
    let e = Line::from_json(r#"{"is":"export","version":2}"#).unwrap_err();
    assert!(e.kind() == ioverbs::Kind::Version && e.detail().contains("update"), "{e}");
}

/// What `iov ls -r --json` tells of a workspace, without what an import cannot bring back.
fn listing(world: &World, ws: &str) -> Vec<Json> {
    let mut found = match world
        .iov(&[
            "find",
            ws,
            "-k",
            "*",
            "-k",
            "iov.size",
            "-k",
            "iov.mtime",
            "-k",
            "iov.state",
            "-k",
            "iov.controls",
            "-k",
            "iov.mode",
            "--json",
        ])
        .ok()
        .json()
    {
        Json::Array(list) => list,
        other => panic!("{other}"),
    };
    for object in &mut found {
        let object = object.as_object_mut().unwrap();
        let address = object.remove("address").unwrap().to_string();
        object.insert("inside".into(), address.split_once('/').map(|(_, inside)| inside.to_owned()).into());
    }
    found.sort_by_key(|object| object.to_string());
    found
}

fn filled() -> World {
    let world = World::new();
    world
        .iov(&[
            "ws",
            "create",
            "w",
            "--index",
            "n",
            "--quota",
            "1GiB",
            "-m",
            "project=cfd",
            "-c",
            "consistency=session",
        ])
        .ok();
    let small = world.file("small", b"some bytes");
    let large = world.file("large", &pattern(3 << 20));
    let empty = world.file("empty", b"");
    world
        .iov(&[
            "put",
            &small,
            &large,
            &empty,
            "w",
            "-m",
            "n=1",
            "-m",
            "x:f64=nan",
            "-m",
            "b:bytes=00ff",
            "-m",
            "t=2026-01-01",
        ])
        .ok();
    world.iov(&["put", "-p", &small, "w/g/h/sealed", "-c", "mutability=immutable"]).ok();
    world.iov(&["put", &large, "w/g/log", "-c", "mutability=append"]).ok();
    world.iov(&["put", &small, "w/..", "-c", "atomicity=unit,unit=4KiB"]).ok();
    world.iov(&["put", &small, "w/.iov-export", "-c", "atomicity=publication"]).ok();
    world.iov(&["put", &small, "w/new\nline"]).ok();
    world
}

#[test]
fn an_export_comes_back_as_it_was() {
    let world = filled();
    let out = arg(&world.path("out"));
    world.iov(&["export", "--all", &out]).ok();
    assert_eq!(std::fs::read(world.path("out/w/g/h/sealed")).unwrap(), b"some bytes");
    assert_eq!(std::fs::read(world.path("out/w/large")).unwrap(), pattern(3 << 20));
    assert_eq!(std::fs::read(world.path("out/w/.iov-%2e%2e")).unwrap(), b"some bytes");
    let other = World::new();
    let imported = other.iov(&["import", &out, "--json"]).ok().json();
    assert_eq!(imported.as_array().unwrap().len(), 8);
    assert_eq!(listing(&other, "w"), listing(&world, "w"));
    assert_eq!(other.cat("w/g/log"), pattern(3 << 20));
    assert_eq!(other.cat("w/.."), b"some bytes");
    let show = |world: &World| {
        let mut show = world.iov(&["ws", "show", "w", "--json"]).ok().json();
        for changed in ["uuid", "ctime", "made"] {
            show[0].as_object_mut().unwrap().remove(changed);
        }
        show
    };
    assert_eq!(show(&other), show(&world));
    // Once more into the same store: nothing is replaced unless that is said.
    other.iov(&["import", &out]).fails(73, &["a workspace", "--skip-existing"]);
    other.iov(&["import", &out, "--skip-existing"]).ok();
    other.iov(&["import", &out, "--replace"]).ok();
    assert_eq!(other.cat("w/g/log"), pattern(3 << 20));
    other.iov(&["import", &out, "copy"]).ok();
    let uuids = |ws: &str| other.iov(&["find", ws, "--json"]).ok().text();
    assert_ne!(uuids("copy"), uuids("w"), "identities are not shared");
    assert_eq!(other.cat("copy/large"), pattern(3 << 20));
    other.iov(&["rm", "-r", "copy/large"]).ok();
    assert_eq!(other.cat("w/large"), pattern(3 << 20));
}

#[test]
fn an_export_repeated_skips_what_is_unchanged_and_takes_what_is_new() {
    let world = filled();
    let out = arg(&world.path("out"));
    let outcomes = |args: &[&str]| {
        let list = world.iov(&[&["export", "--json"], args].concat()).ok().json();
        let count = |outcome: &str| list.as_array().unwrap().iter().filter(|o| o["outcome"] == outcome).count();
        (count("exported"), count("unchanged"))
    };
    assert_eq!(outcomes(&["w", &out]), (8, 0));
    assert_eq!(outcomes(&["w", &out]), (0, 8));
    world.iov(&["put", &world.file("small", b"other bytes"), "w", "--if-exists", "replace"]).ok();
    world.iov(&["put", &world.file("more", b"more"), "w/g/more"]).ok();
    world.iov(&["tag", "w/large", "n=2"]).ok();
    assert_eq!(outcomes(&["w/g", &out]), (1, 2));
    assert_eq!(outcomes(&["w", &out]), (1, 8));
    assert_eq!(std::fs::read(world.path("out/w/small")).unwrap(), b"other bytes");
    // Renamed: the old file stays, and is told.
    world.iov(&["mv", "w/g/more", "w/g/moved"]).ok();
    let ran = world.iov(&["export", "w/g", &out]).ok();
    assert!(ran.err.contains("no longer in the store") && ran.err.contains("w/g/more"), "{}", ran.err);
    let other = World::new();
    let ran = other.iov(&["import", &out]).ok();
    assert!(ran.err.contains("1 files are not of the export"), "{}", ran.err);
    assert_eq!(listing(&other, "w"), listing(&world, "w"));
}

#[test]
fn what_could_not_be_exported_is_not_told_to_be_gone() {
    let world = filled();
    let out = arg(&world.path("out"));
    world.iov(&["export", "w", &out]).ok();
    world.file("out/w/small", b"changed by hand");
    let ran = world.iov(&["export", "w", &out]).fails(73, &["not as an export has left it"]);
    assert!(!ran.err.contains("no longer in the store"), "{}", ran.err);
}

#[test]
fn nothing_is_overwritten_that_is_not_of_an_export() {
    let world = filled();
    let out = arg(&world.path("out"));
    world.file("out/w/small", b"mine");
    world.iov(&["export", "w", &out]).fails(73, &["out/w/small", "not as an export has left it", "move it away"]);
    assert_eq!(std::fs::read(world.path("out/w/small")).unwrap(), b"mine");
    assert_eq!(std::fs::read(world.path("out/w/large")).unwrap().len(), 3 << 20, "the others are there");
    World::new().iov(&["import", &out]).fails(66, &["w/small", "could not be exported"]);
    std::fs::remove_file(world.path("out/w/small")).unwrap();
    world.iov(&["export", "w", &out]).ok();
    // Changed since: it is somebody's.
    world.file("out/w/small", b"changed");
    world.iov(&["export", "w", &out]).fails(73, &["out/w/small"]);
    assert_eq!(std::fs::read(world.path("out/w/small")).unwrap(), b"changed");
    assert!(std::fs::read_dir(world.path("out/.iov-export")).unwrap().all(|e| e.unwrap().file_name() != "temp"));
}

#[test]
fn what_was_damaged_in_an_export_does_not_come_back() {
    let world = filled();
    let out = arg(&world.path("out"));
    world.iov(&["export", "w", &out]).ok();
    let mut large = pattern(3 << 20);
    large[2_000_000] ^= 1;
    world.file("out/w/large", &large);
    world.file("out/w/small", b"some byteS");
    world.file("out/w/empty", b"not any more");
    let other = World::new();
    other.iov(&["import", &out]).fails(65, &["w/large is not what was exported", "w/small", "has 12 bytes, and had 0"]);
    for gone in ["w/large", "w/small", "w/empty"] {
        other.iov(&["stat", gone]).fails(66, &[]);
    }
    assert_eq!(other.cat("w/g/log"), pattern(3 << 20));
    assert_eq!(other.iov(&["find", "w", "not exists(iov.name)", "--count"]).ok().text().trim(), "0");
    // A sidecar that lost its end is none.
    let sidecar = world.path("out/.iov-export/w.jsonl");
    let text = std::fs::read_to_string(&sidecar).unwrap();
    let lines: Vec<_> = text.lines().collect();
    std::fs::write(&sidecar, lines[..lines.len() - 1].join("\n") + "\n").unwrap();
    World::new().iov(&["import", &out]).fails(65, &["its end is missing"]);
    // Nor is one that says something else.
    let change = |line: &str| match line.contains("\"name\":\"small\"") {
        true => line.replace("\"value\":\"1\"", "\"value\":\"2\""),
        false => line.to_owned(),
    };
    let changed = text.lines().map(change).collect::<Vec<_>>().join("\n") + "\n";
    assert_ne!(changed, text);
    std::fs::write(&sidecar, &changed).unwrap();
    World::new().iov(&["import", &out]).fails(65, &["not as it was written", "on purpose"]);
    let (before, _) = changed.rsplit_once("{\"is\":\"end\"").unwrap();
    std::fs::write(&sidecar, format!("{before}{{\"is\":\"end\"}}\n")).unwrap();
    let other = World::new();
    world.file("out/w/empty", b"");
    world.file("out/w/small", b"some bytes");
    other.iov(&["import", &out]).fails(65, &["w/large"]);
    assert_eq!(other.iov(&["find", "w", "n = 2", "--count"]).ok().text().trim(), "1");
}

#[test]
fn a_plain_directory_becomes_a_workspace() {
    let world = World::new();
    world.file("in/a", b"one");
    world.file("in/d/e/b", &pattern(2 << 20));
    std::fs::create_dir(world.path("in/empty")).unwrap();
    std::os::unix::fs::symlink("nowhere", world.path("in/link")).unwrap();
    let dir = arg(&world.path("in"));
    world.iov(&["import", &dir]).fails(64, &["no workspace is named", "iov import DIR WS"]);
    let ran = world.iov(&["import", &dir, "w", "-c", "mutability=immutable"]).ok();
    assert!(ran.err.contains("leads nowhere"), "{}", ran.err);
    assert_eq!(world.iov(&["ls", "-r", "w"]).ok().text(), "a\nd/\nempty/\nd/e/\nd/e/b\n");
    assert_eq!(world.cat("w/d/e/b"), pattern(2 << 20));
    let stat = world.iov(&["stat", "w/a", "--json"]).ok().json();
    assert_eq!(stat[0]["state"], "sealed");
    let ns = std::fs::metadata(world.path("in/a")).unwrap().mtime_nsec();
    assert!(stat[0]["mtime"].as_str().unwrap().contains(format!("{ns:09}").trim_end_matches('0')), "{stat}");
    world.iov(&["import", &dir, "w"]).fails(73, &["w/a", "--replace"]);
    world.file("in/c", b"new");
    let done = world.iov(&["import", &dir, "w", "--skip-existing", "--json"]).ok().json();
    let outcomes: Vec<_> = done.as_array().unwrap().iter().map(|o| o["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes.iter().filter(|o| **o == "stored").count(), 1, "{outcomes:?}");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let world = World::with_workspace();
    let out = arg(&world.path("out"));
    world.iov(&["export", &out]).fails(64, &["--all"]);
    world.iov(&["export", "--all", "w", &out]).fails(64, &["--all"]);
    world.iov(&["export", "w/none", &out]).fails(66, &["none"]);
    std::fs::remove_dir_all(&out).unwrap();
    world.iov(&["export", "v", &out]).fails(66, &["v"]);
    assert!(!world.path("out").exists());
    world.iov(&["import", "nowhere", "w"]).fails(66, &["nowhere"]);
    world.iov(&["import", &arg(world.dir.path()), "w/g"]).fails(64, &["inside a workspace"]);
    world.iov(&["export", "--all", &out]).ok();
    let below = arg(&world.path("out/w"));
    world.iov(&["import", &below]).fails(64, &["it is in an export"]);
}

#[test]
fn damaged_lines_are_errors_and_nothing_worse() {
    let world = filled();
    let out = arg(&world.path("out"));
    world.iov(&["export", "w", &out]).ok();
    let text = std::fs::read(world.path("out/.iov-export/w.jsonl")).unwrap();
    let mut seed = 88_172_645_463_325_252_u64;
    let mut next = |n: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize % n
    };
    for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        assert!(Line::from_json(std::str::from_utf8(line).unwrap()).is_ok());
        for _ in 0..2000 {
            let mut bad = line.to_vec();
            for _ in 0..1 + next(3) {
                let at = next(bad.len());
                match next(3) {
                    0 => bad[at] = next(256) as u8,
                    1 => drop(bad.remove(at)),
                    _ => bad.insert(at, b"{}[]\":,0"[next(8)]),
                }
            }
            // Some changes make other lines that are good.
            if let Ok(Ok(line)) = std::str::from_utf8(&bad).map(Line::from_json) {
                line.to_json();
            }
        }
    }
    for _ in 0..40 {
        let mut bad = text.clone();
        let at = next(bad.len());
        bad[at] ^= 1 << next(8);
        std::fs::write(world.path("out/.iov-export/w.jsonl"), &bad).unwrap();
        let ran = World::new().iov(&["import", &out]);
        assert_ne!(ran.code, 70, "{ran:?}");
    }
}
