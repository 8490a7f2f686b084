//! Small files of which the bytes are known: who reads them asks nobody while nothing changes, and sees everything that has to be seen.

use std::{collections::HashMap, sync::Arc, sync::atomic::Ordering};

use iov_posix::{Attributes, Caller, Errno, File, FileSystem, How, Opened, Options, Paths, Rename, Stop};
use ioverbs::{Controls, EntryKind, Name, Op, Which, Workspace};

use crate::kit::Store;

fn session(ws: Workspace) -> Paths {
    Paths::new(FileSystem::new(ws, Options { unseen: std::time::Duration::from_secs(1), ..Options::default() }))
}

fn questions(paths: &Paths) -> u64 {
    paths.file_system().workspace().session().counters().metadata_requests.load(Ordering::Relaxed)
}

const READ: How = How {
    read: true,
    write: false,
    append: false,
    truncate: false,
    create: None,
    exclusive: false,
    directory: false,
    nofollow: false,
    path: false,
    unnamed: None,
    unseen: false,
};

fn open(paths: &Paths, path: &str, how: &How) -> Result<(File, Attributes), Errno> {
    match paths.walker(&Caller::default()).open(&paths.file_system().root(), path.as_bytes(), how) {
        Ok(Opened::File(file, attributes)) => Ok((file, attributes)),
        Err(Stop::Failed(errno)) => Err(errno),
        other => panic!("{path}: {other:?}"),
    }
}

fn all_of(file: &File) -> Vec<u8> {
    let mut room = vec![0; 100_000];
    let n = file.read(0, &mut room).unwrap();
    room.truncate(n);
    room
}

fn read(paths: &Paths, path: &str) -> Result<Vec<u8>, Errno> {
    let (file, attributes) = open(paths, path, &READ)?;
    let bytes = all_of(&file);
    assert_eq!((bytes.len() as u64, file.size()), (attributes.size, Ok(attributes.size)), "{path}");
    file.finish()?;
    Ok(bytes)
}

fn write(paths: &Paths, path: &str, bytes: &[u8]) {
    let how = How { write: true, truncate: true, create: Some(0o644), ..READ };
    let (file, _) = open(paths, path, &how).unwrap();
    file.write(0, bytes).unwrap();
    file.finish().unwrap();
}

fn unlink(paths: &Paths, path: &str) -> Result<(), Stop> {
    paths.walker(&Caller::default()).unlink(&paths.file_system().root(), path.as_bytes()).map(drop)
}

#[test]
fn c3_what_is_read_again_asks_nobody_until_it_changes() {
    let store = Store::new();
    let (a, b) = (session(store.in_workspace()), session(store.again()));
    write(&a, "f", b"first");
    assert_eq!(read(&b, "f").unwrap(), b"first");
    let before = questions(&b);
    for _ in 0..5 {
        assert_eq!(read(&b, "f").unwrap(), b"first");
    }
    assert_eq!(questions(&b), before);
    for i in 0..20 {
        let bytes = format!("written {i}").into_bytes();
        write(&a, "f", &bytes);
        assert_eq!(read(&b, "f").unwrap(), bytes, "it was closed before it was opened (C3)");
        assert_eq!(read(&b, "f").unwrap(), bytes);
    }
    // More than a record holds, and back.
    write(&a, "f", &[7; 50_000]);
    assert_eq!(read(&b, "f").unwrap(), [7; 50_000]);
    write(&a, "f", b"small");
    assert_eq!(read(&b, "f").unwrap(), b"small");
}

#[test]
fn what_could_be_written_and_is_only_read_asks_nobody() {
    let store = Store::new();
    let (a, b) = (session(store.in_workspace()), session(store.again()));
    let (how, bytes) = (How { write: true, ..READ }, |i: usize| vec![i as u8; 100 + i]);
    (0..100).for_each(|i| write(&a, &format!("file.{i:04}"), &bytes(i)));
    let before = questions(&b);
    for i in 0..100 {
        let (file, _) = open(&b, &format!("file.{i:04}"), &how).unwrap();
        assert_eq!(all_of(&file), bytes(i));
        file.finish().unwrap();
    }
    let asked = questions(&b) - before;
    assert!(asked < 30, "{asked} questions for 100 files");
    // What is written all the same is seen by others once it is closed, and here at once.
    let (file, _) = open(&b, "file.0050", &how).unwrap();
    let (reader, _) = open(&b, "file.0050", &READ).unwrap();
    file.write(0, b"written").unwrap();
    assert_eq!(&all_of(&reader)[..8], b"written\x32");
    file.finish().unwrap();
    assert_eq!(&read(&a, "file.0050").unwrap()[..8], b"written\x32");
    // A sealed one is refused as it is opened, also where its bytes are known.
    let ws = store.again();
    let c = crate::kit::create(&ws, "sealed", "mutability=immutable");
    ioverbs::write_at(&c, 0, b"for good").unwrap();
    ioverbs::run(ws.session(), Op::Seal { c: c.clone() }).unwrap();
    ioverbs::run(ws.session(), Op::Close { c }).unwrap();
    for _ in 0..3 {
        assert_eq!(read(&b, "sealed").unwrap(), b"for good");
        assert!(matches!(open(&b, "sealed", &how), Err(Errno::EPERM)));
    }
}

#[test]
fn files_of_a_directory_that_are_read_one_after_the_other_come_together() {
    let store = Store::new();
    let (a, b) = (session(store.in_workspace()), session(store.again()));
    let bytes = |i: usize| vec![i as u8; i * 7];
    (0..600).for_each(|i| write(&a, &format!("file.{i:04}"), &bytes(i)));
    let before = questions(&b);
    for i in 0..600 {
        assert_eq!(read(&b, &format!("file.{i:04}")).unwrap(), bytes(i));
    }
    let asked = questions(&b) - before;
    assert!(asked < 40, "{asked} questions for 600 files");
    // What comes together is as new as what is asked for by itself.
    write(&a, "file.0300", b"new");
    assert_eq!(read(&b, "file.0300").unwrap(), b"new");
    assert!(matches!(read(&b, "file.0600"), Err(Errno::ENOENT)));
}

#[test]
fn o10_what_somebody_has_open_stays_readable_whoever_deletes_it() {
    let store = Store::new();
    let (a, b) = (session(store.in_workspace()), session(store.again()));
    for elsewhere in [true, false] {
        write(&a, "f", b"some bytes");
        read(&b, "f").unwrap();
        let (file, _) = open(&b, "f", &READ).unwrap();
        unlink(if elsewhere { &a } else { &b }, "f").unwrap();
        assert!(matches!(read(&b, "f"), Err(Errno::ENOENT)));
        assert_eq!(all_of(&file), b"some bytes");
        assert_eq!(file.node().attributes().map(|a| (a.size, a.links)), Ok((10, 0)), "elsewhere: {elsewhere}");
        file.finish().unwrap();
    }
    // Also to be written, where nobody else sees it.
    write(&a, "f", b"some bytes");
    read(&b, "f").unwrap();
    let how = How { write: true, ..READ };
    let ((one, _), (two, _)) = (open(&b, "f", &how).unwrap(), open(&b, "f", &how).unwrap());
    unlink(&a, "f").unwrap();
    assert_eq!(one.write(5, b"BYTES"), Ok(5));
    assert_eq!((all_of(&one), all_of(&two)), (b"some BYTES".to_vec(), b"some BYTES".to_vec()));
    assert_eq!(two.node().attributes().map(|a| a.links), Ok(0));
    one.finish().unwrap();
    two.truncate(4).unwrap();
    assert_eq!(all_of(&two), b"some");
    two.finish().unwrap();
    assert!(matches!(read(&a, "f"), Err(Errno::ENOENT)));
}

#[test]
fn one_process_sees_at_once_what_it_does() {
    let store = Store::new();
    let (a, b) = (session(store.in_workspace()), session(store.again()));
    let how = How { write: true, ..READ };
    for step in ["write", "and unlink", "truncate", "rename over"] {
        write(&a, "f", b"before");
        read(&b, "f").unwrap();
        let (early, _) = open(&b, "f", &READ).unwrap();
        assert_eq!(all_of(&early), b"before");
        let expected: &[u8] = match step {
            "truncate" => {
                early.node().change(&iov_posix::Change { size: Some(3), ..Default::default() }).unwrap();
                b"bef"
            }
            "rename over" => {
                write(&b, "g", b"another");
                let (root, caller) = (b.file_system().root(), Caller::default());
                let walker = b.walker(&caller);
                let (from, to) = (walker.name(&root, b"g").unwrap(), walker.name(&root, b"f").unwrap());
                walker.rename(from.as_ref(), to.as_ref(), Rename::Replace).unwrap();
                assert_eq!(read(&b, "f").unwrap(), b"another");
                b"before"
            }
            _ => {
                let (writer, _) = open(&b, "f", &how).unwrap();
                writer.write(0, b"behind").unwrap();
                assert_eq!(all_of(&early), b"behind", "not closed yet");
                writer.finish().unwrap();
                b"behind"
            }
        };
        if step == "and unlink" {
            unlink(&b, "f").unwrap();
        }
        assert_eq!(all_of(&early), expected, "{step}");
        early.finish().unwrap();
    }
}

#[test]
fn p3_what_is_synced_by_who_only_reads_is_asked_for() {
    let store = Store::new();
    let (a, b) = (session(store.in_workspace()), session(store.again()));
    write(&a, "f", b"some bytes");
    read(&b, "f").unwrap();
    let (file, _) = open(&b, "f", &READ).unwrap();
    let before = questions(&b);
    file.sync().unwrap();
    assert!(questions(&b) > before, "others have written it");
    file.finish().unwrap();
}

#[test]
fn x2_who_holds_a_group_keeps_out_who_knows_what_is_in_it() {
    let store = Store::new();
    let (a, b) = (session(store.in_workspace()), session(store.again()));
    a.walker(&Caller::default()).mkdir(&a.file_system().root(), b"d", 0o755).unwrap();
    write(&a, "d/f", b"some bytes");
    assert_eq!(read(&b, "d/f").unwrap(), b"some bytes");
    let before = questions(&b);
    assert_eq!(read(&b, "d/f").unwrap(), b"some bytes");
    assert_eq!(questions(&b), before, "it is known");
    let holder = store.again();
    let hold = |which: &[u8], kind, parent: Option<ioverbs::Collection>| {
        let out = holder.pending(kind);
        let exclusive = Controls { concurrency: Some(ioverbs::Concurrency::Exclusive), ..Controls::default() };
        let which = Which::Name(Name::new(which).unwrap());
        ioverbs::run(holder.session(), Op::Open { out: out.clone(), parent, which, controls: exclusive }).unwrap();
        out
    };
    let close = |c: ioverbs::Collection| ioverbs::run(holder.session(), Op::Close { c }).unwrap();
    let group = hold(b"d", EntryKind::Group, None);
    assert!(matches!(open(&b, "d/f", &READ), Err(Errno::EBUSY)));
    close(group);
    assert_eq!(read(&b, "d/f").unwrap(), b"some bytes");
    assert_eq!(read(&b, "d/f").unwrap(), b"some bytes");
    // One file alone.
    let file = hold(b"f", EntryKind::Collection, Some(hold(b"d", EntryKind::Group, None)));
    assert!(matches!(open(&b, "d/f", &READ), Err(Errno::EBUSY)));
    drop(file);
}

#[test]
fn x1_x2_what_was_closed_before_is_in_nobodys_way() {
    let store = Store::new();
    let (a, b) = (store.in_workspace(), store.again());
    let open = |by: &Workspace, which: &[u8], kind, parent: Option<ioverbs::Collection>, concurrency| {
        let out = by.pending(kind);
        let which = Which::Name(Name::new(which).unwrap());
        let controls = Controls { concurrency, ..Controls::default() };
        ioverbs::run(by.session(), Op::Open { out: out.clone(), parent, which, controls }).map(|_| out)
    };
    let close = |by: &Workspace, c: ioverbs::Collection| drop(ioverbs::run(by.session(), Op::Close { c }).unwrap());
    let paths = session(store.again());
    paths.walker(&Caller::default()).mkdir(&paths.file_system().root(), b"d", 0o755).unwrap();
    write(&paths, "d/f", b"some bytes");
    let exclusive = Some(ioverbs::Concurrency::Exclusive);
    let mut late = 0;
    for turn in 0..3000 {
        let d = open(&a, b"d", EntryKind::Group, None, None).unwrap();
        let f = open(&a, b"f", EntryKind::Collection, Some(d.clone()), None).unwrap();
        let group = (turn % 2 == 1).then(|| open(&b, b"d", EntryKind::Group, None, None).unwrap());
        // Sent, and not waited for.
        assert!(f.close_unheard() && d.close_unheard());
        let take = || match &group {
            None => open(&b, b"d", EntryKind::Group, None, exclusive),
            Some(d) => open(&b, b"f", EntryKind::Collection, Some(d.clone()), exclusive),
        };
        let held = take().or_else(|e| {
            // It is waited for only so long: with many more threads than processors it comes later now and then.
            late += 1;
            assert!(e.kind() == ioverbs::Kind::Busy && late < 60, "the {turn}th time, {late} of them late: {e}");
            std::thread::sleep(std::time::Duration::from_millis(100));
            take()
        });
        close(&b, held.unwrap_or_else(|e| panic!("the {turn}th time: {e}")));
        group.into_iter().for_each(|d| close(&b, d));
    }
}

#[test]
fn x1_b1_what_a_batch_has_staged_is_not_lost_to_what_was_closed_before() {
    let store = Store::new();
    let (a, b) = (store.in_workspace(), store.again());
    let c = crate::kit::create(&a, "f", "consistency=session");
    ioverbs::write_at(&c, 0, &[1; 10_000]).unwrap();
    ioverbs::run(a.session(), Op::Close { c }).unwrap();
    let open = |by: &Workspace, concurrency| {
        let out = by.pending(EntryKind::Collection);
        let controls = Controls { concurrency, ..Controls::default() };
        let which = Which::Name(Name::new(b"f").unwrap());
        (out.clone(), Op::Open { out, parent: None, which, controls })
    };
    let mut late = 0;
    for turn in 0..500_u64 {
        let (read, op) = open(&a, None);
        ioverbs::run(a.session(), op).unwrap();
        // Sent, and not waited for.
        assert!(read.close_unheard());
        let bytes = vec![turn as u8; 10_000];
        let held = loop {
            let (held, op) = open(&b, Some(ioverbs::Concurrency::Exclusive));
            let write = ioverbs::Lent::Write { c: held.clone(), offset: 0, data: &bytes };
            let attr = ioverbs::BatchAttr { on_error: Some(ioverbs::OnError::Rollback), ..Default::default() };
            let ended = ioverbs::run_batch(b.session(), attr, vec![op.into(), write]).unwrap();
            match ended.iter().find_map(|status| status.result().err()) {
                None => break held,
                // The close may be late, where much else goes on.
                Some(e) if e.kind() == ioverbs::Kind::Busy && late < 60 => late += 1,
                Some(e) => panic!("the {turn}th time, {late} late: {e}"),
            }
        };
        ioverbs::run(b.session(), Op::Close { c: held }).unwrap();
        let (read, op) = open(&a, None);
        ioverbs::run(a.session(), op).unwrap();
        let mut got = vec![0; 10_000];
        assert_eq!(ioverbs::read_at(&read, 0, &mut got).unwrap(), 10_000);
        assert!(got == bytes, "the {turn}th time");
        ioverbs::run(a.session(), Op::Close { c: read }).unwrap();
    }
}

#[test]
fn what_goes_a_time_after_it_was_last_open_is_opened_each_time() {
    let store = Store::new();
    let (ws, b) = (store.in_workspace(), session(store.again()));
    let c = crate::kit::create(&ws, "f", "consistency=session");
    ioverbs::write_at(&c, 0, b"for a while").unwrap();
    let attr = ioverbs::Attr { lifetime: Some(ioverbs::Lifetime::lease(60_000_000_000)), ..Default::default() };
    ioverbs::run(ws.session(), Op::SetAttr { c: c.clone(), attr }).unwrap();
    ioverbs::run(ws.session(), Op::Close { c }).unwrap();
    read(&b, "f").unwrap();
    let before = questions(&b);
    read(&b, "f").unwrap();
    assert!(questions(&b) > before, "the store hears of it");
}

/// A small number out of a row that is the same in each run.
struct Row(u64);

impl Row {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// The bytes that a file should have, whatever names it has.
type Inode = Arc<std::sync::Mutex<Vec<u8>>>;

/// Everything that one process does it sees at once, whichever of its descriptors it uses: as a model in memory does.
#[test]
fn one_process_at_random_is_as_a_model_says() {
    let store = Store::new();
    let (fs, other) = (session(store.in_workspace()), session(store.again()));
    let names = ["a", "b", "c"];
    let runs = if std::env::var_os("IOV_TEST_LONG").is_some() { 40 } else { 6 };
    for run in 0..runs {
        let mut row = Row(run);
        let mut model: HashMap<&str, Inode> = HashMap::new();
        let mut opened: Vec<(File, bool, Inode)> = Vec::new();
        names.iter().for_each(|name| drop(unlink(&fs, name)));
        for step in 0..250 {
            let (name, to) = (names[row.below(3)], names[row.below(3)]);
            let what = row.below(12);
            match what {
                0 | 1 if !model.contains_key(name) => {
                    let most = if row.below(5) == 0 { 20_000 } else { 300 };
                    let bytes = vec![row.below(256) as u8; row.below(most)];
                    // Half of them elsewhere, before anybody here has it open.
                    write(if what == 0 { &fs } else { &other }, name, &bytes);
                    model.insert(name, Arc::new(bytes.into()));
                }
                2..=5 => {
                    let writes = what == 2;
                    match open(&fs, name, &How { write: writes, ..READ }) {
                        Ok((file, attributes)) => {
                            let inode = model[name].clone();
                            assert_eq!(attributes.size, inode.lock().unwrap().len() as u64, "{run} {step} {name}");
                            opened.push((file, writes, inode));
                        }
                        Err(e) => assert!(e == Errno::ENOENT && !model.contains_key(name), "{run} {step}: {e:?}"),
                    }
                }
                6 | 7 if !opened.is_empty() => {
                    let at = row.below(opened.len());
                    let (file, writes, inode) = &opened[at];
                    if *writes {
                        let (offset, bytes) = (row.below(200), vec![row.below(256) as u8; 1 + row.below(200)]);
                        let mut model = inode.lock().unwrap();
                        let len = model.len().max(offset + bytes.len());
                        model.resize(len, 0);
                        model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                        file.write(offset as u64, &bytes).unwrap();
                    }
                }
                8 => {
                    let done = unlink(&fs, name).is_ok();
                    assert_eq!(done, model.remove(name).is_some(), "{run} {step}: unlink {name}");
                }
                9 if name != to => {
                    let (root, caller) = (fs.file_system().root(), Caller::default());
                    let walker = fs.walker(&caller);
                    let named = |name: &str| walker.name(&root, name.as_bytes()).unwrap();
                    let done = walker.rename(named(name).as_ref(), named(to).as_ref(), Rename::Replace).is_ok();
                    let moved = model.remove(name);
                    assert_eq!(done, moved.is_some(), "{run} {step}: {name} to {to}");
                    moved.map(|inode| model.insert(to, inode));
                }
                _ if !opened.is_empty() => {
                    let at = row.below(opened.len());
                    opened.swap_remove(at).0.finish().unwrap();
                }
                _ => {}
            }
            for (file, _, inode) in &opened {
                assert!(all_of(file) == *inode.lock().unwrap(), "run {run}, step {step}: {what} {name} {to}");
            }
        }
        opened.into_iter().for_each(|(file, ..)| file.finish().unwrap());
    }
}
