//! Names, links, renames, deletes (O3, O10, T13, T22).

use iov_types::{
    Clause, Controls, EntryKind, Error, Kind, Uuid, Which,
    catalog::{CatalogOp, CatalogReply, Named, RenameMode, Submission},
};

use super::rig::{Client, Rig, kind, name};

fn rename(client: &Client, from: (Uuid, &str), to: (Uuid, &str), mode: RenameMode) -> iov_types::Result<CatalogReply> {
    client.ask(CatalogOp::Rename {
        ws: client.ws,
        from_parent: from.0,
        from: name(from.1),
        to_parent: to.0,
        to: name(to.1),
        mode,
    })
}

const ROOT: Uuid = Uuid::NIL;

#[test]
fn o3_a_name_is_unique_in_its_group_and_bytes_need_not_be_text() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let a = client.create_in(ROOT, "a");
    let b = client.create_in(group, "a");
    assert_ne!(a, b);
    assert_eq!(client.lookup(ROOT, "a").unwrap(), a);
    assert_eq!(client.lookup(group, "a").unwrap(), b);
    let taken = client.ask(client.create_op(ROOT, "a").1).unwrap_err();
    assert_eq!((taken.kind(), taken.clause()), (Kind::Exists, Some(Clause::O3)));
    assert_eq!(kind(client.ask(client.create_op(ROOT, "g").1)), Kind::Exists, "groups and collections share names");
    let (_, op) = client.create_op(ROOT, "x");
    let CatalogOp::Create { ws, uuid, kind: k, parent, metadata, controls, layout, attr, .. } = op else { panic!() };
    let odd = iov_types::Name::new([0xff, 0xfe, b'.']).unwrap();
    client
        .ask(CatalogOp::Create {
            ws,
            uuid,
            kind: k,
            parent,
            name: Some(odd.clone()),
            metadata,
            controls,
            layout,
            attr,
            tell: false,
        })
        .unwrap();
    assert_eq!(client.get(uuid, "iov.name").unwrap(), iov_types::Value::Bytes(odd.as_bytes().to_vec()));
}

#[test]
fn t13_of_two_creates_of_one_name_exactly_one_wins() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let wins: usize = std::thread::scope(|s| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let other = client.other();
                s.spawn(move || {
                    (0..50).filter(|i| other.ask(other.create_op(ROOT, &format!("n{i}")).1).is_ok()).count()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(wins, 50);
    assert_eq!(client.stat_workspace().entries, 50);
}

#[test]
fn o2_a_uuid_is_used_once_in_the_whole_store() {
    let rig = Rig::new();
    let (one, two) = (rig.in_workspace(), rig.in_workspace());
    let group = one.group(ROOT, "g");
    for (client, uuid) in [(&one, group), (&two, group), (&two, one.ws)] {
        let (_, op) = client.create_with(EntryKind::Group, ROOT, "h", Controls::default());
        let CatalogOp::Create { ws, kind: k, parent, name, metadata, controls, layout, attr, .. } = op else {
            panic!()
        };
        let op = CatalogOp::Create { ws, uuid, kind: k, parent, name, metadata, controls, layout, attr, tell: false };
        assert_eq!(kind(client.ask(op)), Kind::Exists);
    }
}

#[test]
fn o3_links_are_names_of_equal_rank_and_a_collection_may_have_none() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let a = client.create_in(ROOT, "a");
    let link = |uuid, parent, text: &str| client.ask(CatalogOp::Link { ws: client.ws, uuid, parent, name: name(text) });
    link(a, group, "b").unwrap();
    assert_eq!(kind(link(a, group, "b")), Kind::Exists);
    assert_eq!(kind(link(group, ROOT, "h")), Kind::Invalid, "a group has one name");
    assert_eq!(client.stat(a).unwrap().links, 2);
    client.delete(ROOT, "a").unwrap();
    assert_eq!(client.lookup(group, "b").unwrap(), a);
    assert_eq!(client.stat(a).unwrap().links, 1);
    client.delete(group, "b").unwrap();
    assert_eq!(kind(client.stat(a)), Kind::NotFound);

    let nameless = client.create_in(ROOT, "");
    assert_eq!(client.stat(nameless).unwrap().links, 0);
    assert_eq!(kind(client.get(nameless, "iov.name")), Kind::NotFound);
    link(nameless, ROOT, "first").unwrap();
    assert_eq!(client.lookup(ROOT, "first").unwrap(), nameless);
    client.delete_uuid(nameless).unwrap();
    assert_eq!(kind(client.lookup(ROOT, "first")), Kind::NotFound);
}

#[test]
fn o10_by_uuid_all_names_go() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let a = client.create_in(ROOT, "a");
    client.ask(CatalogOp::Link { ws: client.ws, uuid: a, parent: ROOT, name: name("b") }).unwrap();
    client.delete_uuid(a).unwrap();
    for text in ["a", "b"] {
        assert_eq!(kind(client.lookup(ROOT, text)), Kind::NotFound);
    }
    assert!(rig.keys(b'N').is_empty() && rig.keys(b'R').is_empty());
    assert_eq!(client.stat_workspace().entries, 0);
}

#[test]
fn o3_renames_move_replace_refuse_and_exchange() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let (a, b) = (client.create_in(ROOT, "a"), client.create_in(ROOT, "b"));
    rename(&client, (ROOT, "a"), (group, "c"), RenameMode::Replace).unwrap();
    assert_eq!(kind(client.lookup(ROOT, "a")), Kind::NotFound);
    assert_eq!(client.lookup(group, "c").unwrap(), a);
    assert_eq!(kind(rename(&client, (ROOT, "b"), (group, "c"), RenameMode::NoReplace)), Kind::Exists);
    assert_eq!(kind(rename(&client, (ROOT, "b"), (group, "d"), RenameMode::Exchange)), Kind::NotFound);
    assert_eq!(kind(rename(&client, (ROOT, "x"), (group, "d"), RenameMode::Replace)), Kind::NotFound);
    rename(&client, (ROOT, "b"), (group, "c"), RenameMode::Exchange).unwrap();
    assert_eq!(client.lookup(group, "c").unwrap(), b);
    assert_eq!(client.lookup(ROOT, "b").unwrap(), a);
    rename(&client, (ROOT, "b"), (group, "c"), RenameMode::Replace).unwrap();
    assert_eq!(client.lookup(group, "c").unwrap(), a);
    assert_eq!(kind(client.stat(b)), Kind::NotFound, "what was replaced is deleted");
    assert_eq!(client.stat_workspace().entries, 2);
    rename(&client, (group, "c"), (group, "c"), RenameMode::Replace).unwrap();
    assert_eq!(kind(rename(&client, (group, "c"), (group, "c"), RenameMode::NoReplace)), Kind::Exists);
}

#[test]
fn o3_two_names_of_one_collection_become_one_by_a_rename() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let a = client.create_in(ROOT, "a");
    client.ask(CatalogOp::Link { ws: client.ws, uuid: a, parent: ROOT, name: name("b") }).unwrap();
    rename(&client, (ROOT, "a"), (ROOT, "b"), RenameMode::Replace).unwrap();
    assert_eq!(kind(client.lookup(ROOT, "a")), Kind::NotFound);
    assert_eq!(client.lookup(ROOT, "b").unwrap(), a);
    assert_eq!(client.stat(a).unwrap().links, 1);
    assert_eq!(client.stat(ROOT).unwrap().entries, 1);
}

#[test]
fn t22_a_rename_over_a_name_is_seen_as_one_of_the_two() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    client.create_in(ROOT, "target");
    std::thread::scope(|s| {
        let mover = client.other();
        let moves = s.spawn(move || {
            for i in 0..200 {
                mover.create_in(ROOT, &format!("new{i}"));
                rename(&mover, (ROOT, &format!("new{i}")), (ROOT, "target"), RenameMode::Replace).unwrap();
            }
        });
        let observer = client.other();
        while !moves.is_finished() {
            observer.lookup(ROOT, "target").unwrap();
        }
    });
}

#[test]
fn o9_operations_of_one_submission_see_those_before_them() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (a, create) = client.create_op(ROOT, "a");
    let (b, again) = client.create_op(ROOT, "a");
    let ops = vec![
        create,
        client.create_op(ROOT, "a").1,
        client.delete_op(ROOT, "a"),
        again,
        CatalogOp::Stat { ws: client.ws, uuid: b },
        CatalogOp::MetaGet { ws: client.ws, uuid: b, key: "iov.name".into() },
    ];
    let replies = client.submit(ops, Submission::Each).unwrap();
    let ok: Vec<bool> = replies.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true, true, true, true]);
    assert_eq!(client.lookup(ROOT, "a").unwrap(), b);
    assert!(client.stat(a).is_ok(), "deleted, but open in this session");
    assert_eq!(kind(client.other().stat(a)), Kind::NotFound);
}

#[test]
fn o3_a_name_that_is_replaced_all_the_time_is_always_found() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let make = |text: &str| {
        let uuid = client.create(text);
        client.close(uuid).unwrap();
    };
    make("cur");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..3_000 {
                make("new");
                rename(&client, (ROOT, "new"), (ROOT, "cur"), RenameMode::Replace).unwrap();
            }
        });
        let reader = client.other();
        while !writer.is_finished() {
            let which = Which::Name(name("cur"));
            reader.ask(CatalogOp::Look { ws: reader.ws, parent: ROOT, which, ahead: 0, tell: 0 }).unwrap();
        }
        writer.join().unwrap();
    });
}

/// What a look finds that is to look so far ahead.
fn ahead(client: &Client, parent: Uuid, text: &str, ahead: u32) -> Vec<Named> {
    let look = CatalogOp::Look { ws: client.ws, parent, which: Which::Name(name(text)), ahead, tell: 0 };
    let CatalogReply::Looked(looked) = client.ask(look).unwrap() else { panic!("it did not look ahead") };
    looked.entries
}

fn texts(entries: &[Named]) -> Vec<String> {
    entries.iter().map(|entry| entry.name.to_string()).collect()
}

#[test]
fn o3_a_look_ahead_tells_of_names_what_looks_at_each_do() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    for text in ["a", "a0", "b", "d", "\u{e9}"] {
        client.create_in(group, text);
    }
    let below = client.group(group, "c");
    client.create_in(ROOT, "h");
    // Nobody has counted what is in that group yet.
    assert_eq!(texts(&ahead(&client, group, "a", 9)), ["a", "a0", "b", "d", "\u{e9}"]);
    client.stat(below).unwrap();
    assert_eq!(texts(&ahead(&client, group, "a", 9)), ["a", "a0", "b", "c", "d", "\u{e9}"]);
    // What somebody writes only a target knows.
    let open = client.create_in(group, "bb");
    client.open(open).unwrap();
    assert_eq!(texts(&ahead(&client, group, "a0", 3)), ["a0", "b", "c"]);
    client.close(open).unwrap();
    assert_eq!(texts(&ahead(&client, group, "a0", 3)), ["a0", "b", "bb", "c"]);
    assert_eq!(texts(&ahead(&client, group, "d", 1)), ["d", "\u{e9}"]);
    assert_eq!(texts(&ahead(&client, group, "\u{e9}", u32::MAX)), ["\u{e9}"]);
    // The facts are those of each, whether memory has them by now or not.
    for _ in 0..2 {
        for entry in ahead(&client, group, "a", 9) {
            let which = Which::Name(entry.name.clone());
            let alone = client.ask(CatalogOp::Look { ws: client.ws, parent: group, which, ahead: 0, tell: 0 }).unwrap();
            assert_eq!(alone, CatalogReply::Stat(Box::new(entry.stat)), "{}", entry.name);
        }
    }
    // What went is not there, and what cannot be found is an error as ever.
    client.delete(group, "b").unwrap();
    assert_eq!(texts(&ahead(&client, group, "a0", 2)), ["a0", "bb", "c"]);
    let missing = CatalogOp::Look { ws: client.ws, parent: group, which: Which::Name(name("b")), ahead: 5, tell: 0 };
    assert_eq!(kind(client.ask(missing)), Kind::NotFound);
    assert!(client.delete(below, "nothing").is_err());
}

#[test]
fn o3_a_look_among_changes_sees_them_and_does_not_look_ahead() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (a, b) = (client.create("a"), client.create("b"));
    client.close(a).unwrap();
    client.close(b).unwrap();
    let delete = CatalogOp::Delete { ws: client.ws, parent: ROOT, which: Which::Name(name("b")) };
    let look = CatalogOp::Look { ws: client.ws, parent: ROOT, which: Which::Name(name("a")), ahead: 5, tell: 0 };
    let replies = client.submit(vec![delete, look], Submission::Each).unwrap();
    assert!(matches!(&replies[1], Ok(CatalogReply::Stat(stat)) if stat.uuid == a), "{replies:?}");
}

#[test]
fn o3_o10_a_name_of_a_collection_is_removed_and_it_is_told_what_is_left() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let uuid = client.create("a");
    let link = CatalogOp::Link { ws: client.ws, uuid, parent: group, name: name("b") };
    client.ask(link).unwrap();
    client.close(uuid).unwrap();
    let unlink = |parent, text: &str| {
        let reply = client.ask(CatalogOp::Unlink { ws: client.ws, parent, name: name(text), group: false })?;
        let CatalogReply::Removed(removed) = reply else { panic!("{reply:?}") };
        Ok::<_, Error>((removed.uuid, removed.links, removed.group.map(|group| (group.uuid, group.entries))))
    };
    let kind = |e: Error| e.kind();
    assert_eq!(unlink(ROOT, "g").map_err(kind), Err(Kind::Invalid), "a group");
    assert_eq!(unlink(ROOT, "b").map_err(kind), Err(Kind::NotFound), "it is elsewhere");
    assert_eq!(unlink(group, "b"), Ok((uuid, 1, Some((group, 0)))));
    assert_eq!(unlink(group, "b").map_err(kind), Err(Kind::NotFound));
    assert_eq!(client.stat(uuid).unwrap().links, 1);
    assert_eq!(unlink(ROOT, "a"), Ok((uuid, 0, Some((Uuid::NIL, 1)))));
    assert_eq!(client.stat(uuid).map_err(kind), Err(Kind::NotFound));
    // The group is still there, and empty.
    let of_group =
        |text: &str| client.ask(CatalogOp::Unlink { ws: client.ws, parent: ROOT, name: name(text), group: true });
    client.close(client.create("a")).unwrap();
    assert_eq!(of_group("a").map_err(kind), Err(Kind::Invalid), "no group");
    let inner = client.group(group, "inner");
    assert_eq!(of_group("g").map_err(kind), Err(Kind::NotEmpty));
    client.delete(group, "inner").unwrap();
    let CatalogReply::Removed(removed) = of_group("g").unwrap() else { panic!() };
    assert_eq!((removed.uuid, removed.links, removed.group.map(|root| root.entries)), (group, 0, Some(1)));
    assert_ne!(inner, group);
}

#[test]
fn o10_only_what_has_no_name_is_discarded() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let discard = |uuid| client.ask(CatalogOp::Discard { ws: client.ws, uuid });
    let kind = |e: Error| e.kind();
    let (named, op) = client.create_with(EntryKind::Collection, ROOT, "", Default::default());
    client.ask(op).unwrap();
    let (nameless, op) = client.create_with(EntryKind::Collection, ROOT, "", Default::default());
    client.ask(op).unwrap();
    client.ask(CatalogOp::Link { ws: client.ws, uuid: named, parent: ROOT, name: name("a") }).unwrap();
    assert_eq!(discard(named).map_err(kind), Err(Kind::Invalid));
    discard(nameless).unwrap();
    assert_eq!(discard(nameless).map_err(kind), Err(Kind::NotFound));
    assert_eq!(discard(Uuid::NIL).map_err(kind), Err(Kind::Invalid), "the root");
    for uuid in [named, nameless] {
        client.close(uuid).unwrap();
    }
    assert!(client.stat(named).is_ok());
    assert_eq!(client.stat(nameless).map_err(kind), Err(Kind::NotFound));
}

#[test]
fn o3_a_rename_replaces_what_is_alike_where_that_is_asked() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let empty = client.group(ROOT, "empty");
    let file = client.create("f");
    client.close(file).unwrap();
    let alike = |from: &str, to: &str| rename(&client, (ROOT, from), (ROOT, to), RenameMode::ReplaceAlike);
    assert_eq!(kind(alike("f", "g")), Kind::Invalid);
    assert_eq!(kind(alike("g", "f")), Kind::Invalid);
    alike("g", "empty").unwrap();
    alike("f", "new").unwrap();
    assert_eq!(client.stat(group).unwrap().links, 1);
    assert!(client.stat(empty).is_err());
    // Otherwise whatever is there goes.
    rename(&client, (ROOT, "new"), (ROOT, "empty"), RenameMode::Replace).unwrap();
    assert_eq!((client.stat(file).unwrap().links, client.stat(group).is_err()), (1, true));
}
