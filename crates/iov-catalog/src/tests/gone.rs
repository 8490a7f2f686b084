//! Sessions that die with something open at a target that is away, perhaps for good.

use iov_types::{
    EntryKind, Kind, Lifetime, Place, Uuid, Which,
    catalog::{CatalogOp, CatalogReply},
};

use super::{
    away::Fixture,
    rig::{Client, SECOND, kind},
};

const ROOT: Uuid = Uuid::NIL;

/// What a client has made, and has open.
fn made(client: &Client, (uuid, mut op): (Uuid, CatalogOp), lifetime: Option<Lifetime>) -> (Uuid, Place) {
    let CatalogOp::Create { attr, .. } = &mut op else { unreachable!() };
    attr.lifetime = lifetime;
    let CatalogReply::Opened(opened) = client.ask(op).unwrap() else { unreachable!() };
    (uuid, opened.layout.place)
}

/// One file at a target that is gone for good keeps nothing else of a session that has died: what it had at others is free, goes
/// when its time is over, and gives its space back (O10, O11, X1).
#[test]
fn o10_a_target_that_is_gone_keeps_nothing_of_a_dead_session_at_others() {
    let f = Fixture::new();
    let died = f.client.other();
    let here = |text: &str, lifetime| made(&died, f.create_at(0, text, Default::default()), lifetime);
    let leased = here("leased", Some(Lifetime::lease(60 * SECOND as u64)));
    let bound = here("bound", Some(Lifetime::PROCESS));
    let (deleted, shared, held) = (here("deleted", None), here("shared", None), here("held", None));
    for one in [leased, bound, deleted, shared, held] {
        f.write(one, b"12345");
    }
    died.close(held.0).unwrap();
    died.open_exclusive(held.0, EntryKind::Collection).unwrap();
    died.delete(ROOT, "deleted").unwrap();
    let lost: Vec<_> =
        (0..9).map(|n| made(&died, f.create_op(&format!("lost{n}"), Default::default()), None)).collect();
    lost.iter().for_each(|one| f.write(*one, b"12345"));
    f.is_away(true);
    let asked = f.client.service.stats().target_operations;
    f.client.service.end_session(died.caller.session);
    assert!(f.client.service.stats().target_operations - asked < 9, "it is asked once");
    assert!(!f.client.service.has_open(died.caller.session));
    assert!(!f.client.bytes(deleted.0).exists(), "nobody has it open");
    for (uuid, _) in [shared, held] {
        f.client.open_exclusive(uuid, EntryKind::Collection).expect("nobody has it open");
        f.client.close(uuid).unwrap();
        assert_eq!(f.client.stat(uuid).unwrap().bytes, 5);
    }
    assert_eq!(kind(f.client.stat(bound.0)), Kind::NotFound);
    f.later(59 * SECOND);
    f.client.stat(leased.0).unwrap();
    f.later(2 * SECOND);
    f.later(2 * SECOND);
    assert_eq!(kind(f.client.stat(leased.0)), Kind::NotFound);
    for text in ["shared", "held"].into_iter().map(String::from).chain((0..9).map(|n| format!("lost{n}"))) {
        f.client.delete(ROOT, &text).unwrap();
    }
    f.client.ask(CatalogOp::WorkspaceDelete { which: Which::Uuid(f.client.ws) }).unwrap();
    f.later(2 * SECOND);
    assert!(f.client.service.core.writer().unended.is_empty());
}

/// Once the target is back what was written is as long as it is, and what was left unsealed is told of (M2).
#[test]
fn m2_a_writer_that_dies_while_its_target_is_away_is_told_of_when_that_is_back() {
    let f = Fixture::new();
    let (staged, open) = (f.staging("staged"), f.create("open"));
    f.write(open, b"12345");
    f.is_away(true);
    f.client.service.end_session(f.client.caller.session);
    f.later(2 * SECOND);
    f.later(2 * SECOND);
    let other = f.client.other();
    assert_eq!((f.abandoned(), kind(other.stat(open.0))), (0, Kind::Unavailable));
    f.is_away(false);
    f.later(2 * SECOND);
    assert_eq!(f.abandoned(), 1);
    f.is_away(true);
    assert_eq!([staged, open.0].map(|uuid| other.stat(uuid).unwrap().bytes), [5, 5], "they are written down");
    assert!(f.client.service.core.writer().unended.is_empty());
}

/// Also where the catalog dies before that.
#[test]
fn m2_a_writer_that_died_while_its_target_was_away_is_told_of_behind_a_crash() {
    let f = Fixture::new();
    let (died, uuid) = (f.client.other(), f.staging("staged"));
    f.client.close_written(uuid).unwrap();
    died.open(uuid).unwrap();
    f.is_away(true);
    f.client.service.end_session(died.caller.session);
    f.is_away(false);
    f.client.open(uuid).unwrap();
    f.client.close(uuid).unwrap();
    let f = f.restart();
    assert_eq!(f.abandoned(), 0, "another has taken it up, and closed it");
    f.client.open(uuid).unwrap();
    f.is_away(true);
    f.client.service.end_session(f.client.caller.session);
    f.is_away(false);
    let f = f.restart();
    assert_eq!(f.abandoned(), 1);
}

/// Who writes beside one that dies, or takes up what that has left, and closes it in order leaves nothing behind.
#[test]
fn m2_what_others_go_on_to_write_is_not_abandoned() {
    let f = Fixture::new();
    let [beside, behind] = ["beside", "behind"].map(|text| f.staging(text));
    let other = f.client.other();
    other.open(beside).unwrap();
    f.is_away(true);
    f.client.service.end_session(f.client.caller.session);
    other.open(behind).unwrap();
    [beside, behind].into_iter().for_each(|uuid| drop(other.close_written(uuid).unwrap()));
    f.is_away(false);
    f.later(2 * SECOND);
    assert_eq!(f.abandoned(), 0);
    assert!(!f.client.service.has_open(Uuid::NIL) && f.client.service.core.writer().unended.is_empty());
    assert_eq!([beside, behind].map(|uuid| other.stat(uuid).unwrap().bytes), [5, 5]);
}
