//! Appends to bytes that live beside their record.

use iov_types::{
    Clause, Controls, Kind, WorkspaceAttr,
    catalog::{CatalogOp, CatalogReply},
};

use super::{
    inline::{created, read, rig},
    rig::Client,
};

#[test]
fn m4_bytes_are_appended_in_the_record_until_they_are_too_many() {
    let rig = rig();
    let client = rig.in_workspace_with(WorkspaceAttr { quota_bytes: Some(9000), ..WorkspaceAttr::default() });
    let other = client.other();
    let (uuid, _) = created(&client, "a", Controls::default());
    other.open(uuid).unwrap();
    let append =
        |client: &Client, data: &[u8]| client.ask(CatalogOp::Append { ws: client.ws, uuid, data: data.to_vec() });
    let before = client.stat(uuid).unwrap();
    assert_eq!(append(&client, b"one").unwrap(), CatalogReply::Appended(0));
    assert_eq!(append(&other, b"two").unwrap(), CatalogReply::Appended(3));
    assert_eq!(append(&client, b"").unwrap(), CatalogReply::Appended(6));
    assert_eq!((read(&client, uuid).unwrap(), client.stat_workspace().bytes), (b"onetwo".to_vec(), 6));
    let after = client.stat(uuid).unwrap();
    assert!(after.version > before.version && after.bytes == 6);
    assert_eq!(append(&client, &[7; 8186]).unwrap(), CatalogReply::Appended(6));
    // Nothing is appended where they move, and where there is no room for them.
    assert_eq!(append(&client, b"8").unwrap(), CatalogReply::Moved);
    assert_eq!((client.bytes(uuid).read().unwrap().len(), append(&other, b"").unwrap()), (8192, CatalogReply::Moved));
    let (uuid, _) = created(&client, "b", Controls::default());
    let refused = client.ask(CatalogOp::Append { ws: client.ws, uuid, data: vec![0; 809] }).unwrap_err();
    assert_eq!(
        (refused.kind(), refused.clause(), client.stat(uuid).unwrap().bytes),
        (Kind::Exhausted, Some(Clause::O1), 0)
    );
    // Nor of what is sealed, or only read.
    client.ask(CatalogOp::Seal { ws: client.ws, uuid, published: Default::default() }).unwrap();
    let refused = client.ask(CatalogOp::Append { ws: client.ws, uuid, data: vec![0] }).unwrap_err();
    assert_eq!(refused.clause(), Some(Clause::M2));
}
