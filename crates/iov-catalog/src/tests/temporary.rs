//! Collections that go by themselves.

use iov_store::{Txn, seam};
use iov_types::{
    Attr, EntryKind, Kind, Lifetime, Uuid,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use iov_wire::Wire;

use super::rig::{Client, Rig, SECOND, kind, options};
use crate::{Service, keys, record::TemporaryRecord};

const ROOT: Uuid = Uuid::NIL;
const HOUR: i64 = 3600 * SECOND;

fn lease(ns: i64) -> Lifetime {
    Lifetime::lease(ns as u64)
}

fn bind(client: &Client, uuid: Uuid, lifetime: Lifetime) -> iov_types::Result<CatalogReply> {
    let attr = Attr { lifetime: Some(lifetime), ..Attr::default() };
    client.ask(CatalogOp::SetAttr { ws: client.ws, uuid, attr })
}

/// What is born with a lifetime, with a byte in it, and open.
fn born(client: &Client, text: &str, lifetime: Lifetime) -> Uuid {
    let (uuid, mut op) = client.create_op(ROOT, text);
    let CatalogOp::Create { attr, .. } = &mut op else { unreachable!() };
    attr.lifetime = Some(lifetime);
    client.ask(op).unwrap();
    client.bytes(uuid).write(0, b"x").unwrap();
    uuid
}

/// So much later, the catalog's clock ticks.
fn later(rig: &Rig, ns: i64) {
    rig.later(ns);
    rig.service.tick(rig.service.core.monotonic_ns());
}

fn is_gone(client: &Client, uuid: Uuid) -> bool {
    match client.stat(uuid) {
        Ok(_) => false,
        Err(e) => {
            assert_eq!(e.kind(), Kind::NotFound);
            assert!(!client.bytes(uuid).exists(), "its bytes go with it");
            true
        }
    }
}

#[test]
fn what_is_bound_to_a_process_goes_with_it() {
    let rig = Rig::new();
    let other = rig.in_workspace();
    let process = other.other();
    let (kept, bound) = (process.create("kept"), born(&process, "bound", Lifetime::PROCESS));
    assert_eq!(other.stat(bound).unwrap().lifetime, Some(Lifetime::PROCESS));
    assert_eq!(other.stat(kept).unwrap().lifetime, None);
    process.close(bound).unwrap();
    later(&rig, HOUR);
    assert!(!is_gone(&other, bound), "the process lives");
    rig.service.end_session(process.caller.session);
    assert!(is_gone(&other, bound));
    assert_eq!(kind(other.lookup(ROOT, "bound")), Kind::NotFound);
    other.stat(kept).unwrap();
    assert_eq!(other.stat_workspace().entries, 1);
    assert!(rig.keys(b'E').is_empty());
}

#[test]
fn who_has_it_open_reads_on_when_its_process_ends() {
    let rig = Rig::new();
    let reader = rig.in_workspace();
    let process = reader.other();
    let bound = born(&process, "bound", Lifetime::PROCESS);
    reader.open(bound).unwrap();
    rig.service.end_session(process.caller.session);
    assert_eq!(kind(reader.lookup(ROOT, "bound")), Kind::NotFound);
    assert_eq!(reader.bytes(bound).read().unwrap(), b"x");
    reader.close(bound).unwrap();
    assert!(is_gone(&reader, bound));
}

#[test]
fn processes_that_joined_one_keep_what_is_bound_to_it() {
    let rig = Rig::new();
    let other = rig.in_workspace();
    let (first, second) = (other.other(), other.other());
    let bound = born(&first, "bound", Lifetime::PROCESS);
    let CatalogReply::Token(token) = first.ask(CatalogOp::TokenExport).unwrap() else { panic!() };
    second.ask(CatalogOp::TokenJoin { token }).unwrap();
    rig.service.end_session(first.caller.session);
    later(&rig, HOUR);
    assert!(!is_gone(&other, bound));
    let late = born(&second, "late", Lifetime::PROCESS);
    rig.service.end_session(second.caller.session);
    assert!(is_gone(&other, bound) && is_gone(&other, late));
}

#[test]
fn a_lease_begins_when_the_last_handle_is_closed() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = born(&client, "leased", lease(60 * SECOND));
    later(&rig, HOUR);
    assert!(!is_gone(&client, uuid), "it is open");
    client.close(uuid).unwrap();
    later(&rig, 59 * SECOND);
    assert!(!is_gone(&client, uuid));
    // Between two looks of the catalog.
    client.open(uuid).unwrap();
    client.close(uuid).unwrap();
    later(&rig, 59 * SECOND);
    assert!(!is_gone(&client, uuid));
    // A session that just ends has used it, too.
    let short = client.other();
    short.open(uuid).unwrap();
    rig.service.end_session(short.caller.session);
    later(&rig, 59 * SECOND);
    assert!(!is_gone(&client, uuid));
    later(&rig, 2 * SECOND);
    assert!(is_gone(&client, uuid));
    assert!(rig.keys(b'E').is_empty());
}

#[test]
fn a_write_finds_what_is_over_without_a_clock_that_ticks() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = born(&client, "leased", lease(SECOND));
    client.close(uuid).unwrap();
    rig.later(3 * SECOND);
    client.create("other");
    assert!(is_gone(&client, uuid));
}

#[test]
fn what_is_kept_stays_and_what_is_bound_later_goes() {
    let rig = Rig::new();
    let other = rig.in_workspace();
    let process = other.other();
    let kept = born(&process, "kept", Lifetime::PROCESS);
    let late = process.create("late");
    bind(&process, kept, Lifetime::KEPT).unwrap();
    bind(&process, late, lease(60 * SECOND)).unwrap();
    bind(&process, late, Lifetime::PROCESS).unwrap();
    assert_eq!(process.stat(kept).unwrap().lifetime, None);
    rig.service.end_session(process.caller.session);
    assert!(is_gone(&other, late));
    later(&rig, HOUR);
    other.stat(kept).unwrap();
    assert!(rig.keys(b'E').is_empty());
}

#[test]
fn a_change_that_comes_to_nothing_binds_nothing() {
    let rig = Rig::new();
    let other = rig.in_workspace();
    let process = other.other();
    let kept = process.create("kept");
    let attr = Attr { lifetime: Some(Lifetime::PROCESS), ..Attr::default() };
    let set = CatalogOp::SetAttr { ws: process.ws, uuid: kept, attr };
    let fails = process.delete_op(ROOT, "no such name");
    let how = Submission::All { batch: Uuid::NIL, remember: false, staged: Vec::new() };
    assert!(process.submit(vec![set, fails], how).unwrap().last().unwrap().is_err());
    rig.service.end_session(process.caller.session);
    later(&rig, HOUR);
    other.stat(kept).unwrap();
}

#[test]
fn groups_have_none_and_only_a_lease_has_a_time() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (group, uuid) = (client.group(ROOT, "group"), client.create("c"));
    for what in [group, ROOT] {
        assert_eq!(kind(bind(&client, what, Lifetime::PROCESS)), Kind::Unsupported);
    }
    for wrong in [Lifetime::lease(0), Lifetime { lease_ns: 1, ..Lifetime::PROCESS }] {
        assert_eq!(kind(bind(&client, uuid, wrong)), Kind::Invalid);
    }
    let (_, mut op) = client.create_op(ROOT, "born");
    let CatalogOp::Create { attr, kind: made, .. } = &mut op else { unreachable!() };
    (attr.lifetime, *made) = (Some(Lifetime::PROCESS), EntryKind::Group);
    assert_eq!(kind(client.ask(op)), Kind::Unsupported);
}

#[test]
fn a_process_has_the_time_of_a_lease_to_come_back_to_the_next_catalog() {
    let rig = Rig::new();
    let other = rig.in_workspace();
    let (back, gone) = (other.other(), other.other());
    let (kept, lost) = (born(&back, "kept", Lifetime::PROCESS), born(&gone, "lost", Lifetime::PROCESS));
    let leased = born(&gone, "leased", lease(60 * SECOND));
    let rig = rig.crash();
    let at = |client: Client| Client { service: rig.service.clone(), ..client };
    let (other, back) = (at(other), at(back));
    later(&rig, options().lease_ns / 2);
    back.stat(kept).unwrap();
    other.stat(lost).unwrap();
    later(&rig, options().lease_ns);
    back.stat(kept).unwrap();
    assert!(is_gone(&other, lost));
    other.stat(leased).unwrap();
    later(&rig, 60 * SECOND);
    assert!(is_gone(&other, leased), "its lease began anew with the catalog");
    rig.service.end_session(back.caller.session);
    assert!(is_gone(&other, kept));
}

#[test]
fn an_orderly_end_of_the_catalog_takes_nothing_that_processes_may_come_back_to() {
    let rig = Rig::new();
    let process = rig.in_workspace();
    let bound = born(&process, "bound", Lifetime::PROCESS);
    rig.service.close().unwrap();
    let service = Service::open(rig.store.clone(), rig.heap.clone(), options()).unwrap();
    let process = Client { service: service.into(), ..process };
    process.stat(bound).unwrap();
}

#[test]
fn a_lease_goes_on_where_the_catalog_before_has_left_it() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (unused, open) = (born(&client, "a", lease(60 * SECOND)), born(&client, "b", lease(60 * SECOND)));
    client.close(unused).unwrap();
    later(&rig, 50 * SECOND);
    rig.service.close().unwrap();
    let left = |uuid| {
        let stored = rig.store.get(&[&keys::temporary(uuid)]).unwrap().pop().unwrap().unwrap();
        TemporaryRecord::decode(&stored.value).unwrap().until_ns - rig.service.core.now_ns()
    };
    assert!((9 * SECOND..=10 * SECOND).contains(&left(unused)), "{}", left(unused));
    assert!((59 * SECOND..=60 * SECOND).contains(&left(open)), "it was open to the end: {}", left(open));
    // The clock of the next catalog has not been put forward.
    let Rig { store, heap, service } = rig;
    drop(service);
    for uuid in [unused, open] {
        let record = TemporaryRecord { ws: client.ws, until_ns: seam::now_ns() + 10 * SECOND };
        let writes = vec![(keys::temporary(uuid), Some(record.to_bytes().into()))];
        store.commit(vec![Txn { guards: Vec::new(), writes }]).unwrap().pop().unwrap().unwrap();
    }
    let rig = Rig::over(store, heap, options()).unwrap();
    let client = Client { service: rig.service.clone(), ..client };
    later(&rig, 8 * SECOND);
    client.open(open).unwrap();
    later(&rig, 3 * SECOND);
    assert!(is_gone(&client, unused));
    // What was noted then is of no use after a crash.
    let rig = rig.crash();
    let client = Client { service: rig.service.clone(), ..client };
    later(&rig, 59 * SECOND);
    client.stat(open).unwrap();
    later(&rig, 2 * SECOND);
    assert!(is_gone(&client, open));
}
