//! I1 when the power goes, the engine of the checksums fails, and others are in between.

use std::{
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use iov_media::{Files, Options, Peer as Client};
use iov_store::{Commit, KeyRange, LeaseAccess, MemoryStore, MetadataStore, Record, Room, Snapshot, Txn};
use iov_types::{Demand, Error, Kind, ObjectId, ObjectVerb, Range, Result};
use proptest::prelude::*;

use super::{BLOCK, DURABLE, Step, step, sync};
use crate::kit::{
    all, bytes, call, cx, data_path, directory, into_file, object, open, send, staged, try_all, uuid, write,
};

/// What goes wrong with a call of the engine.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    None,
    /// The medium is full: nothing was written.
    Full,
    /// Nothing was written, or all, and from then on the engine refuses everything.
    Broken(bool),
}

type Hook = Arc<dyn Fn(&str) + Send + Sync>;

/// A metadata engine that forgets, when the power goes, what was not persisted, and fails when it is told to.
#[derive(Default)]
struct Lossy {
    store: MemoryStore,
    /// Called in each call, with its name: before a commit, behind a get.
    hook: Mutex<Option<Hook>>,
    /// How many calls go well before one does not, and what happens then.
    fault: Mutex<Option<(u32, Fault)>>,
    /// All there was, and how much of it was persisted.
    log: Mutex<(Vec<Txn>, usize)>,
    /// Only what is kept for what must go on is free.
    scarce: AtomicBool,
}

impl Lossy {
    fn call(&self, what: &str) {
        let hook = self.hook.lock().expect("a lock").clone();
        hook.into_iter().for_each(|hook| hook(what));
    }

    fn fault(&self) -> Fault {
        let mut plan = self.fault.lock().expect("a lock");
        match &mut *plan {
            Some((0, fault)) => {
                let now = *fault;
                *plan = if now == Fault::Full { None } else { Some((0, Fault::Broken(false))) };
                now
            }
            Some((left, _)) => {
                *left -= 1;
                Fault::None
            }
            None => Fault::None,
        }
    }

    /// What comes back after a cut of power.
    fn survivor(&self) -> Lossy {
        let (log, persisted) = &*self.log.lock().expect("a lock");
        let next = Lossy::default();
        next.commit(log[..*persisted].to_vec()).expect("the same again");
        next.persist().expect("it was");
        next
    }
}

impl MetadataStore for Lossy {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        let got = self.store.get(keys);
        self.call("get");
        got
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        self.store.scan(range, after, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.store.snapshot()
    }

    fn commit(&self, txns: Vec<Txn>) -> Result<Vec<Commit>> {
        self.call("commit");
        let fault = self.fault();
        if fault == Fault::Full {
            return Err(Error::exhausted("full"));
        }
        if fault == Fault::Broken(false) {
            return Err(Error::unavailable("broken"));
        }
        self.log.lock().expect("a lock").0.extend(txns.iter().cloned());
        let done = self.store.commit(txns);
        if fault == Fault::None { done } else { Err(Error::unavailable("broken")) }
    }

    fn commit_with(&self, txns: Vec<Txn>, room: Room) -> Result<Vec<Commit>> {
        if room == Room::Free && self.scarce.load(Ordering::SeqCst) {
            return Err(Error::exhausted("full"));
        }
        self.commit(txns)
    }

    fn persist(&self) -> Result<()> {
        if self.fault() != Fault::None {
            return Err(Error::unavailable("broken"));
        }
        let mut log = self.log.lock().expect("a lock");
        log.1 = log.0.len();
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.store.bytes()
    }
}

fn open_lossy(root: &Path, store: &Arc<Lossy>) -> Files {
    let directory = || std::fs::File::open(root).expect("the directory").into();
    let open = || {
        let store = store.clone();
        Files::open_with(directory(), Options::default(), Some(Box::new(move |_| Ok(Some(store.clone())))))
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        match open() {
            // A child that another test has just forked holds all our locks until it runs its program.
            Err(e) if e.kind() == Kind::Busy && std::time::Instant::now() < end => {}
            other => return other.expect("a target"),
        }
    }
}

#[test]
fn i1_who_reads_and_writes_while_others_sync_finds_no_damage() {
    let directory = directory();
    let files = open(directory.path());
    let data = [bytes(1, 3 << 20), bytes(2, 3 << 20)];
    for slot in 0..20 {
        let id = object(slot);
        write(&*files, id, 0, &data[0]).expect("a write");
        std::thread::scope(|scope| {
            // The first of its syncs makes it one that is kept.
            let syncing = scope.spawn(|| (0..6).for_each(|_| sync(&files, id)));
            let writing = scope.spawn(|| {
                for n in 0..12 {
                    let at = n * 7919 * 31 % ((3 << 20) - 70_000);
                    write(&*files, id, at as u64, &data[n % 2][at..at + 70_000]).expect("a write");
                }
            });
            while !(syncing.is_finished() && writing.is_finished()) {
                let got = all(&*files, id);
                assert!(got.iter().zip(&data[0]).zip(&data[1]).all(|((b, x), y)| b == x || b == y));
            }
        });
        sync(&files, id);
        let last = std::fs::read(data_path(directory.path(), id)).expect("the bytes");
        assert!(all(&*files, id) == last);
    }
}

/// Runs a sync; `first` at the first commit of its checksums, while all that others may do goes on.
fn sync_meeting(files: &Files, store: &Lossy, id: ObjectId, first: impl Fn() + Send + Sync + 'static) {
    let met = AtomicBool::new(false);
    let hook: Hook = Arc::new(move |what: &str| {
        if what == "commit" && !met.swap(true, Ordering::SeqCst) {
            first();
        }
    });
    *store.hook.lock().expect("a lock") = Some(hook);
    sync(files, id);
    *store.hook.lock().expect("a lock") = None;
}

/// Whether something is done within the time in which whoever is not held up would have done it.
fn soon(done: &AtomicBool) -> bool {
    (0..300).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        done.load(Ordering::SeqCst)
    })
}

#[test]
fn i1_nobody_slips_in_behind_the_first_checksums() {
    let directory = directory();
    let store = Arc::new(Lossy::default());
    let files = Arc::new(open_lossy(directory.path(), &store));
    let me = Client { pid: std::process::id(), uid: rustix::process::geteuid().as_raw() };
    files.open_session(uuid(1), me).expect("a session");
    type Act = fn(&Files, ObjectId);
    let acts: [Act; 4] = [
        |files, id| drop(write(files, id, 100, b"new").expect("a write")),
        |files, id| {
            let copy = ObjectVerb::Copy { source: object(99), source_offset: 0, offset: 100, len: 3 };
            call(files, id, copy).expect("a copy");
        },
        |files, id| {
            let range = Range { offset: 0, len: 100 };
            let granted = files.grant(&cx(), uuid(1), id, LeaseAccess::Write, range, 0).expect("a grant");
            assert!(granted.kept);
            into_file(granted).write_all_at(b"new", 100).expect("a write");
        },
        |files, id| {
            let range = Range { offset: 0, len: 100 };
            assert!(files.grant(&cx(), uuid(1), id, LeaseAccess::Read, range, 0).expect("a grant").kept);
        },
    ];
    write(&*files, object(99), 0, b"new").expect("a write");
    for (slot, act) in acts.into_iter().enumerate() {
        let id = object(slot as u64);
        write(&*files, id, 0, &bytes(1, 30_000)).expect("a write");
        let done = Arc::new(AtomicBool::new(false));
        let (other, finished) = (files.clone(), done.clone());
        sync_meeting(&files, &store, id, move || {
            let (other, finished) = (other.clone(), finished.clone());
            let finished_too = finished.clone();
            std::thread::spawn(move || {
                act(&other, id);
                finished_too.store(true, Ordering::SeqCst);
            });
            assert!(!soon(&finished), "act {slot} went on while the first checksums were made");
        });
        assert!(soon(&done), "act {slot}");
        let last = std::fs::read(data_path(directory.path(), id)).expect("the bytes");
        assert!(try_all(&*files, id).is_ok_and(|got| got == last), "act {slot}");
    }
}

#[test]
fn i1_who_reads_while_blocks_are_closed_finds_no_damage() {
    let directory = directory();
    let store = Arc::new(Lossy::default());
    let files = Arc::new(open_lossy(directory.path(), &store));
    let id = object(1);
    write(&*files, id, 0, &bytes(1, 30_000)).expect("a write");
    sync(&files, id);
    write(&*files, id, 0, &bytes(2, 30_000)).expect("a write");
    let (closing, closed, read) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let flags = Arc::new((closing, closed, read));
    let reader = std::thread::spawn({
        let (files, flags) = (files.clone(), flags.clone());
        move || {
            while !flags.0.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            try_all(&*files, id)
        }
    });
    // The reader has the old checksums when the sync goes on, and goes on itself when that is done.
    let hook: Hook = Arc::new({
        let (flags, writer) = (flags.clone(), std::thread::current().id());
        move |what: &str| {
            let (closing, closed, read) = &*flags;
            if std::thread::current().id() == writer {
                if what == "commit" {
                    closing.store(true, Ordering::SeqCst);
                    assert!(soon(read), "nobody read");
                }
            } else if !read.swap(true, Ordering::SeqCst) {
                assert!(soon(closed), "the sync did not end");
            }
        }
    });
    *store.hook.lock().expect("a lock") = Some(hook);
    sync(&files, id);
    flags.1.store(true, Ordering::SeqCst);
    let got = reader.join().expect("no panic");
    assert!(got.is_ok_and(|got| got == bytes(2, 30_000)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// When the power goes, each block that was not synced has come to the medium or not, and so has the length.
    #[test]
    fn i1_a_cut_of_power_is_never_taken_for_damage(
        steps in prop::collection::vec(step(), 1..20),
        new in any::<u64>(),
        long in any::<bool>(),
    ) {
        let directory = directory();
        let store = Arc::new(Lossy::default());
        let files = open_lossy(directory.path(), &store);
        let (id, plain) = (object(1), Demand::default());
        let path = data_path(directory.path(), id);
        write(&files, id, 0, b"begin").expect("a write");
        let mut synced = b"begin".to_vec();
        for (n, step) in steps.into_iter().enumerate() {
            let done = match step {
                Step::Write { offset, len, .. } => write(&files, id, offset, &bytes(n as u8, len)),
                Step::Truncate(size) => call(&files, id, ObjectVerb::Truncate { size }),
                Step::Punch(offset, len) => call(&files, id, ObjectVerb::Punch(Range { offset, len })),
                Step::Sync => {
                    sync(&files, id);
                    synced = std::fs::read(&path).expect("the bytes");
                    continue;
                }
                // What else there is has means of its own against cuts of power.
                _ => send(&files, id, ObjectVerb::Stat, plain.clone(), &[]),
            };
            done.expect("a step");
        }
        drop(files);
        let last = std::fs::read(&path).expect("the bytes");
        let mut there = if long { last.clone() } else { synced.clone() };
        for (i, block) in there.chunks_mut(BLOCK as usize).enumerate() {
            let from = if new >> (i % 64) & 1 == 1 { &last } else { &synced };
            let at = i * BLOCK as usize;
            let have = from.get(at..from.len().min(at + block.len())).unwrap_or_default();
            block.fill(0);
            block[..have.len()].copy_from_slice(have);
        }
        std::fs::write(&path, &there).expect("what came to the medium");
        let store = Arc::new(store.survivor());
        let files = open_lossy(directory.path(), &store);
        let got = try_all(&files, id);
        prop_assert!(got.is_ok_and(|got| got == there), "blocks {:b}, long {}", new, long);
        sync(&files, id);
        prop_assert!(all(&files, id) == there);
    }

    /// Whatever the engine of the checksums refuses, and whenever: what is there afterwards is read, and no block of it is
    /// taken for damaged, neither now nor by the next daemon.
    #[test]
    fn i1_an_engine_that_fails_is_never_taken_for_damage(
        before in prop::collection::vec(step(), 0..6),
        calls in 0u32..12,
        fault in prop_oneof![Just(Fault::Full), Just(Fault::Broken(false)), Just(Fault::Broken(true))],
        after in prop::collection::vec(step(), 1..16),
    ) {
        let directory = directory();
        let store = Arc::new(Lossy::default());
        let files = open_lossy(directory.path(), &store);
        let id = object(1);
        let path = data_path(directory.path(), id);
        write(&files, id, 0, b"begin").expect("a write");
        let armed = before.len();
        for (n, step) in before.into_iter().chain(after).enumerate() {
            if n == armed {
                *store.fault.lock().expect("a lock") = Some((calls, fault));
            }
            // Each may be refused.
            let _ = match step {
                Step::Write { offset, len, .. } => write(&files, id, offset, &bytes(n as u8, len)),
                Step::Truncate(size) => call(&files, id, ObjectVerb::Truncate { size }),
                Step::Punch(offset, len) => call(&files, id, ObjectVerb::Punch(Range { offset, len })),
                Step::Sync => send(&files, id, ObjectVerb::Sync, DURABLE, &[]),
                _ => call(&files, id, ObjectVerb::Stat),
            };
            prop_assert!(all(&files, id) == std::fs::read(&path).expect("the bytes"), "after step {}", n);
        }
        drop(files);
        *store.fault.lock().expect("a lock") = None;
        let files = open_lossy(directory.path(), &store);
        let there = std::fs::read(&path).expect("the bytes");
        prop_assert!(try_all(&files, id).is_ok_and(|got| got == there), "at the next start");
    }
}

/// Behind a freeze a publication cannot be refused for want of room for checksums (B3).
#[test]
fn b3_a_publication_of_what_is_kept_goes_on_where_the_medium_is_full() {
    let directory = directory();
    let store = Arc::new(Lossy::default());
    let files = open_lossy(directory.path(), &store);
    write(&files, object(1), 0, &bytes(1, 50_000)).expect("a write");
    sync(&files, object(1));
    let stage = uuid(5);
    send(&files, object(1), ObjectVerb::Write { offset: 10 }, staged(stage), &bytes(2, 20_000)).expect("a stage");
    call(&files, object(1), ObjectVerb::Freeze { stage }).expect("a freeze");
    store.scarce.store(true, Ordering::SeqCst);
    call(&files, object(1), ObjectVerb::Publish { stage }).expect("what is committed is shown");
    let mut expected = bytes(1, 50_000);
    expected[10..20_010].copy_from_slice(&bytes(2, 20_000));
    assert!(all(&files, object(1)) == expected);
    write(&files, object(1), 45_000, b"x").expect_err("others take no room that is kept");
}
