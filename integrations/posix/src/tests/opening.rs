//! Opening, beside a directory of this machine: whatever the flags, the outcome is the same, whether or not anything is known before.

use std::{fs::OpenOptions, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

use super::*;
use crate::{Caller, How, Kind, Opened, Paths, Stop};

const O_CREAT: i32 = 0o100;
const O_EXCL: i32 = 0o200;
const O_TRUNC: i32 = 0o1000;
const O_DIRECTORY: i32 = 0o200_000;
const O_NOFOLLOW: i32 = 0o400_000;

/// What there is, and what is not.
const NAMES: [&str; 8] = ["none", "file", "dir", "to_file", "to_none", "to_dir", "file/none", "dir/none"];

fn filled(dir: &Path) {
    std::fs::write(dir.join("file"), b"some bytes").unwrap();
    std::fs::create_dir(dir.join("dir")).unwrap();
    for (link, to) in [("to_file", "file"), ("to_none", "far"), ("to_dir", "dir")] {
        std::os::unix::fs::symlink(to, dir.join(link)).unwrap();
    }
}

fn the_same(unseen: Duration) -> Paths {
    let paths = Paths::new(FileSystem::new(workspace(), Options { unseen, ..Options::default() }));
    let (root, fs) = (paths.file_system().root(), paths.file_system());
    put(fs, &root, b"file", b"some bytes");
    fs.mkdir(&root, b"dir", born(0o755)).unwrap();
    for (link, to) in [("to_file", "file"), ("to_none", "far"), ("to_dir", "dir")] {
        fs.symlink(&root, link.as_bytes(), to.as_bytes(), born(0o777)).unwrap();
    }
    paths
}

/// What an open came to, and what is there behind it: a kind or an errno, then the lengths of what can be opened.
type Came = (Result<bool, i32>, Vec<Option<u64>>);

fn on_this_machine(dir: &Path, name: &str, write: bool, flags: i32) -> Came {
    let opened = OpenOptions::new().read(true).write(write).custom_flags(flags).open(dir.join(name));
    let came = opened.map(|file| file.metadata().unwrap().is_dir()).map_err(|e| e.raw_os_error().unwrap());
    let names = ["none", "file", "far", "dir/none"];
    (came, names.iter().map(|name| dir.join(name).metadata().ok().map(|facts| facts.len())).collect())
}

fn here(paths: &Paths, name: &str, write: bool, flags: i32) -> Came {
    let (caller, root) = (Caller::default(), paths.file_system().root());
    let says = |flag: i32| flags & flag != 0;
    let how = How {
        read: true,
        write,
        truncate: says(O_TRUNC),
        create: says(O_CREAT).then_some(0o644),
        exclusive: says(O_EXCL),
        directory: says(O_DIRECTORY),
        nofollow: says(O_NOFOLLOW),
        ..How::default()
    };
    let came = match paths.walker(&caller).open(&root, name.as_bytes(), &how) {
        Ok(Opened::File(file, _)) => Ok(file.node().kind() == Kind::Directory),
        Ok(Opened::Directory(_)) => Ok(true),
        Ok(Opened::Path(..)) => panic!("{name} was only found"),
        Err(Stop::Failed(errno)) => Err(errno.0),
        Err(Stop::Leaves(_)) => panic!("{name} leads away"),
    };
    let len = |name: &&str| paths.walker(&caller).find(&root, name.as_bytes(), true).ok().map(|(_, a)| a.size);
    (came, ["none", "file", "far", "dir/none"].iter().map(len).collect())
}

#[test]
fn opening_comes_to_what_it_comes_to_on_this_machine() {
    let flags = [0, O_CREAT, O_CREAT | O_EXCL, O_TRUNC, O_CREAT | O_TRUNC, O_DIRECTORY];
    for name in NAMES {
        for flags in flags.iter().flat_map(|flags| [*flags, *flags | O_NOFOLLOW]) {
            // What is told of O_TRUNC without writing differs from system to system.
            for write in [false, true].into_iter().filter(|write| *write || flags & O_TRUNC == 0) {
                let dir = tempfile::tempdir().unwrap();
                filled(dir.path());
                let wanted = on_this_machine(dir.path(), name, write, flags);
                for (unseen, looks) in [(0, false), (100, false), (100, true)] {
                    let paths = the_same(Duration::from_secs(unseen));
                    if looks {
                        let caller = Caller::default();
                        let walker = paths.walker(&caller);
                        NAMES
                            .iter()
                            .for_each(|name| drop(walker.walk(&paths.file_system().root(), name.as_bytes(), true)));
                    }
                    let came = here(&paths, name, write, flags);
                    assert_eq!(came, wanted, "{name}, write: {write}, flags {flags:o}, known for {unseen} s: {looks}");
                }
            }
        }
    }
}

#[test]
fn what_a_listing_has_shown_knows_where_it_is() {
    let ws = workspace();
    let fs = FileSystem::new(ws.clone(), Options::default());
    let dir = fs.mkdir(&fs.root(), b"dir", born(0o755)).unwrap().0;
    fs.mkdir(&dir, b"below", born(0o755)).unwrap();
    let unseen = Duration::from_secs(100);
    let paths = Paths::new(FileSystem::new(again(&ws), Options { unseen, ..Options::default() }));
    let (caller, root) = (Caller::default(), paths.file_system().root());
    let walker = paths.walker(&caller);
    let listed = |node: &Arc<Node>| {
        let stream = crate::Directory::open(node).unwrap();
        let entries = stream.entries(0, 10).unwrap();
        paths.reads(&stream);
        entries.first().map(|entry| entry.name.clone()).unwrap()
    };
    // As `rm -r` goes: down by what is listed, and up again by `..`.
    let name = listed(&root);
    let dir = walker.find(&root, &name, false).unwrap().0;
    let name = listed(&dir);
    let below = walker.find(&dir, &name, false).unwrap().0;
    assert_eq!(below.path().as_deref(), Some(&b"/dir/below"[..]));
    assert!(walker.find(&below, b"../..", false).unwrap().0.is(&root));
}
