//! How operations of one submission depend on each other (B1, B2), and what a submission costs.

use iov_types::{
    Clause, EntryKind, Kind, Uuid,
    catalog::{CatalogOp, Submission},
};

use super::rig::{Rig, exclusive, kind};

const ROOT: Uuid = Uuid::NIL;

#[test]
fn b1_each_operation_has_its_own_end() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let ops = vec![client.create_op(ROOT, "a").1, client.create_op(ROOT, "a").1, client.create_op(ROOT, "b").1];
    let ok: Vec<bool> = client.submit(ops, Submission::Each).unwrap().iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true]);
}

#[test]
fn b2_until_failure_stops_at_it_and_keeps_what_was_before() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let ops = vec![client.create_op(ROOT, "a").1, client.create_op(ROOT, "a").1, client.create_op(ROOT, "b").1];
    let replies = client.submit(ops, Submission::UntilFailure).unwrap();
    assert_eq!(replies.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
    client.lookup(ROOT, "a").unwrap();
    assert_eq!(kind(client.lookup(ROOT, "b")), Kind::NotFound);
}

#[test]
fn b3_a_dry_run_answers_like_the_run_and_changes_nothing() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let kept = client.create_in(ROOT, "kept");
    let (_, held) = client.create_with(EntryKind::Collection, ROOT, "held", exclusive());
    let (_, group) = client.create_with(EntryKind::Group, ROOT, "g", exclusive());
    let ops = vec![
        held,
        group,
        client.delete_op(ROOT, "kept"),
        CatalogOp::Goodbye,
        client.delete_op(ROOT, "kept"),
        client.create_op(ROOT, "x").1,
    ];
    let (keys, commits) = (
        rig.store.scan(&iov_store::KeyRange { from: vec![], to: None }, None, 999).unwrap(),
        rig.service.stats().commits,
    );
    let replies = client.submit(ops, Submission::DryRun).unwrap();
    assert_eq!(replies.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, true, true, false]);
    assert_eq!(rig.service.stats().commits, commits);
    assert_eq!(rig.store.scan(&iov_store::KeyRange { from: vec![], to: None }, None, 999).unwrap(), keys);
    assert!(rig.service.core.shared().opens.iter().next().is_none());
    assert!(!rig.service.core.shared().opens.may_cover());
    assert_eq!(client.stat_workspace().entries, 1);
    assert_eq!(client.lookup(ROOT, "kept").unwrap(), kept);
}

#[test]
fn b1_a_thousand_creates_are_one_commit_and_two_keys_each_are_read() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let ops: Vec<CatalogOp> = (0..1000).map(|i| client.create_op(ROOT, &format!("c{i}")).1).collect();
    let before = rig.service.stats();
    client.submit(ops, Submission::Each).unwrap().into_iter().for_each(|r| drop(r.unwrap()));
    let after = rig.service.stats();
    assert_eq!(after.commits - before.commits, 1);
    assert_eq!(after.submissions - before.submissions, 1);
    assert_eq!(after.operations - before.operations, 1000);
    assert_eq!(after.keys_read - before.keys_read, 2000, "the name and the identity");
    assert_eq!(after.target_operations, before.target_operations, "no object before the first byte");
}

#[test]
fn b4_a_submission_of_too_many_operations_is_refused() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let ops = vec![CatalogOp::Renew; iov_types::limits::BATCH_OPS + 1];
    let refused = client.submit(ops, Submission::Each).unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::TooBig, Some(Clause::B4)));
}
