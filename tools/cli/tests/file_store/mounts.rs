//! Programs that know nothing of IOVerbs, in mounted workspaces.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    programs::{self, Door},
    store::{Ran, Store, finished, signal},
};

/// A mounted workspace; it goes before its store does.
pub(crate) struct Mounted<'a> {
    pub(crate) store: &'a Store,
    pub(crate) at: PathBuf,
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        self.store.iov(&["umount", "--lazy", self.at.to_str().unwrap()]);
    }
}

/// Containers may come without.
pub(crate) fn has_fuse() -> bool {
    let there = std::fs::File::open("/dev/fuse").is_ok();
    if !there {
        eprintln!("no /dev/fuse here: nothing can be mounted");
    }
    there
}

impl Mounted<'_> {
    pub(crate) fn new<'a>(store: &'a Store, name: &str, options: &str) -> Mounted<'a> {
        Mounted::with(store, name, if options.is_empty() { vec![] } else { vec!["-o", options] }.as_slice())
    }

    /// By a command with these arguments.
    pub(crate) fn with<'a>(store: &'a Store, name: &str, args: &[&str]) -> Mounted<'a> {
        let at = store.path(name);
        std::fs::create_dir_all(&at).unwrap();
        store.iov(&[&["mount", "w", at.to_str().unwrap()], args].concat()).ok();
        Mounted { store, at }
    }

    pub(crate) fn again(&self, options: &str) {
        let mut args = vec!["mount", "w", self.at.to_str().unwrap()];
        if !options.is_empty() {
            args.extend(["-o", options]);
        }
        self.store.iov(&args).ok();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// A script in the mounted directory, which ends with its first failure.
    pub(crate) fn shell(&self, script: &str) -> Ran {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", script]).current_dir(&self.at).env("AT", &self.at);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finished(command.spawn().unwrap(), 300)
    }

    /// The process that serves it.
    pub(crate) fn server(&self) -> u32 {
        let at = format!("{}\0", self.at.display());
        let serves = |pid: &u32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("\0mount\0") && line.contains(&at)
        };
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
        processes.into_iter().find(serves).expect("a process that serves the directory")
    }
}

/// Not by a command: where the server of a mount stands still, the child would wait for it as it closes what it has inherited.
pub(crate) fn kill(pid: u32, name: &str) {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = match name {
        "STOP" => Signal::STOP,
        "CONT" => Signal::CONT,
        "TERM" => Signal::TERM,
        _ => Signal::KILL,
    };
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn programs(door: Door, options: &str) {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", options);
    programs::run_all(door, &|script| m.shell(script));
    // What the tools of the store say of the same.
    assert_eq!(store.iov(&["cat", "w/src/deep/er/hard"]).ok().out, std::fs::read(m.path("src/main.c")).unwrap());
    store.iov(&["ls", "w/src/deep"]).ok();
    m.shell("cd / && sync").ok();
}

#[test]
fn programs_work_in_a_mounted_workspace() {
    programs(Door::Mount, "");
}

/// As where the kernel has no rings.
#[test]
fn programs_work_where_requests_go_by_the_device() {
    programs(Door::Mount, "io_uring=off");
}

#[test]
fn programs_work_where_nothing_is_cached() {
    programs(Door::Strict, "strict");
}

/// Whether requests of what is mounted there go by rings: only then the kernel has a queue for each processor.
pub(crate) fn goes_by_rings(m: &Mounted<'_>) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", m.server())).unwrap();
    let mut names = threads.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
    names.any(|name| name.starts_with("iov-fuse-"))
}

pub(crate) const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// How the system has it, while nobody is mounting.
fn switch() -> Option<String> {
    let file = std::fs::File::open(SWITCH).ok()?;
    // Nobody but root switches, and holds this meanwhile.
    let lock = std::fs::File::open("/run/iov-fuse-rings.lock");
    lock.iter().for_each(|lock| rustix::fs::flock(lock, rustix::fs::FlockOperation::LockShared).unwrap());
    Some(std::io::read_to_string(file).unwrap())
}

#[test]
fn requests_go_by_rings_where_they_can() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let before = switch();
    let at = store.path("on");
    std::fs::create_dir_all(&at).unwrap();
    let on = store.iov(&["mount", "w", at.to_str().unwrap(), "-o", "io_uring"]);
    match on.code {
        Some(0) => {
            let m = Mounted { store: &store, at };
            assert!(goes_by_rings(&m));
            m.shell("echo by rings > f && cat f && rm f").ok();
        }
        // Then it says what it takes, and nothing is mounted.
        _ => assert!(on.err.contains("enable_uring") && before.is_none(), "{}", on.err),
    }
    assert!(!goes_by_rings(&Mounted::new(&store, "off", "io_uring=off")));
    // The switch of the system is as it was.
    assert_eq!(switch(), before);
}

#[test]
fn files_without_a_name_get_one_in_a_mount() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    for options in ["", "strict", "io_uring=off"] {
        let m = Mounted::new(&store, "mnt", options);
        let script = r#"
import os
fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640)
os.write(fd, b'not yet')
assert os.listdir('.') == [] and os.fstat(fd).st_nlink == 0
os.link(f'/proc/self/fd/{fd}', 'named', src_dir_fd=fd, follow_symlinks=True)
assert os.fstat(fd).st_nlink == 1 and os.stat('named').st_ino == os.fstat(fd).st_ino
os.write(fd, b', but now')
os.close(fd)
assert open('named', 'rb').read() == b'not yet, but now' and os.stat('named').st_mode == 0o100640
os.remove('named')
# One that never gets a name goes with its descriptor.
os.close(os.open('.', os.O_TMPFILE | os.O_WRONLY))
"#;
        std::fs::write(store.path("tmpfile.py"), script).unwrap();
        m.shell(&format!("python3 {}", store.path("tmpfile.py").display())).ok();
        assert!(store.iov(&["ls", "w"]).ok().out.is_empty());
    }
}

#[test]
#[ignore = "takes minutes; make test-long installs the programs"]
fn heavy_programs_work_in_a_mounted_workspace() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    for (door, options) in [(Door::Mount, ""), (Door::Strict, "strict")] {
        let m = Mounted::new(&store, "mnt", options);
        programs::run_heavy(door, &|script| m.shell(script));
    }
}

#[test]
fn two_mounts_see_what_was_closed_and_share_locks() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let (a, b) = (Mounted::new(&store, "a", "ttl=0"), Mounted::new(&store, "b", "ttl=0"));
    for i in 0..20 {
        std::fs::write(a.path("f"), format!("{i}")).unwrap();
        assert_eq!(std::fs::read_to_string(b.path("f")).unwrap(), format!("{i}"));
        std::fs::write(b.path("f"), format!("back {i}")).unwrap();
        assert_eq!(std::fs::read_to_string(a.path("f")).unwrap(), format!("back {i}"));
    }
    std::fs::rename(b.path("f"), b.path("g")).unwrap();
    assert!(!a.path("f").exists() && a.path("g").exists());
    // A lock ends with its process, whatever ends that.
    let hold = "exec 9>>g; flock 9; touch held; sleep 600";
    let mut holder = Command::new("bash").args(["-c", hold]).current_dir(&a.at).spawn().unwrap();
    wait_until("the lock", || b.path("held").exists());
    assert_eq!(b.shell("exec 9>>g; flock -n 9").code, Some(1), "taken in the other mount");
    let waiter =
        Command::new("bash").args(["-c", "exec 9>>g; flock 9 && touch got"]).current_dir(&b.at).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(!a.path("got").exists());
    // What waits can be ended.
    let mut killed =
        Command::new("bash").args(["-c", "exec 9>>g; exec flock 9 true"]).current_dir(&b.at).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    kill(killed.id(), "KILL");
    wait_until("the end of who waited", || killed.try_wait().unwrap().is_some());
    // With its child that has the descriptor too.
    Command::new("pkill").args(["-KILL", "-P", &holder.id().to_string()]).status().unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    finished(waiter, 60).ok();
    assert!(a.path("got").exists());
    // Each of both appends, and nothing is lost.
    let append = |m: &Mounted<'_>, tag: &str| {
        let script = format!("for i in $(seq 100); do echo {tag}-$i >> log; done");
        Command::new("bash").args(["-c", &script]).current_dir(&m.at).spawn().unwrap()
    };
    let writers = [append(&a, "a"), append(&b, "b")];
    writers.into_iter().for_each(|writer| drop(finished(writer, 120).ok()));
    assert_eq!(a.shell("sort -u log | wc -l").ok().text().trim(), "200");
}

#[test]
fn whoever_gets_a_lock_sees_what_was_written_under_it_elsewhere() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let (a, b) = (Mounted::new(&store, "a", ""), Mounted::new(&store, "b", ""));
    a.shell("sqlite3 t.db 'create table t(a integer primary key, b text);'").ok();
    let writer = |m: &Mounted<'_>, tag: &str| {
        let insert = format!("insert into t(b) values('{tag}')");
        let script = format!("for i in $(seq 25); do sqlite3 -cmd '.timeout 60000' t.db \"{insert}\" || exit 1; done");
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(&m.at).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let writers = [writer(&a, "a"), writer(&b, "b"), writer(&a, "c")];
    writers.into_iter().for_each(|writer| drop(finished(writer, 200).ok()));
    for m in [&a, &b] {
        let counted = m.shell("sqlite3 t.db 'select count(*) from t; pragma integrity_check;'").ok();
        assert_eq!(counted.text(), "75\nok\n");
    }
}

#[test]
fn a_mount_outlives_its_daemon() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "");
    std::fs::write(m.path("before"), "kept").unwrap();
    let mut open = std::fs::File::create(m.path("open")).unwrap();
    std::io::Write::write_all(&mut open, b"one ").unwrap();
    for _ in 0..3 {
        let status = store.iov(&["status", "--json"]).ok().json();
        kill(status["daemon"]["pid"].as_u64().unwrap() as u32, "KILL");
        std::io::Write::write_all(&mut open, b"more ").unwrap();
        assert_eq!(std::fs::read_to_string(m.path("before")).unwrap(), "kept");
        std::fs::write(m.path("after"), "new").unwrap();
    }
    drop(open);
    assert_eq!(std::fs::read_to_string(m.path("open")).unwrap(), "one more more more ");
}

#[test]
fn a_mount_ends_cleanly_and_one_that_was_killed_is_replaced() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "");
    let at = m.at.to_str().unwrap().to_owned();
    std::fs::write(m.path("f"), "bytes").unwrap();
    let open = std::fs::File::open(m.path("f")).unwrap();
    store.iov(&["umount", &at]).fails(75, &["is in use", "--lazy"]);
    drop(open);
    let server = m.server();
    store.iov(&["umount", &at]).ok();
    wait_until("the end of the process", || !std::path::Path::new(&format!("/proc/{server}/exe")).exists());
    assert_eq!(std::fs::read_dir(&m.at).unwrap().count(), 0);
    store.iov(&["umount", &at]).fails(64, &["no workspace is mounted"]);
    // A signal does the same.
    m.again("");
    kill(m.server(), "TERM");
    wait_until("the unmount", || !m.path("f").exists());
    // Whoever kills it leaves a directory that answers nobody, until somebody mounts there again.
    m.again("");
    kill(m.server(), "KILL");
    wait_until("the end", || std::fs::metadata(&m.at).is_err());
    m.again("ro");
    assert_eq!(std::fs::read_to_string(m.path("f")).unwrap(), "bytes");
    let refused = std::fs::write(m.path("f"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    // In front, until Ctrl-C.
    drop(m);
    let mut front = store.start(&["mount", "--foreground", "w", &at]);
    wait_until("the mount", || {
        assert!(front.try_wait().unwrap().is_none(), "it has ended already");
        store.path("mnt/f").exists()
    });
    signal(&front, "INT");
    finished(front, 60).ok();
    assert!(!store.path("mnt/f").exists());
}

#[test]
fn mount_calls_it_by_another_name() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let (helper, at) = (store.path("mount.fuse.iov"), store.path("mnt"));
    std::fs::create_dir(&at).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_iov"), &helper).unwrap();
    let m = Mounted { store: &store, at };
    let call = |more: &[&str]| {
        let command = store.command(&["w", m.at.to_str().unwrap()]);
        let iovd = command.get_envs().map(|(k, v)| (k.to_owned(), v.unwrap().to_owned())).collect::<Vec<_>>();
        let mut command = Command::new(&helper);
        command.args(["w", m.at.to_str().unwrap()]).args(more).envs(iovd).env_remove("IOVERBS_URL");
        let options = format!("rw,nosuid,noauto,user=somebody,x-systemd.automount,store={}", store.url());
        command.args(["-o", &options, "-t", "fuse.iov"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        finished(command.spawn().unwrap(), 60)
    };
    call(&["-f"]).ok();
    assert_ne!(m.shell("df --output=source . | tail -1").ok().text(), "w\n", "-f does nothing");
    call(&["-n"]).ok();
    // As in fstab, so that `mount -a` sees that it is there.
    assert_eq!(m.shell("df --output=source . | tail -1").ok().text(), "w\n");
    if rustix::process::geteuid().is_root() {
        let remount = |options: &str| store.iov(&["mount", "w", m.at.to_str().unwrap(), "-o", options]).ok();
        remount("remount,ro,user_id=0,relatime");
        m.shell("! echo x 2> /dev/null > f; grep -q \" $AT fuse.iov ro,\" /proc/self/mounts").ok();
        remount("rw,remount");
        m.shell("echo x > f").ok();
    }
}

#[test]
fn what_cannot_be_mounted_is_told() {
    let store = Store::with_workspace();
    let at = store.path("mnt");
    std::fs::create_dir(&at).unwrap();
    let at = at.to_str().unwrap();
    store.iov(&["mount", "none", at]).fails(66, &["none"]);
    store.iov(&["mount", "w", at, "-o", "no_such"]).fails(64, &["no mount option \"no_such\"", "strict"]);
    store.iov(&["mount", "w", at, "-o", "ttl=soon"]).fails(64, &["ttl is a number"]);
    store.iov(&["mount", "w/f", at]).fails(64, &[]);
    if has_fuse() {
        store.iov(&["mount", "w", "not-there"]).fails(66, &["not-there"]);
        let file = store.file("file", b"");
        store.iov(&["mount", "w", &file]).fails(64, &["is no directory"]);
    }
}

#[test]
fn full_stores_and_odd_names_are_told_as_posix_does() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    store.iov(&["ws", "set", "w", "--quota", "1MiB"]).ok();
    let m = Mounted::new(&store, "mnt", "");
    let long = "n".repeat(255);
    std::fs::write(m.path(&long), "x").unwrap();
    let errno = |e: std::io::Error| e.raw_os_error().unwrap();
    assert_eq!(errno(std::fs::write(m.path(&format!("{long}n")), "x").unwrap_err()), 36, "ENAMETOOLONG");
    let full = m.shell("dd if=/dev/zero of=big bs=64k count=64 conv=fsync");
    assert!(full.code != Some(0) && full.err.contains("quota"), "{full:?}");
    m.shell("rm big && echo small > small && cat small").ok();
    // 4095 bytes are the longest path.
    let deep = format!(
        "d={0}; p=.; for i in $(seq 15); do p=$p/$d; done; mkdir -p $p && cd $p && echo x > f && cat f",
        "d".repeat(250)
    );
    m.shell(&deep).ok();
}

#[test]
fn metadata_is_shown_as_directories() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "tags,ttl=0");
    m.shell(
        "mkdir -p runs/1 runs/2; for i in 1 2; do echo bytes $i > runs/$i/out; done
         setfattr -n user.experiment -v nacelle runs/1/out; setfattr -n user.experiment -v wing runs/2/out
         setfattr -n user.run -v 'a/b' runs/1/out",
    )
    .ok();
    store.iov(&["tag", "w/runs", "experiment=wing", "cells:i64=1000"]).ok();
    let seen = m.shell(
        "test \"$(ls)\" = runs; ls by by/experiment by/experiment/nacelle by/experiment/wing by/experiment/nacelle/by/run; ls by/cells
         cat by/experiment/nacelle/out by/run/a%2Fb/out by/experiment/wing/runs/1/out
         stat -c '%F %a' by by/experiment/nacelle by/experiment/nacelle/out; readlink by/experiment/nacelle/by/run/a%2Fb/out
         echo more >> by/experiment/nacelle/out; cat runs/1/out; find by/experiment -type l | sort",
    );
    let expected = "by:\ncells\nexperiment\nrun\n\nby/experiment:\nnacelle\nwing\n\nby/experiment/nacelle:\nby\nout\n\n\
                    by/experiment/nacelle/by/run:\na%2Fb\n\nby/experiment/wing:\nby\nout\nruns\n1000\n\
                    bytes 1\nbytes 1\nbytes 1\ndirectory 555\ndirectory 555\nsymbolic link 777\n\
                    ../../../../../../runs/1/out\nbytes 1\nmore\nby/experiment/nacelle/by/run/a%2Fb/out\n\
                    by/experiment/nacelle/out\nby/experiment/wing/by/cells/1000/runs\nby/experiment/wing/out\nby/experiment/wing/runs\n";
    assert_eq!(seen.ok().text(), expected);
    let refused = m.shell(
        "for c in 'mkdir by/new' 'touch by/experiment/x' 'rm by/experiment/nacelle/out' 'mv runs by/' 'mv -T runs by' 'rmdir by/run' 'ls by/experiment/rudder' \
         'ln runs/1/out by/x' 'setfattr -n user.a -v b by'; do ! $c 2>/dev/null; done; ls by/run > /dev/null",
    );
    refused.ok();
    assert_eq!(store.iov(&["ls", "w"]).ok().text(), "runs/\n", "nothing of it is in the workspace");
    drop(m);
    // It gets another name where the workspace has that one.
    let at = store.path("mnt");
    let taken = store.iov(&["mount", "w", at.to_str().unwrap(), "-o", "tags=runs"]);
    taken.fails(73, &["give the view of metadata another name"]);
}

#[test]
fn directories_say_what_is_promised_of_what_is_made_in_them() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "");
    m.shell(
        "mkdir -p ck/deep; setfattr -n user.posix.controls -v profile=checkpoint ck; echo x > ck/deep/f; echo x > g",
    )
    .ok();
    let of = |name: &str| store.iov(&["stat", name]).ok().text();
    assert!(of("w/ck/deep/f").contains("durable") && !of("w/g").contains("durable"), "{}", of("w/ck/deep/f"));
    m.shell("! setfattr -n user.posix.controls -v profile=none ck 2>/dev/null; getfattr --only-values -n user.posix.controls ck").ok();
}
