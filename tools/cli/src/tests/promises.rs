#![allow(clippy::disallowed_methods)] // one of these tests has somebody open what another looks at

use super::World;

#[test]
fn explain_tells_what_is_granted_and_where_it_comes_from() {
    let world = World::new();
    world.iov(&["ws", "create", "w", "-c", "consistency=session"]).ok();
    let report = world.iov(&["explain", "w", "-c", "mutability=append", "--json"]).ok().json();
    let line = |name: &str| {
        let lines = report["controls"].as_array().unwrap();
        lines.iter().find(|l| l["control"] == name).unwrap().clone()
    };
    assert_eq!((&line("consistency")["from"], &line("consistency")["clause"]), (&"workspace".into(), &"C3".into()));
    assert_eq!(line("mutability")["from"], "asked");
    assert_eq!(line("concurrency")["from"], "default");
    assert_eq!(report["what"], "a create");
    world.with_stdin(b"x", &["put", "-", "w/a"]).ok();
    let text = world.iov(&["explain", "w/a", "--op", "write:1MiB", "--op", "commit", "--op", "close"]).ok().text();
    for word in ["what an open gets", "consistency", "plan", "write 1.00 MiB: apply at the target", "publish"] {
        assert!(text.contains(word), "no {word:?} in\n{text}");
    }
    let report = world.iov(&["explain", "w/a", "--op", "write:1MiB@4096", "--json"]).ok().json();
    assert_eq!(report["plan"]["waves"][0]["operations"][0]["bytes"], 1 << 20);
    let none = world.iov(&["explain", "-c", "profile=posix"]).ok().text();
    assert!(none.contains("what a create gets"), "{none}");
}

#[test]
fn p3_what_cannot_be_promised_is_refused_with_clause_and_offer() {
    let world = World::with_workspace();
    let ran = world.iov(&["explain", "w", "-c", "persistence=durable"]);
    let ran = ran.fails(69, &["IOV_EREFUSED", "clause P3", "offer", "next: ask for what can be had: -c 'persistence="]);
    assert_eq!(ran.text(), "");
    let report = world.iov(&["explain", "w", "-c", "persistence=durable", "--json"]);
    assert_eq!(report.code, 69);
    assert_eq!(report.json()["clause"], "P3");
    world.with_stdin(b"x", &["put", "-", "w/a", "-c", "persistence=durable"]).fails(69, &["IOV_EREFUSED"]);
    assert_eq!(world.count(), "0");
    world.iov(&["ws", "create", "v", "-c", "persistence=durable"]).fails(69, &["IOV_EREFUSED", "clause P3"]);
}

#[test]
fn explain_wants_something_to_explain() {
    let world = World::with_workspace();
    world.iov(&["explain"]).fails(64, &["required"]);
    world.iov(&["explain", "w", "-c", "consistency=strong"]).fails(64, &["IOV_EINVALID"]);
    world.iov(&["explain", "w/none", "--op", "commit"]).fails(64, &["there is none of this name"]);
    world.with_stdin(b"x", &["put", "-", "w/a"]).ok();
    world.iov(&["explain", "w/a", "--op", "fly"]).fails(64, &["is no operation", "write:SIZE"]);
    world.iov(&["explain", "w/a", "--op", "write:1TiB"]).fails(73, &["16 GiB"]);
}

#[test]
fn m2_immutable_files_are_sealed_when_they_are_stored() {
    let world = World::with_workspace();
    world.with_stdin(b"small", &["put", "-", "w/stream", "-c", "profile=dataset"]).ok();
    let small = world.file("small", b"small");
    let large = world.file("large", &vec![1; 3 << 20]);
    world.iov(&["put", &small, &large, "w", "-c", "profile=dataset"]).ok();
    world.iov(&["cp", "w/small", "w/copy"]).ok();
    for name in ["stream", "small", "large", "copy"] {
        let stat = world.iov(&["stat", &format!("w/{name}"), "--json"]).ok().json();
        assert_eq!(stat[0]["state"], "sealed", "{name}");
    }
    assert!(world.iov(&["why", "w/small"]).ok().text().contains("sealed"));
    world.iov(&["put", &small, "w", "--if-exists", "replace"]).ok();
}

#[test]
fn m4_append_only_collections_are_stored_by_appending() {
    let world = World::new();
    world.iov(&["ws", "create", "w", "-c", "mutability=append"]).ok();
    let bytes = super::pattern(20 << 20);
    let large = world.file("large", &bytes);
    let small = world.file("small", b"small");
    world.iov(&["put", &large, &small, "w"]).ok();
    assert!(world.cat("w/large") == bytes);
    assert_eq!(world.cat("w/small"), b"small");
    world.iov(&["cp", "w/large", "w/copy"]).ok();
    assert!(world.cat("w/copy") == bytes);
}

#[test]
fn every_profile_that_is_granted_can_be_stored_replaced_and_read() {
    let world = World::with_workspace();
    let large = world.file("f", &super::pattern(2 << 20));
    for profile in ["posix", "dataset", "log", "scratch", "exchange"] {
        let controls = format!("profile={profile}");
        if world.iov(&["explain", "-c", &controls]).code == 69 {
            continue;
        }
        let name = format!("w/{profile}");
        world.with_stdin(b"old", &["put", "-", &name, "-c", &controls]).ok();
        assert_eq!(world.cat(&name), b"old", "{profile}");
        world.iov(&["put", &large, &name, "-c", &controls, "--if-exists", "replace"]).ok();
        assert!(world.cat(&name) == super::pattern(2 << 20), "{profile}");
    }
}

#[test]
fn c4_eventual_collections_are_replaced_in_one_step_too() {
    let world = World::with_workspace();
    let controls = "consistency=eventual";
    if world.iov(&["explain", "-c", controls]).code == 69 {
        return;
    }
    let f = world.file("f", b"1");
    world.iov(&["put", &f, "w", "-c", controls]).ok();
    world.file("f", b"2");
    world.iov(&["put", &f, "w", "-c", controls, "--if-exists", "replace"]).ok();
    assert_eq!(world.cat("w/f"), b"2");
    assert_eq!(world.iov(&["ls", "w"]).ok().lines(), ["f"]);
    world.iov(&["tag", "w/f", "a=1", "-d", "b"]).fails(66, &["b"]);
}

#[test]
fn x1_why_tells_of_a_hold() {
    let world = World::with_workspace();
    world.with_stdin(b"x", &["put", "-", "w/a", "-c", "concurrency=exclusive"]).ok();
    let session = ioverbs::open(Some(&world.url), Default::default()).unwrap();
    let ws = session.load_workspace(ioverbs::Workspace::which("w").unwrap()).unwrap();
    let held = ioverbs::lookup(&ws, None, "a", Default::default()).unwrap();
    let why = world.iov(&["why", "w/a", "--json"]).ok().json();
    assert_eq!((&why[0]["clause"], &why[0]["stops"]), (&"X1".into(), &"every use".into()));
    world.iov(&["cat", "w/a"]).fails(75, &["IOV_EBUSY", "clause X1"]);
    assert_eq!(world.iov(&["stat", "w/a", "--json"]).ok().json()[0]["size"], 1);
    assert_eq!(world.iov(&["ls", "w"]).ok().lines(), ["a"]);
    ioverbs::close(&held).unwrap();
    assert_eq!(world.cat("w/a"), b"x");
    assert!(world.iov(&["why", "w"]).ok().text().contains("nothing stands in the way"));
}

#[test]
fn x1_why_reads_nothing_that_an_open_would_keep_from_others() {
    let world = World::with_workspace();
    world.with_stdin(b"x", &["put", "-", "w/g/a", "-p", "-c", "concurrency=exclusive"]).ok();
    world.with_stdin(b"x", &["put", "-", "w/g/shared"]).ok();
    let read = |ran: &super::Ran| {
        let counted = ran.err.lines().find_map(|l| l.strip_prefix("bytes_read"));
        counted.map_or(0, |n| n.trim().parse::<u64>().unwrap())
    };
    assert_eq!(read(&world.iov(&["why", "w/g/shared", "--stats"]).ok()), 1);
    let why = world.iov(&["why", "w/g/a", "--stats"]).ok();
    assert_eq!(read(&why), 0, "{}", why.err);
    let text = why.text();
    for word in ["nobody has it now", "it was not read", "iov cat w/g/a > /dev/null"] {
        assert!(text.contains(word), "no {word:?} in\n{text}");
    }
    let quick = world.iov(&["why", "w/g/a", "--quick"]).ok().text();
    assert!(quick.contains("nobody has it now") && !quick.contains("not read"), "{quick}");
    // Sealed bytes are read without a hold.
    let f = world.file("sealed", b"x");
    world.iov(&["put", &f, "w", "-c", "concurrency=exclusive,mutability=immutable"]).ok();
    let why = world.iov(&["why", "w/sealed", "--stats"]).ok();
    assert!(read(&why) == 1 && !why.text().contains("not read"), "{why:?}");
}

#[test]
fn x1_why_takes_no_hold() {
    let world = World::with_workspace();
    world.with_stdin(b"x", &["put", "-", "w/a", "-c", "concurrency=exclusive"]).ok();
    let session = ioverbs::open(Some(&world.url), Default::default()).unwrap();
    let ws = session.load_workspace(ioverbs::Workspace::which("w").unwrap()).unwrap();
    let mut exclusive = ioverbs::Controls::default();
    ioverbs::text::parse(&mut exclusive, "concurrency=exclusive").unwrap();
    let out = ws.pending(ioverbs::EntryKind::Group);
    let name = Some(ioverbs::Name::new("h").unwrap());
    let create =
        ioverbs::Op::Create { out: out.clone(), parent: None, name, metadata: Default::default(), controls: exclusive };
    ioverbs::run(&session, create).unwrap();
    let inside = ioverbs::create(&ws, Some(out.clone()), Some("inside"), Default::default(), Default::default());
    ioverbs::close(&inside.unwrap()).unwrap();
    assert!(world.iov(&["why", "w/h"]).ok().text().contains("stops every use"));
    assert!(world.iov(&["why", "w/h/inside"]).ok().text().contains("stops every use"));
    ioverbs::close(&out).unwrap();
    assert!(world.iov(&["why", "w/h"]).ok().text().contains("nobody has it now"));

    let open = |kind, name: &str| {
        let out = ws.pending(kind);
        let which = ioverbs::Which::parse(name).unwrap();
        ioverbs::run(
            &session,
            ioverbs::Op::Open { out: out.clone(), parent: None, which, controls: Default::default() },
        )
        .unwrap_or_else(|e| panic!("{name}: {e}"));
        out
    };
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                for name in ["w/a", "w/h"] {
                    world.iov(&["why", name]).ok();
                }
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        // Whoever opens is never told that somebody else has it.
        while !ended.load(std::sync::atomic::Ordering::Relaxed) {
            ioverbs::close(&open(ioverbs::EntryKind::Collection, "a")).unwrap();
            ioverbs::close(&open(ioverbs::EntryKind::Group, "h")).unwrap();
        }
    });
}

#[test]
fn o11_why_tells_of_locks() {
    let world = World::with_workspace();
    world.with_stdin(&[0; 100], &["put", "-", "w/a"]).ok();
    let session = ioverbs::open(Some(&world.url), Default::default()).unwrap();
    let ws = session.load_workspace(ioverbs::Workspace::which("w").unwrap()).unwrap();
    let c = ioverbs::lookup(&ws, None, "a", Default::default()).unwrap();
    for offset in [10, 50] {
        let range = ioverbs::Range { offset, len: 10 };
        let lock =
            ioverbs::catalog::LockSpec { exclusive: true, try_only: true, range, owner: 7, lease_ns: 30_000_000_000 };
        ioverbs::run(&session, ioverbs::Op::Lock { c: c.clone(), lock }).unwrap();
    }
    let why = world.iov(&["why", "w/a"]).ok().text();
    assert!(why.contains("owner 7 has an exclusive lock on bytes 10..20"), "{why}");
    assert!(why.contains("bytes 50..60"), "{why}");
}
