//! What others do meanwhile, in a file system of their own on the same workspace, or here beside it.

use std::time::Duration;

use super::*;
use crate::{Caller, Change, Directory, Errno, How, Kind, Opened, Paths, Rename, SetTime};

fn two() -> (FileSystem, FileSystem) {
    let ws = workspace();
    (FileSystem::new(ws.clone(), Options::default()), FileSystem::new(again(&ws), Options::default()))
}

#[test]
fn a_listing_tells_of_names_as_they_are_and_not_as_they_were_listed() {
    let (here, there) = two();
    let root = here.root();
    let first = put(&here, &root, b"0", b"old");
    (1..6).for_each(|i| drop(put(&here, &root, format!("{i}").as_bytes(), b"old")));
    for by in [&here, &there] {
        let stream = Directory::open(&root).unwrap();
        let entries = stream.entries(0, 100).unwrap();
        let at = by.root();
        by.rename((&at, b"1"), (&at, b"moved"), Rename::Replace).unwrap();
        // What they stood for is still open.
        let open = [b"2", b"3"].map(|name| File::open(&here.lookup(&root, name).unwrap().0, READ).unwrap().0);
        by.unlink(&at, b"2").unwrap();
        by.unlink(&at, b"3").unwrap();
        let new = put(by, &at, b"3", b"new");
        let found = stream.found(&entries).unwrap();
        let told = entries.iter().zip(found).filter(|(entry, _)| b"0123".contains(&entry.name[0]));
        let told: Vec<_> = told.map(|(_, found)| found.map(|(node, facts)| (node.uuid(), facts.size))).collect();
        assert_eq!(told, [Some((first.uuid(), 3)), None, None, Some((new.uuid(), 3))]);
        drop(open);
        // As before, for the next.
        by.rename((&at, b"moved"), (&at, b"1"), Rename::Replace).unwrap();
        put(by, &at, b"2", b"old");
    }
}

#[test]
fn a_name_that_has_become_another_kind_is_not_taken_for_what_it_was() {
    let (here, there) = two();
    let (root, at) = (here.root(), there.root());
    here.mkdir(&root, b"d", born(0o755)).unwrap();
    here.mkdir(&root, b"other", born(0o755)).unwrap();
    there.rmdir(&at, b"d").unwrap();
    let file = put(&there, &at, b"d", b"data");
    assert_eq!(here.rmdir(&root, b"d"), Err(Errno::ENOTDIR));
    assert_eq!(here.rename((&root, b"other"), (&root, b"d"), Rename::Replace), Err(Errno::ENOTDIR));
    assert_eq!(get(&file), b"data");
    put(&here, &root, b"f", b"more");
    assert_eq!(here.rename((&root, b"f"), (&root, b"other"), Rename::Replace), Err(Errno::EISDIR));
    assert_eq!(here.unlink(&root, b"other"), Err(Errno::EISDIR));
    here.rename((&root, b"f"), (&root, b"d"), Rename::Replace).unwrap();
    here.rmdir(&root, b"other").unwrap();
    assert_eq!(names(&root), ["d"]);
}

#[test]
fn a_file_without_a_name_stays_if_another_process_has_given_it_one() {
    let (here, there) = two();
    let (file, node, _) = here.create_unnamed(&here.root(), born(0o640), WRITE).unwrap();
    file.write(0, b"made here").unwrap();
    file.flush().unwrap();
    // As a child does with what it has inherited.
    let inherited = File::open(&there.node(node.uuid(), Kind::File), READ).unwrap().0;
    let linked = there.link(inherited.node(), &there.root(), b"named").unwrap();
    assert_eq!(linked.links, 1);
    file.close().unwrap();
    drop((node, here));
    inherited.close().unwrap();
    let found = there.lookup(&there.root(), b"named").unwrap().0;
    assert_eq!(get(&found), b"made here");
    // One that has got none goes.
    let (file, node, _) = there.create_unnamed(&there.root(), born(0o640), WRITE).unwrap();
    file.close().unwrap();
    assert_eq!(node.attributes(), Err(Errno::ENOENT));
}

#[test]
fn what_was_written_by_one_descriptor_is_found_although_another_was_opened_before() {
    let unseen = Duration::from_secs(60);
    let paths = Paths::new(FileSystem::new(workspace(), Options { unseen, ..Options::default() }));
    let (fs, caller) = (paths.file_system(), Caller::default());
    let root = fs.root();
    put(fs, &root, b"f", b"old");
    let open = |write| {
        let how = crate::How { read: true, write, ..Default::default() };
        match paths.walker(&caller).open(&root, b"f", &how) {
            Ok(crate::Opened::File(file, _)) => file,
            other => panic!("{other:?}"),
        }
    };
    let (one, two) = (open(false), open(true));
    two.write(3, b", and more").unwrap();
    two.close().unwrap();
    one.close().unwrap();
    match paths.walker(&caller).walk(&root, b"f", true) {
        Ok(crate::Reached::Found { attributes, .. }) => assert_eq!(attributes.size, 13),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_that_was_looked_at_while_a_name_was_added_is_told_of_as_it_is() {
    let fs = file_system();
    let root = fs.root();
    let dir = fs.mkdir(&root, b"d", born(0o755)).unwrap().0;
    let file = put(&fs, &root, b"f", b"");
    let before = dir.attributes().unwrap();
    // It may look before, in the middle, or behind.
    let looked = dir.clone();
    let look = move || (0..200).for_each(|_| _ = looked.attributes());
    let looks = ioverbs::seam::spawn("looks", look).unwrap();
    fs.link(&file, &dir, b"g").unwrap();
    looks.join().unwrap();
    let told = dir.told_within(Duration::MAX).map_or_else(|| dir.attributes().unwrap(), |(told, _)| told);
    assert!(told.mtime_ns > before.mtime_ns);
}

#[test]
fn the_time_of_access_is_that_of_its_making_until_somebody_sets_it() {
    let fs = file_system();
    let root = fs.root();
    let (file, dir) = (put(&fs, &root, b"f", b"bytes"), fs.mkdir(&root, b"d", born(0o755)).unwrap().0);
    for node in [&file, &dir] {
        let made = node.attributes().unwrap();
        assert_eq!(made.atime_ns, made.btime_ns);
        let mtime = Some(SetTime::At(7_000_000_000));
        let set = node.change(&Change { mtime, ..Change::default() }).unwrap();
        assert_eq!((set.atime_ns, set.mtime_ns), (made.atime_ns, 7_000_000_000));
        let set = node.change(&Change { atime: Some(SetTime::At(0)), ..Change::default() }).unwrap();
        assert_eq!((set.atime_ns / 1_000_000_000, set.mtime_ns), (0, 7_000_000_000));
    }
}

static ROOT: Caller = Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0 };

/// A directory that others move is where it is by now, for who is in it.
#[test]
fn above_a_directory_is_where_others_have_moved_it() {
    let ws = workspace();
    let at_once = Options { unseen: Duration::ZERO, ..Options::default() };
    let here = FileSystem::new(ws.clone(), at_once);
    let there = FileSystem::new(again(&ws), Options::default());
    let paths = Paths::new(here.clone());
    let (root, w) = (here.root(), paths.walker(&ROOT));
    for dir in [&b"a"[..], b"a/b", b"a/b/d", b"c"] {
        w.mkdir(&root, dir, 0o755).unwrap();
    }
    for (dir, what) in [(&b"a"[..], &b"a"[..]), (b"c", b"c")] {
        put(&here, &w.find(&root, dir, true).unwrap().0, b"who", what);
    }
    let inside = w.find(&root, b"a/b/d", true).unwrap().0;
    assert_eq!(inside.path_now().unwrap(), b"/a/b/d");
    let (at, other) = (there.root(), Paths::new(there.clone()));
    let in_there = |name: &[u8]| other.walker(&ROOT).find(&at, name, true).unwrap().0;
    there.rename((&in_there(b"a"), b"b"), (&in_there(b"c"), b"moved"), Rename::Replace).unwrap();
    assert_eq!(get(&w.find(&inside, b"../../who", true).unwrap().0), b"c");
    assert_eq!(inside.path_now().unwrap(), b"/c/moved/d");
    there.unlink(&in_there(b"a"), b"who").unwrap();
    there.rmdir(&at, b"a").unwrap();
    assert_eq!(get(&w.find(&inside, b"../../who", true).unwrap().0), b"c");
    // One that is gone is where it was.
    there.rmdir(&in_there(b"c/moved"), b"d").unwrap();
    assert_eq!(get(&w.find(&inside, b"../../who", true).unwrap().0), b"c");
}

/// What a directory says holds for what is made in a directory that others have moved there.
#[test]
fn what_is_promised_comes_from_where_a_directory_is_by_now() {
    let (here, there) = two();
    let (root, at) = (here.root(), there.root());
    let b = {
        let a = here.mkdir(&root, b"a", born(0o755)).unwrap().0;
        here.mkdir(&a, b"b", born(0o755)).unwrap().0
    };
    let c = here.mkdir(&root, b"c", born(0o755)).unwrap().0;
    c.set_xattr(b"user.posix.controls", b"mutability=append", crate::SetXattr::Either).unwrap();
    let (a_there, c_there) = (there.lookup(&at, b"a").unwrap().0, there.lookup(&at, b"c").unwrap().0);
    there.rename((&a_there, b"b"), (&c_there, b"b"), Rename::Replace).unwrap();
    ioverbs::seam::sleep(1_100_000_000);
    let new = here.create(&b, b"f", born(0o644), Flags { write: true, ..READ }).unwrap().0;
    assert_eq!(new.write_at(0, b"x"), Err(Errno::EPERM));
    new.append(b"x").unwrap();
}

/// Of a directory that somebody else has removed its last attributes are told, and no names.
#[test]
fn a_directory_that_is_gone_is_empty_for_who_has_it_open() {
    let (here, there) = two();
    let paths = Paths::new(here.clone());
    let (root, w) = (here.root(), paths.walker(&ROOT));
    w.mkdir(&root, b"d", 0o755).unwrap();
    let how = How { read: true, directory: true, ..How::default() };
    let Opened::Directory(open) = w.open(&root, b"d", &how).unwrap() else { panic!("a directory") };
    there.rmdir(&there.root(), b"d").unwrap();
    open.node().untell();
    assert_eq!(open.node().attributes().unwrap_err(), Errno::ENOENT);
    assert_eq!(open.node().told_at_the_end().unwrap().links, 0);
    assert_eq!(open.entry(0).unwrap(), None);
}

/// `O_TMPFILE` with `O_EXCL` is for what must never get a name, and a link may be as long as a path.
#[test]
fn what_must_not_be_is_refused_and_what_may_be_long_is_not() {
    let here = FileSystem::new(workspace(), Options::default());
    let paths = Paths::new(here.clone());
    let (root, w) = (here.root(), paths.walker(&ROOT));
    let how = How { read: true, write: true, unnamed: Some(0o600), ..How::default() };
    for exclusive in [true, false] {
        let Opened::File(file, _) = w.open(&root, b".", &How { exclusive, ..how }).unwrap() else { panic!("a file") };
        let linked = here.link(file.node(), &root, b"named").map(drop);
        assert_eq!(linked, if exclusive { Err(Errno::ENOENT) } else { Ok(()) });
    }
    let (from, to) = (put(&here, &root, b"from", b"bytes"), put(&here, &root, b"to", b"there"));
    let from = File::open(&from, READ).unwrap().0;
    let to = File::open(&to, Flags { write: true, append: true, ..READ }).unwrap().0;
    // That it was opened to append is its caller's business: `fcntl` may have changed that.
    assert_eq!(from.copy_to(0, &to, 0, 5), Ok(5));
    w.mkdir(&root, b"y", 0o755).unwrap();
    put(&here, &w.find(&root, b"y", true).unwrap().0, b"f", b"far");
    let long = [b"./".repeat(1500), b".".to_vec()].concat();
    w.symlink(&root, b"l", &long).unwrap();
    let path = [&b"l/"[..], &b"./".repeat(1000), b"y/f"].concat();
    assert_eq!(get(&w.find(&root, &path, true).unwrap().0), b"far");
}

/// What others have done to a directory counts for what is made in it, from when it is known that something was.
#[test]
fn what_does_not_hold_any_more_is_asked_for_where_something_is_made() {
    let (here, there) = two();
    let dir = here.mkdir(&here.root(), b"d", born(0o755)).unwrap().0;
    let elsewhere = there.lookup(&there.root(), b"d").unwrap().0;
    elsewhere.change(&Change { mode: Some(0o2755), ..Change::default() }).unwrap();
    dir.untell();
    assert!(dir.told_within(Duration::MAX).is_none());
    assert_eq!(here.mkdir(&dir, b"sub", born(0o755)).unwrap().1.mode & 0o2000, 0o2000);
}

/// Where a directory was when it was asked for does not count against where it was moved meanwhile.
#[test]
fn an_answer_that_comes_late_moves_nothing_back() {
    let fs = FileSystem::new(workspace(), Options::default());
    let [a, b] = [b"a", b"b"].map(|name| fs.mkdir(&fs.root(), name, born(0o755)).unwrap().0);
    let d = fs.mkdir(&a, b"d", born(0o755)).unwrap().0;
    let asked_ns = ioverbs::seam::monotonic_ns();
    fs.rename((&a, b"d"), (&b, b"e"), Rename::Replace).unwrap();
    fs.place(&d, &a, b"d", asked_ns);
    assert_eq!(d.parent().unwrap().uuid(), b.uuid());
}

/// Rules go by where a directory is by now, from the first file on.
#[test]
fn what_is_ruled_comes_from_where_a_directory_is_by_now() {
    let ws = workspace();
    let rules = vec![crate::Rule::parse("/c/**=mutability=append").unwrap()];
    let here = FileSystem::new(ws.clone(), Options { rules, ..Options::default() });
    let there = FileSystem::new(again(&ws), Options::default());
    let [w, _] = [b"w", b"c"].map(|name| here.mkdir(&here.root(), name, born(0o755)).unwrap().0);
    let c_there = there.lookup(&there.root(), b"c").unwrap().0;
    there.rename((&there.root(), b"w"), (&c_there, b"w"), Rename::Replace).unwrap();
    ioverbs::seam::sleep(1_100_000_000);
    let new = here.create(&w, b"f", born(0o644), Flags { write: true, ..READ }).unwrap().0;
    assert_eq!(new.write_at(0, b"x"), Err(Errno::EPERM));
}

/// What a directory says counts also while something else is set of it.
#[test]
fn what_a_directory_says_is_heard_while_it_is_changed() {
    let fs = file_system();
    let (dir, _) = fs.mkdir(&fs.root(), b"d", born(0o755)).unwrap();
    let (sub, _) = fs.mkdir(&dir, b"sub", born(0o755)).unwrap();
    dir.set_xattr(b"user.posix.controls", b"mutability=append", crate::SetXattr::Either).unwrap();
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_over = over.clone();
    let changes = ioverbs::seam::spawn("changes", move || {
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            dir.set_xattr(b"user.note", b"x", crate::SetXattr::Either).unwrap();
            // As of an attribute that it says it in.
            dir.unsay();
        }
    });
    let written = (0..300).map(|n| {
        let name = format!("f{n}");
        let new = fs.create(&sub, name.as_bytes(), born(0o644), Flags { write: true, ..READ }).unwrap().0;
        new.write_at(0, b"x")
    });
    let written: Vec<_> = written.collect();
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    changes.unwrap().join().unwrap();
    assert_eq!(written.iter().position(|written| *written != Err(Errno::EPERM)), None);
}

/// Bytes that find room later cut off nothing that others have written behind them meanwhile (X3).
#[test]
fn nobody_opens_a_new_file_with_rights_that_were_taken_away() {
    let ws = workspace();
    let (here, there) =
        (FileSystem::new(ws.clone(), Options::default()), FileSystem::new(again(&ws), Options::default()));
    let (file, node, _) = here.create(&here.root(), b"a", born(0o644), WRITE).unwrap();
    let set = node.change(&Change { mode: Some(0o600), ..Change::default() }).unwrap();
    let seen = there.lookup(&there.root(), b"a").unwrap().1;
    assert_eq!((set.mode, seen.mode, seen.ctime_ns), (0o600, 0o600, set.ctime_ns));
    file.write(0, b"secret").unwrap();
    file.close().unwrap();
    assert_eq!(get(&node), b"secret");
}

#[test]
fn x3_what_is_told_late_cuts_nobody_elses_bytes() {
    let ws = workspace();
    let (here, there) =
        (FileSystem::new(ws.clone(), Options::default()), FileSystem::new(again(&ws), Options::default()));
    let quota = |bytes| {
        let attr = ioverbs::WorkspaceAttr { quota_bytes: Some(bytes), ..Default::default() };
        ioverbs::run(ws.session(), ioverbs::Op::WorkspaceSet { w: ws.clone(), attr }).unwrap();
    };
    quota(100);
    let (file, node, _) = here.create(&here.root(), b"a", born(0o644), WRITE).unwrap();
    file.write(0, &[1; 5000]).unwrap();
    assert_eq!(file.sync(), Err(Errno::EDQUOT));
    quota(1 << 20);
    let other = File::open(&there.lookup(&there.root(), b"a").unwrap().0, WRITE).unwrap().0;
    other.write_at(10_000, &[2; 100]).unwrap();
    other.close().unwrap();
    let _ = file.sync();
    assert_eq!(there.lookup(&there.root(), b"a").unwrap().1.size, 10_100);
    let _ = file.close();
    assert!(get(&node)[10_000..] == [2; 100]);
    // Nor what cuts off what came of a write that had failed.
    for (at, size) in [(100_000, 100_100), (70_000, 5000)] {
        let (file, node, _) = here.create(&here.root(), b"b", born(0o644), WRITE).unwrap();
        file.write(0, &[1; 5000]).unwrap();
        file.handle().unwrap().found_no_room(75_000);
        let other = File::open(&there.lookup(&there.root(), b"b").unwrap().0, WRITE).unwrap().0;
        other.write_at(60_000, &[3; 10_100]).unwrap();
        other.write_at(at, &[2; 100]).unwrap();
        other.close().unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        let found = get(&node);
        assert!(found.len() == size && found[..5000] == [1; 5000]);
        assert!(size == 5000 || found[5000..100_000].iter().all(|b| *b == 0) && found[100_000..] == [2; 100]);
        here.unlink(&here.root(), b"b").unwrap();
    }
}

/// What is tried again as the store could not be reached has what is left of its time, and not all of it anew (O8).
#[test]
fn o8_attempts_have_one_deadline_together() {
    let fs = FileSystem::new(workspace(), Options::default());
    let mut left = Vec::new();
    ioverbs::within(400_000_000, || {
        let done = fs.again("look", || {
            left.push(fs.session().deadline_ns());
            ioverbs::seam::sleep(30_000_000);
            Err::<(), _>(ioverbs::Error::unavailable("it is away"))
        });
        assert_eq!(done, Err(Errno::EIO));
    });
    assert!(left.len() > 1 && left.is_sorted_by(|a, b| a > b) && left[0] <= 400_000_000, "{left:?}");
    assert!(left.iter().all(|ns| *ns > 0) && fs.session().deadline_ns() > 400_000_000);
}

/// What is open and was removed here is what it was, and becomes what it is changed to.
#[test]
fn what_is_left_of_a_pipe_or_a_directory_is_changed_as_well() {
    let fs = FileSystem::new(workspace(), Options::default());
    let root = fs.root();
    let (pipe, _) = fs.mknod(&root, b"p", Kind::Fifo, 0, born(0o644)).unwrap();
    let (dir, _) = fs.mkdir(&root, b"d", born(0o755)).unwrap();
    let mode = |mode| Change { mode: Some(mode), ..Change::default() };
    assert_eq!(pipe.told_at_the_end().unwrap().mode, 0o644);
    fs.unlink(&root, b"p").unwrap();
    fs.rmdir(&root, b"d").unwrap();
    for node in [&pipe, &dir] {
        assert_eq!(node.attributes(), Err(Errno::ENOENT));
        let changed = node.change(&mode(0o600)).unwrap();
        assert_eq!((changed.mode, changed.links), (0o600, 0));
        let told = node.told_at_the_end().unwrap();
        assert_eq!((told.mode, told.links, told.ctime_ns), (0o600, 0, changed.ctime_ns));
    }
}

/// What somebody else has put in its place is not what was changed.
#[test]
fn what_others_have_replaced_is_not_changed_by_its_name() {
    let (here, there) = two();
    let dir = here.mkdir(&here.root(), b"d", born(0o755)).unwrap().0;
    there.mkdir(&there.root(), b"new", born(0o755)).unwrap();
    there.rename((&there.root(), b"new"), (&there.root(), b"d"), Rename::Replace).unwrap();
    assert_eq!(dir.change(&Change { mode: Some(0o700), ..Change::default() }), Err(Errno::ENOENT));
}

#[test]
fn who_changes_no_owner_takes_rights_as_who_changes_one() {
    let fs = FileSystem::new(workspace(), Options::default());
    let node = put(&fs, &fs.root(), b"f", b"x");
    node.change(&Change { mode: Some(0o6755), ..Change::default() }).unwrap();
    assert_eq!(node.change(&Change::default()).unwrap().mode, 0o755);
}
