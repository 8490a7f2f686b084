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
