//! A disk that is full: each change that finds no room says so, nothing that was acknowledged is lost, and with room it
//! goes on.

use ioverbs::{Kind, Name, Op, SessionAttr, Which, Workspace, open};

use crate::{
    full_start::{memory, on_small_disk},
    kit::{create, has_ended, lookup, read, say, signal, wait_until},
};

#[test]
fn p2_a_full_disk_costs_nothing_that_was_acknowledged() {
    on_small_disk("fills the disk with bytes", &memory("24m"));
}

#[test]
fn p7_a_disk_full_of_records_keeps_them_all() {
    on_small_disk("fills the disk with records", &memory("6m"));
}

#[test]
fn b4_what_cannot_be_staged_for_lack_of_room_is_not_published() {
    on_small_disk("stages too much", &memory("24m"));
}

fn workspace(url: &str) -> Workspace {
    let session = open(Some(url), SessionAttr::default()).unwrap();
    let made = session.create_workspace(Name::new("w").unwrap(), Default::default());
    made.or_else(|_| session.load_workspace(Which::parse("w").unwrap())).unwrap()
}

fn is_exhausted(e: &ioverbs::Error) {
    assert_eq!(e.kind(), Kind::Exhausted, "{e}");
    assert!(e.detail().contains("full") || e.detail().contains("room") || e.detail().contains("free"), "{e}");
}

fn restart(url: &str) {
    let status = ioverbs::daemon_status(url).unwrap().unwrap();
    let pid = status.iter().find(|(name, _)| name == "pid").unwrap().1 as u32;
    signal(pid, "KILL");
    wait_until("the daemon's end", || has_ended(pid));
}

fn delete(ws: &Workspace, name: &str) {
    let which = Which::parse(name).unwrap();
    ioverbs::run(ws.session(), Op::Delete { w: ws.clone(), parent: None, which }).unwrap();
}

/// The part with large collections.
pub(crate) fn with_bytes(url: &str) {
    let ws = workspace(url);
    let mut written = 0;
    let failed = loop {
        let name = format!("c{written}");
        let done = ioverbs::create(&ws, None, Some(&name), Default::default(), Default::default())
            .and_then(|c| ioverbs::write_at(&c, 0, &vec![written as u8; 1 << 20]).and_then(|()| ioverbs::close(&c)));
        match done {
            Ok(()) => written += 1,
            Err(e) => break e,
        }
        assert!(written < 100, "the disk is small");
    };
    is_exhausted(&failed);
    assert!(written > 5, "{failed}");
    say(&format!("{written} collections, then: {failed}"));
    let check = |url: &str, but: std::ops::Range<i32>| {
        let ws = workspace(url);
        for i in (0..written).filter(|i| !but.contains(i)) {
            assert_eq!(read(&lookup(&ws, &format!("c{i}"))), vec![i as u8; 1 << 20], "c{i}");
        }
    };
    check(url, 0..0);
    restart(url);
    check(url, 0..0);
    // An overwrite needs no room; with room again there is more.
    let c = lookup(&ws, "c0");
    ioverbs::write_at(&c, 0, &vec![0; 1 << 20]).unwrap();
    for i in 1..=4 {
        delete(&ws, &format!("c{i}"));
    }
    for i in 1..=2 {
        let c = create(&ws, &format!("c{i}"), "");
        ioverbs::write_at(&c, 0, &vec![i as u8; 1 << 20]).unwrap();
        ioverbs::close(&c).unwrap();
    }
    check(url, 3..5);
    say("done");
}

/// The part with records only.
pub(crate) fn with_records(url: &str) {
    let ws = workspace(url);
    let mut made = 0;
    let create = |i: usize| {
        let mut md = ioverbs::Metadata::new();
        md.set("text", ioverbs::Value::Str("x".repeat(4000))).unwrap();
        ioverbs::create(&ws, None, Some(&format!("c{i}")), md, Default::default()).and_then(|c| ioverbs::close(&c))
    };
    let failed = loop {
        match create(made) {
            Ok(()) => made += 1,
            Err(e) => break e,
        }
        assert!(made < 10_000, "the disk is small");
    };
    is_exhausted(&failed);
    say(&format!("{made} records, then: {failed}"));
    let check = |url: &str, left: usize| {
        let ws = workspace(url);
        let stat = ioverbs::run(ws.session(), Op::WorkspaceStat { w: ws.clone() }).unwrap();
        let ioverbs::Output::Stat(stat) = stat.output else { panic!("{:?}", stat.output) };
        assert_eq!(stat.entries as usize, left);
        for i in (made - left..made).step_by(20) {
            ioverbs::close(&lookup(&ws, &format!("c{i}"))).unwrap();
        }
    };
    check(url, made);
    restart(url);
    check(url, made);
    // What makes room finds room, and then there is some.
    for i in 0..made / 2 {
        delete(&ws, &format!("c{i}"));
    }
    check(url, made - made / 2);
    restart(url);
    check(url, made - made / 2);
    say("done");
}

/// The part with a publication that does not fit.
pub(crate) fn with_stages(url: &str) {
    let ws = workspace(url);
    let c = create(&ws, "published", "atomicity=publication");
    ioverbs::write_at(&c, 0, &vec![1; 8 << 20]).unwrap();
    ioverbs::commit(&c).unwrap();
    let mut failed = None;
    for i in 0..40u64 {
        if let Err(e) = ioverbs::write_at(&c, i << 20, &vec![2; 1 << 20]) {
            failed = Some(e);
            break;
        }
    }
    let failed = failed.or_else(|| ioverbs::commit(&c).err()).expect("it does not fit");
    is_exhausted(&failed);
    say(&format!("{failed}"));
    let seen = |url: &str| read(&lookup(&workspace(url), "published"));
    assert_eq!(seen(url), vec![1; 8 << 20], "M1: the version before is whole");
    drop((c, ws));
    wait_until("the end of the stage", || {
        let probe = workspace(url);
        let fits = ioverbs::create(&probe, None, Some("probe"), Default::default(), Default::default())
            .and_then(|p| ioverbs::write_at(&p, 0, &vec![3; 8 << 20]));
        let _ = Which::parse("probe")
            .map(|which| ioverbs::run(probe.session(), Op::Delete { w: probe.clone(), parent: None, which }));
        fits.is_ok()
    });
    assert_eq!(seen(url), vec![1; 8 << 20]);
    say("done");
}
