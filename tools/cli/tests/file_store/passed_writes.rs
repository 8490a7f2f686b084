//! Files that are held exclusively, which the kernel writes by itself (X1, G1, G2).

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Lines, Write},
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt},
    },
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use crate::{
    mounts::{Mounted, kill, wait_until},
    passthrough::can_pass,
    programs::{self, Door},
    store::{Store, pattern},
};

const MIB: usize = 1 << 20;
const EXCLUSIVE: &[&str] = &["-c", "concurrency=exclusive"];

/// A program that does what it is told, line by line, with one file open and mapped: `f` and `m`.
struct Program {
    child: Child,
    say: Option<ChildStdin>,
    hear: Lines<BufReader<ChildStdout>>,
}

impl Program {
    /// With a file of 4 MiB that it makes.
    fn start(m: &Mounted<'_>, name: &str) -> Program {
        let program = "import mmap, os, sys\n\
            f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644); os.ftruncate(f, 4 << 20)\n\
            m = mmap.mmap(f, 0)\n\
            for line in sys.stdin:\n    exec(line.strip()); print('done', flush=True)\n";
        let mut command = Command::new("python3");
        command.args(["-c", program, name]).current_dir(&m.at).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let hear = BufReader::new(child.stdout.take().unwrap()).lines();
        let say = child.stdin.take();
        let mut program = Program { child, say, hear };
        program.run("pass");
        program
    }

    #[track_caller]
    fn run(&mut self, line: &str) {
        writeln!(self.say.as_ref().unwrap(), "{line}").unwrap();
        assert_eq!(self.hear.next().expect("it lives").unwrap(), "done");
    }

    fn end(mut self) {
        self.say = None;
        assert!(self.child.wait().unwrap().success());
    }
}

fn create(m: &Mounted<'_>, name: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).open(m.path(name)).unwrap()
}

/// Whether a file can be written and read while nobody serves the mount.
fn is_written_alone(m: &Mounted<'_>, name: &str) -> bool {
    let file = create(m, name);
    // With the first write the kernel asks for an attribute.
    file.write_all_at(b"first", 0).unwrap();
    let server = m.server();
    kill(server, "STOP");
    let (tell, told) = std::sync::mpsc::channel();
    let work = std::thread::spawn(move || {
        file.write_all_at(&pattern(2 * MIB), 0).unwrap();
        let mut back = vec![0; 2 * MIB];
        file.read_exact_at(&mut back, 0).unwrap();
        assert_eq!(back, pattern(2 * MIB));
        tell.send(()).unwrap();
        // Closing it asks the mount: not before it answers again.
        file
    });
    let done = told.recv_timeout(Duration::from_secs(2)).is_ok();
    kill(server, "CONT");
    drop(work.join().unwrap());
    done
}

/// What there is, as soon as whoever holds it has let go of it.
fn contents(store: &Store, address: &str) -> Vec<u8> {
    wait_until("the hold has ended", || store.iov(&["cat", address]).code == Some(0));
    store.cat(address)
}

/// The inode of the only file of bytes in the store.
fn inode(store: &Store) -> u64 {
    let files = store.files("data");
    let files: Vec<_> = files.iter().filter(|f| f.extension().is_none()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].metadata().unwrap().ino()
}

#[test]
fn what_is_held_exclusively_is_written_by_the_kernel() {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let rules = ["/shared/*=concurrency=shared", "/durable/*=persistence=durable", "/bounded/*=collection_size=..8MiB"];
    let rules: Vec<&str> = rules.iter().flat_map(|rule| ["--rule", rule]).collect();
    let m = Mounted::with(&store, "mnt", &[EXCLUSIVE, rules.as_slice()].concat());
    for n in 0..2 {
        assert!(is_written_alone(&m, "file"), "time {n}");
        assert_eq!(contents(&store, "w/file"), pattern(2 * MIB));
    }
    // What promises something that the kernel does not know of is written through the store.
    for dir in ["shared", "durable", "bounded"] {
        std::fs::create_dir(m.path(dir)).unwrap();
        assert!(!is_written_alone(&m, &format!("{dir}/file")), "{dir}");
        assert_eq!(contents(&store, &format!("w/{dir}/file")), pattern(2 * MIB), "{dir}");
    }
    let off = Mounted::with(&store, "off", &[EXCLUSIVE, &["-o", "passthrough=off"]].concat());
    assert!(!is_written_alone(&off, "other"));
    assert_eq!(contents(&store, "w/other"), pattern(2 * MIB));
    // That mount may still have it open below. What is large is then not moved for that, what is written anew is.
    let file = OpenOptions::new().write(true).open(m.path("other")).unwrap();
    file.write_all_at(b"P", 0).unwrap();
    drop(file);
    assert_eq!(contents(&store, "w/other")[..1], *b"P");
    assert!(is_written_alone(&m, "other"));
    assert_eq!(contents(&store, "w/other"), pattern(2 * MIB));
}

#[test]
fn the_store_and_the_kernel_change_the_same_bytes() {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::with(&store, "mnt", EXCLUSIVE);
    let file = create(&m, "file");
    let mut expected = pattern(3 * MIB);
    file.write_all_at(&expected, 0).unwrap();
    assert_eq!(m.path("file").metadata().unwrap().len(), 3 * MIB as u64);
    // Nobody else has it meanwhile.
    store.iov(&["cat", "w/file"]).fails(75, &["held exclusively"]);
    // Lengths and holes are the store's to make.
    file.set_len(2 * MIB as u64).unwrap();
    expected.truncate(2 * MIB);
    use rustix::fs::{FallocateFlags, fallocate};
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file.as_fd(), hole, MIB as u64, 8192).unwrap();
    expected[MIB..MIB + 8192].fill(0);
    let at = rustix::fs::seek(file.as_fd(), rustix::fs::SeekFrom::Hole(0)).unwrap();
    assert_eq!(at, MIB as u64);
    fallocate(file.as_fd(), FallocateFlags::empty(), 0, 3 * MIB as u64).unwrap();
    expected.resize(3 * MIB, 0);
    // The end is where the file below ends.
    let end = OpenOptions::new().append(true).open(m.path("file")).unwrap();
    (&end).write_all(b"at the end").unwrap();
    expected.extend(b"at the end");
    let (mut from, mut to) = (0, 2 * MIB as u64);
    let copied = rustix::fs::copy_file_range(file.as_fd(), Some(&mut from), file.as_fd(), Some(&mut to), 4096);
    assert_eq!(copied, Ok(4096));
    expected.copy_within(0..4096, 2 * MIB);
    let mut back = vec![0; expected.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == expected);
    file.sync_all().unwrap();
    let facts = file.metadata().unwrap();
    assert_eq!(facts.len(), expected.len() as u64);
    // Another descriptor of the same file, after it had none to be written by.
    drop((file, end));
    let file = OpenOptions::new().write(true).open(m.path("file")).unwrap();
    file.write_all_at(b"again", 5).unwrap();
    expected[5..10].copy_from_slice(b"again");
    let renamed = m.path("renamed");
    std::fs::rename(m.path("file"), &renamed).unwrap();
    drop(file);
    assert!(contents(&store, "w/renamed") == expected);
    assert!(std::fs::read(&renamed).unwrap() == expected, "what the mount has cached");
    assert!(renamed.metadata().unwrap().modified().unwrap() >= facts.modified().unwrap());
    // Who has it open goes on when it is deleted.
    let file = OpenOptions::new().read(true).write(true).open(&renamed).unwrap();
    std::fs::remove_file(&renamed).unwrap();
    file.write_all_at(b"gone", 0).unwrap();
    file.read_exact_at(&mut back[..4], 0).unwrap();
    assert_eq!(&back[..4], b"gone");
    drop(file);
    wait_until("its bytes have gone", || store.files("data").is_empty());
}

#[test]
fn a_mapping_keeps_the_hold_when_the_file_is_closed() {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::with(&store, "mnt", EXCLUSIVE);
    let mut program = Program::start(&m, "mapped");
    program.run("m[0:5] = b'first'; os.closerange(3, 64)");
    // The kernel does not tell that it is still mapped, but the file system does.
    std::thread::sleep(Duration::from_millis(300));
    store.iov(&["cat", "w/mapped"]).fails(75, &["held exclusively"]);
    program.run("m[0:6] = b'second'");
    // Another one in the same mount has the same bytes.
    let file = OpenOptions::new().read(true).write(true).open(m.path("mapped")).unwrap();
    let mut back = [0; 6];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"second");
    file.write_all_at(b"2", 0).unwrap();
    drop(file);
    program.run("assert m[0:6] == b'2econd'; m[1] = 69");
    let before = inode(&store);
    program.end();
    let bytes = contents(&store, "w/mapped");
    assert_eq!((bytes.len(), &bytes[..6]), (4 * MIB, &b"2Econd"[..]));
    assert_eq!(inode(&store), before, "nothing had to be moved");
}

#[test]
fn nothing_of_a_program_whose_mount_was_killed_reaches_the_next_holder() {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::with(&store, "one", EXCLUSIVE);
    let mut program = Program::start(&m, "file");
    program.run("os.pwrite(f, b'early' * 1000, 0); m[1 << 20] = 7");
    let before = inode(&store);
    kill(m.server(), "KILL");
    let other = Mounted::with(&store, "two", EXCLUSIVE);
    let mut file = None;
    wait_until("the hold has ended", || {
        file = OpenOptions::new().read(true).write(true).open(other.path("file")).ok();
        file.is_some()
    });
    let file = file.unwrap();
    assert_ne!(inode(&store), before, "the next holder has a file of his own");
    file.write_all_at(b"next", 0).unwrap();
    // The kernel lets it write all the same, to what nobody reads.
    program.run("os.pwrite(f, b'late' * 1000, 0); os.pwrite(f, b'late', 5 << 20); m[1 << 20] = 8");
    let mut bytes = vec![0; 4 * MIB];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes[..9], bytes[MIB]), (&b"nextyearl"[..], 7));
    assert_eq!(file.metadata().unwrap().len(), 4 * MIB as u64);
    drop(file);
    assert_eq!(contents(&store, "w/file"), bytes);
    program.end();
}

#[test]
fn programs_write_on_while_the_daemon_is_killed_and_started_anew() {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::with(&store, "mnt", EXCLUSIVE);
    let mut program = Program::start(&m, "file");
    program.run("os.pwrite(f, b'before', 0)");
    let before = inode(&store);
    let status = store.iov(&["status", "--json"]).ok().json();
    kill(status["daemon"]["pid"].as_u64().unwrap() as u32, "KILL");
    program.run("os.pwrite(f, b'between', 100); m[200] = 1");
    store.iov(&["status"]).ok();
    program.run("os.pwrite(f, b'after', 300); m[400] = 2");
    // Whoever wants it finds that it is held as before.
    store.iov(&["cat", "w/file"]).fails(75, &[]);
    program.run("os.ftruncate(f, 3 << 20); os.pwrite(f, b'end', 500)");
    program.end();
    let bytes = contents(&store, "w/file");
    assert_eq!(bytes.len(), 3 * MIB);
    assert_eq!(&bytes[..6], b"before");
    assert_eq!(&bytes[100..107], b"between");
    assert_eq!((bytes[200], &bytes[300..305], bytes[400], &bytes[500..503]), (1, &b"after"[..], 2, &b"end"[..]));
    assert_eq!(inode(&store), before, "it has stayed where it was");
}

#[test]
#[ignore = "takes long, and the programs are the same as in other mounts"]
fn programs_work_where_the_kernel_writes_by_itself() {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::with(&store, "mnt", EXCLUSIVE);
    programs::run_all(Door::Mount, &|script| m.shell(script));
    assert_eq!(contents(&store, "w/src/deep/er/hard"), std::fs::read(m.path("src/main.c")).unwrap());
}

/// T12, where the kernel copies: nobody can stop it.
#[test]
#[ignore = "waits for the end of a lease"]
fn t12_nothing_of_a_mount_that_stood_still_reaches_the_next_holder() {
    if !can_pass() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::with(&store, "one", EXCLUSIVE);
    let other = Mounted::with(&store, "two", EXCLUSIVE);
    let mut program = Program::start(&m, "file");
    program.run("os.pwrite(f, b'early' * 1000, 0); m[1 << 20] = 7");
    let server = m.server();
    kill(server, "STOP");
    let mut file = None;
    wait_until("the lease has ended", || {
        file = OpenOptions::new().read(true).write(true).open(other.path("file")).ok();
        file.is_some()
    });
    let file = file.unwrap();
    file.write_all_at(b"next", 0).unwrap();
    let mut expected = vec![0; 4 * MIB];
    expected[..5000].copy_from_slice(&b"early".repeat(1000));
    expected[MIB] = 7;
    expected[..4].copy_from_slice(b"next");
    let late = "os.pwrite(f, b'late' * 1000, 0); m[1 << 20] = 8";
    program.run(late);
    kill(server, "CONT");
    program.run(late);
    let mut bytes = vec![0; 4 * MIB];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == expected);
    // Who opens it in that mount does not get the old bytes, but nothing.
    assert_eq!(File::open(m.path("file")).unwrap_err().raw_os_error(), Some(16));
    drop(file);
    assert!(contents(&store, "w/file") == expected);
    assert_eq!(File::open(m.path("file")).unwrap_err().raw_os_error(), Some(16));
    // What it wrote is not there: it hears of that at last.
    program.run("m.close(); import errno; stale = 0");
    program.run("exec('try: os.close(f)\\nexcept OSError as e: stale = e.errno')");
    program.run("assert stale == errno.ESTALE");
    program.end();
    wait_until("the old file is let go", || File::open(m.path("file")).is_ok());
    assert!(std::fs::read(m.path("file")).unwrap() == expected);
    drop((m, other));
    assert!(contents(&store, "w/file") == expected);
}
