//! Stores in shared memory: what processes that stop or die in the midst of a copy leave behind, what goes with the machine,
//! and what is told when there is too little.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ioverbs::{Clause, Kind};

use crate::kit::{Daemon, Peer, Store, controls, create, listen, lookup, read, say, signal, wait_until};

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

fn delete(ws: &ioverbs::Workspace, name: &str) {
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

#[test]
fn p1_what_went_with_the_memory_is_lost_and_never_zeros() {
    let mut shared = Shared::new("128MiB");
    let ws = shared.store.in_workspace();
    for (name, len) in [("small", 100), ("large", MIB), ("empty", 0)] {
        let c = create(&ws, name, "");
        ioverbs::write_at(&c, 0, &vec![7; len]).unwrap();
        ioverbs::close(&c).unwrap();
    }
    // One that is open, and of which nobody has written down how long it is.
    let open = create(&ws, "open", "");
    ioverbs::write_at(&open, 0, &vec![7; MIB]).unwrap();
    shared.kill();
    drop((open, ws));
    assert!(ioverbs::store_release(&shared.store.url()).unwrap() > 0);
    assert!(!shared.place().exists(), "the memory is free again");
    shared.restart(&[]);
    let ws = shared.store.again();
    let mut buf = vec![1; 2 * MIB];
    for name in ["large", "open"] {
        let c = lookup(&ws, name);
        let e = ioverbs::read_at(&c, 0, &mut buf).unwrap_err();
        assert_eq!((e.kind(), e.clause()), (Kind::Lost, Some(Clause::P1)), "{name}: {e}");
        let e = ioverbs::write_at(&c, 0, &[1; 20_000]).unwrap_err();
        assert_eq!(e.kind(), Kind::Lost, "{name}: no new bytes in the place of lost ones: {e}");
    }
    assert_eq!(ioverbs::read_at(&lookup(&ws, "small"), 0, &mut buf).unwrap(), 100, "those in the record are there");
    assert_eq!(ioverbs::read_at(&lookup(&ws, "empty"), 0, &mut buf).unwrap(), 0);
    delete(&ws, "large");
    let c = create(&ws, "large", "");
    ioverbs::write_at(&c, 0, &vec![8; MIB]).unwrap();
    assert!(read(&c) == vec![8; MIB], "made again");
}

#[test]
fn a_full_store_says_so_and_goes_on_when_something_is_deleted() {
    let shared = Shared::new("32MiB");
    let ws = shared.store.in_workspace();
    let mut names = Vec::new();
    let e = loop {
        let name = format!("c{}", names.len());
        let c = create(&ws, &name, "");
        match ioverbs::write_at(&c, 0, &vec![names.len() as u8 + 1; 3 * MIB]) {
            Ok(()) => names.push(name),
            Err(e) => break e,
        }
        // Those that are open keep no more than they need.
        assert!(names.len() < 20);
    };
    assert_eq!(e.kind(), Kind::Exhausted);
    assert!(e.detail().contains("iov df") && e.detail().contains("remove something"), "{e}");
    assert!(names.len() >= 8, "{} of 10 have room", names.len());
    for (i, name) in names.iter().enumerate() {
        assert!(read(&lookup(&ws, name)) == vec![i as u8 + 1; 3 * MIB], "{name}: nothing is lost");
    }
    delete(&ws, "c0");
    let c = create(&ws, "again", "");
    ioverbs::write_at(&c, 0, &vec![9; 3 * MIB]).unwrap();
    assert!(read(&c) == vec![9; 3 * MIB]);
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

#[test]
fn views_show_what_is_there_and_keep_it() {
    let shared = Shared::new("32MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    let bytes: Vec<u8> = (0..3 * MIB).map(|i| (i / 4096) as u8 ^ i as u8).collect();
    ioverbs::write_at(&c, 0, &bytes).unwrap();
    // SAFETY: the view pins them, and nobody writes meanwhile.
    let shown = |view: &ioverbs::Viewed| unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) }.to_vec();
    let view = c.view(12_345, 100_000).unwrap();
    assert!(shown(&view) == bytes[12_345..112_345]);
    assert_eq!(view.as_ptr() as usize % 64, 12_345 % 64, "aligned as its offset is");
    assert_eq!(c.view(3 * MIB as u64 - 5, 100).unwrap().len(), 5, "not beyond the end");
    assert_eq!(c.view(3 * MIB as u64 + 5, 100).unwrap().len(), 0);
    // Whoever writes, seals or deletes does not wait for it, and its bytes stay.
    ioverbs::run(ws.session(), ioverbs::Op::Seal { c: c.clone() }).unwrap();
    let sealed = c.view(0, bytes.len() as u64).unwrap();
    ioverbs::close(&c).unwrap();
    let from = Instant::now();
    delete(&ws, "c");
    assert!(from.elapsed() < Duration::from_secs(10));
    // Others take all the space that there is.
    for i in 0.. {
        let c = create(&ws, &format!("filler{i}"), "");
        if ioverbs::write_at(&c, 0, &vec![0xee; MIB]).is_err() {
            break;
        }
    }
    assert!(shown(&sealed) == bytes[..sealed.len()] && !sealed.is_empty(), "T21: never foreign bytes");
    assert!(shown(&view) == bytes[12_345..112_345]);
    assert!(shared.store.status("shm_held_bytes").unwrap() >= 3 * MIB as u64);
    drop((view, sealed));
    let last = create(&ws, "last", "");
    wait_until("the space comes back", || ioverbs::write_at(&last, 0, &vec![1; 2 * MIB]).is_ok());
    // A small one lies in its record, and a group has no bytes.
    let small = create(&ws, "small", "");
    ioverbs::write_at(&small, 0, b"small").unwrap();
    assert_eq!(small.view(0, 5).err().map(|e| e.kind()), Some(Kind::Unsupported));
}

#[test]
fn g6_too_little_memory_is_told_before_anything_begins() {
    let store = Store::new();
    std::fs::create_dir_all(store.dir()).unwrap();
    let start = |shm: &Path, size: &str| {
        let out = std::process::Command::new(crate::kit::IOVD)
            .args(["--dir", store.dir().to_str().unwrap(), "--detach", "--storage", size])
            .env("IOVD_SHM", shm)
            .output()
            .unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, words) = start(Path::new("/dev/shm"), "shmem:1000TiB");
    assert_eq!(code, Some(73), "{words}");
    assert!(words.contains("--shm-size") && words.contains("ask for less"), "{words}");
    let (code, words) = start(Path::new("/dev/shm"), "shmem:1MiB");
    assert!(code == Some(2) && words.contains("at least 4MiB"), "{words}");
    let (code, words) = start(Path::new("/dev/shm"), "tape:1MiB");
    assert!(code == Some(2) && words.contains("shmem:SIZE"), "{words}");
    let (code, words) = start(&store.dir().join("nowhere"), "shmem:8MiB");
    assert!(code != Some(0) && words.contains("mount a tmpfs"), "{words}");
    assert!(!store.dir().join("storage").exists(), "nothing was begun");
}

/// A container's small /dev/shm: the store may take more than the machine turns out to have.
#[test]
fn g6_memory_that_others_have_taken_is_an_error_and_not_a_signal() {
    let Some(small) = Small::mount("24m") else { return };
    let store = Store::new();
    let base = small.0.path().to_str().unwrap().to_owned();
    let daemon = store.daemon(&["--storage", "shmem:16MiB"], &[("IOVD_SHM", &base)]);
    let ws = store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![1; MIB]).unwrap();
    let free = rustix::fs::statvfs(small.0.path()).unwrap();
    let ballast = std::fs::File::create(small.0.path().join("ballast")).unwrap();
    let len = (free.f_bavail * free.f_frsize).saturating_sub(64 << 10);
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, len).unwrap();
    let e = (1..16).find_map(|at| ioverbs::write_at(&c, (at * MIB) as u64, &vec![2; MIB]).err());
    let e = e.expect("it cannot all have room");
    assert_eq!(e.kind(), Kind::Exhausted, "{e}");
    assert!(read(&c)[..MIB].iter().all(|b| *b == 1), "what was there is there");
    drop(ballast);
    std::fs::remove_file(small.0.path().join("ballast")).unwrap();
    ioverbs::write_at(&c, 8 << 20, &vec![3; MIB]).expect("and now there is room");
    drop((c, ws));
    store.shut_down();
    drop(daemon);
}

/// A small file system of its own.
struct Small(tempfile::TempDir);

impl Small {
    /// `None` where mounting is not allowed.
    fn mount(size: &str) -> Option<Small> {
        let dir = tempfile::tempdir().unwrap();
        let status = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(dir.path())
            .status();
        match status.is_ok_and(|s| s.success()) {
            true => Some(Small(dir)),
            false => {
                eprintln!("skipped: a small tmpfs cannot be mounted");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn memory_of_a_store_that_is_gone_is_named_and_not_removed() {
    let Some(small) = Small::mount("24m") else { return };
    let base = small.0.path().to_str().unwrap().to_owned();
    let start = |store: &Store| {
        std::fs::create_dir_all(store.dir()).unwrap();
        let out = std::process::Command::new(crate::kit::IOVD)
            .args(["--dir", store.dir().to_str().unwrap(), "--detach", "--storage", "shmem:20MiB"])
            .env("IOVD_SHM", &base)
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let first = Store::new();
    start(&first);
    ioverbs::write_at(&create(&first.in_workspace(), "c", ""), 0, &vec![1; 8 * MIB]).unwrap();
    first.kill();
    let text = std::fs::read_to_string(first.dir().join("storage")).unwrap();
    // Its owner has moved it; or has removed it: who could tell?
    let moved = first.dir().with_file_name("moved");
    std::fs::rename(first.dir(), &moved).unwrap();
    let second = Store::new();
    let words = start(&second);
    assert!(words.contains("is of a store that was in ") && words.contains("remove it if that is gone"), "{words}");
    // It was moved.
    std::fs::rename(&moved, first.dir()).unwrap();
    assert!(read(&lookup(&first.again(), "c")) == vec![1; 8 * MIB], "nothing is lost");
    assert!(text.starts_with("shmem "));
    first.shut_down();
}

/// Programs that are still there when the memory goes must not take for stored what nobody will find.
#[test]
fn p1_nothing_is_acknowledged_that_goes_to_memory_which_was_given_back() {
    let mut shared = Shared::new("64MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    for _ in 0..2 {
        ioverbs::write_at(&c, 0, &vec![1; MIB]).unwrap();
    }
    assert!(shared.release() > 0);
    shared.restart(&[]);
    let e = ioverbs::write_at(&c, 0, &vec![2; MIB]).unwrap_err();
    assert_eq!(e.kind(), Kind::Lost, "{e}");
    let mut buf = vec![0; MIB];
    let e = ioverbs::read_at(&c, 0, &mut buf).unwrap_err();
    assert_eq!(e.kind(), Kind::Lost, "{e}");
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

/// A child that lets go of a view which it has inherited does not let go for its parent.
#[test]
fn t23_a_child_does_not_end_its_parents_views() {
    let shared = Shared::new("16MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![7; MIB]).unwrap();
    let view = c.view(0, 1000).unwrap();
    // SAFETY: the child does nothing but drop the view and end.
    match unsafe { libc::fork() } {
        0 => {
            drop(view);
            // SAFETY: takes no pointer; nothing of the parent's is run at its end.
            unsafe { libc::_exit(0) }
        }
        // SAFETY: waits for that child.
        child => assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child),
    }
    ioverbs::close(&c).unwrap();
    delete(&ws, "c");
    for i in 0.. {
        let filler = create(&ws, &format!("filler{i}"), "");
        if ioverbs::write_at(&filler, 0, &vec![0xee; MIB]).is_err() {
            break;
        }
    }
    // SAFETY: the view pins them.
    let shown = unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) };
    assert!(shown.iter().all(|b| *b == 7));
}

/// The same for what is appended and cut again (T21).
#[test]
fn t21_a_view_of_appended_records_outlives_their_truncation() {
    let shared = Shared::new("16MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    for _ in 0..8 {
        ioverbs::append(&c, &vec![7; 100_000]).unwrap();
    }
    let view = c.view(200_000, 500_000).unwrap();
    ioverbs::run(ws.session(), ioverbs::Op::Truncate { c: c.clone(), size: 10 }).unwrap();
    for i in 0.. {
        let filler = create(&ws, &format!("filler{i}"), "");
        if ioverbs::write_at(&filler, 0, &vec![0xee; MIB]).is_err() {
            break;
        }
    }
    // SAFETY: the view pins them.
    let shown = unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) };
    assert!(!shown.is_empty() && shown.iter().all(|b| *b != 0xee), "never foreign bytes");
}

/// A daemon that starts while somebody looks at bytes in place does not take him for a stuck writer.
#[test]
fn p2_a_view_does_not_cost_a_restart_anything() {
    let mut shared = Shared::new("32MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![7; 20 * MIB]).unwrap();
    let view = c.view(0, 1000).unwrap();
    shared.kill();
    shared.restart(&[]);
    assert_eq!(read(&c).len(), 16 * MIB);
    ioverbs::write_at(&c, 0, &vec![8; MIB]).unwrap();
    assert_eq!(read(&c)[..MIB], vec![8; MIB]);
    // What nobody used is lent again only when the view has gone, but what the daemon takes anew is there.
    let other = create(&ws, "other", "");
    ioverbs::write_at(&other, 0, &vec![9; MIB]).unwrap();
    drop(view);
}

/// What a writer had been lent when the daemon died is free again behind the next start.
#[test]
fn space_that_was_lent_ahead_does_not_leak_over_a_restart() {
    let mut shared = Shared::new("64MiB");
    let ws = shared.store.in_workspace();
    for i in 0..4 {
        let c = create(&ws, &format!("c{i}"), "");
        for at in 0..5 {
            ioverbs::write_at(&c, at * 300_000, &vec![i + 1; 300_000]).unwrap();
        }
        std::mem::forget(c); // as if its program had died
    }
    shared.kill();
    shared.restart(&[]);
    let used = shared.store.status("shm_used_bytes").unwrap();
    assert!(used < 4 * 1_600_000, "{used} bytes for 6,000,000");
}

#[test]
fn a_store_changes_its_size_and_not_its_medium() {
    let mut shared = Shared::new("16MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![1; 10 * MIB]).unwrap();
    assert!(ioverbs::write_at(&c, 10 << 20, &vec![1; 10 * MIB]).is_err());
    shared.kill();
    shared.restart(&["--storage", "shmem:48MiB"]);
    ioverbs::write_at(&c, 10 << 20, &vec![1; 10 * MIB]).expect("it is larger now");
    assert_eq!(shared.store.status("shm_capacity_bytes"), Some(48 << 20));
    assert!(read(&c) == vec![1; 16 * MIB], "the first 16 MiB of it");
    shared.kill();
    let out = std::process::Command::new(crate::kit::IOVD)
        .args(["--dir", shared.store.dir().to_str().unwrap(), "--detach", "--storage", "files"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("another directory"));
    shared.restart(&[]);
    assert!(shared.release() > 0);
}
