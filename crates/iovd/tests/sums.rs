//! I1 with a real daemon: what is durable is compared with checksums on whatever way it is read.
#![allow(clippy::disallowed_methods)]

use std::{
    fs::File,
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
};

use ioverbs::{
    Clause, Collection, Controls, Error, Kind, Metadata, Name, Op, Result, Session, SessionAttr, Which, Workspace, open,
};

struct Store(tempfile::TempDir);

impl Store {
    /// On a disk: what lies in memory is not durable.
    fn new() -> Store {
        assert!(Path::new(env!("CARGO_BIN_EXE_iovd")).is_file());
        Store(tempfile::tempdir_in("/var/tmp").unwrap())
    }

    fn url(&self) -> String {
        format!("file:{}", self.0.path().display())
    }

    fn workspace(&self, nodirect: bool) -> Workspace {
        let session = open(Some(&self.url()), SessionAttr { nodirect, ..Default::default() }).unwrap();
        let made = session.create_workspace(Name::new("w").unwrap(), Default::default());
        made.or_else(|_| session.load_workspace(Which::parse("w").unwrap())).unwrap()
    }

    /// The file of the only collection there is.
    fn data(&self) -> PathBuf {
        fn files(dir: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true => files(&entry.path(), found),
                    false => found.push(entry.path()),
                }
            }
        }
        let mut found = Vec::new();
        files(&self.0.path().join("data"), &mut found);
        found.retain(|path| path.extension().is_none());
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// The medium changes a byte by itself.
    fn damage(&self, at: u64) {
        let path = self.data();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x20], at).unwrap();
    }

    fn end(&self) {
        ioverbs::daemon_shutdown(&self.url()).unwrap();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = ioverbs::daemon_shutdown(&self.url());
    }
}

const LEN: usize = (20 << 20) + 1234;

fn pattern(seed: usize) -> Vec<u8> {
    (0..LEN).map(|i| ((i + seed) / 9) as u8 ^ (i / 4096) as u8 | 1).collect()
}

fn create(ws: &Workspace, asked: &str) -> Collection {
    let mut controls = Controls::default();
    ioverbs::text::parse(&mut controls, asked).unwrap();
    ioverbs::create(ws, None, Some("c"), Metadata::new(), controls).unwrap()
}

fn lookup(ws: &Workspace) -> Collection {
    ioverbs::lookup(ws, None, "c", Controls::default()).unwrap()
}

/// Reads in requests of 1 MiB.
fn read(c: &Collection) -> Result<Vec<u8>> {
    let mut out = vec![0; LEN + 100];
    let mut at = 0;
    loop {
        let end = (at + (1 << 20)).min(out.len());
        let got = ioverbs::read_at(c, at as u64, &mut out[at..end])?;
        at += got;
        if got == 0 || at == out.len() {
            out.truncate(at);
            return Ok(out);
        }
    }
}

fn persist(c: &Collection) {
    ioverbs::run(c.session(), Op::Persist { c: c.clone() }).unwrap();
}

fn counter(s: &Session, name: &str) -> u64 {
    s.counters().snapshot()[ioverbs::Counters::NAMES.iter().position(|n| *n == name).unwrap()]
}

fn is_damage<T>(result: Result<T>) -> bool {
    let e: Error = result.err().expect("damage is no success");
    assert_eq!((e.kind(), e.clause()), (Kind::Corrupt, Some(Clause::I1)), "{e}");
    true
}

#[test]
fn i1_durable_bytes_are_read_directly_and_compared() {
    for asked in ["persistence=durable", "persistence=durable,concurrency=exclusive,mutability=immutable"] {
        let store = Store::new();
        let data = pattern(1);
        let c = create(&store.workspace(false), asked);
        ioverbs::write_at(&c, 0, &data).unwrap();
        ioverbs::close(&c).unwrap();
        for (nodirect, way) in [(false, "bytes_direct"), (true, "bytes_unix")] {
            let ws = store.workspace(nodirect);
            let c = lookup(&ws);
            let before = counter(ws.session(), way);
            assert!(read(&c).unwrap() == data, "{asked}, {way}");
            assert!(counter(ws.session(), way) - before >= 20 << 20, "{asked}: nothing went by {way}");
            for at in [0, (7 << 20) + 77, LEN as u64 - 1] {
                store.damage(at);
                assert!(is_damage(read(&c)), "{asked}, {way}, at {at}");
                store.damage(at);
            }
            assert!(read(&c).unwrap() == data, "{asked}, {way}");
        }
        store.end();
        store.damage(5000);
        assert!(is_damage(read(&lookup(&store.workspace(false)))), "{asked}: after a restart");
    }
}

#[test]
fn i1_what_is_written_again_is_kept_again() {
    let store = Store::new();
    let (ws, other) = (store.workspace(false), store.workspace(false));
    let mut data = pattern(2);
    let c = create(&ws, "persistence=durable,point=explicit");
    ioverbs::write_at(&c, 0, &data).unwrap();
    persist(&c);
    let reader = lookup(&other);
    assert!(read(&reader).unwrap() == data);
    // Large and small ones: by itself, and through the daemon.
    for (round, len) in [1 << 20, 100, 4096, 300 << 10, 5000].into_iter().enumerate() {
        let at = (round * 3 * (1 << 20)) + 17 * round;
        let new: Vec<u8> = (0..len).map(|i| (i * 3 + round) as u8).collect();
        ioverbs::write_at(&c, at as u64, &new).unwrap();
        data[at..at + len].copy_from_slice(&new);
        assert!(read(&c).unwrap() == data, "read your writes");
        assert!(read(&reader).unwrap() == data, "and others'");
        if round % 2 == 0 {
            persist(&c);
            store.damage(at as u64 + 50);
            assert!(is_damage(read(&reader)), "once it is durable");
            store.damage(at as u64 + 50);
        }
    }
    ioverbs::run(ws.session(), Op::Truncate { c: c.clone(), size: 5 << 20 }).unwrap();
    data.truncate(5 << 20);
    persist(&c);
    assert!(read(&reader).unwrap() == data);
    drop((c, reader, ws, other));
    store.end();
    assert!(read(&lookup(&store.workspace(false))).unwrap() == data);
}

#[test]
fn g1_a_large_write_gets_one_part_after_the_other() {
    let store = Store::new();
    let ws = store.workspace(false);
    let c = create(&ws, "persistence=durable,point=explicit");
    ioverbs::write_at(&c, 0, &pattern(4)).unwrap();
    persist(&c);
    let data: Vec<u8> = (0..(150 << 20) + 999).map(|i: u32| (i / 7) as u8 ^ (i >> 12) as u8).collect();
    let (direct, grants) = (counter(ws.session(), "bytes_direct"), counter(ws.session(), "grants"));
    ioverbs::write_at(&c, 100, &data).unwrap();
    assert_eq!(counter(ws.session(), "bytes_direct") - direct, data.len() as u64);
    assert!((3..=4).contains(&(counter(ws.session(), "grants") - grants)));
    persist(&c);
    let mut back = vec![0; data.len()];
    assert_eq!(ioverbs::read_at(&c, 100, &mut back).unwrap(), data.len());
    assert!(back == data);
}

#[test]
fn i1_writing_beside_damage_does_not_hide_it() {
    for (read_first, offset, len) in [(true, 1_000_000, 1), (false, 0, 300_000), (false, 1 << 20, 1 << 20)] {
        let store = Store::new();
        let c = create(&store.workspace(false), "persistence=durable");
        ioverbs::write_at(&c, 0, &pattern(6)).unwrap();
        ioverbs::close(&c).unwrap();
        store.end();
        store.damage(1_000_100);
        let c = lookup(&store.workspace(false));
        if read_first {
            assert!(is_damage(read(&c)));
        }
        // Refused, or done beside it: what is damaged stays so.
        let _ = ioverbs::write_at(&c, offset, &vec![9; len]);
        assert!(is_damage(read(&c)));
        ioverbs::close(&c).unwrap();
        assert!(is_damage(read(&lookup(&store.workspace(false)))));
    }
}

#[test]
fn i1_damaged_checksums_are_told_and_nothing_passes_for_checked() {
    let store = Store::new();
    let c = create(&store.workspace(false), "persistence=durable");
    ioverbs::write_at(&c, 0, &pattern(5)).unwrap();
    ioverbs::close(&c).unwrap();
    store.end();
    let log = std::fs::read_dir(store.0.path().join("sums/log")).unwrap().next().unwrap().unwrap().path();
    let file = File::options().read(true).write(true).open(log).unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[!byte[0]], middle).unwrap();
    let e = open(Some(&store.url()), SessionAttr::default()).err().expect("it must not open");
    assert_eq!(e.kind(), Kind::Corrupt);
    assert!(e.to_string().contains("sums/"), "{e}");
    file.write_all_at(&byte, middle).unwrap();
    assert!(read(&lookup(&store.workspace(false))).unwrap() == pattern(5), "nothing was lost by trying");
}

#[test]
fn i1_bytes_that_are_not_durable_pay_nothing() {
    let store = Store::new();
    let ws = store.workspace(false);
    let c = create(&ws, "");
    ioverbs::write_at(&c, 0, &pattern(3)).unwrap();
    ioverbs::close(&c).unwrap();
    assert!(!store.0.path().join("sums").exists(), "no engine was opened");
}

/// What was published, or sealed, is not yet what survives: the close makes it so (P5).
#[test]
fn p5_a_close_behind_a_commit_or_a_seal_makes_it_durable() {
    for seals in [false, true] {
        let store = Store::new();
        let ws = store.workspace(false);
        let c = create(&ws, "persistence=durable");
        ioverbs::write_at(&c, 0, &pattern(1)).unwrap();
        let published = if seals { Op::Seal { c: c.clone() } } else { Op::Commit { c: c.clone() } };
        ioverbs::run(ws.session(), published).unwrap();
        let before = counter(ws.session(), "syncs");
        ioverbs::close(&c).unwrap();
        assert_eq!(counter(ws.session(), "syncs") - before, 2, "sealed = {seals}: of the bytes, and of their record");
        store.damage(12_345);
        assert!(is_damage(read(&lookup(&store.workspace(false)))), "sealed = {seals}: it is kept by checksums");
    }
}
