//! Stores of several targets: what lies where, over all of them, and when one of them is not as it was.

use ioverbs::{
    BatchAttr, Capability, Clause, Collection, Kind, Layout, Lent, Metadata, OnError, Op, Reach, Session, SessionAttr,
    Which, Workspace, open,
};

use crate::kit::{Daemon, Store, batch, controls, create, lookup, read};

const MIB: usize = 1 << 20;

fn start(storage: &[&str]) -> (Store, Daemon) {
    start_with(storage, &[])
}

fn start_with(storage: &[&str], more: &[&str]) -> (Store, Daemon) {
    let store = Store::new();
    let args: Vec<&str> = storage.iter().flat_map(|what| ["--storage", what]).chain(more.iter().copied()).collect();
    let daemon = store.daemon(&args, &[("IOVD_SHM", "/dev/shm")]);
    (store, daemon)
}

/// Gives shared memory back when a test ends.
struct Releases(String, Option<Daemon>);

impl Drop for Releases {
    fn drop(&mut self) {
        let _ = ioverbs::daemon_shutdown(&self.0);
        self.1 = None;
        let _ = ioverbs::store_release(&self.0);
    }
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) + i / 4093 + seed * 7) as u8).collect()
}

fn striped(targets: u32, chunk_size: u64) -> Layout {
    Layout { targets, chunk_size, ..Layout::default() }
}

/// Creates a collection with a layout.
fn with_layout(ws: &Workspace, name: &str, asked: &str, layout: Layout) -> ioverbs::Result<Collection> {
    let out = ws.pending(ioverbs::EntryKind::Collection);
    let name = Some(ioverbs::Name::new(name)?);
    let (metadata, controls) = (Metadata::new(), controls(asked));
    let create = Op::Create { out: out.clone(), parent: None, name, metadata, controls };
    let set = Op::Set { c: out.clone(), controls: None, layout: Some(layout) };
    batch(ws.session(), BatchAttr::default(), vec![create.into(), set.into()])?;
    Ok(out)
}

fn write<'a>(c: &Collection, data: &'a [u8]) -> Lent<'a> {
    Lent::Write { c: c.clone(), offset: 0, data }
}

/// The numbers of the targets that a collection lies on.
fn on(c: &Collection) -> Vec<u32> {
    let place = c.layout().unwrap().place;
    if place.is_first() {
        return vec![0];
    }
    let map = c.session().store_map().unwrap();
    map.patterns.into_iter().find(|pattern| pattern.number == place.pattern()).unwrap().targets
}

fn through_the_daemon(store: &Store) -> Workspace {
    let attr = SessionAttr { nodirect: true, ..SessionAttr::default() };
    workspace(&open(Some(&store.url()), attr).unwrap())
}

fn workspace(session: &Session) -> Workspace {
    session.load_workspace(Which::parse("w").unwrap()).unwrap()
}

#[test]
fn what_is_asked_for_decides_where_a_collection_lies() {
    let (store, daemon) = start(&["files", "shmem:64MiB", "shmem:64MiB"]);
    let _end = Releases(store.url(), Some(daemon));
    let ws = store.in_workspace();
    let map = ws.session().store_map().unwrap();
    let media: Vec<&str> = map.targets.iter().map(|target| target.capability.medium).collect();
    assert_eq!(media, [Capability::FILES, Capability::SHARED_MEMORY, Capability::SHARED_MEMORY]);
    assert!(map.targets.iter().all(|target| target.reach == Reach::Online && target.free > 0), "{map:?}");
    let mut seen = std::collections::BTreeSet::new();
    for i in 0..40 {
        // What may live in memory lives there, on one of the two.
        seen.extend(on(&create(&ws, &format!("fast{i}"), "")));
        assert_eq!(on(&create(&ws, &format!("safe{i}"), "persistence=durable@close")), [0]);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2]);
    // Levels hold for the targets that it lies on, not for the store as a whole.
    let fast = create(&ws, "fast", "");
    let e = ioverbs::lookup(&ws, None, "fast", controls("persistence=durable@close")).err().unwrap();
    assert_eq!((e.kind(), e.clause()), (Kind::Refused, Some(Clause::P3)), "{e}");
    drop(fast);
    let named = with_layout(&ws, "named", "", Layout { policy: Some("targets:2,0".into()), ..striped(2, 0) }).unwrap();
    assert_eq!(on(&named), [2, 0]);
    let by_kind = Layout { backend: Some("shmem".into()), ..striped(2, 1 << 16) };
    let by_kind = with_layout(&ws, "by kind", "", by_kind).unwrap();
    let mut targets = on(&by_kind);
    targets.sort_unstable();
    assert_eq!(targets, [1, 2]);
    let refusals = [
        (Layout { backend: Some("tape".into()), ..Layout::default() }, "", Kind::Unsupported),
        (Layout { policy: Some("best".into()), ..Layout::default() }, "", Kind::Unsupported),
        (Layout { policy: Some("targets:7".into()), ..Layout::default() }, "", Kind::NotFound),
        (striped(4, 0), "", Kind::Refused),
        (striped(2, 0), "mutability=append", Kind::Refused),
        (Layout { backend: Some("shmem".into()), ..Layout::default() }, "persistence=durable@close", Kind::Refused),
    ];
    for (i, (layout, asked, kind)) in refusals.into_iter().enumerate() {
        let e = with_layout(&ws, &format!("refused{i}"), asked, layout.clone()).err().unwrap();
        assert_eq!(e.kind(), kind, "{layout:?}: {e}");
    }
}

#[test]
fn bytes_over_several_targets_are_those_that_were_written() {
    for storage in [["files"; 3], ["shmem:32MiB"; 3], ["heap:64MiB"; 3]] {
        let (store, daemon) = start(&storage);
        let _end = Releases(store.url(), Some(daemon));
        let ws = store.in_workspace();
        let c = with_layout(&ws, "c", "", striped(3, 65_536)).unwrap();
        assert_eq!(on(&c).len(), 3);
        let all = bytes(1, 5 * MIB + 12_345);
        ioverbs::write_at(&c, 0, &all).unwrap();
        ioverbs::write_at(&c, 65_530, b"across two targets").unwrap();
        let mut expected = all;
        expected[65_530..][..18].copy_from_slice(b"across two targets");
        for reader in [store.again(), through_the_daemon(&store)] {
            let c = lookup(&reader, "c");
            assert!(read(&c) == expected, "{storage:?}");
            let mut piece = vec![1; 200_000];
            assert_eq!(ioverbs::read_at(&c, 777, &mut piece).unwrap(), piece.len());
            assert!(piece == expected[777..][..piece.len()]);
            assert_eq!(ioverbs::stat(&c).unwrap().bytes, expected.len() as u64);
        }
        // Shorter, longer, with a hole.
        let truncate = |size| {
            ioverbs::run(ws.session(), Op::Truncate { c: c.clone(), size }).unwrap();
        };
        truncate(300_000);
        expected.truncate(300_000);
        truncate(1_000_000);
        expected.resize(1_000_000, 0);
        let range = ioverbs::Range { offset: 60_000, len: 100_000 };
        ioverbs::run(ws.session(), Op::Punch { c: c.clone(), range }).unwrap();
        expected[60_000..160_000].fill(0);
        let writer = lookup(&through_the_daemon(&store), "c");
        ioverbs::write_at(&writer, 2_000_000, b"end").unwrap();
        expected.resize(2_000_000, 0);
        expected.extend(b"end");
        assert!(read(&c) == expected, "{storage:?}");
        assert!(read(&lookup(&store.again(), "c")) == expected, "{storage:?}");
        // A copy into another layout.
        let other = with_layout(&ws, "other", "", striped(2, 4096)).unwrap();
        let copy = Op::Copy { src: c.clone(), src_offset: 0, dst: other.clone(), dst_offset: 0, len: 1 << 40 };
        assert_eq!(ioverbs::run(ws.session(), copy).unwrap().bytes, expected.len() as u64);
        assert!(read(&other) == expected, "{storage:?}");
        ioverbs::close(&c).unwrap();
        assert_eq!(ioverbs::stat(&lookup(&ws, "c")).unwrap().bytes, expected.len() as u64);
    }
}

#[test]
fn no_read_or_write_asks_the_catalog() {
    let (store, daemon) = start(&["shmem:64MiB"; 4]);
    let _end = Releases(store.url(), Some(daemon));
    let ws = store.in_workspace();
    let c = with_layout(&ws, "c", "", striped(4, 4096)).unwrap();
    ioverbs::write_at(&c, 0, &bytes(2, MIB)).unwrap();
    for direct in [true, false] {
        let ws = if direct { store.again() } else { through_the_daemon(&store) };
        let c = lookup(&ws, "c");
        read(&c);
        let asked = || ws.session().counters().metadata_requests.load(std::sync::atomic::Ordering::Relaxed);
        let before = (asked(), store.status("submissions").unwrap());
        for i in 0..1000 {
            ioverbs::write_at(&c, i * 1000, &[i as u8; 1000]).unwrap();
            ioverbs::read_at(&c, i * 1000, &mut [0; 3000]).unwrap();
        }
        assert_eq!((asked(), store.status("submissions").unwrap()), before, "direct: {direct}");
    }
}

#[test]
fn p2_what_was_acknowledged_outlives_the_daemon_on_every_target() {
    let (store, daemon) = start(&["files", "shmem:64MiB", "files"]);
    let mut end = Releases(store.url(), Some(daemon));
    let ws = store.in_workspace();
    let c = with_layout(&ws, "c", "", Layout { policy: Some("targets:0,1,2".into()), ..striped(3, 4096) }).unwrap();
    let staged = with_layout(
        &ws,
        "staged",
        "atomicity=publication",
        Layout { policy: Some("targets:2,1".into()), ..striped(2, 4096) },
    )
    .unwrap();
    let all = bytes(3, 3 * MIB);
    ioverbs::write_at(&staged, 0, &all).unwrap();
    ioverbs::commit(&staged).unwrap();
    ioverbs::write_at(&staged, 0, &bytes(4, 100_000)).unwrap();
    ioverbs::write_at(&c, 0, &all).unwrap();
    for _ in 0..2 {
        end.1.take().unwrap().kill();
        // Handles go on, by another daemon.
        assert!(read(&c) == all);
        assert!(read(&lookup(&store.again(), "staged")) == all, "what is not published stays so");
        ioverbs::write_at(&c, 5, b"x").unwrap();
        assert_eq!(read(&c)[..10], [&all[..5], b"x", &all[6..10]].concat());
        ioverbs::write_at(&c, 5, &all[5..6]).unwrap();
        end.1 = None;
        store.kill();
        end.1 = Some(store.daemon(&[], &[]));
    }
    ioverbs::commit(&staged).unwrap();
    let mut expected = all;
    expected[..100_000].copy_from_slice(&bytes(4, 100_000));
    assert!(read(&lookup(&store.again(), "staged")) == expected, "what was staged came through, at both targets");
}

#[test]
fn b3_a_batch_over_several_targets_is_one() {
    let (store, daemon) = start(&["files"; 3]);
    let _end = Releases(store.url(), Some(daemon));
    let ws = store.in_workspace();
    let c = with_layout(&ws, "c", "", striped(3, 4096)).unwrap();
    let d = with_layout(&ws, "d", "", striped(2, 8192)).unwrap();
    ioverbs::write_at(&c, 0, &[1; 100_000]).unwrap();
    ioverbs::write_at(&d, 0, &[1; 100_000]).unwrap();
    let attr = || BatchAttr { on_error: Some(OnError::Rollback), ..BatchAttr::default() };
    let new = ws.pending(ioverbs::EntryKind::Collection);
    let made = Lent::from(Op::Create {
        out: new.clone(),
        parent: None,
        name: Some(ioverbs::Name::new("new").unwrap()),
        metadata: Metadata::new(),
        controls: controls(""),
    });
    let ops = vec![write(&c, &[2; 100_000]), write(&d, &[2; 100_000]), made, write(&new, &[2; 50_000])];
    batch(ws.session(), attr(), ops).unwrap();
    for name in ["c", "d", "new"] {
        assert!(read(&lookup(&store.again(), name)).iter().all(|b| *b == 2), "{name}");
    }
    let full = with_layout(&ws, "full", "collection_size=1..1000", striped(2, 4096)).unwrap();
    let ops = vec![write(&c, &[3; 100_000]), write(&full, &[3; 100_000])];
    let told = ioverbs::run_batch(ws.session(), attr(), ops).unwrap();
    assert_eq!(told[1].error.as_ref().unwrap().kind(), Kind::FileTooBig, "{told:?}");
    assert!(read(&lookup(&store.again(), "c")).iter().all(|b| *b == 2), "nothing of it");
}

#[test]
fn o2_of_a_creation_that_comes_to_nothing_nothing_is_left() {
    let (store, daemon) = start(&["files"; 2]);
    let _end = Releases(store.url(), Some(daemon));
    let ws = store.in_workspace();
    let large = "request_size=1MiB..1MiB";
    let there = with_layout(&ws, "there", large, striped(2, 4096)).unwrap();
    let objects = || store.files("target-1/data").len();
    let before = objects();
    assert!(before > 0, "it does not begin beside its record");
    let new = ws.pending(ioverbs::EntryKind::Collection);
    let again = ws.pending(ioverbs::EntryKind::Collection);
    let op = |out: &Collection, name: &str| Op::Create {
        out: out.clone(),
        parent: None,
        name: Some(ioverbs::Name::new(name).unwrap()),
        metadata: Metadata::new(),
        controls: controls(large),
    };
    let set = |c: &Collection| Op::Set { c: c.clone(), controls: None, layout: Some(striped(2, 4096)) };
    let ops: Vec<Lent<'_>> =
        vec![op(&new, "new").into(), set(&new).into(), op(&again, "there").into(), set(&again).into()];
    let attr = BatchAttr { on_error: Some(OnError::Rollback), ..BatchAttr::default() };
    let told = ioverbs::run_batch(ws.session(), attr, ops).unwrap();
    assert_eq!(told[2].error.as_ref().unwrap().kind(), Kind::Exists, "{told:?}");
    assert_eq!(objects(), before);
    drop(there);
}

#[test]
fn other_controls_leave_a_collection_where_it_is() {
    let (store, daemon) = start(&["files"; 4]);
    let _end = Releases(store.url(), Some(daemon));
    let ws = store.in_workspace();
    let set = |c: &Collection, asked: Option<&str>, layout: Option<Layout>| {
        let op = Op::Set { c: c.clone(), controls: asked.map(controls), layout };
        batch(ws.session(), BatchAttr::default(), vec![op.into()])
    };
    for i in 0..8 {
        let name = format!("c{i}");
        let c = create(&ws, &name, "concurrency=exclusive");
        ioverbs::write_at(&c, 0, b"small").unwrap();
        set(&c, Some("persistence=durable@close"), None).unwrap();
        // The same handle, and now at a target.
        ioverbs::write_at(&c, 0, &bytes(i, MIB)).unwrap();
        assert!(read(&c) == bytes(i, MIB));
        ioverbs::close(&c).unwrap();
        assert!(read(&lookup(&store.again(), &name)) == bytes(i, MIB));
    }
    // Another layout is for another collection.
    let c = create(&ws, "stays", "concurrency=exclusive");
    ioverbs::write_at(&c, 0, b"small").unwrap();
    let e = set(&c, None, Some(striped(3, 4096))).unwrap_err();
    assert_eq!(e.kind(), Kind::Unsupported, "{e}");
    assert_eq!(read(&c), b"small");
}

#[test]
fn a_target_that_is_added_takes_what_comes_and_sessions_find_it() {
    let (store, daemon) = start(&["files"]);
    let old = store.in_workspace();
    let before = create(&old, "before", "");
    ioverbs::write_at(&before, 0, &bytes(5, MIB)).unwrap();
    daemon.kill();
    let elsewhere = tempfile::tempdir().unwrap();
    let more = format!("files:{}", elsewhere.path().join("more").display());
    let daemon = store.daemon(&["--storage", "files", "--storage", &more], &[]);
    let ws = store.again();
    assert_eq!(ws.session().store_map().unwrap().targets.len(), 2);
    let c = with_layout(&ws, "c", "", striped(2, 4096)).unwrap();
    ioverbs::write_at(&c, 0, &bytes(6, MIB)).unwrap();
    // A session from before learns of it with the first thing that lies there.
    assert!(read(&lookup(&old, "c")) == bytes(6, MIB));
    assert!(read(&before) == bytes(5, MIB));
    daemon.kill();
    // It is written down.
    let _daemon = store.daemon(&[], &[]);
    assert!(read(&lookup(&store.again(), "c")) == bytes(6, MIB));
}

#[test]
fn p1_a_part_that_is_gone_is_told_and_never_read_as_zeros() {
    let (store, daemon) = start(&["files", "files"]);
    let ws = store.in_workspace();
    let layout = Layout { policy: Some("targets:0,1".into()), ..striped(2, 4096) };
    let c = with_layout(&ws, "c", "", layout).unwrap();
    ioverbs::write_at(&c, 0, &bytes(7, MIB)).unwrap();
    ioverbs::close(&c).unwrap();
    drop(ws);
    store.shut_down();
    drop(daemon);
    // Whatever is the second target's.
    let lost = store.files("target-1/data");
    assert!(!lost.is_empty());
    lost.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let _daemon = store.daemon(&[], &[]);
    let ws = through_the_daemon(&store);
    let c = lookup(&ws, "c");
    let e = ioverbs::read_at(&c, 4096, &mut [0; 4096]).unwrap_err();
    assert!([Kind::Corrupt, Kind::Lost].contains(&e.kind()), "{e}");
    let e = ioverbs::write_at(&c, 0, &[1; 10_000]).unwrap_err();
    assert!([Kind::Corrupt, Kind::Lost].contains(&e.kind()), "{e}");
    let e = ioverbs::read_at(&lookup(&store.again(), "c"), 4096, &mut [0; 4096]).unwrap_err();
    assert!([Kind::Corrupt, Kind::Lost].contains(&e.kind()), "direct: {e}");
}

/// All but a thirty-third of 16 MiB, and more.
const FULL: usize = 15 * MIB + MIB * 3 / 4;

#[test]
fn where_memory_is_short_files_take_what_comes() {
    let (store, daemon) = start(&["shmem:16MiB", "files"]);
    let _end = Releases(store.url(), Some(daemon));
    let ws = store.in_workspace();
    let first = create(&ws, "first", "");
    assert_eq!(on(&first), [0]);
    // What says how large it will be goes where there is room for it.
    assert_eq!(on(&create(&ws, "large", "collection_size=20MiB..30MiB")), [1]);
    // To the last bytes: the machine's disk may be short of room itself, and memory is taken then.
    ioverbs::write_at(&first, 0, &bytes(1, FULL)).unwrap();
    crate::kit::wait_until("the store's look at the room", || {
        on(&create(&ws, &format!("c{:?}", std::time::Instant::now()), "")) == [1]
    });
    let second = create(&ws, "second", "");
    ioverbs::write_at(&second, 0, &bytes(2, 15 * MIB)).unwrap();
    assert!(read(&first) == bytes(1, FULL) && read(&second) == bytes(2, 15 * MIB));
}
