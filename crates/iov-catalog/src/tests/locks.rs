//! Advisory locks (O11).

use iov_types::{
    Clause, Kind, Range, Uuid,
    catalog::{CatalogOp, CatalogReply, LockSpec, Submission},
};

use super::rig::{Client, Later, Rig, SECOND, kind};

const ROOT: Uuid = Uuid::NIL;

fn spec(exclusive: bool, try_only: bool) -> LockSpec {
    LockSpec { exclusive, try_only, range: Range { offset: 0, len: 10 }, owner: 0, lease_ns: 0 }
}

fn lock(client: &Client, uuid: Uuid, exclusive: bool, try_only: bool) -> CatalogOp {
    CatalogOp::Lock { ws: client.ws, uuid, lock: spec(exclusive, try_only) }
}

fn unlock(client: &Client, uuid: Uuid) -> CatalogOp {
    CatalogOp::Unlock { ws: client.ws, uuid, lock: spec(true, false) }
}

/// A collection open in two sessions.
fn two(rig: &Rig) -> (Client, Client, Uuid) {
    let a = rig.in_workspace();
    let b = a.other();
    let uuid = a.create("a");
    b.open(uuid).unwrap();
    (a, b, uuid)
}

#[test]
fn o11_a_lock_is_had_by_one_and_waited_for_by_others() {
    let rig = Rig::new();
    let (a, b, uuid) = two(&rig);
    a.ask(lock(&a, uuid, true, true)).unwrap();
    let busy = b.ask(lock(&b, uuid, false, true)).unwrap_err();
    assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(Clause::O11)));
    let CatalogReply::Lock(found) = b.ask(CatalogOp::LockQuery { ws: b.ws, uuid, lock: spec(false, false) }).unwrap()
    else {
        panic!()
    };
    assert!(found.exclusive && found.range.len == 10);
    let waiting = Later::ask(&b, 5 * SECOND, lock(&b, uuid, true, false));
    assert!(waiting.reply().is_none());
    a.create_in(ROOT, "nobody else waits");
    a.ask(unlock(&a, uuid)).unwrap();
    waiting.reply().unwrap().unwrap();
    assert_eq!(kind(a.ask(lock(&a, uuid, true, true))), Kind::Busy);
    b.ask(unlock(&b, uuid)).unwrap();
    assert_eq!(kind(a.ask(CatalogOp::LockQuery { ws: a.ws, uuid, lock: spec(true, false) })), Kind::NotFound);
}

#[test]
fn o8_a_wait_ends_at_its_deadline_and_the_lock_goes_to_the_next() {
    let rig = Rig::new();
    let (a, b, uuid) = two(&rig);
    let c = a.other();
    c.open(uuid).unwrap();
    a.ask(lock(&a, uuid, true, true)).unwrap();
    let short = Later::ask(&b, SECOND, lock(&b, uuid, true, false));
    let long = Later::ask(&c, 100 * SECOND, lock(&c, uuid, true, false));
    rig.later(2 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    let late = short.reply().unwrap().unwrap_err();
    assert_eq!((late.kind(), late.clause()), (Kind::Timeout, Some(Clause::O11)));
    assert!(long.reply().is_none());
    a.ask(unlock(&a, uuid)).unwrap();
    long.reply().unwrap().unwrap();
}

#[test]
fn o11_locks_end_with_the_last_close_and_with_the_session() {
    let rig = Rig::new();
    for how in ["close", "goodbye", "gone", "left"] {
        let (a, b, uuid) = two(&rig);
        a.ask(lock(&a, uuid, true, true)).unwrap();
        let waiting = Later::ask(&b, 100 * SECOND, lock(&b, uuid, true, false));
        match how {
            "close" => drop(a.close(uuid).unwrap()),
            "goodbye" => drop(a.ask(CatalogOp::Goodbye).unwrap()),
            "gone" => rig.service.end_session(a.caller.session),
            _ => {
                rig.service.leave(a.caller.session);
                assert!(waiting.reply().is_none(), "who may come back keeps it for the lease");
                rig.later(29 * SECOND);
                rig.service.tick(rig.service.core.monotonic_ns());
                assert!(waiting.reply().is_none());
                rig.later(2 * SECOND);
                rig.service.tick(rig.service.core.monotonic_ns());
            }
        }
        waiting.reply().expect(how).unwrap();
    }
}

#[test]
fn o11_who_waits_hears_of_the_end_of_its_own_session() {
    let rig = Rig::new();
    let (a, b, uuid) = two(&rig);
    a.ask(lock(&a, uuid, true, true)).unwrap();
    let waiting = Later::ask(&b, 100 * SECOND, lock(&b, uuid, true, false));
    b.ask(CatalogOp::Goodbye).unwrap();
    assert_eq!(kind(waiting.reply().unwrap()), Kind::Stale);
}

#[test]
fn o11_a_lock_needs_an_open_collection_and_among_others_it_does_not_wait() {
    let rig = Rig::new();
    let (a, b, uuid) = two(&rig);
    let stranger = a.other();
    assert_eq!(kind(stranger.ask(lock(&stranger, uuid, true, true))), Kind::Stale);
    assert_eq!(kind(stranger.ask(lock(&stranger, uuid, true, false))), Kind::Stale);
    let group = a.group(ROOT, "g");
    a.open_with(iov_types::Which::Uuid(group), iov_types::EntryKind::Group, Default::default()).unwrap();
    assert_eq!(kind(a.ask(lock(&a, group, true, true))), Kind::Invalid);
    a.ask(lock(&a, uuid, true, true)).unwrap();
    let ops = vec![CatalogOp::Renew, lock(&b, uuid, true, false), CatalogOp::Renew];
    let replies = b.submit(ops, Submission::Each).unwrap();
    assert_eq!(replies.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(kind(replies[1].clone()), Kind::Busy);
    b.submit(vec![lock(&b, uuid, true, true)], Submission::DryRun).unwrap().pop().unwrap().unwrap_err();
    a.ask(unlock(&a, uuid)).unwrap();
    b.submit(vec![lock(&b, uuid, true, true)], Submission::DryRun).unwrap().pop().unwrap().unwrap();
    a.ask(lock(&a, uuid, true, true)).unwrap();
}

#[test]
fn x1_a_fenced_session_locks_nothing() {
    let rig = Rig::new();
    let a = rig.in_workspace();
    let (uuid, op) = a.create_with(iov_types::EntryKind::Collection, ROOT, "a", super::rig::exclusive());
    a.ask(op).unwrap();
    rig.later(31 * SECOND);
    a.other().open(uuid).unwrap();
    assert_eq!(kind(a.ask(lock(&a, uuid, true, true))), Kind::Fenced);
}

#[test]
fn b3_locks_take_no_part_in_a_rollback_batch() {
    let rig = Rig::new();
    let (a, _, uuid) = two(&rig);
    let replies = a.all(vec![lock(&a, uuid, true, true)], iov_store::seam::new_uuid(), &[]).unwrap();
    let refused = replies[0].clone().unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::Refused, Some(Clause::B3)));
}
