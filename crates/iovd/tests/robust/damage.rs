//! Bytes of a store that rot or were torn: what was acknowledged is there, or an error says where the damage is, and
//! nothing is changed (I1, P2).

use std::{fs, os::unix::fs::FileExt, path::PathBuf};

use ioverbs::{Kind, Metadata, Op, Value};

use crate::kit::{Store, controls, create, lookup, read};

/// A store whose daemon was killed behind some changes; small ones, so that all are in the log.
fn killed() -> Store {
    let store = Store::new();
    let ws = store.in_workspace();
    for i in 0..20 {
        let c = create(&ws, &format!("c{i}"), "");
        ioverbs::write_at(&c, 0, format!("bytes of {i}").as_bytes()).unwrap();
        let mut pairs = Metadata::new();
        pairs.set("i", Value::I64(i)).unwrap();
        ioverbs::run(ws.session(), Op::MetaPut { c: c.clone(), pairs }).unwrap();
        ioverbs::close(&c).unwrap();
    }
    drop(ws);
    store.kill();
    store
}

fn is_whole(store: &Store) {
    let ws = store.again();
    for i in 0..20 {
        let c = lookup(&ws, &format!("c{i}"));
        assert_eq!(read(&c), format!("bytes of {i}").as_bytes());
    }
}

/// The newest segment of the log.
fn log(store: &Store) -> PathBuf {
    store.files("meta/log").into_iter().max().unwrap().into()
}

/// Every file below a folder with its content.
fn contents(store: &Store, folder: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = store.files(folder).into_iter().map(|f| (f.clone(), fs::read(&f).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn p2_a_torn_tail_of_the_log_costs_nothing_that_was_acknowledged() {
    let store = killed();
    for cut in [1, 9, 55, 57, 90] {
        // The last frame is the one that a kill has cut off: as if nobody had been told of it.
        let ws = store.again();
        let last = create(&ws, "last", "");
        store.kill();
        let file = fs::File::options().write(true).open(log(&store)).unwrap();
        file.set_len(file.metadata().unwrap().len() - cut).unwrap();
        is_whole(&store);
        let again = store.again();
        let missing = ioverbs::lookup(&again, None, "last", Default::default()).err().unwrap();
        assert_eq!(missing.kind(), Kind::NotFound);
        // Its client hears that it is gone; it is not made up.
        assert_eq!(ioverbs::write_at(&last, 0, b"x").unwrap_err().kind(), Kind::NotFound);
        store.kill();
    }
    is_whole(&store);
}

#[test]
fn i1_a_flipped_bit_in_the_log_is_found_named_and_nothing_is_changed() {
    let store = killed();
    let path = log(&store);
    let good = fs::read(&path).unwrap();
    for at in [good.len() / 3, good.len() / 2] {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(&path, &bad).unwrap();
        let before = contents(&store, "meta");
        let e = store.open().err().unwrap();
        assert_eq!(e.kind(), Kind::Corrupt, "{e}");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(e.detail().contains(name) && e.detail().contains("offset"), "{e}");
        assert!(e.detail().contains(store.dir().to_str().unwrap()), "by the name that people know: {e}");
        assert_eq!(contents(&store, "meta"), before);
    }
    fs::write(&path, &good).unwrap();
    is_whole(&store);
}

#[test]
fn i1_a_flipped_bit_in_the_facts_of_an_object_is_an_error_and_not_garbage() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "log", "mutability=append");
    for i in 0..10 {
        assert_eq!(ioverbs::append(&c, b"0123456789").unwrap(), 10 * i);
    }
    ioverbs::close(&c).unwrap();
    drop((c, ws));
    store.kill();
    let side = store.files("data").into_iter().find(|f| f.ends_with(".side")).unwrap();
    let good = fs::read(&side).unwrap();
    for at in 0..good.len() {
        // Most of it is never looked at while nothing is repeated; none of it may be believed when it is wrong.
        if at % 97 != 0 && at >= 64 {
            continue;
        }
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&side, &bad).unwrap();
        let ws = store.again();
        let mut buf = vec![0; 1000];
        let opened = ioverbs::lookup(&ws, None, "log", Default::default());
        match opened.and_then(|c| ioverbs::read_at(&c, 0, &mut buf)) {
            Ok(n) => assert_eq!(&buf[..n], b"0123456789".repeat(10)),
            Err(e) => assert_eq!(e.kind(), Kind::Corrupt, "byte {at}: {e}"),
        }
        drop(ws);
        store.kill();
        fs::write(&side, &good).unwrap();
    }
    assert_eq!(read(&lookup(&store.again(), "log")).len(), 100);
}

#[test]
fn i1_a_flipped_bit_in_what_is_staged_is_never_published() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "published", "atomicity=publication");
    ioverbs::write_at(&c, 0, b"old").unwrap();
    ioverbs::commit(&c).unwrap();
    ioverbs::write_at(&c, 0, b"new new new").unwrap();
    store.kill();
    let log = store.files("stage").pop().unwrap();
    let good = fs::read(&log).unwrap();
    let at = good.windows(3).position(|w| w == b"new").unwrap();
    fs::File::options().write(true).open(&log).unwrap().write_all_at(b"m", at as u64).unwrap();
    let e = ioverbs::commit(&c).unwrap_err();
    assert_eq!(e.kind(), Kind::Corrupt, "{e}");
    let others = store.again();
    assert_eq!(read(&lookup(&others, "published")), b"old");
    // The handle goes on with what is written from now on.
    ioverbs::write_at(&c, 0, b"newer").unwrap();
    ioverbs::close(&c).unwrap();
    assert_eq!(read(&lookup(&others, "published")), b"newer");
}

#[test]
fn g2_a_spoiled_lease_page_harms_its_session_at_most() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "big", "");
    ioverbs::write_at(&c, 0, &vec![1; 4 << 20]).unwrap();
    ioverbs::write_at(&c, 0, &vec![2; 4 << 20]).unwrap();
    let others = store.again();
    let other = lookup(&others, "big");
    assert_eq!(read(&other), vec![2; 4 << 20]);
    for page in store.files("leases") {
        let file = fs::File::options().write(true).open(&page).unwrap();
        let len = file.metadata().unwrap().len();
        for at in (0..len).step_by(8) {
            file.write_all_at(&at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes(), at).unwrap();
        }
    }
    // What the two do now may fail; it may not hang, kill the daemon, or show what nobody wrote.
    for (c, byte) in [(&c, 3), (&other, 4)] {
        let _ = ioverbs::write_at(c, 0, &vec![byte; 4 << 20]);
    }
    let pid = store.status("pid");
    let third = store.again();
    let seen = read(&lookup(&third, "big"));
    assert!(seen.len() == 4 << 20 && seen.iter().all(|b| (2..=4).contains(b)), "C5");
    ioverbs::write_at(&lookup(&third, "big"), 0, &vec![5; 4 << 20]).unwrap();
    drop((c, ws, other, others));
    assert_eq!(read(&lookup(&third, "big")), vec![5; 4 << 20]);
    assert_eq!(store.status("pid"), pid);
    store.kill();
    assert_eq!(read(&lookup(&store.again(), "big")), vec![5; 4 << 20]);
}

#[test]
fn p2_a_file_that_is_gone_is_never_an_empty_collection() {
    let store = Store::new();
    let ws = store.in_workspace();
    let is_told = |what: &str, e: Kind| assert_eq!(e, Kind::Corrupt, "{what}");
    for name in ["closed", "sealed", "cut"] {
        let c = create(&ws, name, "");
        ioverbs::write_at(&c, 0, &[7; 1 << 20]).unwrap();
        ioverbs::close(&c).unwrap();
        if name != "closed" {
            let c = lookup(&ws, name);
            ioverbs::run(ws.session(), Op::Seal { c: c.clone() }).unwrap();
            ioverbs::close(&c).unwrap();
        }
    }
    let path = |name: &str| {
        let uuid = lookup(&store.again(), name).uuid().unwrap().to_string();
        let hex: String = uuid.chars().rev().take_while(|c| *c != ':').filter(|c| *c != '-').collect();
        let hex: String = hex.chars().rev().collect();
        store.files("data").into_iter().find(|file| file.contains(&hex)).expect(name)
    };
    let (closed, sealed, cut) = (path("closed"), path("sealed"), path("cut"));
    store.shut_down();
    drop(ws);
    fs::remove_file(closed).unwrap();
    fs::remove_file(sealed).unwrap();
    let mode: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&cut, mode).unwrap();
    fs::File::options().write(true).open(&cut).unwrap().set_len(1 << 19).unwrap();
    // The second time as a daemon finds it that was killed while it was open.
    for _ in 0..2 {
        for nodirect in [false, true] {
            let attr = ioverbs::SessionAttr { nodirect, ..Default::default() };
            let session = ioverbs::open(Some(&store.url()), attr).unwrap();
            let ws = session.load_workspace(ioverbs::Which::parse("w").unwrap()).unwrap();
            let mut bytes = vec![0; 1 << 20];
            for name in ["closed", "sealed", "cut"] {
                let c = lookup(&ws, name);
                is_told(name, ioverbs::read_at(&c, 0, &mut bytes).unwrap_err().kind());
                is_told(name, ioverbs::read_at(&c, 1 << 19, &mut bytes[..10]).unwrap_err().kind());
                let _ = ioverbs::close(&c);
            }
            let c = lookup(&ws, "cut");
            assert_eq!(ioverbs::read_at(&c, 0, &mut bytes[..1 << 19]).unwrap(), 1 << 19, "what is left");
            let c = lookup(&ws, "closed");
            let write = |offset| ioverbs::write_at(&c, offset, &[1; 1 << 20]).unwrap_err().kind();
            is_told("write", write(0));
            is_told("write behind its end", write(4 << 20));
            is_told("append", ioverbs::append(&c, b"more").unwrap_err().kind());
            let batch = vec![ioverbs::Lent::Write { c: c.clone(), offset: 0, data: &bytes }];
            let rollback = ioverbs::BatchAttr { on_error: Some(ioverbs::OnError::Rollback), ..Default::default() };
            is_told("rollback", crate::kit::batch(&session, rollback, batch).unwrap_err().kind());
            let _ = ioverbs::close(&c);
            let alone = ioverbs::lookup(&ws, None, "closed", controls("concurrency=exclusive")).unwrap();
            is_told("write by who is alone", ioverbs::write_at(&alone, 0, b"new").unwrap_err().kind());
            let _ = ioverbs::close(&alone);
            let c = lookup(&ws, "closed");
            is_told("stat", ioverbs::run(&session, Op::Stat { c: c.clone() }).unwrap_err().kind());
            is_told("seal", ioverbs::run(&session, Op::Seal { c }).unwrap_err().kind());
            store.kill();
        }
    }
}

#[test]
fn after_a_kill_all_targets_are_compared_with_the_catalog() {
    let store = Store::new();
    let soon = [("IOVD_CHECK_AFTER_MS", "100")];
    let daemon = store.daemon(&[], &soon);
    let ws = store.in_workspace();
    for name in ["a", "b", "c"] {
        let c = create(&ws, name, "");
        ioverbs::write_at(&c, 0, &[7; 1 << 20]).unwrap();
        ioverbs::close(&c).unwrap();
    }
    let uuid = lookup(&ws, "b").uuid().unwrap().to_string();
    drop(ws);
    daemon.kill();
    let hex: String = uuid.trim_start_matches("uuid:").chars().filter(|c| *c != '-').collect();
    let of_b = store.files("data").into_iter().find(|file| file.contains(&hex)).unwrap();
    fs::remove_file(of_b).unwrap();
    let _daemon = store.daemon(&[], &soon);
    crate::kit::wait_until("the check", || store.status("checked_objects") == Some(2));
    assert_eq!((store.status("missing_objects"), store.status("objects_of_no_collection")), (Some(1), Some(0)));
    let log = fs::read_to_string(store.dir().join("iovd.log")).unwrap();
    assert!(log.contains(&format!("lacks the bytes of collection {uuid}")), "{log}");
}
