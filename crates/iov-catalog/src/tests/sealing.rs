//! What was closed behind a crash and is still to be sealed, while much else happens (M2, X1).

use iov_types::{EntryKind, Kind, Place, State, Uuid, catalog::CatalogReply};

use super::{
    away::Fixture,
    parted::{GRACE, joined, pair, present, sealed_by_close, staged, state},
    resume::{crash, rig},
    rig::{Client, Rig, SECOND, kind},
};
use crate::{keys, map::FIRST_ELSEWHERE};

const COLLECTION: EntryKind = EntryKind::Collection;

fn left(rig: &Rig) -> usize {
    rig.service.core.store().scan(&iov_store::KeyRange::prefix(keys::TO_SEAL), None, 9).unwrap().len()
}

/// Closed by one of a pair behind a crash, and taken up again by the other one.
fn taken_up(rig: Rig, pair: [Client; 2], (uuid, epoch): (Uuid, u64)) -> (Rig, [Client; 2]) {
    let (rig, [one, two]) = crash(rig, GRACE, pair);
    present(&one, uuid, epoch);
    one.close_written(uuid).unwrap();
    assert_eq!(left(&rig), 1);
    present(&two, uuid, epoch);
    (rig, [one, two])
}

#[test]
fn x1_who_takes_over_what_was_to_be_sealed_comes_back_to_it_behind_the_next_crash() {
    let rig = rig();
    let pair = pair(&rig);
    let (uuid, epoch) = staged(&pair, "a");
    let (rig, [one, _two]) = taken_up(rig, pair, (uuid, epoch));
    rig.service.end_session(one.caller.session);
    // The other one stands still for longer than its lease.
    rig.later(2 * GRACE);
    let next = one.other();
    let taken = next.open_exclusive(uuid, COLLECTION).unwrap().epoch;
    assert_eq!((left(&rig), taken > epoch), (0, true));
    let (_rig, [next]) = crash(rig, GRACE, [next]);
    present(&next, uuid, taken);
    next.bytes(uuid).under(taken).write(0, b"new").unwrap();
    next.close_written(uuid).unwrap();
}

#[test]
fn m2_what_is_sealed_or_removed_meanwhile_is_not_to_be_sealed_any_more() {
    for removes in [false, true] {
        let rig = rig();
        let pair = pair(&rig);
        let made = staged(&pair, "a");
        let (rig, [one, two]) = taken_up(rig, pair, made);
        match removes {
            false => two.seal(made.0).map(drop).unwrap(),
            true => two.delete(Uuid::NIL, "a").map(drop).unwrap(),
        }
        two.close(made.0).unwrap();
        rig.service.end_grace().unwrap();
        assert_eq!(left(&rig), 0, "{removes}");
        let (_rig, [one, _two]) = crash(rig, GRACE, [one, two]);
        if !removes {
            one.other().open(made.0).expect("it is sealed");
        }
    }
}

/// Who has lost it keeps nothing from being sealed.
#[test]
fn m2_a_handle_that_is_fenced_is_in_nobodys_way() {
    let rig = rig();
    let first = rig.in_workspace();
    let (uuid, op) = first.create_with(COLLECTION, Uuid::NIL, "a", sealed_by_close());
    let CatalogReply::Opened(old) = first.ask(op).unwrap() else { panic!() };
    rig.later(2 * GRACE);
    let pair = joined(first.other());
    let epoch = pair.each_ref().map(|client| client.open_exclusive(uuid, COLLECTION).unwrap().epoch)[0];
    pair[0].bytes(uuid).under(epoch).write(0, b"one").unwrap();
    let [one, two] = pair;
    let (rig, [first, one, two]) = crash(rig, GRACE, [first, one, two]);
    present(&one, uuid, epoch);
    one.close_written(uuid).unwrap();
    assert_eq!(kind(super::resume::resume(&first, super::resume::presented(&first, uuid, old.epoch))), Kind::Fenced);
    rig.service.end_session(two.caller.session);
    rig.service.end_grace().unwrap();
    assert_eq!((state(&one, uuid), left(&rig)), (Some(State::Sealed), 0));
}

/// What one of a pair has closed behind a crash, every second at the other daemon, for a grace that the other one lets pass.
fn closed(many: usize) -> (Fixture, Client, Vec<Uuid>) {
    let (f, one, made) = closed_at(many, [0, FIRST_ELSEWHERE]);
    (f, one, made.into_iter().map(|(uuid, _)| uuid).collect())
}

/// The same at two targets in turn.
pub(super) fn closed_at(many: usize, targets: [u32; 2]) -> (Fixture, Client, Vec<(Uuid, Place)>) {
    let f = Fixture::new().of_one_user(0);
    let [one, two] = joined(f.again(f.client.caller.clone()));
    let mut made = Vec::new();
    for n in 0..many {
        let (uuid, op) = f.create_at(targets[n % 2], &n.to_string(), sealed_by_close());
        let CatalogReply::Opened(opened) = one.ask(op).unwrap() else { panic!() };
        two.open_exclusive(uuid, COLLECTION).unwrap();
        f.write((uuid, opened.layout.place), b"12345");
        made.push((uuid, opened.epoch, opened.layout.place));
    }
    let callers = [one.caller.clone(), two.caller.clone()];
    drop((one, two));
    let f = f.of_one_user(GRACE);
    let [one, _two] = callers.map(|caller| f.again(caller));
    for (uuid, epoch, _) in &made {
        present(&one, *uuid, *epoch);
        one.close_written(*uuid).unwrap();
    }
    (f, one, made.into_iter().map(|(uuid, _, place)| (uuid, place)).collect())
}

fn sealed<'a>(client: &Client, uuids: impl Iterator<Item = &'a Uuid>) -> usize {
    uuids.filter(|uuid| state(client, **uuid) == Some(State::Sealed)).count()
}

#[test]
fn m2_a_target_that_is_away_keeps_nothing_elsewhere_from_being_sealed() {
    let (f, one, made) = closed(140);
    f.is_away(true);
    f.later(GRACE + SECOND);
    assert_eq!(sealed(&one, made.iter().step_by(2)), 70);
    let other = one.other();
    other.open(made[0]).unwrap();
    assert_eq!(kind(other.open_exclusive(made[1], COLLECTION)), Kind::Busy);
    // Its target is there again, and nobody waits for longer.
    f.is_away(false);
    f.client.service.go_on();
    assert_eq!(sealed(&one, made.iter()), made.len());
}

/// Everybody waits while it is asked: so it is once, and then not for a while.
#[test]
fn m2_a_target_that_hangs_is_waited_for_once_in_a_round() {
    let (f, one, made) = closed(260);
    f.hangs();
    f.waited();
    f.later(GRACE + SECOND);
    assert_eq!(f.waited(), 1);
    f.later(SECOND / 10);
    assert_eq!(f.waited(), 0, "others are let in first");
    f.later(2 * SECOND);
    (0..9).for_each(|_| f.later(SECOND / 10));
    assert_eq!((f.waited(), sealed(&one, made.iter().step_by(2))), (0, 130), "it is waited for no more");
    f.later(5 * SECOND);
    (0..9).for_each(|_| f.later(SECOND / 10));
    assert_eq!(f.waited(), 1, "in the next round");
    f.is_away(false);
    f.client.service.go_on();
    assert_eq!(sealed(&one, made.iter()), made.len());
}

#[test]
fn m2_a_target_that_hangs_in_what_it_is_to_seal_is_waited_for_once_in_a_round() {
    let (f, one, made) = closed(260);
    f.sticks(true);
    f.later(GRACE + SECOND);
    assert_eq!(f.waited(), 1);
    f.later(2 * SECOND);
    (0..9).for_each(|_| f.later(SECOND / 10));
    assert_eq!((f.waited(), sealed(&one, made.iter().step_by(2))), (0, 130), "nothing more is put there");
    // Whoever writes goes on with it, but not each of them.
    for n in 0..9 {
        one.create_in(Uuid::NIL, &format!("new{n}"));
    }
    assert!(f.waited() <= 1, "{}", f.waited());
    f.sticks(false);
    f.client.service.go_on();
    assert_eq!(sealed(&one, made.iter()), made.len());
}

/// What who came back to it left as he died is kept for his owner, also where its target could not be asked then.
#[test]
fn m2_what_a_writer_left_whose_target_was_away_as_he_died_is_not_sealed() {
    let f = Fixture::new().of_one_user(0);
    let [one, two] = joined(f.again(f.client.caller.clone()));
    let (uuid, op) = f.create_at(FIRST_ELSEWHERE, "a", sealed_by_close());
    let CatalogReply::Opened(opened) = one.ask(op).unwrap() else { panic!() };
    two.open_exclusive(uuid, COLLECTION).unwrap();
    f.write((uuid, opened.layout.place), b"12345");
    let callers = [one.caller.clone(), two.caller.clone()];
    drop((one, two));
    let f = f.of_one_user(GRACE);
    let [one, two] = callers.map(|caller| f.again(caller));
    present(&one, uuid, opened.epoch);
    one.close_written(uuid).unwrap();
    present(&two, uuid, opened.epoch);
    f.is_away(true);
    f.client.service.end_session(two.caller.session);
    f.later(GRACE + SECOND);
    f.is_away(false);
    f.client.service.go_on();
    (0..9).for_each(|_| f.later(10 * SECOND));
    assert_eq!((state(&one, uuid), f.abandoned()), (Some(State::Staging), 1));
}
