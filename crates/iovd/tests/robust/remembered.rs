//! What file systems remember of names and attributes: nobody is asked while nothing changes, and nothing is seen late.

use std::sync::atomic::Ordering;

use iov_posix::{
    Attributes, Caller, Change, Errno, FileSystem, How, Kind, Level, Opened, Options, Paths, Reached, Rename, Stop,
};
use ioverbs::Workspace;

use crate::kit::Store;

fn strict(ws: Workspace) -> Paths {
    Paths::new(FileSystem::new(ws, Options { level: Level::Strict, ..Options::default() }))
}

fn root() -> Caller {
    Caller::default()
}

/// How many questions the file system has asked.
fn questions(paths: &Paths) -> u64 {
    paths.file_system().workspace().session().counters().metadata_requests.load(Ordering::Relaxed)
}

type Seen = Result<Attributes, Errno>;

/// What a path leads to.
fn see(paths: &Paths, path: &str) -> Seen {
    match paths.walker(&root()).walk(&paths.file_system().root(), path.as_bytes(), false) {
        Ok(Reached::Found { attributes, .. }) => Ok(attributes),
        Ok(Reached::Missing(_)) => Err(Errno::ENOENT),
        Err(Stop::Failed(errno)) => Err(errno),
        Err(Stop::Leaves(_)) => panic!("{path} leads away"),
    }
}

/// The same without anything that is remembered.
fn look(fs: &FileSystem, path: &str) -> Seen {
    let mut at = fs.root();
    let mut attributes = at.attributes()?;
    for name in path.split('/') {
        (at, attributes) = fs.lookup(&at, name.as_bytes())?;
    }
    Ok(attributes)
}

fn make(paths: &Paths, path: &str, bytes: &[u8]) -> Result<(), Stop> {
    let how = How { write: true, create: Some(0o644), ..How::default() };
    let opened = paths.walker(&root()).open(&paths.file_system().root(), path.as_bytes(), &how)?;
    if let Opened::File(file, _) = opened {
        file.write(0, bytes)?;
        file.finish()?;
    }
    Ok(())
}

#[test]
fn c1_nobody_is_asked_again_for_what_has_not_changed() {
    let store = Store::new();
    let a = strict(store.in_workspace());
    let b = strict(store.again());
    a.walker(&root()).mkdir(&a.file_system().root(), b"dir", 0o755).unwrap();
    make(&a, "dir/file", b"some bytes").unwrap();

    let paths = ["dir", "dir/file", "dir/none", "none/at/all"];
    let first: Vec<Seen> = paths.iter().map(|path| see(&b, path)).collect();
    assert_eq!(first[1].map(|a| a.size), Ok(10));
    assert_eq!((first[2], first[3]), (Err(Errno::ENOENT), Err(Errno::ENOENT)));
    let before = questions(&b);
    for _ in 0..3 {
        assert_eq!(paths.iter().map(|path| see(&b, path)).collect::<Vec<_>>(), first);
    }
    assert_eq!(questions(&b), before, "it was remembered, also what is not there");

    // Another's change is seen by the next look, and costs questions of what it concerns alone.
    make(&a, "dir/none", b"").unwrap();
    assert_eq!(see(&b, "dir/none").map(|a| a.size), Ok(0));
    let before = questions(&b);
    assert_eq!(see(&b, "none/at/all"), Err(Errno::ENOENT));
    assert_eq!(questions(&b), before, "of another directory");

    // Whoever may write is asked each time.
    let how = How { write: true, ..How::default() };
    let Ok(Opened::File(file, _)) = a.walker(&root()).open(&a.file_system().root(), b"dir/file", &how) else {
        panic!("it cannot be opened")
    };
    // More than a record holds: the catalog does not hear of it before the file is closed.
    for len in 100_000..100_010 {
        file.write(0, &vec![1; len]).unwrap();
        assert_eq!(see(&b, "dir/file").map(|a| a.size), Ok(len as u64), "as it is being written");
    }
    file.finish().unwrap();
    assert_eq!(see(&b, "dir/file").map(|a| a.size), Ok(100_009));
}

#[test]
fn c1_what_was_remembered_does_not_outlive_its_daemon() {
    let store = Store::new();
    let a = strict(store.in_workspace());
    make(&a, "file", b"some bytes").unwrap();
    let b = strict(store.again());
    assert_eq!(see(&b, "file").map(|a| a.size), Ok(10));
    assert_eq!(see(&b, "other"), Err(Errno::ENOENT));
    store.kill();
    // The next daemon serves others before this file system has noticed that there is one.
    let c = strict(store.again());
    c.walker(&root()).unlink(&c.file_system().root(), b"file").unwrap();
    make(&c, "other", b"more").unwrap();
    assert_eq!(see(&b, "file"), Err(Errno::ENOENT));
    assert_eq!(see(&b, "other").map(|a| a.size), Ok(4));
    let before = questions(&b);
    assert_eq!(see(&b, "other").map(|a| a.size), Ok(4));
    if store.status("requests").is_some() {
        // Remembered again, by what the new daemon says, as soon as nobody of the old one may come back.
        assert!(questions(&b) - before <= 2);
    }
}

/// A small number out of a row that is the same in each run.
struct Row(u64);

impl Row {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// One change at random; whether it was possible is all the same.
fn change(row: &mut Row, paths: &Paths, all: &[&str]) -> String {
    let (one, two) = (all[row.below(all.len())], all[row.below(all.len())]);
    let (caller, at) = (root(), paths.file_system().root());
    let walker = paths.walker(&caller);
    let step = row.below(9);
    let done = match step {
        0 => walker.mkdir(&at, one.as_bytes(), 0o755),
        1 => walker.unlink(&at, one.as_bytes()).map(drop),
        2 => walker.rmdir(&at, one.as_bytes()),
        3 => walker.name(&at, one.as_bytes()).and_then(|from| {
            let to = walker.name(&at, two.as_bytes())?;
            walker.rename(from.as_ref(), to.as_ref(), Rename::Replace)
        }),
        4 => walker.symlink(&at, b"a", one.as_bytes()).map(drop),
        5 => walker.find(&at, one.as_bytes(), false).and_then(|(node, _)| {
            let mode = Some(if row.below(2) == 0 { 0o700 } else { 0o755 });
            Ok(node.change(&Change { mode, ..Change::default() }).map(drop)?)
        }),
        _ => make(paths, one, &vec![7; 1 + row.below(9_000)]),
    };
    format!("{step} {one} {two}: {done:?}")
}

#[test]
fn c1_two_file_systems_see_at_once_what_the_other_does() {
    let store = Store::new();
    let systems = [strict(store.in_workspace()), strict(store.again())];
    let plain = FileSystem::new(store.again(), Options::default());
    let all = ["a", "b", "a/a", "a/b", "b/a", "a/b/a"];
    let mut row = Row(20_261_123);
    let mut log = Vec::new();
    for step in 0..400 {
        let by = row.below(2);
        log.push(format!("{by}: {}", change(&mut row, &systems[by], &all)));
        if row.below(3) == 0 {
            // A listing, whose entries are looked at next.
            let paths = &systems[row.below(2)];
            let dir = iov_posix::Directory::open(&paths.file_system().root()).unwrap();
            drop(dir.entries(0, 10));
            paths.reads(&dir);
        }
        for path in all {
            // A link's end is followed by some: what it leads to is another question.
            let is_link = |seen: &Seen| seen.is_ok_and(|a| a.kind == Kind::Symlink);
            let parts: Vec<&str> = path.split('/').collect();
            if (1..parts.len()).any(|n| is_link(&look(&plain, &parts[..n].join("/")))) {
                continue;
            }
            let now = look(&plain, path);
            for (i, paths) in systems.iter().enumerate() {
                let last = log.iter().rev().take(4).collect::<Vec<_>>();
                assert_eq!(see(paths, path), now, "{path} by {i} at step {step}, behind {last:#?}");
            }
        }
    }
}

#[test]
fn c3_what_is_not_there_is_remembered_only_if_the_store_has_said_so() {
    let store = Store::new();
    let unseen = std::time::Duration::from_millis(300);
    let with = |ws| Paths::new(FileSystem::new(ws, Options { unseen, ..Options::default() }));
    let (a, b) = (with(store.in_workspace()), with(store.again()));
    // Made here a moment ago: what is not known to be in it is taken not to be, for a while.
    a.walker(&root()).mkdir(&a.file_system().root(), b"dir", 0o755).unwrap();
    make(&b, "dir/file", b"some bytes").unwrap();
    let dir = a.walker(&root()).find(&a.file_system().root(), b"dir", true).unwrap().0;
    let (first, by_mount) = (see(&a, "dir/file"), a.lookup(&dir, b"file").map(|found| found.1));
    assert!([Err(Errno::ENOENT), Ok(10)].contains(&first.map(|a| a.size)) && first.is_ok() == by_mount.is_ok());
    std::thread::sleep(2 * unseen);
    assert_eq!(see(&a, "dir/file").map(|a| a.size), Ok(10));
    assert_eq!(a.lookup(&dir, b"file").map(|found| found.1.size), Ok(10));

    // Whoever waits for a child, or gets a lock, sees what was done before.
    a.walker(&root()).mkdir(&a.file_system().root(), b"next", 0o755).unwrap();
    make(&b, "next/file", b"some bytes").unwrap();
    let _ = see(&a, "next/file");
    a.refresh();
    assert_eq!(see(&a, "next/file").map(|a| a.size), Ok(10));
}

#[test]
fn c1_a_page_of_another_daemon_says_nothing() {
    let store = Store::new();
    let a = strict(store.in_workspace());
    assert_eq!(see(&a, "file"), Err(Errno::ENOENT));
    let before = questions(&a);
    assert_eq!(see(&a, "file"), Err(Errno::ENOENT));
    assert_eq!(questions(&a), before);
    // As after an older daemon, which leaves the page of a newer one where it is.
    let path = store.dir().join("changes");
    let mut page = std::fs::read(&path).unwrap();
    page[24] ^= 1;
    std::fs::write(&path, &page).unwrap();
    let b = strict(store.again());
    for paths in [&a, &b] {
        assert_eq!(see(paths, "file"), Err(Errno::ENOENT));
        let before = questions(paths);
        assert_eq!(see(paths, "file"), Err(Errno::ENOENT));
        assert!(questions(paths) > before, "it is asked for");
    }
    make(&b, "file", b"some bytes").unwrap();
    assert_eq!(see(&a, "file").map(|a| a.size), Ok(10));

    // Whoever asks for nothing notices that his daemon has ended.
    store.shut_down();
    std::fs::remove_file(&path).unwrap();
    let c = strict(store.again());
    c.walker(&root()).unlink(&c.file_system().root(), b"file").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(60));
    assert_eq!(see(&a, "file"), Err(Errno::ENOENT));
}
