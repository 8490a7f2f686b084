//! Races between a reader and a commit, step by step.

use iov_types::{
    Uuid,
    catalog::{CatalogOp, CatalogReply},
};

use super::*;
use crate::tests::rig::{Client, Rig};

fn reader<'a>(client: &'a Client, cx: &'a OpCx) -> Exec<'a> {
    Exec::new(&client.service.core, cx, client.caller.session, Mode::Read, Pending::default())
}

fn size(reply: Result<CatalogReply>) -> u64 {
    match reply.unwrap() {
        CatalogReply::Stat(stat) => stat.bytes,
        other => panic!("a stat was answered by {other:?}"),
    }
}

#[test]
fn c1_a_record_read_before_the_last_writer_closed_is_not_believed() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    client.bytes(uuid).write(0, b"12345").unwrap();
    let (cx, stat) = (client.cx(), CatalogOp::Stat { ws: client.ws, uuid });
    let mut x = reader(&client, &cx);
    x.read_ahead(std::slice::from_ref(&stat), 0).unwrap();
    client.close_written(uuid).unwrap();
    assert_eq!(size(x.one(stat)), 5);
}

#[test]
fn c1_facts_read_before_a_commit_are_not_kept_after_it() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create_in(Uuid::NIL, "a");
    let (cx, stat) = (client.cx(), CatalogOp::Stat { ws: client.ws, uuid });
    let mut x = reader(&client, &cx);
    x.read_ahead(std::slice::from_ref(&stat), 0).unwrap();
    assert_eq!(size(x.one(stat.clone())), 0);
    client.open(uuid).unwrap();
    client.bytes(uuid).write(0, b"12345").unwrap();
    client.close_written(uuid).unwrap();
    x.keep_learned();
    assert_eq!(size(client.ask(stat.clone())), 5);
    // And those that nothing has overtaken are.
    let asked = rig.service.stats().keys_read;
    assert_eq!(size(client.ask(stat)), 5);
    assert_eq!(rig.service.stats().keys_read, asked);
}

fn inline_rig() -> Rig {
    let options = crate::Options { inline_bytes: 8192, ..crate::tests::rig::options() };
    let heap = crate::tests::rig::durable_heap();
    Rig::over(std::sync::Arc::new(iov_store::MemoryStore::new()), std::sync::Arc::new(heap), options).unwrap()
}

#[test]
fn c5_record_and_bytes_of_a_read_are_of_one_moment() {
    let rig = inline_rig();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    let ws = client.ws;
    let write = |offset, data: &[u8]| client.ask(CatalogOp::Write { ws, uuid, offset, data: data.to_vec() }).unwrap();
    write(0, b"12345");
    let (cx, read) = (client.cx(), CatalogOp::Read { ws, uuid, offset: 0, len: 100 });
    let mut x = reader(&client, &cx);
    x.read_ahead(std::slice::from_ref(&read), 0).unwrap();
    // It grows meanwhile.
    write(5, b"6");
    assert_eq!(x.one(read.clone()).unwrap(), CatalogReply::Bytes(b"12345".to_vec()));
    x.read_ahead(std::slice::from_ref(&read), 0).unwrap();
    // It moves meanwhile.
    client.service.at_target(&client.cx(), uuid).unwrap();
    assert_eq!(x.one(read.clone()).unwrap(), CatalogReply::Bytes(b"123456".to_vec()));
    assert_eq!(client.ask(read).unwrap(), CatalogReply::Moved);
}

#[test]
fn p2_nobody_writes_behind_a_move_before_it_is_committed() {
    let rig = inline_rig();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    let ws = client.ws;
    client.ask(CatalogOp::Write { ws, uuid, offset: 0, data: b"12345".to_vec() }).unwrap();
    let is_inline = || client.service.core.shared().opens.get(uuid).unwrap().inline;
    let cx = client.cx();
    let mut x = Exec::new(&client.service.core, &cx, client.caller.session, Mode::Each, Pending::default());
    x.one(CatalogOp::MoveOut { ws, uuid }).unwrap();
    // What others see decides whether they may ask the target. Opening it anew changes nothing of that.
    assert!(is_inline());
    let which = iov_types::Which::Uuid(uuid);
    let (kind, controls) = (iov_types::EntryKind::Collection, iov_types::Controls::default());
    x.one(CatalogOp::Open { ws, parent: Uuid::NIL, which, kind, controls, tell: None }).unwrap();
    assert!(is_inline());
    let mut writer = client.service.core.writer();
    client.service.commit(&mut writer, &mut x, false).unwrap();
    assert!(!is_inline());
}
