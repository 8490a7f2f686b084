//! What is told the store later, and what it is not asked.

use ioverbs::seam;

use super::*;
use crate::{Change, Errno, Rename, Rule, SetTime, SetXattr};

/// How often the catalog was asked so far.
pub(super) fn asked(ws: &Workspace) -> u64 {
    let at = ioverbs::Counters::NAMES.iter().position(|n| *n == "metadata_requests").unwrap();
    ws.session().counters().snapshot()[at]
}

#[test]
fn what_is_not_in_a_new_directory_is_known_for_a_while() {
    let ws = workspace();
    let unseen = std::time::Duration::from_secs(3600);
    let fs = FileSystem::new(ws.clone(), Options { unseen, ..Options::default() });
    let dir = fs.mkdir(&fs.root(), b"d", born(0o755)).unwrap().0;
    let before = asked(&ws);
    assert_eq!(fs.lookup(&dir, b"a").unwrap_err(), Errno::ENOENT);
    assert_eq!(asked(&ws), before, "nobody was asked");
    // All ways to a name are known.
    let other = fs.mkdir(&fs.root(), b"e", born(0o755)).unwrap().0;
    let file = put(&fs, &dir, b"a", b"x");
    fs.link(&file, &dir, b"b").unwrap();
    fs.symlink(&dir, b"c", b"a", born(0o777)).unwrap();
    fs.mkdir(&dir, b"f", born(0o755)).unwrap();
    put(&fs, &other, b"g", b"");
    fs.rename((&other, b"g"), (&dir, b"h"), Rename::Replace).unwrap();
    put(&fs, &other, b"i", b"");
    fs.rename((&other, b"i"), (&dir, b"a"), Rename::Exchange).unwrap();
    for (parent, names) in [(&dir, &[&b"a"[..], b"b", b"c", b"f", b"h"][..]), (&other, &[b"i"])] {
        for name in names {
            assert!(fs.lookup(parent, name).is_ok(), "{name:?}");
        }
    }
    assert_eq!(fs.lookup(&other, b"g").unwrap_err(), Errno::ENOENT);
    fs.unlink(&dir, b"b").unwrap();
    assert_eq!(fs.lookup(&dir, b"b").unwrap_err(), Errno::ENOENT);
    // Who is not to miss anything asks each time.
    let careful = FileSystem::new(again(&ws), Options::default());
    let dir = careful.mkdir(&careful.root(), b"new", born(0o755)).unwrap().0;
    let (there, _) = fs.lookup(&fs.root(), b"new").unwrap();
    put(&fs, &there, b"x", b"");
    assert!(careful.lookup(&dir, b"x").is_ok());
}

#[test]
fn small_new_files_are_written_behind_and_nobody_notices() {
    let ws = workspace();
    let fs = FileSystem::new(ws.clone(), Options::default());
    let create = |name: &[u8]| fs.create(&fs.root(), name, born(0o644), WRITE).unwrap();
    let time = SetTime::At(1_000_000_007);
    // All of it is kept, and told with the close.
    let (file, node, first) = create(b"a");
    let before = asked(&ws);
    assert_eq!((file.write(0, b"hel").unwrap(), file.write(3, b"lo").unwrap()), (3, 2));
    let set = node.change(&Change { mode: Some(0o664), uid: Some(1), mtime: Some(time), ..Change::default() }).unwrap();
    assert_eq!((set.size, set.mode, set.uid, set.mtime_ns), (5, 0o664, 1, 1_000_000_007));
    assert!(set.ctime_ns >= first.ctime_ns && node.attributes().unwrap() == set);
    assert_eq!(asked(&ws), before, "nobody was asked");
    file.flush().unwrap();
    let told = node.attributes().unwrap();
    assert_eq!((told.size, told.mode, told.uid, told.mtime_ns), (5, 0o664, 1, 1_000_000_007));
    file.close().unwrap();
    assert_eq!(get(&node), b"hello");
    // Whatever looks at it before finds it.
    type Look = fn(&FileSystem, &File, &Arc<Node>);
    let looks: [Look; 8] = [
        |_, file, _| assert_eq!(file.read(0, &mut [0; 9]).unwrap(), 4),
        |_, file, _| assert_eq!(file.size().unwrap(), 4),
        |_, file, _| assert_eq!(file.seek(0, crate::Seek::Hole).unwrap(), 4),
        |_, _, node| assert_eq!(File::open(node, READ).unwrap().1.size, 4),
        |fs, _, node| assert_eq!(fs.lookup(&fs.root(), b"b").unwrap().1.size, node.attributes().unwrap().size),
        |_, file, _| file.truncate(4).unwrap(),
        |_, _, node| node.set_xattr(b"user.k", b"v", SetXattr::Create).unwrap(),
        |_, file, _| file.sync().unwrap(),
    ];
    for look in looks {
        let (file, node, _) = create(b"b");
        file.write(0, b"data").unwrap();
        look(&fs, &file, &node);
        file.write(4, b"+").unwrap();
        assert_eq!(node.attributes().unwrap().size, 5);
        file.close().unwrap();
        assert_eq!(get(&node), b"data+");
        fs.unlink(&fs.root(), b"b").unwrap();
    }
    // Bytes elsewhere, and many.
    let (file, node, _) = create(b"c");
    file.write(0, b"ab").unwrap();
    file.write(1, b"cd").unwrap();
    file.write(10, &[7; 70_000]).unwrap();
    file.close().unwrap();
    let mut expected = vec![0; 70_010];
    expected[..3].copy_from_slice(b"acd");
    expected[10..].fill(7);
    assert_eq!(get(&node), expected);
    // What becomes of its names is known.
    let (file, node, _) = create(b"d");
    file.write(0, b"x").unwrap();
    fs.link(&node, &fs.root(), b"e").unwrap();
    assert_eq!(node.attributes().unwrap().links, 2);
    let (other, gone, _) = create(b"f");
    other.write(0, b"yz").unwrap();
    fs.unlink(&fs.root(), b"f").unwrap();
    let a = gone.attributes().unwrap();
    assert_eq!((a.links, a.size), (0, 2));
    drop((file, other));
    // In a while it is told, whoever looks.
    let (file, node, _) = create(b"g");
    file.write(0, b"late").unwrap();
    let elsewhere = FileSystem::new(again(&ws), Options::default());
    let until = seam::monotonic_ns() + 30_000_000_000;
    while elsewhere.lookup(&elsewhere.root(), b"g").unwrap().1.size < 4 {
        assert!(seam::monotonic_ns() < until, "nobody was told");
        seam::sleep(10_000_000);
    }
    drop((file, node));
    // Where everybody is to see everything at once, it is told at once.
    let strict = FileSystem::new(again(&ws), Options { level: crate::Level::Strict, ..Options::default() });
    let (file, _, _) = strict.create(&strict.root(), b"h", born(0o644), WRITE).unwrap();
    file.write(0, b"now").unwrap();
    assert_eq!(fs.lookup(&fs.root(), b"h").unwrap().1.size, 3);
}

#[test]
fn who_writes_a_file_anew_tells_it_as_one_that_was_made() {
    let ws = workspace();
    let fs = FileSystem::new(ws.clone(), Options::default());
    let elsewhere = FileSystem::new(again(&ws), Options::default());
    let node = put(&fs, &fs.root(), b"a", b"before, and longer");
    let size_there = || elsewhere.lookup(&elsewhere.root(), b"a").unwrap().1.size;
    let anew = Flags { truncate: true, ..WRITE };
    let (file, attributes) = File::open(&node, anew).unwrap();
    // What was there goes at once, for everybody.
    assert_eq!((attributes.size, node.attributes().unwrap(), size_there()), (0, attributes, 0));
    let before = asked(&ws);
    assert_eq!((file.write(0, b"af").unwrap(), file.write(2, b"ter").unwrap()), (2, 3));
    let seen = node.attributes().unwrap();
    assert!(seen.size == 5 && seen.mtime_ns >= attributes.mtime_ns);
    assert_eq!(asked(&ws), before, "nobody was asked");
    file.close().unwrap();
    assert!(asked(&ws) - before <= 2, "the bytes, and what is behind them, in this store that keeps none in records");
    assert_eq!((get(&node), size_there(), node.attributes().unwrap().mtime_ns), (b"after".to_vec(), 5, seen.mtime_ns));
    // Nothing comes: the time that was seen stays.
    let (file, attributes) = File::open(&node, anew).unwrap();
    file.close().unwrap();
    let closed = node.attributes().unwrap();
    assert_eq!((closed.size, closed.mtime_ns), (0, attributes.mtime_ns));
    // Whose times only another one may set: the store has its own of when it was written.
    let own = node.attributes().unwrap().uid;
    node.change(&Change { uid: Some(own + 1), mtime: Some(SetTime::At(7)), ..Change::default() }).unwrap();
    let (file, _) = File::open(&node, anew).unwrap();
    file.write(0, b"theirs").unwrap();
    file.close().unwrap();
    assert!(get(&node) == b"theirs" && node.attributes().unwrap().mtime_ns > 7);
    node.change(&Change { uid: Some(own), ..Change::default() }).unwrap();
    // Others who have it open see each write, whoever came first.
    let (file, _) = File::open(&node, anew).unwrap();
    file.write(0, b"one").unwrap();
    let second = File::open(&node, READ).unwrap().0;
    let mut bytes = [0; 9];
    assert_eq!((second.read(0, &mut bytes).unwrap(), &bytes[..3]), (3, &b"one"[..]));
    file.write(3, b"two").unwrap();
    assert_eq!(second.read(0, &mut bytes).unwrap(), 6);
    let (third, _) = File::open(&node, anew).unwrap();
    assert_eq!((second.size().unwrap(), file.size().unwrap()), (0, 0));
    third.write(0, b"3").unwrap();
    assert_eq!((second.read(0, &mut bytes).unwrap(), bytes[0]), (1, b'3'));
    drop((file, second, third));
    // In a while it is told, whoever looks, and others write on behind it.
    let (file, _) = File::open(&node, anew).unwrap();
    file.write(0, b"late").unwrap();
    let until = seam::monotonic_ns() + 30_000_000_000;
    while size_there() < 4 {
        assert!(seam::monotonic_ns() < until, "nobody was told");
        seam::sleep(10_000_000);
    }
    let there = elsewhere.lookup(&elsewhere.root(), b"a").unwrap().0;
    let other = File::open(&there, WRITE).unwrap().0;
    other.append(b"r").unwrap();
    other.close().unwrap();
    file.close().unwrap();
    assert_eq!(get(&there), b"later");
    // Where everybody is to see everything at once, it is told at once.
    let strict = FileSystem::new(again(&ws), Options { level: crate::Level::Strict, ..Options::default() });
    let node = strict.lookup(&strict.root(), b"a").unwrap().0;
    let (file, _) = File::open(&node, anew).unwrap();
    file.write(0, b"now").unwrap();
    assert_eq!(size_there(), 3);
}

#[test]
fn the_rest_of_what_is_done_to_a_larger_new_file_is_told_with_its_close() {
    let ws = workspace();
    let fs = FileSystem::new(ws.clone(), Options::default());
    let elsewhere = FileSystem::new(again(&ws), Options::default());
    let there = |name: &[u8]| elsewhere.lookup(&elsewhere.root(), name).unwrap().1;
    let (file, node, _) = fs.create(&fs.root(), b"a", born(0o600), WRITE).unwrap();
    let bytes: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    let mut at = 0;
    for end in [60_000, 70_000, 70_001, 199_000, 200_000] {
        assert_eq!(file.write(at as u64, &bytes[at..end]).unwrap(), end - at);
        assert_eq!(node.attributes().unwrap().size, end as u64);
        at = end;
    }
    let written = node.attributes().unwrap();
    let before = asked(&ws);
    let set = |change| node.change(&change).unwrap();
    set(Change { uid: Some(7), gid: Some(8), ..Change::default() });
    set(Change { mtime: Some(SetTime::At(1_000_000_007)), atime: Some(SetTime::At(3)), ..Change::default() });
    let seen = set(Change { mode: Some(0o644), ..Change::default() });
    assert_eq!((seen.mode, seen.uid, seen.gid, seen.mtime_ns, seen.atime_ns), (0o644, 7, 8, 1_000_000_007, 3));
    assert_eq!((seen.size, node.attributes().unwrap()), (200_000, seen));
    assert!(written.blocks >= 200_000 / 512 && asked(&ws) == before, "nobody was asked");
    file.flush().unwrap();
    assert_eq!(asked(&ws) - before, 1);
    let told = there(b"a");
    assert_eq!((told.size, told.mode, told.uid, told.gid), (200_000, 0o644, 7, 8));
    assert_eq!((told.mtime_ns, told.atime_ns), (1_000_000_007, 3));
    file.close().unwrap();
    assert_eq!(get(&node), bytes);
    // What is written behind a time that was set has one of its own, which is the one that was seen.
    let (file, node, _) = fs.create(&fs.root(), b"b", born(0o644), WRITE).unwrap();
    file.write(0, &bytes[..100_000]).unwrap();
    node.change(&Change { mtime: Some(SetTime::At(7)), ..Change::default() }).unwrap();
    file.write(100_000, &bytes[100_000..]).unwrap();
    let seen = node.attributes().unwrap().mtime_ns;
    file.close().unwrap();
    assert!(seen >= written.mtime_ns && there(b"b").mtime_ns == seen && get(&node) == bytes);
    // Elsewhere than at its end, by an opening of somebody else, and by what is appended.
    let (file, node, _) = fs.create(&fs.root(), b"c", born(0o644), WRITE).unwrap();
    file.write(0, &bytes[..100_000]).unwrap();
    file.write(150_000, &bytes[150_000..]).unwrap();
    file.write(100_000, &bytes[100_000..150_000]).unwrap();
    assert_eq!(there(b"c").size, 200_000);
    File::open(&node, WRITE).unwrap().0.append(b"+").unwrap();
    assert_eq!((file.append(b"+").unwrap(), node.attributes().unwrap().size), (1, 200_002));
    file.close().unwrap();
    assert_eq!(get(&node), [&bytes[..], b"++"].concat());
    // Small pieces go together, and the last of them with what else is to be told.
    let (file, node, _) = fs.create(&fs.root(), b"e", born(0o644), WRITE).unwrap();
    let before = asked(&ws);
    for at in (0..200_000).step_by(1000) {
        file.write(at as u64, &bytes[at..at + 1000]).unwrap();
    }
    let sent = there(b"e").size;
    assert!(sent > 64 << 10 && sent < 200_000 && node.attributes().unwrap().size == 200_000, "{sent}");
    let asked_for_bytes = asked(&ws) - before;
    file.flush().unwrap();
    assert_eq!((asked(&ws) - before - asked_for_bytes, there(b"e").size), (1, 200_000));
    file.close().unwrap();
    assert_eq!(get(&node), bytes);
    // In a while it is told, whoever looks.
    let (file, node, _) = fs.create(&fs.root(), b"d", born(0o644), WRITE).unwrap();
    file.write(0, &bytes).unwrap();
    node.change(&Change { mode: Some(0o640), ..Change::default() }).unwrap();
    let until = seam::monotonic_ns() + 30_000_000_000;
    while there(b"d").mode != 0o640 {
        assert!(seam::monotonic_ns() < until, "nobody was told");
        seam::sleep(10_000_000);
    }
    drop(file);
}

#[test]
fn nobody_gets_bytes_of_a_new_file_that_he_may_not_have() {
    let ws = workspace();
    let fs = FileSystem::new(ws.clone(), Options::default());
    let elsewhere = FileSystem::new(again(&ws), Options::default());
    let there = |name: &[u8]| elsewhere.lookup(&elsewhere.root(), name).unwrap().1;
    let set = |node: &Node, change| node.change(&change).unwrap();
    let mode = |mode| Change { mode: Some(mode), ..Change::default() };
    // Before the bytes are there, and where they are at once if it takes rights away.
    let (file, node, _) = fs.create(&fs.root(), b"a", born(0o600), WRITE).unwrap();
    set(&node, mode(0o640));
    assert_eq!(there(b"a").mode, 0o600, "nobody may do less");
    file.write(0, &[1; 100_000]).unwrap();
    assert_eq!((there(b"a").mode, there(b"a").size), (0o640, 100_000));
    set(&node, mode(0o600));
    assert_eq!(there(b"a").mode, 0o600);
    file.close().unwrap();
    for (name, change) in [
        (b"b", mode(0o600)),
        (b"c", Change { gid: Some(77), ..Change::default() }),
        (b"d", Change { uid: Some(78), ..Change::default() }),
    ] {
        let born = Create { mode: 0o660, umask: 0, who: Who { uid: 5, gid: 6 } };
        let (file, node, _) = fs.create(&fs.root(), name, born, WRITE).unwrap();
        file.write(0, &[1; 100_000]).unwrap();
        let told = set(&node, change);
        let seen = there(name);
        assert_eq!((seen.mode, seen.uid, seen.gid), (told.mode, told.uid, told.gid), "{name:?}");
        file.close().unwrap();
    }
}

#[test]
fn what_does_not_fit_is_heard_of_as_it_is_written_and_what_was_written_before_stays() {
    let limits = ioverbs::Limits { min: 0, max: 50_000 };
    let controls = ioverbs::Controls { collection_size: limits, ..Default::default() };
    let fs = FileSystem::new(workspace(), Options { controls, ..Options::default() });
    let (file, node, _) = fs.create(&fs.root(), b"a", born(0o644), WRITE).unwrap();
    file.write(0, &[1; 40_000]).unwrap();
    assert_eq!(file.write(40_000, &[2; 40_000]), Err(Errno::EFBIG));
    assert_eq!(node.attributes().unwrap().size, 40_000);
    file.write(40_000, &[3; 10_000]).unwrap();
    file.close().unwrap();
    let bytes = get(&node);
    assert!(bytes.len() == 50_000 && bytes[..40_000] == [1; 40_000] && bytes[40_000..] == [3; 10_000]);
}

#[test]
fn a_directory_is_made_in_one_request() {
    let ws = workspace();
    let fs = FileSystem::new(ws.clone(), Options::default());
    let root = fs.root();
    root.attributes().unwrap();
    let before = asked(&ws);
    let (dir, made) = fs.mkdir(&root, b"d", born(0o700)).unwrap();
    assert_eq!((asked(&ws) - before, made.mode), (1, 0o700));
    assert_eq!(fs.mkdir(&root, b"d", born(0o700)).unwrap_err(), Errno::EEXIST);
    put(&fs, &dir, b"a", b"");
    assert_eq!(fs.lookup(&root, b"d").unwrap().1.uuid, made.uuid);
}

#[test]
fn what_cannot_be_told_is_heard_of_when_the_file_is_closed() {
    let ws = workspace();
    let fs = FileSystem::new(ws.clone(), Options::default());
    let quota = ioverbs::WorkspaceAttr { quota_bytes: Some(100), ..Default::default() };
    ioverbs::run(ws.session(), ioverbs::Op::WorkspaceSet { w: ws.clone(), attr: quota }).unwrap();
    let [file, second] = [b"a", b"b"].map(|name| fs.create(&fs.root(), name, born(0o644), WRITE).unwrap().0);
    file.write(0, &[1; 5000]).unwrap();
    assert_eq!(file.flush(), Err(Errno::EDQUOT));
    assert_eq!(file.flush(), Ok(()), "once");
    // Told without anybody there to hear of it, it is kept for who closes the file.
    let file = second;
    file.write(0, &[1; 5000]).unwrap();
    assert_eq!((file.sync(), file.sync()), (Err(Errno::EDQUOT), Err(Errno::EDQUOT)), "it is full");
    assert_eq!(file.flush(), Err(Errno::EDQUOT));
    assert_eq!((file.flush(), file.close()), (Ok(()), Ok(())));
    // What is there all the same is read.
    let quota = ioverbs::WorkspaceAttr { quota_bytes: Some(20_000), ..Default::default() };
    ioverbs::run(ws.session(), ioverbs::Op::WorkspaceSet { w: ws.clone(), attr: quota }).unwrap();
    let (file, node, _) = fs.create(&fs.root(), b"c", born(0o644), WRITE).unwrap();
    file.write(0, &[1; 15_000]).unwrap();
    assert_eq!((file.sync(), file.size(), file.read(14_990, &mut [0; 20])), (Err(Errno::EDQUOT), Ok(15_000), Ok(10)));
    assert_eq!((file.close(), get(&node)), (Err(Errno::EDQUOT), vec![1; 15_000]));
}

#[test]
fn what_comes_while_the_store_is_told_comes_behind_that() {
    let fs = file_system();
    crate::behind::TELLING_NS.store(30_000_000, std::sync::atomic::Ordering::Relaxed);
    for round in 0..4u32 {
        let name = round.to_string().into_bytes();
        let (file, node, _) = fs.create(&fs.root(), &name, born(0o644), WRITE).unwrap();
        file.write(0, &[1; 3000]).unwrap();
        let there = node.clone();
        let teller = seam::spawn("teller", move || there.settle().unwrap()).unwrap();
        seam::sleep(10_000_000);
        file.write(0, &[2; 100]).unwrap();
        assert_eq!(file.append(&[3; 10]).unwrap(), 10);
        let set = node.change(&Change { mode: Some(0o600), ..Change::default() }).unwrap();
        assert_eq!((set.mode, set.size, file.size().unwrap()), (0o600, 3010, 3010), "round {round}");
        file.flush().unwrap();
        teller.join().unwrap();
        file.close().unwrap();
        let bytes = get(&node);
        assert!(bytes[..100] == [2; 100] && bytes[100..3000] == [1; 2900] && bytes[3000..] == [3; 10], "round {round}");
        assert_eq!(node.attributes().unwrap().mode, 0o600);
    }
    // The close tells it, and the last one has nothing in his hands any more by then.
    for name in [&b"looked at"[..], b"opened", b"changed"] {
        let (file, node, _) = fs.create(&fs.root(), name, born(0o644), WRITE).unwrap();
        file.write(0, b"data").unwrap();
        let closer = seam::spawn("closer", move || file.close().unwrap()).unwrap();
        seam::sleep(10_000_000);
        match name {
            b"looked at" => assert_eq!(fs.lookup(&fs.root(), name).unwrap().1.size, 4),
            b"opened" => assert_eq!(File::open(&node, WRITE).unwrap().0.append(b"+").unwrap(), 1),
            _ => assert_eq!(node.change(&Change { size: Some(3), ..Change::default() }).unwrap().size, 3),
        }
        closer.join().unwrap();
        let expected: &[u8] = match name {
            b"looked at" => b"data",
            b"opened" => b"data+",
            _ => b"dat",
        };
        assert_eq!(get(&node), expected);
    }
    // What has no name goes with the last who has it open, or gets one and stays.
    for wait_ns in [0, 5_000_000, 15_000_000, 29_000_000, 32_000_000] {
        let (file, node, _) = fs.create_unnamed(&fs.root(), born(0o644), WRITE).unwrap();
        file.write(0, b"data").unwrap();
        let closer = seam::spawn("closer", move || file.close().unwrap()).unwrap();
        seam::sleep(wait_ns);
        let linked = fs.link(&node, &fs.root(), b"linked");
        closer.join().unwrap();
        match linked {
            Ok(_) => assert_eq!(get(&fs.lookup(&fs.root(), b"linked").unwrap().0), b"data", "after {wait_ns} ns"),
            Err(e) => assert_eq!((e, fs.lookup(&fs.root(), b"linked").unwrap_err()), (Errno::ENOENT, Errno::ENOENT)),
        }
        let _ = fs.unlink(&fs.root(), b"linked");
    }
    crate::behind::TELLING_NS.store(0, std::sync::atomic::Ordering::Relaxed);
}

#[test]
fn what_was_asked_before_a_file_was_closed_is_not_what_is_told_of_it() {
    let unseen = std::time::Duration::from_secs(3600);
    let paths = crate::Paths::new(FileSystem::new(workspace(), Options { unseen, ..Options::default() }));
    let fs = paths.file_system();
    for (name, is_new) in [(b"a", true), (b"b", false), (b"c", true)] {
        let file = match is_new {
            true => fs.create(&fs.root(), name, born(0o644), WRITE).unwrap().0,
            false => File::open(&put(fs, &fs.root(), name, b""), WRITE).unwrap().0,
        };
        file.write(0, &[7; 1000]).unwrap();
        let closer = seam::spawn("closer", move || {
            seam::sleep(15_000_000);
            file.close().unwrap();
        });
        crate::names::ANSWERED_NS.set(40_000_000);
        let told = paths.lookup(&fs.root(), name).unwrap().1.size;
        crate::names::ANSWERED_NS.set(0);
        assert_eq!(told, 1000, "it was written before that was asked");
        closer.unwrap().join().unwrap();
        assert_eq!(paths.lookup(&fs.root(), name).unwrap().1.size, 1000);
        let caller = crate::Caller::default();
        let (_, attributes) = paths.walker(&caller).find(&fs.root(), name, true).unwrap();
        assert_eq!(attributes.size, 1000, "as it is remembered");
    }
}

#[test]
fn a_new_file_that_stays_open_is_told_of_as_well() {
    let ws = workspace();
    let fs = FileSystem::new(ws.clone(), Options::default());
    let elsewhere = FileSystem::new(again(&ws), Options::default());
    let (file, node, _) = fs.create(&fs.root(), b"a", born(0o644), WRITE).unwrap();
    node.change(&Change { mode: Some(0o600), ..Change::default() }).unwrap();
    let until = seam::monotonic_ns() + 30_000_000_000;
    while elsewhere.lookup(&elsewhere.root(), b"a").unwrap().1.mode != 0o600 {
        assert!(seam::monotonic_ns() < until, "nobody was told");
        seam::sleep(10_000_000);
    }
    // What others do with it is seen.
    let there = elsewhere.lookup(&elsewhere.root(), b"a").unwrap().0;
    let other = File::open(&there, WRITE).unwrap().0;
    other.write(0, b"theirs").unwrap();
    other.close().unwrap();
    assert_eq!((node.attributes().unwrap().size, file.size().unwrap()), (6, 6));
}

#[test]
fn only_what_may_be_seen_later_is_told_later() {
    let rules =
        ["/append*=mutability=append", "/at-once*=consistency=sequential", "/soon*=consistency=eventual(100ms)"];
    let rules = rules.map(|rule| Rule::parse(rule).unwrap()).to_vec();
    let fs = FileSystem::new(workspace(), Options { rules, ..Options::default() });
    let create = |name: &[u8]| fs.create(&fs.root(), name, born(0o644), WRITE).unwrap().0;
    assert!(create(b"append").write(0, b"x").is_err(), "it is refused at once");
    for name in [&b"at-once"[..], b"soon"] {
        let file = create(name);
        let before = asked(fs.workspace());
        file.node().change(&Change { mode: Some(0o600), ..Change::default() }).unwrap();
        assert!(asked(fs.workspace()) > before, "{name:?}");
    }
}

#[test]
fn a_small_file_is_one_question_to_make_and_one_to_open() {
    let ws = workspace();
    let options = Options { unseen: std::time::Duration::from_secs(3600), ..Options::default() };
    let paths = crate::Paths::new(FileSystem::new(ws.clone(), options.clone()));
    let (root, caller) = (paths.file_system().root(), crate::Caller::default());
    let w = paths.walker(&caller);
    let make = crate::How { write: true, create: Some(0o644), ..crate::How::default() };
    drop(w.open(&root, b"first", &make).unwrap());
    let before = asked(&ws);
    let crate::Opened::File(file, _) = w.open(&root, b"a", &make).unwrap() else { panic!() };
    assert_eq!(asked(&ws) - before, 1, "opened");
    file.write(0, b"hello").unwrap();
    file.node().change(&Change { mtime: Some(SetTime::At(7)), ..Change::default() }).unwrap();
    file.close().unwrap();
    let read = crate::How { read: true, ..crate::How::default() };
    let fresh = crate::Paths::new(FileSystem::new(again(&ws), options));
    let (root, w) = (fresh.file_system().root(), fresh.walker(&caller));
    let asked = || asked(fresh.file_system().workspace());
    w.find(&root, b"first", true).unwrap();
    let before = asked();
    let crate::Opened::File(file, attributes) = w.open(&root, b"a", &read).unwrap() else { panic!() };
    assert_eq!((asked() - before, attributes.size, attributes.mtime_ns), (1, 5, 7), "opened to be read");
    let mut bytes = [0; 9];
    assert_eq!((file.read(0, &mut bytes).unwrap(), &bytes[..5]), (5, &b"hello"[..]));
}
