//! Lengths and times (C1, C7, T18).

use iov_types::{
    Attr, Clause, Consistency, Controls, EntryKind, Kind, Uuid, Value,
    catalog::{CatalogOp, Submission},
};

use super::rig::{Client, Rig, kind};

const ROOT: Uuid = Uuid::NIL;

#[test]
fn c1_a_stat_sees_what_an_open_writer_has_written() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    let other = client.other();
    assert_eq!(other.stat(uuid).unwrap().bytes, 0, "nobody wrote yet: there is no object");
    for i in 1..5u64 {
        client.bytes(uuid).write(i * 10, b"x").unwrap();
        assert_eq!(other.stat(uuid).unwrap().bytes, i * 10 + 1);
        assert_eq!(other.get(uuid, "iov.size").unwrap(), Value::I64(i as i64 * 10 + 1));
    }
    client.close_written(uuid).unwrap();
    let asked = rig.service.stats().target_operations;
    assert_eq!(other.stat(uuid).unwrap().bytes, 41);
    assert_eq!(rig.service.stats().target_operations, asked, "closed: the record knows");
}

#[test]
fn c1_a_stat_that_races_a_close_is_never_older_than_the_write() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create_in(ROOT, "a");
    std::thread::scope(|s| {
        let writer = client.other();
        let (tell, hear) = std::sync::mpsc::channel();
        s.spawn(move || {
            for i in 1..300u64 {
                writer.open(uuid).unwrap();
                writer.bytes(uuid).write(i, b"x").unwrap();
                tell.send(i + 1).unwrap();
                writer.close_written(uuid).unwrap();
            }
        });
        for written in hear {
            assert!(client.stat(uuid).unwrap().bytes >= written);
        }
    });
}

#[test]
fn c1_sizes_survive_a_crash_of_the_catalog_with_open_writers() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (open, closed, sealed) = (client.create("open"), client.create("closed"), client.create("sealed"));
    for uuid in [open, closed, sealed] {
        client.bytes(uuid).write(0, b"12345").unwrap();
    }
    client.close_written(closed).unwrap();
    client.seal(sealed).unwrap();
    let ws = client.ws;
    drop(client);
    let rig = rig.crash();
    let client = Client { ws, ..rig.client() };
    for uuid in [open, closed, sealed] {
        assert_eq!(client.stat(uuid).unwrap().bytes, 5);
    }
    assert_eq!(client.find("iov.size = 5").len(), 3);
    // An open for writing brings the record up to date, and then it is an ordinary one.
    client.open(open).unwrap();
    client.close(open).unwrap();
    let asked = rig.service.stats().target_operations;
    assert_eq!(client.stat(open).unwrap().bytes, 5);
    assert_eq!(rig.service.stats().target_operations, asked);
    assert_eq!(client.stat_workspace().bytes, 15);
}

#[test]
fn c1_a_catalog_closed_in_order_leaves_nothing_to_ask() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    client.bytes(uuid).write(0, b"12345").unwrap();
    rig.service.close().unwrap();
    assert_eq!(kind(client.ask(client.create_op(ROOT, "b").1)), Kind::Unavailable);
    let ws = client.ws;
    drop(client);
    let rig = rig.crash();
    let client = Client { ws, ..rig.client() };
    assert_eq!(client.stat(uuid).unwrap().bytes, 5);
    assert_eq!(rig.service.stats().target_operations, 0);
}

#[test]
fn c7_search_sees_sizes_at_once_where_sequential_else_as_published() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let sequential = client.create("s");
    let controls = Controls { consistency: Some(Consistency::Commit), ..Controls::default() };
    let (commit, op) = client.create_with(EntryKind::Collection, ROOT, "c", controls);
    client.ask(op).unwrap();
    for uuid in [sequential, commit] {
        client.bytes(uuid).write(0, b"12345").unwrap();
    }
    let other = client.other();
    assert_eq!(other.find("iov.size = 5"), [sequential]);
    client.ask(client.publish_op(commit)).unwrap();
    assert_eq!(other.find("iov.size = 5").len(), 2);
    client.bytes(commit).write(5, b"6").unwrap();
    assert_eq!(other.find("iov.size = 5").len(), 2);
    client.close_written(commit).unwrap();
    assert_eq!(other.find("iov.size = 6"), [commit]);
}

#[test]
fn o4_a_time_that_was_set_holds_until_the_bytes_change_again() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    let set = || {
        let attr = Attr { mtime_ns: Some(5), ..Attr::default() };
        client.ask(CatalogOp::SetAttr { ws: client.ws, uuid, attr }).unwrap();
    };
    set();
    assert_eq!(client.stat(uuid).unwrap().mtime_ns, 5);
    client.bytes(uuid).write(0, b"x").unwrap();
    assert_ne!(client.stat(uuid).unwrap().mtime_ns, 5);
    set();
    assert_eq!(client.stat(uuid).unwrap().mtime_ns, 5, "while it is open");
    client.close_written(uuid).unwrap();
    assert_eq!(client.stat(uuid).unwrap().mtime_ns, 5, "and closed");
    client.open(uuid).unwrap();
    assert_eq!(client.stat(uuid).unwrap().mtime_ns, 5, "and open again");
    client.bytes(uuid).write(0, b"y").unwrap();
    client.close_written(uuid).unwrap();
    assert_ne!(client.stat(uuid).unwrap().mtime_ns, 5);
}

#[test]
fn t18_use_follows_lengths_up_and_down() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    client.bytes(uuid).write(0, &[1; 100]).unwrap();
    client.ask(client.publish_op(uuid)).unwrap();
    assert_eq!(client.stat_workspace().bytes, 100);
    let version = client.stat(uuid).unwrap().version;
    client.bytes(uuid).write(0, &[1; 300]).unwrap();
    client.close_written(uuid).unwrap();
    assert_eq!(client.stat_workspace().bytes, 300);
    assert!(client.stat(uuid).unwrap().version > version, "each publication is a version");
    client.delete_uuid(uuid).unwrap();
    assert_eq!(client.stat_workspace().bytes, 0);
}

#[test]
fn c1_reads_in_one_submission_with_writes_see_them() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    client.bytes(uuid).write(0, b"xyz").unwrap();
    let ws = client.ws;
    let close = CatalogOp::Close { ws, uuid, published: Some(Default::default()) };
    let ops = vec![close, CatalogOp::Stat { ws, uuid }, CatalogOp::MetaGet { ws, uuid, key: "iov.size".into() }];
    let replies = client.submit(ops, Submission::Each).unwrap();
    assert!(matches!(&replies[1], Ok(iov_types::catalog::CatalogReply::Stat(s)) if s.bytes == 3));
    assert!(matches!(&replies[2], Ok(iov_types::catalog::CatalogReply::Value(Value::I64(3)))));
}

#[test]
fn o10_a_close_of_what_is_not_open_is_stale() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create_in(ROOT, "a");
    let stale = client.close_written(uuid).unwrap_err();
    assert_eq!((stale.kind(), stale.clause()), (Kind::Stale, Some(Clause::O10)));
    assert_eq!(kind(client.close(Uuid([1; 16]))), Kind::Stale);
}
