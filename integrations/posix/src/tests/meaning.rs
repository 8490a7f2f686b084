//! Names, attributes, links, extended attributes.

use super::*;
use crate::{Change, Directory, Errno, Kind, Rename, Rule, SetTime, SetXattr};

#[test]
fn names_are_bytes_of_up_to_255() {
    let fs = file_system();
    let root = fs.root();
    for name in [&[0xff, 0xfe][..], &[b'a'; 255], b" ", "größe".as_bytes()] {
        put(&fs, &root, name, b"x");
        assert_eq!(get(&fs.lookup(&root, name).unwrap().0), b"x");
    }
    let create = |name: &[u8]| fs.create(&root, name, born(0o644), WRITE).map(drop).unwrap_err();
    assert_eq!(create(&[b'a'; 256]), Errno::ENAMETOOLONG);
    assert_eq!(create(b""), Errno::ENOENT);
    assert_eq!(create(b"a/b"), Errno::EINVAL);
    assert_eq!(create(b" "), Errno::EEXIST);
    assert_eq!(fs.lookup(&root, b"none").unwrap_err(), Errno::ENOENT);
    let file = fs.lookup(&root, b" ").unwrap().0;
    assert_eq!(fs.lookup(&file, b"below").unwrap_err(), Errno::ENOTDIR);
}

#[test]
fn what_is_born_has_mode_and_owner() {
    let fs = file_system();
    let root = fs.root();
    let (node, a) = fs.mkdir(&root, b"d", born(0o2750)).unwrap();
    assert_eq!((a.kind, a.mode, a.links, a.uid), (Kind::Directory, 0o2750, 1, ioverbs::caller().uid));
    let (_, below) = fs.mkdir(&node, b"e", born(0o700)).unwrap();
    assert_eq!((below.mode, below.gid), (0o2700, a.gid), "the group and its bit are inherited");
    let (file, _, a) = fs.create(&node, b"f", born(0o600), WRITE).unwrap();
    assert_eq!((a.kind, a.mode, a.links, a.size, a.gid), (Kind::File, 0o600, 1, 0, below.gid));
    assert_eq!(file.node().attributes().unwrap().ino, a.ino);
}

#[test]
fn a_file_that_is_given_away_or_changed_loses_the_rights_of_who_had_it() {
    let fs = file_system();
    let root = fs.root();
    let node = put(&fs, &root, b"f", b"one");
    let set = |mode| node.change(&Change { mode: Some(mode), ..Change::default() }).unwrap().mode;
    let given = || node.change(&Change { uid: Some(4711), ..Change::default() }).unwrap();
    assert_eq!((set(0o6755), given().mode, given().uid), (0o6755, 0o755, 4711));
    assert_eq!((set(0o2644), given().mode), (0o2644, 0o2644), "without the right to run it: mandatory locks, once");
    let said = Change { mode: Some(0o4755), gid: Some(4712), ..Change::default() };
    assert_eq!(node.change(&said).unwrap().mode, 0o4755, "whoever says both means both");
    assert_eq!((node.lower_rights(), node.lower_rights()), (Ok(true), Ok(false)));
    assert_eq!(node.attributes().unwrap().mode, 0o755);
    // Also where the store has not been told of the file yet.
    let (file, _, _) = fs.create(&root, b"new", born(0o4755), WRITE).unwrap();
    let away = file.node().change(&Change { uid: Some(4711), ..Change::default() }).unwrap();
    assert_eq!((away.mode, away.uid), (0o755, 4711));
    let (folder, _) = fs.mkdir(&root, b"d", born(0o2755)).unwrap();
    assert_eq!(folder.change(&Change { uid: Some(4711), ..Change::default() }).unwrap().mode, 0o2755);
}

#[test]
fn hard_links_are_one_file() {
    let fs = file_system();
    let (root, node) = (fs.root(), put(&fs, &fs.root(), b"a", b"one"));
    let dir = fs.mkdir(&root, b"d", born(0o755)).unwrap().0;
    assert_eq!(fs.link(&node, &dir, b"b").unwrap().links, 2);
    assert!(fs.lookup(&dir, b"b").unwrap().0.is(&node));
    assert_eq!(fs.link(&node, &dir, b"b").unwrap_err(), Errno::EEXIST);
    assert_eq!(fs.link(&dir, &root, b"x").unwrap_err(), Errno::EPERM);
    fs.unlink(&root, b"a").unwrap();
    assert_eq!(fs.lookup(&dir, b"b").unwrap().1.links, 1);
    assert_eq!(get(&node), b"one");
}

#[test]
fn a_rename_replaces_exchanges_or_refuses() {
    let fs = file_system();
    let root = fs.root();
    let (a, b) = (put(&fs, &root, b"a", b"A"), put(&fs, &root, b"b", b"B"));
    let rename = |from: &[u8], to: &[u8], how| fs.rename((&root, from), (&root, to), how);
    assert_eq!(rename(b"a", b"b", Rename::NoReplace).unwrap_err(), Errno::EEXIST);
    rename(b"a", b"b", Rename::Exchange).unwrap();
    assert!(fs.lookup(&root, b"a").unwrap().0.is(&b) && fs.lookup(&root, b"b").unwrap().0.is(&a));
    let open = File::open(&b, READ).unwrap().0;
    rename(b"b", b"a", Rename::Replace).unwrap();
    assert!(fs.lookup(&root, b"a").unwrap().0.is(&a));
    let mut byte = [0];
    assert_eq!((open.read(0, &mut byte).unwrap(), byte), (1, *b"B"), "who has it open goes on with it");
    assert_eq!(rename(b"none", b"x", Rename::Replace).unwrap_err(), Errno::ENOENT);
    let (d, e) = (fs.mkdir(&root, b"d", born(0o755)).unwrap().0, fs.mkdir(&root, b"e", born(0o755)).unwrap().0);
    put(&fs, &e, b"in", b"");
    assert_eq!(rename(b"d", b"e", Rename::Replace).unwrap_err(), Errno::ENOTEMPTY);
    assert_eq!(fs.rename((&root, b"d"), (&d, b"x"), Rename::Replace).unwrap_err(), Errno::EINVAL);
    rename(b"e", b"d", Rename::Replace).unwrap();
    assert_eq!(names(&e), ["in"]);
    assert_eq!(fs.rmdir(&root, b"d").unwrap_err(), Errno::ENOTEMPTY);
}

#[test]
fn symbolic_links_keep_their_target() {
    let fs = file_system();
    let root = fs.root();
    for target in [&b"../x"[..], &[0xff, b'/'], &[b'a'; 4095]] {
        let (node, a) = fs.symlink(&root, b"l", target, born(0o600)).unwrap();
        assert_eq!((a.kind, a.mode, a.size), (Kind::Symlink, 0o777, target.len() as u64));
        assert_eq!(node.read_link().unwrap(), target);
        drop(node);
        // Anew, from the store.
        let node = fs.lookup(&root, b"l").unwrap().0;
        assert_eq!((node.kind(), node.read_link().unwrap()), (Kind::Symlink, target.to_vec()));
        assert_eq!(File::open(&node, READ).unwrap_err(), Errno::ELOOP);
        fs.unlink(&root, b"l").unwrap();
    }
    assert_eq!(fs.symlink(&root, b"l", &[b'a'; 4096], born(0)).unwrap_err(), Errno::ENAMETOOLONG);
    assert_eq!(fs.symlink(&root, b"l", b"", born(0)).unwrap_err(), Errno::ENOENT);
}

#[test]
fn pipes_sockets_and_devices_keep_their_kind() {
    let fs = file_system();
    let root = fs.root();
    for (kind, rdev) in [(Kind::Fifo, 0), (Kind::Socket, 0), (Kind::CharDevice, 0x103), (Kind::BlockDevice, 0x800)] {
        fs.mknod(&root, b"n", kind, rdev, born(0o640)).unwrap();
        let (node, a) = fs.lookup(&root, b"n").unwrap();
        assert_eq!((node.kind(), a.kind, a.mode, a.rdev), (kind, kind, 0o640, rdev));
        assert_eq!(node.change(&Change { mode: Some(0o600), ..Change::default() }).unwrap().kind, kind);
        assert_eq!(node.xattrs().unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(File::open(&node, READ).unwrap_err(), Errno::ENXIO);
        fs.unlink(&root, b"n").unwrap();
    }
}

#[test]
fn times_are_as_posix_has_them() {
    let fs = file_system();
    let (root, node) = (fs.root(), put(&fs, &fs.root(), b"a", b"one"));
    let set = |atime, mtime| node.change(&Change { atime, mtime, ..Change::default() }).unwrap();
    let a = set(Some(SetTime::At(-5)), Some(SetTime::At(7)));
    assert_eq!((a.atime_ns, a.mtime_ns), (-5, 7));
    assert!(a.ctime_ns > 1_000_000_000, "nobody sets that");
    let later = set(Some(SetTime::Now), None);
    assert!(later.atime_ns > 1_000_000_000 && later.mtime_ns == 7 && later.ctime_ns > a.ctime_ns);
    let file = File::open(&node, WRITE).unwrap().0;
    file.write(0, b"two").unwrap();
    let written = node.attributes().unwrap();
    assert!(written.mtime_ns > 7 && written.ctime_ns >= written.mtime_ns.max(later.ctime_ns));
    let moved = |what: &dyn Fn()| {
        let before = root.attributes().unwrap();
        what();
        let after = root.attributes().unwrap();
        (after.mtime_ns > before.mtime_ns, after.ctime_ns > before.ctime_ns)
    };
    assert_eq!(moved(&|| drop(put(&fs, &root, b"b", b""))), (true, true), "made");
    assert_eq!(moved(&|| fs.rename((&root, b"b"), (&root, b"c"), Rename::Replace).unwrap()), (true, true), "moved");
    assert_eq!(moved(&|| fs.unlink(&root, b"c").unwrap()), (true, true), "taken away");
    assert_eq!(moved(&|| drop(get(&node))), (false, false), "read");
    let dir = fs.mkdir(&root, b"d", born(0o755)).unwrap().0;
    put(&fs, &dir, b"x", b"");
    let a = dir.change(&Change { mtime: Some(SetTime::At(9)), ..Change::default() }).unwrap();
    assert_eq!((a.mtime_ns, dir.attributes().unwrap().mtime_ns), (9, 9), "what is set holds until the next name");
    put(&fs, &dir, b"y", b"");
    assert!(dir.attributes().unwrap().mtime_ns > 9);
}

#[test]
fn what_was_told_of_a_directory_is_what_it_is() {
    let fs = file_system();
    let (root, hour) = (fs.root(), std::time::Duration::from_secs(3600));
    let dir = fs.mkdir(&root, b"d", born(0o755)).unwrap().0;
    let told = |node: &Node| node.told_within(hour).map(|(told, _)| told);
    let work: [&dyn Fn(); 7] = [
        &|| drop(put(&fs, &dir, b"a", b"x")),
        &|| drop(fs.mkdir(&dir, b"e", born(0o755)).unwrap()),
        &|| drop(fs.mknod(&dir, b"p", Kind::Fifo, 0, born(0o644)).unwrap()),
        &|| fs.rename((&dir, b"a"), (&root, b"b"), Rename::Replace).unwrap(),
        &|| fs.rename((&root, b"b"), (&dir, b"c"), Rename::Replace).unwrap(),
        &|| fs.unlink(&dir, b"c").unwrap(),
        &|| fs.rmdir(&dir, b"e").unwrap(),
    ];
    for (i, work) in work.iter().enumerate() {
        let before = dir.attributes().unwrap();
        work();
        let known = told(&dir).unwrap();
        assert!(known.mtime_ns > before.mtime_ns, "{i}");
        assert_eq!(known, dir.attributes().unwrap(), "{i}: as the store has it");
        assert!(told(&root).is_none_or(|known| known == root.attributes().unwrap()), "{i}");
    }
    assert!(dir.told_within(std::time::Duration::ZERO).is_none(), "strict mounts take nothing for true");
    // What fails, and what does not say, is asked for.
    let node = put(&fs, &root, b"f", b"");
    fs.link(&node, &dir, b"l").unwrap();
    fs.symlink(&dir, b"s", b"l", born(0o777)).unwrap();
    assert!(told(&dir).is_none());
    let changed = dir.change(&Change { mtime: Some(SetTime::At(5)), ..Change::default() }).unwrap();
    assert_eq!(told(&dir), Some(changed));
}

#[test]
fn directory_streams_show_one_moment() {
    let fs = file_system();
    let root = fs.root();
    let all: Vec<String> = (0..2500).map(|i| format!("{i:04}")).collect();
    all.iter().for_each(|name| drop(fs.mknod(&root, name.as_bytes(), Kind::File, 0, born(0o644)).unwrap()));
    let stream = Directory::open(&root).unwrap();
    let first = stream.entries(0, 10).unwrap();
    assert_eq!(first.len(), 10);
    for name in &all[..2000] {
        fs.unlink(&root, name.as_bytes()).unwrap();
    }
    put(&fs, &root, b"new", b"");
    let mut seen: Vec<String> =
        stream.entries(0, 9999).unwrap().iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect();
    seen.sort();
    assert_eq!(seen, all, "each once, whatever happened meanwhile");
    assert_eq!(stream.entry(7).unwrap(), stream.entries(7, 1).unwrap().pop(), "positions stay");
    let facts = stream.with_attributes(&stream.entries(0, 2500).unwrap()).unwrap();
    assert_eq!(facts.iter().flatten().count(), 500, "what has gone has none");
    stream.rewind();
    assert_eq!(stream.entries(0, 9999).unwrap().len(), 501);
    assert!(stream.entry(501).unwrap().is_none());
}

#[test]
fn extended_attributes_are_metadata() {
    let fs = file_system();
    let (root, node) = (fs.root(), put(&fs, &fs.root(), b"a", b"1234567"));
    let set = |node: &Node, name: &[u8], value: &[u8]| node.set_xattr(name, value, SetXattr::Either);
    set(&node, b"user.text", b"x").unwrap();
    set(&node, b"user.bytes", &[0xff, 0]).unwrap();
    set(&root, b"user.of-a-directory", b"").unwrap();
    assert_eq!(node.xattr(b"user.bytes").unwrap(), [0xff, 0]);
    assert_eq!(root.xattr(b"user.of-a-directory").unwrap(), b"");
    let mut names = node.xattrs().unwrap();
    names.sort();
    assert_eq!(names, [b"user.bytes".to_vec(), b"user.text".to_vec()]);
    assert_eq!(node.xattr(b"user.none").unwrap_err(), Errno::ENODATA);
    assert_eq!(node.xattr(b"user.iov.size").unwrap(), b"7");
    assert_eq!(set(&node, b"user.iov.size", b"8").unwrap_err(), Errno::EPERM);
    assert_eq!(set(&node, b"security.selinux", b"").unwrap_err(), Errno::EOPNOTSUPP);
    assert_eq!(node.set_xattr(b"user.text", b"y", SetXattr::Create).unwrap_err(), Errno::EEXIST);
    assert_eq!(node.set_xattr(b"user.new", b"y", SetXattr::Replace).unwrap_err(), Errno::ENODATA);
    assert_eq!(set(&node, b"user.large", &vec![b'x'; (1 << 20) + 1]).unwrap_err(), Errno::E2BIG);
    node.remove_xattr(b"user.text").unwrap();
    assert_eq!(node.remove_xattr(b"user.text").unwrap_err(), Errno::ENODATA);

    // A number stays one, so that searches go on to find it.
    let c = ioverbs::lookup(fs.workspace(), None, "a", Default::default()).unwrap();
    let mut pairs = ioverbs::Metadata::new();
    pairs.set("temperature", ioverbs::Value::I64(310)).unwrap();
    pairs.set("since", ioverbs::Value::Time(1)).unwrap();
    ioverbs::run(c.session(), ioverbs::Op::MetaPut { c: c.clone(), pairs }).unwrap();
    assert_eq!(node.xattr(b"user.temperature").unwrap(), b"310");
    set(&node, b"user.temperature", b"311").unwrap();
    set(&node, b"user.since", b"2").unwrap();
    for (key, value) in [("temperature", ioverbs::Value::I64(311)), ("since", ioverbs::Value::Time(2))] {
        let get = ioverbs::Op::MetaGet { c: c.clone(), key: key.into() };
        assert_eq!(ioverbs::run(c.session(), get).unwrap().output, ioverbs::Output::Value(value));
    }
}

#[test]
fn nothing_changes_where_nothing_may() {
    let ws = workspace();
    let writable = FileSystem::new(ws.clone(), Options::default());
    put(&writable, &writable.root(), b"a", b"x");
    let fs = FileSystem::new(ws, Options { readonly: true, ..Options::default() });
    let root = fs.root();
    let node = fs.lookup(&root, b"a").unwrap().0;
    assert_eq!(get(&node), b"x");
    let refused = [
        fs.create(&root, b"b", born(0o644), WRITE).map(drop),
        fs.mkdir(&root, b"d", born(0o755)).map(drop),
        fs.unlink(&root, b"a"),
        fs.rename((&root, b"a"), (&root, b"b"), Rename::Replace),
        fs.link(&node, &root, b"b").map(drop),
        fs.symlink(&root, b"l", b"a", born(0o777)).map(drop),
        node.change(&Change { mode: Some(0), ..Change::default() }).map(drop),
        node.set_xattr(b"user.x", b"", SetXattr::Either),
        File::open(&node, WRITE).map(drop),
    ];
    assert!(refused.iter().all(|outcome| *outcome == Err(Errno::EROFS)), "{refused:?}");
}

#[test]
fn rules_say_what_is_promised_where() {
    let rules = [
        "/ck/**=spatiality=random",
        "/ck/*/log=mutability=append,consistency=commit",
        "/**/x=consistency=eventual(1s)",
    ];
    let rules = rules.map(|rule| Rule::parse(rule).unwrap()).to_vec();
    let fs = FileSystem::new(workspace(), Options { rules, ..Options::default() });
    let root = fs.root();
    let dir = |parent: &Node, name: &[u8]| fs.mkdir(parent, name, born(0o755)).unwrap().0;
    let (ck, other) = (dir(&root, b"ck"), dir(&root, b"other"));
    let (run, deep) = (dir(&ck, b"run"), dir(&other, b"deep"));
    let made = |parent: &Node, name: &[u8]| {
        let file = fs.create(parent, name, born(0o644), WRITE).unwrap().0;
        let effective = file.collection().unwrap().effective().unwrap();
        fs.unlink(parent, name).unwrap();
        (effective.consistency, effective.mutability, effective.spatiality)
    };
    use ioverbs::{Consistency::*, Mutability::*, Spatiality::*};
    assert_eq!(made(&root, b"a"), (Session, Overwrite, Any));
    assert_eq!(made(&ck, b"a"), (Session, Overwrite, Random));
    assert_eq!(made(&run, b"log"), (Commit, Append, Random), "the last that says something");
    assert_eq!(made(&dir(&run, b"deeper"), b"log"), (Session, Overwrite, Random), "* stays within a name");
    assert_eq!(made(&deep, b"x"), (Eventual, Overwrite, Any));
    // What the store cannot give it refuses, also by a rule.
    let rules = vec![Rule::parse("/**=checkpoint").unwrap()];
    let durable = FileSystem::new(fs.workspace().clone(), Options { rules, ..Options::default() });
    assert_eq!(durable.create(&durable.root(), b"d", born(0o644), WRITE).map(drop).unwrap_err(), Errno::EOPNOTSUPP);
    // What is moved is elsewhere.
    fs.rename((&other, b"deep"), (&ck, b"moved"), Rename::Replace).unwrap();
    assert_eq!(made(&deep, b"log"), (Commit, Append, Random));
    fs.rename((&ck, b"moved"), (&root, b"out"), Rename::Replace).unwrap();
    assert_eq!(made(&deep, b"log"), (Session, Overwrite, Any));
    for wrong in ["", "/a", "a=checkpoint", "/a=none", "/[=checkpoint", "/a=consistency=none"] {
        assert_eq!(Rule::parse(wrong).map(drop).unwrap_err().kind(), ioverbs::Kind::Invalid, "{wrong}");
    }
}

#[test]
fn numbers_of_files_differ_and_stay() {
    let fs = file_system();
    let root = fs.root();
    let mut seen = std::collections::HashSet::from([root.ino()]);
    for i in 0..1000 {
        let a = fs.mknod(&root, format!("{i}").as_bytes(), Kind::File, 0, born(0o644)).unwrap().1;
        assert!(seen.insert(a.ino) && a.ino > 1 && i64::try_from(a.ino).is_ok());
        assert_eq!(fs.lookup(&root, format!("{i}").as_bytes()).unwrap().1.ino, a.ino);
    }
    assert_eq!(root.ino(), 1);
}

#[test]
fn directories_say_what_is_promised_of_the_files_below_them() {
    let ws = workspace();
    let fs = FileSystem::new(ws.clone(), Options::default());
    use ioverbs::{Consistency::*, Spatiality::*};
    let made = |fs: &FileSystem, dir: &Node| {
        let file = fs.create(dir, b"new", born(0o644), WRITE).unwrap().0;
        let effective = file.collection().unwrap().effective().unwrap();
        fs.unlink(dir, b"new").unwrap();
        (effective.consistency, effective.spatiality)
    };
    let top = fs.mkdir(&fs.root(), b"top", born(0o755)).unwrap().0;
    let below = fs.mkdir(&top, b"below", born(0o755)).unwrap().0;
    assert_eq!(made(&fs, &below), (Session, Any));
    let set = |dir: &Node, value: &str| dir.set_xattr(b"user.posix.controls", value.as_bytes(), SetXattr::Either);
    set(&top, "consistency=commit,spatiality=random").unwrap();
    assert_eq!(made(&fs, &below), (Commit, Random));
    assert_eq!(made(&fs, &fs.root()), (Session, Any));
    // The nearest comes first, and another file system hears of it.
    set(&below, "consistency=sequential").unwrap();
    let other = FileSystem::new(again(&ws), Options::default());
    let top_there = other.lookup(&other.root(), b"top").unwrap().0;
    let below_there = other.lookup(&top_there, b"below").unwrap().0;
    assert_eq!((made(&fs, &below), made(&other, &below_there)), ((Sequential, Random), (Sequential, Random)));
    // What a file system was told goes before.
    let rules = vec![Rule::parse("/top/**=consistency=eventual(1s)").unwrap()];
    let ruled = FileSystem::new(again(&ws), Options { rules, ..Options::default() });
    let top_there = ruled.lookup(&ruled.root(), b"top").unwrap().0;
    assert_eq!(made(&ruled, &top_there), (Eventual, Random));
    assert_eq!(below.xattr(b"user.posix.controls").unwrap(), b"consistency=sequential");
    below.remove_xattr(b"user.posix.controls").unwrap();
    assert_eq!(made(&fs, &below), (Commit, Random));
    // What is moved hears of others.
    let aside = fs.mkdir(&fs.root(), b"aside", born(0o755)).unwrap().0;
    set(&aside, "consistency=sequential").unwrap();
    fs.rename((&top, b"below"), (&aside, b"below"), Rename::Replace).unwrap();
    assert_eq!(made(&fs, &below), (Sequential, Any));
    // What cannot be understood, or is said of a file, is refused.
    for wrong in ["atomicity=perhaps", "profile=none-such", "none-such", "colour=red"] {
        assert_eq!(set(&top, wrong), Err(Errno::EINVAL), "{wrong}");
    }
    let file = put(&fs, &top, b"file", b"");
    assert_eq!(set(&file, "spatiality=random"), Err(Errno::EINVAL));
    // Set past us it is met where it counts.
    let mut pairs = ioverbs::Metadata::new();
    pairs.set("posix.controls", ioverbs::Value::Str("atomicity=perhaps".into())).unwrap();
    top.with_handle("put", |c| vec![ioverbs::Op::MetaPut { c: c.clone(), pairs: pairs.clone() }]).unwrap();
    top.unsay();
    assert_eq!(fs.create(&top, b"never", born(0o644), WRITE).map(drop).unwrap_err(), Errno::EINVAL);
}

#[test]
fn attributes_of_a_directory_with_names_say_when_it_was_changed() {
    let fs = file_system();
    let (dir, made) = fs.mkdir(&fs.root(), b"d", born(0o755)).unwrap();
    let mut before = made.ctime_ns;
    let mut later = |what: &str| {
        // As the kernel is told, which asks for a directory often.
        let told =
            dir.told_within(std::time::Duration::from_secs(9)).map_or_else(|| dir.attributes().unwrap(), |t| t.0);
        assert!(told.ctime_ns > before, "{what}");
        before = told.ctime_ns;
    };
    dir.set_xattr(b"user.a", b"1", SetXattr::Either).unwrap();
    later("set");
    dir.set_xattr(b"user.a", b"2", SetXattr::Replace).unwrap();
    later("set again");
    dir.remove_xattr(b"user.a").unwrap();
    later("removed");
    fs.rmdir(&fs.root(), b"d").unwrap();
    assert_eq!(dir.attributes().unwrap_err(), Errno::ENOENT);
    let end = dir.told_at_the_end().unwrap();
    assert_eq!((end.links, end.mode, end.ctime_ns), (0, 0o755, before));
}
