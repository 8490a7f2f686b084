//! A target in a scratch directory, single operations on it, and child processes.

use std::{
    io::{BufRead, BufReader, IoSlice, IoSliceMut, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{net::UnixStream, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use iov_media::{Files, Granted, Lent, OpenSums, Options};
use iov_store::{Backend, Memory, OpCx, run_one};
use iov_types::{Caller, Demand, Evidence, Kind, ObjectId, ObjectOp, ObjectVerb, Range, Result, Uuid};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

/// Where targets are made: on the disk that the build is on.
pub(crate) fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// A directory in memory, where there is one.
pub(crate) fn memory() -> Option<&'static Path> {
    Some(Path::new("/dev/shm")).filter(|path| path.is_dir())
}

pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(scratch()).expect("a directory")
}

/// Says that a target keeps its bytes in segments.
const IN_SEGMENTS: &str = "in-segments";

/// A directory in memory whose target keeps its bytes in segments.
pub(crate) fn segments() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in(memory().expect("/dev/shm")).expect("a directory");
    std::fs::write(directory.path().join(IN_SEGMENTS), "").expect("a mark");
    directory
}

/// A place for checksums, as the daemon makes it.
fn sums(path: PathBuf) -> OpenSums {
    Box::new(move |make| {
        if !make && !path.exists() {
            return Ok(None);
        }
        let small = iov_meta_local::Options {
            write_buffer: 1 << 20,
            record_cache: 1 << 20,
            table_cache: 1 << 20,
            many_deletes: false,
        };
        Ok(Some(Arc::new(iov_meta_local::LocalStore::open(&path, small)?)))
    })
}

pub(crate) fn open_with(path: &Path, options: Options) -> Result<Files> {
    let end = Instant::now() + Duration::from_secs(20);
    let mut options = options;
    if options.shared.is_none() && path.join(IN_SEGMENTS).exists() {
        options.shared = Some(64 << 20);
    }
    loop {
        let directory = std::fs::File::open(path).expect("the directory").into();
        match Files::open_with(directory, options.clone(), Some(sums(path.join("sums")))) {
            // A child that another test has just forked holds all our locks until it runs its program.
            Err(e) if e.kind() == Kind::Busy && Instant::now() < end => {}
            other => return other,
        }
    }
}

/// Looks at a target that nobody serves.
pub(crate) fn look(path: &Path) -> Files {
    let end = Instant::now() + Duration::from_secs(20);
    let shared = path.join(IN_SEGMENTS).exists().then_some(64 << 20);
    let sums = path.join("sums");
    loop {
        let sums = sums.clone();
        let open: OpenSums = Box::new(move |make| {
            assert!(!make, "nothing new is asked for");
            if !sums.exists() {
                return Ok(None);
            }
            let found = iov_meta_local::ReadOnly::open(&sums, iov_meta_local::Options::default())?;
            Ok(found.map(|found| Arc::new(found) as Arc<dyn iov_store::MetadataStore>))
        });
        let directory = std::fs::File::open(path).expect("the directory").into();
        match Files::look(directory, Options { shared, ..Options::default() }, Some(open)) {
            // As in `open_with`.
            Err(e) if e.kind() == Kind::Busy && Instant::now() < end => {}
            other => return other.expect("a look"),
        }
    }
}

/// Every file below a directory: what is in it, its mode and its time.
pub(crate) fn tree(path: &Path) -> std::collections::BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64)> {
    use std::os::unix::fs::MetadataExt;
    let mut out = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(path).expect("a directory") {
        let path = entry.expect("an entry").path();
        let facts = path.symlink_metadata().expect("its facts");
        let bytes = if facts.is_dir() { Vec::new() } else { std::fs::read(&path).expect("its bytes") };
        out.insert(path.clone(), (bytes, facts.mode(), facts.mtime(), facts.mtime_nsec()));
        if facts.is_dir() {
            out.extend(tree(&path));
        }
    }
    out
}

pub(crate) fn open(path: &Path) -> Arc<Files> {
    // A short recall: what these tests let stand is stuck for good.
    Arc::new(open_with(path, Options { recall_ns: 50_000_000, ..Options::default() }).expect("a target"))
}

/// What clients ask for who do not know what they will need.
pub(crate) const ALL: Range = Range { offset: 0, len: i64::MAX as u64 };

pub(crate) fn object(slot: u64) -> ObjectId {
    ObjectId { collection: Uuid([0xc0; 16]), slot }
}

pub(crate) fn uuid(n: u8) -> Uuid {
    Uuid([n; 16])
}

pub(crate) fn cx() -> OpCx {
    let caller = Caller { uid: 1, gid: 1, groups: Vec::new(), session: uuid(1), holder: uuid(1) };
    OpCx::new(caller, 20_000_000_000)
}

/// Bytes that follow from a seed, none of them zero.
pub(crate) fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| seed.wrapping_mul(31).wrapping_add((i / 7) as u8).wrapping_add(i as u8) | 1).collect()
}

/// An operation with bytes to write.
pub(crate) fn send(
    files: &dyn Backend,
    id: ObjectId,
    verb: ObjectVerb,
    demand: Demand,
    data: &[u8],
) -> Result<Evidence> {
    // SAFETY: `run_one` waits for the evidence, and `data` lives longer.
    let memory = unsafe { Memory::readable(data.as_ptr(), data.len()) };
    run_one(files, &cx(), ObjectOp { object: id, verb, demand }, memory)
}

/// An operation without bytes and without demands.
pub(crate) fn call(files: &dyn Backend, id: ObjectId, verb: ObjectVerb) -> Result<Evidence> {
    send(files, id, verb, Demand::default(), &[])
}

pub(crate) fn write(files: &dyn Backend, id: ObjectId, offset: u64, data: &[u8]) -> Result<Evidence> {
    send(files, id, ObjectVerb::Write { offset }, Demand::default(), data)
}

pub(crate) fn staged(stage: Uuid) -> Demand {
    Demand { stage: Some(stage), ..Demand::default() }
}

/// Everything of an object.
pub(crate) fn all(files: &dyn Backend, id: ObjectId) -> Vec<u8> {
    try_all(files, id).unwrap_or_else(|e| panic!("reading everything: {e:?}"))
}

pub(crate) fn try_all(files: &dyn Backend, id: ObjectId) -> Result<Vec<u8>> {
    let size = call(files, id, ObjectVerb::Stat)?.size as usize;
    let mut out = vec![0xa5; size + 100];
    // SAFETY: `run_one` waits for the evidence, and `out` lives longer.
    let memory = unsafe { Memory::writable(out.as_mut_ptr(), out.len()) };
    let op = ObjectOp { object: id, verb: ObjectVerb::Read { offset: 0 }, demand: Demand::default() };
    let read = run_one(files, &cx(), op, memory)?.bytes as usize;
    assert_eq!(read, size, "a read of everything is as long as the object");
    out.truncate(read);
    Ok(out)
}

/// The file of bytes of an object, as the daemon names it.
pub(crate) fn data_path(root: &Path, id: ObjectId) -> PathBuf {
    let hex: String = id.collection.0.iter().map(|b| format!("{b:02x}")).collect();
    let shelf = id.collection.0[15] ^ id.slot as u8;
    root.join(format!("data/{shelf:02x}/{hex}-{}", id.slot))
}

/// The file of a grant.
/// How many pages of a file are in the kernel's cache. Nothing is read for that: it would bring pages in, and those behind them.
pub(crate) fn cached_pages(path: &Path, len: usize) -> usize {
    let file = std::fs::File::open(path).expect("the object");
    let mut pages = vec![0_u8; len.div_ceil(4096)];
    // SAFETY: a mapping of our own that nobody reads, and room for a byte for each of its pages.
    unsafe {
        let flags = (libc::PROT_NONE, libc::MAP_SHARED);
        let map = libc::mmap(std::ptr::null_mut(), len, flags.0, flags.1, file.as_raw_fd(), 0);
        assert_ne!(map, libc::MAP_FAILED, "a mapping of the object");
        assert_eq!(libc::mincore(map, len, pages.as_mut_ptr()), 0, "which pages are there");
        libc::munmap(map, len);
    }
    pages.iter().filter(|page| **page & 1 != 0).count()
}

pub(crate) fn file(granted: &Granted) -> &OwnedFd {
    match &granted.lent {
        Lent::File(file) => file,
        Lent::Memory(_) => panic!("a grant of memory"),
    }
}

/// The same, to be used.
pub(crate) fn into_file(granted: Granted) -> std::fs::File {
    match granted.lent {
        Lent::File(file) => file.into(),
        Lent::Memory(_) => panic!("a grant of memory"),
    }
}

const ROLE: &str = "IOV_TEST_ROLE";

/// This program as a child process in another role; `root` is its target. Its standard input is a socket.
pub(crate) struct Peer {
    pub(crate) child: Child,
    socket: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Peer {
    pub(crate) fn start(role: &str, root: &Path, variables: &[(&str, &str)]) -> Peer {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "kit::a_child_process_in_its_role", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env("IOV_TEST_ROOT", root).stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::null());
        if variables.iter().any(|(name, _)| *name == iov_media::fail::VARIABLE) {
            command.stderr(Stdio::null()); // it fails as it should
        }
        command.envs(variables.iter().copied());
        let child = command.spawn().expect("a child process");
        let lines = BufReader::new(ours.try_clone().expect("the socket"));
        Peer { child, socket: ours, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.socket, "{line}").expect("the child listens");
    }

    /// Sends a line with a descriptor.
    pub(crate) fn pass(&mut self, line: &str, file: &OwnedFd) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        let line = format!("{line}\n");
        let text = [IoSlice::new(line.as_bytes())];
        rustix::net::sendmsg(&self.socket, &text, &mut control, SendFlags::empty()).expect("the child listens");
    }

    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("the child speaks");
        line.trim().to_owned()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("a signal");
    }

    /// Waits until it has stopped itself.
    pub(crate) fn wait_until_stopped(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while !std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).is_ok_and(|s| s.contains(") T ")) {
            assert!(Instant::now() < end, "the child does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end; the signal that killed it, or `None` if it came to a good end.
    pub(crate) fn end(mut self) -> Option<i32> {
        let status = self.child.wait().expect("the child's end");
        assert!(status.signal().is_some() || status.success(), "the child failed: {status}");
        status.signal()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's side of the socket.
pub(crate) struct Parent(UnixStream);

impl Parent {
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.0, "{line}").expect("the parent listens");
    }

    /// A line, and the descriptor that came with it.
    pub(crate) fn hear(&mut self) -> Option<(String, Option<OwnedFd>)> {
        let (mut line, mut file) = (Vec::new(), None);
        // Byte by byte, so that the descriptor of the next line is not taken with this one.
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut text = [IoSliceMut::new(&mut byte)];
            let got = rustix::net::recvmsg(&self.0, &mut text, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
            if got.bytes == 0 {
                return None;
            }
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(mut files) = message {
                    file = files.next();
                }
            }
            line.push(byte[0]);
        }
        Some((String::from_utf8(line).expect("text").trim().to_owned(), file))
    }
}

#[test]
fn a_child_process_in_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let root = PathBuf::from(std::env::var("IOV_TEST_ROOT").expect("a target"));
    let input = rustix::io::dup(std::io::stdin()).expect("standard input");
    let parent = Parent(UnixStream::from(input));
    match role.as_str() {
        "client" => crate::grants::client(parent),
        "daemon" => crate::crash::daemon(&root),
        "relocating" => crate::crash::relocating_daemon(&root, parent),
        "failing moves" => crate::lent::failing_moves(&root),
        "failing syncs" => crate::late::failing_syncs(&root),
        "a failing unit" => crate::late::failing_unit(&root),
        "a failing publication" => crate::late::failing_publication(&root),
        "a shortening publication" => crate::starts::shortening_publication(&root),
        "an unsynced publication" => crate::starts::unsynced_publication(&root),
        "an interrupted publication" => crate::starts::interrupted_publication(&root),
        "an unsynced start" => crate::starts::unsynced_start(&root),
        "few descriptors" => crate::space::few_descriptors(&root),
        other => panic!("no role {other}"),
    }
}
