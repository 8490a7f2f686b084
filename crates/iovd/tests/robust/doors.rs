//! Daemons that cannot start, or must not: each says why and what to do, and leaves the store as it was.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
};

use ioverbs::{Kind, SessionAttr, open};

use crate::kit::{IOVD, Peer, Store, create, lookup, read, wait_until};

fn start(dir: &Path) -> Output {
    Command::new(IOVD).args(["--dir", dir.to_str().unwrap(), "--detach"]).output().unwrap()
}

/// A store with a collection in it, and no daemon.
fn filled() -> Store {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "a", "");
    ioverbs::write_at(&c, 0, b"kept").unwrap();
    ioverbs::close(&c).unwrap();
    drop((c, ws));
    store.shut_down();
    store
}

fn is_whole(store: &Store) {
    assert_eq!(read(&lookup(&store.again(), "a")), b"kept");
}

#[test]
fn two_daemons_on_one_directory_are_one() {
    let store = filled();
    let daemon = store.daemon(&[], &[]);
    let second = start(store.dir());
    assert!(second.status.success(), "whoever wanted a daemon has one: {second:?}");
    assert_eq!(store.status("pid"), Some(daemon.pid().into()));
    is_whole(&store);
}

#[test]
fn a_store_held_by_another_host_is_refused_by_its_name() {
    let store = filled();
    let lock = store.dir().join("lock");
    fs::write(&lock, "node17.cluster\n00000000-0000-0000-0000-000000000000\n4711\n").unwrap();
    let e = store.open().err().unwrap();
    assert_eq!(e.kind(), Kind::Busy, "{e}");
    for word in ["node17.cluster", "4711", "remove the file named lock"] {
        assert!(e.detail().contains(word), "{e}");
    }
    fs::remove_file(&lock).unwrap();
    is_whole(&store);
}

#[test]
fn a_store_held_before_this_host_was_booted_anew_is_free() {
    let store = filled();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let text = format!("{}\n00000000-0000-0000-0000-000000000000\n1\n", host.trim());
    fs::write(store.dir().join("lock"), text).unwrap();
    is_whole(&store);
}

#[test]
fn a_stale_socket_is_replaced() {
    let store = filled();
    let _ = fs::remove_file(store.dir().join("socket"));
    drop(std::os::unix::net::UnixListener::bind(store.dir().join("socket")).unwrap());
    is_whole(&store);
    store.kill();
    is_whole(&store);
    store.shut_down();
    let _ = fs::remove_file(store.dir().join("socket"));
    fs::write(store.dir().join("socket"), "not even a socket").unwrap();
    is_whole(&store);
}

#[test]
fn a_missing_daemon_says_how_to_name_one() {
    let store = Store::new();
    let mut peer = Peer::start_with("tries to open", &store, &[("IOVERBS_IOVD", "/nowhere/iovd")]);
    let heard = peer.hear();
    assert!(heard.starts_with("NotFound") && heard.contains("IOVERBS_IOVD names /nowhere/iovd"), "{heard}");
    let not_one = tempfile::NamedTempFile::new().unwrap();
    let named = not_one.path().to_str().unwrap().to_owned();
    let mut peer = Peer::start_with("tries to open", &store, &[("IOVERBS_IOVD", &named)]);
    let heard = peer.hear();
    assert!(heard.starts_with("Unavailable") && heard.contains("cannot be started"), "{heard}");
}

#[test]
fn a_path_longer_than_a_socket_address_is_no_matter() {
    let scratch = tempfile::tempdir().unwrap();
    let mut dir = scratch.path().to_owned();
    for i in 0..12 {
        dir = dir.join(format!("{i}-a-directory-with-a-long-name"));
    }
    assert!(dir.as_os_str().len() > 300);
    let store = Store::at(dir);
    let ws = store.in_workspace();
    let c = create(&ws, "a", "");
    ioverbs::write_at(&c, 0, b"kept").unwrap();
    store.kill();
    ioverbs::close(&c).unwrap();
    is_whole(&store);
    store.shut_down();
}

#[test]
fn a_store_of_a_newer_format_is_refused_and_left_alone() {
    for (file, newer) in [("meta/format", "ioverbs metadata engine, format 2\n"), ("format", "")] {
        let store = filled();
        let path = store.dir().join(file);
        let Ok(present) = fs::read(&path) else { continue };
        let newer = if newer.is_empty() { String::from_utf8_lossy(&present).replace('1', "2") } else { newer.into() };
        fs::write(&path, &newer).unwrap();
        let before = store.files("");
        let e = store.open().err().unwrap();
        assert_eq!(e.kind(), Kind::Version, "{file}: {e}");
        assert!(e.detail().contains("update"), "{e}");
        assert_eq!(fs::read(&path).unwrap(), newer.as_bytes());
        assert!(before.iter().all(|file| Path::new(file).exists()));
        fs::write(&path, &present).unwrap();
        is_whole(&store);
    }
}

#[test]
fn a_directory_that_cannot_be_written_says_so() {
    let store = filled();
    // Root writes where it may not: a file system that is mounted read-only stops it too.
    let script = r#"mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" --dir "$1" --detach"#;
    let out = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
        .args([store.dir().to_str().unwrap(), IOVD])
        .output();
    let out = match out {
        Ok(out) if out.status.code() != Some(1) => out,
        other => return eprintln!("skipped: no mount namespace can be made here: {other:?}"),
    };
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && words.contains("mounted read-only: mount it"), "{out:?}");
    is_whole(&store);
}

#[test]
fn a_store_whose_directory_was_removed_is_gone_and_says_so() {
    let store = filled();
    let ws = store.again();
    let c = lookup(&ws, "a");
    fs::remove_dir_all(store.dir()).unwrap();
    let mut failed = None;
    wait_until("an error", || {
        let name = format!("b{}", ioverbs::seam::new_uuid());
        failed = ioverbs::create(&ws, None, Some(&name), Default::default(), Default::default())
            .and_then(|c| ioverbs::write_at(&c, 0, &[1; 100_000]))
            .err();
        failed.is_some()
    });
    let e = failed.unwrap();
    assert!(!e.detail().is_empty() && e.kind() != Kind::Internal, "{e:?}");
    drop(c);
    drop(ws);
    // A new store can be made in its place.
    let attr = SessionAttr::default();
    open(Some(&store.url()), attr).unwrap();
    assert!(store.session().load_workspace(ioverbs::Which::parse("w").unwrap()).is_err());
}

#[test]
fn a2_a_daemon_of_another_user_is_not_started() {
    let store = filled();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can be somebody else");
    }
    fs::set_permissions(store.dir(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let copy = crate::kit::for_everybody(IOVD);
    let mut child = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(copy.path().join("program"))
        .args(["--dir", store.dir().to_str().unwrap(), "--ready"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut words = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut words).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(77), "{words}");
    assert!(words.contains("serves its owner only"), "{words}");
}

#[test]
fn a_start_that_fails_leaves_the_store_to_any_host() {
    let store = Store::new();
    std::fs::create_dir_all(store.dir()).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let fails = || {
        let mut start = std::process::Command::new(IOVD);
        assert!(!start.arg("--dir").arg(store.dir()).args(["--listen", &address]).status().unwrap().success());
        std::fs::read_to_string(store.dir().join("lock")).unwrap()
    };
    assert_eq!(fails(), "\n");
    // Clients of one that has crashed may still be here.
    store.daemon(&[], &[]).kill();
    assert_eq!(fails().lines().count(), 3);
}

/// A daemon of another process namespace, if one can be made here.
fn elsewhere(store: &Store) -> Option<std::process::Child> {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", IOVD, "--ready", "--idle", "0", "--dir"]).arg(store.dir()).stderr(Stdio::piped());
    let mut daemon = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(daemon.stderr.take().unwrap()).read_line(&mut line).unwrap();
    if line.trim() != "iovd is ready" {
        let _ = daemon.wait();
        eprintln!("skipped: no process namespace can be made here: {line}");
        return None;
    }
    Some(daemon)
}

/// Neither sees the other's process, and what one is told to end is still told to end.
#[test]
fn g6_a_daemon_of_another_process_namespace_serves_and_ends() {
    let store = filled();
    let Some(mut daemon) = elsewhere(&store) else { return };
    let c = create(&store.again(), "c", "");
    ioverbs::write_at(&c, 0, &[7; 100_000]).unwrap();
    assert_eq!(read(&c), [7; 100_000]);
    assert_eq!(c.session().counters().grants.load(std::sync::atomic::Ordering::Relaxed), 0, "it cannot be watched");
    drop(c);
    ioverbs::daemon_shutdown(&store.url()).unwrap();
    assert!(daemon.wait().unwrap().success());
}

/// Nor does the next daemon see whether they live: it waits for them as for those of another host.
#[test]
fn x1_who_had_a_daemon_of_another_process_namespace_is_awaited_after_a_kill() {
    let store = filled();
    let Some(mut daemon) = elsewhere(&store) else { return };
    let held = create(&store.again(), "held", "concurrency=exclusive");
    ioverbs::write_at(&held, 0, b"first").unwrap();
    let of_it = format!("/proc/{0}/task/{0}/children", daemon.id());
    crate::kit::signal(fs::read_to_string(of_it).unwrap().trim().parse().unwrap(), "KILL");
    daemon.wait().unwrap();
    let others = store.again();
    let taken = ioverbs::lookup(&others, None, "held", crate::kit::controls("concurrency=exclusive"));
    assert_eq!(taken.map(drop).unwrap_err().kind(), Kind::Busy);
    ioverbs::write_at(&held, 0, b"again").unwrap();
    assert_eq!(read(&held), b"again");
}

/// The same where only the next daemon is of another namespace: its page tells of a session whose process nobody sees there.
#[test]
fn x1_who_is_not_seen_by_the_next_daemon_is_awaited_after_a_kill() {
    let store = filled();
    let daemon = store.daemon(&[], &[]);
    let held = create(&store.again(), "held", "concurrency=exclusive");
    ioverbs::write_at(&held, 0, b"first").unwrap();
    daemon.kill();
    let Some(mut daemon) = elsewhere(&store) else { return };
    let others = store.again();
    let taken = ioverbs::lookup(&others, None, "held", crate::kit::controls("concurrency=exclusive"));
    assert_eq!(taken.map(drop).unwrap_err().kind(), Kind::Busy);
    ioverbs::write_at(&held, 0, b"again").unwrap();
    assert_eq!(read(&held), b"again");
    drop((held, others));
    ioverbs::daemon_shutdown(&store.url()).unwrap();
    assert!(daemon.wait().unwrap().success());
}
