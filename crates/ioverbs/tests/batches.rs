//! Batches and handles on `mem:`: the clauses O7–O10, B1–B4, M1–M4, C7, through the public Rust API.

use ioverbs::{
    Batch, BatchAttr, Clause, Collection, Controls, Cursor, EntryKind, Kind, Memory, Metadata, Name, OnError, Op,
    OpState, Output, Session, Value, Which, Workspace, catalog::SearchSpec, open, run, text,
};

fn store(name: &str) -> (Session, Workspace) {
    let session = open(Some(&format!("mem:{name}")), Default::default()).unwrap();
    let ws = session.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
    (session, ws)
}

fn controls(t: &str) -> Controls {
    let mut c = Controls::default();
    text::parse(&mut c, t).unwrap();
    c
}

fn batch(session: &Session, on_error: OnError) -> Batch {
    Batch::new(session, BatchAttr { on_error: Some(on_error), ..Default::default() }).unwrap()
}

fn create_op(ws: &Workspace, name: &str, asked: &str) -> (Collection, Op) {
    let out = ws.pending(EntryKind::Collection);
    let op = Op::Create {
        out: out.clone(),
        parent: None,
        name: Some(Name::new(name).unwrap()),
        metadata: Metadata::new(),
        controls: controls(asked),
    };
    (out, op)
}

fn write_op(c: &Collection, offset: u64, data: &'static [u8]) -> Op {
    // SAFETY: static data.
    let memory = unsafe { Memory::readable(data.as_ptr(), data.len()) };
    Op::Write { c: c.clone(), chunks: vec![(offset, memory)] }
}

fn read_op(c: &Collection, offset: u64, buf: &mut [u8]) -> Op {
    // SAFETY: the tests keep the buffer alive until the batch has completed.
    let memory = unsafe { Memory::writable(buf.as_mut_ptr(), buf.len()) };
    Op::Read { c: c.clone(), chunks: vec![(offset, memory)] }
}

fn read_all(c: &Collection) -> Vec<u8> {
    let mut buf = vec![0; 64];
    let n = ioverbs::read_at(c, 0, &mut buf).unwrap();
    buf.truncate(n);
    buf
}

fn spec(predicate: &str) -> SearchSpec {
    SearchSpec {
        predicate: Some(predicate.into()),
        params: vec![],
        group: None,
        deep: false,
        order: None,
        limit: 0,
        keys: vec![],
        count: false,
        names: false,
        page: 0,
    }
}

fn exists(ws: &Workspace, name: &str) -> bool {
    ioverbs::lookup(ws, None, name, Controls::default()).map(|c| ioverbs::close(&c).unwrap()).is_ok()
}

#[test]
fn o9_create_write_read_close_in_one_batch() {
    let (session, ws) = store("o9");
    let mut b = batch(&session, OnError::Continue);
    let (c, create) = create_op(&ws, "a", "");
    let mut buf = [0u8; 8];
    b.push(create).unwrap();
    b.push(write_op(&c, 0, b"hello")).unwrap();
    b.push(read_op(&c, 0, &mut buf)).unwrap();
    b.push(write_op(&c, 1, b"E")).unwrap();
    b.push(Op::Close { c: c.clone() }).unwrap();
    let request = b.start().unwrap();
    request.wait(-1).unwrap();
    assert_eq!(b.status(2).unwrap().bytes, 5);
    assert_eq!(&buf[..5], b"hello");
    assert!(ioverbs::stat(&c).is_err(), "the handle is closed");
    let again = ioverbs::lookup(&ws, None, "a", Controls::default()).unwrap();
    assert_eq!(read_all(&again), b"hEllo");
    assert_eq!(ioverbs::stat(&again).unwrap().bytes, 5);
}

#[test]
fn o7_a_thousand_creates_are_one_metadata_request() {
    let (session, ws) = store("thousand");
    let before = session.counters().snapshot()[0];
    let mut b = batch(&session, OnError::Continue);
    let mut outs = Vec::new();
    for i in 0..1000 {
        let (c, op) = create_op(&ws, &format!("c{i}"), "");
        outs.push(c);
        b.push(op).unwrap();
    }
    b.start().unwrap().wait(-1).unwrap();
    assert_eq!(session.counters().snapshot()[0] - before, 1);
    assert!(outs.iter().all(|c| c.uuid().is_ok()));
}

#[test]
fn b1_continue_gives_each_operation_its_own_status() {
    let (session, ws) = store("b1");
    ioverbs::close(&ioverbs::create(&ws, None, Some("taken"), Metadata::new(), Controls::default()).unwrap()).unwrap();
    let mut b = batch(&session, OnError::Continue);
    let (bad, op) = create_op(&ws, "taken", "");
    b.push(op).unwrap();
    b.push(write_op(&bad, 0, b"x")).unwrap();
    let (_good, op) = create_op(&ws, "free", "");
    b.push(op).unwrap();
    let request = b.start().unwrap();
    assert_eq!(request.wait(-1).unwrap_err().kind(), Kind::Partial);
    assert_eq!(b.status(0).unwrap().result().unwrap_err().kind(), Kind::Exists);
    assert_eq!(b.status(1).unwrap().result().unwrap_err().kind(), Kind::Exists, "each use returns the create's error");
    assert_eq!(b.status(2).unwrap().state, OpState::Ok);
}

#[test]
fn b2_stop_skips_what_is_behind_a_failure() {
    let (session, ws) = store("b2");
    ioverbs::close(&ioverbs::create(&ws, None, Some("taken"), Metadata::new(), Controls::default()).unwrap()).unwrap();
    let mut b = batch(&session, OnError::Stop);
    for name in ["first", "taken", "last"] {
        b.push(create_op(&ws, name, "").1).unwrap();
    }
    let request = b.start().unwrap();
    assert!(request.wait(-1).is_err());
    let states: Vec<_> = (0..3).map(|i| b.status(i).unwrap().state).collect();
    assert_eq!(states, [OpState::Ok, OpState::Failed, OpState::Skipped]);
    assert!(exists(&ws, "first") && !exists(&ws, "last"));
}

#[test]
fn c3_what_a_close_has_to_tell_goes_with_what_is_before_it_or_is_told_all_the_same() {
    let (session, ws) = store("c3told");
    let at = ioverbs::Counters::NAMES.iter().position(|n| *n == "metadata_requests").unwrap();
    let asked = || session.counters().snapshot()[at];
    for on_error in [OnError::Continue, OnError::Stop] {
        for fails in [false, true] {
            let name = format!("{on_error:?} {fails}");
            let c = ioverbs::create(&ws, None, Some(&name), Metadata::new(), controls("consistency=session")).unwrap();
            ioverbs::write_at(&c, 0, b"written").unwrap();
            let other = ioverbs::create(&ws, None, Some("other"), Metadata::new(), Controls::default()).unwrap();
            let before = asked();
            let mut b = batch(&session, on_error);
            let which = if fails { Which::parse("nothing").unwrap() } else { Which::Uuid(other.uuid().unwrap()) };
            b.push(Op::Delete { w: ws.clone(), parent: None, which }).unwrap();
            b.push(Op::Close { c: c.clone() }).unwrap();
            assert_eq!(b.start().unwrap().wait(-1).is_err(), fails, "{name}");
            if on_error == OnError::Continue {
                assert_eq!(asked() - before, 1, "{name}");
            }
            drop((b, c));
            let which = Which::Uuid(other.uuid().unwrap());
            let _ = run(&session, Op::Delete { w: ws.clone(), parent: None, which });
            let (parent, which) = (None, Which::parse(&name).unwrap());
            let told = run(&session, Op::Look { w: ws.clone(), parent, which, ahead: 0, tell: 0 }).unwrap();
            let Output::Stat(stat) = told.output else { panic!("{told:?}") };
            assert_eq!(stat.bytes, 7, "{name}");
        }
    }
}

#[test]
fn b2_a_name_that_is_taken_is_a_failure_also_where_it_is_told_by_what() {
    let (session, ws) = store("b2told");
    let taken = ioverbs::create(&ws, None, Some("taken"), Metadata::new(), Controls::default()).unwrap();
    for on_error in [OnError::Stop, OnError::Continue, OnError::Rollback] {
        let mut b = batch(&session, on_error);
        let out = ws.pending_as_told(EntryKind::Collection, ioverbs::seam::new_uuid());
        let name = Some(Name::new("taken").unwrap());
        let (metadata, controls) = (Metadata::new(), Controls::default());
        b.push(Op::Create { out: out.clone(), parent: None, name, metadata, controls }).unwrap();
        b.push(create_op(&ws, "behind", "").1).unwrap();
        assert!(b.start().unwrap().wait(-1).is_err());
        assert_eq!(b.status(0).unwrap().result().unwrap_err().kind(), Kind::Exists, "{on_error:?}");
        let goes_on = on_error == OnError::Continue;
        assert_eq!(exists(&ws, "behind"), goes_on, "{on_error:?}");
        let told = out.take_told().map(|told| told.stat.uuid);
        assert_eq!(told, goes_on.then(|| taken.uuid().unwrap()), "{on_error:?}: by what, if nothing hangs on it");
        if goes_on {
            let which = Which::parse("behind").unwrap();
            run(&session, Op::Delete { w: ws.clone(), parent: None, which }).unwrap();
        }
    }
}

#[test]
fn b2_barriers_make_groups_that_run_whole() {
    let (session, ws) = store("b2groups");
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), controls("collection_size=..4")).unwrap();
    let mut b = batch(&session, OnError::Stop);
    b.push(write_op(&c, 0, b"too long")).unwrap();
    b.push(write_op(&c, 0, b"ok")).unwrap();
    b.barrier().unwrap();
    b.push(write_op(&c, 2, b"no")).unwrap();
    assert!(b.start().unwrap().wait(-1).is_err());
    let states: Vec<_> = (0..3).map(|i| b.status(i).unwrap().state).collect();
    assert_eq!(states, [OpState::Failed, OpState::Ok, OpState::Skipped]);
    assert_eq!(b.status(0).unwrap().error.unwrap().clause(), Some(Clause::H1));
    assert_eq!(read_all(&c), b"ok");
}

#[test]
fn b3_rollback_applies_all_or_nothing() {
    let (session, ws) = store("b3");
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), Controls::default()).unwrap();
    ioverbs::write_at(&c, 0, b"old").unwrap();
    for (last, applies) in [("c", false), ("d", true)] {
        let mut b = batch(&session, OnError::Rollback);
        b.push(write_op(&c, 0, b"new!")).unwrap();
        let mut md = Metadata::new();
        md.set("k", Value::I64(7)).unwrap();
        b.push(Op::MetaPut { c: c.clone(), pairs: md }).unwrap();
        let (out, op) = create_op(&ws, last, "");
        b.push(op).unwrap();
        b.push(write_op(&out, 0, b"inner")).unwrap();
        let mut seen = [0u8; 4];
        b.push(read_op(&c, 0, &mut seen)).unwrap();
        let done = b.start().unwrap().wait(-1);
        assert_eq!(done.is_ok(), applies, "{done:?}");
        if applies {
            assert_eq!((&seen, &read_all(&c)[..], &read_all(&out)[..]), (b"new!", &b"new!"[..], &b"inner"[..]));
        } else {
            let states: Vec<_> = (0..5).map(|i| b.status(i).unwrap().state).collect();
            assert_eq!(states[2], OpState::Failed, "{states:?}");
            assert!(states.iter().enumerate().all(|(i, s)| i == 2 || *s == OpState::Undone), "{states:?}");
            assert_eq!(read_all(&c), b"old");
        }
        let got = run(&session, Op::MetaGet { c: c.clone(), key: "k".into() });
        assert_eq!(got.is_ok(), applies);
    }
}

#[test]
fn b3_a_retry_with_the_same_id_applies_once() {
    let (session, ws) = store("retry");
    let log = ioverbs::create(&ws, None, Some("log"), Metadata::new(), controls("mutability=append")).unwrap();
    let id = ioverbs::seam::new_uuid();
    let mut offsets = Vec::new();
    for _ in 0..3 {
        let attr = BatchAttr { on_error: Some(OnError::Rollback), id: Some(id), ..Default::default() };
        let mut b = Batch::new(&session, attr).unwrap();
        let data: &[u8] = b"record";
        // SAFETY: static data.
        let memory = unsafe { Memory::readable(data.as_ptr(), data.len()) };
        b.push(Op::Append { c: log.clone(), memory }).unwrap();
        b.push(create_op(&ws, "made", "").1).unwrap();
        b.start().unwrap().wait(-1).unwrap();
        offsets.push(b.status(0).unwrap().output);
    }
    assert_eq!(read_all(&log), b"record");
    assert_eq!(offsets, vec![Output::Offset(0); 3]);
}

#[test]
fn m1_a_publication_appears_at_commit_and_not_before() {
    let (session, ws) = store("m1");
    let w = ioverbs::create(&ws, None, Some("c"), Metadata::new(), controls("atomicity=publication")).unwrap();
    let other = open(Some("mem:m1"), Default::default()).unwrap();
    let ws2 = other.load_workspace(Which::parse("w").unwrap()).unwrap();
    let r = ioverbs::lookup(&ws2, None, "c", Controls::default()).unwrap();
    ioverbs::write_at(&w, 0, b"one").unwrap();
    assert_eq!(read_all(&w), b"one", "read your writes");
    assert_eq!(read_all(&r), b"");
    ioverbs::commit(&w).unwrap();
    assert_eq!(read_all(&r), b"one");
    ioverbs::write_at(&w, 0, b"two").unwrap();
    ioverbs::write_at(&w, 3, b"+").unwrap();
    assert_eq!(read_all(&r), b"one");
    ioverbs::close(&w).unwrap();
    assert_eq!(read_all(&r), b"two+");
    drop(session);
}

#[test]
fn m2_sealed_is_sealed_for_everybody() {
    let (_session, ws) = store("m2");
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), controls("mutability=immutable")).unwrap();
    ioverbs::write_at(&c, 0, b"fixed").unwrap();
    run(ws.session(), Op::Seal { c: c.clone() }).unwrap();
    let e = ioverbs::write_at(&c, 0, b"x").unwrap_err();
    assert_eq!((e.kind(), e.clause()), (Kind::Immutable, Some(Clause::M2)));
    assert_eq!(read_all(&c), b"fixed");
}

#[test]
fn m4_append_only_collections_take_nothing_else() {
    let (_session, ws) = store("m4");
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), controls("profile=log")).unwrap();
    assert_eq!((ioverbs::append(&c, b"ab").unwrap(), ioverbs::append(&c, b"c").unwrap()), (0, 2));
    let e = ioverbs::write_at(&c, 0, b"x").unwrap_err();
    assert_eq!((e.kind(), e.clause()), (Kind::Immutable, Some(Clause::M4)));
    assert_eq!(read_all(&c), b"abc");
}

#[test]
fn x1_exclusive_collections_have_one_holder() {
    let (session, ws) = store("x1");
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), controls("concurrency=exclusive")).unwrap();
    let other = open(Some("mem:x1"), Default::default()).unwrap();
    let ws2 = other.load_workspace(Which::parse("w").unwrap()).unwrap();
    let refused = ioverbs::lookup(&ws2, None, "c", Controls::default()).err().unwrap();
    assert_eq!((refused.kind(), refused.clause()), (Kind::Busy, Some(Clause::X1)));
    other.join(session.export_token().unwrap()).unwrap();
    let joined = ioverbs::lookup(&ws2, None, "c", Controls::default()).unwrap();
    ioverbs::write_at(&joined, 0, b"rank 1").unwrap();
    assert_eq!(read_all(&c), b"rank 1");
}

#[test]
fn o10_open_handles_outlive_the_name() {
    let (session, ws) = store("o10");
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), Controls::default()).unwrap();
    ioverbs::write_at(&c, 0, b"still here").unwrap();
    run(&session, Op::Delete { w: ws.clone(), parent: None, which: Which::parse("c").unwrap() }).unwrap();
    assert!(!exists(&ws, "c"));
    assert_eq!(read_all(&c), b"still here");
    ioverbs::close(&c).unwrap();
}

#[test]
fn c7_search_sees_what_was_published_and_never_what_was_deleted() {
    let (session, ws) = store("c7");
    for i in 0..20 {
        let mut md = Metadata::new();
        md.set("temperature", Value::I64(290 + i)).unwrap();
        ioverbs::close(&ioverbs::create(&ws, None, Some(&format!("r{i}")), md, Controls::default()).unwrap()).unwrap();
    }
    let names = |p: &str| -> Vec<String> {
        let cursor: Cursor = ioverbs::find(&ws, spec(p)).unwrap();
        cursor.next(100, -1).unwrap().into_iter().map(|e| e.name.unwrap().to_string()).collect()
    };
    let mut both = names("temperature > 307");
    both.sort();
    assert_eq!(both, ["r18", "r19"]);
    run(&session, Op::Delete { w: ws.clone(), parent: None, which: Which::parse("r18").unwrap() }).unwrap();
    assert_eq!(names("temperature > 307"), ["r19"]);
    let e = ioverbs::find(&ws, spec("temperature >")).err().unwrap();
    assert!(e.kind() == Kind::Invalid && e.detail().contains("column 14"), "{e}");
}

#[test]
fn p2_what_cannot_be_given_is_refused_with_an_offer() {
    let (_session, ws) = store("p2");
    let e = ioverbs::create(&ws, None, Some("c"), Metadata::new(), controls("persistence=durable")).err().unwrap();
    assert_eq!(e.kind(), Kind::Refused);
    assert!(e.clause().is_some() && e.detail().contains("persistence=volatile"), "{e}");
}

#[test]
fn o8_a_background_batch_completes_by_itself() {
    let (session, ws) = store("o8");
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), Controls::default()).unwrap();
    let big: &'static [u8] = vec![7u8; 8 << 20].leak();
    let mut b = batch(&session, OnError::Continue);
    b.push(write_op(&c, 0, big)).unwrap();
    let request = b.start().unwrap();
    let mut polled = session.poll_completed(4, 10_000_000_000).unwrap();
    assert!(polled.len() == 1 && polled.remove(0).is(&request), "reported once");
    assert!(session.poll_completed(4, 0).unwrap().is_empty());
    assert_eq!(ioverbs::stat(&c).unwrap().bytes, 8 << 20);
}
