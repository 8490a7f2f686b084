//! Who may do what (A1).

use iov_types::{
    AccessEntry, AccessList, Attr, Clause, EntryKind, Kind, Right, Subject, Uuid, Value, Which, WorkspaceAttr,
    catalog::{CatalogOp, RenameMode},
};

use super::rig::{Rig, UID, kind, name, spec};

const ROOT: Uuid = Uuid::NIL;

pub(super) fn for_everybody(right: Right) -> WorkspaceAttr {
    let access = AccessList { entries: vec![AccessEntry { subject: Subject::Any, right }] };
    WorkspaceAttr { access: Some(access), ..WorkspaceAttr::default() }
}

#[test]
fn a1_each_operation_needs_its_right() {
    let rig = Rig::new();
    let owner = rig.in_workspace();
    let ws = owner.ws;
    let uuid = owner.create_in(ROOT, "a");
    let which = || Which::Name(name("a"));
    let reads = vec![
        CatalogOp::WorkspaceLoad { which: Which::Uuid(ws) },
        CatalogOp::WorkspaceStat { ws },
        CatalogOp::Stat { ws, uuid },
        CatalogOp::MetaList { ws, uuid },
        CatalogOp::Search { ws, spec: spec(None) },
        CatalogOp::Open {
            ws,
            parent: ROOT,
            which: which(),
            kind: EntryKind::Collection,
            controls: Default::default(),
            tell: None,
        },
    ];
    let writes = vec![
        owner.create_op(ROOT, "b").1,
        owner.put_op(uuid, "k", Value::I64(1)),
        CatalogOp::MetaRemove { ws, uuid, key: "k".into() },
        CatalogOp::Link { ws, uuid, parent: ROOT, name: name("l") },
        CatalogOp::Rename {
            ws,
            from_parent: ROOT,
            from: name("l"),
            to_parent: ROOT,
            to: name("m"),
            mode: RenameMode::Replace,
        },
        owner.publish_op(uuid),
        CatalogOp::Seal { ws, uuid, published: Default::default() },
        CatalogOp::Unlink { ws, parent: ROOT, name: name("m"), group: false },
        CatalogOp::Delete { ws, parent: ROOT, which: which() },
    ];
    let admin = vec![
        CatalogOp::SetAttr { ws, uuid, attr: Attr { mode: Some(0), ..Attr::default() } },
        CatalogOp::WorkspaceSet { ws, attr: WorkspaceAttr::default() },
        CatalogOp::WorkspaceRename { ws, name: name("renamed") },
        CatalogOp::WorkspaceDelete { which: Which::Uuid(ws) },
    ];
    for (level, right) in [None, Some(Right::Read), Some(Right::Write)].into_iter().enumerate() {
        let entries = right.map(|right| AccessEntry { subject: Subject::User(UID + 1), right }).into_iter().collect();
        let attr = WorkspaceAttr { access: Some(AccessList { entries }), ..WorkspaceAttr::default() };
        owner.ask(CatalogOp::WorkspaceSet { ws, attr }).unwrap();
        let user = owner.as_user(UID + 1);
        // The last of the writes deletes it, so that the others come first.
        for (needs, ops) in [(0, &reads), (2, &admin), (1, &writes)] {
            for op in ops {
                let result = user.ask(op.clone());
                let denied =
                    result.as_ref().err().is_some_and(|e| e.kind() == Kind::Denied && e.clause() == Some(Clause::A1));
                assert_eq!(denied, needs >= level, "{right:?}: {op:?}: {result:?}");
            }
        }
    }
}

#[test]
fn a1_only_the_owner_of_a_collection_or_an_administrator_sets_its_attributes() {
    let rig = Rig::new();
    let admin = rig.in_workspace_with(for_everybody(Right::Write));
    let (user, other) = (admin.as_user(UID + 1), admin.as_user(UID + 2));
    let uuid = user.create_in(ROOT, "a");
    let set = |client: &super::rig::Client, attr: Attr| client.ask(CatalogOp::SetAttr { ws: client.ws, uuid, attr });
    let mode = Attr { mode: Some(0o600), ..Attr::default() };
    assert_eq!(kind(set(&other, mode.clone())), Kind::Denied);
    set(&user, mode.clone()).unwrap();
    let give = Attr { uid: Some(UID + 2), ..Attr::default() };
    assert_eq!(kind(set(&user, give.clone())), Kind::Denied);
    set(&admin, give).unwrap();
    set(&other, mode).unwrap();
    assert_eq!(admin.stat(uuid).unwrap().uid, UID + 2);
    let born = Attr { uid: Some(UID), ..Attr::default() };
    let (_, op) = user.create_op(ROOT, "b");
    let CatalogOp::Create { ws, uuid, kind: k, parent, name, metadata, controls, layout, .. } = op else { panic!() };
    let op = CatalogOp::Create { ws, uuid, kind: k, parent, name, metadata, controls, layout, attr: born, tell: false };
    assert_eq!(kind(user.ask(op)), Kind::Denied);
}

#[test]
fn a1_a_search_for_workspaces_shows_only_what_the_caller_may_see() {
    let rig = Rig::new();
    let (hidden, shown) = (rig.in_workspace(), rig.in_workspace_with(for_everybody(Right::Read)));
    let search = CatalogOp::WorkspaceSearch { spec: spec(None) };
    let seen = |client: &super::rig::Client| {
        let mut all: Vec<Uuid> = client.page(search.clone()).entries.iter().map(|e| e.uuid).collect();
        all.sort_unstable();
        all
    };
    let mut both = vec![hidden.ws, shown.ws];
    both.sort_unstable();
    assert_eq!(seen(&hidden), both);
    assert_eq!(seen(&hidden.as_user(UID + 1)), [shown.ws]);
    assert_eq!(kind(hidden.as_user(0).ask(CatalogOp::WorkspaceLoad { which: Which::Uuid(hidden.ws) })), Kind::Denied);
}
