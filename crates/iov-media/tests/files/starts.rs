//! What a daemon finds at its start that was under way, and what is left of a publication that did not come to its end.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use iov_media::{Lent, Options, Peer as Client, fail};
use iov_store::{ClientPage, LeaseAccess, Memory, OpCx, Segment, run_one};
use iov_types::{Clause, Demand, ObjectId, ObjectOp, ObjectVerb, Outcome, Persistence, Range, Uuid};

use rustix::process::Signal;

use crate::{
    grants::Connected,
    kit::{
        ALL, Peer, all, bytes, call, cx, directory, file, object, open, open_with, segments, send, staged, try_all,
        uuid, write,
    },
};

fn me() -> Client {
    Client { pid: std::process::id(), uid: rustix::process::geteuid().as_raw() }
}

/// A client goes on by what it was granted while its daemon is killed and another one starts: what it hears to be written is
/// there (P2).
#[test]
fn p2_a_start_takes_nothing_from_who_is_writing() {
    let directory = segments();
    let patient = || Options { recall_ns: 5_000_000_000, shared: Some(64 << 20), ..Options::default() };
    let files = open_with(directory.path(), patient()).expect("a target");
    write(&files, object(1), 0, &bytes(1, 100)).expect("a write");
    let page = files.open_session(uuid(1), me()).expect("a page");
    let wanted = Range { offset: 100, len: 8092 };
    let granted = files.grant(&cx(), uuid(1), object(1), LeaseAccess::Write, wanted, 0).expect("a grant");
    let Lent::Memory(window) = &granted.lent else { panic!("a grant of a file") };
    let map = |number| Segment::map(files.segment(number, true).expect("a segment")).expect("a mapping");
    let (head, pieces) = (map(window.head.segment), &window.stretches);
    let maps: Vec<_> = pieces.iter().map(|(at, piece)| (*at, *piece, map(piece.segment))).collect();
    let slot = ClientPage::map(&page).expect("a page").slot(granted.slot, granted.generation).expect("a slot");
    let guard = slot.begin_write().expect("leave to write");
    let new = bytes(7, 8092);
    for (at, piece, map) in &maps {
        let (from, to) = ((*at).max(100), (at + piece.len).min(8192));
        if from < to {
            map.copy_in(piece.at + (from - at), &new[(from - 100) as usize..(to - 100) as usize]);
        }
    }
    drop(files); // as if it had died: pages stay as they are
    let path = directory.path().to_owned();
    let next = std::thread::spawn(move || open_with(&path, patient()).expect("a target"));
    // Its start waits for who has announced a write.
    std::thread::sleep(Duration::from_millis(300));
    head.head(window.head.at).written(8192);
    assert!(guard.finish(), "the client hears that it is done");
    let files = next.join().expect("the start");
    let found = all(&files, object(1));
    assert!(found[..100] == bytes(1, 100) && found[100..] == new, "{:?}", found.iter().position(|b| *b == 0));
}

/// Where processes are not seen, as in another namespace than the last daemon's, they may live all the same: they are waited for,
/// and what they are writing goes nowhere and is to be written again (G2).
#[test]
fn g2_a_start_takes_from_whom_it_does_not_see_and_waits_for_him() {
    for what in ["in another namespace", "of an older release", "another of its number"] {
        let directory = directory();
        let files = open(directory.path());
        write(&*files, object(1), 0, &bytes(1, 100)).expect("a write");
        let page = files.open_session(uuid(1), me()).expect("a page");
        let granted = files.grant(&cx(), uuid(1), object(1), LeaseAccess::Write, ALL, 0).expect("a grant");
        let slot = ClientPage::map(&page).expect("a page").slot(granted.slot, granted.generation).expect("a slot");
        let guard = slot.begin_write().expect("leave to write");
        drop(files); // as if it had died: pages stay as they are
        let (start, namespace) = (24, 48); // in the page: when its owner started, and where its number is his
        let (other, none) = (&[1; 8], &[0; 8]);
        match what {
            "in another namespace" => drop(rustix::io::pwrite(&page, other, namespace).expect("a page")),
            "of an older release" => {
                rustix::io::pwrite(&page, other, start).expect("a page");
                rustix::io::pwrite(&page, none, namespace).expect("a page");
            }
            _ => drop(rustix::io::pwrite(&page, other, start).expect("a page")),
        }
        let files = open(directory.path());
        let pages = || std::fs::read_dir(directory.path().join("leases")).expect("pages").count();
        let unseen = what != "another of its number";
        assert_eq!((files.awaits_clients(), pages()), (unseen, usize::from(unseen)), "{what}");
        assert!(!slot.holds(), "{what}: it asks the new daemon");
        if unseen {
            rustix::io::pwrite(file(&granted), &[9; 50], 0).expect("a late write");
        }
        assert_eq!(all(&*files, object(1)), bytes(1, 100), "{what}");
        files.sweep_sessions().expect("a sweep");
        assert_eq!(pages(), usize::from(unseen), "{what}: also the daemon after this one waits");
        files.end_waiting().expect("the end of that");
        assert_eq!((files.awaits_clients(), pages()), (false, 0), "{what}");
        assert!(!guard.finish(), "{what}: what was under way does not count");
    }
}

/// One that is not seen comes back, and so is not waited for any more.
#[test]
fn x1_who_is_not_seen_and_comes_back_is_not_waited_for() {
    let directory = directory();
    let files = open(directory.path());
    let page = files.open_session(uuid(1), me()).expect("a page");
    drop(files); // as if it had died: pages stay as they are
    rustix::io::pwrite(&page, &[1; 8], 48).expect("a page");
    let files = open(directory.path());
    assert!(files.awaits_clients());
    files.came_back(uuid(1));
    assert!(!files.awaits_clients());
    assert_eq!(std::fs::read_dir(directory.path().join("leases")).expect("pages").count(), 0);
}

/// A daemon that is killed while it makes the place of the first staged bytes has told nobody: the next one goes on (B3).
#[test]
fn b3_a_start_takes_away_a_place_of_staged_bytes_that_was_never_finished() {
    let directory = segments();
    let (id, stage) = (object(1), uuid(1));
    let files = open(directory.path());
    write(&*files, id, 0, b"base").expect("a write");
    send(&*files, id, ObjectVerb::Truncate { size: 2 }, staged(stage), &[]).expect("a staged cut");
    drop(files);
    let logs = std::fs::read_dir(directory.path().join("stage")).expect("the folder");
    let log = logs.map(|e| e.expect("an entry").path()).find(|p| p.extension().is_some_and(|e| e == "log"));
    let image = log.expect("the log of the stage").with_extension("image");
    assert!(!image.exists(), "no bytes are staged");
    std::fs::write(&image, b"").expect("what the killed daemon left");
    let files = open(directory.path());
    assert!(files.troubles().is_empty() && !image.exists(), "{:?}", files.troubles());
    send(&*files, id, ObjectVerb::Write { offset: 1 }, staged(stage), b"new").expect("a staged write");
    call(&*files, id, ObjectVerb::Freeze { stage }).expect("a freeze");
    call(&*files, id, ObjectVerb::Publish { stage }).expect("the publication");
    assert_eq!(all(&*files, id), b"bnew");
}

/// Where staged bytes lie is not known any more: all else is served, and the stage can be given up.
#[test]
fn i1_a_damaged_place_of_staged_bytes_concerns_its_object() {
    let directory = segments();
    let (id, stage) = (object(1), uuid(1));
    let files = open(directory.path());
    write(&*files, id, 0, b"base").expect("a write");
    write(&*files, object(2), 0, b"other").expect("a write");
    send(&*files, id, ObjectVerb::Write { offset: 0 }, staged(stage), &bytes(1, 100_000)).expect("a staged write");
    drop(files);
    let images = std::fs::read_dir(directory.path().join("stage")).expect("the folder");
    let image = images.map(|e| e.expect("an entry").path()).find(|p| p.extension().is_some_and(|e| e == "image"));
    let image = image.expect("the place of the staged bytes");
    let mut index = std::fs::read(&image).expect("its index");
    index[20] ^= 1;
    std::fs::write(&image, &index).expect("the damage");
    let files = open(directory.path());
    assert_eq!(files.troubles().len(), 1, "{:?}", files.troubles());
    assert_eq!(all(&*files, object(2)), b"other");
    call(&*files, id, ObjectVerb::Freeze { stage }).expect_err("it cannot be published");
    assert_eq!(all(&*files, id), b"base");
    call(&*files, id, ObjectVerb::Discard { stage }).expect("it is given up");
    write(&*files, id, 4, b"+").expect("a write");
    assert_eq!(all(&*files, id), b"base+");
}

/// In the place of a file of a stage, one that cannot be read, as after an error of the disk. Where the file is meanwhile.
fn hide(root: &Path, kind: &str) -> (PathBuf, PathBuf) {
    let entries = std::fs::read_dir(root.join("stage")).expect("the folder").map(|e| e.expect("an entry").path());
    let file = entries.into_iter().find(|p| p.extension().is_some_and(|e| e == kind)).expect("a file of the stage");
    let aside = root.join("aside");
    std::fs::rename(&file, &aside).expect("a rename");
    let (place, mode) = (rustix::fs::CWD, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(place, &file, rustix::fs::FileType::Socket, mode, 0).expect("what nobody can open");
    (aside, file)
}

/// An object with 4 bytes and a stage that a daemon before has left.
fn with_stage(root: &Path) -> (ObjectId, Uuid, Vec<u8>) {
    let (id, stage, new) = (object(1), uuid(1), bytes(1, 100_000));
    let files = open(root);
    write(&*files, id, 0, b"base").expect("a write");
    write(&*files, object(2), 0, b"other").expect("a write");
    send(&*files, id, ObjectVerb::Write { offset: 0 }, staged(stage), &new).expect("a staged write");
    (id, stage, new)
}

#[test]
fn b3_what_is_staged_and_cannot_be_read_for_now_concerns_its_object_and_is_not_lost() {
    for kind in ["image", "log"] {
        let directory = directory();
        let (id, stage, new) = with_stage(directory.path());
        let (aside, file) = hide(directory.path(), kind);
        let files = open(directory.path());
        assert!(!files.troubles().is_empty(), "it says so");
        assert_eq!(all(&*files, object(2)), b"other");
        // It may be what has frozen the object.
        try_all(&*files, id).expect_err("nobody passes by it");
        files.drop_stages(&[stage]).expect_err("it is not there for now");
        std::fs::rename(&aside, &file).expect("the end of the error");
        assert_eq!(all(&*files, id), b"base");
        call(&*files, id, ObjectVerb::Freeze { stage }).expect("a freeze");
        call(&*files, id, ObjectVerb::Publish { stage }).expect("the publication");
        assert!(all(&*files, id) == new, "all of it is there");
    }
}

/// Somebody is stuck in a write to an object that cannot be read at the start: it is moved before anybody is served of it (G2).
#[test]
fn g2_an_object_that_can_be_read_again_is_out_of_the_reach_of_a_late_writer() {
    let directory = directory();
    let (id, stage, _) = with_stage(directory.path());
    let files = open(directory.path());
    let mut client = Connected::new(&files, directory.path(), 1);
    client.grant(&files, 1, LeaseAccess::Write, 0, "a");
    client.peer.tell("write a 0 99 4 stop");
    client.peer.wait_until_stopped();
    drop(files); // as if it had died: pages stay as they are
    let (aside, file) = hide(directory.path(), "image");
    let files = open(directory.path());
    assert!(!files.troubles().is_empty(), "it says so");
    try_all(&*files, id).expect_err("nobody passes by what is staged");
    std::fs::rename(aside, file).expect("the end of the error");
    call(&*files, id, ObjectVerb::Discard { stage }).expect("the stage is given up");
    assert_eq!(all(&*files, id), b"base");
    client.peer.signal(Signal::CONT);
    assert_eq!(client.peer.hear(), "void");
    assert_eq!(all(&*files, id), b"base", "nothing of it appears");
}

#[test]
fn b3_what_is_staged_and_cannot_be_read_any_more_can_be_given_up() {
    for how in ["discard", "drop", "remove"] {
        let directory = directory();
        let (id, stage, _) = with_stage(directory.path());
        hide(directory.path(), "image");
        let files = open(directory.path());
        let mut left = b"base".to_vec();
        match how {
            "discard" => drop(call(&*files, id, ObjectVerb::Discard { stage }).expect("a discard")),
            "drop" => files.drop_stages(&[]).expect("the end of recovery"),
            _ => {
                call(&*files, id, ObjectVerb::Remove).expect("a remove");
                left = Vec::new();
            }
        }
        assert_eq!((all(&*files, id), files.stages()), (left.clone(), Vec::new()), "{how}");
        assert_eq!(std::fs::read_dir(directory.path().join("stage")).expect("the folder").count(), 0, "{how}");
        write(&*files, id, 0, b"BASE").expect("nobody is kept out");
        drop(files);
        assert_eq!(all(&*open(directory.path()), id), b"BASE", "{how}");
    }
}

/// What is decided about stages while an object cannot be read holds for it once it can: nobody waits for who is gone.
#[test]
fn b3_a_freeze_that_was_lifted_while_its_object_could_not_be_read_is_over() {
    let directory = directory();
    let (id, stage, new) = with_stage(directory.path());
    call(&*open(directory.path()), id, ObjectVerb::Freeze { stage }).expect("a freeze");
    let (aside, file) = hide(directory.path(), "image");
    let files = open(directory.path());
    files.thaw_stages(&[]).expect_err("it cannot be read");
    std::fs::rename(aside, file).expect("the end of the error");
    let soon = OpCx::own(1_000_000_000);
    let stat = ObjectOp { object: id, verb: ObjectVerb::Stat, demand: Demand::default() };
    run_one(&*files, &soon, stat, Memory::default()).expect("nobody is kept out");
    call(&*files, id, ObjectVerb::Freeze { stage }).expect("its client goes on");
    call(&*files, id, ObjectVerb::Publish { stage }).expect("the publication");
    assert!(all(&*files, id) == new);
}

#[test]
fn b3_a_stage_that_could_not_be_dropped_goes_when_it_can_be_read() {
    for how in ["drop", "abandon", "abandon what is frozen"] {
        let directory = directory();
        let (id, stage, new) = with_stage(directory.path());
        let frozen = how == "abandon what is frozen";
        if frozen {
            call(&*open(directory.path()), id, ObjectVerb::Freeze { stage }).expect("a freeze");
        }
        let (aside, file) = hide(directory.path(), "log");
        let files = open(directory.path());
        // Staged for one that comes behind it.
        send(&*files, object(2), ObjectVerb::Write { offset: 0 }, staged(stage), &new).expect("a staged write");
        let dropped = if how == "drop" { files.drop_stages(&[]) } else { files.abandon_stage(stage) };
        dropped.expect_err("one of the two cannot be read");
        assert_eq!(files.stages(), [(stage, vec![id])], "{how}: the other has gone");
        assert!(!files.has_stage(stage), "{how}: nobody may go on with a part of it");
        files.sweep_sessions().expect("a sweep");
        std::fs::rename(aside, file).expect("the end of the error");
        files.sweep_sessions().expect("a sweep");
        if frozen {
            call(&*files, id, ObjectVerb::Publish { stage }).expect("the catalog's");
            assert!(all(&*files, id) == new);
        }
        assert_eq!(files.stages(), [], "{how}");
        write(&*files, id, 0, b"next").expect("nobody is kept out");
        send(&*files, id, ObjectVerb::Write { offset: 0 }, staged(stage), b"news").expect("the batch, once more");
        call(&*files, id, ObjectVerb::Publish { stage }).expect("its publication");
        assert_eq!(all(&*files, id)[..4], *b"news", "{how}");
    }
}

#[test]
fn b3_a_publication_that_may_have_begun_is_not_given_up() {
    let directory = directory();
    assert_eq!(Peer::start("an interrupted publication", directory.path(), &[]).end(), Some(9));
    let (aside, file) = hide(directory.path(), "log");
    let (id, stage) = (object(1), uuid(1));
    let files = open(directory.path());
    call(&*files, id, ObjectVerb::Discard { stage }).expect_err("nobody knows");
    files.drop_stages(&[]).expect_err("nobody knows");
    std::fs::rename(aside, file).expect("the end of the error");
    call(&*files, id, ObjectVerb::Publish { stage }).expect("it goes on");
    assert_eq!(all(&*files, id), b"news");
}

/// A holder that was fenced removes nothing, whatever else cannot be read (X1).
#[test]
fn x1_a_remove_of_what_cannot_be_read_knows_who_was_fenced() {
    let directory = directory();
    let (id, stage, new) = with_stage(directory.path());
    let files = open(directory.path());
    call(&*files, id, ObjectVerb::Fence { epoch: 5 }).expect("a fence");
    drop(files);
    let (aside, file) = hide(directory.path(), "image");
    let files = open(directory.path());
    let late = send(&*files, id, ObjectVerb::Remove, Demand { epoch: 4, ..Demand::default() }, &[]);
    assert_eq!(late.expect_err("it was fenced").clause(), Some(Clause::X1));
    std::fs::rename(aside, file).expect("the end of the error");
    call(&*files, id, ObjectVerb::Publish { stage }).expect("it is all there");
    assert!(all(&*files, id) == new);
}

#[test]
fn b3_a_publication_that_makes_shorter_is_finished() {
    let directory = directory();
    assert_eq!(Peer::start("a shortening publication", directory.path(), &[]).end(), Some(9));
    let files = open(directory.path());
    assert!(files.troubles().is_empty(), "{:?}", files.troubles());
    for slot in [1, 2] {
        assert_eq!(all(&*files, object(slot)), &bytes(1, 100)[..10], "object {slot}");
    }
    call(&*files, object(2), ObjectVerb::Publish { stage: uuid(1) }).expect("it is done");
    files.drop_stages(&[]).expect("the other one goes");
    write(&*files, object(2), 0, b"later").expect("nobody is kept out");
    send(&*files, object(2), ObjectVerb::Append, Demand::default(), b"+").expect("an append");
    assert_eq!(all(&*files, object(2)).len(), 11);
}

/// Cuts an object with appends; once its daemon goes on, and once it is killed while another stage waits.
pub(crate) fn shortening_publication(root: &Path) {
    let files = open(root);
    for slot in [1, 2] {
        let (id, stage) = (object(slot), uuid(1));
        send(&*files, id, ObjectVerb::Append, Demand::default(), &bytes(1, 100)).expect("an append");
        send(&*files, id, ObjectVerb::Truncate { size: 10 }, staged(stage), &[]).expect("a staged cut");
        if slot == 2 {
            send(&*files, id, ObjectVerb::Write { offset: 0 }, staged(uuid(2)), b"other").expect("another stage");
        }
        call(&*files, id, ObjectVerb::Freeze { stage }).expect("a freeze");
        fail::arm(if slot == 1 { "publish.3.applied:1" } else { "publish.3.applied:1:kill" }).expect("a fail point");
        call(&*files, id, ObjectVerb::Publish { stage }).expect_err("it fails behind the cut");
        call(&*files, id, ObjectVerb::Publish { stage }).expect("the publication, again");
        assert_eq!(all(&*files, id), &bytes(1, 100)[..10]);
    }
}

#[test]
fn p8_what_is_published_and_cannot_be_synced_is_still_read() {
    let directory = directory();
    assert_eq!(Peer::start("an unsynced publication", directory.path(), &[]).end(), None);
}

pub(crate) fn unsynced_publication(root: &Path) {
    let files = open(root);
    let (id, stage) = (object(1), uuid(1));
    let durable = |demand: Demand| Demand { durability: Some(Persistence::Durable), ..demand };
    write(&*files, id, 0, b"base").expect("a write");
    send(&*files, id, ObjectVerb::Write { offset: 0 }, staged(stage), b"news").expect("a stage");
    send(&*files, id, ObjectVerb::Sync, durable(staged(stage)), &[]).expect("a sync of the stage");
    call(&*files, id, ObjectVerb::Freeze { stage }).expect("a freeze");
    fail::arm("sync.data:1").expect("a fail point");
    for n in 0..2 {
        let e = send(&*files, id, ObjectVerb::Publish { stage }, durable(Demand::default()), &[]);
        let e = e.expect_err("it is not durable");
        assert_eq!((e.clause(), e.outcome()), (Some(Clause::P8), Outcome::Applied), "{n}: {e}");
        assert_eq!(try_all(&*files, id).expect("it can be read"), b"news");
    }
    let e = write(&*files, id, 0, b"late").expect_err("it has failed");
    assert_eq!(e.clause(), Some(Clause::P8));
    assert_eq!(files.stages(), []);
    drop(files);
    let files = open(root);
    assert_eq!(try_all(&*files, id).expect("also by the next daemon"), b"news");
}

/// The same where the publication is finished by the next daemon: those behind it know.
#[test]
fn p8_what_a_start_could_not_sync_stays_unsafe() {
    let directory = directory();
    assert_eq!(Peer::start("an interrupted publication", directory.path(), &[]).end(), Some(9));
    assert_eq!(Peer::start("an unsynced start", directory.path(), &[]).end(), None);
    let files = open(directory.path());
    assert_eq!(try_all(&*files, object(1)).expect("it can be read"), b"news");
    let durable = Demand { durability: Some(Persistence::Durable), ..Demand::default() };
    let e = send(&*files, object(1), ObjectVerb::Sync, durable, &[]).expect_err("it may have been lost");
    assert_eq!(e.clause(), Some(Clause::P8), "{e}");
}

/// A durable publication that is killed once it is decided.
pub(crate) fn interrupted_publication(root: &Path) {
    let files = open(root);
    let (id, stage) = (object(1), uuid(1));
    let durable = |demand: Demand| Demand { durability: Some(Persistence::Durable), ..demand };
    write(&*files, id, 0, b"base").expect("a write");
    send(&*files, id, ObjectVerb::Write { offset: 0 }, durable(staged(stage)), b"news").expect("a stage");
    send(&*files, id, ObjectVerb::Sync, durable(staged(stage)), &[]).expect("a sync of the stage");
    call(&*files, id, ObjectVerb::Freeze { stage }).expect("a freeze");
    fail::arm("publish.1.decided:1:kill").expect("a fail point");
    let _ = send(&*files, id, ObjectVerb::Publish { stage }, durable(Demand::default()), &[]);
}

/// A start that cannot sync what it finishes.
pub(crate) fn unsynced_start(root: &Path) {
    fail::arm("sync.data:1").expect("a fail point");
    let files = open(root);
    assert!(!files.troubles().is_empty(), "it says so");
    assert_eq!(files.stages(), []);
}

/// Who waits for a grant that is given back does not take the place's next one for it (G1).
#[test]
fn g1_a_recall_takes_only_what_it_has_revoked() {
    let directory = segments();
    let files = open(directory.path());
    let page = files.open_session(uuid(1), me()).expect("a page");
    let page = ClientPage::map(&page).expect("a page");
    write(&*files, object(2), 0, &[2; 5000]).expect("a write");
    for round in 1..200_u64 {
        write(&*files, object(1), 0, &[1; 5000]).expect("a write");
        let wanted = Range { offset: 0, len: 5000 };
        let grant = |slot| {
            let granted =
                files.grant(&cx(), uuid(1), object(slot), LeaseAccess::Write, wanted, round).expect("a grant");
            let slot = page.slot(granted.slot, granted.generation).expect("a slot");
            (granted, slot)
        };
        let (first, slot) = grant(1);
        let guard = slot.begin_write().expect("leave to write");
        let other = Arc::clone(&files);
        let fence = move || call(&*other, object(1), ObjectVerb::Fence { epoch: round + 1 }).expect("a fence");
        let recall = std::thread::spawn(fence);
        while slot.holds() {
            std::hint::spin_loop();
        }
        guard.finish();
        files.give_back(uuid(1), &[(first.slot, first.generation)]);
        let (second, slot) = grant(2);
        recall.join().expect("the fence");
        assert_eq!(second.slot, first.slot, "the place is used again");
        assert!(slot.holds(), "round {round}: nobody has asked for it back");
        files.give_back(uuid(1), &[(second.slot, second.generation)]);
        call(&*files, object(1), ObjectVerb::Remove).expect("a remove");
    }
}
