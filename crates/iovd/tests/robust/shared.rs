//! Stores in shared memory: what processes that stop or die in the midst of a copy leave behind, what goes with the machine,
//! and what is told when there is too little.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use ioverbs::Kind;

use crate::kit::{Daemon, Peer, Store, controls, create, listen, lookup, read, say, signal, wait_until};

mod room;
mod views;

const MIB: usize = 1 << 20;

/// A store in shared memory, which goes with it.
pub(crate) struct Shared {
    pub(crate) store: Store,
    daemon: Option<Daemon>,
}

impl Shared {
    pub(crate) fn new(size: &str) -> Shared {
        Shared::with(size, &[])
    }

    fn with(size: &str, args: &[&str]) -> Shared {
        let store = Store::new();
        let storage = format!("shmem:{size}");
        let daemon = store.daemon(&[&["--storage", &*storage], args].concat(), &[]);
        Shared { store, daemon: Some(daemon) }
    }

    /// Where its memory is.
    fn place(&self) -> PathBuf {
        let text = std::fs::read_to_string(self.store.dir().join("storage")).unwrap();
        text.trim().rsplit(' ').next().unwrap().into()
    }

    fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    fn restart(&mut self, args: &[&str]) {
        self.daemon = Some(self.store.daemon(args, &[]));
    }

    /// Ends the daemon and gives the memory back.
    fn release(&mut self) -> u64 {
        self.store.shut_down();
        self.daemon = None;
        ioverbs::store_release(&self.store.url()).unwrap()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.store.shut_down();
        self.daemon = None;
        let _ = ioverbs::store_release(&self.store.url());
    }
}

/// Memory in whose midst whoever reads it is stopped, by SIGSTOP, once.
mod trap {
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    static AT: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
    static LEN: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn caught(_: i32) {
        // SAFETY: both calls are async-signal-safe; the memory was mapped by `memory`.
        unsafe {
            libc::mprotect(AT.load(Ordering::SeqCst), LEN.load(Ordering::SeqCst), libc::PROT_READ | libc::PROT_WRITE);
            libc::raise(libc::SIGSTOP);
        }
    }

    /// `len` bytes of `value`; the trap lies in their middle.
    pub(super) fn memory(len: usize, value: u8) -> &'static [u8] {
        // SAFETY: a new mapping, which stays; the second half is made unreadable behind its last write.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::ptr::write_bytes(at.cast::<u8>(), value, len);
            AT.store(at.cast::<u8>().add(len / 2).cast(), Ordering::SeqCst);
            LEN.store(len / 2, Ordering::SeqCst);
            libc::signal(libc::SIGSEGV, caught as *const () as libc::sighandler_t);
            libc::mprotect(AT.load(Ordering::SeqCst), len / 2, libc::PROT_NONE);
            std::slice::from_raw_parts(at.cast(), len)
        }
    }
}

fn is_stopped(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") T "))
}

pub(crate) fn delete(ws: &ioverbs::Workspace, name: &str) {
    let which = ioverbs::Which::parse(name).unwrap();
    ioverbs::run(ws.session(), ioverbs::Op::Delete { w: ws.clone(), parent: None, which }).unwrap();
}

const LEN: usize = 4 * MIB;

/// Has leave to write, and is stopped in the midst of a copy; then says what became of it.
pub(crate) fn stops_inside_its_copy(url: &str) {
    let session = ioverbs::open(Some(url), Default::default()).unwrap();
    let ws = session.load_workspace(ioverbs::Which::parse("w").unwrap()).unwrap();
    let asked = if std::env::var_os("IOV_TEST_EXCLUSIVE").is_some() { "concurrency=exclusive" } else { "" };
    let c = ioverbs::lookup(&ws, None, "c", controls(asked)).unwrap();
    ioverbs::write_at(&c, 0, &vec![1; LEN]).unwrap();
    ioverbs::write_at(&c, 0, &vec![1; LEN]).unwrap();
    let grants = session.counters().grants.load(std::sync::atomic::Ordering::Relaxed);
    say(&format!("{grants} grants"));
    let bytes = trap::memory(LEN, 9);
    match ioverbs::write_at(&c, 0, bytes) {
        Ok(()) => say("written"),
        Err(e) => say(&format!("{:?} {:?} {:?}", e.kind(), e.clause(), e.outcome())),
    }
    listen();
}

/// A segment that was used before is put and got by the program itself.
#[test]
fn segments_in_shared_memory_cost_no_request() {
    let shared = Shared::new("64MiB");
    let ws = shared.store.in_workspace();
    let (segments, asked) = (ioverbs::Segments::of(&ws).unwrap(), || {
        let at = ioverbs::Counters::NAMES.iter().position(|name| *name == "round_trips").unwrap();
        ws.session().counters().snapshot()[at]
    });
    let id = segments.create(MIB as u64, &Default::default()).unwrap();
    let mut out = vec![0; 4096];
    for n in 0..3 {
        segments.put(id, n * 4096, &[7; 4096]).unwrap();
        segments.get(id, n * 4096, &mut out).unwrap();
    }
    let before = asked();
    for n in 0..100 {
        segments.put(id, n * 4096, &[n as u8; 4096]).unwrap();
        segments.get(id, n * 4096, &mut out).unwrap();
        assert!(out == [n as u8; 4096]);
    }
    assert_eq!(asked() - before, 0);
}

#[test]
fn t12_a_holder_that_was_stopped_inside_its_copy_changes_nothing() {
    let shared = Shared::with("256MiB", &["--lease-ms", "600"]);
    let ws = shared.store.in_workspace();
    ioverbs::close(&create(&ws, "c", "")).unwrap();
    let variables = [("IOV_TEST_EXCLUSIVE", "1")];
    let mut holder = Peer::start_with("stops inside its copy", &shared.store, &variables);
    assert_eq!(holder.hear(), "1 grants");
    wait_until("the holder stops", || is_stopped(holder.pid()));
    // It holds until its lease ends.
    let next = loop {
        match ioverbs::lookup(&ws, None, "c", controls("concurrency=exclusive")) {
            Ok(c) => break c,
            Err(e) => assert_eq!(e.kind(), Kind::Busy, "{e}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(shared.store.status("shm_held_bytes").unwrap() >= LEN as u64, "what it may still write to rests");
    ioverbs::write_at(&next, 0, &vec![2; LEN]).unwrap();
    ioverbs::write_at(&next, 0, &vec![3; LEN]).unwrap();
    signal(holder.pid(), "CONT");
    let heard = holder.hear();
    assert!(heard.starts_with("Fenced Some(X1)"), "{heard}");
    assert_eq!(ioverbs::stat(&next).unwrap().bytes, LEN as u64);
    assert!(read(&next).iter().all(|b| *b == 3), "nothing of the old holder appears");
    holder.tell("end");
    drop(holder);
    wait_until("the space comes back", || {
        ioverbs::write_at(&next, 0, &vec![3; LEN]).unwrap();
        shared.store.status("shm_held_bytes") == Some(0)
    });
    ioverbs::close(&next).unwrap();
    assert!(read(&lookup(&shared.store.again(), "c")).iter().all(|b| *b == 3));
}

#[test]
fn t11_a_seal_does_not_wait_for_a_writer_that_was_stopped_inside_its_copy() {
    for end in ["CONT", "KILL"] {
        let shared = Shared::new("256MiB");
        let ws = shared.store.in_workspace();
        let c = create(&ws, "c", "mutability=immutable");
        let mut writer = Peer::start("stops inside its copy", &shared.store);
        assert_eq!(writer.hear(), "1 grants");
        wait_until("the writer stops", || is_stopped(writer.pid()));
        let from = Instant::now();
        ioverbs::run(ws.session(), ioverbs::Op::Seal { c: c.clone() }).unwrap();
        assert!(from.elapsed() < Duration::from_secs(20), "it is not waited for");
        let sealed = read(&c);
        assert_eq!(sealed.len(), LEN);
        // What it had copied by then may show, byte by byte (M1); nothing that it copies afterwards does.
        assert!(sealed.iter().all(|b| [1, 9].contains(b)));
        signal(writer.pid(), end);
        if end == "CONT" {
            let heard = writer.hear();
            assert!(heard.starts_with("Immutable Some(M2)"), "{heard}");
        }
        drop(writer);
        std::thread::sleep(Duration::from_millis(50));
        assert!(read(&c) == sealed, "what was sealed stays as it is");
        assert!(read(&lookup(&shared.store.again(), "c")) == sealed);
    }
}

#[test]
fn p2_a_writer_killed_inside_its_copy_costs_nothing_else() {
    let mut shared = Shared::new("256MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    let other = create(&ws, "other", "");
    ioverbs::write_at(&other, 0, &vec![5; LEN]).unwrap();
    let mut writer = Peer::start("stops inside its copy", &shared.store);
    assert_eq!(writer.hear(), "1 grants");
    wait_until("the writer stops", || is_stopped(writer.pid()));
    // The daemon ends with it: the next one finds both.
    shared.kill();
    writer.kill();
    shared.restart(&[]);
    let found = read(&c);
    assert_eq!(found.len(), LEN, "what it had been told is there");
    assert!(found.iter().all(|b| [1, 9].contains(b)));
    ioverbs::write_at(&c, 0, &vec![4; LEN]).unwrap();
    assert!(read(&c).iter().all(|b| *b == 4));
    assert!(read(&other).iter().all(|b| *b == 5));
    assert_eq!(shared.store.status("shm_held_bytes"), Some(0));
}

#[test]
fn p2_a_client_goes_on_after_sigkill_of_the_daemon_in_shared_memory() {
    let mut shared = Shared::new("256MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    for round in 1..6_u8 {
        for at in 0..4 {
            ioverbs::write_at(&c, (at * MIB) as u64, &vec![round * 10 + at as u8; MIB]).unwrap();
        }
        shared.kill();
        shared.restart(&[]);
        let found = read(&c);
        assert_eq!(found.len(), 4 * MIB);
        for at in 0..4 {
            let part = &found[at * MIB..(at + 1) * MIB];
            assert!(part.iter().all(|b| *b == round * 10 + at as u8), "round {round}: what was acknowledged is there");
        }
    }
    assert!(read(&lookup(&shared.store.again(), "c")).len() == 4 * MIB);
}

/// What a writer was lent ahead goes to others when it closes: a reader that knew of it must not go on by that.
#[test]
fn t21_a_reader_never_sees_what_space_that_was_given_back_holds_now() {
    let shared = Shared::new("32MiB");
    let ws = shared.store.in_workspace();
    let grows = create(&ws, "grows", "");
    let reader = lookup(&shared.store.again(), "grows");
    let mut expected = Vec::new();
    for round in 0..12_u8 {
        let writer = lookup(&ws, "grows");
        let piece = vec![round + 1; 300_000];
        for _ in 0..2 {
            ioverbs::write_at(&writer, expected.len() as u64, &piece).unwrap();
            expected.extend(&piece);
        }
        // By then the reader knows of what lies behind the end.
        assert!(read(&reader) == expected, "round {round}");
        ioverbs::close(&writer).unwrap();
        // Others take what is free.
        let fill = create(&ws, &format!("fill{round}"), "");
        ioverbs::write_at(&fill, 0, &vec![0xee; 5 * MIB / 4]).unwrap();
        ioverbs::close(&fill).unwrap();
        assert!(read(&reader) == expected, "round {round}");
        if round % 3 == 2 {
            delete(&ws, &format!("fill{round}"));
        }
    }
    ioverbs::close(&grows).unwrap();
}

/// A daemon that finds no room to move bytes out of a stuck writer's reach does not go on as if it had (G2).
#[test]
fn g2_a_seal_that_cannot_move_bytes_away_fails_until_it_can() {
    let shared = Shared::new("16MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "mutability=immutable");
    let mut writer = Peer::start("stops inside its copy", &shared.store);
    assert_eq!(writer.hear(), "1 grants");
    wait_until("the writer stops", || is_stopped(writer.pid()));
    for i in 0.. {
        let filler = create(&ws, &format!("filler{i}"), "");
        if ioverbs::write_at(&filler, 0, &vec![0xee; MIB]).is_err() {
            break;
        }
    }
    let seal = || ioverbs::run(ws.session(), ioverbs::Op::Seal { c: c.clone() });
    let e = seal().expect_err("there is no room for the bytes");
    assert_eq!(e.kind(), Kind::Exhausted, "{e}");
    for i in 0..6 {
        delete(&ws, &format!("filler{i}"));
    }
    seal().unwrap();
    let sealed = read(&c);
    signal(writer.pid(), "CONT");
    assert!(!writer.hear().starts_with("written"));
    drop(writer);
    assert!(read(&c) == sealed, "nothing of the writer appears behind the seal");
}
