//! Sessions that come back after their catalog crashed (X1, O10, M2).

use iov_types::{
    Clause, EntryKind, Kind, Range, Result, State, Uuid,
    catalog::{CatalogOp, CatalogReply, LockSpec, Presented, PresentedLock},
};

use super::rig::{Client, Later, Rig, SECOND, exclusive, immutable, kind, name, options};
use crate::{Options, Service};

const COLLECTION: EntryKind = EntryKind::Collection;
const ROOT: Uuid = Uuid::NIL;

fn one_user() -> Options {
    Options { single_user: true, ..options() }
}

pub(super) fn rig() -> Rig {
    let rig = Rig::new();
    Rig::over(rig.store, rig.heap, one_user()).unwrap()
}

/// The catalog dies and is opened again, after which sessions may come back for so long. The clients keep their identity.
pub(super) fn crash<const N: usize>(rig: Rig, grace_ns: i64, clients: [Client; N]) -> (Rig, [Client; N]) {
    let Rig { store, heap, service } = rig;
    let identities = clients.map(|c| (c.caller, c.ws));
    drop(service);
    let service = Service::open_after(store.clone(), heap.clone(), one_user(), grace_ns).unwrap();
    let rig = Rig { store, heap, service: service.into() };
    let clients = identities.map(|(caller, ws)| Client { caller, ws, ..rig.client() });
    (rig, clients)
}

pub(super) fn presented(client: &Client, uuid: Uuid, epoch: u64) -> Presented {
    Presented { ws: client.ws, uuid, kind: COLLECTION, handles: 1, writers: 1, epoch }
}

pub(super) fn resume(client: &Client, presented: Presented) -> Result<()> {
    client.service.resume(&client.cx(), &[presented], false).unwrap().pop().unwrap()
}

#[test]
fn x1_a_holder_comes_back_and_goes_on() {
    let rig = rig();
    let client = rig.in_workspace();
    let uuid = client.create_in(ROOT, "a");
    let epoch = client.open_exclusive(uuid, COLLECTION).unwrap().epoch;
    client.bytes(uuid).under(epoch).write(0, b"old").unwrap();
    let (rig, [client]) = crash(rig, 0, [client]);
    assert_eq!(kind(client.close(uuid)), Kind::Stale, "nobody knows the session yet");
    resume(&client, presented(&client, uuid, epoch)).unwrap();
    resume(&client, presented(&client, uuid, epoch)).unwrap();
    client.bytes(uuid).under(epoch).write(3, b"new").unwrap();
    assert_eq!(kind(client.other().open(uuid)), Kind::Busy);
    client.close_written(uuid).unwrap();
    assert_eq!(client.stat(uuid).unwrap().bytes, 6);
    assert_eq!(client.stat_workspace().bytes, 6);
    client.other().open(uuid).unwrap();
    drop(rig);
}

#[test]
fn x1_a_holder_that_comes_back_behind_another_is_fenced() {
    let rig = rig();
    let client = rig.in_workspace();
    let uuid = client.create_in(ROOT, "a");
    let shared = client.other();
    shared.open(client.create_in(ROOT, "b")).unwrap();
    let epoch = client.open_exclusive(uuid, COLLECTION).unwrap().epoch;
    let (_rig, [client, shared]) = crash(rig, 0, [client, shared]);
    let next = client.other();
    next.open_exclusive(uuid, COLLECTION).unwrap();
    let fenced = resume(&client, presented(&client, uuid, epoch)).unwrap_err();
    assert_eq!((fenced.kind(), fenced.clause()), (Kind::Fenced, Some(Clause::X1)));
    assert_eq!(kind(client.bytes(uuid).under(epoch).write(0, b"late")), Kind::Fenced);
    assert_eq!(kind(resume(&shared, presented(&shared, uuid, 0))), Kind::Fenced, "alone is alone");
    next.close(uuid).unwrap();
    assert_eq!(kind(client.close(uuid)), Kind::Fenced, "also when the next one is gone");
    assert_eq!(kind(client.close(uuid)), Kind::Stale);
}

#[test]
fn x1_while_a_holder_may_come_back_nobody_takes_over() {
    let rig = rig();
    let client = rig.in_workspace();
    let uuid = client.create_in(ROOT, "a");
    let epoch = client.open_exclusive(uuid, COLLECTION).unwrap().epoch;
    let (rig, [client]) = crash(rig, 30 * SECOND, [client]);
    let other = client.other();
    let busy = other.open(uuid).unwrap_err();
    assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(Clause::X1)));
    resume(&client, presented(&client, uuid, epoch)).unwrap();
    client.open(uuid).unwrap();
    client.close(uuid).unwrap();
    client.close(uuid).unwrap();
    other.open(uuid).unwrap();
    other.close(uuid).unwrap();

    client.open_exclusive(uuid, COLLECTION).unwrap();
    let (rig, [client, other]) = crash(rig, 30 * SECOND, [client, other]);
    assert_eq!(kind(other.open(uuid)), Kind::Busy);
    rig.later(31 * SECOND);
    other.open(uuid).unwrap();
    drop(client);
}

#[test]
fn x1_sessions_of_one_holder_come_back_as_one() {
    let rig = rig();
    let client = rig.in_workspace();
    let mut joined = client.other();
    let uuid = client.create_in(ROOT, "a");
    let epoch = client.open_exclusive(uuid, COLLECTION).unwrap().epoch;
    let token = match client.ask(CatalogOp::TokenExport).unwrap() {
        CatalogReply::Token(token) => token,
        other => panic!("{other:?}"),
    };
    joined.ask(CatalogOp::TokenJoin { token }).unwrap();
    joined.caller.holder = client.caller.holder;
    assert_eq!(joined.open(uuid).unwrap().epoch, epoch);
    let (_rig, [client, joined]) = crash(rig, 0, [client, joined]);
    resume(&joined, presented(&joined, uuid, epoch)).unwrap();
    resume(&client, presented(&client, uuid, epoch)).unwrap();
    assert_eq!(kind(client.other().open(uuid)), Kind::Busy);
    client.close(uuid).unwrap();
    assert_eq!(kind(client.other().open(uuid)), Kind::Busy, "one of them still has it");
    joined.close(uuid).unwrap();
    client.other().open(uuid).unwrap();
}

#[test]
fn x1_sessions_that_hold_nothing_alone_come_back_side_by_side() {
    let rig = rig();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    let other = client.other();
    other.open(uuid).unwrap();
    client.bytes(uuid).write(0, b"12345").unwrap();
    let (_rig, [client, other]) = crash(rig, 0, [client, other]);
    resume(&other, presented(&other, uuid, 0)).unwrap();
    resume(&client, presented(&client, uuid, 0)).unwrap();
    assert_eq!(kind(client.open_exclusive(uuid, COLLECTION)), Kind::Busy);
    other.close_written(uuid).unwrap();
    client.close_written(uuid).unwrap();
    assert_eq!((client.stat(uuid).unwrap().bytes, client.stat_workspace().bytes), (5, 5));
}

#[test]
fn o10_what_was_deleted_while_open_waits_for_those_who_have_it_open() {
    let rig = rig();
    let client = rig.in_workspace();
    let (kept, lost) = (client.create("a"), client.create("b"));
    for uuid in [kept, lost] {
        client.bytes(uuid).write(0, b"bytes").unwrap();
        client.delete_uuid(uuid).unwrap();
    }
    let (rig, [client]) = crash(rig, 30 * SECOND, [client]);
    resume(&client, presented(&client, kept, 0)).unwrap();
    rig.service.end_grace().unwrap();
    assert_eq!(client.bytes(kept).read().unwrap(), b"bytes");
    assert!(!client.bytes(lost).exists());
    let gone = resume(&client, presented(&client, lost, 0)).unwrap_err();
    assert_eq!((gone.kind(), gone.clause()), (Kind::NotFound, Some(Clause::O10)));
    client.close_written(kept).unwrap();
    assert!(!client.bytes(kept).exists());
    assert_eq!((client.stat_workspace().bytes, rig.keys(b'R').len()), (0, 0));
}

#[test]
fn o10_what_was_open_before_a_crash_is_there_for_who_comes_back_though_others_delete_it_first() {
    let rig = rig();
    let client = rig.in_workspace();
    let (kept, lost, replaced) = (client.create("a"), client.create("b"), client.create("c"));
    for uuid in [kept, lost, replaced] {
        client.bytes(uuid).write(0, b"bytes").unwrap();
    }
    let held = client.create("d");
    let epoch = client.open_exclusive(held, COLLECTION).unwrap().epoch;
    let (rig, [client]) = crash(rig, 30 * SECOND, [client]);
    let other = client.other();
    other.delete(ROOT, "a").unwrap();
    other.delete(ROOT, "b").unwrap();
    let new = other.create("new");
    let (from_parent, to_parent) = (ROOT, ROOT);
    let (from, to) = (name("new"), name("c"));
    let mode = iov_types::catalog::RenameMode::Replace;
    other.ask(CatalogOp::Rename { ws: client.ws, from_parent, from, to_parent, to, mode }).unwrap();
    assert_eq!(kind(other.delete(ROOT, "d")), Kind::Busy, "its holder may come back");
    for (uuid, epoch) in [(kept, 0), (replaced, 0), (held, epoch)] {
        resume(&client, presented(&client, uuid, epoch)).unwrap();
        client.bytes(uuid).under(epoch).write(0, b"again").unwrap();
    }
    assert_eq!(kind(other.stat(kept)), Kind::NotFound, "for others it has gone");
    rig.service.end_grace().unwrap();
    assert_eq!(client.bytes(kept).read().unwrap(), b"again");
    assert_eq!(client.bytes(replaced).read().unwrap(), b"again");
    assert!(!client.bytes(lost).exists());
    assert_eq!(kind(other.delete(ROOT, "d")), Kind::Busy);
    for uuid in [kept, replaced] {
        client.close_written(uuid).unwrap();
        assert!(!client.bytes(uuid).exists());
    }
    client.close(held).unwrap();
    other.delete(ROOT, "d").unwrap();
    other.close(new).unwrap();
    assert_eq!(client.stat_workspace().entries, 1);
}

#[test]
fn o11_a_workspace_stays_while_somebody_may_come_back_for_what_was_deleted_in_it() {
    let rig = rig();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    client.bytes(uuid).write(0, b"bytes").unwrap();
    let (rig, [client]) = crash(rig, 30 * SECOND, [client]);
    let other = client.other();
    other.delete(ROOT, "a").unwrap();
    let delete = CatalogOp::WorkspaceDelete { which: iov_types::Which::Uuid(client.ws) };
    assert_eq!(kind(other.ask(delete.clone())), Kind::Busy);
    resume(&client, presented(&client, uuid, 0)).unwrap();
    assert_eq!(client.bytes(uuid).read().unwrap(), b"bytes");
    client.close_written(uuid).unwrap();
    rig.service.end_grace().unwrap();
    other.ask(delete).unwrap();
    assert_eq!((client.bytes(uuid).exists(), rig.keys(b'R').len()), (false, 0));
}

#[test]
fn x1_a_session_whose_end_failed_is_not_ended_again_once_it_is_back() {
    let rig = rig();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    // As where a target could not be asked.
    rig.service.core.writer().unended.push(client.caller.session);
    resume(&client, presented(&client, uuid, 0)).unwrap();
    rig.later(120 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    client.bytes(uuid).write(0, b"bytes").unwrap();
    client.close_written(uuid).unwrap();
}

#[test]
fn m2_what_a_writer_that_died_with_the_catalog_left_unsealed_is_kept_for_24_hours() {
    let rig = rig();
    let client = rig.in_workspace();
    let make = |text: &str| {
        let (uuid, op) = client.create_with(COLLECTION, ROOT, text, immutable());
        client.ask(op).unwrap();
        client.bytes(uuid).write(0, b"half").unwrap();
        uuid
    };
    let (lost, taken_up, closed, sealed) = (make("lost"), make("taken up"), make("closed"), make("sealed"));
    client.close_written(closed).unwrap();
    client.seal(sealed).unwrap();
    let (rig, [client]) = crash(rig, 0, [client]);
    resume(&client, presented(&client, taken_up, 0)).unwrap();
    let (rig, [client]) = crash(rig, 0, [client]);
    resume(&client, presented(&client, taken_up, 0)).unwrap();
    assert_eq!(client.find("iov.size >= 0").len(), 4, "the owner sees them all");
    assert_eq!(client.stat(lost).unwrap().bytes, 4);
    rig.later(23 * 3600 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    client.stat(lost).unwrap();
    rig.later(2 * 3600 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    assert_eq!(kind(client.stat(lost)), Kind::NotFound);
    assert!(!client.bytes(lost).exists());
    for uuid in [taken_up, closed] {
        assert_eq!(client.stat(uuid).unwrap().state, Some(State::Staging));
    }
    client.seal(taken_up).unwrap();
    client.close(taken_up).unwrap();
    assert_eq!(client.stat(taken_up).unwrap().state, Some(State::Sealed));
    assert!(rig.keys(b'A').is_empty());
}

fn ten_bytes(exclusive: bool, try_only: bool) -> LockSpec {
    LockSpec { exclusive, try_only, range: Range { offset: 0, len: 10 }, owner: 0, lease_ns: 0 }
}

fn resume_lock(client: &Client, uuid: Uuid) -> Result<()> {
    let lock = PresentedLock { ws: client.ws, uuid, lock: ten_bytes(true, true) };
    client.service.resume_locks(&client.cx(), &[lock]).unwrap().pop().unwrap()
}

#[test]
fn o11_while_an_owner_may_come_back_with_a_lock_nobody_gets_one() {
    let rig = rig();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    let other = client.other();
    other.open(uuid).unwrap();
    let lock =
        |c: &Client, exclusive, try_only| CatalogOp::Lock { ws: c.ws, uuid, lock: ten_bytes(exclusive, try_only) };
    let (rig, [client, other]) = crash(rig, 30 * SECOND, [client, other]);
    resume(&other, presented(&other, uuid, 0)).unwrap();
    let busy = other.ask(lock(&other, false, true)).unwrap_err();
    assert_eq!((busy.kind(), busy.clause()), (Kind::Busy, Some(Clause::O11)));
    let late = Later::ask(&other, SECOND, lock(&other, false, false));
    let waiting = Later::ask(&other, 100 * SECOND, lock(&other, false, false));
    assert_eq!(kind(resume_lock(&client, uuid)), Kind::Stale, "it has nothing open yet");
    resume(&client, presented(&client, uuid, 0)).unwrap();
    resume_lock(&client, uuid).unwrap();
    resume_lock(&client, uuid).unwrap();
    client.ask(lock(&client, true, true)).unwrap();
    rig.later(2 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    assert_eq!(kind(late.reply().unwrap()), Kind::Timeout);
    rig.service.end_grace().unwrap();
    assert!(waiting.reply().is_none(), "the owner is back");
    let unlock = CatalogOp::Unlock { ws: client.ws, uuid, lock: ten_bytes(true, true) };
    client.ask(unlock).unwrap();
    waiting.reply().unwrap().unwrap();
}

#[test]
fn o11_a_lock_that_others_may_have_had_is_not_taken_up() {
    let rig = rig();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    let (rig, [client]) = crash(rig, 30 * SECOND, [client]);
    resume(&client, presented(&client, uuid, 0)).unwrap();
    rig.later(31 * SECOND);
    let gone = resume_lock(&client, uuid).unwrap_err();
    assert_eq!((gone.kind(), gone.clause()), (Kind::Fenced, Some(Clause::O11)));
    // A catalog that lives knows what it has given.
    client.ask(CatalogOp::Lock { ws: client.ws, uuid, lock: ten_bytes(true, true) }).unwrap();
    rig.service.leave(client.caller.session);
    resume(&client, presented(&client, uuid, 0)).unwrap();
    resume_lock(&client, uuid).unwrap();
    rig.service.leave(client.caller.session);
    rig.later(31 * SECOND);
    resume(&client, presented(&client, uuid, 0)).unwrap();
    assert_eq!(kind(resume_lock(&client, uuid)), Kind::Fenced);
    // Who was taken for ended has lost it at once.
    client.ask(CatalogOp::Lock { ws: client.ws, uuid, lock: ten_bytes(true, true) }).unwrap();
    rig.service.end_session(client.caller.session);
    resume(&client, presented(&client, uuid, 0)).unwrap();
    assert_eq!(kind(resume_lock(&client, uuid)), Kind::Fenced);
}

#[test]
fn a1_only_stores_of_one_user_believe_what_a_session_says() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create_in(ROOT, "a");
    client.open_with(iov_types::Which::Uuid(uuid), COLLECTION, exclusive()).unwrap();
    let cx = client.cx();
    assert_eq!(kind(rig.service.resume(&cx, &[presented(&client, uuid, 1)], false)), Kind::Stale);
}

#[test]
fn x2_nobody_gets_below_a_held_root_before_its_holder_could_come_back() {
    let rig = rig();
    let client = rig.in_workspace();
    let other = client.other();
    let group = client.group(ROOT, "g");
    let inside = client.create_in(group, "inside");
    let epoch = client.open_exclusive(ROOT, EntryKind::Group).unwrap().epoch;
    let (rig, [client, other]) = crash(rig, 30 * SECOND, [client, other]);
    let create = |c: &Client, parent, text: &str| c.ask(c.create_op(parent, text).1);
    for parent in [ROOT, group] {
        assert_eq!(create(&other, parent, "intruder").unwrap_err().clause(), Some(Clause::X2));
    }
    assert_eq!(kind(other.delete(group, "inside")), Kind::Busy);
    assert_eq!(kind(other.open(inside)), Kind::Busy);
    let shared = other.open_with(iov_types::Which::Uuid(ROOT), EntryKind::Group, Default::default());
    assert_eq!(kind(shared), Kind::Busy, "beside that its holder could not come back");
    assert_eq!(kind(other.open_exclusive(ROOT, EntryKind::Group)), Kind::Busy);
    let root = Presented { kind: EntryKind::Group, writers: 0, ..presented(&client, ROOT, epoch) };
    resume(&client, root).unwrap();
    create(&client, group, "mine").unwrap();
    assert_eq!(kind(create(&other, ROOT, "intruder")), Kind::Busy, "it is held");
    client.close(ROOT).unwrap();
    rig.service.end_grace().unwrap();
    create(&other, ROOT, "later").unwrap();
    assert!(other.stat(inside).is_ok());
    drop(rig);
}

#[test]
fn x2_a_holder_that_does_not_come_back_keeps_others_out_for_its_lease_alone() {
    let rig = rig();
    let client = rig.in_workspace();
    let other = client.other();
    client.open_exclusive(ROOT, EntryKind::Group).unwrap();
    let (rig, [_, other]) = crash(rig, 30 * SECOND, [client, other]);
    assert_eq!(kind(other.ask(other.create_op(ROOT, "a").1)), Kind::Busy);
    rig.later(31 * SECOND);
    other.ask(other.create_op(ROOT, "a").1).unwrap();
}

#[test]
fn x1_a_session_that_was_never_lost_says_what_it_has_and_no_more_is_kept() {
    let rig = rig();
    let client = rig.in_workspace();
    let (uuid, unheard) = (client.create_in(ROOT, "a"), client.create_in(ROOT, "b"));
    let epoch = client.open_exclusive(uuid, COLLECTION).unwrap().epoch;
    // Opened a second time, and another besides, with answers that never came.
    client.open_exclusive(uuid, COLLECTION).unwrap();
    client.open_exclusive(unheard, COLLECTION).unwrap();
    let all = [presented(&client, uuid, epoch)];
    client.service.resume(&client.cx(), &all, true).unwrap().pop().unwrap().unwrap();
    client.other().open_exclusive(unheard, COLLECTION).expect("nobody has it");
    assert_eq!(kind(client.other().open_exclusive(uuid, COLLECTION)), Kind::Busy);
    client.close(uuid).unwrap();
    client.other().open_exclusive(uuid, COLLECTION).expect("it was one handle");
}

/// The hold of a group that is older than the catalog that crashed is its holder's all the same.
#[test]
fn x1_a_held_group_of_an_earlier_catalog_is_not_given_to_others() {
    let rig = rig();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    rig.service.close().unwrap();
    let (rig, [client]) = crash(rig, 0, [client]);
    let other = client.other();
    let epoch = client.open_exclusive(group, EntryKind::Group).unwrap().epoch;
    let (rig, [client, other]) = crash(rig, 30 * SECOND, [client, other]);
    assert_eq!(kind(other.open_exclusive(group, EntryKind::Group)), Kind::Busy);
    let held = Presented { kind: EntryKind::Group, writers: 0, ..presented(&client, group, epoch) };
    resume(&client, held).unwrap();
    drop(rig);
}

/// What a session closes by coming back, and has no name any more, gives its space back (O10).
#[test]
fn o10_what_is_not_presented_and_deleted_is_removed() {
    let rig = rig();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    client.bytes(uuid).write(0, b"bytes").unwrap();
    client.delete(ROOT, "a").unwrap();
    assert!(client.bytes(uuid).exists());
    client.service.resume(&client.cx(), &[], true).unwrap();
    client.create_in(ROOT, "anything");
    assert!(!client.bytes(uuid).exists());
}

/// A session that comes back while others are being ended is not ended in its turn.
#[test]
fn x1_a_session_that_is_back_before_its_turn_is_not_ended() {
    let rig = rig();
    let client = rig.in_workspace();
    let uuid = client.create("a");
    rig.service.core.writer().unended.push(client.caller.session);
    let to_be_ended = rig.service.core.writer().ends_again(i64::MAX - 1);
    assert_eq!(to_be_ended, [client.caller.session]);
    resume(&client, presented(&client, uuid, 0)).unwrap();
    rig.service.end_again(to_be_ended);
    client.close_written(uuid).unwrap();
}

/// Who repeats a batch from another session writes what it opens as any writer: it is not taken for abandoned.
#[test]
fn m2_who_repeats_a_batch_is_a_writer_of_what_it_opens() {
    let rig = rig();
    let client = rig.in_workspace();
    let (_, op) = client.create_with(COLLECTION, ROOT, "a", immutable());
    let batch = iov_store::seam::new_uuid();
    client.all(vec![op.clone()], batch, &[]).unwrap();
    rig.service.end_session(client.caller.session);
    let second = client.other();
    second.all(vec![op.clone()], batch, &[]).unwrap();
    rig.later(25 * 3600 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    second.lookup(ROOT, "a").unwrap();
}

/// The same after a restart, and another one (P2).
#[test]
fn p2_who_repeats_a_batch_may_make_longer_what_it_opens() {
    let rig = rig();
    let second = rig.in_workspace();
    let (uuid, op) = second.create_with(COLLECTION, ROOT, "b", Default::default());
    let batch = iov_store::seam::new_uuid();
    second.all(vec![op.clone()], batch, &[]).unwrap();
    second.close(uuid).unwrap();
    rig.service.close().unwrap();
    let (rig, [second]) = crash(rig, 0, [second]);
    let third = second.other();
    third.all(vec![op], batch, &[]).unwrap();
    third.bytes(uuid).write(0, b"12345").unwrap();
    let (_rig, [third]) = crash(rig, 0, [third]);
    assert_eq!(third.stat(uuid).unwrap().bytes, 5);
}
