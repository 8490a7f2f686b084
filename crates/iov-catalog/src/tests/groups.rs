//! Groups (O3).

use iov_types::{
    Clause, Controls, EntryKind, Kind, Layout, Uuid, WorkspaceAttr,
    catalog::{CatalogOp, CatalogReply, RenameMode, Submission},
    limits,
};

use super::rig::{Client, Rig, exclusive, kind, name};

const ROOT: Uuid = Uuid::NIL;

fn move_to(client: &Client, from: (Uuid, &str), to: (Uuid, &str), mode: RenameMode) -> iov_types::Result<CatalogReply> {
    client.ask(CatalogOp::Rename {
        ws: client.ws,
        from_parent: from.0,
        from: name(from.1),
        to_parent: to.0,
        to: name(to.1),
        mode,
    })
}

#[test]
fn o3_a_group_moves_as_one_record_with_all_it_holds() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (a, b) = (client.group(ROOT, "a"), client.group(ROOT, "b"));
    let inner = client.group(a, "inner");
    for i in 0..20 {
        client.create_in(inner, &format!("m{i}"));
    }
    let before = rig.service.stats();
    move_to(&client, (a, "inner"), (b, "moved"), RenameMode::Replace).unwrap();
    let written = rig.service.stats().keys_written - before.keys_written;
    assert_eq!(written, 3, "two names and the group's record");
    let moved = client.lookup(b, "moved").unwrap();
    assert_eq!(moved, inner);
    client.lookup(moved, "m7").unwrap();
}

#[test]
fn o3_a_move_that_makes_a_cycle_fails() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let a = client.group(ROOT, "a");
    let b = client.group(a, "b");
    let c = client.group(b, "c");
    for (from, to, mode) in [
        ((ROOT, "a"), (c, "x"), RenameMode::Replace),
        ((ROOT, "a"), (a, "x"), RenameMode::Replace),
        ((ROOT, "a"), (b, "c"), RenameMode::Exchange),
        ((b, "c"), (ROOT, "a"), RenameMode::Exchange),
    ] {
        let refused = move_to(&client, from, to, mode).unwrap_err();
        assert_eq!((refused.kind(), refused.clause()), (Kind::Invalid, Some(Clause::O3)), "{from:?} to {to:?}");
    }
    assert_eq!(client.lookup(b, "c").unwrap(), c);
}

#[test]
fn o3_only_an_empty_group_is_deleted_or_replaced() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (a, b) = (client.group(ROOT, "a"), client.group(ROOT, "b"));
    let member = client.create_in(a, "m");
    assert_eq!(kind(client.delete(ROOT, "a")), Kind::NotEmpty);
    assert_eq!(kind(client.delete_uuid(a)), Kind::NotEmpty);
    assert_eq!(kind(move_to(&client, (ROOT, "b"), (ROOT, "a"), RenameMode::Replace)), Kind::NotEmpty);
    client.delete(a, "m").unwrap();
    assert_eq!(kind(client.stat(member)), Kind::NotFound);
    move_to(&client, (ROOT, "b"), (ROOT, "a"), RenameMode::Replace).unwrap();
    assert_eq!(client.lookup(ROOT, "a").unwrap(), b);
    client.delete(ROOT, "a").unwrap();
    assert_eq!(client.stat(ROOT).unwrap().entries, 0);
}

#[test]
fn o3_nothing_is_put_into_what_is_no_group() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let file = client.create_in(ROOT, "f");
    let gone = client.group(ROOT, "g");
    client.delete_uuid(gone).unwrap();
    assert_eq!(kind(client.ask(client.create_op(file, "x").1)), Kind::Invalid);
    assert_eq!(kind(client.ask(client.create_op(gone, "x").1)), Kind::NotFound);
    assert_eq!(kind(client.ask(client.create_op(Uuid([9; 16]), "x").1)), Kind::NotFound);
    assert_eq!(kind(move_to(&client, (ROOT, "f"), (gone, "f"), RenameMode::Replace)), Kind::NotFound);
}

#[test]
fn o1_a_group_of_another_workspace_is_no_parent_here() {
    let rig = Rig::new();
    let (here, there) = (rig.in_workspace(), rig.in_workspace());
    let group = there.group(ROOT, "g");
    // Also right after it was one there.
    let ops = vec![there.create_op(group, "a").1, here.create_op(group, "b").1, here.create_op(there.ws, "c").1];
    let replies = here.submit(ops, Submission::Each).unwrap();
    assert!(replies[0].is_ok());
    for reply in &replies[1..] {
        assert_eq!(kind(reply.clone()), Kind::NotFound);
    }
}

#[test]
fn o10_a_deleted_group_that_is_open_takes_no_members() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (group, op) = client.create_with(EntryKind::Group, ROOT, "g", Controls::default());
    client.ask(op).unwrap();
    client.delete(ROOT, "g").unwrap();
    assert_eq!(kind(client.ask(client.create_op(group, "x").1)), Kind::NotFound);
    client.close(group).unwrap();
    assert!(rig.keys(b'R').is_empty() && rig.keys(b'D').is_empty());
}

#[test]
fn o3_members_are_counted_and_stay_right() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let members = |uuid| client.stat(uuid).unwrap().entries;
    assert_eq!((members(group), members(ROOT)), (0, 1));
    for i in 0..5 {
        client.create_in(group, &format!("m{i}"));
    }
    assert_eq!(members(group), 5);
    client.delete(group, "m0").unwrap();
    move_to(&client, (group, "m1"), (ROOT, "m1"), RenameMode::Replace).unwrap();
    move_to(&client, (group, "m2"), (group, "m3"), RenameMode::Replace).unwrap();
    move_to(&client, (group, "m3"), (group, "m4"), RenameMode::Exchange).unwrap();
    assert_eq!((members(group), members(ROOT)), (2, 2));
    // What was taken back is not counted.
    let (_, op) = client.create_op(group, "m9");
    let refused = client.all(vec![op, client.delete_op(group, "none")], iov_store::seam::new_uuid(), &[]).unwrap();
    assert!(refused[1].is_err());
    assert_eq!(members(group), 2);
}

#[test]
fn o3_a_collection_gets_the_layout_of_its_group_else_of_the_workspace() {
    let rig = Rig::new();
    let chunk = |n| Layout { chunk_size: n, ..Layout::default() };
    let client = rig.in_workspace_with(WorkspaceAttr { layout: Some(chunk(1 << 16)), ..WorkspaceAttr::default() });
    let opened = |uuid| {
        let opened = client.open(uuid).unwrap();
        client.close(uuid).unwrap();
        opened.layout.chunk_size
    };
    let (group, op) = client.create_with(EntryKind::Group, ROOT, "g", exclusive());
    client.ask(op).unwrap();
    client.ask(CatalogOp::Set { ws: client.ws, uuid: group, controls: None, layout: Some(chunk(1 << 20)) }).unwrap();
    let (inner, op) = client.create_with(EntryKind::Group, group, "inner", Controls::default());
    client.ask(op).unwrap();
    let (a, b, c) = (client.create_in(ROOT, "a"), client.create_in(group, "b"), client.create_in(inner, "c"));
    assert_eq!((opened(a), opened(b), opened(c)), (1 << 16, 1 << 20, 1 << 20));
}

#[test]
fn o3_groups_nest_to_the_limit_and_no_further() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let mut parent = ROOT;
    for _ in 0..limits::GROUP_DEPTH {
        parent = client.group(parent, "g");
    }
    let (_, op) = client.create_with(EntryKind::Group, parent, "g", Controls::default());
    let refused = client.ask(op).unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::TooBig, Some(Clause::O3)));
    client.create_in(parent, "f");
}
