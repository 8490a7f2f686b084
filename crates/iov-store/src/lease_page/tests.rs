#![allow(clippy::disallowed_methods)] // tests may spawn threads

mod protocol;

use std::{
    fs::{File, OpenOptions},
    os::fd::{AsFd, FromRawFd},
};

use super::*;

fn memory_file() -> File {
    // SAFETY: the name is a C string; the descriptor is new and ours.
    unsafe {
        let fd = libc::memfd_create(c"lease page".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    }
}

fn read_only(file: &File) -> File {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    OpenOptions::new().read(true).open(path).expect("the same file for reading")
}

const OWNER: LeaseOwner = LeaseOwner { session: Uuid([7; 16]), pid: 4711, start: 99, namespace: 5 };

fn object(slot: u64) -> ObjectId {
    let mut collection = Uuid([0; 16]);
    for (i, byte) in collection.0.iter_mut().enumerate() {
        *byte = 200 + i as u8;
    }
    ObjectId { collection, slot }
}

#[test]
fn g1_a_grant_holds_until_it_is_taken_back() {
    let file = memory_file();
    let page = LeasePage::create(&file, &OWNER).expect("a page");
    page.offer(3, 1, object(5), 6, LeaseAccess::Write);
    let slot = ClientPage::map(&file).expect("the client's side").slot(3, 1).expect("a slot");
    assert!(slot.holds() && slot.read_is_valid());
    let guard = slot.begin_write().expect("a granted write");
    assert!(!page.drained(3), "a write is under way");
    page.revoke(3, 1);
    assert!(slot.begin_write().is_none() && !slot.read_is_valid(), "nothing begins after that");
    assert!(!page.drained(3), "the refused write has left the first one as it was");
    assert!(guard.finish(), "a write that the server waits for counts");
    assert!(page.drained(3));
}

#[test]
fn g1_a_slot_given_out_again_does_not_fit_an_old_handle() {
    let file = memory_file();
    let page = LeasePage::create(&file, &OWNER).expect("a page");
    let client = ClientPage::map(&file).expect("the client's side");
    page.offer(0, 1, object(1), 6, LeaseAccess::Write);
    let old = client.slot(0, 1).expect("a slot");
    page.revoke(0, 1);
    page.free(0);
    assert!(old.begin_write().is_none());
    page.offer(0, 2, object(2), 6, LeaseAccess::Write);
    assert!(old.begin_write().is_none() && !old.holds(), "the generation is another");
    assert!(client.slot(0, 2).expect("a slot").begin_write().is_some());
    assert!(page.drained(0));
}

#[test]
fn g2_a_write_that_was_left_behind_is_void() {
    let file = memory_file();
    let page = LeasePage::create(&file, &OWNER).expect("a page");
    page.offer(9, 4, object(5), 6, LeaseAccess::Write);
    let slot = ClientPage::map(&file).expect("the client's side").slot(9, 4).expect("a slot");
    let guard = slot.begin_write().expect("a granted write");
    page.revoke(9, 4);
    page.relocate(9, 4);
    assert!(!guard.finish(), "its bytes may have been moved without it");
    assert!(page.drained(9));
}

#[test]
fn g5_a_session_that_may_only_read_needs_no_write_access_to_the_page() {
    let file = memory_file();
    let page = LeasePage::create(&file, &OWNER).expect("a page");
    page.offer(1, 1, object(1), 6, LeaseAccess::Read);
    let slot = ClientPage::map(read_only(&file)).expect("the client's side").slot(1, 1).expect("a slot");
    assert!(slot.read_is_valid());
    assert!(slot.begin_write().is_none(), "it cannot announce a write");
    page.revoke(1, 1);
    assert!(!slot.read_is_valid());
}

#[test]
fn g2_a_page_outlives_its_server() {
    let file = memory_file();
    {
        let page = LeasePage::create(&file, &OWNER).expect("a page");
        page.offer(2, 7, object(1), 6, LeaseAccess::Read);
        page.offer(1023, 8, object(2), 6, LeaseAccess::Write);
        page.offer(4, 9, object(3), 6, LeaseAccess::Write);
        page.free(4);
        page.offer(5, 3, object(4), 6, LeaseAccess::Write);
        page.relocate(5, 3);
        page.offer(6, 2, object(5), 6, LeaseAccess::Lent);
    }
    let (page, owner) = LeasePage::open(&file).expect("the page of an earlier server");
    assert_eq!(owner, OWNER);
    let found = |index, generation, n, access, relocated| FoundLease {
        index,
        generation,
        object: object(n),
        access,
        epoch: 6,
        revoked: relocated,
        relocated,
    };
    let expected = [
        found(2, 7, 1, LeaseAccess::Read, false),
        found(5, 3, 4, LeaseAccess::Write, true),
        found(6, 2, 5, LeaseAccess::Lent, false),
        found(1023, 8, 2, LeaseAccess::Write, false),
    ];
    assert_eq!(page.found(), expected);
}

#[test]
fn g6_what_is_no_page_is_refused() {
    let kind = |file: &File| LeasePage::open(file).err().map(|e| e.kind());
    let file = memory_file();
    assert_eq!(kind(&file), Some(iov_types::Kind::Corrupt), "an empty file: it must not be touched when mapped");
    file.set_len(LEASE_PAGE_BYTES as u64).expect("a length");
    assert_eq!(kind(&file), Some(iov_types::Kind::Corrupt), "zeros");
    let page = LeasePage::create(&file, &LeaseOwner { pid: 0, ..OWNER }).expect("a page");
    assert_eq!(kind(&file), Some(iov_types::Kind::Corrupt), "no process");
    page.0.header().version.store(2, Ordering::Relaxed);
    assert_eq!(kind(&file), Some(iov_types::Kind::Version), "of a later program");
    assert_eq!(ClientPage::map(&file).err().map(|e| e.kind()), Some(iov_types::Kind::Version));
    let client = ClientPage(Mapping::new(file.as_fd(), true).expect("a mapping"));
    let client = Arc::new(client);
    assert!(client.slot(LEASE_SLOTS, 1).is_err() && client.slot(0, 0).is_err() && client.slot(0, u64::MAX).is_err());
}

#[test]
fn g2_what_a_client_spoils_is_not_believed() {
    let file = memory_file();
    let page = LeasePage::create(&file, &OWNER).expect("a page");
    page.offer(0, 1, object(1), 6, LeaseAccess::Write);
    page.0.slot(0).access.store(77, Ordering::Relaxed);
    page.0.slot(1).state.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(page.found(), []);
    page.0.slot(0).busy.store(u64::MAX, Ordering::Relaxed);
    assert!(!page.drained(0), "a spoiled count costs its client a relocation, and nobody else anything");
}

#[test]
fn m2_no_write_begins_behind_a_drained_revocation() {
    let file = memory_file();
    let page = LeasePage::create(&file, &OWNER).expect("a page");
    let client = ClientPage::map(&file).expect("the client's side");
    let content = AtomicU64::new(0);
    for generation in 1..=300 {
        page.offer(0, generation, object(1), 6, LeaseAccess::Write);
        std::thread::scope(|threads| {
            for _ in 0..2 {
                let slot = client.slot(0, generation).expect("a slot");
                let content = &content;
                threads.spawn(move || {
                    while let Some(guard) = slot.begin_write() {
                        content.fetch_add(1, Ordering::Relaxed);
                        assert!(guard.finish());
                    }
                });
            }
            while content.load(Ordering::Relaxed) < generation {
                std::hint::spin_loop();
            }
            page.revoke(0, generation);
            while !page.drained(0) {
                std::hint::spin_loop();
            }
            let sealed = content.load(Ordering::Relaxed);
            std::thread::yield_now();
            assert_eq!(content.load(Ordering::Relaxed), sealed, "a write behind the seal");
        });
        page.free(0);
        content.store(generation + 1, Ordering::Relaxed);
    }
}
