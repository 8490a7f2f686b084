//! Small collections whose bytes live beside their record.

use std::sync::Arc;

use iov_store::MemoryStore;
use iov_types::{
    Atomicity, Clause, Controls, EntryKind, Kind, Limits, Mutability, Persistence, Uuid, Which, WorkspaceAttr,
    catalog::{CatalogOp, CatalogReply, Submission},
    limits,
};

use super::{
    fragile::{Fails, Fragile},
    rig::{Client, Rig, SECOND, durable_heap, exclusive, immutable, kind, options},
};
use crate::Options;

const LIMIT: u64 = 8192;

pub(super) fn inline_options() -> Options {
    Options { inline_bytes: LIMIT, ..options() }
}

pub(super) fn rig() -> Rig {
    Rig::over(Arc::new(MemoryStore::new()), Arc::new(durable_heap()), inline_options()).unwrap()
}

pub(super) fn write(client: &Client, uuid: Uuid, offset: u64, data: &[u8]) -> iov_types::Result<CatalogReply> {
    client.ask(CatalogOp::Write { ws: client.ws, uuid, offset, data: data.to_vec() })
}

pub(super) fn read(client: &Client, uuid: Uuid) -> Option<Vec<u8>> {
    match client.ask(CatalogOp::Read { ws: client.ws, uuid, offset: 0, len: 1 << 20 }).unwrap() {
        CatalogReply::Bytes(bytes) => Some(bytes),
        CatalogReply::Moved => None,
        other => panic!("a read was answered by {other:?}"),
    }
}

pub(super) fn created(client: &Client, text: &str, controls: Controls) -> (Uuid, bool) {
    let (uuid, op) = client.create_with(EntryKind::Collection, Uuid::NIL, text, controls);
    match client.ask(op).unwrap() {
        CatalogReply::Opened(opened) => (uuid, opened.inline),
        other => panic!("a create was answered by {other:?}"),
    }
}

#[test]
fn small_collections_are_cut_and_lengthened_in_their_record() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", Controls::default());
    let cut = |client: &Client, size: u64| client.ask(CatalogOp::Truncate { ws: client.ws, uuid, size });
    write(&client, uuid, 0, b"12345").unwrap();
    let before = client.stat(uuid).unwrap();
    assert_eq!(cut(&client, 3).unwrap(), CatalogReply::Done);
    assert_eq!((read(&client, uuid).unwrap(), client.stat_workspace().bytes), (b"123".to_vec(), 3));
    let after = client.stat(uuid).unwrap();
    assert!(after.version > before.version && after.bytes == 3);
    cut(&client, 5).unwrap();
    assert_eq!(read(&client, uuid).unwrap(), b"123\0\0", "what was cut off does not come back (O6)");
    cut(&client, 0).unwrap();
    assert_eq!((read(&client, uuid).unwrap(), client.stat_workspace().bytes), (Vec::new(), 0));
    write(&client, uuid, 1, b"x").unwrap();
    assert_eq!(read(&client, uuid).unwrap(), b"\0x");
    // Only who has it open for writing, up to the limits, and not behind a seal.
    let e = cut(&client.other(), 1).unwrap_err();
    assert_eq!((e.kind(), e.clause()), (Kind::Stale, Some(Clause::O10)));
    let quota = WorkspaceAttr { quota_bytes: Some(100), ..WorkspaceAttr::default() };
    client.ask(CatalogOp::WorkspaceSet { ws: client.ws, attr: quota }).unwrap();
    assert_eq!(cut(&client, 200).unwrap_err().kind(), Kind::Exhausted);
    let quota = WorkspaceAttr { quota_bytes: Some(u64::MAX), ..WorkspaceAttr::default() };
    client.ask(CatalogOp::WorkspaceSet { ws: client.ws, attr: quota }).unwrap();
    assert_eq!(cut(&client, LIMIT).unwrap(), CatalogReply::Done);
    assert_eq!(cut(&client, LIMIT + 1).unwrap(), CatalogReply::Moved, "nothing was cut, and a target has the bytes");
    assert_eq!((read(&client, uuid), client.stat(uuid).unwrap().bytes), (None, LIMIT));
    let (uuid, _) = created(&client, "sealed", Controls::default());
    client.ask(CatalogOp::Seal { ws: client.ws, uuid, published: Default::default() }).unwrap();
    let e = client.ask(CatalogOp::Truncate { ws: client.ws, uuid, size: 1 }).unwrap_err();
    assert_eq!((e.kind(), e.clause()), (Kind::Immutable, Some(Clause::M2)));
}

#[test]
fn small_collections_never_reach_a_target() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, inline) = created(&client, "a", Controls::default());
    assert!(inline);
    assert_eq!(write(&client, uuid, 4, b"5678").unwrap(), CatalogReply::Done);
    assert_eq!(write(&client, uuid, 0, b"12").unwrap(), CatalogReply::Done);
    let other = client.other();
    assert!(other.open(uuid).unwrap().inline);
    assert_eq!(read(&other, uuid).unwrap(), b"12\0\x005678", "a hole reads as zeros (O6)");
    assert_eq!(other.stat(uuid).unwrap().bytes, 8, "seen by others at once (C1)");
    assert_eq!(client.find("iov.size = 8"), [uuid]);
    assert_eq!(client.stat_workspace().bytes, 8);
    client.close(uuid).unwrap();
    other.close(uuid).unwrap();
    client.delete(Uuid::NIL, "a").unwrap();
    assert_eq!(client.stat_workspace().bytes, 0);
    assert_eq!(rig.service.stats().target_operations, 0);
    assert_eq!((rig.keys(b'C'), rig.keys(b'R'), rig.keys(b'D')), (vec![], vec![], vec![]));
}

#[test]
fn bytes_move_out_when_they_grow_and_stay_out() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", Controls::default());
    write(&client, uuid, LIMIT - 4, b"last").unwrap();
    assert!(read(&client, uuid).unwrap().ends_with(b"last"));
    assert_eq!(write(&client, uuid, LIMIT, b"x").unwrap(), CatalogReply::Moved);
    assert_eq!(client.bytes(uuid).read().unwrap().len() as u64, LIMIT, "moved, but nothing was written");
    client.bytes(uuid).write(LIMIT, b"x").unwrap();
    assert_eq!(read(&client, uuid), None);
    assert_eq!(write(&client, uuid, 0, b"small").unwrap(), CatalogReply::Moved);
    assert_eq!(client.stat(uuid).unwrap().bytes, LIMIT + 1, "the target is asked from now on");
    client.close_written(uuid).unwrap();
    assert!(!client.open(uuid).unwrap().inline);
    assert_eq!(rig.keys(b'C'), Vec::<Vec<u8>>::new());
    client.close(uuid).unwrap();
    client.delete(Uuid::NIL, "a").unwrap();
    assert!(!client.bytes(uuid).exists());
    assert_eq!(client.stat_workspace().bytes, 0);
}

#[test]
fn whoever_needs_a_target_has_them_moved() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", Controls::default());
    write(&client, uuid, 0, b"12345").unwrap();
    let mtime = client.stat(uuid).unwrap().mtime_ns;
    rig.service.at_target(&client.cx(), uuid).unwrap();
    assert_eq!(client.bytes(uuid).read().unwrap(), b"12345");
    assert_eq!(client.stat(uuid).unwrap().mtime_ns, mtime, "moving is no change");
    // Twice is once.
    rig.service.at_target(&client.cx(), uuid).unwrap();
    assert_eq!(client.stat(uuid).unwrap().bytes, 5);
    // What nobody wrote moves without an object.
    let (empty, _) = created(&client, "b", Controls::default());
    rig.service.at_target(&client.cx(), empty).unwrap();
    assert!(!client.bytes(empty).exists());
    assert_eq!(read(&client, empty), None);
}

#[test]
fn m2_sealed_bytes_stay_sealed_in_the_record_and_behind_it() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, inline) = created(&client, "a", immutable());
    assert!(inline);
    write(&client, uuid, 0, b"12345").unwrap();
    client.seal(uuid).unwrap();
    assert_eq!(write(&client, uuid, 0, b"x").unwrap_err().clause(), Some(Clause::M2));
    assert_eq!(read(&client, uuid).unwrap(), b"12345");
    rig.service.at_target(&client.cx(), uuid).unwrap();
    assert_eq!(kind(client.bytes(uuid).write(0, b"x")), Kind::Immutable);
    assert_eq!(client.bytes(uuid).read().unwrap(), b"12345");
    let (empty, _) = created(&client, "b", immutable());
    client.seal(empty).unwrap();
    rig.service.at_target(&client.cx(), empty).unwrap();
    assert_eq!(kind(client.bytes(empty).write(0, b"x")), Kind::Immutable);
}

#[test]
fn x1_a_holder_whose_lease_has_ended_writes_nothing_into_the_record() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", exclusive());
    write(&client, uuid, 0, b"old").unwrap();
    let other = client.other();
    assert_eq!(kind(other.open_exclusive(uuid, EntryKind::Collection)), Kind::Busy);
    rig.later(31 * SECOND);
    other.open_exclusive(uuid, EntryKind::Collection).unwrap();
    assert_eq!(kind(write(&client, uuid, 0, b"late")), Kind::Fenced);
    write(&other, uuid, 0, b"new").unwrap();
    assert_eq!(read(&other, uuid).unwrap(), b"new");
    // The target has made an object for the fence: it goes with the record.
    assert!(client.bytes(uuid).exists());
    other.close(uuid).unwrap();
    let _ = client.close(uuid);
    other.delete(Uuid::NIL, "a").unwrap();
    assert!(!client.bytes(uuid).exists());
}

#[test]
fn o1_the_quota_is_checked_before_anything_is_written() {
    let rig = rig();
    let client = rig.in_workspace_with(WorkspaceAttr { quota_bytes: Some(10), ..Default::default() });
    let (uuid, _) = created(&client, "a", Controls::default());
    write(&client, uuid, 0, b"12345678").unwrap();
    let e = write(&client, uuid, 8, b"901").unwrap_err();
    assert_eq!((e.kind(), e.clause()), (Kind::Exhausted, Some(Clause::O1)));
    assert_eq!(read(&client, uuid).unwrap(), b"12345678");
    write(&client, uuid, 8, b"90").unwrap();
    write(&client, uuid, 0, b"overwritten"[..10].as_ref()).unwrap();
}

#[test]
fn h1_the_largest_size_holds_in_the_record_too() {
    let rig = rig();
    let client = rig.in_workspace();
    let controls = Controls { collection_size: Limits { min: 0, max: 4 }, ..Controls::default() };
    let (uuid, _) = created(&client, "a", controls);
    write(&client, uuid, 0, b"1234").unwrap();
    assert_eq!(kind(write(&client, uuid, 1, b"2345")), Kind::FileTooBig);
    assert_eq!(read(&client, uuid).unwrap(), b"1234");
}

#[test]
fn what_will_grow_or_needs_a_target_begins_there() {
    let rig = rig();
    let client = rig.in_workspace();
    let not_inline = [
        Controls { atomicity: Some(Atomicity::Publication), ..Controls::default() },
        Controls { mutability: Some(Mutability::Append), ..Controls::default() },
        Controls { collection_size: Limits { min: LIMIT + 1, max: 0 }, ..Controls::default() },
        Controls { request_size: Limits { min: LIMIT + 1, max: LIMIT + 1 }, ..Controls::default() },
    ];
    for (i, controls) in not_inline.into_iter().enumerate() {
        assert!(!created(&client, &format!("c{i}"), controls).1, "case {i}");
    }
    assert!(created(&client, "durable", Controls { persistence: Some(Persistence::Durable), ..Controls::default() }).1);
}

#[test]
fn b3_what_a_whole_batch_has_staged_is_not_in_the_record() {
    let rig = rig();
    let client = rig.in_workspace();
    let (with, op_with) = client.create_op(Uuid::NIL, "with");
    let (without, op_without) = client.create_op(Uuid::NIL, "without");
    let batch = iov_store::seam::new_uuid();
    client.bytes(with).staged(batch).write(0, b"staged").unwrap();
    client.all(vec![op_with, op_without], batch, &[with]).unwrap();
    assert!(!client.open(with).unwrap().inline);
    assert_eq!(client.bytes(with).read().unwrap(), b"staged");
    assert!(client.open(without).unwrap().inline);
    let write = CatalogOp::Write { ws: client.ws, uuid: without, offset: 0, data: vec![1] };
    let batch = iov_store::seam::new_uuid();
    assert!(client.all(vec![write], batch, &[]).unwrap().pop().unwrap().is_err());
}

#[test]
fn p2_bytes_in_records_survive_a_crash_of_the_catalog() {
    let rig = rig();
    let client = rig.in_workspace();
    let (kept, _) = created(&client, "kept", Controls::default());
    let (moved, _) = created(&client, "moved", Controls::default());
    write(&client, kept, 0, b"kept").unwrap();
    write(&client, moved, 0, b"moved").unwrap();
    // A move that was cut off leaves an object whose bytes mean nothing.
    client.bytes(kept).write(0, b"half a move").unwrap();
    rig.service.at_target(&client.cx(), moved).unwrap();
    let ws = client.ws;
    drop(client);
    let rig = Rig::over(rig.store, rig.heap, inline_options()).unwrap();
    let client = Client { ws, ..rig.client() };
    assert_eq!(client.stat(kept).unwrap().bytes, 4);
    assert!(client.open(kept).unwrap().inline);
    assert_eq!(read(&client, kept).unwrap(), b"kept");
    assert!(!client.bytes(kept).exists(), "what the crash left is gone");
    assert!(!client.open(moved).unwrap().inline);
    assert_eq!(client.bytes(moved).read().unwrap(), b"moved");
    // A store that was told to keep nothing in records still reads what it finds there.
    drop(client);
    let rig = Rig::over(rig.store, rig.heap, options()).unwrap();
    let client = Client { ws, ..rig.client() };
    client.open(kept).unwrap();
    assert_eq!(read(&client, kept).unwrap(), b"kept");
    assert_eq!(write(&client, kept, 0, b"next").unwrap(), CatalogReply::Moved);
    assert_eq!(client.bytes(kept).read().unwrap(), b"kept");
}

#[test]
fn o10_a_deleted_one_is_read_and_written_by_who_has_it_open() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", Controls::default());
    write(&client, uuid, 0, b"12345").unwrap();
    client.delete(Uuid::NIL, "a").unwrap();
    write(&client, uuid, 5, b"6").unwrap();
    assert_eq!(read(&client, uuid).unwrap(), b"123456");
    let gone = client.other().ask(CatalogOp::Read { ws: client.ws, uuid, offset: 0, len: 9 });
    assert_eq!(kind(gone), Kind::NotFound);
    client.close(uuid).unwrap();
    assert_eq!((rig.keys(b'C'), rig.keys(b'R')), (vec![], vec![]));
}

#[test]
fn only_an_open_for_writing_writes() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", Controls::default());
    assert_eq!(kind(write(&client.other(), uuid, 0, b"x")), Kind::Stale);
    let replies = client
        .submit(
            vec![
                CatalogOp::Write { ws: client.ws, uuid, offset: 0, data: b"one".to_vec() },
                CatalogOp::Read { ws: client.ws, uuid, offset: 1, len: 9 },
                CatalogOp::Write { ws: client.ws, uuid, offset: u64::MAX, data: b"one".to_vec() },
            ],
            Submission::Each,
        )
        .unwrap();
    assert_eq!(replies[1].as_ref().unwrap(), &CatalogReply::Bytes(b"ne".to_vec()), "in order (O9)");
    assert_eq!(replies[2].as_ref().unwrap(), &CatalogReply::Moved);
}

#[test]
fn m2_a_move_of_sealed_bytes_that_was_cut_off_is_repeated() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", immutable());
    write(&client, uuid, 0, b"12345").unwrap();
    client.seal(uuid).unwrap();
    // All but the record was changed.
    client.bytes(uuid).write(0, b"12345").unwrap();
    rig.service.core.targets().seal(&client.cx(), Uuid::NIL, iov_types::Place::FIRST.whole(uuid), 0).unwrap();
    rig.service.at_target(&client.cx(), uuid).unwrap();
    assert_eq!(client.bytes(uuid).read().unwrap(), b"12345");
    assert_eq!(kind(client.bytes(uuid).write(0, b"x")), Kind::Immutable);
}

#[test]
fn x1_a_move_behind_a_fence_that_was_not_recorded_goes_on() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", Controls::default());
    write(&client, uuid, 0, b"12345").unwrap();
    // An exclusive open whose commit failed.
    rig.service.core.targets().fence(&client.cx(), Uuid::NIL, iov_types::Place::FIRST.whole(uuid), 2).unwrap();
    rig.service.at_target(&client.cx(), uuid).unwrap();
    assert_eq!(client.bytes(uuid).read().unwrap(), b"12345");
}

#[test]
fn o10_an_object_made_for_a_first_hold_goes_with_the_record() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", Controls::default());
    write(&client, uuid, 0, b"12345").unwrap();
    client.close(uuid).unwrap();
    client.open_exclusive(uuid, EntryKind::Collection).unwrap();
    assert!(client.bytes(uuid).exists(), "the fence has made it");
    client.close(uuid).unwrap();
    client.delete(Uuid::NIL, "a").unwrap();
    assert!(!client.bytes(uuid).exists());
}

#[test]
fn p3_a_handle_that_asks_for_more_than_the_collection_uses_the_target() {
    let rig = rig();
    let client = rig.in_workspace();
    let plain = Controls { persistence: Some(Persistence::Process), ..Controls::default() };
    let durable = Controls { persistence: Some(Persistence::Durable), ..Controls::default() };
    let (uuid, inline) = created(&client, "a", plain);
    assert!(inline);
    let open = |uuid, controls| client.open_with(iov_types::Which::Uuid(uuid), EntryKind::Collection, controls);
    assert!(!open(uuid, durable.clone()).unwrap().inline);
    let (uuid, _) = created(&client, "b", durable.clone());
    assert!(open(uuid, durable).unwrap().inline);
}

/// Moves a collection while step `n` fails, and returns whether it was reached.
fn move_that_fails(n: i64, how: Fails, crashes: bool, sealed: bool) -> bool {
    let fragile = Fragile::new();
    let rig = fragile.open_with(inline_options());
    let client = rig.in_workspace();
    let controls = if sealed { immutable() } else { Controls::default() };
    let (uuid, _) = created(&client, "a", controls);
    write(&client, uuid, 0, b"12345").unwrap();
    if sealed {
        client.seal(uuid).unwrap();
    }
    fragile.fuse.set(n, how);
    let moved = rig.service.at_target(&client.cx(), uuid);
    let reached = fragile.fuse.left() <= 0;
    fragile.fuse.mend();
    let what = format!("step {n} {how:?}, crash {crashes}, sealed {sealed}: {moved:?}");
    let (rig, client) = if crashes {
        let ws = client.ws;
        drop((client, rig));
        let rig = fragile.open_with(inline_options());
        let client = Client { ws, ..rig.client() };
        client.open(uuid).unwrap();
        (rig, client)
    } else {
        (rig, client)
    };
    assert_eq!(client.stat(uuid).unwrap().bytes, 5, "{what}");
    if let Some(bytes) = read(&client, uuid) {
        assert_eq!(bytes, b"12345", "{what}");
    }
    rig.service.at_target(&client.cx(), uuid).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(client.bytes(uuid).read().unwrap(), b"12345", "{what}");
    assert_eq!(client.bytes(uuid).write(5, b"6").is_err(), sealed, "{what}");
    assert_eq!(client.stat(uuid).unwrap().bytes, if sealed { 5 } else { 6 }, "{what}");
    reached
}

#[test]
fn p2_a_move_that_fails_at_any_step_loses_nothing_and_can_be_repeated() {
    for sealed in [false, true] {
        for how in [Fails::Before, Fails::After, Fails::Once] {
            for crashes in [false, true] {
                let steps = (1..20).take_while(|n| move_that_fails(*n, how, crashes, sealed)).count();
                assert!((3..15).contains(&steps), "{steps} steps {how:?}");
            }
        }
    }
}

#[test]
fn a_move_that_fails_leaves_no_object_to_outlive_the_collection() {
    for n in 1.. {
        let fragile = Fragile::new();
        let rig = fragile.open_with(inline_options());
        let client = rig.in_workspace();
        let (uuid, _) = created(&client, "a", Controls::default());
        write(&client, uuid, 0, b"12345").unwrap();
        fragile.fuse.set(n, Fails::Once);
        let moved = rig.service.at_target(&client.cx(), uuid);
        let reached = fragile.fuse.left() <= 0;
        fragile.fuse.mend();
        client.close(uuid).unwrap();
        client.delete(Uuid::NIL, "a").unwrap();
        // After a commit of unknown outcome the object may be the only place where the bytes are.
        let unknown = moved.as_ref().is_err_and(|e| e.to_string().contains("at a commit"));
        assert!(unknown || !client.bytes(uuid).exists(), "step {n}: {moved:?}");
        if !reached {
            return;
        }
    }
}

#[test]
fn c1_an_open_tells_what_a_stat_and_a_read_would() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", Controls::default());
    write(&client, uuid, 0, b"hello").unwrap();
    let told = |client: &Client, name: &str, most: u64| {
        let which = Which::Name(super::rig::name(name));
        let (ws, parent, kind) = (client.ws, Uuid::NIL, EntryKind::Collection);
        let open = CatalogOp::Open { ws, parent, which, kind, controls: Controls::default(), tell: Some(most) };
        match client.ask(open).unwrap() {
            CatalogReply::Opened(opened) => opened.told,
            other => panic!("an open was answered by {other:?}"),
        }
    };
    // Also while somebody writes it: the record has all of it.
    let other = client.other();
    let first = told(&other, "a", 5).unwrap();
    assert_eq!((first.bytes, first.stat), (Some(b"hello".to_vec()), other.stat(uuid).unwrap()));
    write(&client, uuid, 5, b" world").unwrap();
    let second = told(&other, "a", 5).unwrap();
    assert_eq!((second.bytes, second.stat.bytes), (None, 11), "more than was asked for");
    assert_eq!(told(&other, "a", 11).unwrap().bytes, Some(b"hello world".to_vec()));
    // What a target has, it alone can tell while somebody writes there, and its bytes at any time.
    let (large, _) = created(&client, "b", Controls::default());
    client.ask(CatalogOp::MoveOut { ws: client.ws, uuid: large }).unwrap();
    assert!(told(&other, "b", 1 << 20).is_none());
    client.close_written(large).unwrap();
    other.close(large).unwrap();
    let closed = told(&client.other(), "b", 1 << 20).unwrap();
    assert_eq!((closed.bytes, closed.stat), (None, client.stat(large).unwrap()));
    // Of what is read as a whole by readers of publications nothing comes along.
    let whole = Controls { atomicity: Some(Atomicity::Publication), ..Controls::default() };
    let (published, inline) = created(&client, "c", whole);
    assert!(!inline);
    client.close_written(published).unwrap();
    assert_eq!(told(&other, "c", 100).unwrap().bytes, None);
}

#[test]
fn c3_a_close_behind_a_write_that_has_to_be_made_elsewhere_waits_for_it() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", Controls::default());
    let ws = client.ws;
    let write = |len: u64| CatalogOp::Write { ws, uuid, offset: 0, data: vec![7; len as usize] };
    let close = || CatalogOp::Close { ws, uuid, published: None };
    let replies = client.submit(vec![write(limits::WRITE_THROUGH + 1), close()], Submission::Each).unwrap();
    assert_eq!(replies[0], Ok(CatalogReply::Moved));
    assert_eq!(kind(replies[1].clone()), Kind::Busy, "it is open, to be written at its target");
    client.close_written(uuid).unwrap();
    let (uuid, _) = created(&client, "b", Controls::default());
    let write = CatalogOp::Write { ws, uuid, offset: 0, data: vec![7; 9] };
    let close = CatalogOp::Close { ws, uuid, published: None };
    let replies = client.submit(vec![write, close.clone()], Submission::Each).unwrap();
    assert_eq!(replies, [Ok(CatalogReply::Done), Ok(CatalogReply::Done)]);
    assert_eq!((read(&client, uuid).unwrap().len(), kind(client.ask(close))), (9, Kind::Stale));
}
