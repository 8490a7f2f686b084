//! A medium that is full: which commits may take the room that is kept, and that a store is opened with the last of it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use iov_store::{Commit, KeyRange, MemoryStore, MetadataStore, Record, Room, Snapshot, Txn};
use iov_types::{Controls, EntryKind, Error, Kind, Limits, Outcome, Result, Uuid, catalog::CatalogReply};

use super::{
    inline::{created, inline_options, read, write},
    rig::{Client, Rig, durable_heap, kind, options},
};

const ROOT: Uuid = Uuid::NIL;

/// A store with room for some commits only.
struct Full {
    inner: MemoryStore,
    least: Mutex<Room>,
    scarce: AtomicBool,
    full: AtomicBool,
}

impl Full {
    fn new() -> Full {
        Full {
            inner: MemoryStore::new(),
            least: Mutex::new(Room::Free),
            scarce: AtomicBool::new(false),
            full: AtomicBool::new(false),
        }
    }

    fn leaves(&self, least: Room) {
        *self.least.lock().unwrap() = least;
    }
}

impl MetadataStore for Full {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        self.inner.get(keys)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        self.inner.scan(range, after, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.inner.snapshot()
    }

    fn commit(&self, txns: Vec<Txn>) -> Result<Vec<Commit>> {
        self.commit_with(txns, Room::Free)
    }

    fn commit_with(&self, txns: Vec<Txn>, room: Room) -> Result<Vec<Commit>> {
        if room < *self.least.lock().unwrap() {
            return Err(Error::exhausted("the medium is full").with_outcome(Outcome::NotApplied));
        }
        self.inner.commit(txns)
    }

    fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    fn is_scarce(&self) -> bool {
        self.scarce.load(Ordering::Relaxed)
    }

    fn persist(&self) -> Result<()> {
        self.inner.persist()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
}

#[test]
fn p7_a_full_store_takes_what_makes_room_longest() {
    let store = Arc::new(Full::new());
    let heap = Arc::new(durable_heap());
    let open = || Rig::over(store.clone(), heap.clone(), options()).unwrap();
    let rig = open();
    let client = rig.in_workspace();
    let (a, b, c) = (client.create("a"), client.create("b"), client.create("c"));
    for uuid in [a, b, c] {
        client.bytes(uuid).write(0, b"bytes").unwrap();
        client.close_written(uuid).unwrap();
    }
    store.leaves(Room::Kept);
    assert_eq!(kind(client.ask(client.create_op(ROOT, "d").1)), Kind::Exhausted);
    client.open(a).unwrap();
    client.bytes(a).write(0, b"more bytes").unwrap();
    store.leaves(Room::Freeing);
    assert_eq!(kind(client.close_written(a)), Kind::Exhausted, "its length finds no room");
    client.delete(ROOT, "b").unwrap();
    assert!(!client.bytes(b).exists());
    // Deleted, and open when the catalog ends.
    client.open(c).unwrap();
    client.delete(ROOT, "c").unwrap();
    store.leaves(Room::Last);
    assert_eq!(kind(client.delete(ROOT, "a")), Kind::Exhausted);
    let ws = client.ws;
    drop((client, rig));
    let rig = open();
    let client = Client { ws, ..rig.client() };
    assert_eq!(client.stat_workspace().entries, 1, "it opens all the same");
    assert!(client.bytes(c).exists(), "what else is to be done finds no room");
    drop((client, rig));
    store.leaves(Room::Freeing);
    let rig = open();
    let client = Client { ws, ..rig.client() };
    assert!(!client.bytes(c).exists(), "and is done the next time");
    store.leaves(Room::Free);
    client.open_with(iov_types::Which::Uuid(a), EntryKind::Collection, Default::default()).unwrap();
    assert_eq!(client.stat(a).unwrap().bytes, 10);
    client.create("d");
}

#[test]
fn where_records_have_little_room_small_bytes_go_to_their_target() {
    let store = Arc::new(Full::new());
    let heap = Arc::new(durable_heap());
    let rig = Rig::over(store.clone(), heap, inline_options()).unwrap();
    let client = rig.in_workspace();
    let small = Controls { collection_size: Limits { min: 0, max: 8 }, ..Controls::default() };
    let (before, _) = created(&client, "before", Controls::default());
    let (grows, _) = created(&client, "grows", Controls::default());
    for uuid in [before, grows] {
        write(&client, uuid, 0, b"1234").unwrap();
    }
    store.scarce.store(true, Ordering::Relaxed);
    let (new, _) = created(&client, "new", Controls::default());
    let (promised, _) = created(&client, "promised", small);
    for uuid in [new, promised] {
        assert_eq!(write(&client, uuid, 0, b"1234").unwrap(), CatalogReply::Done);
    }
    assert_eq!(write(&client, grows, 4, b"5").unwrap(), CatalogReply::Moved);
    assert_eq!(client.bytes(new).read().unwrap(), b"1234");
    assert_eq!(client.bytes(grows).read().unwrap(), b"1234");
    assert!(read(&client, new).is_none() && read(&client, grows).is_none());
    for uuid in [before, promised] {
        assert_eq!(read(&client, uuid).unwrap(), b"1234");
        assert!(!client.bytes(uuid).exists());
    }
    store.scarce.store(false, Ordering::Relaxed);
    let (again, _) = created(&client, "again", Controls::default());
    write(&client, again, 0, b"1234").unwrap();
    assert_eq!(read(&client, again).unwrap(), b"1234");
}

#[test]
fn p7_what_is_there_is_read_without_room_and_its_length_is_known_after_a_crash() {
    let store = Arc::new(Full::new());
    let rig = Rig::over(store.clone(), Arc::new(durable_heap()), options()).unwrap();
    let client = rig.in_workspace();
    let (a, b) = (client.create("a"), client.create("b"));
    for uuid in [a, b] {
        client.bytes(uuid).write(0, b"bytes").unwrap();
        client.close_written(uuid).unwrap();
    }
    let ws = client.ws;
    let crash = |rig: Rig| {
        let rig = rig.crash();
        let client = Client { ws, ..rig.client() };
        (rig, client)
    };
    let (rig, client) = crash(rig);
    store.leaves(Room::Freeing);
    assert_eq!(client.open(a).err().map(|e| e.kind()), Some(Kind::Exhausted), "it may be written");
    store.full.store(true, Ordering::Relaxed);
    for uuid in [a, b] {
        assert!(client.open(uuid).unwrap().writable);
    }
    client.bytes(a).write(0, b"longer").unwrap();
    // An end in order that finds no room for its length, then one that is not.
    store.leaves(Room::Last);
    rig.service.close().unwrap();
    let (rig, client) = crash(rig);
    store.leaves(Room::Freeing);
    assert_eq!(client.stat(a).unwrap().bytes, 6);
    client.open(a).unwrap();
    client.bytes(a).write(0, b"more bytes").unwrap();
    store.leaves(Room::Last);
    let (rig, client) = crash(rig);
    assert_eq!((client.stat(a).unwrap().bytes, client.stat(b).unwrap().bytes), (10, 5));
    store.leaves(Room::Free);
    store.full.store(false, Ordering::Relaxed);
    client.open(a).unwrap();
    client.close_written(a).unwrap();
    let (_rig, client) = crash(rig);
    assert_eq!((client.stat(a).unwrap().bytes, client.stat(b).unwrap().bytes), (10, 5));
}

#[test]
fn a_move_that_finds_no_room_leaves_no_object() {
    let store = Arc::new(Full::new());
    let rig = Rig::over(store.clone(), Arc::new(durable_heap()), inline_options()).unwrap();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", Controls::default());
    write(&client, uuid, 0, b"1234").unwrap();
    store.leaves(Room::Kept);
    assert_eq!(rig.service.at_target(&client.cx(), uuid).map_err(|e| e.kind()), Err(Kind::Exhausted));
    assert!(!client.bytes(uuid).exists());
    assert_eq!(read(&client, uuid).unwrap(), b"1234");
    store.leaves(Room::Free);
    rig.service.at_target(&client.cx(), uuid).unwrap();
    assert_eq!(client.bytes(uuid).read().unwrap(), b"1234");
}
