//! Metadata and system keys (O4).

use iov_types::{
    Clause, EntryKind, Kind, Metadata, Uuid, Value, WorkspaceAttr,
    catalog::{CatalogOp, CatalogReply},
};

use super::rig::{Client, Rig, UID, kind};

const ROOT: Uuid = Uuid::NIL;

fn list(client: &Client, uuid: Uuid) -> Metadata {
    match client.ask(CatalogOp::MetaList { ws: client.ws, uuid }).unwrap() {
        CatalogReply::Metadata(metadata) => metadata,
        other => panic!("answered by {other:?}"),
    }
}

#[test]
fn o4_typed_pairs_are_put_read_listed_and_removed() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let values = [
        Value::Str("text".into()),
        Value::I64(i64::MIN),
        Value::F64(-0.5),
        Value::Bool(true),
        Value::Bytes(vec![0, 255]),
        Value::Time(1),
    ];
    for uuid in [client.create_in(ROOT, "a"), client.group(ROOT, "g"), ROOT] {
        for (i, value) in values.iter().enumerate() {
            client.ask(client.put_op(uuid, &format!("k{i}"), value.clone())).unwrap();
        }
        for (i, value) in values.iter().enumerate() {
            assert_eq!(client.get(uuid, &format!("k{i}")).unwrap(), *value);
        }
        assert_eq!(list(&client, uuid).len(), values.len());
        let remove = |key: &str| client.ask(CatalogOp::MetaRemove { ws: client.ws, uuid, key: key.into() });
        remove("k0").unwrap();
        assert_eq!(kind(remove("k0")), Kind::NotFound);
        assert_eq!(kind(client.get(uuid, "k0")), Kind::NotFound);
        assert_eq!(list(&client, uuid).len(), values.len() - 1);
    }
}

#[test]
fn o4_system_keys_are_read_and_never_put() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let (uuid, op) = client.create_op(group, "a");
    client.ask(op).unwrap();
    client.bytes(uuid).write(0, b"1234").unwrap();
    client.close_written(uuid).unwrap();
    let get = |key: &str| client.get(uuid, key).unwrap();
    assert_eq!(get("iov.name"), Value::Str("a".into()));
    assert_eq!(get("iov.uuid"), Value::Str(uuid.to_string()));
    assert_eq!(get("iov.group"), Value::Str(group.to_string()));
    assert_eq!(get("iov.size"), Value::I64(4));
    assert_eq!(get("iov.owner"), Value::I64(i64::from(UID)));
    assert_eq!(get("iov.mode"), Value::I64(0o640));
    assert_eq!(get("iov.state"), Value::Str("open".into()));
    assert_eq!(get("iov.kind"), Value::Str("collection".into()));
    assert_eq!(get("iov.layout"), Value::Str("revision=1".into()));
    assert!(matches!(get("iov.controls"), Value::Str(text) if text.contains("consistency=sequential")));
    assert!(matches!((get("iov.ctime"), get("iov.mtime")), (Value::Time(c), Value::Time(m)) if 0 < c && c <= m));
    assert_eq!(kind(client.get(uuid, "iov.checksum")), Kind::NotFound, "nobody made one");
    assert_eq!(kind(client.get(uuid, "iov.nonsense")), Kind::Invalid);
    assert_eq!(client.get(group, "iov.kind").unwrap(), Value::Str("group".into()));
    assert_eq!(client.get(group, "iov.mode").unwrap(), Value::I64(0o750));
    assert_eq!(client.get(ROOT, "iov.kind").unwrap(), Value::Str("group".into()));
    assert_eq!(client.get(ROOT, "iov.uuid").unwrap(), Value::Str(client.ws.to_string()));
    let remove = CatalogOp::MetaRemove { ws: client.ws, uuid, key: "iov.name".into() };
    let refused = client.ask(remove).unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::Invalid, Some(Clause::O4)));
}

#[test]
fn o4_the_sum_of_metadata_is_bounded() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    for uuid in [client.create_in(ROOT, "a"), ROOT] {
        for i in 0..3 {
            client.ask(client.put_op(uuid, &format!("k{i}"), Value::Bytes(vec![0; 1 << 20]))).unwrap();
        }
        let refused = client.ask(client.put_op(uuid, "k3", Value::Bytes(vec![0; 1 << 20]))).unwrap_err();
        assert_eq!((refused.kind(), refused.clause()), (Kind::TooBig, Some(Clause::O4)));
        assert_eq!(kind(client.get(uuid, "k3")), Kind::NotFound);
        client.ask(client.put_op(uuid, "k2", Value::I64(1))).unwrap();
    }
    let (_, op) = client.create_op(ROOT, "b");
    let CatalogOp::Create { ws, uuid, kind: k, parent, name, controls, layout, attr, .. } = op else { panic!() };
    let mut metadata = Metadata::new();
    for i in 0..5 {
        metadata.set(format!("k{i}"), Value::Bytes(vec![0; 1 << 20])).unwrap();
    }
    let op = CatalogOp::Create { ws, uuid, kind: k, parent, name, metadata, controls, layout, attr, tell: false };
    assert_eq!(kind(client.ask(op)), Kind::TooBig);
}

#[test]
fn o5_index_and_records_never_disagree() {
    let rig = Rig::new();
    let client = rig.in_workspace_with(WorkspaceAttr { indexes: vec!["t".into()], ..WorkspaceAttr::default() });
    let a = client.create_in(ROOT, "a");
    let group = client.group(ROOT, "g");
    let find = |n: i64| client.find(&format!("t = {n}"));
    client.ask(client.put_op(a, "t", Value::I64(1))).unwrap();
    client.ask(client.put_op(group, "t", Value::I64(1))).unwrap();
    assert_eq!(find(1).len(), 2, "groups are found too");
    client.ask(client.put_op(a, "t", Value::I64(2))).unwrap();
    assert_eq!((find(1), find(2)), (vec![group], vec![a]));
    client.ask(CatalogOp::MetaRemove { ws: client.ws, uuid: a, key: "t".into() }).unwrap();
    assert!(find(2).is_empty());
    client.ask(client.put_op(a, "t", Value::I64(3))).unwrap();
    client.open(a).unwrap();
    client.delete_uuid(a).unwrap();
    assert!(find(3).is_empty(), "deleted, though it is open");
    assert_eq!(rig.keys(b'I').len(), 1);
    client.ask(client.put_op(a, "t", Value::I64(4))).unwrap();
    assert_eq!(rig.keys(b'I').len(), 1, "and its metadata enter no index any more");
    client.close(a).unwrap();
}

#[test]
fn o5_an_index_declared_later_covers_what_is_there_and_a_dropped_one_leaves_nothing() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    for i in 0..10 {
        let uuid = client.create_in(ROOT, &format!("c{i}"));
        client.ask(client.put_op(uuid, "t", Value::I64(i))).unwrap();
        client.ask(client.put_op(uuid, "u", Value::I64(i))).unwrap();
    }
    let declare = |keys: &[&str]| {
        let indexes = keys.iter().map(|k| k.to_string()).collect();
        let attr = WorkspaceAttr { indexes, ..WorkspaceAttr::default() };
        client.ask(CatalogOp::WorkspaceSet { ws: client.ws, attr })
    };
    declare(&["t"]).unwrap();
    assert_eq!(rig.keys(b'I').len(), 10);
    assert_eq!(client.find("t >= 7").len(), 3);
    declare(&["u"]).unwrap();
    assert_eq!(rig.keys(b'I').len(), 10);
    assert_eq!(client.find("t >= 7").len(), 3);
    assert_eq!(client.find("u >= 7").len(), 3);
    assert_eq!(kind(declare(&["iov.size"])), Kind::Invalid);
    assert_eq!(kind(declare(&["u", ""])), Kind::Invalid);
    declare(&[]).unwrap();
    assert_eq!(rig.keys(b'I').len(), 10, "nothing was said about indexes");
    let attr = WorkspaceAttr { indexes: WorkspaceAttr::no_indexes(), ..WorkspaceAttr::default() };
    client.ask(CatalogOp::WorkspaceSet { ws: client.ws, attr }).unwrap();
    assert_eq!(rig.keys(b'I').len(), 0);
    assert_eq!(client.find("u >= 7").len(), 3);
    assert_eq!(client.stat(ROOT).unwrap().kind, EntryKind::Group);
}
