//! Sealed collections of a `file:` store, opened again by their UUID (M3): what that costs is told by the counters of the
//! session (SEMANTICS 2.8).
#![allow(clippy::disallowed_methods)]

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ioverbs::{
    Collection, Controls, Counters, Kind, Lent, Metadata, Name, Op, Session, SessionAttr, Which, Workspace, open, run,
};

const IOVD: &str = env!("CARGO_BIN_EXE_iovd");
/// Long enough for a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store with a daemon that this test has started.
struct Store {
    dir: tempfile::TempDir,
    daemon: Child,
}

fn start(dir: &std::path::Path, args: &[&str]) -> Child {
    let mut daemon = Command::new(IOVD)
        .args(["--dir", dir.to_str().unwrap(), "--ready", "--idle", "0"])
        .args(args)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(daemon.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "iovd is ready");
    daemon
}

impl Store {
    fn new(args: &[&str]) -> Store {
        let dir = tempfile::tempdir().unwrap();
        let daemon = start(dir.path(), args);
        Store { dir, daemon }
    }

    fn session(&self, attr: SessionAttr) -> Session {
        open(Some(&format!("file:{}", self.dir.path().display())), attr).unwrap()
    }

    fn in_workspace(&self) -> Workspace {
        self.session(SessionAttr::default()).create_workspace(Name::new("w").unwrap(), Default::default()).unwrap()
    }

    fn again(&self, attr: SessionAttr) -> Workspace {
        self.session(attr).load_workspace(Which::parse("w").unwrap()).unwrap()
    }

    /// Another daemon takes the store over.
    fn restart(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
        self.daemon = start(self.dir.path(), &[]);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// In a record, and at a target by the socket, and at a target by a grant.
const SIZES: [usize; 3] = [100, 12 << 10, 1 << 20];

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + len) as u8 | 1).collect()
}

fn controls(text: &str) -> Controls {
    let mut controls = Controls::default();
    ioverbs::text::parse(&mut controls, text).unwrap();
    controls
}

fn sealed(ws: &Workspace, name: &str, len: usize) -> String {
    let c = ioverbs::create(ws, None, Some(name), Metadata::new(), controls("mutability=immutable")).unwrap();
    ioverbs::write_at(&c, 0, &bytes(len)).unwrap();
    run(ws.session(), Op::Seal { c: c.clone() }).unwrap();
    let uuid = c.uuid().unwrap().to_string();
    ioverbs::close(&c).unwrap();
    uuid
}

fn counter(ws: &Workspace, name: &str) -> u64 {
    ws.session().counters().snapshot()[Counters::NAMES.iter().position(|n| *n == name).unwrap()]
}

fn asked(ws: &Workspace) -> u64 {
    counter(ws, "metadata_requests")
}

fn lookup(ws: &Workspace, uuid: &str) -> ioverbs::Result<Collection> {
    ioverbs::lookup(ws, None, uuid, Controls::default())
}

fn read(c: &Collection, len: usize) -> ioverbs::Result<Vec<u8>> {
    let mut buf = vec![0xee; len];
    let n = ioverbs::read_at(c, 0, &mut buf)?;
    buf.truncate(n);
    Ok(buf)
}

fn visit(ws: &Workspace, uuid: &str, len: usize) {
    let c = lookup(ws, uuid).unwrap();
    assert!(read(&c, len + 10).unwrap() == bytes(len));
    ioverbs::close(&c).unwrap();
}

fn delete(ws: &Workspace, uuid: &str) {
    let which = Which::parse(uuid).unwrap();
    run(ws.session(), Op::Delete { w: ws.clone(), parent: None, which }).unwrap();
}

#[test]
fn m3_opening_a_sealed_collection_again_by_uuid_asks_the_catalog_nothing() {
    let store = Store::new(&[]);
    let ws = store.in_workspace();
    for len in SIZES {
        let uuid = sealed(&ws, &format!("c{len}"), len);
        for attr in [SessionAttr::default(), SessionAttr { nodirect: true, ..SessionAttr::default() }] {
            let direct = !attr.nodirect;
            let ws = store.again(attr);
            visit(&ws, &uuid, len);
            visit(&ws, &uuid, len);
            let before = (asked(&ws), counter(&ws, "round_trips"), counter(&ws, "data_requests"));
            for _ in 0..50 {
                visit(&ws, &uuid, len);
            }
            assert_eq!(asked(&ws), before.0, "{len} bytes, direct: {direct}");
            let trips = counter(&ws, "round_trips") - before.1;
            match (len, direct) {
                (100, _) => assert_eq!((trips, counter(&ws, "data_requests")), (0, before.2), "they are kept here"),
                (_, true) => assert_eq!(trips, 0, "read under a grant"),
                (_, false) => assert_eq!(trips, 50, "one for each read"),
            }
            assert_eq!(counter(&ws, "cache_bytes"), if len == 100 { 100 } else { 0 });
        }
    }
}

#[test]
fn m3_parts_of_a_small_sealed_collection_are_read_from_what_is_kept() {
    let store = Store::new(&[]);
    let ws = store.in_workspace();
    let uuid = sealed(&ws, "c", 100);
    let ws = store.again(SessionAttr::default());
    let c = lookup(&ws, &uuid).unwrap();
    let before = asked(&ws);
    for (offset, len, found) in [(10, 5, 5), (0, 100, 100), (90, 50, 10), (100, 5, 0), (u64::MAX, 5, 0)] {
        let mut buf = vec![0xee; len];
        assert_eq!(ioverbs::read_at(&c, offset, &mut buf).unwrap(), found);
        assert_eq!(buf[..found], bytes(100)[offset.min(100) as usize..][..found]);
        assert!(buf[found..].iter().all(|b| *b == 0xee));
    }
    assert_eq!(asked(&ws) - before, 1);
    let known = lookup(&ws, &uuid).unwrap();
    let (mut one, mut two) = ([0; 4], [0; 8]);
    let ops = vec![
        Lent::Read { c: known.clone(), offset: 96, buf: &mut two },
        Lent::Read { c: known.clone(), offset: 1, buf: &mut one },
        Op::Close { c: known }.into(),
    ];
    let statuses = ioverbs::run_batch(ws.session(), Default::default(), ops).unwrap();
    assert_eq!((statuses[0].bytes, statuses[1].bytes), (4, 4));
    assert_eq!((&two[..4], &one[..]), (&bytes(100)[96..], &bytes(100)[1..5]));
    assert_eq!(asked(&ws) - before, 1);
    // Who reads once, or wants nothing kept, leaves no trace (H2).
    let once = controls("temporality=once");
    for (attr, asked_for) in
        [(SessionAttr::default(), once), (SessionAttr { nocache: true, ..Default::default() }, Controls::default())]
    {
        let ws = store.again(attr);
        let c = ioverbs::lookup(&ws, None, &uuid, asked_for).unwrap();
        let before = asked(&ws);
        for _ in 0..3 {
            assert_eq!(read(&c, 200).unwrap(), bytes(100));
        }
        assert_eq!((asked(&ws) - before, counter(&ws, "cache_bytes")), (3, 0));
    }
}

#[test]
fn m3_what_is_not_sealed_is_asked_for_each_time() {
    let store = Store::new(&[]);
    let ws = store.in_workspace();
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), Controls::default()).unwrap();
    ioverbs::write_at(&c, 0, &bytes(12 << 10)).unwrap();
    let uuid = c.uuid().unwrap().to_string();
    let ws = store.again(SessionAttr::default());
    for n in 0..5 {
        let before = asked(&ws);
        visit(&ws, &uuid, 12 << 10);
        assert_eq!(asked(&ws) - before, 2, "open and close {n}");
    }
}

#[test]
fn m3_after_its_own_delete_a_session_finds_nothing() {
    let store = Store::new(&[]);
    let ws = store.in_workspace();
    for len in SIZES {
        let uuid = sealed(&ws, "c", len);
        visit(&ws, &uuid, len);
        visit(&ws, &uuid, len);
        let open = lookup(&ws, &uuid).unwrap();
        delete(&ws, &uuid);
        // What it has open it goes on reading (O10).
        assert!(read(&open, len + 10).unwrap() == bytes(len));
        ioverbs::close(&open).unwrap();
        assert_eq!(lookup(&ws, &uuid).err().unwrap().kind(), Kind::NotFound);
    }
}

#[test]
fn x1_a_known_collection_is_busy_once_somebody_else_holds_it() {
    let store = Store::new(&["--lease-ms", "3000"]);
    let ws = store.in_workspace();
    let uuid = sealed(&ws, "c", 100);
    visit(&ws, &uuid, 100);
    let theirs = store.again(SessionAttr::default());
    let hold = ioverbs::lookup(&theirs, None, &uuid, controls("concurrency=exclusive")).unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        // Whatever else it asks of the catalog meanwhile.
        run(ws.session(), Op::WorkspaceStat { w: ws.clone() }).unwrap();
        match lookup(&ws, &uuid) {
            Ok(c) => ioverbs::close(&c).unwrap(),
            Err(e) => break assert_eq!(e.kind(), Kind::Busy, "{e}"),
        }
        assert!(Instant::now() < end, "the hold was never seen");
        std::thread::sleep(Duration::from_millis(1));
    }
    ioverbs::close(&hold).unwrap();
    visit(&ws, &uuid, 100);
}

#[test]
fn m3_after_the_delete_of_another_session_a_reader_gets_the_sealed_bytes_or_not_found() {
    let store = Store::new(&[]);
    let ws = store.in_workspace();
    for len in SIZES {
        for nodirect in [false, true] {
            let uuid = sealed(&ws, "c", len);
            let theirs = store.again(SessionAttr { nodirect, ..SessionAttr::default() });
            visit(&theirs, &uuid, len);
            visit(&theirs, &uuid, len);
            let before = lookup(&theirs, &uuid).unwrap();
            delete(&ws, &uuid);
            // Whoever takes its name and its place.
            let others = sealed(&ws, "c", len + 1);
            let known = asked(&theirs);
            let after = lookup(&theirs, &uuid).unwrap();
            assert_eq!(asked(&theirs), known);
            for c in [&before, &after] {
                match read(c, len + 10) {
                    Ok(found) => assert!(found == bytes(len), "{} bytes of others", found.len()),
                    Err(e) => assert_eq!(e.kind(), Kind::NotFound, "{e}"),
                }
                assert_eq!(ioverbs::stat(c).unwrap_err().kind(), Kind::NotFound);
                ioverbs::close(c).unwrap();
            }
            assert_eq!(lookup(&theirs, &uuid).err().unwrap().kind(), Kind::NotFound);
            delete(&ws, &others);
        }
    }
}

#[test]
fn m3_readers_race_a_delete_and_get_all_or_not_found() {
    let store = Store::new(&[]);
    let ws = store.in_workspace();
    let len = 1 << 20;
    for round in 0..10 {
        let uuid = sealed(&ws, "c", len);
        let theirs = store.again(SessionAttr { nodirect: round % 2 == 1, ..SessionAttr::default() });
        visit(&theirs, &uuid, len);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let end = Instant::now() + PATIENCE;
                while Instant::now() < end {
                    let Ok(c) = lookup(&theirs, &uuid) else { return };
                    match read(&c, len) {
                        Ok(found) => assert!(found == bytes(len), "{} bytes", found.len()),
                        Err(e) => {
                            assert_eq!(e.kind(), Kind::NotFound, "{e}");
                            return;
                        }
                    }
                }
                panic!("the delete was never seen");
            });
            delete(&ws, &uuid);
            reader.join().unwrap();
        });
    }
}

#[test]
fn m3_after_the_lease_the_catalog_is_asked_again() {
    let store = Store::new(&["--lease-ms", "300"]);
    let ws = store.in_workspace();
    let uuid = sealed(&ws, "c", 100);
    visit(&ws, &uuid, 100);
    for _ in 0..3 {
        let (before, end) = (asked(&ws), Instant::now() + PATIENCE);
        while asked(&ws) == before {
            assert!(Instant::now() < end, "never asked again");
            visit(&ws, &uuid, 100);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let theirs = store.again(SessionAttr::default());
    delete(&theirs, &uuid);
    let end = Instant::now() + PATIENCE;
    while let Ok(c) = lookup(&ws, &uuid) {
        assert!(Instant::now() < end, "never found to be gone");
        // What is kept is what was sealed.
        assert_eq!(read(&c, 100).unwrap(), bytes(100));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(lookup(&ws, &uuid).err().unwrap().kind(), Kind::NotFound);
}

#[test]
fn m3_another_daemon_is_asked_again() {
    let mut store = Store::new(&[]);
    let ws = store.in_workspace();
    let uuid = sealed(&ws, "c", 12 << 10);
    visit(&ws, &uuid, 12 << 10);
    store.restart();
    // It notices with the first thing that it asks of anybody.
    let root = ioverbs::create(&ws, None, Some("other"), Metadata::new(), Controls::default()).unwrap();
    ioverbs::close(&root).unwrap();
    let before = asked(&ws);
    visit(&ws, &uuid, 12 << 10);
    assert_eq!(asked(&ws) - before, 2, "open and close");
    visit(&ws, &uuid, 12 << 10);
    assert_eq!(asked(&ws) - before, 2);
}

#[test]
fn m3_however_it_was_sealed_all_of_it_is_found_again() {
    let store = Store::new(&[]);
    let ws = store.in_workspace();
    let create = |text: &str| ioverbs::create(&ws, None, None, Metadata::new(), controls(text)).unwrap();
    let seal = |c: &Collection| run(ws.session(), Op::Seal { c: c.clone() }).map(drop).unwrap();
    let mut found = Vec::new();
    for len in SIZES {
        let data = bytes(len);
        // Together with what is written, at one point.
        let c = create("mutability=immutable");
        let attr = ioverbs::BatchAttr { on_error: Some(ioverbs::OnError::Rollback), ..Default::default() };
        let ops = vec![Lent::Write { c: c.clone(), offset: 0, data: &data }, Op::Seal { c: c.clone() }.into()];
        let statuses = ioverbs::run_batch(ws.session(), attr, ops).unwrap();
        assert!(statuses.iter().all(|s| s.error.is_none()), "{statuses:?}");
        found.push((c, data.clone()));
        // By its publication, and by the close of its only holder.
        for how in ["atomicity=publication,mutability=immutable", "concurrency=exclusive,mutability=immutable"] {
            let c = create(how);
            ioverbs::write_at(&c, 0, &data).unwrap();
            if how.contains("publication") {
                seal(&c);
            }
            found.push((c, data.clone()));
        }
        let c = create("mutability=append");
        ioverbs::append(&c, &data).unwrap();
        ioverbs::append(&c, b"end").unwrap();
        seal(&c);
        found.push((c, [&data[..], b"end"].concat()));
        // With a hole at its end.
        let c = create("atomicity=unit");
        ioverbs::write_at(&c, 0, &data).unwrap();
        run(ws.session(), Op::Truncate { c: c.clone(), size: len as u64 + 5 }).unwrap();
        seal(&c);
        found.push((c, [&data[..], &[0; 5]].concat()));
    }
    let empty = create("mutability=immutable");
    seal(&empty);
    found.push((empty, Vec::new()));
    let theirs = store.again(SessionAttr::default());
    for (n, (c, expected)) in found.into_iter().enumerate() {
        let uuid = c.uuid().unwrap().to_string();
        ioverbs::close(&c).unwrap();
        let mut before = asked(&theirs);
        for round in 0..4 {
            let c = lookup(&theirs, &uuid).unwrap();
            assert!(read(&c, expected.len() + 1).unwrap() == expected, "{n}, round {round}");
            ioverbs::close(&c).unwrap();
            if round == 1 {
                before = asked(&theirs);
            }
        }
        assert_eq!(asked(&theirs), before, "{n}");
    }
}

#[test]
fn m3_bytes_that_moved_out_of_their_record_are_found() {
    let store = Store::new(&[]);
    let ws = store.in_workspace();
    let uuid = sealed(&ws, "c", 100);
    let theirs = store.again(SessionAttr::default());
    // Known, but not read.
    ioverbs::close(&lookup(&theirs, &uuid).unwrap()).unwrap();
    let before = asked(&theirs);
    let known = lookup(&theirs, &uuid).unwrap();
    assert_eq!(asked(&theirs), before);
    // Whoever asks for its extents has it moved to a target.
    let range = ioverbs::Range { offset: 0, len: 100 };
    run(ws.session(), Op::Extents { c: lookup(&ws, &uuid).unwrap(), range, max: 8 }).unwrap();
    assert_eq!(read(&known, 200).unwrap(), bytes(100));
    for _ in 0..2 {
        visit(&theirs, &uuid, 100);
    }
    // Who knows it may ask for them too.
    let known = lookup(&theirs, &uuid).unwrap();
    let extents = run(theirs.session(), Op::Extents { c: known, range, max: 8 }).unwrap();
    assert!(matches!(&extents.output, ioverbs::Output::Extents(e) if !e.is_empty()), "{extents:?}");
}

/// A small collection that is known but has not been read, and a handle that the catalog does not know of.
fn unread(store: &Store, uuid: &str) -> (Workspace, Collection) {
    let ws = store.again(SessionAttr::default());
    ioverbs::close(&lookup(&ws, uuid).unwrap()).unwrap();
    let before = asked(&ws);
    let c = lookup(&ws, uuid).unwrap();
    assert_eq!(asked(&ws), before);
    (ws, c)
}

#[test]
fn m3_a_read_of_bytes_in_a_record_that_goes_to_a_target_finds_them() {
    let store = Store::new(&[]);
    let ws = store.in_workspace();
    // Beside something that only a target does.
    let uuid = sealed(&ws, "c", 100);
    let (theirs, c) = unread(&store, &uuid);
    let mut buf = [0; 100];
    let ops = vec![Op::Truncate { c: c.clone(), size: 0 }.into(), Lent::Read { c, offset: 0, buf: &mut buf }];
    let statuses = ioverbs::run_batch(theirs.session(), Default::default(), ops).unwrap();
    assert_eq!(statuses[0].error.as_ref().unwrap().kind(), Kind::Immutable);
    assert_eq!((&statuses[1].error, statuses[1].bytes, &buf[..]), (&None, 100, &bytes(100)[..]));
    // More than one submission takes, of what is not to be kept.
    let uuid = sealed(&ws, "d", 8000);
    let (theirs, c) = unread(&store, &uuid);
    let mut buf = vec![0; 2100 * 8192];
    // SAFETY: the buffer outlives the batch, and nobody else touches it.
    let memory = unsafe { ioverbs::Memory::writable(buf.as_mut_ptr(), buf.len()) };
    let chunks = (0..2100).map(|n| (0, memory.part(n * 8192, 8192))).collect();
    let once = ioverbs::BatchAttr { controls: Some(controls("temporality=once")), ..Default::default() };
    let mut batch = ioverbs::Batch::new(theirs.session(), once).unwrap();
    batch.push(Op::Read { c, chunks }).unwrap();
    batch.start().unwrap().wait(-1).unwrap();
    assert_eq!(batch.status(0).unwrap().bytes, 2100 * 8000);
    assert!(buf.chunks(8192).all(|buf| buf[..8000] == bytes(8000) && buf[8000..] == [0; 192]));
}

#[test]
fn m3_what_another_batch_needs_of_a_known_collection_is_there() {
    let store = Store::new(&[]);
    let ws = store.in_workspace();
    for len in SIZES {
        let uuid = sealed(&ws, &format!("c{len}"), len);
        visit(&ws, &uuid, len);
        let known = lookup(&ws, &uuid).unwrap();
        let copy = ioverbs::create(&ws, None, None, Metadata::new(), Controls::default()).unwrap();
        let whole = |src: Collection| Op::Copy { src, src_offset: 0, dst: copy.clone(), dst_offset: 0, len: 2 << 20 };
        run(ws.session(), whole(known.clone())).unwrap();
        assert!(read(&copy, len + 1).unwrap() == bytes(len));
        ioverbs::close(&known).unwrap();
        // Opened and used in one batch.
        let out = ws.pending(ioverbs::EntryKind::Collection);
        let which = Which::parse(&uuid).unwrap();
        let open = Op::Open { out: out.clone(), parent: None, which, controls: Controls::default() };
        let ops = vec![open.into(), whole(out.clone()).into(), Op::Close { c: out }.into()];
        let statuses = ioverbs::run_batch(ws.session(), Default::default(), ops).unwrap();
        assert_eq!(statuses[1].bytes, len as u64, "{statuses:?}");
        // As a whole.
        let known = lookup(&ws, &uuid).unwrap();
        let mut buf = vec![0; len];
        let attr = ioverbs::BatchAttr { on_error: Some(ioverbs::OnError::Rollback), ..Default::default() };
        let ops = vec![Lent::Read { c: known.clone(), offset: 0, buf: &mut buf }, Op::Close { c: known }.into()];
        let statuses = ioverbs::run_batch(ws.session(), attr, ops).unwrap();
        assert!(statuses.iter().all(|s| s.error.is_none()), "{statuses:?}");
        assert!(buf == bytes(len));
    }
}
