//! What is told of something without opening it, and when it was last changed.

use iov_types::{
    Attr, EntryKind, Kind, Result, Stat, Uuid, Value, Which,
    catalog::{CatalogOp, CatalogReply},
    posix,
};

use super::rig::{Client, Rig, kind, name};

const ROOT: Uuid = Uuid::NIL;

fn look(client: &Client, parent: Uuid, which: Which) -> Result<Stat> {
    match client.ask(CatalogOp::Look { ws: client.ws, parent, which, ahead: 0, tell: 0 })? {
        CatalogReply::Stat(stat) => Ok(*stat),
        other => panic!("answered by {other:?}"),
    }
}

fn named(text: &str) -> Which {
    Which::Name(name(text))
}

fn set(client: &Client, uuid: Uuid, attr: Attr) {
    client.ask(CatalogOp::SetAttr { ws: client.ws, uuid, attr }).unwrap();
}

#[test]
fn facts_are_told_of_what_is_not_open() {
    let rig = Rig::new();
    let writer = rig.in_workspace();
    let reader = writer.other();
    let group = writer.group(ROOT, "g");
    let (uuid, create) = writer.create_op(group, "a");
    writer.ask(create).unwrap();
    writer.bytes(uuid).write(0, b"1234").unwrap();
    // C1: never older than a completed write, also where the record does not know of it yet.
    for which in [named("a"), Which::Uuid(uuid)] {
        let stat = look(&reader, group, which).unwrap();
        assert_eq!((stat.uuid, stat.kind, stat.bytes), (uuid, EntryKind::Collection, 4));
    }
    assert_eq!(look(&reader, ROOT, named("g")).unwrap().entries, 1);
    assert_eq!(look(&reader, ROOT, Which::Uuid(ROOT)).unwrap().kind, EntryKind::Group);
    assert_eq!(kind(look(&reader, ROOT, named("none"))), Kind::NotFound);
    assert_eq!(kind(look(&reader, uuid, named("below"))), Kind::Invalid, "no group");
    // It is not open: who looks keeps nothing.
    writer.close_written(uuid).unwrap();
    writer.delete(group, "a").unwrap();
    assert_eq!(kind(look(&reader, group, Which::Uuid(uuid))), Kind::NotFound);
}

#[test]
fn o4_what_kind_of_file_it_is_stays() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, create) = client.create_op(ROOT, "l");
    let CatalogOp::Create { ws, uuid: id, kind, parent, name, metadata, controls, layout, attr, .. } = create else {
        panic!("a create");
    };
    let attr = Attr { mode: Some(0o120_777), ..attr };
    client
        .ask(CatalogOp::Create { ws, uuid: id, kind, parent, name, metadata, controls, layout, attr, tell: false })
        .unwrap();
    assert_eq!(client.stat(uuid).unwrap().mode, 0o120_777);
    set(&client, uuid, Attr { mode: Some(0o100_600), ..Attr::default() });
    assert_eq!(client.stat(uuid).unwrap().mode, 0o120_600);
    let group = client.group(ROOT, "g");
    set(&client, group, Attr { mode: Some(0o120_750), ..Attr::default() });
    assert_eq!(client.stat(group).unwrap().mode, 0o750, "a group is none but a group");
}

#[test]
fn changes_have_a_time_that_nobody_sets() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    client.bytes(uuid).write(0, b"x").unwrap();
    client.close_written(uuid).unwrap();
    let mut before = client.stat(uuid).unwrap();
    let mut changed = |what: &str, op: CatalogOp| {
        client.ask(op).unwrap();
        let after = client.stat(uuid).unwrap();
        assert!(after.changed_ns > before.changed_ns, "{what}");
        assert_eq!(look(&client, ROOT, Which::Uuid(uuid)).unwrap().changed_ns, after.changed_ns);
        before = after;
    };
    let attr = Attr { mtime_ns: Some(7), atime_ns: Some(8), ..Attr::default() };
    changed("times", CatalogOp::SetAttr { ws: client.ws, uuid, attr });
    changed("metadata", client.put_op(uuid, "k", iov_types::Value::I64(1)));
    changed("a link", CatalogOp::Link { ws: client.ws, uuid, parent: ROOT, name: name("b") });
    changed("a name less", client.delete_op(ROOT, "b"));
    let stat = client.stat(uuid).unwrap();
    assert_eq!((stat.mtime_ns, stat.atime_ns), (7, 8));
    // Opening and reading change nothing.
    client.open(uuid).unwrap();
    client.close(uuid).unwrap();
    assert_eq!(client.stat(uuid).unwrap().changed_ns, stat.changed_ns);
}

#[test]
fn groups_know_when_their_names_changed() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (group, other) = (client.group(ROOT, "g"), client.group(ROOT, "h"));
    let times = || [ROOT, group, other].map(|uuid| client.stat(uuid).unwrap().mtime_ns);
    let mut before = times();
    let mut touched = |op: CatalogOp| {
        client.ask(op).unwrap();
        let after = times();
        let which: Vec<bool> = before.iter().zip(&after).map(|(b, a)| a > b).collect();
        before = after;
        which
    };
    assert_eq!(touched(client.create_op(group, "a").1), [false, true, false]);
    let rename = CatalogOp::Rename {
        ws: client.ws,
        from_parent: group,
        from: name("a"),
        to_parent: other,
        to: name("b"),
        mode: iov_types::catalog::RenameMode::Replace,
    };
    assert_eq!(touched(rename), [false, true, true]);
    assert_eq!(touched(client.delete_op(other, "b")), [false, false, true]);
    assert_eq!(touched(client.create_op(ROOT, "c").1), [true, false, false]);
    // Searches and keys say the same.
    let known = client.stat(other).unwrap().mtime_ns;
    assert_eq!(client.get(other, "iov.mtime").unwrap(), iov_types::Value::Time(known));
    let mut spec = super::rig::spec(Some("iov.name = \"h\""));
    spec.keys = vec!["iov.mtime".into()];
    let page = client.page(CatalogOp::Search { ws: client.ws, spec });
    assert_eq!(page.entries[0].metadata.as_ref().unwrap()[0].1, iov_types::Value::Time(known));
    // What fails touches nothing, and what is set holds until the next name.
    assert!(client.ask(client.create_op(ROOT, "c").1).is_err());
    assert_eq!(times(), before);
    set(&client, group, Attr { mtime_ns: Some(5), ..Attr::default() });
    assert_eq!(client.stat(group).unwrap().mtime_ns, 5);
    client.ask(client.create_op(group, "d").1).unwrap();
    assert!(client.stat(group).unwrap().mtime_ns > 5);
}

#[test]
fn times_of_groups_survive_an_orderly_end() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    client.create_in(group, "a");
    let before = [ROOT, group].map(|uuid| client.stat(uuid).unwrap().mtime_ns);
    let ws = client.ws;
    rig.service.close().unwrap();
    let rig = rig.crash();
    let mut client = rig.client();
    client.ws = ws;
    assert_eq!([ROOT, group].map(|uuid| client.stat(uuid).unwrap().mtime_ns), before);
}

#[test]
fn a_mode_tells_of_lists_in_the_metadata() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let text = |text: &str| Value::Str(text.into());
    for uuid in [client.create_in(ROOT, "a"), client.group(ROOT, "g"), ROOT] {
        let mode = || look(&client, ROOT, Which::Uuid(uuid)).unwrap().mode;
        let mut changed_ns = look(&client, ROOT, Which::Uuid(uuid)).unwrap().changed_ns;
        let mut changes = |what: &str| {
            let now_ns = look(&client, ROOT, Which::Uuid(uuid)).unwrap().changed_ns;
            assert!(now_ns > changed_ns, "{uuid} {what} is a change");
            changed_ns = now_ns;
        };
        let steps = [(posix::ACL_KEY, 1 << 16), (posix::DEFAULT_ACL_KEY, 3 << 16), ("other", 3 << 16)];
        for (key, marks) in steps {
            client.ask(client.put_op(uuid, key, text("u::r--"))).unwrap();
            assert_eq!(mode() & !0o7777, marks, "{uuid} {key}");
            changes(key);
        }
        set(&client, uuid, Attr { mode: Some(0o604), ..Attr::default() });
        assert_eq!(mode(), 0o604 | 3 << 16);
        changes("chmod");
        assert_eq!(client.get(uuid, "iov.mode").unwrap(), Value::I64(0o604), "which is nobody else's business");
        for (key, marks) in [(posix::ACL_KEY, 2 << 16), (posix::DEFAULT_ACL_KEY, 0)] {
            client.ask(CatalogOp::MetaRemove { ws: client.ws, uuid, key: key.into() }).unwrap();
            assert_eq!(mode(), 0o604 | marks);
            changes(key);
        }
    }
    // Nobody says so who has no list.
    let (uuid, mut create) = client.create_op(ROOT, "b");
    if let CatalogOp::Create { metadata, attr, .. } = &mut create {
        metadata.set(posix::DEFAULT_ACL_KEY, text("u::r--")).unwrap();
        attr.mode = Some(0o640 | posix::MODE_ACL);
    }
    client.ask(create).unwrap();
    assert_eq!(look(&client, ROOT, Which::Uuid(uuid)).unwrap().mode, 0o640 | posix::MODE_DEFAULT_ACL);
}
