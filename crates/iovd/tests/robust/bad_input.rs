//! Requests that cannot be carried out: each is answered by an error that says what is wrong, and nothing is lost.

use ioverbs::{
    Clause, Controls, Error, Kind, Lent, Metadata, Name, Op, OpState, SessionAttr, Which, WorkspaceAttr,
    catalog::SearchSpec, open,
};

use crate::kit::{Store, controls, create, lookup, read};

/// The error, which must be of a kind, name a clause, and say these words.
fn says<T>(result: Result<T, Error>, kind: Kind, clause: Option<Clause>, words: &[&str]) {
    let e = result.err().expect("it cannot be done");
    assert_eq!((e.kind(), e.clause()), (kind, clause), "{e}");
    for word in words {
        assert!(e.detail().contains(word), "{e} does not say {word:?}");
    }
}

pub(crate) fn search(predicate: &str) -> SearchSpec {
    SearchSpec {
        predicate: Some(predicate.into()),
        params: Vec::new(),
        group: None,
        deep: true,
        order: None,
        limit: 0,
        keys: Vec::new(),
        count: false,
        names: false,
        page: 0,
    }
}

#[test]
fn names_that_are_not_there_or_taken() {
    let store = Store::new();
    let s = store.session();
    says(s.load_workspace(Which::parse("nowhere").unwrap()), Kind::NotFound, None, &["nowhere", "create it"]);
    let uuid = Which::Uuid(ioverbs::seam::new_uuid());
    says(s.load_workspace(uuid), Kind::NotFound, None, &[]);
    let ws = store.in_workspace();
    let taken = s.create_workspace(Name::new("w").unwrap(), Default::default());
    says(taken, Kind::Exists, Some(Clause::O1), &["\"w\"", "already"]);
    let a = create(&ws, "a", "");
    ioverbs::write_at(&a, 0, b"kept").unwrap();
    let again = ioverbs::create(&ws, None, Some("a"), Metadata::new(), Controls::default());
    says(again, Kind::Exists, Some(Clause::O3), &["a", "taken"]);
    says(ioverbs::lookup(&ws, None, "b", Controls::default()), Kind::NotFound, Some(Clause::O3), &["b"]);
    for name in ["", "a/b", "a\0b", &"x".repeat(256)] {
        says(
            ioverbs::create(&ws, None, Some(name), Metadata::new(), Controls::default()),
            Kind::Invalid,
            Some(Clause::O3),
            &[],
        );
    }
    says(s.delete_workspace(Which::parse("w").unwrap()), Kind::NotEmpty, Some(Clause::O11), &[]);
    assert_eq!(read(&a), b"kept");
}

#[test]
fn o5_a_predicate_that_cannot_be_read_says_where() {
    let store = Store::new();
    let ws = store.in_workspace();
    for (predicate, at) in
        [("temperature > ", 15), ("temperature >> 3", 14), ("a = 1 and (b = 2", 17), ("a = 'open", 5)]
    {
        let e = ioverbs::find(&ws, search(predicate)).err().unwrap();
        assert_eq!(e.kind(), Kind::Invalid, "{e}");
        assert!(e.detail().contains(&format!("column {at}:")), "{e}");
    }
    assert!(ioverbs::find(&ws, search("temperature > 3")).is_ok());
}

#[test]
fn controls_that_cannot_be_honoured_are_refused_with_an_offer() {
    let store = Store::new();
    let ws = store.in_workspace();
    let refused = |asked: &str, kind, clause, offer: &str| {
        let made = ioverbs::create(&ws, None, Some("never"), Metadata::new(), controls(asked));
        says(made, kind, Some(clause), &["offer", offer]);
    };
    refused("persistence=replicated", Kind::Refused, Clause::P4, "persistence=");
    refused("atomicity=unit(64MiB)", Kind::Invalid, Clause::M1, "unit(1MiB)");
    says(ioverbs::lookup(&ws, None, "never", Controls::default()), Kind::NotFound, Some(Clause::O3), &[]);
    // A batch that asks for what the collection's consistency forbids.
    let c = create(&ws, "eventual", "consistency=eventual");
    let attr = ioverbs::BatchAttr { on_error: Some(ioverbs::OnError::Rollback), ..Default::default() };
    let status = ioverbs::run_batch(ws.session(), attr, vec![Lent::Write { c: c.clone(), offset: 0, data: b"x" }]);
    let e = status.unwrap().remove(0).error.unwrap();
    assert_eq!((e.kind(), e.clause()), (Kind::Refused, Some(Clause::B3)), "{e}");
    assert!(e.detail().contains("offer"), "{e}");
    assert!(read(&c).is_empty());
}

#[test]
fn o1_quotas_of_collections_and_bytes() {
    let store = Store::new();
    let s = store.session();
    let attr = WorkspaceAttr { quota_collections: Some(3), quota_bytes: Some(1 << 20), ..Default::default() };
    let ws = s.create_workspace(Name::new("w").unwrap(), attr).unwrap();
    let c = create(&ws, "a", "");
    create(&ws, "b", "");
    create(&ws, "c", "");
    let more = ioverbs::create(&ws, None, Some("d"), Metadata::new(), Controls::default());
    says(more, Kind::Exhausted, Some(Clause::O1), &["quota", "3"]);
    // In one batch as many as fit, and no more.
    let which = Which::parse("c").unwrap();
    ioverbs::run(&s, Op::Delete { w: ws.clone(), parent: None, which }).unwrap();
    let made = |name: &str| Op::Create {
        out: ws.pending(ioverbs::EntryKind::Collection),
        parent: None,
        name: Some(Name::new(name).unwrap()),
        metadata: Metadata::new(),
        controls: Controls::default(),
    };
    let status = ioverbs::run_batch(&s, Default::default(), vec![made("d").into(), made("e").into()]).unwrap();
    assert_eq!([status[0].state, status[1].state], [OpState::Ok, OpState::Failed]);
    says(status[1].result(), Kind::Exhausted, Some(Clause::O1), &["quota"]);

    // Bytes count when they are published; what is there stays, and room makes room.
    ioverbs::write_at(&c, 0, &vec![1; 2 << 20]).unwrap();
    says(ioverbs::commit(&c), Kind::Exhausted, Some(Clause::O1), &["quota", "bytes"]);
    assert_eq!(read(&c).len(), 2 << 20);
    let which = Which::parse("b").unwrap();
    ioverbs::run(&s, Op::Delete { w: ws.clone(), parent: None, which }).unwrap();
    let more = ioverbs::create(&ws, None, Some("f"), Metadata::new(), Controls::default());
    says(more, Kind::Exhausted, Some(Clause::O1), &["quota", "bytes"]);
    ioverbs::run(&s, Op::Truncate { c: c.clone(), size: 10 }).unwrap();
    ioverbs::commit(&c).unwrap();
    create(&ws, "f", "");
    assert_eq!(read(&c), [1; 10]);
}

#[test]
fn h1_a_collection_does_not_grow_beyond_its_limit() {
    let store = Store::new();
    let ws = store.in_workspace();
    for (name, limit) in [("small", "collection_size=1..100"), ("large", "collection_size=1..1MiB")] {
        let c = create(&ws, name, limit);
        let most = if name == "small" { 100 } else { 1 << 20 };
        ioverbs::write_at(&c, 0, &vec![1; most]).unwrap();
        says(ioverbs::write_at(&c, 1, &vec![2; most]), Kind::FileTooBig, Some(Clause::H1), &["collection_size.max"]);
        says(ioverbs::append(&c, b"x"), Kind::FileTooBig, Some(Clause::H1), &[]);
        assert_eq!(read(&c), vec![1; most]);
    }
}

#[test]
fn urls_that_name_no_store() {
    let tell = |url: &str| open(Some(url), SessionAttr::default()).err().unwrap();
    for url in ["", "file", "file:", "nfs:/a", "/a/b"] {
        let e = tell(url);
        assert!(matches!(e.kind(), Kind::Invalid | Kind::Unsupported), "{url:?}: {e}");
    }
    let scratch = tempfile::tempdir().unwrap();
    let plain = scratch.path().join("plain");
    std::fs::write(&plain, b"a file").unwrap();
    let e = tell(&format!("file:{}", plain.display()));
    assert_eq!(e.kind(), Kind::Invalid, "{e}");
    assert!(e.detail().contains("not a directory"), "{e}");
    let e = tell(&format!("file:{}/below", plain.display()));
    assert!(e.detail().contains("below"), "{e}");
    assert_eq!(std::fs::read(&plain).unwrap(), b"a file");
}

#[test]
fn a_session_that_may_start_no_daemon_says_so() {
    let store = Store::new();
    std::fs::create_dir(store.dir()).unwrap();
    let attr = SessionAttr { nostart: true, ..SessionAttr::default() };
    let e = open(Some(&store.url()), attr).err().unwrap();
    assert_eq!(e.kind(), Kind::Unavailable, "{e}");
    assert!(e.detail().contains("NOSTART"), "{e}");
    let attr = SessionAttr { readonly: true, ..SessionAttr::default() };
    let ws = store.in_workspace();
    create(&ws, "a", "");
    let s = open(Some(&store.url()), attr).unwrap();
    let ws = s.load_workspace(Which::parse("w").unwrap()).unwrap();
    let c = lookup(&ws, "a");
    assert_eq!(ioverbs::write_at(&c, 0, b"x").unwrap_err().kind(), Kind::Denied);
}

#[test]
fn o9_a_copy_from_another_store_is_refused() {
    let (here, there) = (Store::new(), Store::new());
    let (source, same) = (create(&there.in_workspace(), "a", ""), create(&here.in_workspace(), "a", ""));
    for c in [&source, &same] {
        ioverbs::write_at(c, 0, &[7; 20_000]).unwrap();
    }
    let target = create(&here.again(), "b", "");
    let copy = |src: &ioverbs::Collection| {
        let (src, dst) = (src.clone(), target.clone());
        ioverbs::run(target.session(), Op::Copy { src, src_offset: 0, dst, dst_offset: 0, len: 20_000 })
    };
    assert_eq!(copy(&source).unwrap_err().kind(), Kind::Unsupported);
    // Another session of the same store is fine.
    assert_eq!(copy(&same).unwrap().bytes, 20_000);
    assert_eq!(read(&target), [7; 20_000]);
}
