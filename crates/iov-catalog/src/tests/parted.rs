//! Holds of several sessions, some of which have come back behind a crash and have closed before the others are there (X1, X2, M2).

use iov_types::{
    Concurrency, Controls, EntryKind, Kind, State, Uuid,
    catalog::{CatalogOp, CatalogReply, Presented},
};

use super::{
    resume::{crash, presented, resume, rig},
    rig::{Client, Rig, SECOND, exclusive, immutable, kind},
};

const COLLECTION: EntryKind = EntryKind::Collection;
const GROUP: EntryKind = EntryKind::Group;
const ROOT: Uuid = Uuid::NIL;
pub(super) const GRACE: i64 = 30 * SECOND;

/// A session, and one that has joined it.
pub(super) fn pair(rig: &Rig) -> [Client; 2] {
    joined(rig.in_workspace())
}

/// A session, and one that joins it.
pub(super) fn joined(founder: Client) -> [Client; 2] {
    let CatalogReply::Token(token) = founder.ask(CatalogOp::TokenExport).unwrap() else { panic!() };
    let mut joined = founder.other();
    joined.ask(CatalogOp::TokenJoin { token }).unwrap();
    joined.caller.holder = founder.caller.holder;
    [founder, joined]
}

/// Both of a pair have it open, and hold it.
fn hold(pair: &[Client; 2], uuid: Uuid, kind: EntryKind) -> u64 {
    let [one, two] = pair.each_ref().map(|client| client.open_exclusive(uuid, kind).unwrap().epoch);
    assert_eq!(one, two);
    one
}

pub(super) fn present(client: &Client, uuid: Uuid, epoch: u64) {
    resume(client, presented(client, uuid, epoch)).unwrap();
}

fn present_group(client: &Client, uuid: Uuid, epoch: u64) {
    resume(client, Presented { kind: GROUP, writers: 0, ..presented(client, uuid, epoch) }).unwrap();
}

pub(super) fn sealed_by_close() -> Controls {
    Controls { concurrency: Some(Concurrency::Exclusive), ..immutable() }
}

/// What both of a pair write, and which is sealed by its last close.
pub(super) fn staged(pair: &[Client; 2], text: &str) -> (Uuid, u64) {
    let (uuid, op) = pair[0].create_with(COLLECTION, ROOT, text, sealed_by_close());
    let CatalogReply::Opened(opened) = pair[0].ask(op).unwrap() else { panic!() };
    assert_eq!(pair[1].open_exclusive(uuid, COLLECTION).unwrap().epoch, opened.epoch);
    pair[0].bytes(uuid).under(opened.epoch).write(0, b"one").unwrap();
    (uuid, opened.epoch)
}

pub(super) fn state(client: &Client, uuid: Uuid) -> Option<State> {
    client.stat(uuid).unwrap().state
}

#[test]
fn x1_a_collection_is_kept_for_those_of_its_holder_who_are_not_back_yet() {
    let rig = rig();
    let pair = pair(&rig);
    let uuids = ["closed", "left"].map(|text| pair[0].create_in(ROOT, text));
    let epochs = uuids.map(|uuid| hold(&pair, uuid, COLLECTION));
    let (rig, [one, two]) = crash(rig, GRACE, pair);
    let other = one.other();
    uuids.iter().zip(epochs).for_each(|(uuid, epoch)| present(&one, *uuid, epoch));
    one.close_written(uuids[0]).unwrap();
    rig.service.end_session(one.caller.session);
    for (uuid, text) in uuids.into_iter().zip(["closed", "left"]) {
        assert_eq!(kind(other.open(uuid)), Kind::Busy, "{text}");
        assert_eq!(kind(other.open_exclusive(uuid, COLLECTION)), Kind::Busy, "{text}");
        assert_eq!(kind(other.delete(ROOT, text)), Kind::Busy, "{text}");
    }
    for (uuid, epoch) in uuids.into_iter().zip(epochs) {
        present(&two, uuid, epoch);
        two.bytes(uuid).under(epoch).write(0, b"two").unwrap();
        assert_eq!(kind(other.open(uuid)), Kind::Busy);
        two.close_written(uuid).unwrap();
        assert_eq!(kind(other.open(uuid)), Kind::Busy, "there may be a third");
        assert_eq!(two.stat(uuid).unwrap().bytes, 3);
    }
    rig.service.end_grace().unwrap();
    uuids.into_iter().for_each(|uuid| drop(other.open_exclusive(uuid, COLLECTION).unwrap()));
}

/// Nobody waits longer than others could come back.
#[test]
fn x1_who_does_not_come_back_to_a_hold_that_another_has_ended_keeps_it_for_its_lease_alone() {
    let rig = rig();
    let pair = pair(&rig);
    let uuid = pair[0].create_in(ROOT, "a");
    let epoch = hold(&pair, uuid, COLLECTION);
    let (rig, [one, _]) = crash(rig, GRACE, pair);
    present(&one, uuid, epoch);
    one.close(uuid).unwrap();
    let other = one.other();
    assert_eq!(kind(other.open(uuid)), Kind::Busy);
    rig.later(GRACE + SECOND);
    other.open(uuid).unwrap();
}

#[test]
fn m2_what_others_may_come_back_to_write_is_sealed_by_the_last_of_them() {
    let rig = rig();
    let pair = pair(&rig);
    let (uuid, epoch) = staged(&pair, "a");
    let (rig, [one, two]) = crash(rig, GRACE, pair);
    present(&one, uuid, epoch);
    one.close_written(uuid).unwrap();
    present(&two, uuid, epoch);
    two.bytes(uuid).under(epoch).write(3, b"two").unwrap();
    rig.service.end_grace().unwrap();
    assert_eq!(state(&two, uuid), Some(State::Staging));
    two.close_written(uuid).unwrap();
    assert_eq!((state(&two, uuid), two.stat(uuid).unwrap().bytes), (Some(State::Sealed), 6));
}

#[test]
fn m2_what_nobody_comes_back_to_is_sealed_all_the_same() {
    let rig = rig();
    let pair = pair(&rig);
    let [closed, read, taken] = ["closed", "read", "taken"].map(|text| staged(&pair, text));
    let (rig, [one, _]) = crash(rig, GRACE, pair);
    for (uuid, epoch) in [closed, read, taken] {
        present(&one, uuid, epoch);
        one.close_written(uuid).unwrap();
        assert_eq!(state(&one, uuid), Some(State::Staging), "another may have more to write");
    }
    one.open(read.0).unwrap();
    one.close(read.0).unwrap();
    rig.later(GRACE + SECOND);
    let other = one.other();
    assert_eq!(kind(other.open_exclusive(taken.0, COLLECTION)), Kind::Busy, "it was closed, and is about to be sealed");
    rig.service.tick(rig.service.core.monotonic_ns());
    assert_eq!([closed, read, taken].map(|(uuid, _)| state(&one, uuid)), [Some(State::Sealed); 3]);
    assert_eq!(kind(one.bytes(closed.0).under(closed.1).write(0, b"late")), Kind::Immutable);
    other.open(taken.0).unwrap();
}

/// Whatever becomes of the catalog meanwhile.
#[test]
fn m2_what_is_closed_behind_a_crash_is_sealed_behind_the_next_ones_too() {
    for grace in [0, GRACE] {
        let rig = rig();
        let pair = pair(&rig);
        let [closed, taken] = ["closed", "taken"].map(|text| staged(&pair, text));
        let (rig, [one, two]) = crash(rig, GRACE, pair);
        for (uuid, epoch) in [closed, taken] {
            present(&one, uuid, epoch);
            one.close_written(uuid).unwrap();
        }
        let (rig, [one, two]) = crash(rig, GRACE, [one, two]);
        assert_eq!(kind(one.other().open_exclusive(closed.0, COLLECTION)), Kind::Busy);
        // The last close seals, by whomever it was written.
        present(&two, taken.0, taken.1);
        let (rig, [one, two]) = crash(rig, grace, [one, two]);
        if grace > 0 {
            assert_eq!(kind(one.other().open_exclusive(closed.0, COLLECTION)), Kind::Busy);
            present(&two, taken.0, taken.1);
            rig.service.end_grace().unwrap();
            two.close(taken.0).unwrap();
            assert_eq!(state(&one, taken.0), Some(State::Sealed));
        } else {
            assert_eq!(state(&one, taken.0), Some(State::Staging), "its last writer has died");
        }
        assert_eq!(state(&one, closed.0), Some(State::Sealed));
        assert_eq!(kind(one.bytes(closed.0).under(closed.1).write(0, b"late")), Kind::Immutable);
        let left = iov_store::KeyRange::prefix(crate::keys::TO_SEAL);
        assert!(rig.service.core.store().scan(&left, None, 9).unwrap().is_empty());
    }
}

/// A holder of a single session is alone, and what it ends is over at once.
#[test]
fn x1_where_no_token_was_asked_for_a_hold_that_came_back_ends_with_its_session() {
    let rig = rig();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let epoch = client.open_exclusive(group, GROUP).unwrap().epoch;
    let (uuid, op) = client.create_with(COLLECTION, ROOT, "a", sealed_by_close());
    let CatalogReply::Opened(opened) = client.ask(op).unwrap() else { panic!() };
    let (_rig, [client]) = crash(rig, GRACE, [client]);
    present_group(&client, group, epoch);
    present(&client, uuid, opened.epoch);
    client.close(group).unwrap();
    client.close(uuid).unwrap();
    assert_eq!(state(&client, uuid), Some(State::Sealed));
    let other = client.other();
    other.open_exclusive(group, GROUP).unwrap();
    other.close(group).unwrap();
    other.create_in(group, "below");
}

/// What a holder has ended keeps others out, and not itself: with the same epoch, by which others come back.
#[test]
fn x2_a_holder_comes_back_to_what_it_has_ended() {
    let rig = rig();
    let pair = pair(&rig);
    let (uuid, group) = (pair[0].create_in(ROOT, "a"), pair[0].group(ROOT, "g"));
    let epochs = [hold(&pair, uuid, COLLECTION), hold(&pair, group, GROUP), hold(&pair, ROOT, GROUP)];
    let (rig, [one, two]) = crash(rig, GRACE, pair);
    let other = one.other();
    present_group(&one, ROOT, epochs[2]);
    present_group(&one, group, epochs[1]);
    present(&one, uuid, epochs[0]);
    [uuid, group, ROOT].into_iter().for_each(|uuid| drop(one.close(uuid).unwrap()));
    one.create_in(group, "below");
    one.create_in(ROOT, "beside");
    assert_eq!(kind(other.ask(other.create_op(group, "intruder").1)), Kind::Busy);
    assert_eq!(kind(other.open_exclusive(ROOT, GROUP)), Kind::Busy);
    for (uuid, kind, epoch) in [(ROOT, GROUP, epochs[2]), (group, GROUP, epochs[1]), (uuid, COLLECTION, epochs[0])] {
        assert_eq!(one.open_exclusive(uuid, kind).unwrap().epoch, epoch);
    }
    present_group(&two, group, epochs[1]);
    present(&two, uuid, epochs[0]);
    rig.service.end_grace().unwrap();
    one.close(uuid).unwrap();
    assert_eq!(kind(other.open(uuid)), Kind::Busy, "the other one has it");
    two.close(uuid).unwrap();
    one.close(group).unwrap();
    two.close(group).unwrap();
    one.close(ROOT).unwrap();
    other.open_with(iov_types::Which::Uuid(uuid), COLLECTION, exclusive()).unwrap();
    other.create_in(group, "later");
}

/// Also in one submission, and in one that comes to nothing.
#[test]
fn x2_what_is_ended_and_opened_at_once_goes_on() {
    let rig = rig();
    let pair = pair(&rig);
    let group = pair[0].group(ROOT, "g");
    let epoch = hold(&pair, group, GROUP);
    let (_rig, [one, two]) = crash(rig, GRACE, pair);
    present_group(&one, group, epoch);
    let close = CatalogOp::Close { ws: one.ws, uuid: group, published: None };
    let (_, create) = one.create_op(group, "below");
    let (_, fails) = one.create_op(Uuid([9; 16]), "nowhere");
    let batch = iov_store::seam::new_uuid();
    let works = |answer: iov_store::Answer| answer.is_ok_and(|replies| replies.iter().all(Result::is_ok));
    assert!(!works(one.all(vec![close.clone(), fails], batch, &[])));
    assert!(works(one.all(vec![close, create], iov_store::seam::new_uuid(), &[])));
    assert_eq!(kind(one.other().open_exclusive(group, GROUP)), Kind::Busy);
    present_group(&two, group, epoch);
}

/// That sessions act for one another is known behind another crash too, until nobody could come back.
#[test]
fn x1_who_has_joined_another_before_the_last_catalog_is_waited_for_too() {
    let rig = rig();
    let pair = pair(&rig);
    let uuid = pair[0].create_in(ROOT, "a");
    let epoch = hold(&pair, uuid, COLLECTION);
    let (rig, [one, two]) = crash(rig, GRACE, pair);
    let (rig, [one, two]) = crash(rig, GRACE, [one, two]);
    let other = one.other();
    present(&one, uuid, epoch);
    one.close(uuid).unwrap();
    assert_eq!(kind(other.open(uuid)), Kind::Busy);
    present(&two, uuid, epoch);
    two.close(uuid).unwrap();
    let (rig, [one, two]) = crash(rig, 0, [one, two]);
    let epoch = one.open_exclusive(uuid, COLLECTION).unwrap().epoch;
    let (rig, [one, two]) = crash(rig, GRACE, [one, two]);
    present(&one, uuid, epoch);
    one.close(uuid).unwrap();
    one.other().open(uuid).expect("nobody was there to come back");
    drop((rig, two));
}

/// Neither the end of the catalog in order nor a reader's death makes less of it.
#[test]
fn m2_what_is_closed_behind_a_crash_stays_open_to_its_holder_until_nobody_can_come_back() {
    let rig = rig();
    let pair = pair(&rig);
    let [written, read] = ["written", "read"].map(|text| staged(&pair, text));
    let (rig, [one, two]) = crash(rig, GRACE, pair);
    for (uuid, epoch) in [written, read] {
        present(&one, uuid, epoch);
        one.close_written(uuid).unwrap();
    }
    rig.service.close().unwrap();
    let (rig, [one, two]) = crash(rig, GRACE, [one, two]);
    assert_eq!(kind(one.other().open_exclusive(written.0, COLLECTION)), Kind::Busy);
    present(&two, written.0, written.1);
    two.bytes(written.0).under(written.1).write(3, b"two").expect("it has not closed it");
    resume(&two, Presented { writers: 0, ..presented(&two, read.0, read.1) }).unwrap();
    rig.service.end_grace().unwrap();
    assert_eq!([written, read].map(|(uuid, _)| state(&one, uuid)), [Some(State::Staging); 2], "they are in use");
    two.close_written(written.0).unwrap();
    rig.service.end_session(two.caller.session);
    rig.later(61 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    assert_eq!([written, read].map(|(uuid, _)| state(&one, uuid)), [Some(State::Sealed); 2]);
    assert_eq!(one.stat(written.0).unwrap().bytes, 6);
}
