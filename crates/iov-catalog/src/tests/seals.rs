//! Sealing (M2, T11).

use iov_types::{
    Attr, Clause, Concurrency, Controls, EntryKind, Kind, Mutability, State, Uuid, Value,
    catalog::{CatalogOp, Submission},
};

use super::rig::{Rig, SECOND, UID, exclusive, immutable, kind};

const ROOT: Uuid = Uuid::NIL;
const COLLECTION: EntryKind = EntryKind::Collection;

fn exclusive_immutable() -> Controls {
    Controls {
        concurrency: Some(Concurrency::Exclusive),
        mutability: Some(Mutability::Immutable),
        ..Controls::default()
    }
}

#[test]
fn m2_a_sealed_collection_is_fixed_at_the_target_and_keeps_its_metadata_open() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, op) = client.create_with(COLLECTION, ROOT, "a", immutable());
    client.ask(op).unwrap();
    assert_eq!(client.stat(uuid).unwrap().state, Some(State::Staging));
    client.bytes(uuid).write(0, b"final").unwrap();
    client.seal(uuid).unwrap();
    client.seal(uuid).unwrap();
    assert_eq!(kind(client.bytes(uuid).write(0, b"x")), Kind::Immutable);
    let stat = client.stat(uuid).unwrap();
    assert_eq!((stat.state, stat.bytes), (Some(State::Sealed), 5));
    client.close_written(uuid).unwrap();
    assert!(!client.open(uuid).unwrap().writable);
    let refused = client.ask(client.publish_op(uuid)).unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::Immutable, Some(Clause::M2)));
    client.ask(client.put_op(uuid, "k", Value::I64(1))).unwrap();
    let attr = Attr { mtime_ns: Some(77), ..Attr::default() };
    client.ask(CatalogOp::SetAttr { ws: client.ws, uuid, attr }).unwrap();
    assert_eq!(client.stat(uuid).unwrap().mtime_ns, 77);
    client.close(uuid).unwrap();
    client.delete(ROOT, "a").unwrap();
    assert!(!client.bytes(uuid).exists());
}

#[test]
fn m2_what_was_never_written_can_be_sealed_and_stays_empty() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, op) = client.create_with(COLLECTION, ROOT, "a", immutable());
    client.ask(op).unwrap();
    client.seal(uuid).unwrap();
    assert_eq!(kind(client.bytes(uuid).write(0, b"x")), Kind::Immutable);
    assert_eq!(client.stat(uuid).unwrap().bytes, 0);
    let group = client.group(ROOT, "g");
    assert_eq!(kind(client.seal(group)), Kind::Invalid);
    assert_eq!(kind(client.seal(ROOT)), Kind::Invalid);
}

#[test]
fn m2_immutable_and_exclusive_seals_at_the_last_close() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, op) = client.create_with(COLLECTION, ROOT, "a", exclusive_immutable());
    client.ask(op).unwrap();
    client.open(uuid).unwrap();
    client.bytes(uuid).under(1).write(0, b"abc").unwrap();
    client.close_written(uuid).unwrap();
    assert_eq!(client.stat(uuid).unwrap().state, Some(State::Staging), "one handle is left");
    client.close(uuid).unwrap();
    let stat = client.stat(uuid).unwrap();
    assert_eq!((stat.state, stat.bytes), (Some(State::Sealed), 3));
    assert_eq!(kind(client.bytes(uuid).write(0, b"x")), Kind::Immutable);
    let (a, b) = (client.other(), client.other());
    a.open(uuid).unwrap();
    b.open(uuid).unwrap();
    assert_eq!(kind(b.open_exclusive(uuid, COLLECTION)), Kind::Busy, "who asks for it is alone");
}

#[test]
fn m2_shared_immutable_is_not_sealed_by_a_close() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, op) = client.create_with(COLLECTION, ROOT, "a", immutable());
    client.ask(op).unwrap();
    client.close(uuid).unwrap();
    assert_eq!(client.stat(uuid).unwrap().state, Some(State::Staging));
    assert!(client.open(uuid).unwrap().writable);
}

#[test]
fn m2_what_a_dead_writer_left_unsealed_is_its_owners_for_24_hours() {
    let rig = Rig::new();
    let client = rig.in_workspace_with(super::access::for_everybody(iov_types::Right::Write));
    let writer = client.as_user(UID + 1);
    let (uuid, op) = writer.create_with(COLLECTION, ROOT, "a", exclusive_immutable());
    writer.ask(op).unwrap();
    writer.bytes(uuid).under(1).write(0, b"half").unwrap();
    rig.service.end_session(writer.caller.session);
    let stranger = client.as_user(UID + 2);
    for result in [stranger.stat(uuid).map(drop), stranger.open(uuid).map(drop)] {
        let hidden = result.unwrap_err();
        assert_eq!((hidden.kind(), hidden.clause()), (Kind::NotFound, Some(Clause::M2)));
    }
    assert!(stranger.find("iov.size >= 0").is_empty());
    assert_eq!(client.stat(uuid).unwrap().bytes, 4, "an administrator sees it");
    let again = writer.other();
    assert_eq!(again.find("iov.size >= 0"), [uuid]);
    assert_eq!(again.open(uuid).unwrap().state, State::Staging);
    again.close(uuid).unwrap();
    assert_eq!(stranger.stat(uuid).unwrap().state, Some(State::Sealed), "taken up and finished");

    let (lost, op) = again.create_with(COLLECTION, ROOT, "b", exclusive_immutable());
    again.ask(op).unwrap();
    again.bytes(lost).under(1).write(0, b"half").unwrap();
    rig.service.end_session(again.caller.session);
    rig.later(23 * 3600 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    client.stat(lost).unwrap();
    rig.later(2 * 3600 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    assert_eq!(kind(client.stat(lost)), Kind::NotFound);
    assert!(!client.bytes(lost).exists());
    assert!(rig.keys(b'A').is_empty());
    client.stat(uuid).unwrap();
}

#[test]
fn m2_a_dry_run_seals_and_fences_nothing() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, op) = client.create_with(COLLECTION, ROOT, "a", immutable());
    client.ask(op).unwrap();
    let seal = CatalogOp::Seal { ws: client.ws, uuid, published: Default::default() };
    client.submit(vec![seal], Submission::DryRun).unwrap().pop().unwrap().unwrap();
    client.bytes(uuid).write(0, b"still").unwrap();
    client.close(uuid).unwrap();
    let which = iov_types::Which::Uuid(uuid);
    let open =
        CatalogOp::Open { ws: client.ws, parent: ROOT, which, kind: COLLECTION, controls: exclusive(), tell: None };
    client.submit(vec![open], Submission::DryRun).unwrap().pop().unwrap().unwrap();
    client.bytes(uuid).under(1).write(0, b"still").unwrap();
    client.other().open(uuid).unwrap();
}

#[test]
fn t11_a_write_that_races_a_seal_is_in_it_or_fails() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    for round in 0..30 {
        let (uuid, op) = client.create_with(COLLECTION, ROOT, &format!("a{round}"), immutable());
        client.ask(op).unwrap();
        let written = std::thread::scope(|s| {
            let data = client.bytes(uuid);
            let writer = s.spawn(move || (0..200u64).take_while(|i| data.write(*i, b"x").is_ok()).count() as u64);
            client.seal(uuid).unwrap();
            writer.join().unwrap()
        });
        assert_eq!(client.stat(uuid).unwrap().bytes, written);
        client.close(uuid).unwrap();
    }
}
