//! Targets compared with the catalog.

use std::sync::Arc;

use iov_store::{Backend, Bytes, Heap, MemoryStore, run_all, seam};
use iov_types::{Capability, ObjectId, ObjectVerb, Uuid, catalog::CatalogOp};

use super::rig::{Client, Rig, durable_heap, options};
use crate::{Checked, targets::op};

const ROOT: Uuid = Uuid::NIL;

fn object(collection: Uuid) -> ObjectId {
    ObjectId { collection, slot: 0 }
}

fn at_target(client: &Client, uuid: Uuid, verb: ObjectVerb, bytes: &'static [u8]) {
    let bytes = if bytes.is_empty() { Bytes::None } else { Bytes::From(bytes) };
    run_all(&*client.heap, &client.cx(), vec![(op(object(uuid), verb, 0), bytes)]).remove(0).0.unwrap();
}

fn check(rig: &Rig) -> Checked {
    rig.service.check(&|| false, &|| false).unwrap()
}

/// Collections with a byte in each, published and closed.
fn written(client: &Client, n: usize) -> Vec<Uuid> {
    let write = |i| {
        let uuid = client.create(&format!("c{i}"));
        client.bytes(uuid).write(0, b"x").unwrap();
        client.close_written(uuid).unwrap();
        uuid
    };
    (0..n).map(write).collect()
}

#[test]
fn what_belongs_together_is_found_so() {
    let rig = Rig::new();
    let (one, two) = (rig.in_workspace(), rig.in_workspace());
    written(&one, 3);
    written(&two, 2);
    // Without bytes there need be no object, and what is open may have one without its record saying so.
    one.create("empty");
    let open = two.create("open");
    two.bytes(open).write(0, b"x").unwrap();
    assert_eq!(check(&rig), Checked { objects: 6, ..Checked::default() });
}

#[test]
fn an_empty_object_of_no_collection_is_removed_and_one_with_bytes_is_told() {
    // As a directory of files, which tells nothing but what is there.
    let capability = Capability { medium: Capability::FILES, ..durable_heap().capability().clone() };
    let rig = Rig::over(Arc::new(MemoryStore::new()), Arc::new(Heap::new(capability)), options()).unwrap();
    let client = rig.in_workspace();
    written(&client, 3);
    // Of before this catalog; what was made since may be under way.
    let (empty, full) = (Uuid::v7(7, [1; 10]), Uuid::v7(7, [2; 10]));
    at_target(&client, seam::new_uuid(), ObjectVerb::Create, b"");
    at_target(&client, empty, ObjectVerb::Create, b"");
    at_target(&client, full, ObjectVerb::Write { offset: 0 }, b"bytes");
    let found = check(&rig);
    assert_eq!(found, Checked { objects: 6, removed: 1, unknown: vec![(0, object(full), 5)], ..Checked::default() });
    assert!(client.bytes(full).exists());
    assert_eq!(rig.service.stats().checked, [6, 1, 0]);
    assert_eq!(check(&rig).objects, 5, "the empty one is gone");
}

#[test]
fn a_collection_whose_bytes_are_gone_is_told() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    // More than a page of both.
    let all = written(&client, 2500);
    let mut gone = [all[0], all[1023], all[1024], all[2499]];
    gone.sort_unstable();
    gone.iter().for_each(|uuid| at_target(&client, *uuid, ObjectVerb::Remove, b""));
    let found = check(&rig);
    assert_eq!((found.objects, found.removed, found.unknown.len()), (2496, 0, 0));
    assert_eq!(found.missing, gone.map(|uuid| (0, client.ws, uuid)));
}

#[test]
fn what_is_under_way_is_no_finding() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let all = written(&client, 3);
    // An object without a record, which gets one before it is looked at again; and one that is deleted meanwhile.
    let (_, mut create) = client.create_op(ROOT, "late");
    let uuid = Uuid::v7(7, [1; 10]);
    let CatalogOp::Create { uuid: named, .. } = &mut create else { unreachable!() };
    *named = uuid;
    at_target(&client, uuid, ObjectVerb::Write { offset: 0 }, b"x");
    at_target(&client, all[1], ObjectVerb::Remove, b"");
    let pauses = std::cell::Cell::new(0);
    let pause = || {
        pauses.set(pauses.get() + 1);
        if pauses.get() == 2 {
            client.ask(create.clone()).unwrap();
            client.delete(ROOT, "c1").unwrap();
        }
        false
    };
    let found = rig.service.check(&pause, &|| false).unwrap();
    assert_eq!(found, Checked { objects: 3, ..Checked::default() });
    assert_eq!(pauses.get(), 2);
    assert!(rig.service.check(&|| true, &|| false).is_none());
    assert!(rig.service.check(&|| false, &|| true).is_none());
}

#[test]
fn it_is_needed_after_an_end_without_order_only() {
    let rig = Rig::new();
    assert!(!rig.service.needs_check(), "a new store");
    let rig = rig.crash();
    assert!(rig.service.needs_check());
    rig.service.close().unwrap();
    let rig = rig.crash();
    assert!(!rig.service.needs_check());
}
