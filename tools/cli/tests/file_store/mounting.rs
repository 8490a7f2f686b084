//! Mounting and unmounting: what lies below, who waits for it, what it keeps, and what its options say.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
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
    finished(of_script(store, at, text).spawn().unwrap(), 60)
}

fn of_script(store: &Store, at: &Path, text: &str) -> Command {
    let iov = store.command(&[]);
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", text]).current_dir(store.path(""));
    command.envs(iov.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("IOV", iov.get_program()).env("AT", at);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
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

#[test]
fn a_remount_takes_only_what_it_can_change_or_what_is_so_already() {
    if !has_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let store = Store::with_workspace();
    store.iov(&["ws", "create", "other"]).ok();
    let m = Mounted::new(&store, "mnt", "strict,tags,ttl=5");
    let at = m.at.to_str().unwrap();
    let remount = |ws: &str, options: &str| store.iov(&["mount", ws, at, "-o", &format!("remount,{options}")]);
    for (wrong, why) in [
        ("bogus", "no mount option \"bogus\""),
        ("session", "a remount cannot change that"),
        ("ttl=1", "a remount cannot change that"),
        ("tags=other", "a remount cannot change that"),
        ("allow_other", "a remount cannot change that"),
        ("passthrough=off", "a remount cannot change that"),
        ("ro,store=file:/none", "of the store file:"),
    ] {
        remount("w", wrong).fails(64, &[why]);
    }
    remount("other", "ro").fails(64, &["the workspace \"w\" is mounted"]);
    remount("none", "ro").fails(64, &["the workspace \"w\" is mounted"]);
    store
        .iov(&["mount", "w", at, "-o", "remount,ro", "-c", "persistence=durable"])
        .fails(64, &["when a workspace is mounted"]);
    m.shell("echo x > still-written").ok();
    // As mount(8) does, with all that the line of fstab and the kernel's table say.
    let all =
        format!("ro,strict,ttl=5,tags=by,nofail,x-a=b,user_id=0,group_id=0,default_permissions,store={}", store.url());
    remount("w", &all).ok();
    m.shell("! touch f 2> /dev/null").ok();
    remount("iov:///w", "rw").ok();
    m.shell("touch f").ok();
}

#[test]
fn what_is_mounted_is_not_mounted_once_more() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "");
    let at = m.at.to_str().unwrap();
    let before = std::fs::read_to_string("/proc/self/mounts").unwrap();
    store.iov(&["mount", "w", at]).fails(73, &["already mounted", "iov umount DIR"]);
    store.iov(&["mount", "iov:///w", at, "-o", "ro"]).fails(73, &["already mounted"]);
    let count = |table: &str| table.lines().filter(|line| line.contains(at)).count();
    assert_eq!(count(&std::fs::read_to_string("/proc/self/mounts").unwrap()), count(&before));
    // What does not say so is in no list of attributes, which programs copy.
    m.shell("! getfattr -d -m - . 2> /dev/null | grep iov.mount").ok();
    store.iov(&["mount", "w", "/"]).fails(64, &["mount on a directory in it"]);
    store.iov(&["mount", "w", store.path("other").to_str().unwrap(), "-o", "strict,session"]).fails(64, &["either"]);
}

#[test]
fn p4_promises_that_cannot_be_given_are_refused_before_anything_is_made() {
    let store = Store::with_workspace();
    std::fs::create_dir(store.path("mnt")).unwrap();
    let at = store.path("mnt");
    let words = ["persistence=replicated: bytes on medium files", "clause P4", "next: ask for what can be had"];
    let put = store.with_stdin(b"x", &["put", "-", "w/f", "-c", "persistence=replicated"]).fails(69, &words);
    let rule = "/ck/*=persistence=replicated";
    for promise in [["-c", "persistence=replicated"], ["--rule", rule]] {
        for command in [&["mount", "w", at.to_str().unwrap()][..], &["run", "--env"], &["run", "--at", "w=/x", "--env"]]
        {
            let ran = store.iov(&[&command[..1], &promise, &command[1..]].concat()).fails(69, &words);
            assert_eq!(ran.err, put.err, "{command:?}");
        }
    }
    if !has_fuse() {
        return;
    }
    let m = Mounted::new(&store, "mnt", "");
    m.shell("mkdir d; ! setfattr -n user.posix.controls -v persistence=replicated d 2> /dev/null; echo x > d/f").ok();
}

#[test]
fn o1_in_front_a_mount_says_once_why_the_store_refuses() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    store.iov(&["ws", "set", "w", "--expires", "2020-01-01"]).ok();
    let m = directory(&store, "mnt");
    let mut front = store.command(&["mount", "--foreground", "w", m.at.to_str().unwrap()]);
    let front = front.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the mount", || m.shell("grep -q \" $AT fuse.iov \" /proc/self/mounts").code == Some(0));
    for name in ["a", "b", "c"] {
        let refused = std::fs::write(m.path(name), "x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    }
    assert!(!m.path("none").exists());
    signal(&front, "INT");
    let ran = finished(front, 60).ok();
    assert_eq!(ran.err.matches("has expired").count(), 1, "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

#[test]
fn without_an_environment_the_home_directory_is_known() {
    let store = Store::with_workspace();
    // It starts nothing, and looks only.
    let mut status = store.command(&["status"]);
    for name in ["IOVERBS_URL", "IOVERBS_STORE", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME"] {
        status.env_remove(name);
    }
    let said = Ran::new(status.output().unwrap()).err;
    assert!(!said.contains("home directory"), "{said}");
}

fn tasks(pid: u32) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().map(|task| task.path())
}

/// The process that a mount has started to ask it for something, so that no request is left lying in a ring.
fn asker(server: u32) -> Option<u32> {
    let children = |task: PathBuf| std::fs::read_to_string(task.join("children")).unwrap_or_default();
    let all: String = tasks(server).map(children).collect();
    let is_called =
        |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c == "iov-look-at\n");
    all.split_whitespace().map(|pid| pid.parse().unwrap()).find(is_called)
}

#[test]
fn who_asks_a_mount_keeps_nothing_of_its_starter_and_ends_by_a_signal() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = directory(&store, "mnt");
    let text = "exec 9> \"$AT.lock\"; exec \"$IOV\" mount --foreground w \"$AT\"";
    let front = of_script(&store, &m.at, text).spawn().unwrap();
    wait_until("the mount", || m.shell("grep -q \" $AT fuse.iov \" /proc/self/mounts").code == Some(0));
    if goes_by_rings(&m) {
        wait_until("who asks", || asker(front.id()).is_some());
        let first = asker(front.id()).unwrap();
        let open = std::fs::read_dir(format!("/proc/{first}/fd")).unwrap();
        let mut open: Vec<_> = open.map(|fd| fd.unwrap().file_name()).collect();
        open.sort();
        assert_eq!(open, ["0", "1", "2"]);
        kill(first, "TERM");
        wait_until("another one", || asker(front.id()).is_some_and(|next| next != first));
    }
    signal(&front, "INT");
    finished(front, 60).ok();
}

/// A program that has a file of a mount open, and has a lock on it or waits for that; it ends with 3 if it cannot have it.
struct Locker(Child);

impl Locker {
    fn new(path: &Path) -> Locker {
        let script = "import fcntl, os, sys, time
f = open(sys.argv[1], 'r+')
print('open', flush=True)
try: fcntl.lockf(f, fcntl.LOCK_EX)
except OSError: os._exit(3)
time.sleep(600)";
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(path).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut locker = Locker(python.spawn().unwrap());
        let mut said = String::new();
        BufReader::new(locker.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "open\n");
        locker
    }

    /// Behind `open` it sleeps for nothing but the lock, and once it has that.
    fn sleeps(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['S', 'D']))
    }

    fn is_told(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some_and(|status| status.code() == Some(3))
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn who_waits_in_a_mount_hears_that_it_was_killed() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let (mut asked, mut rings) = (0, false);
    for round in 0..6 {
        let m = Mounted::new(&store, &format!("mnt{round}"), "");
        std::fs::write(m.path("f"), "x").unwrap();
        let server = m.server();
        rings = goes_by_rings(&m);
        if rings {
            wait_until("who asks", || asker(server).is_some());
        }
        let mut lockers: Vec<_> = (0..4).map(|_| Locker::new(&m.path("f"))).collect();
        wait_until("all wait but one", || lockers.iter().all(Locker::sleeps));
        if let Some(asker) = asker(server) {
            // It has a thread for each thing that it asks for, and one otherwise. Another process is not looked for: the moment is short.
            let is_asked = || tasks(asker).count() > 1;
            let begun = Instant::now();
            let is_asked = std::iter::repeat_with(is_asked).take_while(|_| begun.elapsed().as_secs() < 20).any(|is| is);
            asked += usize::from(is_asked);
        }
        kill(server, "KILL");
        // One of them has the lock, and sleeps.
        let told = |all: &mut Vec<Locker>| all.iter_mut().map(Locker::is_told).filter(|told| *told).count();
        let begun = Instant::now();
        while told(&mut lockers) < 3 && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let told = told(&mut lockers);
        if told < 3 {
            // Nothing else ends it.
            Command::new("umount").arg("-f").arg(&m.at).status().unwrap();
        }
        drop(lockers);
        assert!(told >= 3, "in round {round} {told} of them are told that nothing serves the mount any more");
    }
    assert!(asked > 0 || !rings, "none was killed while it was asked for something");
}
