//! Batches that apply as a whole (B3), publications (M1), ids that are remembered.

use iov_store::seam;
use iov_types::{
    Clause, EntryKind, Kind, Outcome, State, Uuid, Value, WorkspaceAttr,
    catalog::{CatalogOp, CatalogReply, Staged, Submission},
};

use super::rig::{Client, Rig, SECOND, UID, exclusive, immutable, kind, name};

const ROOT: Uuid = Uuid::NIL;

#[test]
fn b3_all_operations_apply_or_none() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let kept = client.create_in(ROOT, "kept");
    let before = rig.service.stats().commits;
    let batch = || {
        let (_, held) = client.create_with(EntryKind::Collection, ROOT, "held", exclusive());
        vec![
            client.create_op(ROOT, "a").1,
            held,
            client.put_op(kept, "k", Value::I64(1)),
            CatalogOp::Rename {
                ws: client.ws,
                from_parent: ROOT,
                from: name("kept"),
                to_parent: ROOT,
                to: name("moved"),
                mode: iov_types::catalog::RenameMode::Replace,
            },
            CatalogOp::WorkspaceRename { ws: client.ws, name: name("renamed") },
        ]
    };
    let mut failing = batch();
    failing.push(client.create_op(ROOT, "a").1);
    failing.push(client.create_op(ROOT, "never looked at").1);
    let replies = client.all(failing, seam::new_uuid(), &[]).unwrap();
    assert_eq!(replies.len(), 6, "the answer ends with the failure");
    assert!(replies[5].is_err());
    assert_eq!(rig.service.stats().commits, before);
    assert_eq!(kind(client.lookup(ROOT, "a")), Kind::NotFound);
    assert_eq!(client.lookup(ROOT, "kept").unwrap(), kept);
    assert_eq!(kind(client.get(kept, "k")), Kind::NotFound);
    assert_eq!(client.stat_workspace().entries, 1);
    assert!(rig.service.core.shared().opens.iter().next().is_none());
    assert_eq!(
        kind(client.ask(CatalogOp::WorkspaceLoad { which: iov_types::Which::Name(name("renamed")) })),
        Kind::NotFound
    );

    for reply in client.all(batch(), seam::new_uuid(), &[]).unwrap() {
        reply.unwrap();
    }
    assert_eq!(rig.service.stats().commits, before + 1);
    assert_eq!(client.lookup(ROOT, "moved").unwrap(), kept);
    assert_eq!(client.get(kept, "k").unwrap(), Value::I64(1));
    client.ask(CatalogOp::WorkspaceLoad { which: iov_types::Which::Name(name("renamed")) }).unwrap();
}

#[test]
fn b3_bytes_names_and_metadata_appear_together() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (a, b) = (client.create("a"), client.create("b"));
    client.bytes(a).write(0, b"old").unwrap();
    let batch = seam::new_uuid();
    client.bytes(a).staged(batch).write(0, b"new a").unwrap();
    client.bytes(b).staged(batch).write(0, b"new b!").unwrap();
    assert_eq!(client.stat(a).unwrap().bytes, 3, "nobody sees what is staged");
    let ops = vec![client.put_op(a, "k", Value::I64(1)), client.create_op(ROOT, "c").1];
    for reply in client.all(ops, batch, &[b, a]).unwrap() {
        reply.unwrap();
    }
    assert_eq!(client.bytes(a).read().unwrap(), b"new a");
    assert_eq!(client.bytes(b).read().unwrap(), b"new b!");
    assert_eq!((client.stat(a).unwrap().bytes, client.stat(b).unwrap().bytes), (5, 6));
    assert_eq!(client.stat_workspace().bytes, 11);
    client.close(a).unwrap();
    client.close(b).unwrap();
    assert_eq!(client.find("iov.size = 5"), [a], "the records know the lengths");
}

#[test]
fn b3_a_failing_operation_drops_what_is_staged() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let a = client.create("a");
    client.bytes(a).write(0, b"old").unwrap();
    let batch = seam::new_uuid();
    client.bytes(a).staged(batch).write(0, b"new a").unwrap();
    let replies = client.all(vec![client.create_op(ROOT, "a").1], batch, &[a]).unwrap();
    assert_eq!(kind(replies[0].clone()), Kind::Exists);
    assert_eq!(client.bytes(a).read().unwrap(), b"old");
    assert_eq!(client.bytes(a).staged(batch).read().unwrap(), b"old", "the stage is gone");
    assert!(rig.keys(b'B').is_empty());
}

#[test]
fn b3_a_batch_creates_and_fills_what_did_not_exist() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, create) = client.create_op(ROOT, "a");
    let batch = seam::new_uuid();
    client.bytes(uuid).staged(batch).write(0, b"born full").unwrap();
    client.all(vec![create], batch, &[uuid]).unwrap().pop().unwrap().unwrap();
    assert_eq!(client.stat(uuid).unwrap().bytes, 9);
    let (twice, create) = client.create_op(ROOT, "a");
    let batch = seam::new_uuid();
    client.bytes(twice).staged(batch).write(0, b"never").unwrap();
    client.all(vec![create], batch, &[twice]).unwrap().pop().unwrap().unwrap_err();
    assert_eq!(client.bytes(twice).read().unwrap(), b"");
}

#[test]
fn b3_what_the_batch_deletes_itself_is_dropped() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create_in(ROOT, "a");
    let batch = seam::new_uuid();
    client.bytes(uuid).staged(batch).write(0, b"x").unwrap();
    client.all(vec![client.delete_op(ROOT, "a")], batch, &[uuid]).unwrap().pop().unwrap().unwrap();
    assert!(!client.bytes(uuid).exists());
    assert!(rig.keys(b'R').is_empty());
}

#[test]
fn b3_a_repeated_id_is_answered_from_memory() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let a = client.create("a");
    let batch = seam::new_uuid();
    client.bytes(a).staged(batch).write(0, b"once").unwrap();
    let (b, create) = client.create_op(ROOT, "b");
    let first = client.all(vec![create.clone()], batch, &[a]).unwrap();
    let before = rig.service.stats().commits;
    client.bytes(a).write(0, b"more").unwrap();
    assert_eq!(client.all(vec![create.clone()], batch, &[a]).unwrap(), first);
    assert_eq!(rig.service.stats().commits, before);
    assert_eq!(client.bytes(a).read().unwrap(), b"more", "nothing was published again");
    assert_eq!(kind(client.as_user(UID + 1).all(Vec::new(), batch, &[])), Kind::Denied);

    let ws = client.ws;
    drop(client);
    let rig = rig.crash();
    let client = Client { ws, ..rig.client() };
    assert_eq!(client.all(vec![create], batch, &[a]).unwrap(), first, "also after a restart");
    client.close(b).unwrap();
}

#[test]
fn b3_a_failed_batch_is_not_remembered_and_may_be_repeated() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    client.create_in(ROOT, "a");
    let batch = seam::new_uuid();
    let (_, create) = client.create_op(ROOT, "a");
    client.all(vec![create.clone()], batch, &[]).unwrap().pop().unwrap().unwrap_err();
    client.delete(ROOT, "a").unwrap();
    client.all(vec![create], batch, &[]).unwrap().pop().unwrap().unwrap();
}

#[test]
fn b3_ids_are_of_version_7_and_at_most_a_day_old() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let wrong = client.all(Vec::new(), Uuid([1; 16]), &[]).unwrap_err();
    assert_eq!((wrong.kind(), wrong.clause()), (Kind::Invalid, Some(Clause::B3)));
    let now_ms = (seam::now_ns() / 1_000_000) as u64;
    let old = Uuid::v7(now_ms - 25 * 3600 * 1000, [1; 10]);
    let stale = client.all(Vec::new(), old, &[]).unwrap_err();
    assert_eq!((stale.kind(), stale.clause()), (Kind::Stale, Some(Clause::B3)));
    let young = Uuid::v7(now_ms - 23 * 3600 * 1000, [1; 10]);
    let (uuid, create) = client.create_op(ROOT, "a");
    client.all(vec![create.clone()], young, &[]).unwrap().pop().unwrap().unwrap();
    client.close(uuid).unwrap();
    rig.later(2 * 3600 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    client.all(vec![create], young, &[]).unwrap().pop().unwrap().unwrap();
    rig.later(25 * 3600 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    assert!(rig.keys(b'B').is_empty(), "forgotten after a day");
    assert_eq!(kind(client.all(Vec::new(), young, &[])), Kind::Stale, "and then refused, never applied twice");
}

#[test]
fn o1_a_batch_beyond_a_quota_is_undone_whole() {
    let rig = Rig::new();
    let attr = WorkspaceAttr { quota_collections: Some(2), quota_bytes: Some(10), ..WorkspaceAttr::default() };
    let client = rig.in_workspace_with(attr);
    let ops = (0..3).map(|i| client.create_op(ROOT, &format!("c{i}")).1).collect();
    let replies = client.all(ops, seam::new_uuid(), &[]).unwrap();
    assert_eq!(kind(replies[2].clone()), Kind::Exhausted);
    assert_eq!(client.stat_workspace().entries, 0);
    let a = client.create("a");
    let batch = seam::new_uuid();
    client.bytes(a).staged(batch).write(0, &[1; 11]).unwrap();
    let refused = client.all(vec![client.create_op(ROOT, "b").1], batch, &[a]).unwrap_err();
    assert_eq!((refused.kind(), refused.outcome()), (Kind::Exhausted, Outcome::NotApplied));
    assert_eq!(client.stat(a).unwrap().bytes, 0);
    assert_eq!(kind(client.lookup(ROOT, "b")), Kind::NotFound);
}

#[test]
fn m1_a_publication_is_one_commit_and_leaves_no_record_of_itself() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let a = client.create("a");
    for round in 1..4u64 {
        let stage = seam::new_uuid();
        client.bytes(a).staged(stage).write(0, &vec![1; round as usize * 10]).unwrap();
        let before = rig.service.stats();
        let staged = vec![Staged { workspace: client.ws, collection: a, epoch: 0, place: Default::default() }];
        let how = Submission::All { batch: stage, remember: false, staged };
        let ops = if round == 3 {
            vec![CatalogOp::Close { ws: client.ws, uuid: a, published: Some(Default::default()) }]
        } else {
            vec![client.publish_op(a)]
        };
        client.submit(ops, how).unwrap().pop().unwrap().unwrap();
        assert_eq!(rig.service.stats().commits - before.commits, 1);
        assert_eq!(client.stat(a).unwrap().bytes, round * 10);
        assert_eq!(client.stat(a).unwrap().version, client.stat(a).unwrap().version.max(round));
    }
    rig.later(120 * SECOND);
    rig.service.tick(rig.service.core.monotonic_ns());
    assert!(rig.keys(b'B').is_empty());
}

#[test]
fn m2_a_batch_that_writes_and_seals_does_both() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (uuid, create) = client.create_with(EntryKind::Collection, ROOT, "a", immutable());
    let batch = seam::new_uuid();
    client.bytes(uuid).staged(batch).write(0, b"sealed").unwrap();
    let seal = CatalogOp::Seal { ws: client.ws, uuid, published: Default::default() };
    for reply in client.all(vec![create, seal], batch, &[uuid]).unwrap() {
        reply.unwrap();
    }
    let stat = client.stat(uuid).unwrap();
    assert_eq!((stat.state, stat.bytes), (Some(State::Sealed), 6));
    assert_eq!(client.bytes(uuid).read().unwrap(), b"sealed");
    assert_eq!(kind(client.bytes(uuid).write(0, b"x")), Kind::Immutable);
    let batch = seam::new_uuid();
    let late = client.all(Vec::new(), batch, &[uuid]).unwrap_err();
    assert_eq!((late.kind(), late.clause()), (Kind::Immutable, Some(Clause::M2)));
}

#[test]
fn o4_a_time_set_in_a_batch_holds_against_its_publication() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let a = client.create("a");
    let batch = seam::new_uuid();
    client.bytes(a).staged(batch).write(0, b"x").unwrap();
    let attr = iov_types::Attr { mtime_ns: Some(5), ..Default::default() };
    client.all(vec![CatalogOp::SetAttr { ws: client.ws, uuid: a, attr }], batch, &[a]).unwrap().pop().unwrap().unwrap();
    assert_eq!(client.stat(a).unwrap().mtime_ns, 5);
    client.close_written(a).unwrap();
    assert_eq!(client.stat(a).unwrap().mtime_ns, 5);
}

#[test]
fn x1_a_fenced_holder_publishes_nothing() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (a, op) = client.create_with(EntryKind::Collection, ROOT, "a", exclusive());
    let CatalogReply::Opened(opened) = client.ask(op).unwrap() else { panic!() };
    let batch = seam::new_uuid();
    client.bytes(a).under(opened.epoch).staged(batch).write(0, b"late").unwrap();
    rig.later(31 * SECOND);
    let other = client.other();
    other.open(a).unwrap();
    assert_eq!(kind(client.all(Vec::new(), batch, &[a])), Kind::Fenced);
    assert_eq!(other.bytes(a).read().unwrap(), b"");
    let stranger = client.other();
    assert_eq!(kind(stranger.all(Vec::new(), seam::new_uuid(), &[a])), Kind::Busy);
}

#[test]
fn b3_an_observer_that_saw_one_effect_sees_all() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let (a, b) = (client.create("a"), client.create("b"));
    for uuid in [a, b] {
        client.bytes(uuid).write(0, &0u64.to_le_bytes()).unwrap();
    }
    client.ask(client.put_op(a, "round", Value::I64(0))).unwrap();
    let number = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().unwrap());
    std::thread::scope(|s| {
        let writer = client.other();
        let work = s.spawn(move || {
            for round in 1..150u64 {
                let batch = seam::new_uuid();
                for uuid in [a, b] {
                    writer.bytes(uuid).staged(batch).write(0, &round.to_le_bytes()).unwrap();
                }
                let (made, create) = writer.create_op(ROOT, &format!("r{round}"));
                let ops = vec![writer.put_op(a, "round", Value::I64(round as i64)), create];
                writer.all(ops, batch, &[a, b]).unwrap().into_iter().for_each(|r| drop(r.unwrap()));
                writer.close(made).unwrap();
            }
        });
        let observer = client.other();
        while !work.is_finished() {
            let Value::I64(seen) = observer.get(a, "round").unwrap() else { panic!() };
            let entries = observer.stat_workspace().entries - 2;
            let (in_a, in_b) = (number(observer.bytes(a).read().unwrap()), number(observer.bytes(b).read().unwrap()));
            let Value::I64(then) = observer.get(a, "round").unwrap() else { panic!() };
            assert!(seen as u64 <= entries && entries <= in_a && in_a <= in_b && in_b as i64 <= then);
        }
    });
}

#[test]
fn o9_operations_of_a_batch_see_the_lengths_that_it_has_staged() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let a = client.create("a");
    client.bytes(a).write(0, b"old").unwrap();
    let batch = seam::new_uuid();
    client.bytes(a).staged(batch).write(0, b"longer").unwrap();
    let spec = super::rig::spec(Some("iov.size = 6"));
    let ops = vec![CatalogOp::Stat { ws: client.ws, uuid: a }, CatalogOp::Search { ws: client.ws, spec }];
    assert_eq!(client.stat(a).unwrap().bytes, 3, "others do not");
    let replies = client.all(ops, batch, &[a]).unwrap();
    assert!(matches!(&replies[0], Ok(CatalogReply::Stat(stat)) if stat.bytes == 6));
    assert!(matches!(&replies[1], Ok(CatalogReply::Page(page)) if page.entries.len() == 1));
}

/// What is remembered of batches goes when its time is over, however many there are.
#[test]
fn b3_remembered_batches_are_forgotten_as_fast_as_they_come() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    for n in 0..3000 {
        let (_, op) = client.create_with(EntryKind::Group, ROOT, &format!("g{n}"), Default::default());
        client.all(vec![op], seam::new_uuid(), &[]).unwrap();
    }
    assert_eq!(rig.keys(b'B').len(), 3000);
    rig.later(25 * 3600 * SECOND);
    for _ in 0..4 {
        rig.service.tick(rig.service.core.monotonic_ns());
        rig.later(3 * SECOND);
    }
    assert_eq!(rig.keys(b'B').len(), 0);
}
