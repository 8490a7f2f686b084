//! Files that are lent to be written by others than who asked for them, as a mount does for programs by way of the kernel (G1, G2,
//! X1).

use std::{
    fs::{File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::Path,
};

use iov_media::{Files, Granted, Peer as Client, fail};
use iov_store::{ClientPage, ClientSlot, LeaseAccess};
use iov_types::{Clause, Demand, Kind, ObjectVerb, Persistence, Result, Uuid};

use crate::grants::Connected;
use crate::kit::{
    ALL, Peer, all, bytes, call, cx, data_path, directory, file, object, open, segments, send, uuid, write,
};

fn client(pid: u32) -> Client {
    Client { pid, uid: rustix::process::geteuid().as_raw() }
}

/// A session of this process, or of another.
fn session(files: &Files, n: u8, pid: u32) -> (Uuid, std::sync::Arc<ClientPage>) {
    let page = files.open_session(uuid(n), client(pid)).expect("a session");
    (uuid(n), ClientPage::map(page).expect("a page"))
}

fn lend(files: &Files, session: Uuid, epoch: u64) -> Result<Granted> {
    files.grant(&cx(), session, object(1), LeaseAccess::Lent, ALL, epoch)
}

/// Opens for writing what was lent, as the kernel does.
fn writer(granted: &Granted) -> File {
    let fd = file(granted);
    let flags = rustix::fs::fcntl_getfl(fd).expect("its flags");
    assert_eq!(flags & rustix::fs::OFlags::ACCMODE, rustix::fs::OFlags::RDONLY, "nobody writes by this");
    OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("the file")
}

fn fence(files: &Files, epoch: u64) {
    call(files, object(1), ObjectVerb::Fence { epoch }).expect("a fence");
}

fn inode(root: &Path) -> u64 {
    data_path(root, object(1)).metadata().expect("the object").ino()
}

fn pages(root: &Path) -> usize {
    std::fs::read_dir(root.join("leases")).expect("a directory").count()
}

#[track_caller]
fn busy<T: std::fmt::Debug>(result: Result<T>) {
    let e = result.expect_err("somebody has it");
    assert_eq!((e.kind(), e.clause()), (Kind::Busy, Some(Clause::G1)), "{e:?}");
}

fn slot(page: &std::sync::Arc<ClientPage>, granted: &Granted) -> ClientSlot {
    page.slot(granted.slot, granted.generation).expect("a slot")
}

#[test]
fn g1_what_is_lent_stays_until_nobody_writes_it_any_more() {
    let directory = directory();
    let files = open(directory.path());
    let (session, page) = session(&files, 1, std::process::id());
    write(&*files, object(1), 0, &bytes(1, 5000)).expect("a write");
    fence(&files, 5);
    let lent = lend(&files, session, 5).expect("a loan");
    let writer = writer(&lent);
    writer.write_all_at(b"by itself", 5000).expect("a write");
    // Whoever asks the target sees the same bytes, and changes them.
    write(&*files, object(1), 0, b"by way of the target").expect("a write");
    call(&*files, object(1), ObjectVerb::Truncate { size: 5002 }).expect("a cut");
    let mut expected = [bytes(1, 5000), b"by".to_vec()].concat();
    expected[..20].copy_from_slice(b"by way of the target");
    assert_eq!(all(&*files, object(1)), expected);
    // What would need it back is refused, and changes nothing.
    busy(call(&*files, object(1), ObjectVerb::Seal));
    busy(send(&*files, object(1), ObjectVerb::Append, Demand::default(), b"end"));
    busy(files.take_back(&cx(), session, object(1)));
    drop(writer);
    // Who has it may still give it to somebody.
    busy(call(&*files, object(1), ObjectVerb::Seal));
    assert!(slot(&page, &lent).holds());
    // A child of another test has it for a moment, from its fork on until it runs its program.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while let Err(e) = files.take_back(&cx(), session, object(1)) {
        assert!(e.kind() == Kind::Busy && std::time::Instant::now() < until, "nobody has it: {e}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    files.take_back(&cx(), session, object(1)).expect("twice is as once");
    call(&*files, object(1), ObjectVerb::Seal).expect("a seal");
    assert_eq!(all(&*files, object(1)), expected);
}

#[test]
fn what_a_loan_could_not_keep_is_not_lent() {
    let directory = directory();
    let files = open(directory.path());
    let (session, _page) = session(&files, 1, std::process::id());
    let no = |epoch| assert_eq!(lend(&files, session, epoch).expect_err("no loan").kind(), Kind::Unsupported);
    write(&*files, object(1), 0, b"bytes").expect("a write");
    no(0); // nobody holds it
    send(&*files, object(1), ObjectVerb::Append, Demand::default(), b"end").expect("an append");
    no(5);
    call(&*files, object(1), ObjectVerb::Remove).expect("a remove");
    let other = segments();
    let files = open(other.path());
    let (session, _page) = self::session(&files, 1, std::process::id());
    write(&*files, object(1), 0, b"bytes").expect("a write");
    assert_eq!(lend(&files, session, 5).expect_err("in memory").kind(), Kind::Unsupported);
}

#[test]
fn i1_what_is_kept_by_checksums_is_not_lent() {
    let directory = directory();
    let files = open(directory.path());
    let (session, _page) = session(&files, 1, std::process::id());
    let durable = Demand { durability: Some(Persistence::Durable), ..Demand::default() };
    send(&*files, object(1), ObjectVerb::Write { offset: 0 }, durable, b"bytes").expect("a write");
    let e = lend(&files, session, 5).expect_err("no loan");
    assert_eq!(e.kind(), Kind::Unsupported, "{e:?}");
}

/// Whoever was stopped for long goes on, and gives the kernel what is not his any more.
#[test]
fn x1_a_newer_holder_gets_a_file_of_his_own() {
    let directory = directory();
    let files = open(directory.path());
    let (session, page) = session(&files, 1, std::process::id());
    write(&*files, object(1), 0, &bytes(2, 9000)).expect("a write");
    fence(&files, 5);
    let lent = lend(&files, session, 5).expect("a loan");
    let before = inode(directory.path());
    // Nobody has it open just now.
    fence(&files, 6);
    assert_ne!(inode(directory.path()), before);
    assert!(!slot(&page, &lent).holds());
    let late = writer(&lent);
    late.write_all_at(b"late", 0).expect("a write");
    assert_eq!(all(&*files, object(1)), bytes(2, 9000));
    // It is over for who had it, although it is open.
    files.take_back(&cx(), session, object(1)).expect("it is not lent");
    // The next holder has his own.
    let next = lend(&files, session, 6).expect("a loan");
    writer(&next).write_all_at(b"next", 0).expect("a write");
    late.write_all_at(b"late", 0).expect("a write");
    assert_eq!(&all(&*files, object(1))[..4], b"next");
}

#[test]
fn a_loan_outlives_its_daemon() {
    let directory = directory();
    let mut files = open(directory.path());
    let (id, page) = session(&files, 1, std::process::id());
    write(&*files, object(1), 0, &bytes(3, 9000)).expect("a write");
    fence(&files, 5);
    let lent = lend(&files, id, 5).expect("a loan");
    let (file, before) = (writer(&lent), inode(directory.path()));
    for n in 0..2 {
        drop(files);
        file.write_all_at(b"between", 100 * n).expect("a write");
        files = open(directory.path());
        assert_eq!(&all(&*files, object(1))[100 * n as usize..][..7], b"between");
        assert_eq!(inode(directory.path()), before, "it stays where it is");
        assert!(slot(&page, &lent).holds());
        busy(call(&*files, object(1), ObjectVerb::Seal));
        busy(files.take_back(&cx(), id, object(1)));
    }
    // The session has come back, with another page.
    let (_, _other) = session(&files, 1, std::process::id());
    busy(files.take_back(&cx(), id, object(1)));
    drop(file);
    files.take_back(&cx(), id, object(1)).expect("nobody has it");
    call(&*files, object(1), ObjectVerb::Seal).expect("a seal");
    assert_eq!(inode(directory.path()), before);
}

#[test]
fn g2_what_an_ended_process_has_lent_is_looked_at_before_the_next_holder_gets_it() {
    for (open_still, restarted) in [(false, false), (true, false), (false, true), (true, true)] {
        let directory = directory();
        let mut files = open(directory.path());
        let peer = Peer::start("client", directory.path(), &[]);
        let (id, _page) = session(&files, 1, peer.pid());
        write(&*files, object(1), 0, &bytes(4, 9000)).expect("a write");
        fence(&files, 5);
        let lent = lend(&files, id, 5).expect("a loan");
        let (file, before) = (writer(&lent), inode(directory.path()));
        let file = Some(file).filter(|_| open_still);
        peer.signal(rustix::process::Signal::KILL);
        assert_eq!(peer.end(), Some(9));
        if restarted {
            drop(files);
            files = open(directory.path());
        }
        // Nobody knows yet what the kernel is about to do.
        files.sweep_sessions().expect("a sweep");
        assert_eq!(pages(directory.path()), 1);
        // Sealing takes it from whoever has it, as nobody can be asked.
        fence(&files, 6);
        assert_eq!(inode(directory.path()) == before, !open_still, "{open_still} {restarted}");
        if let Some(file) = &file {
            file.write_all_at(b"late", 0).expect("a write");
        }
        assert_eq!(all(&*files, object(1)), bytes(4, 9000));
        drop(file);
        files.sweep_sessions().expect("a sweep");
        assert_eq!(pages(directory.path()), 0, "its page has gone");
    }
}

#[test]
fn g6_what_is_deleted_is_not_cut_under_who_has_it_mapped() {
    let directory = directory();
    let files = open(directory.path());
    let peer = Peer::start("client", directory.path(), &[]);
    let (id, _page) = session(&files, 1, peer.pid());
    write(&*files, object(1), 0, &bytes(5, 200_000)).expect("a write");
    fence(&files, 5);
    let file = writer(&lend(&files, id, 5).expect("a loan"));
    // It can be deleted only once its holder has gone, who has left it to the kernel.
    peer.signal(rustix::process::Signal::KILL);
    assert_eq!(peer.end(), Some(9));
    call(&*files, object(1), ObjectVerb::Remove).expect("a remove");
    assert!(!data_path(directory.path(), object(1)).exists());
    assert_eq!(file.metadata().expect("the file").len(), 200_000);
}

#[test]
fn g2_a_move_that_was_cut_off_is_not_forgotten() {
    let directory = directory();
    assert_eq!(Peer::start("failing moves", directory.path(), &[]).end(), None);
}

pub(crate) fn failing_moves(root: &Path) {
    for point in ["relocate.0.begin", "relocate.1.half_copied", "relocate.2.copied", "relocate.3.renamed"] {
        for restarted in [false, true] {
            let root = root.join(format!("{point}-{restarted}"));
            std::fs::create_dir(&root).expect("a directory");
            let mut files = open(&root);
            let (id, page) = session(&files, 1, std::process::id());
            write(&*files, object(1), 0, &bytes(6, 9000)).expect("a write");
            fence(&files, 5);
            let lent = lend(&files, id, 5).expect("a loan");
            let late = writer(&lent);
            fail::arm(&format!("{point}:1")).expect("a fail point");
            call(&*files, object(1), ObjectVerb::Fence { epoch: 6 }).expect_err("it cannot be moved");
            assert!(!slot(&page, &lent).holds(), "it is not the old holder's any more");
            files.sweep_sessions().expect("a sweep");
            if restarted {
                drop(files);
                files = open(&root);
            }
            fence(&files, 6);
            late.write_all_at(b"late", 0).expect("a write");
            assert_eq!(all(&*files, object(1)), bytes(6, 9000), "{point} {restarted}");
            let (id, _page) = session(&files, 2, std::process::id());
            let next = lend(&files, id, 6).expect("a loan for the next holder");
            writer(&next).write_all_at(b"next", 0).expect("a write");
            // Nothing that is left of the old one moves the bytes once more.
            let before = inode(&root);
            files.sweep_sessions().expect("a sweep");
            write(&*files, object(1), 4, b" one").expect("a write");
            assert_eq!(&all(&*files, object(1))[..8], b"next one");
            drop(files);
            let files = open(&root);
            busy(call(&*files, object(1), ObjectVerb::Seal));
            assert_eq!(inode(&root), before);
            files.take_back(&cx(), id, object(1)).expect("nobody has it");
        }
    }
}

#[test]
fn a_descriptor_that_nobody_uses_holds_up_no_loan() {
    let directory = directory();
    let files = open(directory.path());
    let (one, _page) = session(&files, 1, std::process::id());
    let (two, _page) = session(&files, 2, std::process::id());
    write(&*files, object(1), 0, &bytes(7, 9000)).expect("a write");
    let idle = files.grant(&cx(), one, object(1), LeaseAccess::Write, ALL, 0).expect("a grant");
    fence(&files, 5);
    // It is moved away from under that one, who has to ask anew, since it is small.
    let lent = lend(&files, two, 5).expect("a loan");
    let old = File::from(file(&idle).try_clone().expect("a descriptor"));
    old.write_all_at(b"old", 0).expect("a write");
    let e = files.grant(&cx(), two, object(1), LeaseAccess::Write, ALL, 5).expect_err("it would hold it up");
    assert_eq!(e.kind(), Kind::Unsupported);
    assert_eq!(all(&*files, object(1)), bytes(7, 9000));
    drop(writer(&lent));
    files.take_back(&cx(), two, object(1)).expect("nobody has it");
    // What is large is not moved, and not lent.
    write(&*files, object(1), 2 << 20, b"large").expect("a write");
    let idle = files.grant(&cx(), one, object(1), LeaseAccess::Write, ALL, 5).expect("a grant");
    fence(&files, 6);
    assert_eq!(lend(&files, two, 6).expect_err("somebody has it open").kind(), Kind::Unsupported);
    drop(idle);
    let lent = lend(&files, two, 6).expect("a loan");
    // Somebody else who holds it with this one gets none, nor one who only says that he holds it.
    busy(lend(&files, one, 6));
    files.take_back(&cx(), two, object(1)).expect("nobody has it");
    assert_eq!(lend(&files, one, 7).expect_err("no such hold").kind(), Kind::Unsupported);
    drop(lent);
}

#[test]
fn o10_what_was_lent_once_is_not_cut_when_it_is_deleted() {
    let directory = directory();
    let files = open(directory.path());
    let (id, _page) = session(&files, 1, std::process::id());
    for sealed in [false, true] {
        write(&*files, object(1), 0, &bytes(8, 200_000)).expect("a write");
        fence(&files, 5);
        let lent = lend(&files, id, 5).expect("a loan");
        // Who has mapped it for reading only is no writer.
        let reader = File::open(data_path(directory.path(), object(1))).expect("the file");
        drop(lent);
        files.take_back(&cx(), id, object(1)).expect("nobody writes it");
        if sealed {
            call(&*files, object(1), ObjectVerb::Seal).expect("a seal");
            let e = write(&*files, object(1), 0, b"more").expect_err("it is sealed");
            assert_eq!(e.kind(), Kind::Immutable);
        }
        call(&*files, object(1), ObjectVerb::Remove).expect("a remove");
        assert_eq!(reader.metadata().expect("the file").len(), 200_000, "{sealed}");
    }
}

/// The next daemon moves bytes away from a writer who is stuck, but not from under somebody to whom they are lent since.
#[test]
fn g2_who_is_stuck_since_before_a_loan_does_not_end_it() {
    let directory = directory();
    let mut files = open(directory.path());
    write(&*files, object(1), 0, &bytes(9, 9000)).expect("a write");
    let mut stuck = Connected::new(&files, directory.path(), 7);
    stuck.grant(&files, 1, LeaseAccess::Write, 0, "a");
    stuck.peer.tell("write a 0 7 5000 stop");
    stuck.peer.wait_until_stopped();
    fence(&files, 5);
    let (id, page) = session(&files, 1, std::process::id());
    let lent = lend(&files, id, 5).expect("a loan");
    let (file, before) = (writer(&lent), inode(directory.path()));
    drop(files);
    files = open(directory.path());
    assert_eq!(inode(directory.path()), before);
    file.write_all_at(b"by the holder", 0).expect("a write");
    stuck.peer.signal(rustix::process::Signal::CONT);
    assert_eq!(stuck.peer.hear(), "void");
    assert!(slot(&page, &lent).holds());
    assert_eq!(&all(&*files, object(1))[..13], b"by the holder");
    busy(files.take_back(&cx(), id, object(1)));
    drop(file);
    files.take_back(&cx(), id, object(1)).expect("nobody has it");
}

/// Also without a loan: whoever reads by a grant must not go on with the bytes that a stuck writer was left with.
#[test]
fn g2_a_reader_does_not_stay_with_bytes_that_were_moved_away() {
    let directory = directory();
    let files = open(directory.path());
    write(&*files, object(1), 0, &bytes(9, 9000)).expect("a write");
    let mut stuck = Connected::new(&files, directory.path(), 7);
    stuck.grant(&files, 1, LeaseAccess::Write, 0, "a");
    let (id, page) = session(&files, 1, std::process::id());
    let read = files.grant(&cx(), id, object(1), LeaseAccess::Read, ALL, 0).expect("a grant");
    stuck.peer.tell("write a 0 7 5000 stop");
    stuck.peer.wait_until_stopped();
    call(&*files, object(1), ObjectVerb::Seal).expect("a seal");
    stuck.peer.signal(rustix::process::Signal::CONT);
    assert_eq!(stuck.peer.hear(), "void");
    assert_eq!(all(&*files, object(1)), bytes(9, 9000));
    assert!(!slot(&page, &read).holds(), "what it reads is not the object any more");
}
