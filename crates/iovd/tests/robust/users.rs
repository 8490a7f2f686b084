//! Two users: neither opens, lists, maps nor reaches the other's store, however far its directory stands open (A1, A2).

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use crate::kit::{Peer, Store, create, for_everybody, listen, say};

const ALICE: u32 = 64_101;
const BOB: u32 = 65_534;

/// Two users, or why there are none.
fn two_users() -> Option<(tempfile::TempDir, tempfile::TempDir, tempfile::TempDir)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can be two users");
        return None;
    }
    let (program, iovd) = (for_everybody(std::env::current_exe().unwrap()), for_everybody(crate::kit::IOVD));
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(home.path(), Some(ALICE), Some(ALICE)).unwrap();
    Some((program, iovd, home))
}

struct Users {
    program: PathBuf,
    iovd: String,
    store: Store,
    _kept: [tempfile::TempDir; 3],
}

impl Users {
    fn new() -> Option<Users> {
        let (program, iovd, home) = two_users()?;
        let store = Store::at(home.path().join("store"));
        let named = iovd.path().join("program").to_str().unwrap().to_owned();
        Some(Users { program: program.path().join("program"), iovd: named, store, _kept: [program, iovd, home] })
    }

    fn peer(&self, uid: u32, part: &str) -> Peer {
        Peer::start_as(uid, &self.program, part, &self.store, &[("IOVERBS_IOVD", &self.iovd)])
    }
}

#[test]
fn a2_a_store_serves_its_owner_only() {
    let Some(users) = Users::new() else { return };
    let mut alice = users.peer(ALICE, "owns a store");
    assert_eq!(alice.hear(), "serves");
    let dir = users.store.dir().to_owned();
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);

    let denied = |opened: bool| {
        let mut bob = users.peer(BOB, "intrudes");
        let heard = bob.hear();
        assert!(heard.starts_with("Denied Some(A2)"), "open: {heard}");
        assert!(heard.contains("serves its owner only"), "it says why: {heard}");
        let connected = bob.hear();
        assert!(
            connected.contains("PermissionDenied") || connected.contains("Denied Some(A2)"),
            "connect: {connected}"
        );
        let listed = bob.hear();
        assert!(opened || listed.contains("PermissionDenied"), "list: {listed}");
        for file in users.store.files("").into_iter().filter(|file| !file.ends_with("/socket")) {
            bob.tell(&file);
            let heard = bob.hear();
            assert!(heard.contains("PermissionDenied"), "{file}: {heard}");
        }
        bob.tell("end");
    };
    denied(false);
    // Alice opens her doors; what is behind them stays shut, and the daemon asks the kernel who knocks.
    for (file, mode) in [(dir.clone(), 0o755), (dir.join("socket"), 0o666)] {
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        denied(true);
    }
    // Nor is a daemon of Bob's own an answer.
    alice.tell("end");
    assert_eq!(alice.hear(), "ended");
    let mut bob = users.peer(BOB, "tries to open");
    let heard = bob.hear();
    assert!(heard.starts_with("Denied Some(A2)"), "{heard}");
    // It is as it was for Alice, and shut again.
    let mut alice = users.peer(ALICE, "owns a store");
    assert_eq!(alice.hear(), "serves");
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    alice.tell("end");
    assert_eq!(alice.hear(), "ended");
}

#[test]
fn a2_root_is_not_the_owner_either() {
    let Some(users) = Users::new() else { return };
    let mut alice = users.peer(ALICE, "owns a store");
    assert_eq!(alice.hear(), "serves");
    let e = users.store.open().err().unwrap();
    assert_eq!((e.kind(), e.clause()), (ioverbs::Kind::Denied, Some(ioverbs::Clause::A2)), "{e}");
    alice.tell("end");
    assert_eq!(alice.hear(), "ended");
}

/// Everything that another user may open or map is searched for what this one has in shared memory (G5).
#[test]
fn g5_another_user_finds_nothing_in_shared_memory() {
    let Some(users) = Users::new() else { return };
    let in_memory = |uid, part| {
        let variables = [("IOVERBS_IOVD", &*users.iovd), ("IOVD_STORAGE", "shmem:32MiB")];
        Peer::start_as(uid, &users.program, part, &users.store, &variables)
    };
    let mut alice = in_memory(ALICE, "keeps a canary");
    assert_eq!(alice.hear(), "kept");
    // The search finds what there is to be found.
    let mut herself = in_memory(ALICE, "searches for the canary");
    assert_ne!(herself.hear(), "0", "its owner finds it");
    let mut bob = in_memory(BOB, "searches for the canary");
    assert_eq!(bob.hear(), "0");
    // What is hers no more is nobody's.
    alice.tell("end");
    assert_eq!(alice.hear(), "released");
    let mut bob = in_memory(BOB, "searches in memory of his own");
    assert_eq!(bob.hear(), "0");
}

/// What is searched for, without being in the memory of whoever searches.
fn canary() -> Vec<u8> {
    (0..64_u8).map(|i| i.wrapping_mul(37) ^ 0xa7).collect()
}

/// Fills a collection in shared memory with the canary, and views it, so that it is mapped.
pub(crate) fn keeps_a_canary(url: &str) {
    let session = ioverbs::open(Some(url), Default::default()).unwrap();
    let ws = session.create_workspace(ioverbs::Name::new("w").unwrap(), Default::default()).unwrap();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &canary().repeat(100_000)).unwrap();
    ioverbs::write_at(&c, 0, &canary().repeat(100_000)).unwrap();
    let view = c.view(0, 6_400_000).unwrap();
    assert!(view.len() > 1 << 20);
    say("kept");
    listen();
    drop((view, c, ws, session));
    ioverbs::daemon_shutdown(url).unwrap();
    let mut freed = ioverbs::store_release(url);
    crate::kit::wait_until("the daemon lets go", || {
        freed = ioverbs::store_release(url);
        freed.is_ok()
    });
    say("released");
}

/// How often the canary is in what can be opened below a path.
fn count_below(path: &std::path::Path, depth: usize) -> usize {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|entry| match fs::metadata(entry.path()) {
            Ok(facts) if facts.is_dir() && depth > 0 => count_below(&entry.path(), depth - 1),
            Ok(facts) if facts.is_file() => count_in(&entry.path()),
            _ => 0,
        })
        .sum()
}

fn count_in(path: &std::path::Path) -> usize {
    use std::io::Read;
    let Ok(file) = fs::File::open(path) else { return 0 };
    let mut bytes = Vec::new();
    // What cannot be read to its end was read as far as it can.
    let _ = file.take(256 << 20).read_to_end(&mut bytes);
    let canary = canary();
    bytes.windows(canary.len()).filter(|window| *window == canary).count().min(1)
}

/// Looks at all shared memory, and at the files and memory of all processes but its own.
pub(crate) fn searches(_: &str) {
    let mut found = count_below(std::path::Path::new("/dev/shm"), 6);
    let me = std::process::id().to_string();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let name = process.file_name().to_string_lossy().into_owned();
        if name == me || !name.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        found += ["fd", "map_files"].map(|dir| count_below(&process.path().join(dir), 0)).iter().sum::<usize>();
        // Whether its memory can be opened is all that matters: what is there is hers.
        found +=
            usize::from(fs::File::open(process.path().join("mem")).is_ok_and(|_| owner_of(&process.path()) == ALICE));
    }
    say(&found.to_string());
}

fn owner_of(process: &std::path::Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(process).map_or(0, |facts| facts.uid())
}

/// Takes all the memory that a store of his own has, and looks at what is in it.
pub(crate) fn searches_his_own(_: &str) {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("store").display());
    let session = ioverbs::open(Some(&url), Default::default()).unwrap();
    let ws = session.create_workspace(ioverbs::Name::new("w").unwrap(), Default::default()).unwrap();
    let c = create(&ws, "c", "");
    ioverbs::run(
        &session,
        ioverbs::Op::Allocate { c: c.clone(), range: ioverbs::Range { offset: 0, len: 24 << 20 }, keep_size: false },
    )
    .unwrap();
    let mut all = vec![1; 24 << 20];
    assert_eq!(ioverbs::read_at(&c, 0, &mut all).unwrap(), all.len());
    let foreign = all.iter().filter(|b| **b != 0).count();
    let own = count_below(std::path::Path::new("/dev/shm"), 6);
    drop((c, ws, session));
    ioverbs::daemon_shutdown(&url).unwrap();
    crate::kit::wait_until("the daemon lets go", || ioverbs::store_release(&url).is_ok());
    say(&(foreign + own).to_string());
}

/// Makes a store, or finds it, and serves it until told to end.
pub(crate) fn owns(url: &str) {
    let session = ioverbs::open(Some(url), Default::default()).unwrap();
    let name = ioverbs::Name::new("w").unwrap();
    let ws = match session.create_workspace(name, Default::default()) {
        Ok(ws) => {
            let c = create(&ws, "secret-name", "");
            ioverbs::write_at(&c, 0, &vec![7; 1 << 20]).unwrap();
            ioverbs::write_at(&c, 0, &vec![7; 1 << 20]).unwrap();
            ws
        }
        Err(_) => session.load_workspace(ioverbs::Which::parse("w").unwrap()).unwrap(),
    };
    assert_eq!(crate::kit::read(&crate::kit::lookup(&ws, "secret-name")), vec![7; 1 << 20]);
    say("serves");
    listen();
    let pid = ioverbs::daemon_status(url).unwrap().unwrap().into_iter().find(|(n, _)| n == "pid").unwrap().1;
    drop((ws, session));
    ioverbs::daemon_shutdown(url).unwrap();
    crate::kit::wait_until("the daemon's end", || crate::kit::has_ended(pid as u32));
    say("ended");
}

/// Tries to get at somebody else's store in every way there is.
pub(crate) fn intrudes(url: &str) {
    match ioverbs::open(Some(url), Default::default()) {
        Ok(_) => say("opened"),
        Err(e) => say(&format!("{:?} {:?} {}", e.kind(), e.clause(), e.detail())),
    }
    let dir = PathBuf::from(url.strip_prefix("file:").unwrap());
    match std::os::unix::net::UnixStream::connect(dir.join("socket")) {
        Ok(stream) => say(&crate::hostile::knock(stream)),
        Err(e) => say(&format!("{:?}", e.kind())),
    }
    say(&format!("{:?}", fs::read_dir(&dir).map(|found| found.count()).map_err(|e| e.kind())));
    loop {
        let file = listen();
        if file == "end" || file.is_empty() {
            return;
        }
        // Whoever cannot open it cannot map it.
        let read = fs::File::open(&file).map(drop).map_err(|e| e.kind());
        let write = fs::File::options().write(true).open(&file).map(drop).map_err(|e| e.kind());
        match (read, write) {
            (Err(a), Err(b)) => say(&format!("{a:?} {b:?}")),
            other => say(&format!("opened: {other:?}")),
        }
    }
}
