//! Ways, and who may go them.

use crate::{
    Caller, Change, Errno, FileSystem, How, Kind, Opened, Options, Paths, Reached, Rename, SetTime, Stop, Walker, Way,
    run,
};

use super::{again, behind::asked, born, file_system, put, workspace};

static ROOT: Caller = Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0 };

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: vec![50], umask: 0 }
}

fn failed<T: std::fmt::Debug>(way: Way<T>) -> Errno {
    match way.unwrap_err() {
        Stop::Failed(e) => e,
        Stop::Leaves(path) => panic!("it leaves: {path:?}"),
    }
}

fn rename(w: &Walker<'_>, from: &[u8], to: &[u8], how: Rename) -> Way<()> {
    let root = w.fs.root();
    w.rename(w.name(&root, from)?.as_ref(), w.name(&root, to)?.as_ref(), how)
}

const MAKE: How = How {
    read: true,
    write: true,
    create: Some(0o644),
    append: false,
    truncate: false,
    exclusive: false,
    directory: false,
    nofollow: false,
    path: false,
    unnamed: None,
    unseen: false,
};
const READ: How = How { write: false, create: None, ..MAKE };

/// `d/e/f`, and links to it.
fn tree() -> Paths {
    let paths = Paths::new(file_system());
    let root = paths.file_system().root();
    let w = paths.walker(&ROOT);
    w.mkdir(&root, b"d", 0o755).unwrap();
    w.mkdir(&root, b"d/e/", 0o755).unwrap();
    drop(w.open(&root, b"d/e/f", &MAKE).unwrap());
    for (path, target) in [
        (&b"d/up"[..], &b"../d/e"[..]),
        (b"link", b"d/up/f"),
        (b"loop", b"loop"),
        (b"out", b"/etc/passwd"),
        (b"above", b"../x"),
        (b"dangling", b"nothing"),
    ] {
        w.symlink(&root, path, target).unwrap();
    }
    paths
}

#[test]
fn a_way_follows_links_and_climbs() {
    let paths = tree();
    let (root, w) = (paths.file_system().root(), paths.walker(&ROOT));
    let f = w.find(&root, b"d/e/f", true).unwrap().0;
    for path in ["./d//e/f", "d/e/../e/f", "d/up/f", "link", "d/up/../e/f", "d/../d/./up/f"] {
        assert!(w.find(&root, path.as_bytes(), true).unwrap().0.is(&f), "{path}");
    }
    let e = w.find(&root, b"d/e", true).unwrap().0;
    assert!(w.find(&e, b"../../link", true).unwrap().0.is(&f));
    assert_eq!((e.path().unwrap(), root.path().unwrap()), (b"/d/e".to_vec(), b"/".to_vec()));
    assert_eq!(w.find(&root, b"link", false).unwrap().0.kind(), Kind::Symlink);
    // A slash at the end wants a directory, and follows.
    assert_eq!(w.find(&root, b"d/up/", false).unwrap().0.kind(), Kind::Directory);
    assert_eq!(failed(w.find(&root, b"link/", true)), Errno::ENOTDIR);
    assert_eq!(failed(w.find(&root, b"d/e/f/g", true)), Errno::ENOTDIR);
    assert_eq!(failed(w.find(&root, b"d/x/y", true)), Errno::ENOENT);
    assert_eq!(failed(w.find(&root, b"loop", true)), Errno::ELOOP);
    assert_eq!(failed(w.find(&root, &[b'a'; 300], true)), Errno::ENAMETOOLONG);
    assert_eq!(failed(w.find(&root, &b"d/".repeat(3000), true)), Errno::ENAMETOOLONG);
    // Also where it is known already that there is nothing.
    let empty = paths.file_system().mkdir(&root, b"empty", born(0o755)).unwrap().0;
    assert_eq!(failed(w.find(&empty, &[b'a'; 256], true)), Errno::ENAMETOOLONG);
    assert_eq!(paths.lookup(&empty, &[b'a'; 256]).err(), Some(Errno::ENAMETOOLONG));
    assert_eq!(paths.lookup(&empty, b"a").err(), Some(Errno::ENOENT));
    assert!(
        matches!(w.walk(&root, b"d/new/", true).unwrap(), Reached::Missing(last) if last.name == b"new" && last.slash)
    );
    // It may lead out.
    let leaves = |path: &[u8]| w.find(&root, path, true).unwrap_err();
    assert_eq!(leaves(b"out"), Stop::Leaves(b"/etc/passwd".to_vec()));
    assert_eq!(leaves(b"above/z"), Stop::Leaves(b"x/z".to_vec()));
    assert_eq!(leaves(b"d/../../y"), Stop::Leaves(b"y".to_vec()));
    assert_eq!(leaves(b".."), Stop::Leaves(Vec::new()));
}

#[test]
fn open_does_what_its_flags_say() {
    let paths = tree();
    let (root, w) = (paths.file_system().root(), paths.walker(&ROOT));
    assert_eq!(failed(w.open(&root, b"link", &How { exclusive: true, ..MAKE })), Errno::EEXIST);
    // What a dangling link names is made; not where it must be new.
    assert_eq!(failed(w.open(&root, b"dangling", &How { exclusive: true, ..MAKE })), Errno::EEXIST);
    assert_eq!(failed(w.open(&root, b"dangling", &READ)), Errno::ENOENT);
    drop(w.open(&root, b"dangling", &MAKE).unwrap());
    assert_eq!(w.find(&root, b"nothing", true).unwrap().1.mode, 0o644);
    assert_eq!(failed(w.open(&root, b"link", &How { nofollow: true, ..READ })), Errno::ELOOP);
    assert_eq!(failed(w.open(&root, b"link", &How { directory: true, ..READ })), Errno::ENOTDIR);
    assert_eq!(failed(w.open(&root, b"d", &MAKE)), Errno::EISDIR);
    assert_eq!(failed(w.open(&root, b"new/", &MAKE)), Errno::EISDIR);
    assert!(matches!(w.open(&root, b"d", &READ).unwrap(), Opened::Directory(_)));
    assert!(matches!(w.open(&root, b"link", &How { path: true, ..READ }).unwrap(), Opened::Path(..)));
    let Opened::File(file, _) = w.open(&root, b"link", &MAKE).unwrap() else { panic!("a file") };
    file.write(0, b"abc").unwrap();
    let Opened::File(again, now) = w.open(&root, b"link", &How { truncate: true, ..MAKE }).unwrap() else { panic!() };
    assert_eq!((now.size, again.size().unwrap()), (0, 0));
    let unnamed = w.open(&root, b"d", &How { unnamed: Some(0o600), ..MAKE }).unwrap();
    assert!(matches!(unnamed, Opened::File(..)));
}

#[test]
fn modes_and_owners_are_checked() {
    let paths = tree();
    let root = paths.file_system().root();
    let (w, one, other) = (paths.walker(&ROOT), user(7), user(8));
    let (one, other) = (paths.walker(&one), paths.walker(&other));
    assert_eq!(failed(one.mkdir(&root, b"mine", 0o755)), Errno::EACCES);
    w.change(&root, &Change { mode: Some(0o1777), ..Change::default() }).unwrap();
    one.mkdir(&root, b"mine", 0o700).unwrap();
    drop(one.open(&root, b"mine/f", &MAKE).unwrap());
    assert_eq!(failed(other.find(&root, b"mine/f", true)), Errno::EACCES);
    // Sticky: only who owns it takes it away.
    assert_eq!(failed(other.rmdir(&root, b"mine")), Errno::EPERM);
    assert_eq!(failed(rename(&other, b"mine", b"theirs", Rename::Replace)), Errno::EPERM);
    let mine = one.find(&root, b"mine/f", true).unwrap().0;
    let change = |mode: u32| Change { mode: Some(mode), ..Change::default() };
    assert_eq!(failed(other.change(&mine, &change(0o777))), Errno::EPERM);
    // Who is not in its group gives nobody the rights of it.
    w.change(&mine, &Change { gid: Some(99), ..Change::default() }).unwrap();
    assert_eq!(one.change(&mine, &change(0o2755)).unwrap().mode, 0o755);
    assert_eq!(failed(one.change(&mine, &Change { uid: Some(8), ..Change::default() })), Errno::EPERM);
    assert_eq!(failed(one.change(&mine, &Change { gid: Some(51), ..Change::default() })), Errno::EPERM);
    assert_eq!(one.change(&mine, &Change { gid: Some(50), ..Change::default() }).unwrap().gid, 50);
    one.change(&mine, &change(0o440)).unwrap();
    assert_eq!(failed(one.open(&root, b"mine/f", &MAKE)), Errno::EACCES);
    let times = |t: SetTime| Change { atime: Some(t), mtime: Some(t), ..Change::default() };
    assert_eq!(failed(other.change(&mine, &times(SetTime::At(5)))), Errno::EPERM);
    assert_eq!(failed(other.change(&mine, &times(SetTime::Now))), Errno::EACCES);
    one.change(&mine, &times(SetTime::At(5))).unwrap();
    // Root may, but runs nothing that nobody may run.
    let attributes = mine.attributes().unwrap();
    assert!(ROOT.may(&attributes, 6) && !ROOT.may(&attributes, 1));
    drop(w.open(&root, b"mine/f", &MAKE).unwrap());
}

#[test]
fn names_are_made_and_moved_as_posix_says() {
    let paths = tree();
    let (root, w) = (paths.file_system().root(), paths.walker(&ROOT));
    assert_eq!(failed(w.mkdir(&root, b"d", 0o755)), Errno::EEXIST);
    assert_eq!(failed(w.mkdir(&root, b"dangling", 0o755)), Errno::EEXIST);
    assert_eq!(failed(w.mkdir(&root, b"/", 0o755)), Errno::EEXIST);
    assert_eq!(failed(w.symlink(&root, b"new/", b"x")), Errno::ENOENT);
    assert_eq!(failed(w.unlink(&root, b"d")), Errno::EISDIR);
    assert_eq!(failed(w.unlink(&root, b"d/e/f/")), Errno::ENOTDIR);
    assert_eq!(failed(w.rmdir(&root, b"link")), Errno::ENOTDIR);
    assert_eq!(failed(w.rmdir(&root, b"d/.")), Errno::EINVAL);
    assert_eq!(failed(w.rmdir(&root, b"d/e/..")), Errno::ENOTEMPTY);
    assert_eq!(failed(w.rmdir(&root, b"d/e")), Errno::ENOTEMPTY);
    let rename = |from: &[u8], to: &[u8], how: Rename| rename(&w, from, to, how);
    assert_eq!(failed(rename(b"d", b"link", Rename::Replace)), Errno::ENOTDIR);
    assert_eq!(failed(rename(b"link", b"d", Rename::Replace)), Errno::EISDIR);
    assert_eq!(failed(rename(b"link", b"new/", Rename::Replace)), Errno::ENOTDIR);
    assert_eq!(failed(rename(b"link", b"out", Rename::NoReplace)), Errno::EEXIST);
    assert_eq!(failed(rename(b"link", b"new", Rename::Exchange)), Errno::ENOENT);
    // What was remembered of a directory goes with its name.
    let f = w.find(&root, b"d/e/f", true).unwrap().0;
    rename(b"d/e", b"g", Rename::Replace).unwrap();
    assert_eq!(failed(w.find(&root, b"d/e/f", true)), Errno::ENOENT);
    assert!(w.find(&root, b"g/f", true).unwrap().0.is(&f));
    assert_eq!(w.find(&root, b"g", true).unwrap().0.path().unwrap(), b"/g");
    assert!(w.find(&root, b"g/../d", true).is_ok());
    w.link(&f, &root, b"hard").unwrap();
    // Two names of one file: nothing happens.
    rename(b"hard", b"g/f", Rename::Replace).unwrap();
    assert!(w.find(&root, b"hard", true).is_ok());
    let again = Paths::new(crate::FileSystem::new(super::again(paths.file_system().workspace()), Default::default()));
    assert_eq!(again.file_system().by_identity(f.uuid()).unwrap().1.links, 2);
}

#[test]
fn what_programs_are_told_is_read_as_it_was_written() {
    let settings = run::Settings {
        store: "file:/a b/c".into(),
        places: vec![
            run::Place { at: b"/iov".to_vec(), workspace: None },
            run::Place { at: b"/x y/z".to_vec(), workspace: Some(b"w \xff".to_vec()) },
        ],
        strict: true,
        rules: vec!["/a/**=scratch".into()],
        controls: vec!["consistency=commit".into()],
        deadline_ns: 5,
        holder: Some(b"/opt/a b/iov\xff".to_vec()),
    };
    assert_eq!(run::Settings::read(&settings.to_text().unwrap()), Some(settings.clone()));
    let broken = run::Settings { rules: vec!["/a\nstrict yes".into()], ..settings.clone() };
    assert!(broken.to_text().is_err());
    let broken = run::Settings { holder: Some(b"/a\nstrict yes".to_vec()), ..settings };
    assert!(broken.to_text().is_err());
    for text in ["what is this\n", "deadline x\n", "workspace /x\n", "nothing"] {
        assert_eq!(run::Settings::read(text.as_bytes()), None, "{text}");
    }
    let in_order = |path: &str| run::is_in_order(path.as_ref());
    assert!(in_order("/a/b") && !in_order("/") && !in_order("/a/") && !in_order("/a//b") && !in_order("/a/../b"));
    assert!(!in_order("a"));
}

#[test]
fn programs_are_told_apart_by_how_they_begin() {
    use run::Program;
    assert_eq!(Program::of(b"#! /bin/sh  -e x \nrest"), Program::Script(b"/bin/sh".to_vec(), Some(b"-e x".to_vec())));
    assert_eq!(Program::of(b"#!/bin/sh"), Program::Script(b"/bin/sh".to_vec(), None));
    let head = |path: &str| {
        let mut head = std::fs::read(path).unwrap();
        head.truncate(4096);
        Program::of(&head)
    };
    assert_eq!(head("/proc/self/exe"), Program::Dynamic);
    assert_eq!(Program::of(b"\x7fELF\x02\x01"), Program::Other, "cut short");
    assert_eq!(Program::of(b""), Program::Other);
    assert_eq!(
        [Program::of(b"\x7fELF\x01\x01"), Program::of(b"\x7fELF\x02\x02")],
        [Program::Foreign, Program::Foreign]
    );
    let far = [&b"\x7fELF\x02\x01"[..], &[0; 26], &[0xff; 8], &[0; 14], &[56, 0, 2, 0]].concat();
    assert_eq!(Program::of(&far), Program::Other, "headers beyond all files");
    let mut elf = vec![0; 64 + 56];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (elf[32], elf[54], elf[56]) = (64, 56, 1);
    assert_eq!(Program::of(&elf), Program::Static);
    elf[64] = 3;
    assert_eq!(Program::of(&elf), Program::Dynamic);
    // Two notes: of somebody, with a text of five bytes, and of Go.
    let notes = b"\x02\0\0\0\x05\0\0\0\x01\0\0\0X\0\0\0hello\0\0\0\x04\0\0\0\0\0\0\0\x04\0\0\0Go\0\0";
    elf.extend([0; 56]);
    let from = elf.len();
    elf.extend(notes);
    (elf[56], elf[64 + 56]) = (2, 4);
    let place = |elf: &mut Vec<u8>, at: u64, len: u64| {
        elf[64 + 56 + 8..64 + 56 + 16].copy_from_slice(&at.to_le_bytes());
        elf[64 + 56 + 32..64 + 56 + 40].copy_from_slice(&len.to_le_bytes());
    };
    place(&mut elf, from as u64, notes.len() as u64);
    assert_eq!(Program::of(&elf), Program::Go);
    for (at, len) in [(from as u64, 24), (u64::MAX, 8), (from as u64 + 4, u64::MAX), (from as u64, 0)] {
        place(&mut elf, at, len);
        assert_eq!(Program::of(&elf), Program::Dynamic, "{at} {len}");
    }
}

#[test]
fn what_is_remembered_is_never_older_than_what_was_done_here() {
    use crate::{Directory, FileSystem, Options, SetXattr};
    // What others do may stay unseen for longer than this takes.
    let unseen = std::time::Duration::from_secs(100);
    let options = || Options { unseen, ..Options::default() };
    let ws = super::workspace();
    let paths = Paths::new(FileSystem::new(ws.clone(), options()));
    let (fs, w) = (paths.file_system(), paths.walker(&ROOT));
    let root = fs.root();
    let name = |n: usize| format!("d/{n}").into_bytes();
    w.mkdir(&root, b"d", 0o755).unwrap();
    for n in 0..300 {
        drop(w.open(&root, &name(n), &MAKE).unwrap());
    }
    let d = w.find(&root, b"d", true).unwrap().0;
    let check = |n: usize| {
        let now = fs.lookup(&d, n.to_string().as_bytes()).map(|(node, attributes)| (node.uuid(), attributes));
        let found = w.find(&root, &name(n), false).map(|(node, attributes)| (node.uuid(), attributes));
        match (now, found) {
            (Ok(now), Ok(found)) => assert_eq!(now, found, "{n}"),
            (Err(now), Err(found)) => assert_eq!(Stop::Failed(now), found, "{n}"),
            other => panic!("{n}: {other:?}"),
        }
    };
    let list = || {
        let dir = Directory::open(&d).unwrap();
        assert_eq!(dir.entries(0, usize::MAX).unwrap().len(), 300);
        paths.reads(&dir);
        (0..300).for_each(check);
    };
    list();
    let write = |n: usize, bytes: &[u8]| {
        let Opened::File(file, _) = w.open(&root, &name(n), &MAKE).unwrap() else { panic!("a file") };
        file.write(0, bytes).unwrap();
        check(n);
        file
    };
    let open = write(0, b"abc");
    write(1, b"abcd").close().unwrap();
    check(1);
    let node = |n: usize| w.find(&root, &name(n), true).unwrap().0;
    w.change(&node(2), &Change { mode: Some(0o600), ..Change::default() }).unwrap();
    w.change(&node(3), &Change { size: Some(100), ..Change::default() }).unwrap();
    node(4).set_xattr(b"user.a", b"b", SetXattr::Either).unwrap();
    w.link(&node(5), &root, b"hard").unwrap();
    (0..6).for_each(check);
    w.unlink(&root, b"hard").unwrap();
    check(5);
    w.unlink(&root, &name(6)).unwrap();
    let rename = |from: usize, to: usize, how: Rename| rename(&w, &name(from), &name(to), how).unwrap();
    rename(7, 8, Rename::Replace);
    rename(9, 10, Rename::Exchange);
    rename(11, 6, Rename::NoReplace);
    (0..12).for_each(check);
    drop(w.open(&root, &name(11), &MAKE).unwrap());
    drop(w.open(&root, &name(7), &MAKE).unwrap());
    drop(open);
    (0..300).for_each(check);
    list();
    // What somebody else does is seen with the next lock, at the latest; what is to be new is, whatever was remembered.
    let other = FileSystem::new(ws, Options::default());
    let there = other.lookup(&other.root(), b"d").unwrap().0;
    for n in [20, 21, 22] {
        other.unlink(&there, n.to_string().as_bytes()).unwrap();
    }
    assert!(w.find(&root, &name(20), true).is_ok(), "remembered");
    drop(w.open(&root, &name(21), &How { exclusive: true, ..MAKE }).unwrap());
    w.mkdir(&root, &name(22), 0o700).unwrap();
    assert_eq!(failed(w.open(&root, &name(20), &READ)), Errno::ENOENT);
    other.unlink(&there, b"23").unwrap();
    paths.refresh();
    assert_eq!(failed(w.find(&root, &name(23), true)), Errno::ENOENT);
}

#[test]
fn who_looks_at_many_names_is_told_of_more_with_each() {
    let ws = workspace();
    let other = FileSystem::new(again(&ws), Options::default());
    let (dir, _) = other.mkdir(&other.root(), b"d", born(0o755)).unwrap();
    for n in 0..600 {
        put(&other, &dir, format!("f{n}").as_bytes(), &vec![b'x'; n]);
    }
    other.mkdir(&dir, b"f7d", born(0o700)).unwrap();
    other.symlink(&dir, b"f7l", b"f7", born(0o777)).unwrap();
    let unseen = std::time::Duration::from_secs(3600);
    let paths = Paths::new(FileSystem::new(ws.clone(), Options { unseen, ..Options::default() }));
    let (root, w) = (paths.file_system().root(), paths.walker(&ROOT));
    let before = asked(&ws);
    let mut all: Vec<String> = (0..600).map(|n| format!("f{n}")).collect();
    all.extend(["f7d".into(), "f7l".into()]);
    for name in &all {
        let (node, attributes) = w.find(&root, format!("d/{name}").as_bytes(), false).unwrap();
        let (alone, expected) = other.lookup(&dir, name.as_bytes()).unwrap();
        assert_eq!((node.uuid(), attributes), (alone.uuid(), expected), "{name}");
    }
    assert!(asked(&ws) - before < 80, "{}", asked(&ws) - before);
    // What is done here is seen, whatever came along before.
    let fresh = Paths::new(FileSystem::new(ws, Options { unseen, ..Options::default() }));
    let (root, w) = (fresh.file_system().root(), fresh.walker(&ROOT));
    for name in ["d/f10", "d/f11", "d/f12", "d/f13", "d/f14"] {
        w.find(&root, name.as_bytes(), true).unwrap();
    }
    let node = w.find(&root, b"d/f15", true).unwrap().0;
    w.change(&node, &Change { mode: Some(0o600), ..Change::default() }).unwrap();
    assert_eq!(w.find(&root, b"d/f15", true).unwrap().1.mode, 0o600);
    let Opened::File(file, _) = w.open(&root, b"d/f16", &MAKE).unwrap() else { panic!() };
    file.write(0, &[0; 5000]).unwrap();
    assert_eq!(w.find(&root, b"d/f16", true).unwrap().1.size, 5000);
    file.close().unwrap();
    assert_eq!(w.find(&root, b"d/f16", true).unwrap().1.size, 5000);
    w.unlink(&root, b"d/f17").unwrap();
    rename(&w, b"d/f18", b"d/f17", Rename::Replace).unwrap();
    assert_eq!(w.find(&root, b"d/f17", true).unwrap().1.size, 18);
    assert_eq!(failed(w.find(&root, b"d/f18", true)), Errno::ENOENT);
}

#[test]
fn a_file_goes_in_one_request_and_what_it_was_is_told() {
    let ws = workspace();
    let other = FileSystem::new(again(&ws), Options::default());
    let unseen = std::time::Duration::from_secs(3600);
    let paths = Paths::new(FileSystem::new(ws.clone(), Options { unseen, ..Options::default() }));
    let (root, w) = (paths.file_system().root(), paths.walker(&ROOT));
    w.mkdir(&root, b"d", 0o777).unwrap();
    let there = other.lookup(&other.root(), b"d").unwrap().0;
    let file = put(&other, &there, b"f", b"some bytes");
    other.link(&file, &there, b"g").unwrap();
    other.symlink(&there, b"l", b"f", born(0o777)).unwrap();
    other.mkdir(&there, b"sub", born(0o700)).unwrap();
    w.find(&root, b"d", true).unwrap();
    let before = asked(&ws);
    let gone = |path: &[u8]| w.unlink(&root, path).map(|gone| (gone.uuid, gone.kind, gone.links));
    assert_eq!(gone(b"d/g"), Ok((file.uuid(), Kind::File, 1)));
    assert_eq!(
        gone(b"d/l").map(|(_, kind, links)| (kind, links)),
        Ok((Kind::Symlink, 0)),
        "itself, not what it leads to"
    );
    assert_eq!(gone(b"d/f"), Ok((file.uuid(), Kind::File, 0)));
    assert_eq!(asked(&ws) - before, 3);
    assert_eq!(failed(gone(b"d/f")), Errno::ENOENT);
    assert_eq!(failed(gone(b"d/sub")), Errno::EISDIR);
    assert_eq!(failed(gone(b"d/sub/")), Errno::EISDIR);
    assert_eq!(failed(gone(b"d/f/")), Errno::ENOENT);
    assert_eq!(failed(gone(b"d/.")), Errno::EISDIR);
    // Where it matters whose it is, that is looked at.
    let sticky = Change { mode: Some(0o1777), ..Change::default() };
    w.change(&w.find(&root, b"d", true).unwrap().0, &sticky).unwrap();
    w.change(&root, &Change { mode: Some(0o755), ..Change::default() }).unwrap();
    let (one, two) = (user(1000), user(1001));
    drop(paths.walker(&one).open(&root, b"d/his", &MAKE).unwrap());
    assert_eq!(failed(paths.walker(&two).unlink(&root, b"d/his")), Errno::EPERM);
    assert_eq!(failed(paths.walker(&two).unlink(&root, b"d/none")), Errno::ENOENT);
    paths.walker(&one).unlink(&root, b"d/his").unwrap();
    w.change(&w.find(&root, b"d", true).unwrap().0, &Change { mode: Some(0o755), ..Change::default() }).unwrap();
    drop(w.open(&root, b"d/his", &MAKE).unwrap());
    assert_eq!(failed(paths.walker(&one).unlink(&root, b"d/his")), Errno::EACCES);
    assert_eq!(failed(paths.walker(&one).unlink(&root, b"d/none")), Errno::ENOENT, "that is said first");
}

#[test]
fn what_is_wrong_is_said_in_the_order_of_linux() {
    let paths = tree();
    let root = paths.file_system().root();
    let w = paths.walker(&ROOT);
    let rename = |from: &[u8], to: &[u8]| rename(&w, from, to, Rename::Replace);
    // In the place of a directory that it is in.
    assert_eq!(failed(rename(b"d/e/f", b"d/e")), Errno::ENOTEMPTY);
    assert_eq!(failed(rename(b"d/e/f", b"d")), Errno::ENOTEMPTY);
    assert_eq!(failed(rename(b"d/e", b"d")), Errno::ENOTEMPTY);
    assert_eq!(failed(rename(b"link", b"d/e")), Errno::EISDIR);
    // A link is no directory, wherever it leads.
    assert_eq!(failed(rename(b"d/e/f", b"d/up/")), Errno::ENOTDIR);
    assert_eq!(failed(rename(b"d/e/f", b"d/e/")), Errno::ENOTDIR);
    for (path, e) in [(&b"new/"[..], Errno::EISDIR), (b"link/", Errno::EISDIR), (b"no/new/", Errno::ENOENT)] {
        assert_eq!(failed(w.open(&root, path, &MAKE)), e, "{path:?}");
    }
    for (path, e) in [
        (&b"d/e/.."[..], Errno::ENOTEMPTY),
        (b"d/no/..", Errno::ENOENT),
        (b"d/e/f/..//", Errno::ENOTDIR),
        (b"..", Errno::ENOTEMPTY),
        (b"d/.", Errno::EINVAL),
        (b"no/./", Errno::ENOENT),
        (b"link/.", Errno::ENOTDIR),
        (b".", Errno::EINVAL),
    ] {
        assert_eq!(failed(w.rmdir(&root, path)), e, "{path:?}");
    }
    let (dir, _) = w.find(&root, b"d/e", true).unwrap();
    assert_eq!(failed(w.link(&dir, &root, b"link")), Errno::EEXIST);
    assert_eq!(failed(w.link(&dir, &root, b"new")), Errno::EPERM);
    for path in [&b"new"[..], b"d", b"link"] {
        assert_eq!(failed(w.open(&root, path, &How { directory: true, ..MAKE })), Errno::EINVAL, "{path:?}");
    }
    assert!(w.last(&root, b"new").unwrap().1.is_none());
}
