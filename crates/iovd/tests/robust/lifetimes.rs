//! Collections that go by themselves, with real processes and daemons.

use ioverbs::{Attr, Collection, EntryKind, Kind, Lifetime, Op, Output, Which, Workspace, write_at};

use crate::{
    kit::{Peer, Store, create, listen, lookup, say, wait_until},
    members::{Two, on, workspace},
};

fn bind(c: &Collection, lifetime: Lifetime) {
    let attr = Attr { lifetime: Some(lifetime), ..Attr::default() };
    ioverbs::run(c.session(), Op::SetAttr { c: c.clone(), attr }).unwrap();
}

fn is_there(ws: &Workspace, name: &str) -> bool {
    match ioverbs::lookup(ws, None, name, Default::default()) {
        Ok(c) => ioverbs::close(&c).is_ok(),
        Err(e) => {
            assert_eq!(e.kind(), Kind::NotFound, "{e}");
            false
        }
    }
}

#[test]
fn an_orderly_end_of_the_daemon_takes_nothing_from_a_process_that_lives() {
    let store = Store::new();
    let ws = store.in_workspace();
    let bound = create(&ws, "bound", "");
    bind(&bound, Lifetime::PROCESS);
    write_at(&bound, 0, &[1; 100_000]).unwrap();
    // The session has nothing open, and is connected.
    ioverbs::close(&bound).unwrap();
    store.shut_down();
    // So long it has to come back to the next one.
    let _daemon = store.daemon(&["--lease-ms", "3000"], &[]);
    assert!(is_there(&store.again(), "bound"));
    // It goes on, and ends then.
    assert!(is_there(&ws, "bound"));
    drop((ws, bound));
    let other = store.again();
    wait_until("the collection goes with its process", || !is_there(&other, "bound"));
}

#[test]
fn processes_that_joined_one_keep_what_is_bound_to_it_also_for_the_next_daemon() {
    let store = Store::new();
    let daemon = store.daemon(&["--lease-ms", "2000"], &[]);
    let first = store.in_workspace();
    ioverbs::close(&create(&first, "bound", "")).unwrap();
    let bound = lookup(&first, "bound");
    bind(&bound, Lifetime::PROCESS);
    ioverbs::close(&bound).unwrap();
    let second = store.again();
    second.session().join(first.session().export_token().unwrap()).unwrap();
    drop((first, bound));
    daemon.kill();
    let _daemon = store.daemon(&["--lease-ms", "2000"], &[]);
    // It has nothing open, and is there.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while std::time::Instant::now() < until {
        assert!(is_there(&second, "bound"));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    drop(second);
    let other = store.again();
    wait_until("the collection goes with the last of them", || !is_there(&other, "bound"));
}

/// In a child: opens a collection of another daemon, binds it to itself, and changes it until it is killed.
pub(crate) fn binds(url: &str) {
    let session = ioverbs::open(Some(url), Default::default()).unwrap();
    let c = lookup(&workspace(&session), &listen());
    bind(&c, Lifetime::PROCESS);
    write_at(&c, 0, &[7; 300_000]).unwrap();
    say("bound");
    listen();
}

#[test]
fn a_process_that_ends_while_a_daemon_is_away_has_ended_all_the_same() {
    let mut two = Two::new(&["files"]);
    let ws = two.store.in_workspace();
    for name in ["c", "exclusive"] {
        let asked = if name == "c" { "" } else { "concurrency=exclusive" };
        ioverbs::close(&on(&ws, name, asked, &[64]).unwrap()).unwrap();
    }
    let mut peers: Vec<Peer> = ["c", "exclusive"].map(|_| Peer::start("binds what it opens", &two.store)).into();
    for (peer, name) in peers.iter_mut().zip(["c", "exclusive"]) {
        peer.tell(name);
        assert_eq!(peer.hear(), "bound");
    }
    two.other.take().unwrap().kill();
    peers.into_iter().for_each(Peer::kill);
    std::thread::sleep(std::time::Duration::from_millis(300));
    two.join();
    wait_until("both go with their processes", || !is_there(&ws, "c") && !is_there(&ws, "exclusive"));
}

#[test]
fn what_is_sealed_and_opened_by_its_uuid_is_in_use() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "c", "mutability=immutable");
    write_at(&c, 0, &[1; 100_000]).unwrap();
    bind(&c, Lifetime::lease(2_000_000_000));
    ioverbs::run(ws.session(), Op::Seal { c: c.clone() }).unwrap();
    let uuid = c.uuid().unwrap();
    ioverbs::close(&c).unwrap();
    let open = || {
        let out = ws.pending(EntryKind::Collection);
        let (parent, which, controls) = (None, Which::Uuid(uuid), Default::default());
        ioverbs::run(ws.session(), Op::Open { out: out.clone(), parent, which, controls }).unwrap();
        out
    };
    ioverbs::close(&open()).unwrap();
    // The second time the library knows all that an open would tell.
    let reader = open();
    std::thread::sleep(std::time::Duration::from_millis(3_500));
    assert!(is_there(&store.again(), "c"));
    let mut bytes = [0; 10];
    assert_eq!(ioverbs::read_at(&reader, 50_000, &mut bytes).unwrap(), 10);
    ioverbs::close(&reader).unwrap();
    let other = store.again();
    wait_until("it goes when nobody has it open", || is_empty(&other));
}

/// Without opening anything, which would be a use.
fn is_empty(ws: &Workspace) -> bool {
    let stat = ioverbs::run(ws.session(), Op::WorkspaceStat { w: ws.clone() }).unwrap();
    matches!(stat.output, Output::Stat(stat) if stat.entries == 0)
}
