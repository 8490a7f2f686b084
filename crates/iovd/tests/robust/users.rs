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
