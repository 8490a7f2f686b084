//! Stores that are newer, foreign or damaged.

use std::sync::Arc;

use bytes::Bytes;
use iov_store::{MemoryStore, MetadataStore, Txn};
use iov_types::{Kind, Uuid};
use proptest::prelude::*;

use super::rig::{Client, Rig, durable_heap, kind, options};
use crate::{
    Service,
    record::{FORMAT, StoreRecord},
};
use iov_wire::Wire;

const ROOT: Uuid = Uuid::NIL;

fn write(store: &dyn MetadataStore, key: &[u8], value: Vec<u8>) {
    let writes = vec![(key.to_vec(), Some(Bytes::from(value)))];
    store.commit(vec![Txn { guards: Vec::new(), writes }]).unwrap().pop().unwrap().unwrap();
}

fn open(store: Arc<MemoryStore>) -> iov_types::Result<Service> {
    Service::open(store, Arc::new(durable_heap()), options())
}

#[test]
fn a_newer_format_says_update_and_is_left_alone() {
    let store = Arc::new(MemoryStore::new());
    let newer = StoreRecord {
        format: FORMAT + 1,
        uuid: ROOT,
        incarnation: 3,
        clean: true,
        crashed: Vec::new(),
        unmarked: 0,
        behind: 0,
        alone: true,
    };
    write(&*store, b"M", newer.to_bytes());
    let refused = open(store.clone()).err().unwrap();
    assert_eq!(refused.kind(), Kind::Version);
    assert!(refused.detail().contains("update"), "{refused}");
    assert_eq!(store.get(&[b"M"]).unwrap()[0].as_ref().unwrap().value, newer.to_bytes());
}

#[test]
fn a_store_without_its_first_record_is_corrupt() {
    let store = Arc::new(MemoryStore::new());
    write(&*store, b"other", b"data".to_vec());
    assert_eq!(open(store).err().unwrap().kind(), Kind::Corrupt);
    let store = Arc::new(MemoryStore::new());
    write(&*store, b"M", Vec::new());
    assert_eq!(open(store).err().unwrap().kind(), Kind::Corrupt);
}

#[test]
fn p1_a_store_keeps_its_identity_and_counts_its_incarnations() {
    let rig = Rig::new();
    let uuid = rig.service.store_uuid();
    let rig = rig.crash();
    assert_eq!(rig.service.store_uuid(), uuid);
    assert_eq!((rig.service.core.incarnation(), rig.service.core.crashed()), (2, &[1][..]));
    rig.service.close().unwrap();
    let rig = rig.crash();
    assert_eq!((rig.service.core.incarnation(), rig.service.core.crashed()), (3, &[1][..]));
}

/// Every operation on a record of any bytes ends with an answer; one that is wrong is reported, never believed.
fn survives(client: &Client, uuid: Uuid) {
    let _ = client.stat(uuid);
    let _ = client.open(uuid);
    let _ = client.get(uuid, "k");
    let _ = client.get(uuid, "iov.controls");
    let _ = client.ask(client.put_op(uuid, "k", iov_types::Value::I64(1)));
    let _ = client.ask(client.publish_op(uuid));
    let _ = client.seal(uuid);
    let _ = client.close_written(uuid);
    let _ = client.ask(iov_types::catalog::CatalogOp::Search { ws: client.ws, spec: super::rig::spec(None) });
    let _ = client.lookup(ROOT, "a");
    let _ = client.delete_uuid(uuid);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_as_a_record_are_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let rig = Rig::new();
        let client = rig.in_workspace();
        let uuid = client.create_in(ROOT, "a");
        write(&*rig.store, &crate::keys::record(client.ws, uuid), bytes);
        survives(&client, uuid);
    }

    #[test]
    fn a_flipped_bit_in_a_record_never_panics(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let rig = Rig::new();
        let client = rig.in_workspace();
        let uuid = client.create_in(ROOT, "a");
        client.ask(client.put_op(uuid, "k", iov_types::Value::Str("v".into()))).unwrap();
        let key = crate::keys::record(client.ws, uuid);
        let mut value = rig.store.get(&[&key]).unwrap()[0].as_ref().unwrap().value.to_vec();
        let at = at.index(value.len());
        value[at] ^= 1 << bit;
        write(&*rig.store, &key, value);
        survives(&client, uuid);
    }

    #[test]
    fn any_bytes_in_any_other_place_are_an_error_and_no_panic(
        tag in prop::sample::select(vec![b'M', b'W', b'w', b'U', b'B', b'D', b'A', b'N', b'I']),
        rest in prop::collection::vec(any::<u8>(), 0..40),
        bytes in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let rig = Rig::new();
        let client = rig.in_workspace();
        client.create_in(ROOT, "a");
        let key = if tag == b'M' { b"M".to_vec() } else { [&[tag], &rest[..]].concat() };
        write(&*rig.store, &key, bytes);
        let heap = rig.heap.clone();
        let store = rig.store.clone();
        drop((client, rig));
        if let Ok(rig) = Rig::over(store, heap, options()) {
            rig.service.tick(rig.service.core.monotonic_ns() + 3600 * super::rig::SECOND);
            let _ = rig.client().ask(iov_types::catalog::CatalogOp::WorkspaceSearch { spec: super::rig::spec(None) });
        }
    }
}

#[test]
fn a_wrong_name_value_is_corrupt() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    client.create_in(ROOT, "a");
    write(&*rig.store, &crate::keys::name(client.ws, ROOT, &super::rig::name("a")), vec![1, 2, 3]);
    assert_eq!(kind(client.lookup(ROOT, "a")), Kind::Corrupt);
}
