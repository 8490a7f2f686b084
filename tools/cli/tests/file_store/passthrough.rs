//! Files of which the kernel moves the bytes by itself: what is promised of them holds whoever dies.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
    process::Command,
    time::Duration,
};

use crate::{
    mounts::{Mounted, has_fuse, kill, programs, wait_until},
    store::{Store, pattern},
};

/// Only root tells the kernel of files below, and only since Linux 6.9.
fn can_pass() -> bool {
    let root = Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let there = root && (numbers.next(), numbers.next()) >= (Some(6), Some(9));
    if !there {
        eprintln!("the kernel passes no files on here");
    }
    there && has_fuse()
}

/// Whether everything in a file can be read while nobody serves the mount.
fn reads_alone(m: &Mounted<'_>, name: &str) -> bool {
    let (file, len) = (File::open(m.path(name)).unwrap(), std::fs::metadata(m.path(name)).unwrap().len());
    let server = m.server();
    kill(server, "STOP");
    let (tell, told) = std::sync::mpsc::channel();
    let read = std::thread::spawn(move || {
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        tell.send(()).unwrap();
        // Closing it asks the mount: not before it answers again.
        file
    });
    let done = told.recv_timeout(Duration::from_secs(2)).is_ok();
    kill(server, "CONT");
    drop(read.join().unwrap());
    done
}

#[test]
fn what_is_sealed_is_read_by_the_kernel() {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let bytes = pattern(4 << 20);
    let file = store.file("bytes", &bytes);
    store.iov(&["put", &file, "w/sealed", "-c", "mutability=immutable"]).ok();
    store.iov(&["put", &file, "w/open"]).ok();
    store.iov(&["put", &file, "w/kept", "-c", "mutability=immutable", "-c", "persistence=durable"]).ok();
    let m = Mounted::new(&store, "mnt", "");
    // More than once: the second time the mount knows the record.
    for _ in 0..2 {
        assert!(reads_alone(&m, "sealed"));
        assert_eq!(std::fs::read(m.path("sealed")).unwrap(), bytes);
    }
    // What may change, or is to be compared with checksums, is read through the store.
    assert!(!reads_alone(&m, "open"));
    assert!(!reads_alone(&m, "kept"));
    for name in ["open", "kept"] {
        assert_eq!(std::fs::read(m.path(name)).unwrap(), bytes, "{name}");
    }
    // Whoever has it open reads on when it is deleted.
    let open = File::open(m.path("sealed")).unwrap();
    store.iov(&["rm", "w/sealed"]).ok();
    let mut last = [0; 4096];
    open.read_exact_at(&mut last, bytes.len() as u64 - 4096).unwrap();
    assert_eq!(last, bytes[bytes.len() - 4096..]);
    drop((open, m));
    let off = Mounted::new(&store, "off", "passthrough=off");
    store.iov(&["put", &file, "w/sealed", "-c", "mutability=immutable"]).ok();
    assert!(!reads_alone(&off, "sealed"));
}

fn kill_daemon(store: &Store) {
    let status = store.iov(&["status", "--json"]).ok().json();
    kill(status["daemon"]["pid"].as_u64().unwrap() as u32, "KILL");
}

const SCRATCH: &[&str] = &["-o", "passthrough", "--rule", "/**=scratch"];

#[test]
fn programs_work_where_the_kernel_moves_the_bytes() {
    if can_pass() {
        programs(SCRATCH);
    }
}

#[test]
fn what_the_kernel_writes_is_the_files() {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::with(&store, "mnt", SCRATCH);
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(m.path("f")).unwrap();
    let server = m.server();
    // Before the first write the kernel asks whether the file has rights to be taken from it.
    file.write_all(b"written ").unwrap();
    kill(server, "STOP");
    file.write_all(b"by the kernel").unwrap();
    kill(server, "CONT");
    assert_eq!(std::fs::metadata(m.path("f")).unwrap().len(), 21);
    file.sync_all().unwrap();
    file.set_len(10).unwrap();
    file.write_all(b"the end").unwrap();
    // Another who opens it in this mount has the same bytes, and nobody else gets in.
    assert_eq!(std::fs::read(m.path("f")).unwrap(), b"written bythe end");
    store.iov(&["cat", "w/f"]).fails(75, &["exclusive"]);
    drop(file);
    wait_until("the close", || store.iov(&["stat", "--json", "w/f"]).ok().json()[0]["size"] == 17);
    assert_eq!(store.cat("w/f"), b"written bythe end");
}

#[test]
fn g2_what_is_written_after_its_mount_was_killed_is_read_by_nobody() {
    killed(false);
}

#[test]
fn g2_nor_where_the_daemon_was_killed_with_it() {
    killed(true);
}

fn killed(with_daemon: bool) {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::with(&store, "mnt", SCRATCH);
    let late = File::create(m.path("f")).unwrap();
    late.write_all_at(b"before", 0).unwrap();
    if with_daemon {
        kill_daemon(&store);
    }
    kill(m.server(), "KILL");
    wait_until("the end of the mount", || std::fs::metadata(&m.at).is_err());
    // Whoever opens it next has it alone, whatever the one does that still has a descriptor.
    let next = Mounted::with(&store, "next", SCRATCH);
    wait_until("the end of the hold", || OpenOptions::new().write(true).open(next.path("f")).is_ok());
    let file = OpenOptions::new().write(true).open(next.path("f")).unwrap();
    file.write_all_at(b"afterX", 0).unwrap();
    let _ = late.write_all_at(b"TOOLATE", 0);
    assert_eq!(std::fs::read(next.path("f")).unwrap(), b"afterX");
    drop(file);
    assert_eq!(store.cat("w/f"), b"afterX");
    assert!(late.sync_all().is_err());
}

#[test]
fn g2_a_program_hears_that_a_new_daemon_has_taken_the_bytes_back() {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::with(&store, "mnt", SCRATCH);
    let file = File::create(m.path("f")).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    file.sync_all().unwrap();
    kill_daemon(&store);
    store.iov(&["ls", "w"]).ok();
    file.write_all_at(b"behind", 0).unwrap();
    assert!(file.sync_all().is_err(), "nobody reads what was written");
    drop(file);
    assert_eq!(store.cat("w/f"), b"before");
    // And all is well with who opens it anew.
    std::fs::write(m.path("f"), "anew").unwrap();
    assert_eq!(std::fs::read(m.path("f")).unwrap(), b"anew");
}
