//! What a session knows of sealed collections, on `mem:`: the clause M3, through the public Rust API.

use ioverbs::{
    Batch, BatchAttr, Clause, Collection, Controls, Counters, EntryKind, Kind, Lent, Metadata, Name, OnError, Op,
    OpState, Session, SessionAttr, Value, Which, Workspace, catalog::LockSpec, open, run, text,
};

struct World {
    url: String,
    ws: Workspace,
}

impl World {
    fn new(name: &str) -> World {
        let url = format!("mem:{name}");
        let session = open(Some(&url), SessionAttr::default()).unwrap();
        let ws = session.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
        World { url, ws }
    }

    /// The workspace in another session.
    fn again(&self, attr: SessionAttr) -> Workspace {
        let session = open(Some(&self.url), attr).unwrap();
        session.load_workspace(Which::parse("w").unwrap()).unwrap()
    }

    /// A sealed collection, and its UUID as text.
    fn sealed(&self, name: &str, asked: &str, bytes: &[u8]) -> String {
        let c = ioverbs::create(&self.ws, None, Some(name), Metadata::new(), controls(asked)).unwrap();
        ioverbs::write_at(&c, 0, bytes).unwrap();
        run(self.ws.session(), Op::Seal { c: c.clone() }).unwrap();
        let uuid = c.uuid().unwrap().to_string();
        ioverbs::close(&c).unwrap();
        uuid
    }
}

fn controls(t: &str) -> Controls {
    let mut c = Controls::default();
    text::parse(&mut c, t).unwrap();
    c
}

fn counter(s: &Session, name: &str) -> u64 {
    s.counters().snapshot()[Counters::NAMES.iter().position(|n| *n == name).unwrap()]
}

fn asked(ws: &Workspace) -> u64 {
    counter(ws.session(), "metadata_requests")
}

fn lookup(ws: &Workspace, uuid: &str) -> ioverbs::Result<Collection> {
    ioverbs::lookup(ws, None, uuid, Controls::default())
}

fn all(c: &Collection) -> ioverbs::Result<Vec<u8>> {
    let mut buf = vec![0xaa; 64];
    let n = ioverbs::read_at(c, 0, &mut buf)?;
    buf.truncate(n);
    Ok(buf)
}

/// Opens, reads and closes; tells how many requests to the catalog that took.
fn visit(ws: &Workspace, uuid: &str, asked_for: &str, expected: &[u8]) -> u64 {
    let before = asked(ws);
    let c = ioverbs::lookup(ws, None, uuid, controls(asked_for)).unwrap();
    assert_eq!(all(&c).unwrap(), expected);
    ioverbs::close(&c).unwrap();
    asked(ws) - before
}

#[test]
fn m3_a_sealed_collection_is_opened_again_by_uuid_without_asking() {
    let world = World::new("again");
    let uuid = world.sealed("c", "mutability=immutable", b"sealed");
    let ws = world.again(SessionAttr::default());
    assert_eq!(visit(&ws, &uuid, "", b"sealed"), 2, "open and close");
    for _ in 0..10 {
        assert_eq!(visit(&ws, &uuid, "", b"sealed"), 0);
    }
    // A name may have moved.
    assert_eq!(visit(&ws, "c", "", b"sealed"), 2);
    // What was granted to somebody who asked for something else is not told again.
    assert_eq!(visit(&ws, &uuid, "consistency=session", b"sealed"), 2);
    assert_eq!(visit(&ws, &uuid, "consistency=session", b"sealed"), 0);
    let c = ioverbs::lookup(&ws, None, &uuid, controls("consistency=session")).unwrap();
    assert_eq!(c.effective().unwrap().consistency, ioverbs::Consistency::Session);
    assert_eq!(c.uuid().unwrap().to_string(), uuid);
}

#[test]
fn m3_what_an_open_by_name_has_told_is_known_by_uuid() {
    let world = World::new("by-name");
    let uuid = world.sealed("c", "mutability=immutable", b"sealed");
    let ws = world.again(SessionAttr::default());
    assert_eq!(visit(&ws, "c", "", b"sealed"), 2);
    assert_eq!(visit(&ws, &uuid, "", b"sealed"), 0);
    // But not in another workspace.
    let attr = Default::default();
    let other = ws.session().create_workspace(Name::new("other").unwrap(), attr).unwrap();
    assert_eq!(lookup(&other, &uuid).err().unwrap().kind(), Kind::NotFound);
}

#[test]
fn m3_what_is_not_sealed_is_asked_for_each_time() {
    let world = World::new("open");
    let c = ioverbs::create(&world.ws, None, Some("c"), Metadata::new(), controls("mutability=immutable")).unwrap();
    ioverbs::write_at(&c, 0, b"staging").unwrap();
    let uuid = c.uuid().unwrap().to_string();
    let ws = world.again(SessionAttr::default());
    for _ in 0..3 {
        assert_eq!(visit(&ws, &uuid, "", b"staging"), 2);
    }
    run(c.session(), Op::Seal { c: c.clone() }).unwrap();
    assert_eq!(visit(&ws, &uuid, "", b"staging"), 2);
    assert_eq!(visit(&ws, &uuid, "", b"staging"), 0);
}

#[test]
fn m3_opens_that_ask_for_more_than_reading_are_the_catalogs() {
    let world = World::new("more");
    let uuid = world.sealed("c", "mutability=immutable", b"sealed");
    let ws = world.again(SessionAttr::default());
    for more in ["concurrency=exclusive", "persistence=volatile", "temporality=once"] {
        for _ in 0..2 {
            assert_eq!(visit(&ws, &uuid, more, b"sealed"), 2, "{more}");
        }
    }
    // A session that keeps no caches keeps no records.
    let ws = world.again(SessionAttr { nocache: true, ..Default::default() });
    for _ in 0..2 {
        assert_eq!(visit(&ws, &uuid, "", b"sealed"), 2);
    }
}

#[test]
fn m3_deleted_by_another_session_a_reader_gets_the_sealed_bytes_or_not_found() {
    let world = World::new("deleted");
    let uuid = world.sealed("c", "mutability=immutable", b"sealed");
    let ws = world.again(SessionAttr::default());
    assert_eq!(visit(&ws, &uuid, "", b"sealed"), 2);
    let known = lookup(&ws, &uuid).unwrap();
    assert_eq!(all(&known).unwrap(), b"sealed");
    run(world.ws.session(), Op::Delete { w: world.ws.clone(), parent: None, which: Which::parse(&uuid).unwrap() })
        .unwrap();
    // Whatever the name stands for now.
    world.sealed("c", "mutability=immutable", b"others");
    let again = lookup(&ws, &uuid).unwrap();
    for c in [&known, &again] {
        match all(c) {
            Ok(bytes) => assert_eq!(bytes, b"sealed"),
            Err(e) => assert_eq!((e.kind(), e.clause()), (Kind::NotFound, Some(Clause::M3))),
        }
        // A range beyond the end has nothing to lose.
        assert_eq!(ioverbs::read_at(c, 6, &mut [0; 4]).unwrap(), 0);
        assert_eq!(ioverbs::stat(c).unwrap_err().kind(), Kind::NotFound);
        ioverbs::close(c).unwrap();
    }
    // It has heard of it now.
    assert_eq!(lookup(&ws, &uuid).err().unwrap().kind(), Kind::NotFound);
}

#[test]
fn m3_a_session_sees_what_it_has_changed_itself() {
    let world = World::new("own");
    let ws = world.again(SessionAttr::default());
    let s = ws.session();
    let change = |uuid: &str, op: &dyn Fn(Collection) -> Op| {
        assert_eq!(visit(&ws, uuid, "", b"x"), 2);
        assert_eq!(visit(&ws, uuid, "", b"x"), 0);
        let c = lookup(&ws, uuid).unwrap();
        run(s, op(c.clone())).unwrap();
        ioverbs::close(&c).unwrap();
    };
    let name = |n: &str| Name::new(n).unwrap();
    let put = |c| {
        let mut pairs = Metadata::new();
        pairs.set("key", Value::I64(1)).unwrap();
        Op::MetaPut { c, pairs }
    };
    let uuid = world.sealed("c", "mutability=immutable", b"x");
    change(&uuid, &put);
    change(&uuid, &|c| Op::MetaRemove { c, key: "key".into() });
    change(&uuid, &|c| Op::SetAttr { c, attr: ioverbs::Attr { mode: Some(0o600), ..Default::default() } });
    change(&uuid, &|c| Op::Link { c, parent: None, name: name("d") });
    change(&uuid, &|_| Op::Rename {
        w: ws.clone(),
        from_parent: None,
        from: name("d"),
        to_parent: None,
        to: name("e"),
        mode: ioverbs::catalog::RenameMode::NoReplace,
    });
    // One of two names is no end.
    change(&uuid, &|_| Op::Delete { w: ws.clone(), parent: None, which: Which::Name(name("e")) });
    assert_eq!(visit(&ws, &uuid, "", b"x"), 2);
    let delete = |which: Which| Op::Delete { w: ws.clone(), parent: None, which };
    run(s, delete(Which::Name(name("c")))).unwrap();
    assert_eq!(lookup(&ws, &uuid).err().unwrap().kind(), Kind::NotFound);

    let uuid = world.sealed("c", "mutability=immutable", b"x");
    assert_eq!(visit(&ws, &uuid, "", b"x"), 2);
    run(s, delete(Which::parse(&uuid).unwrap())).unwrap();
    assert_eq!(lookup(&ws, &uuid).err().unwrap().kind(), Kind::NotFound);

    // In one batch, in its order.
    for on_error in [OnError::Continue, OnError::Stop] {
        let uuid = world.sealed("c", "mutability=immutable", b"x");
        assert_eq!(visit(&ws, &uuid, "", b"x"), 2);
        let out = [ws.pending(EntryKind::Collection), ws.pending(EntryKind::Collection)];
        let which = Which::parse(&uuid).unwrap();
        let open = |out: &Collection| Op::Open {
            out: out.clone(),
            parent: None,
            which: which.clone(),
            controls: Controls::default(),
        };
        let mut batch = Batch::new(s, BatchAttr { on_error: Some(on_error), ..Default::default() }).unwrap();
        batch.push(open(&out[0])).unwrap();
        batch.push(Op::Close { c: out[0].clone() }).unwrap();
        // What it has open can be opened again.
        batch.barrier().unwrap();
        batch.push(delete(which.clone())).unwrap();
        batch.push(open(&out[1])).unwrap();
        assert!(batch.start().unwrap().wait(i64::MAX).is_err(), "{on_error:?}");
        assert_eq!(batch.status(3).unwrap().error.unwrap().kind(), Kind::NotFound, "{on_error:?}");
        assert_eq!(lookup(&ws, &uuid).err().unwrap().kind(), Kind::NotFound);
    }
}

#[test]
fn m3_what_the_catalog_must_know_of_is_opened_there() {
    let world = World::new("attach");
    let uuid = world.sealed("c", "mutability=immutable", b"0123456789");
    let ws = world.again(SessionAttr::default());
    assert_eq!(visit(&ws, &uuid, "", b"0123456789"), 2);
    let lock = |owner| LockSpec {
        exclusive: true,
        try_only: true,
        range: ioverbs::Range { offset: 0, len: 4 },
        owner,
        lease_ns: 30_000_000_000,
    };
    let c = lookup(&ws, &uuid).unwrap();
    run(ws.session(), Op::Lock { c: c.clone(), lock: lock(1) }).unwrap();
    let other = world.again(SessionAttr::default());
    let theirs = lookup(&other, &uuid).unwrap();
    let taken = run(other.session(), Op::Lock { c: theirs.clone(), lock: lock(2) }).unwrap_err();
    assert_eq!(taken.kind(), Kind::Busy);
    run(ws.session(), Op::Unlock { c: c.clone(), lock: lock(1) }).unwrap();
    run(other.session(), Op::Lock { c: theirs, lock: lock(2) }).unwrap();
    // It is an open like any other from here on: deleted by somebody else, it can still be read (O10).
    run(world.ws.session(), Op::Delete { w: world.ws.clone(), parent: None, which: Which::parse("c").unwrap() })
        .unwrap();
    assert_eq!(all(&c).unwrap(), b"0123456789");
    ioverbs::close(&c).unwrap();

    let uuid = world.sealed("c", "mutability=immutable", b"0123456789");
    assert_eq!(visit(&ws, &uuid, "", b"0123456789"), 2);
    let src = lookup(&ws, &uuid).unwrap();
    let dst = ioverbs::create(&ws, None, Some("copy"), Metadata::new(), Controls::default()).unwrap();
    run(ws.session(), Op::Copy { src: src.clone(), src_offset: 2, dst: dst.clone(), dst_offset: 0, len: 100 }).unwrap();
    assert_eq!(all(&dst).unwrap(), b"23456789");
    ioverbs::close(&src).unwrap();
    // In a rollback batch too.
    assert_eq!(visit(&ws, &uuid, "", b"0123456789"), 0);
    let (src, mut buf) = (lookup(&ws, &uuid).unwrap(), [0; 10]);
    let attr = BatchAttr { on_error: Some(OnError::Rollback), ..Default::default() };
    let ops = vec![
        Lent::Read { c: src.clone(), offset: 0, buf: &mut buf },
        Lent::Write { c: dst.clone(), offset: 8, data: b"!" },
        Op::Close { c: src }.into(),
    ];
    let statuses = ioverbs::run_batch(ws.session(), attr, ops).unwrap();
    assert!(statuses.iter().all(|s| s.state == OpState::Ok), "{statuses:?}");
    assert_eq!((&buf, &*all(&dst).unwrap()), (b"0123456789", &b"23456789!"[..]));

    // What is gone by then cannot be opened, and the handle can be closed all the same.
    assert_eq!(visit(&ws, &uuid, "", b"0123456789"), 0);
    let c = lookup(&ws, &uuid).unwrap();
    run(world.ws.session(), Op::Delete { w: world.ws.clone(), parent: None, which: Which::parse("c").unwrap() })
        .unwrap();
    let e = run(ws.session(), Op::Lock { c: c.clone(), lock: lock(1) }).unwrap_err();
    assert_eq!(e.kind(), Kind::NotFound);
    ioverbs::close(&c).unwrap();
}

#[test]
fn m2_a_handle_from_a_known_record_cannot_write() {
    let world = World::new("write");
    let uuid = world.sealed("c", "mutability=immutable", b"sealed");
    let ws = world.again(SessionAttr::default());
    for _ in 0..2 {
        let c = lookup(&ws, &uuid).unwrap();
        assert_eq!(ioverbs::write_at(&c, 0, b"others").unwrap_err().kind(), Kind::Immutable);
        // To seal it is done already, as is to publish and to persist it.
        run(ws.session(), Op::Seal { c: c.clone() }).unwrap();
        run(ws.session(), Op::Commit { c: c.clone() }).unwrap();
        run(ws.session(), Op::Persist { c: c.clone() }).unwrap();
        assert_eq!(all(&c).unwrap(), b"sealed");
        ioverbs::close(&c).unwrap();
        assert!(all(&c).is_err());
    }
}

#[test]
fn m3_what_is_opened_from_a_record_while_it_is_waited_for_is_opened_in_the_catalog() {
    let world = World::new("pending");
    let uuid = world.sealed("c", "mutability=immutable", b"0123456789");
    let ws = world.again(SessionAttr::default());
    assert_eq!(visit(&ws, &uuid, "", b"0123456789"), 2);
    let spec = LockSpec {
        exclusive: true,
        try_only: true,
        range: ioverbs::Range { offset: 0, len: 4 },
        owner: 1,
        lease_ns: 30_000_000_000,
    };
    let dst = ioverbs::create(&ws, None, Some("copy"), Metadata::new(), Controls::default()).unwrap();
    let copy = |src: &Collection| Op::Copy { src: src.clone(), src_offset: 0, dst: dst.clone(), dst_offset: 0, len: 9 };
    let stat = |c: &Collection| Op::Stat { c: c.clone() };
    type Use<'a> = (OnError, &'a dyn Fn(&Collection) -> Op);
    let uses: [Use; 3] = [
        (OnError::Continue, &|c| Op::Lock { c: c.clone(), lock: spec.clone() }),
        (OnError::Stop, &copy),
        (OnError::Rollback, &stat),
    ];
    for (on_error, used) in uses {
        let caller = BatchAttr { drive: ioverbs::Drive::Caller, ..Default::default() };
        let out = ws.pending(EntryKind::Collection);
        let which = Which::parse(&uuid).unwrap();
        let mut opens = Batch::new(ws.session(), caller.clone()).unwrap();
        opens.push(Op::Open { out: out.clone(), parent: None, which, controls: Controls::default() }).unwrap();
        let mut uses = Batch::new(ws.session(), BatchAttr { on_error: Some(on_error), ..caller }).unwrap();
        uses.push(used(&out)).unwrap();
        let (opens, uses_it) = (opens.start().unwrap(), uses.start().unwrap());
        let before = asked(&ws);
        opens.wait(-1).unwrap();
        assert_eq!(asked(&ws), before, "from the record");
        assert_eq!(uses_it.wait(-1), Ok(()), "{on_error:?}: {:?}", uses.status(0));
        ioverbs::close(&out).unwrap();
    }
}

#[test]
fn o10_an_open_handle_can_be_read_after_its_sessions_own_delete() {
    let world = World::new("own-delete");
    let name = |n: &str| Which::Name(Name::new(n).unwrap());
    type Removes<'a> = &'a dyn Fn(&Workspace, &str) -> Op;
    let removes: [Removes; 3] = [
        &|w, uuid| Op::Delete { w: w.clone(), parent: None, which: Which::parse(uuid).unwrap() },
        &|w, _| Op::Delete { w: w.clone(), parent: None, which: name("c") },
        &|w, _| Op::Rename {
            w: w.clone(),
            from_parent: None,
            from: Name::new("other").unwrap(),
            to_parent: None,
            to: Name::new("c").unwrap(),
            mode: ioverbs::catalog::RenameMode::Replace,
        },
    ];
    for on_error in [OnError::Continue, OnError::Stop, OnError::Rollback] {
        for (n, remove) in removes.iter().enumerate() {
            for kept in [false, true] {
                let uuid = world.sealed("c", "mutability=immutable", b"sealed");
                world.sealed("other", "mutability=immutable", b"others");
                let ws = world.again(SessionAttr::default());
                ioverbs::close(&lookup(&ws, &uuid).unwrap()).unwrap();
                let before = asked(&ws);
                let (first, second) = (lookup(&ws, &uuid).unwrap(), lookup(&ws, &uuid).unwrap());
                let closed = lookup(&ws, &uuid).unwrap();
                ioverbs::close(&closed).unwrap();
                assert_eq!(asked(&ws), before, "from the record");
                if kept {
                    assert_eq!(all(&first).unwrap(), b"sealed");
                }
                let attr = BatchAttr { on_error: Some(on_error), ..Default::default() };
                let statuses = ioverbs::run_batch(ws.session(), attr, vec![remove(&ws, &uuid).into()]).unwrap();
                assert_eq!(statuses[0].error, None);
                for c in [&first, &second] {
                    assert_eq!(all(c).as_deref(), Ok(&b"sealed"[..]), "{on_error:?}, {n}, kept: {kept}");
                    assert_eq!(ioverbs::stat(c).unwrap().bytes, 6);
                    ioverbs::close(c).unwrap();
                }
                assert_eq!(lookup(&ws, &uuid).err().unwrap().kind(), Kind::NotFound);
                for left in ["c", "other"] {
                    let w = world.ws.clone();
                    let _ = run(w.session(), Op::Delete { w: w.clone(), parent: None, which: name(left) });
                }
            }
        }
    }
    // Opened and deleted in one batch.
    for on_error in [OnError::Continue, OnError::Stop] {
        let uuid = world.sealed("c", "mutability=immutable", b"sealed");
        let ws = world.again(SessionAttr::default());
        ioverbs::close(&lookup(&ws, &uuid).unwrap()).unwrap();
        let (out, which) = (ws.pending(EntryKind::Collection), Which::parse(&uuid).unwrap());
        let open = Op::Open { out: out.clone(), parent: None, which, controls: Controls::default() };
        let attr = BatchAttr { on_error: Some(on_error), ..Default::default() };
        let statuses = ioverbs::run_batch(ws.session(), attr, vec![open.into(), removes[1](&ws, "").into()]).unwrap();
        assert!(statuses.iter().all(|s| s.error.is_none()), "{statuses:?}");
        assert_eq!(all(&out).as_deref(), Ok(&b"sealed"[..]), "{on_error:?}");
    }
}
