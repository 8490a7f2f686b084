//! Files of which the kernel reads the bytes by itself.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    os::unix::fs::FileExt,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    mounts::{Mounted, has_fuse, kill, wait_until},
    store::{Store, pattern},
};

/// Only root tells the kernel of files below, and only since Linux 6.9.
pub(crate) fn can_pass() -> bool {
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

#[test]
fn what_a_program_has_mapped_stays_when_it_is_closed_and_deleted() {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let bytes = pattern(4 << 20);
    store.iov(&["put", &store.file("bytes", &bytes), "w/sealed", "-c", "mutability=immutable"]).ok();
    let m = Mounted::new(&store, "mnt", "");
    // A mapping holds the file below, not the one in the mount: nobody hears of it. (Python keeps a
    // second descriptor of what it maps.)
    let program = "import mmap, os, sys\n\
        f = os.open('sealed', os.O_RDONLY); m = mmap.mmap(f, 0, prot=mmap.PROT_READ); os.closerange(3, 64)\n\
        print('mapped', flush=True); sys.stdin.readline()\n\
        print(sum(m[i] for i in range(0, len(m), 4096)), flush=True)";
    let mut python = Command::new("python3");
    python.args(["-c", program]).current_dir(&m.at).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().unwrap();
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "mapped");
    store.iov(&["rm", "w/sealed"]).ok();
    wait_until("the file has no name", || store.files("data").iter().all(|f| !f.is_file()));
    python.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let sum: u64 = bytes.iter().step_by(4096).map(|b| u64::from(*b)).sum();
    assert_eq!(lines.next().expect("it lives").unwrap(), sum.to_string());
    assert!(python.wait().unwrap().success());
}
