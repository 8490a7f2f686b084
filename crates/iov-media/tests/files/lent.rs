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

use iov_media::{Files, Granted, Peer as Client};
use iov_store::{ClientPage, ClientSlot, LeaseAccess};
use iov_types::{Clause, Demand, Kind, ObjectVerb, Persistence, Result, Uuid};

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
    files.take_back(&cx(), session, object(1)).expect("nobody has it");
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
        for _ in 0..2 {
            files.sweep_sessions().expect("a sweep");
        }
        // Sealing takes it from whoever has it, as nobody can be asked.
        fence(&files, 6);
        assert_eq!(inode(directory.path()) == before, !open_still, "{open_still} {restarted}");
        if let Some(file) = &file {
            file.write_all_at(b"late", 0).expect("a write");
        }
        assert_eq!(all(&*files, object(1)), bytes(4, 9000));
        drop(file);
        files.sweep_sessions().expect("a sweep");
        let pages = std::fs::read_dir(directory.path().join("leases")).expect("a directory").count();
        assert_eq!(pages, 0, "its page has gone");
    }
}
