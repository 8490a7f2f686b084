//! What can be done without opening, and what goes along with an open in one request.
#![allow(missing_docs)]

use ioverbs::{
    Attr, BatchAttr, Concurrency, Controls, EntryKind, Kind, Metadata, Name, Op, OpState, Output, Session, Value,
    Which, Workspace, create, create_group, open, run, run_batch, write_at,
};

fn session() -> Session {
    open(Some("mem:"), Default::default()).unwrap()
}

/// A new one: all that open `mem:` in one process are in one store.
fn workspace(session: &Session) -> Workspace {
    let name = Name::new(format!("unopened-{:?}", ioverbs::seam::new_uuid())).unwrap();
    session.create_workspace(name, Default::default()).unwrap()
}

fn requests(session: &Session) -> u64 {
    session.counters().metadata_requests.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn attributes_metadata_and_names_need_nothing_open() {
    let session = session();
    let ws = workspace(&session);
    let group = create_group(&ws, None, "g").unwrap();
    let c = create(&ws, None, Some("a"), Metadata::new(), Controls::default()).unwrap();
    write_at(&c, 0, b"bytes").unwrap();
    ioverbs::close(&c).unwrap();
    let (file, dir) =
        (ws.unopened(EntryKind::Collection, c.uuid().unwrap()), ws.unopened(EntryKind::Group, group.uuid().unwrap()));
    let mut pairs = Metadata::new();
    pairs.set("k", Value::I64(1)).unwrap();
    let before = requests(&session);
    let attr = Attr { mode: Some(0o600), ..Attr::default() };
    let ops = [
        Op::SetAttr { c: file.clone(), attr },
        Op::MetaPut { c: file.clone(), pairs },
        Op::Link { c: file.clone(), parent: Some(dir.clone()), name: Name::new("b").unwrap() },
        Op::Stat { c: file.clone() },
        Op::Look { w: ws.clone(), parent: Some(dir), which: Which::Name(Name::new("b").unwrap()), ahead: 0, tell: 0 },
    ];
    let statuses = run_batch(&session, BatchAttr::default(), ops.map(Into::into).into()).unwrap();
    for status in &statuses[3..] {
        let Output::Stat(stat) = &status.output else { panic!("{status:?}") };
        assert_eq!((stat.mode & 0o777, stat.links, stat.bytes), (0o600, 2, 5));
    }
    assert_eq!(requests(&session) - before, 1, "all in one request");
    assert_eq!(write_at(&file, 0, b"x").unwrap_err().kind(), Kind::Busy, "bytes have to be open");
    // Whoever only named it keeps nobody from having it alone.
    let exclusive = Controls { concurrency: Some(Concurrency::Exclusive), ..Controls::default() };
    let other = self::session();
    let there = other.load_workspace(Which::Uuid(ws.uuid())).unwrap();
    ioverbs::lookup(&there, None, "a", exclusive).unwrap();
}

#[test]
fn an_open_by_uuid_brings_facts_along_and_one_that_fails_brings_none() {
    let (session, holder) = (session(), session());
    let ws = workspace(&session);
    let c = create(&ws, None, Some("a"), Metadata::new(), Controls::default()).unwrap();
    let uuid = c.uuid().unwrap();
    ioverbs::close(&c).unwrap();
    let together = || {
        let out = ws.pending(EntryKind::Collection);
        let open = Op::Open { out: out.clone(), parent: None, which: Which::Uuid(uuid), controls: Controls::default() };
        let ops = vec![open.into(), Op::Stat { c: out.clone() }.into(), Op::MetaList { c: out }.into()];
        run_batch(&session, BatchAttr::default(), ops).unwrap()
    };
    let before = requests(&session);
    assert!(together().iter().all(|status| status.state == OpState::Ok));
    assert_eq!(requests(&session) - before, 1, "all in one request");
    let exclusive = Controls { concurrency: Some(Concurrency::Exclusive), ..Controls::default() };
    let there = holder.load_workspace(Which::Uuid(ws.uuid())).unwrap();
    let held = ioverbs::lookup(&there, None, "a", exclusive).unwrap();
    for status in together() {
        let e = status.error.unwrap();
        assert_eq!((status.state, e.kind()), (OpState::Failed, Kind::Busy), "each tells why there is no handle");
    }
    run(held.session(), Op::Close { c: held.clone() }).unwrap();
    assert!(together().iter().all(|status| status.state == OpState::Ok));
}
