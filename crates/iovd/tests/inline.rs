//! Small collections of a `file:` store live in their record and move out when they grow.
#![allow(clippy::disallowed_methods)]

use ioverbs::{Batch, BatchAttr, Controls, Metadata, Name, OnError, Op, Session, SessionAttr, Which, Workspace, open};

struct Store(tempfile::TempDir);

impl Store {
    fn new() -> Store {
        assert!(std::path::Path::new(env!("CARGO_BIN_EXE_iovd")).is_file());
        Store(tempfile::tempdir().unwrap())
    }

    fn url(&self) -> String {
        format!("file:{}", self.0.path().display())
    }

    fn session(&self) -> Session {
        open(Some(&self.url()), SessionAttr::default()).unwrap()
    }

    fn workspace(&self) -> (Session, Workspace) {
        let s = self.session();
        let ws = s.create_workspace(Name::new("w").unwrap(), Default::default()).unwrap();
        (s, ws)
    }

    fn loaded(&self) -> (Session, Workspace) {
        let s = self.session();
        let ws = s.load_workspace(Which::parse("w").unwrap()).unwrap();
        (s, ws)
    }

    fn kill(&self) {
        let status = ioverbs::daemon_status(&self.url()).unwrap().expect("a daemon runs");
        let pid = status.iter().find(|(name, _)| name == "pid").unwrap().1;
        let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        assert!(killed.success());
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = ioverbs::daemon_shutdown(&self.url());
    }
}

fn counter(s: &Session, name: &str) -> u64 {
    s.counters().snapshot()[ioverbs::Counters::NAMES.iter().position(|n| *n == name).unwrap()]
}

fn controls(text: &str) -> Controls {
    let mut controls = Controls::default();
    ioverbs::text::parse(&mut controls, text).unwrap();
    controls
}

fn rollback(s: &Session) -> Batch {
    Batch::new(s, BatchAttr { on_error: Some(OnError::Rollback), ..Default::default() }).unwrap()
}

fn all(c: &ioverbs::Collection) -> Vec<u8> {
    let mut buffer = vec![0xaa; 64 << 10];
    let n = ioverbs::read_at(c, 0, &mut buffer).unwrap();
    buffer.truncate(n);
    buffer
}

#[test]
fn h2_what_fits_in_a_record_costs_no_request_for_data() {
    let store = Store::new();
    let (s, ws) = store.workspace();
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), controls("collection_size=..4KiB")).unwrap();
    ioverbs::write_at(&c, 0, b"small").unwrap();
    let (s2, ws2) = store.loaded();
    let other = ioverbs::lookup(&ws2, None, "c", Controls::default()).unwrap();
    assert_eq!(all(&other), b"small");
    for s in [&s, &s2] {
        assert_eq!((counter(s, "data_requests"), counter(s, "grants")), (0, 0));
    }
    assert_eq!((counter(&s, "bytes_written"), counter(&s2, "bytes_read")), (5, 5));
}

#[test]
fn c1_who_has_it_open_follows_when_it_moves_out() {
    let store = Store::new();
    let (_, ws) = store.workspace();
    let (_, ws2) = store.loaded();
    let one = ioverbs::create(&ws, None, Some("c"), Metadata::new(), Controls::default()).unwrap();
    ioverbs::write_at(&one, 0, b"begin").unwrap();
    let two = ioverbs::lookup(&ws2, None, "c", Controls::default()).unwrap();
    assert_eq!(all(&two), b"begin");
    // One grows it beyond the record, the other still thinks that its bytes are there.
    ioverbs::write_at(&one, 20_000, b"end").unwrap();
    let mut expected = vec![0; 20_003];
    expected[..5].copy_from_slice(b"begin");
    expected[20_000..].copy_from_slice(b"end");
    assert_eq!(all(&two), expected);
    ioverbs::write_at(&two, 5, b"+two").unwrap();
    expected[5..9].copy_from_slice(b"+two");
    assert_eq!(all(&one), expected);
    assert_eq!(ioverbs::stat(&one).unwrap().bytes, 20_003);
}

#[test]
fn o9_a_read_sees_the_earlier_writes_of_its_batch_wherever_the_bytes_are() {
    let store = Store::new();
    let (s, ws) = store.workspace();
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), Controls::default()).unwrap();
    for (offset, len) in [(0u64, 100usize), (50, 8000), (8000, 192), (8000, 193), (100_000, 10)] {
        let data: Vec<u8> = (0..len).map(|i| (i as u64 + offset) as u8 | 1).collect();
        let mut back = vec![0; len];
        let mut batch = Batch::new(&s, BatchAttr::default()).unwrap();
        // SAFETY: both live until the request has completed, and nobody touches them meanwhile.
        let (from, to) = unsafe {
            (
                ioverbs::Memory::readable(data.as_ptr(), data.len()),
                ioverbs::Memory::writable(back.as_mut_ptr(), back.len()),
            )
        };
        batch.push(Op::Write { c: c.clone(), chunks: vec![(offset, from)] }).unwrap();
        batch.push(Op::Read { c: c.clone(), chunks: vec![(offset, to)] }).unwrap();
        batch.start().unwrap().wait(i64::MAX).unwrap();
        assert_eq!(back, data, "{len} bytes at {offset}");
    }
}

#[test]
fn o9_attributes_set_behind_small_bytes_go_with_them_and_stay_behind_them() {
    let store = Store::new();
    let (s, ws) = store.workspace();
    let (_, elsewhere) = store.loaded();
    let create = |name: &str| ioverbs::create(&ws, None, Some(name), Metadata::new(), Controls::default()).unwrap();
    let set = |c: &ioverbs::Collection, ns: i64| {
        let attr = ioverbs::Attr { mtime_ns: Some(ns), ..Default::default() };
        ioverbs::Lent::from(Op::SetAttr { c: c.clone(), attr })
    };
    let write = |c: &ioverbs::Collection, data: &'static [u8]| ioverbs::Lent::Write { c: c.clone(), offset: 0, data };
    let run =
        |ops| ioverbs::run_batch(&s, BatchAttr::default(), ops).unwrap().iter().all(|status| status.result().is_ok());
    let (one, two) = (create("one"), create("two"));
    let before = counter(&s, "metadata_requests");
    assert!(run(vec![write(&one, b"1"), write(&two, b"2"), set(&one, 1), set(&two, 2), set(&one, 3)]));
    assert_eq!(counter(&s, "metadata_requests") - before, 1, "in one request");
    let mtime = |c: &ioverbs::Collection| ioverbs::stat(c).unwrap().mtime_ns;
    assert_eq!((mtime(&one), mtime(&two), all(&one)), (3, 2, b"1".to_vec()));
    // Somebody else makes it too large for its record: the bytes go elsewhere, and what was set still comes behind them.
    let other = ioverbs::lookup(&elsewhere, None, "one", Controls::default()).unwrap();
    ioverbs::write_at(&other, 0, &[9; 20_000]).unwrap();
    ioverbs::close(&other).unwrap();
    assert!(run(vec![write(&one, b"moved"), set(&one, 5), Op::Commit { c: one.clone() }.into()]));
    ioverbs::close(&one).unwrap();
    let after = ioverbs::lookup(&elsewhere, None, "one", Controls::default()).unwrap();
    assert_eq!((all(&after).len(), &all(&after)[..6]), (20_000, &b"moved\x09"[..]));
    // A length is one of the bytes in the record, too.
    let before = counter(&s, "data_requests");
    ioverbs::write_at(&two, 0, b"longer").unwrap();
    ioverbs::run(&s, Op::Truncate { c: two.clone(), size: 3 }).unwrap();
    assert_eq!((all(&two), counter(&s, "data_requests") - before), (b"lon".to_vec(), 0));
    // What comes between the two on the same collection stays there.
    let ops = vec![write(&two, b"long"), Op::Truncate { c: two.clone(), size: 1 }.into(), set(&two, 7)];
    assert!(run(ops));
    assert_eq!((mtime(&two), all(&two)), (7, b"l".to_vec()));
    let look = Op::Look { w: ws.clone(), parent: None, which: Which::Uuid(two.uuid().unwrap()), ahead: 0, tell: 0 };
    let statuses =
        ioverbs::run_batch(&s, BatchAttr::default(), vec![write(&two, b"x"), look.into(), set(&two, 8)]).unwrap();
    assert!(matches!(&statuses[1].output, ioverbs::Output::Stat(stat) if stat.mtime_ns > 8), "{statuses:?}");
    assert_eq!(mtime(&two), 8);
    // Each ends by itself: what cannot be written keeps nothing else from being done.
    let over = ioverbs::WorkspaceAttr { quota_bytes: Some(30_000), ..Default::default() };
    ioverbs::run(&s, Op::WorkspaceSet { w: ws.clone(), attr: over }).unwrap();
    let large: &'static [u8] = Box::leak(vec![1; 8000].into_boxed_slice());
    let three = create("three");
    ioverbs::write_at(&create("four"), 0, &[1; 8000]).unwrap();
    let statuses = ioverbs::run_batch(&s, BatchAttr::default(), vec![write(&three, large), set(&three, 9)]).unwrap();
    assert!(statuses[0].result().is_err() && statuses[1].result().is_ok(), "{statuses:?}");
    assert_eq!(mtime(&three), 9);
}

#[test]
fn c3_a_close_behind_small_bytes_goes_with_them_and_never_before_them() {
    let store = Store::new();
    let (s, ws) = store.workspace();
    let (_, elsewhere) = store.loaded();
    let write = |c: &ioverbs::Collection, data: &'static [u8]| ioverbs::Lent::Write { c: c.clone(), offset: 0, data };
    let close = |c: &ioverbs::Collection| ioverbs::Lent::from(Op::Close { c: c.clone() });
    let set = |c: &ioverbs::Collection| {
        let attr = ioverbs::Attr { mtime_ns: Some(5), ..Default::default() };
        ioverbs::Lent::from(Op::SetAttr { c: c.clone(), attr })
    };
    let run =
        |ops| ioverbs::run_batch(&s, BatchAttr::default(), ops).unwrap().iter().all(|status| status.result().is_ok());
    let there = |name: &str| {
        let c = ioverbs::lookup(&elsewhere, None, name, Controls::default()).unwrap();
        (all(&c), ioverbs::stat(&c).unwrap().mtime_ns)
    };
    let create = |name: &str| ioverbs::create(&ws, None, Some(name), Metadata::new(), Controls::default()).unwrap();
    let one = create("one");
    let before = counter(&s, "metadata_requests");
    assert!(run(vec![write(&one, b"first"), set(&one), close(&one)]));
    assert_eq!(counter(&s, "metadata_requests") - before, 1, "in one request");
    assert_eq!(there("one"), (b"first".to_vec(), 5));
    assert!(ioverbs::write_at(&one, 0, b"x").is_err(), "it is closed");
    // Somebody else has made it too large for its record: the bytes go to its target first, then it is closed.
    let two = create("two");
    let other = ioverbs::lookup(&elsewhere, None, "two", Controls::default()).unwrap();
    ioverbs::write_at(&other, 0, &[9; 20_000]).unwrap();
    ioverbs::close(&other).unwrap();
    assert!(run(vec![write(&two, b"moved"), set(&two), close(&two)]));
    let (bytes, mtime) = there("two");
    assert_eq!((bytes.len(), &bytes[..6], mtime), (20_000, &b"moved\x09"[..], 5));
    assert!(ioverbs::write_at(&two, 0, b"x").is_err(), "it is closed");
    // More than a record takes goes with the close, or with what publishes it, after which the file is written on.
    let large: &'static [u8] = Box::leak(vec![3; 20_000].into_boxed_slice());
    for (name, closes) in [("closed", true), ("published", false)] {
        let c = create(name);
        let end = if closes { close(&c) } else { Op::Commit { c: c.clone() }.into() };
        let asked = ["metadata_requests", "data_requests"].map(|name| counter(&s, name));
        assert!(run(vec![write(&c, large), set(&c), end]));
        let since = ["metadata_requests", "data_requests"].map(|name| counter(&s, name));
        assert_eq!((since[0] - asked[0], since[1] - asked[1]), (1, 0), "{name}: in one request");
        assert_eq!(there(name), (large.to_vec(), 5));
        if !closes {
            ioverbs::write_at(&c, 20_000, b"more").unwrap();
            assert_eq!((all(&c).len(), &all(&c)[19_998..]), (20_004, &b"\x03\x03more"[..]));
            ioverbs::close(&c).unwrap();
            assert_eq!(there(name).0.len(), 20_004);
        }
    }
    // What is to be done between the two is.
    let three = create("three");
    let look = Op::Stat { c: three.clone() };
    let statuses =
        ioverbs::run_batch(&s, BatchAttr::default(), vec![write(&three, b"123"), look.into(), close(&three)]).unwrap();
    assert!(matches!(&statuses[1].output, ioverbs::Output::Stat(stat) if stat.bytes == 3), "{statuses:?}");
    // An open can tell what there is.
    let pending = ws.pending_told(100);
    let which = Which::Name(ioverbs::Name::new("three").unwrap());
    let open = Op::Open { out: pending.clone(), parent: None, which, controls: Controls::default() };
    let before = counter(&s, "metadata_requests");
    ioverbs::run(&s, open).unwrap();
    let told = pending.take_told().unwrap();
    assert_eq!((told.bytes, told.stat.bytes, counter(&s, "metadata_requests") - before), (Some(b"123".to_vec()), 3, 1));
    assert!(pending.take_told().is_none(), "once");
}

#[test]
fn m4_appends_to_small_collections_never_lie_on_each_other() {
    let store = Store::new();
    let (s, ws) = store.workspace();
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), Controls::default()).unwrap();
    let asked = |s: &Session| ["metadata_requests", "data_requests"].map(|name| counter(s, name));
    let before = asked(&s);
    assert_eq!((ioverbs::append(&c, b"one").unwrap(), ioverbs::append(&c, b"two").unwrap()), (0, 3));
    assert_eq!(asked(&s), [before[0] + 2, before[1]], "each is one request, of the catalog");
    // By several sessions, until they are too many for a record, and behind that.
    let each = 300;
    let workers: Vec<_> = (0..4u8)
        .map(|worker| {
            let url = store.url();
            std::thread::spawn(move || {
                let s = open(Some(&url), SessionAttr::default()).unwrap();
                let ws = s.load_workspace(Which::parse("w").unwrap()).unwrap();
                let c = ioverbs::lookup(&ws, None, "c", Controls::default()).unwrap();
                let append = |i: u16| {
                    let [high, low] = i.to_be_bytes();
                    let data = [worker, high, low, !worker, 9, 9, 9, 9, 9, 9];
                    (ioverbs::append(&c, &data).unwrap(), data)
                };
                let appended: Vec<_> = (0..each).map(append).collect();
                ioverbs::close(&c).unwrap();
                appended
            })
        })
        .collect();
    let appended: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    let bytes = all(&c);
    assert_eq!((bytes.len(), &bytes[..6]), (6 + 4 * usize::from(each) * 10, &b"onetwo"[..]));
    for (offset, data) in appended {
        assert_eq!(&bytes[offset as usize..][..10], data, "at {offset}");
    }
    // With the close in one request, and with an id, by which a repeated batch is known (B3), at the target.
    let d = ioverbs::create(&ws, None, Some("d"), Metadata::new(), Controls::default()).unwrap();
    let append = |c: &ioverbs::Collection| ioverbs::Lent::Append { c: c.clone(), data: b"end" };
    let before = asked(&s);
    let ops = vec![append(&d), Op::Close { c: d.clone() }.into()];
    let statuses = ioverbs::run_batch(&s, BatchAttr::default(), ops).unwrap();
    assert!(matches!(statuses[0].output, ioverbs::Output::Offset(0)) && statuses[1].result().is_ok(), "{statuses:?}");
    assert_eq!(asked(&s), [before[0] + 1, before[1]]);
    let d = ioverbs::lookup(&ws, None, "d", Controls::default()).unwrap();
    let attr = BatchAttr { id: Some(ioverbs::seam::new_uuid()), ..BatchAttr::default() };
    for _ in 0..2 {
        let statuses = ioverbs::run_batch(&s, attr.clone(), vec![append(&d)]).unwrap();
        assert!(matches!(statuses[0].output, ioverbs::Output::Offset(3)), "{statuses:?}");
    }
    assert_eq!(all(&d), b"endend");
}

#[test]
fn p2_bytes_in_records_survive_sigkill_of_the_daemon() {
    let store = Store::new();
    let (_, ws) = store.workspace();
    for i in 0..50u8 {
        let c = ioverbs::create(&ws, None, Some(&format!("c{i}")), Metadata::new(), Controls::default()).unwrap();
        ioverbs::write_at(&c, 0, &vec![i; 100 + 300 * usize::from(i)]).unwrap();
    }
    store.kill();
    let (_, ws) = store.loaded();
    for i in 0..50u8 {
        let c = ioverbs::lookup(&ws, None, &format!("c{i}"), Controls::default()).unwrap();
        assert_eq!(all(&c), vec![i; 100 + 300 * usize::from(i)]);
    }
}

#[test]
fn p3_a_durable_write_into_a_record_syncs_the_log_before_it_completes() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let store = Store(place);
    let (s, ws) = store.workspace();
    let durable = controls("persistence=durable@request");
    let c = match ioverbs::create(&ws, None, Some("c"), Metadata::new(), durable) {
        Ok(c) => c,
        Err(e) => return println!("left out: no disk here ({e})"),
    };
    let before = counter(&s, "syncs");
    ioverbs::write_at(&c, 0, b"kept").unwrap();
    assert_eq!((counter(&s, "syncs") - before, counter(&s, "data_requests")), (1, 0));
    ioverbs::append(&c, b", too").unwrap();
    assert_eq!((counter(&s, "syncs") - before, counter(&s, "data_requests")), (2, 0));
}

#[test]
fn b3_a_whole_batch_over_a_small_collection_is_all_or_nothing() {
    let store = Store::new();
    let (s, ws) = store.workspace();
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), Controls::default()).unwrap();
    ioverbs::write_at(&c, 0, b"old").unwrap();
    let mut batch = rollback(&s);
    let data = b"new".to_vec();
    // SAFETY: it lives until the request has completed.
    let from = unsafe { ioverbs::Memory::readable(data.as_ptr(), data.len()) };
    batch.push(Op::Write { c: c.clone(), chunks: vec![(0, from)] }).unwrap();
    batch.push(Op::Delete { w: ws.clone(), parent: None, which: Which::parse("nothing").unwrap() }).unwrap();
    assert!(batch.start().unwrap().wait(i64::MAX).is_err());
    assert_eq!(all(&c), b"old");
    let mut batch = rollback(&s);
    // SAFETY: as above.
    let from = unsafe { ioverbs::Memory::readable(data.as_ptr(), data.len()) };
    batch.push(Op::Write { c: c.clone(), chunks: vec![(0, from)] }).unwrap();
    batch.start().unwrap().wait(i64::MAX).unwrap();
    assert_eq!(all(&c), b"new");
}

#[test]
fn b3_a_whole_batch_opens_small_collections_by_itself() {
    let store = Store::new();
    let (s, ws) = store.workspace();
    for name in ["read", "written", "copied"] {
        let c = ioverbs::create(&ws, None, Some(name), Metadata::new(), Controls::default()).unwrap();
        ioverbs::write_at(&c, 0, format!("old {name}").as_bytes()).unwrap();
        ioverbs::close(&c).unwrap();
    }
    let open = |name: &str| {
        let out = ws.pending(ioverbs::EntryKind::Collection);
        let which = Which::Name(Name::new(name).unwrap());
        (out.clone(), Op::Open { out, parent: None, which, controls: Controls::default() })
    };
    let (read, open_read) = open("read");
    let (written, open_written) = open("written");
    let (copied, open_copied) = open("copied");
    let mut buffer = [0; 16];
    // SAFETY: it lives until the request has completed.
    let into = unsafe { ioverbs::Memory::writable(buffer.as_mut_ptr(), buffer.len()) };
    // SAFETY: static data.
    let from = unsafe { ioverbs::Memory::readable(b"NEW".as_ptr(), 3) };
    let mut batch = rollback(&s);
    for op in [open_read, open_written, open_copied] {
        batch.push(op).unwrap();
    }
    batch.push(Op::Read { c: read.clone(), chunks: vec![(0, into)] }).unwrap();
    batch.push(Op::Write { c: written.clone(), chunks: vec![(0, from)] }).unwrap();
    batch.push(Op::Copy { src: copied, src_offset: 4, dst: written.clone(), dst_offset: 4, len: 6 }).unwrap();
    batch.push(Op::Close { c: written }).unwrap();
    // What the batch makes itself is nowhere before.
    let made = ws.pending(ioverbs::EntryKind::Collection);
    let name = Some(Name::new("made").unwrap());
    let (metadata, controls) = (Metadata::new(), Controls::default());
    batch.push(Op::Create { out: made.clone(), parent: None, name, metadata, controls }).unwrap();
    let (again, open_again) = open("made");
    batch.push(open_again).unwrap();
    // SAFETY: static data.
    let from = unsafe { ioverbs::Memory::readable(b"made".as_ptr(), 4) };
    batch.push(Op::Write { c: again, chunks: vec![(0, from)] }).unwrap();
    let request = batch.start().unwrap();
    request.wait(i64::MAX).unwrap();
    assert_eq!(&buffer[..8], b"old read");
    let there = |name: &str| all(&ioverbs::lookup(&ws, None, name, Controls::default()).unwrap());
    assert_eq!((there("written"), there("made")), (b"NEW copiedn".to_vec(), b"made".to_vec()));
}

#[test]
fn b1_more_small_bytes_than_a_frame_holds_are_written_and_read_in_one_batch() {
    let store = Store::new();
    let (s, ws) = store.workspace();
    // 72 MiB; a frame holds 64.
    let data: Vec<u8> = (0..8192).map(|i| i as u8).collect();
    let mut back = vec![0; 8192 * 9216];
    let mut batch = Batch::new(&s, BatchAttr::default()).unwrap();
    let c: Vec<_> = (0..9216).map(|_| ws.pending(ioverbs::EntryKind::Collection)).collect();
    for c in &c {
        let (metadata, controls) = (Metadata::new(), Controls::default());
        batch.push(Op::Create { out: c.clone(), parent: None, name: None, metadata, controls }).unwrap();
        // SAFETY: all of it lives until the request has completed, and nobody touches it meanwhile.
        let from = unsafe { ioverbs::Memory::readable(data.as_ptr(), data.len()) };
        batch.push(Op::Write { c: c.clone(), chunks: vec![(0, from)] }).unwrap();
    }
    batch.barrier().unwrap();
    for (c, back) in c.iter().zip(back.chunks_mut(8192)) {
        // SAFETY: as above.
        let to = unsafe { ioverbs::Memory::writable(back.as_mut_ptr(), back.len()) };
        batch.push(Op::Read { c: c.clone(), chunks: vec![(0, to)] }).unwrap();
    }
    batch.start().unwrap().wait(i64::MAX).unwrap();
    assert!(back.chunks(8192).all(|b| b == data));
    assert_eq!(counter(&s, "data_requests"), 0);
}

#[test]
fn p3_a_batch_that_promises_more_than_the_collection_goes_to_the_target() {
    let store = Store(tempfile::tempdir_in("/var/tmp").unwrap());
    let (s, ws) = store.workspace();
    let c = ioverbs::create(&ws, None, Some("c"), Metadata::new(), Controls::default()).unwrap();
    ioverbs::write_at(&c, 0, b"12345").unwrap();
    assert_eq!(counter(&s, "data_requests"), 0);
    let attr = BatchAttr { controls: Some(controls("persistence=durable@batch")), ..Default::default() };
    let mut batch = Batch::new(&s, attr).unwrap();
    let data = b"67";
    // SAFETY: static data.
    let from = unsafe { ioverbs::Memory::readable(data.as_ptr(), data.len()) };
    batch.push(Op::Write { c: c.clone(), chunks: vec![(5, from)] }).unwrap();
    match batch.start().unwrap().wait(i64::MAX) {
        Ok(()) => assert!(counter(&s, "data_requests") > 0),
        Err(e) => println!("left out: no disk here ({e})"),
    }
    assert!(all(&c).starts_with(b"12345"));
}

#[test]
fn o8_whoever_only_polls_without_waiting_receives_answers() {
    let store = Store::new();
    let (s, ws) = store.workspace();
    let attr = BatchAttr { drive: ioverbs::Drive::Caller, ..Default::default() };
    let mut batch = Batch::new(&s, attr).unwrap();
    batch.push(Op::WorkspaceStat { w: ws.clone() }).unwrap();
    let request = batch.start().unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let polled = loop {
        let polled = s.poll_completed(1, 0).unwrap();
        if !polled.is_empty() || std::time::Instant::now() > until {
            break polled;
        }
    };
    assert!(polled.iter().any(|r| r.is(&request)));
    request.result().unwrap();
}

#[test]
fn what_is_changed_again_and_again_moves_out() {
    let store = Store::new();
    let (s, ws) = store.workspace();
    let (_, ws2) = store.loaded();
    let create =
        |name: &str, text: &str| ioverbs::create(&ws, None, Some(name), Metadata::new(), controls(text)).unwrap();
    let one = create("c", "");
    ioverbs::write_at(&one, 0, &[7; 300]).unwrap();
    let two = ioverbs::lookup(&ws2, None, "c", Controls::default()).unwrap();
    let before = counter(&s, "metadata_requests");
    for i in 0..500u64 {
        ioverbs::write_at(&one, i % 100, &[i as u8]).unwrap();
        if i % 60 == 59 {
            // Whoever else has it open follows.
            assert_eq!(all(&two)[(i % 100) as usize], i as u8);
            ioverbs::write_at(&two, 200, &[i as u8; 2]).unwrap();
            assert_eq!(all(&one)[199..203], [7, i as u8, i as u8, 7]);
        }
    }
    let asked = counter(&s, "metadata_requests") - before;
    assert!(asked < 100, "{asked} questions for 500 changes");
    assert_eq!((all(&one).len(), all(&one)[99]), (300, 499u64 as u8));
    ioverbs::close(&one).unwrap();
    // What is promised to stay small stays where it is.
    let small = create("small", "collection_size=..4KiB");
    let before = counter(&s, "data_requests");
    for i in 0..200u64 {
        ioverbs::write_at(&small, 0, &i.to_le_bytes()).unwrap();
    }
    assert_eq!((all(&small), counter(&s, "data_requests") - before), (199u64.to_le_bytes().to_vec(), 0));
}
