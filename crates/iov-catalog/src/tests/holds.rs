//! Exclusive holds, tokens, fencing (X1, X2).

use iov_types::{
    Clause, Controls, EntryKind, Kind, Layout, Uuid, Value, Which,
    catalog::{CatalogOp, CatalogReply, Presented, RenameMode},
};

use super::{
    resume,
    rig::{Client, Rig, SECOND, exclusive, kind, name},
};

const ROOT: Uuid = Uuid::NIL;
const COLLECTION: EntryKind = EntryKind::Collection;
const GROUP: EntryKind = EntryKind::Group;

fn create_exclusive(client: &Client, parent: Uuid, text: &str) -> (Uuid, u64) {
    let (uuid, op) = client.create_with(COLLECTION, parent, text, exclusive());
    match client.ask(op).unwrap() {
        CatalogReply::Opened(opened) => (uuid, opened.epoch),
        other => panic!("answered by {other:?}"),
    }
}

#[test]
fn x1_one_holder_others_hear_busy_and_can_still_stat_and_search() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, epoch) = create_exclusive(&client, ROOT, "a");
    assert_ne!(epoch, 0);
    let other = client.other();
    let busy = other.open(uuid).unwrap_err();
    assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(Clause::X1)));
    other.stat(uuid).unwrap();
    assert_eq!(other.find("iov.name = \"a\""), [uuid]);
    for op in [
        other.delete_op(ROOT, "a"),
        other.put_op(uuid, "k", Value::Bool(true)),
        other.publish_op(uuid),
        CatalogOp::Rename {
            ws: other.ws,
            from_parent: ROOT,
            from: name("a"),
            to_parent: ROOT,
            to: name("b"),
            mode: RenameMode::Replace,
        },
        CatalogOp::Link { ws: other.ws, uuid, parent: ROOT, name: name("c") },
    ] {
        assert_eq!(kind(other.ask(op)), Kind::Busy);
    }
    assert_eq!(client.open(uuid).unwrap().epoch, epoch, "the holder itself opens it again");
    client.close(uuid).unwrap();
    assert_eq!(kind(other.open(uuid)), Kind::Busy);
    client.close(uuid).unwrap();
    let next = other.open(uuid).unwrap();
    assert!(next.epoch > epoch, "each new hold has a new epoch");
}

#[test]
fn x1_exclusive_at_open_needs_it_alone() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create_in(ROOT, "a");
    let other = client.other();
    other.open(uuid).unwrap();
    assert_eq!(kind(client.open_exclusive(uuid, COLLECTION)), Kind::Busy);
    other.close(uuid).unwrap();
    let held = client.open_exclusive(uuid, COLLECTION).unwrap();
    assert_ne!(held.epoch, 0);
    assert_eq!(kind(other.open(uuid)), Kind::Busy);
    client.close(uuid).unwrap();
    assert_eq!(other.open(uuid).unwrap().epoch, 0, "the collection itself is shared");
}

#[test]
fn x1_sessions_that_join_by_token_are_one_holder() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, epoch) = create_exclusive(&client, ROOT, "a");
    let CatalogReply::Token(token) = client.ask(CatalogOp::TokenExport).unwrap() else { panic!() };
    let rank = client.other();
    assert_eq!(kind(rank.open(uuid)), Kind::Busy);
    let CatalogReply::Token(holder) = rank.ask(CatalogOp::TokenJoin { token: token.clone() }).unwrap() else {
        panic!()
    };
    assert_eq!(holder, client.caller.session.0);
    assert_eq!(rank.open(uuid).unwrap().epoch, epoch);
    client.close(uuid).unwrap();
    let stranger = client.other();
    assert_eq!(kind(stranger.open(uuid)), Kind::Busy, "the other rank still has it");
    assert_eq!(kind(stranger.ask(CatalogOp::TokenJoin { token: vec![0; 32] })), Kind::Stale);
    rank.close(uuid).unwrap();
    stranger.open(uuid).unwrap();
}

#[test]
fn x1_a_holder_past_its_lease_loses_to_the_next_open_and_is_fenced() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, epoch) = create_exclusive(&client, ROOT, "a");
    client.bytes(uuid).under(epoch).write(0, b"old").unwrap();
    rig.later(29 * SECOND);
    client.ask(CatalogOp::Renew).unwrap();
    rig.later(29 * SECOND);
    let other = client.other();
    assert_eq!(kind(other.open(uuid)), Kind::Busy, "renewed");
    rig.later(2 * SECOND);
    let next = other.open(uuid).unwrap();
    assert!(next.epoch > epoch);
    assert_eq!(kind(client.bytes(uuid).under(epoch).write(0, b"late")), Kind::Fenced, "the target checks");
    other.bytes(uuid).under(next.epoch).write(0, b"new").unwrap();
    for op in [client.publish_op(uuid), client.put_op(uuid, "k", Value::Bool(true)), client.delete_op(ROOT, "a")] {
        let refused = client.ask(op).unwrap_err();
        assert_eq!((refused.kind(), refused.clause()), (Kind::Fenced, Some(Clause::X1)));
    }
    assert_eq!(kind(client.seal(uuid)), Kind::Fenced);
    assert_eq!(kind(client.open(uuid)), Kind::Fenced, "close first, then reopen");
    assert_eq!(kind(client.close_written(uuid)), Kind::Fenced);
    assert_eq!(kind(client.close(uuid)), Kind::Stale, "that ended the handle");
    assert_eq!(other.bytes(uuid).read().unwrap(), b"new");
    other.close_written(uuid).unwrap();
}

#[test]
fn c1_what_a_holder_wrote_before_it_lost_its_hold_is_in_the_facts() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let (alone, epoch) = create_exclusive(&client, ROOT, "a");
    client.bytes(alone).under(epoch).write(0, b"ten bytes!").unwrap();
    client.open_exclusive(group, EntryKind::Group).unwrap();
    let (uuid, op) = client.create_with(COLLECTION, group, "b", Default::default());
    let CatalogReply::Opened(below) = client.ask(op).unwrap() else { panic!() };
    client.bytes(uuid).under(below.epoch).write(0, b"seven b").unwrap();
    rig.later(31 * SECOND);
    let other = client.other();
    // Who only looks changes nothing.
    other.open(alone).unwrap();
    other.close(alone).unwrap();
    other.open_exclusive(group, EntryKind::Group).unwrap();
    other.close(group).unwrap();
    rig.service.end_session(client.caller.session);
    assert_eq!((other.stat(alone).unwrap().bytes, other.stat(uuid).unwrap().bytes), (10, 7));
    assert_eq!(other.stat_workspace().bytes, 17);
}

#[test]
fn x1_a_fenced_handle_that_is_never_closed_keeps_nobody_out() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, _) = create_exclusive(&client, ROOT, "a");
    rig.later(31 * SECOND);
    let (second, third) = (client.other(), client.other());
    second.open(uuid).unwrap();
    second.close(uuid).unwrap();
    third.open_exclusive(uuid, COLLECTION).unwrap();
    third.close(uuid).unwrap();
    rig.service.end_session(client.caller.session);
    assert!(rig.service.core.shared().opens.iter().next().is_none());
}

#[test]
fn x1_a_shared_open_after_a_lost_hold_fences_too() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create_in(ROOT, "a");
    let held = client.open_exclusive(uuid, COLLECTION).unwrap();
    rig.later(31 * SECOND);
    let other = client.other();
    assert_eq!(other.open(uuid).unwrap().epoch, 0);
    assert_eq!(kind(client.bytes(uuid).under(held.epoch).write(0, b"late")), Kind::Fenced);
    other.bytes(uuid).write(0, b"new").unwrap();
}

#[test]
fn x1_late_writers_of_an_object_nobody_had_made_are_fenced() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, epoch) = create_exclusive(&client, ROOT, "a");
    rig.later(31 * SECOND);
    client.other().open(uuid).unwrap();
    assert_eq!(kind(client.bytes(uuid).under(epoch).write(0, b"late")), Kind::Fenced);
}

#[test]
fn x1_a_holder_of_a_crashed_catalog_is_fenced_by_the_next_open() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create_in(ROOT, "a");
    let epoch = client.open_exclusive(uuid, COLLECTION).unwrap().epoch;
    client.bytes(uuid).under(epoch).write(0, b"old").unwrap();
    let late = client.bytes(uuid).under(epoch);
    let ws = client.ws;
    drop(client);
    let rig = rig.crash();
    let next = Client { ws, ..rig.client() };
    next.open(uuid).unwrap();
    assert_eq!(kind(late.write(0, b"late")), Kind::Fenced);
    assert_eq!(next.stat(uuid).unwrap().bytes, 3);
}

#[test]
fn x2_a_held_group_covers_names_creates_and_opens_below_it() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let inner = client.group(group, "inner");
    let file = client.create_in(inner, "f");
    client.open_exclusive(group, GROUP).unwrap();
    let other = client.other();
    for op in [
        other.create_op(inner, "x").1,
        other.create_op(group, "x").1,
        other.delete_op(inner, "f"),
        other.put_op(file, "k", Value::Bool(true)),
        CatalogOp::Open {
            ws: other.ws,
            parent: inner,
            which: Which::Name(name("f")),
            kind: COLLECTION,
            controls: Controls::default(),
            tell: None,
        },
        CatalogOp::Rename {
            ws: other.ws,
            from_parent: inner,
            from: name("f"),
            to_parent: ROOT,
            to: name("f"),
            mode: RenameMode::Replace,
        },
    ] {
        let busy = other.ask(op).unwrap_err();
        assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(Clause::X2)));
    }
    other.stat(file).unwrap();
    other.create_in(ROOT, "outside");
    assert_ne!(client.open(file).unwrap().epoch, 0, "what the holder opens below is its own too");
    client.close(file).unwrap();
    client.create_in(inner, "y");
    client.close(group).unwrap();
    other.create_in(inner, "x");
}

#[test]
fn x2_a_group_is_held_only_when_nobody_else_is_below() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let inner = client.group(group, "inner");
    let file = client.create_in(inner, "f");
    let other = client.other();
    other.open(file).unwrap();
    assert_eq!(kind(client.open_exclusive(group, GROUP)), Kind::Busy);
    assert_eq!(kind(client.open_exclusive(ROOT, GROUP)), Kind::Busy);
    other.close(file).unwrap();
    client.open_exclusive(group, GROUP).unwrap();
    client.close(group).unwrap();
    client.open_exclusive(ROOT, GROUP).unwrap();
    assert_eq!(kind(other.open(file)), Kind::Busy);
    assert_eq!(kind(other.ask(other.create_op(ROOT, "n").1)), Kind::Busy);
}

#[test]
fn x2_a_lost_group_takes_all_that_was_held_below_with_it() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    for top in ["group", "root"] {
        let group = client.group(ROOT, top);
        let held = if top == "root" { ROOT } else { group };
        client.open_exclusive(held, GROUP).unwrap();
        let (file, op) = client.create_op(group, "f");
        let CatalogReply::Opened(opened) = client.ask(op).unwrap() else { panic!() };
        assert_ne!(opened.epoch, 0);
        client.bytes(file).under(opened.epoch).write(0, b"old").unwrap();
        rig.later(31 * SECOND);
        let other = client.other();
        other.open_exclusive(held, GROUP).unwrap();
        assert_eq!(kind(client.bytes(file).under(opened.epoch).write(0, b"late")), Kind::Fenced);
        assert_eq!(kind(client.ask(client.create_op(group, "late").1)), Kind::Fenced);
        other.open(file).unwrap();
        other.close(file).unwrap();
        other.close(held).unwrap();
        assert_eq!(
            kind(client.ask(client.create_op(group, "late").1)),
            Kind::Fenced,
            "nothing from there applies any more"
        );
        assert_eq!(kind(client.close_written(file)), Kind::Fenced);
        assert_eq!(kind(client.close(held)), Kind::Fenced);
        client.create_in(group, "again");
    }
}

#[test]
fn x2_a_workspace_default_of_exclusive_does_not_shut_groups() {
    let rig = Rig::new();
    let attr = iov_types::WorkspaceAttr { controls: Some(exclusive()), ..Default::default() };
    let client = rig.in_workspace_with(attr);
    let (group, op) = client.create_with(GROUP, ROOT, "g", Controls::default());
    client.ask(op).unwrap();
    let other = client.other();
    let (file, op) = other.create_op(group, "f");
    other.ask(op).unwrap();
    assert_eq!(kind(client.open(file)), Kind::Busy, "collections are exclusive");
}

#[test]
fn x1_only_the_holder_sets_controls_and_each_set_is_a_revision() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    let set = |client: &Client, controls: Option<Controls>, layout: Option<Layout>| {
        client.ask(CatalogOp::Set { ws: client.ws, uuid, controls, layout })
    };
    let append = Controls { mutability: Some(iov_types::Mutability::Append), ..Controls::default() };
    assert_eq!(kind(set(&client, Some(append.clone()), None)), Kind::Busy);
    client.close(uuid).unwrap();
    client.open_exclusive(uuid, COLLECTION).unwrap();
    set(&client, Some(append), None).unwrap();
    set(&client, None, Some(Layout { chunk_size: 1 << 20, ..Layout::default() })).unwrap();
    assert_eq!(client.stat(uuid).unwrap().revision, 3);
    client.close(uuid).unwrap();
    let opened = client.open(uuid).unwrap();
    assert_eq!(opened.effective.mutability, iov_types::Mutability::Append);
    assert_eq!((opened.layout.chunk_size, opened.layout.revision), (1 << 20, 3));
    let wrong = Controls { persistence: Some(iov_types::Persistence::Replicated), ..Controls::default() };
    client.close(uuid).unwrap();
    client.open_exclusive(uuid, COLLECTION).unwrap();
    assert_eq!(kind(set(&client, Some(wrong), None)), Kind::Refused);
    assert_eq!(client.stat(uuid).unwrap().revision, 3);
}

/// A group whose hold was granted after a crash is free once that has ended, as all are known who had it.
#[test]
fn x2_a_hold_that_began_and_ended_behind_a_crash_keeps_nobody_out() {
    let rig = resume::rig();
    let client = rig.in_workspace();
    let [one, two] = ["one", "two"].map(|text| client.group(ROOT, text));
    let (rig, [client]) = resume::crash(rig, 30 * SECOND, [client]);
    let other = client.other();
    for group in [one, two] {
        client.open_exclusive(group, EntryKind::Group).unwrap();
        assert_eq!(other.open_exclusive(group, EntryKind::Group).map_err(|e| e.kind()).err(), Some(Kind::Busy));
    }
    client.close(one).unwrap();
    other.open_exclusive(one, EntryKind::Group).expect("nobody holds it");
    other.close(one).unwrap();
    other.create_in(one, "below");
    rig.service.end_session(client.caller.session);
    other.open_exclusive(two, EntryKind::Group).expect("its holder has ended");
}

/// Who founded a hold and has ended it behind a crash may have others that joined it, and that have not come back yet.
#[test]
fn x1_a_hold_that_came_back_and_ended_is_kept_for_those_who_joined_it() {
    let rig = resume::rig();
    let client = rig.in_workspace();
    let [one, two] = ["one", "two"].map(|text| client.group(ROOT, text));
    let CatalogReply::Token(token) = client.ask(CatalogOp::TokenExport).unwrap() else { panic!() };
    let mut joined = client.other();
    joined.ask(CatalogOp::TokenJoin { token }).unwrap();
    joined.caller.holder = client.caller.holder;
    let epochs = [one, two].map(|group| {
        let epoch = client.open_exclusive(group, EntryKind::Group).unwrap().epoch;
        assert_eq!(joined.open_exclusive(group, EntryKind::Group).unwrap().epoch, epoch);
        epoch
    });
    let (rig, [client, joined]) = resume::crash(rig, 30 * SECOND, [client, joined]);
    let other = client.other();
    let present = |of: &Client, uuid, epoch| {
        resume::resume(of, Presented { kind: EntryKind::Group, writers: 0, ..resume::presented(of, uuid, epoch) })
    };
    let is_busy = |uuid| {
        assert_eq!(other.open_exclusive(uuid, EntryKind::Group).map_err(|e| e.kind()).err(), Some(Kind::Busy));
        let (_, op) = other.create_op(uuid, "below");
        assert_eq!(kind(other.ask(op)), Kind::Busy);
    };
    for (uuid, epoch) in [one, two].into_iter().zip(epochs) {
        is_busy(uuid);
        present(&client, uuid, epoch).unwrap();
    }
    client.close(one).unwrap();
    is_busy(one);
    present(&joined, one, epochs[0]).unwrap();
    is_busy(one);
    rig.service.end_session(client.caller.session);
    is_busy(two);
    present(&joined, two, epochs[1]).unwrap();
    joined.close(one).unwrap();
    joined.close(two).unwrap();
    rig.service.end_grace().unwrap();
    [one, two].into_iter().for_each(|uuid| drop(other.open_exclusive(uuid, EntryKind::Group).unwrap()));
}
