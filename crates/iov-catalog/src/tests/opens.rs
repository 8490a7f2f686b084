//! Open handles: what outlives a delete, and what a session leaves behind (O10).

use iov_types::{
    Attr, Clause, Consistency, Controls, EntryKind, Kind, Uuid, Which, WorkspaceAttr,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use super::rig::{Client, Rig, immutable, kind, name};

const ROOT: Uuid = Uuid::NIL;

#[test]
fn o10_a_deleted_collection_lives_on_for_those_who_have_it_open() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    client.bytes(uuid).write(0, b"data").unwrap();
    let other = client.other();
    other.delete(ROOT, "a").unwrap();
    assert_eq!(kind(other.lookup(ROOT, "a")), Kind::NotFound);
    assert_eq!(kind(other.stat(uuid)), Kind::NotFound);
    assert_eq!(kind(other.open(uuid)), Kind::NotFound);
    assert!(other.find("iov.size >= 0").is_empty());
    assert_eq!(client.stat(uuid).unwrap().bytes, 4, "its own handle goes on");
    assert_eq!(client.bytes(uuid).read().unwrap(), b"data");
    assert!(client.bytes(uuid).exists());
    client.create_in(ROOT, "a");
    client.close_written(uuid).unwrap();
    assert_eq!(kind(client.stat(uuid)), Kind::NotFound);
    assert!(!client.bytes(uuid).exists(), "the bytes go with the last handle");
}

#[test]
fn o10_who_acts_for_the_same_holder_opens_what_was_deleted() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    client.bytes(uuid).write(0, b"data").unwrap();
    client.delete_uuid(uuid).unwrap();
    let (rank, stranger) = (client.other(), client.other());
    let CatalogReply::Token(token) = client.ask(CatalogOp::TokenExport).unwrap() else { panic!() };
    assert_eq!(kind(rank.open(uuid)), Kind::NotFound);
    rank.ask(CatalogOp::TokenJoin { token }).unwrap();
    assert_eq!(rank.stat(uuid).unwrap().bytes, 4);
    rank.open(uuid).unwrap();
    client.close_written(uuid).unwrap();
    assert_eq!(rank.bytes(uuid).read().unwrap(), b"data", "a handle of its own");
    assert_eq!(kind(stranger.open(uuid)), Kind::NotFound);
    rank.close(uuid).unwrap();
    assert_eq!(kind(rank.open(uuid)), Kind::NotFound, "nobody has it any more");
    assert!(!rank.bytes(uuid).exists());
}

#[test]
fn o10_what_was_opened_before_joining_is_the_holders_too() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (rank, next) = (client.other(), client.other());
    let token = |of: &Client| match of.ask(CatalogOp::TokenExport).unwrap() {
        CatalogReply::Token(token) => token,
        other => panic!("{other:?}"),
    };
    let of_client = token(&client);
    let uuid = rank.create("a");
    rank.delete_uuid(uuid).unwrap();
    rank.ask(CatalogOp::TokenJoin { token: of_client }).unwrap();
    assert_eq!(kind(next.open(uuid)), Kind::NotFound);
    let of_rank = token(&rank);
    next.ask(CatalogOp::TokenJoin { token: of_rank }).unwrap();
    next.open(uuid).unwrap();
}

#[test]
fn o10_each_handle_counts_and_each_session_has_its_own() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    client.open(uuid).unwrap();
    let other = client.other();
    other.open(uuid).unwrap();
    client.delete_uuid(uuid).unwrap();
    client.close(uuid).unwrap();
    client.close(uuid).unwrap();
    assert_eq!(kind(client.close(uuid)), Kind::Stale);
    assert_eq!(kind(client.stat(uuid)), Kind::NotFound, "closed here, open there");
    other.stat(uuid).unwrap();
    other.close(uuid).unwrap();
    assert!(rig.keys(b'R').is_empty());
}

#[test]
fn o10_the_end_of_a_session_closes_what_it_had_open() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    for how in 0..2 {
        let (uuid, kept) = (client.create("a"), client.create("b"));
        client.bytes(uuid).write(0, b"gone").unwrap();
        client.bytes(kept).write(0, b"kept!").unwrap();
        client.delete_uuid(uuid).unwrap();
        match how {
            0 => rig.service.end_session(client.caller.session),
            _ => drop(client.ask(CatalogOp::Goodbye).unwrap()),
        }
        assert!(!client.bytes(uuid).exists());
        assert_eq!(client.other().stat(kept).unwrap().bytes, 5, "what it wrote is recorded");
        assert_eq!(client.find("iov.size = 5"), [kept]);
        assert_eq!(kind(client.close(kept)), Kind::Stale);
        client.delete_uuid(kept).unwrap();
    }
    assert!(rig.service.core.shared().opens.iter().next().is_none());
}

#[test]
fn o10_open_says_who_may_write_and_what_kind_it_is() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, group) = (client.create_in(ROOT, "a"), client.group(ROOT, "g"));
    assert!(client.open(uuid).unwrap().writable);
    let weak = Controls { consistency: Some(Consistency::Session), ..Controls::default() };
    let reader = client.open_with(Which::Uuid(uuid), EntryKind::Collection, weak).unwrap();
    assert!(!reader.writable, "a weaker level is for reading only");
    assert_eq!(kind(client.open(group)), Kind::Invalid);
    assert_eq!(kind(client.open_with(Which::Name(name("a")), EntryKind::Group, Controls::default())), Kind::Invalid);
    let root = client.open_with(Which::Uuid(ROOT), EntryKind::Group, Controls::default()).unwrap();
    assert_eq!((root.uuid, root.kind), (ROOT, EntryKind::Group));
    client.close(ROOT).unwrap();
    let stronger = client.open_with(Which::Uuid(uuid), EntryKind::Collection, immutable()).unwrap_err();
    assert_eq!((stronger.kind(), stronger.clause()), (Kind::Refused, Some(Clause::M2)));
}

#[test]
fn o10_a_close_in_the_same_submission_as_its_create_leaves_nothing_open() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, create) = client.create_op(ROOT, "a");
    let close = CatalogOp::Close { ws: client.ws, uuid, published: None };
    let before = rig.service.stats().commits;
    for reply in client.submit(vec![create, close, client.delete_op(ROOT, "a")], Submission::Each).unwrap() {
        reply.unwrap();
    }
    assert_eq!(rig.service.stats().commits, before + 1);
    assert!(rig.keys(b'R').is_empty());
    assert!(rig.service.core.shared().opens.iter().next().is_none());
}

#[test]
fn a1_what_is_born_for_another_needs_an_administrator() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let create = |attr: Attr| {
        let (uuid, op) = client.create_op(ROOT, "");
        let CatalogOp::Create { ws, uuid: _, kind, parent, name, metadata, controls, layout, .. } = op else {
            panic!()
        };
        (uuid, CatalogOp::Create { ws, uuid, kind, parent, name, metadata, controls, layout, attr, tell: false })
    };
    let (uuid, op) = create(Attr { mode: Some(0o600), uid: Some(7), mtime_ns: Some(5), ..Attr::default() });
    client.ask(op).unwrap();
    let stat = client.stat(uuid).unwrap();
    assert_eq!((stat.mode, stat.uid, stat.mtime_ns), (0o600, 7, 5));
}

#[test]
fn c1_a_create_tells_what_looks_behind_it_would() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(Uuid::NIL, "g");
    let make = |client: &Client, kind, parent, text: &str| {
        let (uuid, mut op) = client.create_with(kind, parent, text, Controls::default());
        let CatalogOp::Create { tell, .. } = &mut op else { unreachable!() };
        *tell = true;
        (uuid, op)
    };
    let stat = |uuid| client.stat(uuid).unwrap();
    for parent in [Uuid::NIL, group] {
        for kind in [EntryKind::Collection, EntryKind::Group] {
            rig.later(1_000);
            let (uuid, op) = make(&client, kind, parent, &format!("{kind:?}"));
            let Ok(CatalogReply::Opened(opened)) = client.ask(op) else { panic!("{kind:?} in {parent}") };
            let told = opened.told.unwrap();
            assert_eq!((told.stat, told.bytes), (stat(uuid), None), "{kind:?} in {parent}");
            assert_eq!(told.group, Some(stat(parent)));
            if kind == EntryKind::Group {
                client.create_in(uuid, "member");
                assert_eq!(stat(uuid).entries, 1);
            }
        }
    }
    // What has no name is in no group yet.
    let (_, op) = make(&client, EntryKind::Collection, group, "");
    let Ok(CatalogReply::Opened(opened)) = client.ask(op) else { panic!() };
    assert_eq!(opened.told.unwrap().group, None);
    // A name that is taken: what it stands for, also for who may not make anything.
    let there = client.lookup(group, "Collection").unwrap();
    let (new, op) = make(&client, EntryKind::Collection, group, "Collection");
    assert_eq!(client.ask(op.clone()), Ok(CatalogReply::Stat(Box::new(stat(there)))));
    assert_eq!(kind(client.stat(new)), Kind::NotFound, "nothing was made");
    let together = client.all(vec![op.clone()], iov_store::seam::new_uuid(), &[]);
    assert_eq!(kind(together.and_then(|mut replies| replies.remove(0))), Kind::Exists, "together or not at all");
    let full = WorkspaceAttr { quota_collections: Some(1), ..WorkspaceAttr::default() };
    client.ask(CatalogOp::WorkspaceSet { ws: client.ws, attr: full }).unwrap();
    assert_eq!(client.ask(op.clone()), Ok(CatalogReply::Stat(Box::new(stat(there)))));
    assert_eq!(kind(client.ask(make(&client, EntryKind::Collection, group, "new").1)), Kind::Exhausted);
    assert_eq!(kind(client.as_user(4711).ask(op.clone())), Kind::Denied, "who sees nothing hears nothing");
}
