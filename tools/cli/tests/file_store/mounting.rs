//! Mounting and unmounting: what lies below, who waits for it, what it keeps, and what its options say.

use std::{
    ffi::OsStr,
    fs::File,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    mounts::{Mounted, SWITCH, goes_by_rings, has_fuse, kill, wait_until},
    store::{Ran, Store, finished, signal},
};

/// Memory as a file system in a directory of the test's own.
struct Memory(PathBuf);

impl Memory {
    /// Only root can mount one.
    fn new(at: PathBuf) -> Option<Memory> {
        if !has_fuse() || !rustix::process::geteuid().is_root() {
            return None;
        }
        std::fs::create_dir_all(&at).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "memory"]).arg(&at).stderr(Stdio::null()).status();
        mount.unwrap().success().then(|| Memory(at))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).stderr(Stdio::null()).status();
    }
}

/// A directory to mount on.
fn directory<'a>(store: &'a Store, name: &str) -> Mounted<'a> {
    let at = store.path(name);
    std::fs::create_dir_all(&at).unwrap();
    Mounted { store, at }
}

/// A script in the directory of the store, with `$IOV` for the program and `$AT` for where to mount.
fn script(store: &Store, at: &Path, text: &str) -> Ran {
    let iov = store.command(&[]);
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", text]).current_dir(store.path(""));
    command.envs(iov.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("IOV", iov.get_program()).env("AT", at);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finished(command.spawn().unwrap(), 60)
}

#[test]
fn what_lies_below_stays_where_a_mount_fails() {
    let store = Store::with_workspace();
    let Some(memory) = Memory::new(store.path("mnt")) else { return };
    let below = memory.0.join("below");
    std::fs::write(&below, "").unwrap();
    // Descriptors for the rings of some processors, or of none, are missing.
    for limit in 10..16 {
        let ran = script(&store, &memory.0, &format!("ulimit -n {limit}; \"$IOV\" mount w \"$AT\" -o io_uring"));
        if ran.code == Some(0) {
            store.iov(&["umount", memory.0.to_str().unwrap()]).ok();
        }
        assert!(below.exists(), "with {limit} descriptors: {ran:?}");
    }
}

#[test]
fn a_mount_keeps_nothing_of_who_has_asked_for_it() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = directory(&store, "mnt");
    std::fs::create_dir(store.path("here")).unwrap();
    // By names that mean something there only.
    let mount = "\"$IOV\" -S file:../store mount w ../mnt";
    let text = format!("cd here; exec 9> ../lock; flock 9; unset IOVERBS_URL; {mount}; echo x > ../mnt/f");
    script(&store, &m.at, &text).ok();
    script(&store, &m.at, "flock -n lock true").ok();
    assert_eq!(std::fs::read_link(format!("/proc/{}/cwd", server(&m))).unwrap(), Path::new("/"));
    // It finds its store again.
    store.iov(&["down"]).ok();
    assert_eq!(std::fs::read(m.path("f")).unwrap(), b"x\n");
}

/// The process that serves a mount which a script has made.
fn server(m: &Mounted<'_>) -> u32 {
    let serves = |pid: &u32| {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let at = [b"AT=", m.at.as_os_str().as_bytes(), b"\0"].concat();
        read("cmdline").windows(7).any(|part| part == b"\0mount\0")
            && read("environ").windows(at.len()).any(|p| p == at)
    };
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    processes.into_iter().find(serves).expect("a process that serves the directory")
}

#[test]
fn mount_points_of_others_may_be_called_anything() {
    let store = Store::with_workspace();
    let odd = store.dir.path().join(OsStr::from_bytes(b"odd \xff\xfe"));
    let Some(_memory) = Memory::new(odd) else { return };
    let m = Mounted::new(&store, "mnt", "");
    let at = m.at.to_str().unwrap();
    store.iov(&["mount", "w", at, "-o", "remount,ro"]).ok();
    store.iov(&["umount", at]).ok();
    // One that was killed is replaced, and a signal unmounts.
    m.again("");
    kill(m.server(), "KILL");
    wait_until("the end", || std::fs::metadata(&m.at).is_err());
    m.again("");
    std::fs::write(m.path("f"), "bytes").unwrap();
    kill(m.server(), "TERM");
    wait_until("the unmount", || !m.path("f").exists());
}

#[test]
fn a_remount_changes_what_it_says_and_nothing_else() {
    if !has_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "ro,noexec");
    let remount = |options: &str| store.iov(&["mount", "w", m.at.to_str().unwrap(), "-o", options]).ok();
    let has = |options: &str| m.shell(&format!("grep -q \" $AT fuse.iov {options},\" /proc/self/mounts")).ok();
    has("ro,nosuid,nodev,noexec,relatime");
    m.shell("! touch f 2> /dev/null").ok();
    remount("remount,rw");
    has("rw,nosuid,nodev,noexec,relatime");
    m.shell("echo x > f").ok();
    remount("remount,ro");
    has("ro,nosuid,nodev,noexec,relatime");
    remount("remount,noatime");
    has("ro,nosuid,nodev,noexec,noatime");
    m.shell("! touch g 2> /dev/null").ok();
    remount("remount,rw,suid,exec,atime");
    has("rw,nodev,relatime");
}

#[test]
fn a_store_of_several_addresses_is_named_among_the_options() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    store.iov(&["down"]).ok();
    let said = store.iov(&["up", "--listen", "127.0.0.1:0"]).ok().text();
    let address = said.split("IOVERBS_URL=iov://").nth(1).unwrap().lines().next().unwrap();
    let m = directory(&store, "mnt");
    // Behind one that nobody answers at.
    let secret = store.path("store/secret");
    let options = format!("rw,owner,store=iov://127.0.0.3:1\\,{address}?secret={},noexec", secret.display());
    let mut command = store.command(&["mount", "w", m.at.to_str().unwrap(), "-o", &options]);
    finished(command.env_remove("IOVERBS_URL").spawn().unwrap(), 60).ok();
    std::fs::write(m.path("f"), "bytes").unwrap();
    assert_eq!(store.cat("w/f"), b"bytes");
    m.shell("grep -q \" $AT fuse.iov rw,.*noexec\" /proc/self/mounts").ok();
}

#[test]
fn a_mount_is_listed_by_what_it_was_called() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    for source in ["w", "iov:///w", "iov:///w/"] {
        let m = directory(&store, "mnt");
        store.iov(&["mount", source, m.at.to_str().unwrap()]).ok();
        assert_eq!(m.shell("df --output=source . | tail -1").ok().text(), format!("{source}\n"));
        store.iov(&["umount", m.at.to_str().unwrap()]).ok();
    }
}

#[test]
fn who_may_only_read_the_switch_of_rings_keeps_nobody_from_mounting() {
    let Ok(switch) = File::open(SWITCH) else { return };
    if !has_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    rustix::fs::flock(&switch, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let store = Store::with_workspace();
    let m = directory(&store, "mnt");
    let mut mount = store.command(&["mount", "w", m.at.to_str().unwrap(), "-o", "io_uring"]);
    // Nobody reads what the process behind it would keep open.
    mount.stdout(Stdio::null()).stderr(Stdio::null());
    finished(mount.spawn().unwrap(), 30).ok();
    assert!(goes_by_rings(&m));
}

#[test]
fn ctrl_c_ends_a_mount_that_waits_for_its_store() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = directory(&store, "mnt");
    let _daemon = store.stop_daemon();
    let mut mount = store.command(&["mount", "w", m.at.to_str().unwrap(), "--timeout", "10min"]);
    let mount = mount.process_group(0).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    signal(&mount, "INT");
    let ran = finished(mount, 20);
    assert!(matches!(ran.code, Some(130 | 143)), "{ran:?}");
}
