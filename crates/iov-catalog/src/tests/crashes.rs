//! Kill points: whatever step the catalog dies at, after the restart a batch has applied as a whole or not at all (B3).

use std::sync::Mutex;

use iov_store::{KeyRange, seam};
use iov_types::{
    EntryKind, Error, Kind, ObjectVerb, Outcome, Result, State, Uuid, Value,
    catalog::{CatalogOp, Staged, Submission},
};

use super::{
    fragile::{Fails, Fragile},
    rig::{Client, Rig, immutable, kind, name},
};

const ROOT: Uuid = Uuid::NIL;

/// Runs `work` again and again, killed at each step in turn, until it gets through; after each kill `check` looks at the
/// restarted catalog. Returns the number of steps.
fn at_each_step(work: impl Fn(&Client, &Made) -> Result<()>, check: impl Fn(&Client, &Made, Option<Error>)) -> i64 {
    for step in 1.. {
        let mut through = false;
        for how in [Fails::Before, Fails::After] {
            let fragile = Fragile::new();
            let rig = fragile.open();
            let client = rig.in_workspace();
            let made = Made::new(&client);
            fragile.fuse.set(step, how);
            let result = work(&client, &made);
            through = fragile.fuse.left() > 0;
            fragile.fuse.mend();
            let ws = client.ws;
            drop((client, rig));
            let rig = fragile.open();
            let client = Client { ws, ..rig.client() };
            check(&client, &made, result.err());
            consistent(&rig, &client);
        }
        if through {
            return step;
        }
    }
    unreachable!("the work ends")
}

/// What the work is about: two collections with old bytes, and one to come.
struct Made {
    a: Uuid,
    b: Uuid,
    c: Uuid,
    batch: Uuid,
}

impl Made {
    fn new(client: &Client) -> Made {
        let (a, b) = (client.create("a"), client.create("b"));
        for uuid in [a, b] {
            client.bytes(uuid).write(0, b"old").unwrap();
            client.close_written(uuid).unwrap();
        }
        Made { a, b, c: seam::new_uuid(), batch: seam::new_uuid() }
    }

    fn ops(&self, client: &Client) -> Vec<CatalogOp> {
        let (_, op) = client.create_with(EntryKind::Collection, ROOT, "c", immutable());
        let CatalogOp::Create { ws, kind, parent, name: n, metadata, controls, layout, attr, .. } = op else {
            panic!()
        };
        vec![
            CatalogOp::Create {
                ws,
                uuid: self.c,
                kind,
                parent,
                name: n,
                metadata,
                controls,
                layout,
                attr,
                tell: false,
            },
            client.put_op(self.a, "k", Value::I64(1)),
            client.delete_op(ROOT, "b"),
            CatalogOp::Seal { ws, uuid: self.c, published: Default::default() },
        ]
    }
}

/// Records, names and usage agree, and no object is frozen for good.
fn consistent(rig: &Rig, client: &Client) {
    let records = rig.keys(b'R').len();
    assert_eq!(client.stat_workspace().entries as usize, records);
    assert_eq!(rig.keys(b'N').len(), records);
    let bytes: u64 = client.find("iov.size >= 0").iter().map(|uuid| client.stat(*uuid).unwrap().bytes).sum();
    assert_eq!(client.stat_workspace().bytes, bytes);
}

fn staged(client: &Client, uuids: &[Uuid]) -> Vec<Staged> {
    uuids.iter().map(|c| Staged { workspace: client.ws, collection: *c, epoch: 0, place: Default::default() }).collect()
}

#[test]
fn b3_a_batch_killed_at_any_step_applies_whole_or_not_at_all() {
    let (none, all) = (Mutex::new(0), Mutex::new(0));
    let work = |client: &Client, made: &Made| {
        client.bytes(made.a).staged(made.batch).write(0, b"new a")?;
        client.bytes(made.c).staged(made.batch).write(0, b"new c!")?;
        let staged = staged(client, &[made.a, made.c]);
        let how = Submission::All { batch: made.batch, remember: true, staged };
        for reply in client.submit(made.ops(client), how)? {
            reply?;
        }
        Ok(())
    };
    let check = |client: &Client, made: &Made, error: Option<Error>| {
        let new = client.stat(made.c).is_ok();
        *if new { &all } else { &none }.lock().unwrap() += 1;
        if new {
            assert_eq!(client.stat(made.c).unwrap().state, Some(State::Sealed));
            assert_eq!(client.bytes(made.c).read().unwrap(), b"new c!");
            assert_eq!(client.bytes(made.a).read().unwrap(), b"new a");
            assert_eq!(client.stat(made.a).unwrap().bytes, 5);
            assert_eq!(client.get(made.a, "k").unwrap(), Value::I64(1));
            assert_eq!(kind(client.lookup(ROOT, "b")), Kind::NotFound);
            assert!(!client.bytes(made.b).exists());
            assert_eq!(kind(client.bytes(made.c).write(0, b"x")), Kind::Immutable);
            // The retry of a client that never heard the answer.
            let how = Submission::All { batch: made.batch, remember: true, staged: staged(client, &[made.a, made.c]) };
            let again = client.submit(made.ops(client), how).unwrap();
            assert_eq!(again.len(), 4 + 2, "of each operation, and of each staged collection: {again:?}");
        } else {
            let error = error.expect("who heard of success finds it");
            assert_ne!(error.outcome(), Outcome::Applied);
            // What no committed batch names is the target's to drop when it starts.
            for uuid in [made.a, made.c] {
                let discard = crate::targets::op(
                    iov_types::Place::FIRST.whole(uuid),
                    ObjectVerb::Discard { stage: made.batch },
                    0,
                );
                let cx = client.cx();
                iov_store::run_one(&*client.heap, &cx, discard, Default::default()).unwrap();
            }
            assert_eq!(client.bytes(made.a).read().unwrap(), b"old");
            assert_eq!(client.bytes(made.c).read().unwrap(), b"");
            assert_eq!(client.lookup(ROOT, "b").unwrap(), made.b);
            assert_eq!(kind(client.get(made.a, "k")), Kind::NotFound);
        }
    };
    let steps = at_each_step(work, check);
    assert!(steps >= 9, "{steps} steps: two writes, two freezes, the commit, two publications, seal, removal");
    assert!(*none.lock().unwrap() >= 5 && *all.lock().unwrap() >= 5);
}

#[test]
fn m1_a_publication_killed_at_any_step_is_the_old_version_or_the_new() {
    let work = |client: &Client, made: &Made| {
        client.open(made.a)?;
        client.bytes(made.a).staged(made.batch).write(0, b"longer")?;
        let how = Submission::All { batch: made.batch, remember: false, staged: staged(client, &[made.a]) };
        client.submit(vec![client.publish_op(made.a)], how)?.pop().unwrap().map(drop)
    };
    let check = |client: &Client, made: &Made, error: Option<Error>| {
        if error.is_some() {
            let discard =
                crate::targets::op(iov_types::Place::FIRST.whole(made.a), ObjectVerb::Discard { stage: made.batch }, 0);
            iov_store::run_one(&*client.heap, &client.cx(), discard, Default::default()).unwrap();
        }
        let bytes = client.bytes(made.a).read().unwrap();
        assert!(bytes == b"old" || bytes == b"longer");
        assert!(error.is_some() || bytes == b"longer");
        assert_eq!(client.stat(made.a).unwrap().bytes as usize, bytes.len());
    };
    at_each_step(work, check);
}

#[test]
fn o10_a_delete_killed_at_any_step_leaves_no_bytes_behind_or_everything() {
    let work = |client: &Client, _: &Made| client.delete(ROOT, "a").map(drop);
    let check = |client: &Client, made: &Made, error: Option<Error>| match client.lookup(ROOT, "a") {
        Ok(_) => {
            assert!(error.is_some());
            assert_eq!(client.bytes(made.a).read().unwrap(), b"old");
        }
        Err(_) => assert!(!client.bytes(made.a).exists()),
    };
    at_each_step(work, check);
}

#[test]
fn o10_what_was_deleted_but_open_goes_with_the_catalogs_restart() {
    let fragile = Fragile::new();
    let rig = fragile.open();
    let client = rig.in_workspace();
    let (uuid, group) = (client.create("x"), client.group(ROOT, "g"));
    client.open_with(iov_types::Which::Uuid(group), EntryKind::Group, Default::default()).unwrap();
    client.bytes(uuid).write(0, b"bytes").unwrap();
    client.ask(client.publish_op(uuid)).unwrap();
    client.delete(ROOT, "x").unwrap();
    client.delete(ROOT, "g").unwrap();
    let ws = client.ws;
    drop((client, rig));
    let rig = fragile.open();
    let client = Client { ws, ..rig.client() };
    assert!(rig.keys(b'R').is_empty());
    assert!(!client.bytes(uuid).exists());
    assert_eq!(client.stat_workspace().bytes, 0);
    consistent(&rig, &client);
}

#[test]
fn m2_a_seal_killed_at_any_step_can_be_repeated() {
    let work = |client: &Client, made: &Made| {
        let (_, op) = client.create_with(EntryKind::Collection, ROOT, "c", immutable());
        let CatalogOp::Create { ws, kind, parent, name, metadata, controls, layout, attr, .. } = op else { panic!() };
        client.ask(CatalogOp::Create {
            ws,
            uuid: made.c,
            kind,
            parent,
            name,
            metadata,
            controls,
            layout,
            attr,
            tell: false,
        })?;
        client.bytes(made.c).write(0, b"final")?;
        client.seal(made.c).map(drop)
    };
    let check = |client: &Client, made: &Made, _: Option<Error>| {
        let Ok(stat) = client.stat(made.c) else { return };
        if stat.state == Some(State::Sealed) {
            assert_eq!(kind(client.bytes(made.c).write(0, b"x")), Kind::Immutable, "never in the record alone");
        }
        client.open(made.c).unwrap();
        client.seal(made.c).unwrap();
        assert_eq!(client.stat(made.c).unwrap().bytes as usize, client.bytes(made.c).read().unwrap().len());
    };
    at_each_step(work, check);
}

#[test]
fn b3_a_store_that_fails_at_a_commit_leaves_memory_true_to_it() {
    let fragile = Fragile::new();
    let rig = fragile.open();
    let client = rig.in_workspace();
    let kept = client.create("kept");
    for after in [false, true] {
        fragile.fuse.set(1, if after { Fails::After } else { Fails::Before });
        let (_, create) = client.create_op(ROOT, if after { "after" } else { "before" });
        let rename = CatalogOp::WorkspaceRename { ws: client.ws, name: name(if after { "n2" } else { "n1" }) };
        let failed = client.submit(vec![create, rename], Submission::Each).unwrap_err();
        assert_eq!(failed.outcome(), Outcome::Unknown);
        fragile.fuse.mend();
        // What the store holds is what memory says.
        let renamed = client
            .ask(CatalogOp::WorkspaceLoad { which: iov_types::Which::Name(name(if after { "n2" } else { "n1" })) });
        assert_eq!(renamed.is_ok(), after);
        assert_eq!(client.stat_workspace().entries, if after { 2 } else { 1 });
        assert_eq!(client.lookup(ROOT, if after { "after" } else { "before" }).is_ok(), after);
    }
    client.stat(kept).unwrap();
    client.close(kept).unwrap();
}

#[test]
fn o10_a_target_that_is_away_at_a_removal_is_asked_again() {
    let fragile = Fragile::new();
    let rig = fragile.open();
    let client = rig.in_workspace();
    let made = Made::new(&client);
    fragile.fuse.set(2, Fails::Once);
    client.delete(ROOT, "a").unwrap();
    assert!(client.bytes(made.a).exists());
    fragile.fuse.mend();
    client.create_in(ROOT, "anything");
    assert!(!client.bytes(made.a).exists());
    client.create_in(ROOT, "more");
    assert!(rig.keys(b'D').is_empty());

    // Until it is gone its identity stays taken: the removal to come would hit another collection's bytes.
    fragile.fuse.set(2, Fails::Before);
    client.delete(ROOT, "b").unwrap();
    let (_, op) = client.create_op(ROOT, "c");
    let CatalogOp::Create { ws, kind: k, parent, name, metadata, controls, layout, attr, .. } = op else { panic!() };
    let again =
        CatalogOp::Create { ws, uuid: made.b, kind: k, parent, name, metadata, controls, layout, attr, tell: false };
    assert_eq!(kind(client.ask(again.clone())), Kind::Exists);
    fragile.fuse.mend();
    client.ask(again).unwrap();
}

#[test]
fn x2_a_takeover_that_a_target_fails_leaves_the_holder_as_it_was() {
    let fragile = Fragile::new();
    let rig = fragile.open();
    let client = rig.in_workspace();
    let group = client.group(ROOT, "g");
    let hold = |client: &Client| client.open_exclusive(group, EntryKind::Group);
    hold(&client).unwrap();
    let (a, b) = (client.create_op(group, "a"), client.create_op(group, "b"));
    for (_, op) in [&a, &b] {
        client.ask(op.clone()).unwrap();
    }
    rig.later(31 * super::rig::SECOND);
    let records = || {
        let found = rig.store.scan(&KeyRange::prefix(b"R"), None, 9).unwrap();
        found.into_iter().map(|(_, record)| record.value).collect::<Vec<_>>()
    };
    let (before, other) = (records(), client.other());
    // Each object is made if need be, then fenced: the target fails at the second one.
    fragile.fuse.set(4, Fails::Once);
    assert_eq!(kind(hold(&other)), Kind::Unavailable);
    fragile.fuse.mend();
    other.create_in(ROOT, "anything");
    other.delete(ROOT, "anything").unwrap();
    assert_eq!(records(), before);
    for (uuid, _) in [&a, &b] {
        client.ask(client.publish_op(*uuid)).unwrap();
        client.close(*uuid).unwrap();
    }
    client.close(group).unwrap();
    hold(&other).unwrap();
}

#[test]
fn p7_a_persist_syncs_what_was_committed_before_it_and_tells_of_failure() {
    let fragile = Fragile::new();
    let rig = fragile.open();
    let client = rig.in_workspace();
    let steps = |text: &str, durable: bool, fails: i64| {
        let persist = CatalogOp::WorkspacePersist { ws: client.ws, durable };
        fragile.fuse.set(if fails > 0 { fails } else { 1000 }, Fails::Once);
        let before = fragile.fuse.left();
        let replies = client.submit(vec![client.create_op(ROOT, text).1, persist], Submission::Each).unwrap();
        let steps = before - fragile.fuse.left();
        fragile.fuse.mend();
        (steps, replies.iter().map(Result::is_ok).collect::<Vec<_>>())
    };
    assert_eq!(steps("a", false, 0), (1, vec![true, true]), "a commit survives the process by itself");
    assert_eq!(steps("b", true, 0), (2, vec![true, true]), "the commit, then one sync");
    assert_eq!(steps("c", true, 2), (2, vec![true, false]));
    client.lookup(ROOT, "c").unwrap();
}

#[test]
fn b3_a_batch_whose_target_or_log_was_away_at_any_step_gets_through_when_repeated() {
    for step in 1.. {
        let fragile = Fragile::new();
        let rig = fragile.open();
        let client = rig.in_workspace();
        let made = Made::new(&client);
        let work = || {
            for (uuid, data) in [(made.a, &b"new a"[..]), (made.c, b"new c!")] {
                match client.bytes(uuid).staged(made.batch).write(0, data) {
                    // Of a batch that was applied already.
                    Err(e) if e.kind() == Kind::Immutable => {}
                    other => drop(other?),
                }
            }
            let staged = staged(&client, &[made.a, made.c]);
            client.submit(made.ops(&client), Submission::All { batch: made.batch, remember: true, staged })
        };
        fragile.fuse.set(step, Fails::Once);
        let first = work();
        let through = fragile.fuse.left() > 0;
        fragile.fuse.mend();
        // An answer that says so is right: the retry finds it done, or does it.
        let again = if first.is_ok() { first } else { work() };
        assert!(again.unwrap().iter().all(Result::is_ok));
        assert_eq!(client.bytes(made.a).read().unwrap(), b"new a");
        assert_eq!(client.bytes(made.c).read().unwrap(), b"new c!");
        assert_eq!(client.stat(made.c).unwrap().state, Some(State::Sealed));
        client.create_in(ROOT, "anything");
        assert!(!client.bytes(made.b).exists(), "at the latest with the next request");
        consistent(&rig, &client);
        if through {
            assert!(step > 8);
            break;
        }
    }
}
