//! A disk that is full and whose free space somebody else takes at once: a daemon that was killed on it starts again,
//! with everything that was acknowledged; what is there can be deleted; creating says that there is no room.

use std::{
    fs::File,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use ioverbs::{Error, Kind, Name, Op, SessionAttr, Which, Workspace, open};

use crate::kit::{IOVD, Peer, Store, controls, create, has_ended, lookup, read, say, signal, wait_until};

/// How to mount a file system in memory, where nothing is durable.
pub(crate) fn memory(size: &str) -> String {
    format!("mount -t tmpfs -o size={size},mode=700 small \"$0\"")
}

/// One that has few files as well.
const FEW_FILES: &str = "mount -t tmpfs -o size=32m,nr_inodes=400,mode=700 small \"$0\"";
/// One on blocks: durable bytes have their checksums in a second metadata engine.
const BLOCKS: &str =
    "truncate -s 64M \"$0.image\" && mkfs.ext4 -q -m 0 \"$0.image\" && mount -o loop \"$0.image\" \"$0\"";

/// Runs a part on a small file system of its own, if this process may mount one.
pub(crate) fn on_small_disk(part: &str, mount: &str) {
    let store = Store::new();
    std::fs::create_dir_all(store.dir()).unwrap();
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, store.dir().to_str().unwrap()]);
        command
    };
    match unshared(mount).output() {
        Ok(out) if out.status.success() => {}
        other => return eprintln!("skipped: no file system can be mounted here: {other:?}"),
    }
    let mut command = unshared(&format!("{mount} && exec \"$@\""));
    command.arg(std::env::current_exe().unwrap());
    let mut peer = Peer::run(command, part, &store, &[]);
    loop {
        match peer.hear().as_str() {
            "done" => break,
            words => println!("{words}"),
        }
    }
}

#[test]
fn p2_a_daemon_starts_on_a_full_disk_and_deletes() {
    on_small_disk("restarts on a full disk: atomicity=unit", &memory("32m"));
}

#[test]
fn p2_a_daemon_starts_on_a_disk_without_files_to_make_and_deletes() {
    on_small_disk("restarts on a full disk: atomicity=unit", FEW_FILES);
}

#[test]
fn p3_a_daemon_starts_on_a_full_disk_with_checksums_and_deletes() {
    on_small_disk("restarts on a full disk: atomicity=unit,persistence=durable", BLOCKS);
}

#[test]
fn p3_checksums_that_a_full_disk_has_no_room_for_do_not_keep_a_daemon_from_starting() {
    on_small_disk("begins checksums on a full disk", BLOCKS);
}

#[test]
fn p2_a_daemon_killed_at_any_moment_on_a_full_disk_starts_again() {
    on_small_disk("is killed on a full disk: atomicity=unit", &memory("32m"));
}

#[test]
fn p3_a_daemon_killed_at_any_moment_on_a_full_disk_with_checksums_starts_again() {
    on_small_disk("is killed on a full disk: atomicity=unit,persistence=durable", BLOCKS);
}

#[test]
fn p2_a_daemon_whose_bytes_lie_elsewhere_starts_again_on_a_full_disk() {
    on_small_disk("restarts on a full disk with bytes elsewhere", &memory("32m"));
}

#[test]
fn p2_what_is_to_be_written_down_anew_does_not_keep_a_daemon_from_starting_on_a_full_disk() {
    on_small_disk("starts otherwise on a full disk", &memory("64m"));
}

#[test]
fn p2_a_directory_of_bytes_that_does_not_say_whose_they_are_is_opened() {
    let store = Store::new();
    let bytes = store.dir().with_file_name("bytes");
    let daemon = store.daemon(&["--storage", &format!("files:{}", bytes.display())], &[]);
    let c = create(&store.in_workspace(), "kept", "");
    ioverbs::write_at(&c, 0, b"kept").unwrap();
    ioverbs::close(&c).unwrap();
    daemon.kill();
    // As a start on a full disk has left it before.
    File::create(bytes.join("store")).unwrap();
    let _daemon = store.daemon(&[], &[]);
    assert_eq!(read(&lookup(&store.again(), "kept")), b"kept");
    assert!(bytes.join("store").metadata().unwrap().len() > 0, "it says so again");
}

/// What the daemon must not count on: another user of the file system, who takes every byte that is free, and every file
/// where there are few.
struct Thief(PathBuf);

const FEW: u64 = 1000;

impl Thief {
    fn new(url: &str) -> Thief {
        let thief = Thief(Path::new(url.strip_prefix("file:").unwrap()).join("ballast"));
        std::fs::create_dir_all(thief.files()).unwrap();
        thief
    }

    fn take_all(&self) {
        let mut file = File::options().append(true).create(true).open(&self.0).unwrap();
        for size in [1 << 16, 4096, 512] {
            loop {
                // The sync is what finds out where blocks are taken late.
                match file.write_all(&vec![b'b'; size]).and_then(|()| file.sync_data()) {
                    Ok(()) => {}
                    Err(e) if e.kind() == ErrorKind::StorageFull => break,
                    Err(e) => panic!("{e}"),
                }
            }
        }
        let store = self.0.parent().unwrap();
        if rustix::fs::statvfs(store).unwrap().f_files < FEW {
            let names = (0..FEW).map(|n| self.files().join(n.to_string()));
            names.take_while(|name| File::create(name).is_ok()).for_each(drop);
        }
    }

    fn files(&self) -> PathBuf {
        self.0.with_extension("files")
    }

    fn give_blocks(&self, blocks: u64) {
        let file = File::options().write(true).open(&self.0).unwrap();
        file.set_len(file.metadata().unwrap().len() - blocks * 4096).unwrap();
        file.sync_all().unwrap();
    }

    fn give_back(&self) {
        std::fs::remove_file(&self.0).unwrap();
        std::fs::remove_dir_all(self.files()).unwrap();
        std::fs::create_dir(self.files()).unwrap();
    }
}

fn workspace(url: &str) -> Workspace {
    let session = open(Some(url), SessionAttr::default()).unwrap();
    let made = session.create_workspace(Name::new("w").unwrap(), Default::default());
    made.or_else(|_| session.load_workspace(Which::parse("w").unwrap())).unwrap()
}

fn daemon(url: &str) -> Option<u32> {
    let status = ioverbs::daemon_status(url).unwrap()?;
    status.iter().find(|(name, _)| name == "pid").map(|(_, pid)| *pid as u32)
}

/// Kills the daemon; its clients stay as they are.
fn kill(url: &str) {
    if let Some(pid) = daemon(url) {
        signal(pid, "KILL");
        wait_until("the daemon's end", || has_ended(pid));
    }
}

/// Ends it in order.
fn end(url: &str) {
    if let Some(pid) = daemon(url) {
        ioverbs::daemon_shutdown(url).unwrap();
        wait_until("the daemon's end", || has_ended(pid));
    }
}

fn make(ws: &Workspace, name: &str, asked: &str, bytes: &[u8]) -> Result<(), Error> {
    let c = ioverbs::create(ws, None, Some(name), Default::default(), controls(asked))?;
    ioverbs::write_at(&c, 0, bytes)?;
    ioverbs::close(&c)
}

fn delete(ws: &Workspace, name: &str) -> Result<(), Error> {
    let which = Which::parse(name).unwrap();
    ioverbs::run(ws.session(), Op::Delete { w: ws.clone(), parent: None, which }).map(drop)
}

/// Makes collections until there is no room; which ones are there.
fn fill(ws: &Workspace, prefix: &str, asked: &str, size: usize) -> Vec<(String, Vec<u8>)> {
    let (mut made, mut refused) = (Vec::new(), 0);
    for n in 0..1000 {
        let (name, bytes) = (format!("{prefix}{n}"), vec![n as u8 + 1; size]);
        match make(ws, &name, asked, &bytes) {
            Ok(()) => made.push((name, bytes)),
            Err(e) => {
                assert_eq!(e.kind(), Kind::Exhausted, "{e}");
                refused += 1;
                if refused == 3 {
                    return made;
                }
            }
        }
    }
    panic!("the disk is small");
}

fn check(url: &str, expected: &[(String, Vec<u8>)], when: &str) {
    let ws = workspace(url);
    for (name, bytes) in expected {
        assert!(read(&lookup(&ws, name)) == *bytes, "{when}: {name}");
    }
}

/// With room again everything works, also in a daemon that comes after.
fn works_with_room(url: &str, asked: &str, expected: &mut Vec<(String, Vec<u8>)>) {
    let ws = workspace(url);
    let delete_a_large_one = |expected: &mut Vec<(String, Vec<u8>)>| {
        let large = expected.iter().position(|(_, bytes)| bytes.len() == 1 << 20).expect("a large one is left");
        let (name, _) = expected.remove(large);
        delete(&ws, &name).unwrap();
    };
    (0..4).for_each(|_| delete_a_large_one(expected));
    let sums = Thief::new(url).0.with_file_name("sums").join("format");
    assert_eq!(sums.exists(), asked.contains("durable"), "a second engine where bytes are durable");
    for name in ["again", "again2"] {
        // How much the engines keep for themselves of what has become free is theirs to decide.
        while let Err(e) = make(&ws, name, asked, &[7; 1 << 20]) {
            assert_eq!(e.kind(), Kind::Exhausted, "{e}");
            // It may be there without its bytes.
            let _ = delete(&ws, name);
            delete_a_large_one(expected);
        }
        assert_eq!(read(&lookup(&ws, name)), [7; 1 << 20]);
        kill(url);
    }
    check(url, expected, "with room");
    end(url);
    say("done");
}

/// The part that is killed again and again, while what it frees is taken by somebody else.
pub(crate) fn restarts(url: &str, asked: &str) {
    let ws = workspace(url);
    let thief = Thief::new(url);
    let mut all: Vec<_> = (0..40).map(|n| (format!("small{n}"), vec![n as u8 | 64; 16 << 10])).collect();
    all.iter().for_each(|(name, bytes)| make(&ws, name, asked, bytes).unwrap());
    all.extend(fill(&ws, "large", asked, 1 << 20));
    assert!(all.len() > 45, "{}", all.len());
    say(&format!("{} collections", all.len()));
    thief.take_all();
    for round in 0..6 {
        kill(url);
        thief.take_all();
        let when = format!("round {round}");
        check(url, &all, &when);
        let more = fill(&workspace(url), &format!("round{round}-"), asked, 64 << 10);
        all.extend(more);
        thief.take_all();
    }
    // One after the other, and nothing of what that frees is left.
    for n in 0..40 {
        let (name, _) = all.remove(0);
        delete(&workspace(url), &name).unwrap_or_else(|e| panic!("{name}: {e}"));
        thief.take_all();
        if n % 8 == 7 {
            kill(url);
            thief.take_all();
            check(url, &all[..2], &name);
        }
    }
    check(url, &all, "after deletions");
    thief.give_back();
    // An orderly end has to leave what the next start needs.
    thief.take_all();
    end(url);
    thief.take_all();
    check(url, &all[..2], "after an end in order");
    thief.give_back();
    works_with_room(url, asked, &mut all);
}

/// The part whose bytes lie in a directory of their own, and which listens: what is written down of both stays.
pub(crate) fn restarts_elsewhere(url: &str) {
    let dir = Path::new(url.strip_prefix("file:").unwrap());
    let (store, bytes) = (Store::at(dir.join("own")), dir.join("bytes"));
    let all = [("keep".to_owned(), vec![b'k'; 100_000])];
    let storage = format!("files:{}", bytes.display());
    let mut daemon = store.daemon(&["--storage", &storage, "--listen", "127.0.0.1:0"], &[]);
    make(&store.in_workspace(), &all[0].0, "atomicity=unit", &all[0].1).unwrap();
    let written = || [store.dir().join("listen"), bytes.join("store")].map(|file| std::fs::read(file).unwrap());
    let before = written();
    let (thief, stop) = (Thief::new(url), AtomicBool::new(false));
    thief.take_all();
    std::thread::scope(|scope| {
        let ending = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                thief.take_all();
            }
        });
        for round in 0..8 {
            daemon.kill();
            daemon = store.daemon(&[], &[]);
            assert!(written() == before, "round {round}");
            check(&store.url(), &all, &format!("round {round}"));
        }
        drop(ending);
    });
    say("done");
}

/// The part that was moved, and listens at another port: there is no room to write down either.
pub(crate) fn starts_otherwise(url: &str) {
    let dir = Path::new(url.strip_prefix("file:").unwrap());
    let (store, shm) = (Store::at(dir.join("own")), dir.join("shm"));
    std::fs::create_dir(&shm).unwrap();
    let args = ["--storage", "shmem:16MiB", "--shm", shm.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let daemon = store.daemon(&args, &[]);
    let kept = [("keep".to_owned(), vec![b'k'; 1 << 20])];
    make(&store.in_workspace(), &kept[0].0, "collection_size=1MiB..", &kept[0].1).unwrap();
    let told = |store: &Store| std::fs::read_to_string(store.dir().join("listen")).unwrap();
    let before = told(&store);
    daemon.kill();
    let moved = Store::at(dir.join("moved"));
    std::fs::rename(store.dir(), moved.dir()).unwrap();
    let place = std::fs::read_dir(&shm).unwrap().next().unwrap().unwrap().path();
    // What has no room for a byte, whatever else the start gives back.
    let news = [moved.dir().join("listen.new"), place.join("store.new")];
    let mount = |args: &[&str], at: &Path| Command::new(args[0]).args(&args[1..]).arg(at).status().unwrap().success();
    for new in &news {
        File::create(new).unwrap();
        assert!(mount(&["mount", "--bind", "/dev/full"], new));
    }
    let daemon = moved.daemon(&["--listen", "127.0.0.1:0"], &[]);
    assert_eq!(told(&moved), before, "it could not be written down");
    check(&moved.url(), &kept, "moved");
    delete(&moved.again(), "keep").unwrap();
    daemon.kill();
    // A daemon after a crash would ask for a secret where this one does not.
    let mut refused = Command::new(IOVD);
    refused.args(["--ready", "--listen", "127.0.0.1:0", "--no-secret", "--dir", moved.dir().to_str().unwrap()]);
    let refused = refused.output().unwrap();
    let heard = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && heard.contains("file listen"), "{heard}");
    news.iter().for_each(|new| assert!(mount(&["umount"], new)));
    moved.daemon(&[], &[]).kill();
    let owner = std::fs::read(place.join("store")).unwrap();
    assert_eq!(owner, moved.dir().as_os_str().as_encoded_bytes(), "it is said as soon as there is room");
    say("done");
}

/// Ends the clients.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The part with clients that go on meanwhile.
pub(crate) fn is_killed(url: &str, asked: &str) {
    let mut all = vec![("keep".to_owned(), vec![b'k'; 100_000])];
    make(&workspace(url), &all[0].0, asked, &all[0].1).unwrap();
    let thief = Thief::new(url);
    all.extend(fill(&workspace(url), "large", asked, 1 << 20));
    let (steps, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let client = |number: usize| {
        let session = || {
            let session = open(Some(url), SessionAttr::default())?;
            session.load_workspace(Which::parse("w").unwrap())
        };
        for n in 0.. {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            // A session whose daemon was killed in the middle of something may say so; a new one starts the next.
            let Ok(ws) = session() else { continue };
            for i in 0..4 {
                let name = format!("c{number}-{n}-{i}");
                let _ = make(&ws, &name, asked, &[n as u8; 20_000]);
                let _ = delete(&ws, &name);
                steps.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    std::thread::scope(|scope| {
        // Also when a check fails: else nobody would hear of it.
        let ending = Stop(&stop);
        let clients: Vec<_> = (0..2).map(|number| scope.spawn(move || client(number))).collect();
        for round in 0..10 {
            let until = steps.load(Ordering::SeqCst) + 3 + round % 4;
            wait_until("clients to go on", || steps.load(Ordering::SeqCst) >= until);
            kill(url);
            thief.take_all();
            check(url, &all[..1], &format!("round {round}"));
        }
        drop(ending);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    check(url, &all, "after all kills");
    while let Some((name, _)) = (all.len() > 10).then(|| all.remove(1)) {
        delete(&workspace(url), &name).unwrap_or_else(|e| panic!("{name}: {e}"));
        thief.take_all();
    }
    thief.give_back();
    works_with_room(url, asked, &mut all);
}

/// The part whose second engine is made, or half made, when there is hardly any room.
pub(crate) fn begins_checksums(url: &str) {
    let all = [("keep".to_owned(), vec![b'k'; 100_000])];
    make(&workspace(url), &all[0].0, "atomicity=unit", &all[0].1).unwrap();
    let asked = "atomicity=unit,persistence=durable";
    // Records are refused sooner.
    for blocks in (0..60).step_by(4) {
        // Written at the target at once, where nothing asks for room for a record.
        let sized = format!("{asked},collection_size=16KiB..");
        make(&workspace(url), &format!("durable{blocks}"), &sized, &[]).unwrap();
    }
    let thief = Thief::new(url);
    let sums = thief.0.with_file_name("sums");
    let mut begun = 0;
    assert!(!sums.exists(), "not before there is hardly any room");
    for blocks in (0..60).step_by(4) {
        thief.take_all();
        thief.give_blocks(blocks);
        let c = lookup(&workspace(url), &format!("durable{blocks}"));
        if let Err(e) = ioverbs::write_at(&c, 0, &[7; 20_000]).and_then(|_| ioverbs::close(&c)) {
            assert_eq!(e.kind(), Kind::Exhausted, "{e}");
        }
        begun += usize::from(sums.exists() && !sums.join("format").exists());
        kill(url);
        thief.take_all();
        check(url, &all, &format!("{blocks} blocks"));
    }
    assert!(begun > 0, "none was cut short");
    thief.give_back();
    make(&workspace(url), "again", asked, &[7; 1 << 20]).unwrap();
    assert!(sums.join("format").exists());
    end(url);
    say("done");
}
