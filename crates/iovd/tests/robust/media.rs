//! Stores on other media than the usual ones.

use ioverbs::{Clause, Kind};

use crate::kit::{Daemon, IOVD, Store, create, lookup, read};

const MIB: usize = 1 << 20;

/// A store with a daemon.
fn store(storage: &str) -> (Store, Daemon) {
    let store = Store::new();
    let daemon = store.daemon(&["--storage", storage, "--idle", "1"], &[]);
    (store, daemon)
}

fn medium(store: &Store) -> Option<&'static str> {
    ioverbs::daemon_medium_within(&store.url(), 10_000_000_000).unwrap()
}

/// What a start by hand says.
fn start(store: &Store, storage: &str) -> (Option<i32>, String) {
    let out = std::process::Command::new(IOVD)
        .args(["--dir", store.dir().to_str().unwrap(), "--detach", "--storage", storage])
        .output()
        .unwrap();
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn p1_a_heap_store_serves_many_sessions_and_loses_its_bytes_with_its_daemon() {
    let (store, daemon) = store("heap:64MiB");
    assert_eq!(medium(&store), Some("heap"));
    let ws = store.in_workspace();
    let c = create(&ws, "large", "");
    ioverbs::write_at(&c, 0, &vec![7; MIB]).unwrap();
    assert!(read(&lookup(&store.again(), "large")) == vec![7; MIB], "another session");
    // It does not end when nobody is there.
    ioverbs::close(&c).unwrap();
    let small = create(&ws, "small", "");
    ioverbs::write_at(&small, 0, &[5; 100]).unwrap();
    drop((c, small, ws));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let ws = store.again();
    assert!(read(&lookup(&ws, "large")) == vec![7; MIB], "idle for longer than --idle");
    let e = ioverbs::write_at(&create(&ws, "huge", ""), 0, &vec![1; 65 * MIB]).unwrap_err();
    assert_eq!(e.kind(), Kind::Exhausted, "{e}");
    drop(ws);
    daemon.kill();
    let _daemon = store.daemon(&[], &[]);
    assert_eq!(medium(&store), Some("heap"), "it is written down");
    let ws = store.again();
    let c = lookup(&ws, "large");
    let e = ioverbs::read_at(&c, 0, &mut [0; 10]).unwrap_err();
    assert_eq!((e.kind(), e.clause()), (Kind::Lost, Some(Clause::P1)), "{e}");
    let e = ioverbs::write_at(&c, 0, &[1; 20_000]).unwrap_err();
    assert_eq!(e.kind(), Kind::Lost, "no new bytes in the place of lost ones: {e}");
    assert_eq!(read(&lookup(&ws, "small")), vec![5; 100], "those in the record are there");
    drop(ws);
    store.shut_down();
}

#[test]
fn a_null_store_keeps_lengths_and_no_bytes() {
    let (store, _daemon) = store("null");
    assert_eq!(medium(&store), Some("null"));
    let ws = store.in_workspace();
    for (name, len) in [("small", 100), ("large", MIB)] {
        let c = create(&ws, name, "");
        ioverbs::write_at(&c, 0, &vec![7; len]).unwrap();
        ioverbs::close(&c).unwrap();
        assert!(read(&lookup(&ws, name)) == vec![0; len], "{name}: so many zeros");
    }
    drop(ws);
    store.shut_down();
}

#[test]
fn p2_files_in_another_directory_are_found_again_or_missed() {
    let elsewhere = tempfile::tempdir().unwrap();
    let place = elsewhere.path().join("bytes");
    let (store, daemon) = store(&format!("files:{}", place.display()));
    let ws = store.in_workspace();
    let c = create(&ws, "c", "persistence=durable");
    ioverbs::write_at(&c, 0, &vec![7; MIB]).unwrap();
    drop((c, ws));
    assert!(place.join("format").exists() && !store.dir().join("format").exists());
    daemon.kill();
    // As if its file system were not mounted.
    let aside = elsewhere.path().join("aside");
    std::fs::rename(&place, &aside).unwrap();
    for there in [false, true] {
        if there {
            std::fs::create_dir(&place).unwrap();
            std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        }
        let out = std::process::Command::new(IOVD)
            .args(["--dir", store.dir().to_str().unwrap(), "--detach"])
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && words.contains("mount its file system"), "{words}");
    }
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::rename(&aside, &place).unwrap();
    let _daemon = store.daemon(&[], &[]);
    let ws = store.again();
    assert!(read(&lookup(&ws, "c")) == vec![7; MIB]);
    drop(ws);
    store.shut_down();
}

#[test]
fn what_a_store_is_made_with_is_chosen_once_and_well() {
    let (made, daemon) = store("heap:8MiB");
    drop(made.in_workspace());
    made.shut_down();
    drop(daemon);
    for other in ["null", "files", "shmem:8MiB", "files:/tmp/elsewhere"] {
        let (code, words) = start(&made, other);
        assert!(code == Some(64) && words.contains("in its daemon's memory, which is chosen once"), "{other}: {words}");
    }
    let new = Store::new();
    std::fs::create_dir_all(new.dir()).unwrap();
    for bad in ["heap", "heap:", "heap:much", "heap:0", "null:1", "files:", "tape:1GiB"] {
        let (code, words) = start(&new, bad);
        assert_eq!(code, Some(2), "{bad}: {words}");
    }
    let full = tempfile::tempdir().unwrap();
    std::fs::write(full.path().join("thesis.tex"), b"mine").unwrap();
    let (code, words) = start(&new, &format!("files:{}", full.path().display()));
    assert!(code == Some(64) && words.contains("not empty"), "{words}");
    assert!(!new.dir().join("storage").exists(), "nothing was begun");
    assert_eq!(std::fs::read(full.path().join("thesis.tex")).unwrap(), b"mine");
}

/// What a view shows.
fn shown(view: &ioverbs::Viewed) -> &[u8] {
    // SAFETY: the view pins its bytes, and they are sealed.
    unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) }
}

#[test]
fn i1_files_that_are_sealed_are_shown_in_place() {
    let (store, _daemon) = store("files");
    let ws = store.in_workspace();
    let bytes: Vec<u8> = (0..3 * MIB).map(|i| (i / 4096) as u8 ^ i as u8).collect();
    let make = |name, controls| {
        let c = create(&ws, name, controls);
        ioverbs::write_at(&c, 0, &bytes).unwrap();
        c
    };
    let (quick, durable) = (make("quick", "persistence=process"), make("durable", "persistence=durable"));
    for c in [&quick, &durable] {
        let e = c.view(0, 100).err().unwrap();
        assert!(e.kind() == Kind::Unsupported && e.detail().contains("seal the collection"), "{e}");
        ioverbs::run(ws.session(), ioverbs::Op::Seal { c: c.clone() }).unwrap();
        let view = c.view(12_345, 2_000_000).unwrap();
        assert!(shown(&view) == &bytes[12_345..2_012_345]);
        assert_eq!(view.as_ptr() as usize % 4096, 12_345 % 4096, "aligned as its offset is");
        assert_eq!(c.view(3 * MIB as u64 - 5, 100).unwrap().len(), 5, "not beyond the end");
        assert!(c.view(3 * MIB as u64 + 5, 100).unwrap().is_empty());
    }
    // It stays, whatever becomes of the collection.
    let view = quick.view(0, u64::MAX >> 2).unwrap();
    ioverbs::close(&quick).unwrap();
    crate::shared::delete(&ws, "quick");
    drop(quick);
    assert!(shown(&view) == bytes);
    // Damage is told, and not shown.
    let uuid = durable.uuid().unwrap();
    let name = format!("{}-0", uuid.to_string().replace("uuid:", "").replace('-', ""));
    ioverbs::close(&durable).unwrap();
    let file = store.files("data").into_iter().find(|path| path.ends_with(&name)).unwrap();
    drop(durable);
    std::process::Command::new("chmod").args(["u+w", &file]).status().unwrap();
    let damaged = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&damaged, b"?", 1_000_000).unwrap();
    std::process::Command::new("chmod").args(["u-w", &file]).status().unwrap();
    let durable = lookup(&store.again(), "durable");
    let e = durable.view(0, 2_000_000).err().unwrap();
    assert_eq!((e.kind(), e.clause()), (Kind::Corrupt, Some(Clause::I1)), "{e}");
    assert!(shown(&durable.view(2_000_000, 500_000).unwrap()) == &bytes[2_000_000..2_500_000], "the rest is right");
    drop((durable, ws));
    store.shut_down();
}

#[test]
fn files_can_be_reached_past_the_cache_and_the_way_can_be_changed() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bytes: Vec<u8> = (0..3 * MIB + 77).map(|i| (i / 999) as u8).collect();
    let storage = |way: &str| format!("files:{}{way}", place.path().join("bytes").display());
    let (store, daemon) = store(&storage(",io=direct"));
    let ws = store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 5, &bytes).unwrap();
    let moved = store.status("object_bytes").unwrap();
    assert_eq!(moved, bytes.len() as u64, "all of it went through the daemon");
    drop((c, ws));
    store.shut_down();
    drop(daemon);
    for way in [",io=uring", "", ",io=pwrite"] {
        let daemon = store.daemon(&["--storage", &storage(way)], &[]);
        let c = lookup(&store.again(), "c");
        let back = read(&c);
        assert!(back[5..] == bytes && back[..5] == [0; 5], "{way}");
        assert_eq!(
            store.status("object_bytes").unwrap() > 0,
            way == ",io=uring",
            "{way}: by the program itself, if it can"
        );
        drop(c);
        store.shut_down();
        drop(daemon);
    }
    let (code, words) = start(&store, "files,io=carrier-pigeon");
    assert!(code == Some(2) && words.contains("io=uring"), "{words}");
    assert_eq!(start(&store, "files,io=direct"), (Some(0), String::new()), "its files, wherever they are");
    assert!(std::fs::read_to_string(store.dir().join("storage")).unwrap().ends_with("bytes,io=direct\n"));
    store.shut_down();
}

/// What is deleted and still open is its session's, also where bytes go through the daemon and that is killed (O10).
#[test]
fn o10_a_session_without_direct_access_goes_on_when_the_daemon_is_killed() {
    let store = Store::new();
    let trace = store.dir().with_file_name("t.trace");
    let args = ["--trace", trace.to_str().unwrap()];
    let daemon = store.daemon(&args, &[]);
    let ws = store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![7; MIB]).unwrap();
    crate::shared::delete(&ws, "c");
    daemon.kill();
    let _daemon = store.daemon(&args, &[]);
    assert!(read(&c) == vec![7; MIB]);
    drop((c, ws));
    store.shut_down();
}

/// The example backend in C, compiled.
fn directory_library(dir: &std::path::Path) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let library = dir.join("directory.so");
    let status = std::process::Command::new("cc")
        .args(["-std=gnu11", "-O1", "-fPIC", "-shared", "-pthread", "-I"])
        .arg(root.join("bindings/c/include"))
        .arg("-o")
        .args([&library, &root.join("examples/backend/directory.c")])
        .status();
    assert!(status.unwrap().success());
    library.display().to_string()
}

#[test]
fn p2_a_backend_that_is_loaded_has_the_bytes_whatever_becomes_of_the_daemon() {
    let scratch = tempfile::tempdir().unwrap();
    let library = directory_library(scratch.path());
    let storage = format!("virtual:{library},{}", scratch.path().join("bytes").display());
    let (store, daemon) = store(&storage);
    assert_eq!(medium(&store), Some("run-time backend"));
    let ws = store.in_workspace();
    let (open, published) = (create(&ws, "open", ""), create(&ws, "published", "atomicity=publication"));
    ioverbs::write_at(&open, 0, &vec![7; MIB]).unwrap();
    ioverbs::append(&open, &[8; 1000]).unwrap();
    ioverbs::write_at(&published, 0, &vec![1; MIB]).unwrap();
    ioverbs::commit(&published).unwrap();
    let sealed = create(&ws, "sealed", "persistence=durable");
    ioverbs::write_at(&sealed, 0, &vec![9; MIB]).unwrap();
    ioverbs::run(ws.session(), ioverbs::Op::Seal { c: sealed.clone() }).unwrap();
    daemon.kill();
    let _daemon = store.daemon(&[], &[]);
    // Handles go on, and what they are told is there.
    ioverbs::append(&open, &[8; 1000]).unwrap();
    let expected = [vec![7; MIB], vec![8; 2000]].concat();
    assert!(read(&lookup(&store.again(), "open")) == expected);
    assert!(read(&lookup(&store.again(), "published")) == vec![1; MIB]);
    assert!(read(&sealed) == vec![9; MIB]);
    let e = ioverbs::write_at(&sealed, 0, b"late").unwrap_err();
    assert_eq!(e.kind(), Kind::Immutable, "{e}");
    drop((open, published, sealed, ws));
    store.shut_down();
    let bad = Store::new();
    std::fs::create_dir_all(bad.dir()).unwrap();
    for (storage, words) in [
        ("virtual:/no/such.so", "there is no shared object"),
        ("virtual:/proc/self/status", "is no backend"),
        (&*format!("virtual:{library},here"), "whole path of a directory"),
    ] {
        let (code, said) = start(&bad, storage);
        assert!(code != Some(0) && said.contains(words), "{storage}: {said}");
    }
    assert!(!bad.dir().join("storage").exists(), "nothing was begun");
}

#[test]
fn p8_what_a_backend_has_lost_is_not_called_durable() {
    let scratch = tempfile::tempdir().unwrap();
    let bytes = scratch.path().join("bytes");
    let (store, daemon) = store(&format!("virtual:{},{}", directory_library(scratch.path()), bytes.display()));
    let ws = store.in_workspace();
    let persist = |c: &ioverbs::Collection| ioverbs::run(ws.session(), ioverbs::Op::Persist { c: c.clone() });
    let durable = "persistence=durable@explicit";
    let (lost, emptied, unwritten) =
        (create(&ws, "lost", durable), create(&ws, "e", durable), create(&ws, "u", durable));
    for c in [&lost, &emptied] {
        ioverbs::write_at(c, 0, &vec![7; MIB]).unwrap();
    }
    ioverbs::run(ws.session(), ioverbs::Op::Truncate { c: emptied.clone(), size: 0 }).unwrap();
    daemon.kill();
    let large = |entry: &std::fs::DirEntry| entry.metadata().unwrap().len() >= MIB as u64;
    let files: Vec<_> = std::fs::read_dir(&bytes).unwrap().flatten().filter(large).collect();
    assert_eq!(files.len(), 1);
    std::fs::remove_file(files[0].path()).unwrap();
    let _daemon = store.daemon(&[], &[]);
    persist(&emptied).expect("it is there");
    persist(&unwritten).expect("it never was");
    let e = persist(&lost).expect_err("it is gone");
    assert_eq!((e.kind(), e.clause()), (Kind::Lost, Some(ioverbs::Clause::P8)), "{e}");
    drop((lost, emptied, unwritten, ws));
    store.shut_down();
}
