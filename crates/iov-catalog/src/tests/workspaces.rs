//! Workspaces (O1, O11).

use iov_types::{
    AccessEntry, AccessList, Clause, Controls, EntryKind, Kind, Metadata, Persistence, Right, Subject, Uuid, Value,
    Which, WorkspaceAttr,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use super::rig::{Client, Rig, SECOND, kind, name, options};

fn make(client: &Client, text: &str, attr: WorkspaceAttr) -> iov_types::Result<Uuid> {
    let uuid = iov_store::seam::new_uuid();
    match client.ask(CatalogOp::WorkspaceCreate { uuid, name: name(text), attr })? {
        CatalogReply::Workspace(opened) => Ok(opened.uuid),
        other => panic!("answered by {other:?}"),
    }
}

fn load(client: &Client, which: Which) -> iov_types::Result<Uuid> {
    match client.ask(CatalogOp::WorkspaceLoad { which })? {
        CatalogReply::Workspace(opened) => Ok(opened.uuid),
        other => panic!("answered by {other:?}"),
    }
}

#[test]
fn o1_workspaces_have_unique_names_and_are_found_by_name_and_uuid() {
    let rig = Rig::new();
    let client = rig.client();
    let ws = make(&client, "a", WorkspaceAttr::default()).unwrap();
    assert_eq!(load(&client, Which::Name(name("a"))).unwrap(), ws);
    assert_eq!(load(&client, Which::Uuid(ws)).unwrap(), ws);
    assert_eq!(kind(make(&client, "a", WorkspaceAttr::default())), Kind::Exists);
    assert_eq!(kind(load(&client, Which::Name(name("b")))), Kind::NotFound);
    let twice = CatalogOp::WorkspaceCreate { uuid: ws, name: name("c"), attr: WorkspaceAttr::default() };
    assert_eq!(kind(client.ask(twice)), Kind::Exists);
}

#[test]
fn o1_a_rename_frees_the_old_name_also_within_a_batch_and_after_a_restart() {
    let rig = Rig::new();
    let client = rig.client();
    let ws = make(&client, "a", WorkspaceAttr::default()).unwrap();
    let other = make(&client, "b", WorkspaceAttr::default()).unwrap();
    assert_eq!(kind(client.ask(CatalogOp::WorkspaceRename { ws, name: name("b") })), Kind::Exists);
    let swap = vec![
        CatalogOp::WorkspaceRename { ws, name: name("c") },
        CatalogOp::WorkspaceRename { ws: other, name: name("a") },
        CatalogOp::WorkspaceLoad { which: Which::Name(name("a")) },
        CatalogOp::WorkspaceLoad { which: Which::Name(name("b")) },
    ];
    let replies = client.submit(swap, Submission::Each).unwrap();
    assert!(matches!(&replies[2], Ok(CatalogReply::Workspace(w)) if w.uuid == other));
    assert_eq!(kind(replies[3].clone()), Kind::NotFound);
    drop(client);
    let rig = rig.crash();
    let client = rig.client();
    assert_eq!(load(&client, Which::Name(name("a"))).unwrap(), other);
    assert_eq!(load(&client, Which::Name(name("c"))).unwrap(), ws);
    assert_eq!(kind(load(&client, Which::Name(name("b")))), Kind::NotFound);
}

#[test]
fn o11_only_an_empty_workspace_is_deleted() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let which = Which::Uuid(client.ws);
    let group = client.group(Uuid::NIL, "g");
    let delete = || client.ask(CatalogOp::WorkspaceDelete { which: which.clone() });
    assert_eq!(kind(delete()), Kind::NotEmpty);
    client.delete_uuid(group).unwrap();
    let file = client.create("f");
    client.delete_uuid(file).unwrap();
    assert_eq!(kind(delete()), Kind::Busy, "a deleted collection is still open");
    client.close(file).unwrap();
    delete().unwrap();
    assert_eq!(kind(delete()), Kind::NotFound);
    for tag in [b'W', b'w', b'U', b'R', b'N'] {
        assert!(rig.keys(tag).is_empty(), "nothing under {:?} is left", tag as char);
    }
}

#[test]
fn o1_a_quota_of_collections_is_exact() {
    let rig = Rig::new();
    let client = rig.in_workspace_with(WorkspaceAttr { quota_collections: Some(3), ..WorkspaceAttr::default() });
    let ops = (0..5).map(|i| client.create_op(Uuid::NIL, &format!("c{i}")).1).collect();
    let replies = client.submit(ops, Submission::Each).unwrap();
    assert_eq!(replies.iter().map(|r| r.is_ok()).collect::<Vec<_>>(), [true, true, true, false, false]);
    let refused = replies[3].clone().unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::Exhausted, Some(Clause::O1)));
    assert_eq!(client.stat_workspace().entries, 3);
    client.delete(Uuid::NIL, "c0").unwrap();
    client.create("c5");
    assert_eq!(client.stat_workspace().entries, 3);
}

#[test]
fn o1_bytes_beyond_the_quota_are_recorded_and_stop_further_creates() {
    let rig = Rig::new();
    let client = rig.in_workspace_with(WorkspaceAttr { quota_bytes: Some(10), ..WorkspaceAttr::default() });
    let uuid = client.create("a");
    client.bytes(uuid).write(0, &[1; 11]).unwrap();
    let refused = client.close_written(uuid).unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::Exhausted, Some(Clause::O1)));
    assert_eq!(refused.outcome(), iov_types::Outcome::Applied);
    assert_eq!(client.stat(uuid).unwrap().bytes, 11, "the facts are recorded all the same");
    assert_eq!(client.stat_workspace().bytes, 11);
    assert_eq!(kind(client.close(uuid)), Kind::Stale, "and the handle has ended");
    assert_eq!(kind(client.ask(client.create_op(Uuid::NIL, "b").1)), Kind::Exhausted);
    client.delete(Uuid::NIL, "a").unwrap();
    assert_eq!(client.stat_workspace().bytes, 0);
    client.create("b");
}

#[test]
fn o1_an_expired_workspace_can_be_read_and_emptied_but_not_written() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create_in(Uuid::NIL, "a");
    client.ask(client.put_op(uuid, "k", Value::I64(1))).unwrap();
    let expires = Some(iov_store::seam::now_ns() + 5 * SECOND);
    let attr = WorkspaceAttr { expires_ns: expires, ..WorkspaceAttr::default() };
    client.ask(CatalogOp::WorkspaceSet { ws: client.ws, attr }).unwrap();
    assert!(client.open(uuid).unwrap().writable);
    client.close(uuid).unwrap();
    rig.later(6 * SECOND);
    let refused = client.ask(client.create_op(Uuid::NIL, "b").1).unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::Denied, Some(Clause::O1)));
    assert_eq!(kind(client.ask(client.put_op(uuid, "k", Value::I64(2)))), Kind::Denied);
    assert!(!client.open(uuid).unwrap().writable);
    assert_eq!(client.get(uuid, "k").unwrap(), Value::I64(1));
    client.close(uuid).unwrap();
    client.delete(Uuid::NIL, "a").unwrap();
    let attr = WorkspaceAttr { expires_ns: Some(i64::MAX), ..WorkspaceAttr::default() };
    client.ask(CatalogOp::WorkspaceSet { ws: client.ws, attr }).unwrap();
    client.create("b");
}

#[test]
fn o1_a_set_changes_what_is_given_and_leaves_the_rest() {
    let rig = Rig::new();
    let mut metadata = Metadata::new();
    metadata.set("project", Value::Str("x".into())).unwrap();
    let client = rig.in_workspace_with(WorkspaceAttr { metadata, quota_bytes: Some(5), ..WorkspaceAttr::default() });
    let mut more = Metadata::new();
    more.set("year", Value::I64(2026)).unwrap();
    let attr = WorkspaceAttr { metadata: more, quota_collections: Some(7), ..WorkspaceAttr::default() };
    client.ask(CatalogOp::WorkspaceSet { ws: client.ws, attr }).unwrap();
    let stat = client.stat_workspace();
    assert_eq!((stat.quota_bytes, stat.quota_collections), (5, 7));
    assert_eq!(
        client.get(Uuid::NIL, "project").unwrap(),
        Value::Str("x".into()),
        "the root has the workspace's metadata"
    );
    assert_eq!(client.get(Uuid::NIL, "year").unwrap(), Value::I64(2026));
}

#[test]
fn o1_defaults_that_cannot_be_had_are_refused() {
    let rig = Rig::new();
    let controls = Controls { persistence: Some(Persistence::Replicated), ..Controls::default() };
    let attr = WorkspaceAttr { controls: Some(controls), ..WorkspaceAttr::default() };
    let refused = make(&rig.client(), "a", attr).unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::Refused, Some(Clause::P4)));
    assert!(rig.keys(b'W').is_empty());
}

#[test]
fn a2_a_store_of_one_user_denies_others_and_refuses_lists_for_them() {
    let rig = Rig::over(
        std::sync::Arc::new(iov_store::MemoryStore::new()),
        std::sync::Arc::new(super::rig::durable_heap()),
        crate::Options { single_user: true, ..options() },
    )
    .unwrap();
    let access = AccessList { entries: vec![AccessEntry { subject: Subject::Any, right: Right::Read }] };
    let refused =
        make(&rig.client(), "a", WorkspaceAttr { access: Some(access), ..WorkspaceAttr::default() }).unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::Refused, Some(Clause::A2)));
    make(&rig.client(), "a", WorkspaceAttr::default()).unwrap();
    for uid in [0, super::rig::UID + 1] {
        let denied = rig.client_of(uid).submit(Vec::new(), Submission::Each).unwrap_err();
        assert_eq!((denied.kind(), denied.clause()), (Kind::Denied, Some(Clause::A2)));
    }
}

#[test]
fn x2_a_held_workspace_is_not_deleted_by_others() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    client.open_exclusive(Uuid::NIL, EntryKind::Group).unwrap();
    let delete = CatalogOp::WorkspaceDelete { which: Which::Uuid(client.ws) };
    assert_eq!(kind(client.other().ask(delete.clone())), Kind::Busy);
    client.close(Uuid::NIL).unwrap();
    client.other().ask(delete).unwrap();
}

#[test]
fn o2_an_identity_from_before_is_taken_if_nothing_in_the_store_has_it() {
    let rig = Rig::new();
    let (one, two) = (rig.in_workspace(), rig.in_workspace());
    let uuid = one.create("a");
    let again = |client: &Client| match client.create_op(Uuid::NIL, "again").1 {
        CatalogOp::Create { ws, kind, parent, name, metadata, controls, layout, attr, .. } => client
            .ask(CatalogOp::Create { ws, uuid, kind, parent, name, metadata, controls, layout, attr, tell: false }),
        other => panic!("{other:?}"),
    };
    // One that is new is believed to be: nobody else can have it.
    rig.later(2 * SECOND);
    let e = again(&two).unwrap_err();
    assert_eq!((e.kind(), e.clause()), (Kind::Exists, Some(Clause::O2)), "objects of both would be the same");
    assert_eq!(kind(again(&one)), Kind::Exists);
    one.close(uuid).unwrap();
    one.delete_uuid(uuid).unwrap();
    assert!(again(&two).is_ok());
}
