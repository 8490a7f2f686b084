//! A small file system, mounted for real, by calls of the system and by rings.
#![allow(clippy::disallowed_methods)]

mod looking;
mod waiting;

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    process::Command,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use iov_fuse_kernel::{
    Asked, Attr, Entry, Filesystem, Granted, Kernel, Lock, LockAsked, MountTable, Moved, Names, Opened, Request, Rings,
    Room, Session, SetAttr, Space, Written,
};

const ENOENT: i32 = 2;
const EINTR: i32 = 4;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
const TTL: Duration = Duration::from_secs(1);

/// One directory of files in memory. Locks are one for each file, whatever of it is asked for.
#[derive(Default)]
struct Memory {
    files: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
    locked: Mutex<HashMap<u64, u64>>,
    freed: Condvar,
    ended: Arc<Mutex<bool>>,
    /// How many are at the gate, of which nobody gets through before all are there.
    gate: Mutex<usize>,
    /// A process of its own asks for something.
    looker: Option<Asks>,
    /// How often that was started.
    starts: Arc<AtomicUsize>,
}

/// What starts a process that asks a mount on a directory for something.
type Asks = fn(&Path) -> Command;

/// How many that are.
const ALL: usize = 64;

impl Memory {
    fn attr(&self, ino: u64) -> Result<Attr, i32> {
        if ino == 1 {
            return Ok(Attr { ino, mode: 0o040_755, links: 2, ..Attr::default() });
        }
        let files = self.files.lock().unwrap();
        let (_, bytes) = files.get(ino as usize - 2).ok_or(ENOENT)?;
        Ok(Attr {
            ino,
            mode: 0o100_644,
            links: 1,
            size: bytes.len() as u64,
            btime_ns: 5_000_000_006,
            ..Attr::default()
        })
    }

    fn entry(&self, ino: u64) -> Result<Entry, i32> {
        Ok(Entry { ttl: TTL, attr: self.attr(ino)? })
    }

    fn put(&self, name: &[u8]) -> u64 {
        let mut files = self.files.lock().unwrap();
        files.push((name.to_vec(), Vec::new()));
        files.len() as u64 + 1
    }
}

impl Filesystem for Memory {
    type Error = i32;

    fn looks_by(&self, at: &Path) -> Option<Box<dyn Fn() -> Command + Send + Sync>> {
        let (looker, at, starts) = (self.looker?, at.to_owned(), self.starts.clone());
        Some(Box::new(move || {
            starts.fetch_add(1, Ordering::Relaxed);
            looker(&at)
        }))
    }

    fn start(&mut self, _: &Kernel, _: Granted) {}

    fn end(&self) {
        *self.ended.lock().unwrap() = true;
    }

    fn lookup(&self, _: &Request<'_>, name: &[u8]) -> Result<Entry, i32> {
        assert_ne!(name, b"panic", "a file system that panics");
        let at = self.files.lock().unwrap().iter().position(|(n, _)| n == name);
        self.entry(at.ok_or(ENOENT)? as u64 + 2)
    }

    fn forget(&self, _: u64, _: u64) {}

    fn getattr(&self, req: &Request<'_>) -> Result<(Attr, Duration), i32> {
        Ok((self.attr(req.node)?, TTL))
    }

    fn setattr(&self, req: &Request<'_>, set: &SetAttr) -> Result<(Attr, Duration), i32> {
        if let Some(size) = set.size {
            self.files.lock().unwrap()[req.node as usize - 2].1.resize(size as usize, 0);
        }
        self.getattr(req)
    }

    fn readlink(&self, _: &Request<'_>) -> Result<Vec<u8>, i32> {
        Err(ENOSYS)
    }

    fn mknod(&self, _: &Request<'_>, _: &[u8], _: u32, _: (u32, u32)) -> Result<Entry, i32> {
        Err(ENOSYS)
    }

    fn mkdir(&self, _: &Request<'_>, _: &[u8], _: u32) -> Result<Entry, i32> {
        Err(ENOSYS)
    }

    fn unlink(&self, _: &Request<'_>, _: &[u8]) -> Result<(), i32> {
        Err(ENOSYS)
    }

    fn rmdir(&self, _: &Request<'_>, _: &[u8]) -> Result<(), i32> {
        Err(ENOSYS)
    }

    fn symlink(&self, _: &Request<'_>, _: &[u8], _: &[u8]) -> Result<Entry, i32> {
        Err(ENOSYS)
    }

    fn rename(&self, req: &Request<'_>, name: &[u8], (to, new): (u64, &[u8]), _: u32) -> Result<(), i32> {
        assert_eq!((req.node, to), (1, 1));
        let mut files = self.files.lock().unwrap();
        let file = files.iter_mut().find(|(n, _)| n == name).ok_or(ENOENT)?;
        file.0 = new.to_vec();
        Ok(())
    }

    fn link(&self, _: &Request<'_>, of: u64, name: &[u8]) -> Result<Entry, i32> {
        self.files.lock().unwrap()[of as usize - 2].0 = name.to_vec();
        self.entry(of)
    }

    fn open(&self, req: &Request<'_>, _: i32, _: bool) -> Result<Opened, i32> {
        if self.files.lock().unwrap()[req.node as usize - 2].0 == b"gate" {
            *self.gate.lock().unwrap() += 1;
            let waiting = req.waits();
            let round = || self.gate.lock().unwrap().div_ceil(ALL) * ALL;
            let all = round();
            while *self.gate.lock().unwrap() < all {
                if waiting.is_interrupted() {
                    return Err(EINTR);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(Opened::default())
    }

    fn create(&self, _: &Request<'_>, name: &[u8], _: u32, _: i32) -> Result<(Entry, Opened), i32> {
        Ok((self.entry(self.put(name))?, Opened::default()))
    }

    fn tmpfile(&self, _: &Request<'_>, _: u32, _: i32) -> Result<(Entry, Opened), i32> {
        Ok((self.entry(self.put(b""))?, Opened::default()))
    }

    fn read(&self, req: &Request<'_>, _: u64, offset: u64, room: &mut [u8]) -> Result<usize, i32> {
        let files = self.files.lock().unwrap();
        let bytes = &files[req.node as usize - 2].1;
        let bytes = bytes.get(offset as usize..).unwrap_or_default();
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn write(&self, req: &Request<'_>, what: &Written<'_>) -> Result<usize, i32> {
        let mut files = self.files.lock().unwrap();
        let bytes = &mut files[req.node as usize - 2].1;
        let end = what.offset as usize + what.data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[what.offset as usize..end].copy_from_slice(what.data);
        Ok(what.data.len())
    }

    fn flush(&self, req: &Request<'_>, _: u64, owner: u64) -> Result<(), i32> {
        let mut locked = self.locked.lock().unwrap();
        if locked.get(&req.node) == Some(&owner) {
            locked.remove(&req.node);
            self.freed.notify_all();
        }
        Ok(())
    }

    fn release(&self, _: &Request<'_>, _: u64) -> Result<(), i32> {
        Ok(())
    }

    fn fsync(&self, _: &Request<'_>, _: u64) -> Result<(), i32> {
        Ok(())
    }

    fn opendir(&self, _: &Request<'_>) -> Result<Opened, i32> {
        Ok(Opened::default())
    }

    fn readdir(&self, _: &Request<'_>, _: u64, offset: u64, names: &mut Names<'_>) -> Result<(), i32> {
        for (at, (name, _)) in self.files.lock().unwrap().iter().enumerate().skip(offset as usize) {
            if !names.add(at as u64 + 2, 0o100_000, at as u64 + 1, name) {
                break;
            }
        }
        Ok(())
    }

    fn readdirplus(&self, req: &Request<'_>, handle: u64, offset: u64, names: &mut Names<'_>) -> Result<(), i32> {
        let _ = (req, handle);
        for (at, name) in
            (0..).map_while(|at| Some((at, self.files.lock().unwrap().get(at)?.0.clone()))).skip(offset as usize)
        {
            if !names.add_entry(&self.entry(at as u64 + 2)?, at as u64 + 1, &name) {
                break;
            }
        }
        Ok(())
    }

    fn releasedir(&self, _: &Request<'_>, _: u64) -> Result<(), i32> {
        Ok(())
    }

    fn fsyncdir(&self, _: &Request<'_>, _: u64) -> Result<(), i32> {
        Ok(())
    }

    fn statfs(&self, _: &Request<'_>) -> Result<Space, i32> {
        Ok(Space { blocks: 4, free: 3, files: 2, free_files: 1 })
    }

    fn setxattr(&self, _: &Request<'_>, name: &[u8], value: &[u8], _: (i32, bool)) -> Result<(), i32> {
        // A value as long as the system lets it be.
        assert_eq!((name, value.len(), value.iter().all(|b| *b == 7)), (&b"user.x"[..], 65_536, true));
        Ok(())
    }

    fn getxattr(&self, _: &Request<'_>, name: &[u8], room: &mut Room<'_>) -> Result<(), i32> {
        if name != b"user.x" {
            return Err(EOPNOTSUPP);
        }
        room.give(b"value");
        Ok(())
    }

    fn listxattr(&self, _: &Request<'_>, room: &mut Room<'_>) -> Result<(), i32> {
        room.give(b"user.x\0");
        Ok(())
    }

    fn removexattr(&self, _: &Request<'_>, _: &[u8]) -> Result<(), i32> {
        Err(ENOSYS)
    }

    fn getlk(&self, _: &Request<'_>, asked: &LockAsked) -> Result<Lock, i32> {
        Ok(asked.lock)
    }

    fn setlk(&self, req: &Request<'_>, asked: &LockAsked, sleep: bool) -> Result<(), i32> {
        assert!(sleep || asked.lock.kind == 2, "the tests wait for locks");
        let waiting = req.waits();
        let mut locked = self.locked.lock().unwrap();
        if asked.lock.kind == 2 {
            locked.remove(&req.node);
            self.freed.notify_all();
            return Ok(());
        }
        while locked.contains_key(&req.node) {
            if waiting.is_interrupted() {
                return Err(EINTR);
            }
            locked = self.freed.wait_timeout(locked, Duration::from_millis(20)).unwrap().0;
        }
        locked.insert(req.node, asked.owner);
        Ok(())
    }

    fn fallocate(&self, _: &Request<'_>, _: u64, _: (u64, u64), _: i32) -> Result<(), i32> {
        Err(EOPNOTSUPP)
    }

    fn lseek(&self, _: &Request<'_>, _: u64, offset: u64, whence: u32) -> Result<u64, i32> {
        Ok(offset + u64::from(whence))
    }

    fn copy_file_range(&self, _: &Request<'_>, moved: &Moved) -> Result<u64, i32> {
        Ok(moved.len)
    }
}

struct Mounted {
    session: Option<Session>,
    at: tempfile::TempDir,
    ended: Arc<Mutex<bool>>,
    starts: Arc<AtomicUsize>,
}

impl Mounted {
    fn new(rings: Rings) -> Option<Mounted> {
        Mounted::of(Memory::default(), rings)
    }

    fn of(fs: Memory, rings: Rings) -> Option<Mounted> {
        let at = tempfile::tempdir().unwrap();
        let (ended, starts) = (fs.ended.clone(), fs.starts.clone());
        let table = MountTable { source: "iov:test".into(), subtype: "iov".into(), ..Default::default() };
        match Session::mount(fs, at.path(), &table, Asked::default(), rings) {
            Ok(session) => Some(Mounted { session: Some(session), at, ended, starts }),
            // Containers may come without /dev/fuse, and kernels without rings.
            Err(e) => {
                eprintln!("not mounted: {e}");
                None
            }
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.at.path().join(name)
    }

    fn waits_for_its_end(&self, what: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while !*self.ended.lock().unwrap() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Both ways of requests, where they are there.
fn for_each_way(test: impl Fn(&Mounted)) {
    for_each(&[(Rings::Off, None), (Rings::On, None)], test);
}

/// Such ways, and what starts a process of its own that asks for something.
fn for_each(ways: &[(Rings, Option<Asks>)], test: impl Fn(&Mounted)) {
    for (rings, looker) in ways.iter().copied() {
        let Some(mut mounted) = Mounted::of(Memory { looker, ..Memory::default() }, rings) else { continue };
        assert_eq!(mounted.session.as_ref().unwrap().granted().rings, rings == Rings::On);
        test(&mounted);
        drop(mounted.session.take());
        // A child that another test was just starting may have had a file of it: then it ends with that.
        mounted.waits_for_its_end("it is told of its end");
        assert!(std::fs::read_dir(mounted.at.path()).unwrap().next().is_none(), "the directory is as it was");
    }
}

#[test]
fn bytes_and_names_come_through() {
    for_each_way(|m| {
        let bytes: Vec<u8> = (0..5_000_001u32).map(|i| (i % 251) as u8).collect();
        for name in ["a", "großer Name", &"n".repeat(255)] {
            std::fs::write(m.path(name), &bytes).unwrap();
            assert!(std::fs::read(m.path(name)).unwrap() == bytes);
            assert_eq!(std::fs::metadata(m.path(name)).unwrap().size(), bytes.len() as u64);
        }
        std::fs::rename(m.path("a"), m.path("b")).unwrap();
        let mut names: Vec<_> = std::fs::read_dir(m.at.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names.len(), 3);
        assert_eq!((names[0].to_str(), names[2].to_str().map(str::len)), (Some("b"), Some(255)));
        let created = std::fs::metadata(m.path("b")).unwrap().created().unwrap();
        assert_eq!(created.duration_since(std::time::UNIX_EPOCH).unwrap(), Duration::new(5, 6), "by statx");
        let missing = std::fs::metadata(m.path("none")).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(ENOENT));
    });
}

#[test]
fn hundreds_of_names_are_listed_once() {
    for_each_way(|m| {
        (0..700).for_each(|i| drop(File::create(m.path(&format!("file {i}"))).unwrap()));
        let names: std::collections::HashSet<_> =
            std::fs::read_dir(m.at.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 700);
    });
}

#[test]
fn values_of_attributes_of_any_length_come_through() {
    for_each_way(|m| {
        std::fs::write(m.path("f"), b"x").unwrap();
        rustix::fs::setxattr(m.path("f"), "user.x", &[7; 65_536], rustix::fs::XattrFlags::empty()).unwrap();
        let mut room = [0; 5];
        assert_eq!(rustix::fs::getxattr(m.path("f"), "user.x", &mut room), Ok(5));
        assert_eq!(&room, b"value");
        assert_eq!(rustix::fs::getxattr(m.path("f"), "user.x", &mut room[..4]), Err(rustix::io::Errno::RANGE));
        assert_eq!(rustix::fs::getxattr(m.path("f"), "user.y", &mut room), Err(rustix::io::Errno::OPNOTSUPP));
    });
}

#[test]
fn files_without_a_name_get_one() {
    const O_TMPFILE: i32 = 0o20_200_000;
    for_each_way(|m| {
        let mut file = OpenOptions::new().read(true).write(true).custom_flags(O_TMPFILE).open(m.at.path()).unwrap();
        file.write_all(b"no name yet").unwrap();
        assert!(!m.path("named").exists());
        let (at, flags) = (rustix::fs::CWD, rustix::fs::AtFlags::SYMLINK_FOLLOW);
        let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(at, descriptor, at, m.path("named"), flags).unwrap();
        assert_eq!(std::fs::read(m.path("named")).unwrap(), b"no name yet");
    });
}

#[test]
fn what_panics_fails_alone() {
    for_each_way(|m| {
        assert_eq!(std::fs::metadata(m.path("panic")).unwrap_err().raw_os_error(), Some(5));
        std::fs::write(m.path("f"), b"goes on").unwrap();
    });
}

#[test]
fn many_threads_are_served_at_a_time() {
    for_each_way(|m| {
        std::thread::scope(|scope| {
            for t in 0..16 {
                scope.spawn(move || {
                    for i in 0..60 {
                        let (path, bytes) = (m.path(&format!("{t} {i}")), vec![t as u8; 20_000 + i]);
                        std::fs::write(&path, &bytes).unwrap();
                        let mut read = Vec::new();
                        File::open(&path).unwrap().read_to_end(&mut read).unwrap();
                        assert!(read == bytes);
                    }
                });
            }
        });
    });
}

#[test]
fn one_that_is_in_use_goes_when_its_users_have_left() {
    for rings in [Rings::Off, Rings::Auto] {
        let Some(mut m) = Mounted::new(rings) else { continue };
        let file = File::create(m.path("f")).unwrap();
        drop(m.session.take());
        assert!(!m.path("f").exists(), "the name has gone at once");
        file.write_all_at(b"still there", 0).unwrap();
        drop(file);
        m.waits_for_its_end("its threads end with its last user");
    }
}
