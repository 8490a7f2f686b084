//! Daemons that serve targets of a store whose catalog is another daemon's.

use std::{io::Write, net::TcpStream};

use iov_net::secret::Secret;
use iov_types::{
    Place,
    catalog::{CatalogOp, CatalogReply, Submission},
};
use iov_wire::{
    Verb, Wire,
    messages::{CatalogAnswer, CatalogRequest, Fault, Hello, ObjectAnswer, ObjectRequest},
};
use ioverbs::{
    BatchAttr, Collection, Controls, EntryKind, Kind, Layout, Lent, Metadata, Name, ObjectVerb, OnError, Op, Reach,
    Session, SessionAttr, Uuid, Which, Workspace, open, seam, write_at,
};

use crate::{
    kit::{Daemon, Peer, Store, batch, controls, listen, lookup, read, say, signal, wait_until},
    raw,
};

const MIB: usize = 1 << 20;

/// A store whose catalog's daemon has one target, and a daemon with others.
pub(crate) struct Two {
    pub(crate) store: Store,
    pub(crate) member: Store,
    pub(crate) catalog: Option<Daemon>,
    pub(crate) other: Option<Daemon>,
    storage: Vec<&'static str>,
    /// What else the other daemon is started with.
    with: Vec<&'static str>,
}

impl Two {
    /// Their sessions reach the other daemon by the socket in its directory, and are granted what lies there.
    pub(crate) fn new(storage: &[&'static str]) -> Two {
        let (store, member) = (Store::new(), Store::new());
        let catalog = Some(store.daemon(&["--storage", "files", "--listen", "127.0.0.1:0"], &[]));
        let mut two = Two { store, member, catalog, other: None, storage: storage.to_vec(), with: Vec::new() };
        two.join();
        two
    }

    /// The same over TCP, as from another host.
    fn far(storage: &[&'static str]) -> Two {
        let mut two = Two::new(storage);
        two.store.nodirect = true;
        two
    }

    /// Both ways in turns.
    fn each(storage: &[&'static str]) -> impl Iterator<Item = Two> {
        [Two::new, Two::far].into_iter().map(move |make| make(storage))
    }

    pub(crate) fn address(&self) -> String {
        ioverbs::daemon_addresses_within(&self.store.url(), 30_000_000_000).unwrap().unwrap()[0].clone()
    }

    pub(crate) fn join(&mut self) {
        let secret = self.store.dir().join("secret");
        let mut args = vec!["--join".to_owned(), self.address(), "--secret".into(), secret.display().to_string()];
        self.storage.iter().for_each(|what| args.extend(["--storage".into(), (*what).to_owned()]));
        let args: Vec<&str> = args.iter().map(String::as_str).chain(self.with.iter().copied()).collect();
        self.other = Some(self.member.daemon(&args, &[]));
    }

    /// A session over the network.
    pub(crate) fn by_network(&self) -> Session {
        let url = format!("iov://{}?secret={}", self.address(), self.store.dir().join("secret").display());
        open(Some(&url), SessionAttr { nodirect: self.store.nodirect, ..SessionAttr::default() }).unwrap()
    }

    fn reach(&self) -> Vec<(u32, Reach)> {
        let map = self.store.session().store_map().unwrap();
        map.targets.into_iter().map(|target| (target.number, target.reach)).collect()
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        // What lies in shared memory would outlive the daemon and its directory.
        if self.storage.iter().any(|storage| storage.starts_with("shmem")) {
            drop(self.other.take());
            let _ = ioverbs::store_release(&self.member.url());
        }
    }
}

pub(crate) fn workspace(session: &Session) -> Workspace {
    session.load_workspace(Which::parse("w").unwrap()).unwrap()
}

pub(crate) fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) + i / 4093 + seed * 7) as u8).collect()
}

/// Creates a collection on targets, each chunk of 64 KiB on another one.
pub(crate) fn on(ws: &Workspace, name: &str, asked: &str, targets: &[u32]) -> ioverbs::Result<Collection> {
    let out = ws.pending(EntryKind::Collection);
    let numbers: Vec<String> = targets.iter().map(u32::to_string).collect();
    let policy = Some(format!("targets:{}", numbers.join(",")));
    let layout = Layout { targets: targets.len() as u32, chunk_size: 64 << 10, policy, ..Layout::default() };
    let (metadata, controls, name) = (Metadata::new(), controls(asked), Some(Name::new(name)?));
    let create = Op::Create { out: out.clone(), parent: None, name, metadata, controls };
    let set = Op::Set { c: out.clone(), controls: None, layout: Some(layout) };
    batch(ws.session(), BatchAttr::default(), vec![create.into(), set.into()])?;
    Ok(out)
}

#[test]
fn what_lies_at_another_daemon_is_written_and_read_from_everywhere() {
    for two in Two::each(&["files", "heap:64MiB"]) {
        assert_eq!(two.reach(), [(0, Reach::Online), (64, Reach::Online), (65, Reach::Online)]);
        let ws = two.store.in_workspace();
        let volatile = "persistence=volatile";
        for (name, asked, targets) in [("one", "", &[64][..]), ("both", "", &[0, 64]), ("heap", volatile, &[65])] {
            let data = bytes(targets.len(), 3 * MIB + 5);
            let c = on(&ws, name, asked, targets).unwrap();
            write_at(&c, 0, &data).unwrap();
            let there = read(&lookup(&workspace(&two.by_network()), name));
            assert!(there == data, "{name}: read over the network");
            drop(c);
            let there = read(&lookup(&two.store.again(), name));
            assert!(there == data, "{name}: read on the host");
        }
        let routes: Vec<_> =
            two.store.session().routes().into_iter().map(|r| (r.target, r.by, r.round_trip_ns.is_ok())).collect();
        // Each counts what came over sockets.
        if two.store.nodirect {
            let counted = [64, 65].map(|n| two.member.status(&format!("target_{n}_bytes")).unwrap());
            assert!(counted.iter().all(|bytes| *bytes >= 3 * MIB as u64), "{counted:?}");
        }
        let by = if two.store.nodirect { "tcp" } else { "unix" };
        assert_eq!(routes, [(0, "unix", true), (64, by, true), (65, by, true)]);
        let far: Vec<_> = two.by_network().routes().into_iter().map(|route| (route.target, route.by)).collect();
        assert_eq!(far, [(0, "tcp"), (64, by), (65, by)]);
    }
}

/// Those who wait for a publication take nobody from it who could show it, however few there are who move bytes (O7).
#[test]
fn o7_a_publication_elsewhere_does_not_wait_for_who_waits_for_it() {
    let mut two = Two::far(&["files"]);
    two.other.take().unwrap().kill();
    two.with = vec!["--workers", "1"];
    two.join();
    let ws = two.store.in_workspace();
    let c = on(&ws, "c", "atomicity=publication,consistency=session", &[64]).unwrap();
    write_at(&c, 0, &bytes(1, MIB)).unwrap();
    ioverbs::commit(&c).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    let readers: Vec<_> = (0..4).map(|_| lookup(&workspace(&two.by_network()), "c")).collect();
    std::thread::scope(|scope| {
        for reader in &readers {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    ioverbs::read_at(reader, 0, &mut vec![0; MIB]).unwrap();
                }
            });
        }
        let begun = std::time::Instant::now();
        for n in 0..30 {
            write_at(&c, 0, &bytes(n, MIB / 4)).unwrap();
            ioverbs::commit(&c).unwrap();
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        // The catalog's patience with a member is 20 s.
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    });
}

#[test]
fn a_daemon_that_is_gone_is_told_and_is_awaited() {
    for mut two in Two::each(&["files"]) {
        let ws = two.store.in_workspace();
        let (data, other) = (bytes(1, 2 * MIB), bytes(2, 2 * MIB));
        let c = on(&ws, "c", "", &[0, 64]).unwrap();
        write_at(&c, 0, &data).unwrap();
        two.other.take().unwrap().kill();
        // What needs it fails, or waits to the end of its time; what does not goes on.
        let here = on(&ws, "here", "", &[0]).unwrap();
        write_at(&here, 0, &data).unwrap();
        wait_until("its silence is noticed", || two.reach()[1].1 == Reach::ProbablyOffline);
        let attr = SessionAttr { deadline_ns: 2_000_000_000, ..SessionAttr::default() };
        let hasty = workspace(&open(Some(&two.store.url()), attr).unwrap());
        let e = on(&hasty, "there", "", &[64]).err().expect("it is not there");
        assert_eq!(e.kind(), Kind::Unavailable, "{e}");
        // One that has been gone for longer is offline.
        assert!(e.detail().contains("target 64 is "), "{e}");
        two.join();
        assert_eq!(two.reach()[1].1, Reach::Online);
        assert!(read(&c) == data, "nothing acknowledged is lost");
        write_at(&c, 0, &other).unwrap();
        assert!(read(&lookup(&two.store.again(), "c")) == other);
        on(&ws, "there", "", &[64]).unwrap();
    }
}

#[test]
fn what_was_in_the_memory_of_a_daemon_that_is_gone_is_told_as_lost() {
    for mut two in Two::each(&["heap:64MiB"]) {
        let ws = two.store.in_workspace();
        let c = on(&ws, "c", "persistence=volatile", &[64]).unwrap();
        write_at(&c, 0, &bytes(1, MIB)).unwrap();
        two.other.take().unwrap().kill();
        two.join();
        let mut buf = vec![0; 10];
        let e = ioverbs::read_at(&c, 0, &mut buf).expect_err("it is lost");
        assert_eq!((e.kind(), e.clause()), (Kind::Lost, Some(ioverbs::Clause::P1)), "{e}");
        let e = write_at(&c, 0, &buf).expect_err("it is lost");
        assert_eq!(e.kind(), Kind::Lost, "{e}");
        // One that is made now is there.
        let fresh = on(&ws, "fresh", "persistence=volatile", &[64]).unwrap();
        write_at(&fresh, 0, &bytes(2, MIB)).unwrap();
        assert!(read(&fresh) == bytes(2, MIB));
    }
}

#[test]
fn the_catalog_comes_back_and_all_goes_on() {
    for mut two in Two::each(&["files"]) {
        let ws = two.store.in_workspace();
        let c = on(&ws, "c", "", &[64]).unwrap();
        write_at(&c, 0, &bytes(1, MIB)).unwrap();
        two.catalog.take().unwrap().kill();
        // It listens where it did, as nobody has told it to stop.
        two.catalog = Some(two.store.daemon(&[], &[]));
        write_at(&c, 0, &bytes(2, MIB)).unwrap();
        assert!(read(&c) == bytes(2, MIB));
        wait_until("the other daemon has joined again", || two.reach()[1].1 == Reach::Online);
        let next = on(&two.store.again(), "next", "", &[64]).unwrap();
        write_at(&next, 0, &bytes(3, MIB)).unwrap();
        assert!(read(&next) == bytes(3, MIB));
    }
}

#[test]
fn m1_publications_over_two_daemons_are_whole() {
    for two in Two::each(&["files"]) {
        let ws = two.store.in_workspace();
        let c = on(&ws, "c", "atomicity=publication", &[0, 64]).unwrap();
        write_at(&c, 0, &bytes(1, MIB)).unwrap();
        assert!(read(&lookup(&two.store.again(), "c")).is_empty(), "nothing of it is to be seen");
        ioverbs::commit(&c).unwrap();
        assert!(read(&lookup(&two.store.again(), "c")) == bytes(1, MIB));
    }
}

#[test]
fn who_has_not_the_secret_does_not_join() {
    let two = Two::new(&["files"]);
    let wrong = Store::new();
    std::fs::create_dir_all(wrong.dir()).unwrap();
    let secret = wrong.dir().with_file_name("other");
    std::fs::write(&secret, "0".repeat(64)).unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let out = std::process::Command::new(crate::kit::IOVD)
        .args(["--dir", wrong.dir().to_str().unwrap(), "--join", &two.address(), "--secret", secret.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(77));
    let words = String::from_utf8_lossy(&out.stderr);
    assert!(words.contains("your secret is not the one of this store"), "{words}");
    assert_eq!(two.reach().len(), 2);
}

/// A connection to a target of the other daemon, as of a session for the store.
fn to_target(two: &Two, of: Uuid) -> TcpStream {
    let map = two.store.session().store_map().unwrap();
    let target = map.targets.iter().find(|target| target.number == 64).unwrap();
    let hello = Hello { target: 64, of, ..raw::hello(seam::new_uuid(), 0) };
    let secret = Secret::load(&two.store.dir().join("secret")).unwrap();
    let (stream, verb) = raw::prove(&target.addresses[0], &hello, &secret);
    assert_eq!(verb, Verb::Welcome);
    stream
}

/// The error that a request gets, of itself or of its one operation.
fn refused(stream: &mut TcpStream, request: &ObjectRequest) -> Option<(Kind, Option<ioverbs::Clause>)> {
    stream.write_all(&raw::framed(request)).unwrap();
    let (verb, body) = raw::answer(stream);
    let e = match verb {
        Verb::Fault => Some(Fault::decode(&body).unwrap().error),
        _ => ObjectAnswer::decode(&body).unwrap().completions.remove(0).result.err(),
    };
    e.map(|e| (e.kind(), e.clause()))
}

#[test]
fn a1_nothing_is_done_with_an_object_without_leave_of_the_catalog() {
    let two = Two::new(&["files"]);
    let ws = two.store.in_workspace();
    let c = on(&ws, "c", "", &[64]).unwrap();
    write_at(&c, 0, &bytes(1, 1000)).unwrap();
    let collection = ioverbs::stat(&c).unwrap().uuid;
    let object = Place::part(collection, 0);
    let denied = Some((Kind::Denied, Some(ioverbs::Clause::A1)));
    let mut stream = to_target(&two, seam::new_uuid());
    for verb in [
        ObjectVerb::Read { offset: 0 },
        ObjectVerb::Stat,
        ObjectVerb::Truncate { size: 0 },
        ObjectVerb::Create,
        ObjectVerb::Remove,
        ObjectVerb::Seal,
        ObjectVerb::Fence { epoch: 9 },
    ] {
        assert_eq!(refused(&mut stream, &raw::request(object, verb.clone(), 10, Vec::new())), denied, "{verb:?}");
        let forged = vec![vec![7; 120]];
        assert_eq!(refused(&mut stream, &raw::request(object, verb, 10, forged)), denied);
    }
    // Who reads has leave to read, in its own session.
    batch(ws.session(), BatchAttr::default(), vec![Op::Seal { c: c.clone() }.into()]).unwrap();
    let session = seam::new_uuid();
    let secret = Secret::load(&two.store.dir().join("secret")).unwrap();
    let (mut catalog, _) = raw::prove(&two.address(), &raw::hello(session, 0), &secret);
    let (ws, which, kind) = (ws.uuid(), Which::Uuid(collection), EntryKind::Collection);
    ask(
        &mut catalog,
        CatalogOp::Open { ws, parent: Uuid::NIL, which, kind, controls: Controls::default(), tell: None },
    );
    let CatalogReply::Ticket(ticket) = ask(&mut catalog, CatalogOp::Ticket { uuid: collection }) else {
        panic!("a ticket");
    };
    assert!(!ticket.writable);
    let with = |verb| raw::request(object, verb, 0, vec![ticket.bytes.clone()]);
    assert_eq!(refused(&mut stream, &with(ObjectVerb::Stat)), denied, "it was given to another session");
    let mut own = to_target(&two, session);
    assert_eq!(refused(&mut own, &with(ObjectVerb::Stat)), None);
    assert_eq!(refused(&mut own, &with(ObjectVerb::Truncate { size: 0 })), denied);
    assert_eq!(refused(&mut own, &with(ObjectVerb::Remove)), denied);
    let other = raw::request(Place::part(seam::new_uuid(), 0), ObjectVerb::Stat, 0, vec![ticket.bytes.clone()]);
    assert_eq!(refused(&mut own, &other), denied, "it is for one collection");
    assert!(read(&c) == bytes(1, 1000), "all is as it was");
}

/// What the catalog answers to one operation.
fn ask(stream: &mut TcpStream, op: CatalogOp) -> CatalogReply {
    let request = CatalogRequest { context: Default::default(), how: Submission::Each, ops: vec![Ok(op)] };
    stream.write_all(&raw::framed(&request)).unwrap();
    let (verb, body) = raw::answer(stream);
    assert_eq!(verb, Verb::CatalogAnswer);
    CatalogAnswer::decode(&body).unwrap().replies.remove(0).unwrap()
}

/// In a child: changes two collections in batches, and tells each time which is done.
pub(crate) fn changes_both(url: &str) {
    let first: u8 = listen().parse().unwrap();
    // Now by the socket of its directory, now over TCP.
    let nodirect = first.is_multiple_of(2);
    let attr = SessionAttr { deadline_ns: 20_000_000_000, nodirect, ..SessionAttr::default() };
    let ws = workspace(&open(Some(url), attr).unwrap());
    let (a, b) = (lookup(&ws, "a"), lookup(&ws, "b"));
    for k in first.. {
        let data = vec![k; 300_000];
        let write = |c: &Collection| Lent::Write { c: c.clone(), offset: 0, data: &data };
        let rollback = BatchAttr { on_error: Some(OnError::Rollback), ..BatchAttr::default() };
        if batch(ws.session(), rollback, vec![write(&a), write(&b)]).is_ok() {
            say(&k.to_string());
        }
    }
}

#[test]
fn b3_batches_over_two_daemons_are_whole_whoever_is_killed() {
    let mut two = Two::new(&["files"]);
    let ws = two.store.in_workspace();
    for (name, targets) in [("a", &[0][..]), ("b", &[64])] {
        write_at(&on(&ws, name, "", targets).unwrap(), 0, &[1; 300_000]).unwrap();
    }
    let mut last = 1;
    for round in 0..9 {
        let mut peer = Peer::start("changes both in batches", &two.store);
        peer.tell(&(last + 1).to_string());
        // Somewhere in one of the first batches.
        let acknowledged: u8 = peer.hear().parse().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(round * 7919 % 23 * 1000));
        match round % 3 {
            0 => {
                two.other.take().unwrap().kill();
                two.join();
            }
            1 => {
                two.catalog.take().unwrap().kill();
                two.catalog = Some(two.store.daemon(&[], &[]));
            }
            _ => {}
        }
        peer.kill();
        // What a batch that is still being published holds is waited for.
        let ws = two.store.again();
        let look = |name| {
            let bytes = read(&lookup(&ws, name));
            assert!(bytes.len() == 300_000 && bytes.iter().all(|byte| *byte == bytes[0]), "{name}: torn");
            bytes[0]
        };
        let mut seen = [look("a"), look("b")];
        let until = std::time::Instant::now() + std::time::Duration::from_secs(40);
        // One that nobody waits for any more may come to its end between the two looks.
        while seen[0] != seen[1] && std::time::Instant::now() < until {
            seen = [look("a"), look("b")];
        }
        assert_eq!(seen[0], seen[1], "round {round}: all of a batch, or nothing");
        assert!(seen[0] >= acknowledged, "round {round}: {acknowledged} was acknowledged, and there is {}", seen[0]);
        last = seen[0];
    }
}

#[test]
fn a_daemon_that_hangs_holds_nobody_up_for_long() {
    let two = Two::new(&["files"]);
    let ws = two.store.in_workspace();
    let c = on(&ws, "c", "", &[64]).unwrap();
    write_at(&c, 0, &bytes(1, MIB)).unwrap();
    let pid = two.other.as_ref().unwrap().pid();
    signal(pid, "STOP");
    // Whoever makes something there waits for it; everybody else goes on as soon as that is known.
    let there = two.store.again();
    let waits = std::thread::spawn(move || on(&there, "waits", "", &[64]).map(drop));
    let here = on(&ws, "here", "", &[0]).unwrap();
    write_at(&here, 0, &bytes(2, MIB)).unwrap();
    wait_until("its silence is noticed", || two.reach()[1].1 != Reach::Online);
    signal(pid, "CONT");
    waits.join().unwrap().expect("what waited for it is done");
    wait_until("it is heard again", || two.reach()[1].1 == Reach::Online);
    assert!(read(&c) == bytes(1, MIB));
    write_at(&lookup(&two.store.again(), "waits"), 0, &bytes(3, MIB)).unwrap();
}

#[test]
fn b3_a_batch_stages_at_another_daemon_what_it_creates_or_opens_itself() {
    let two = Two::new(&["files"]);
    let ws = two.store.in_workspace();
    let rollback = || BatchAttr { on_error: Some(OnError::Rollback), ..BatchAttr::default() };
    let data = bytes(1, 100_000);
    let c = ws.pending(EntryKind::Collection);
    let policy = Some("targets:64".to_owned());
    let create = Op::Create {
        out: c.clone(),
        parent: None,
        name: Some(Name::new("c").unwrap()),
        metadata: Metadata::new(),
        controls: controls(""),
    };
    let set = Op::Set { c: c.clone(), controls: None, layout: Some(Layout { policy, ..Layout::default() }) };
    let write = Lent::Write { c: c.clone(), offset: 0, data: &data };
    batch(ws.session(), rollback(), vec![create.into(), set.into(), write]).unwrap();
    // The ticket for the batch was for what is staged only.
    write_at(&c, 100_000, &data).unwrap();
    // Somebody has it open already, and this session not.
    let other = two.store.again();
    let (again, more) = (other.pending(EntryKind::Collection), bytes(2, 50_000));
    let which = Which::Name(Name::new("c").unwrap());
    let open = |out: &Collection, controls| Op::Open { out: out.clone(), parent: None, which: which.clone(), controls };
    let write = Lent::Write { c: again.clone(), offset: 0, data: &more };
    batch(other.session(), rollback(), vec![open(&again, controls("")).into(), write]).unwrap();
    // Nor one that has it synced there.
    let (third, durable) = (two.store.again(), controls("persistence=durable@explicit"));
    let synced = third.pending(EntryKind::Collection);
    let persist = Op::Persist { c: synced.clone() };
    batch(third.session(), rollback(), vec![open(&synced, durable).into(), persist.into()]).unwrap();
    let found = read(&c);
    assert!(found.len() == 200_000 && found[..50_000] == more && found[50_000..100_000] == data[50_000..]);
    write_at(&again, 0, &data).unwrap();
    assert!(read(&c)[..100_000] == data[..]);
}

#[test]
fn a_daemon_that_has_joined_comes_back_without_being_told() {
    let mut two = Two::new(&["files"]);
    let ws = two.store.in_workspace();
    let c = on(&ws, "c", "", &[64]).unwrap();
    write_at(&c, 0, &bytes(1, MIB)).unwrap();
    two.member.shut_down();
    two.other = None;
    wait_until("it has left", || two.reach()[1].1 == Reach::Offline);
    two.other = Some(two.member.daemon(&[], &[]));
    assert_eq!(two.reach(), [(0, Reach::Online), (64, Reach::Online)], "the same target");
    assert!(read(&c) == bytes(1, MIB), "where it was");
    // In another store it has nothing to look for.
    two.other = None;
    two.member.shut_down();
    let another = Store::new();
    let _catalog = another.daemon(&["--listen", "127.0.0.1:0"], &[]);
    let address = ioverbs::daemon_addresses_within(&another.url(), 30_000_000_000).unwrap().unwrap().remove(0);
    let secret = another.dir().join("secret");
    let out = std::process::Command::new(crate::kit::IOVD)
        .args(["--dir", two.member.dir().to_str().unwrap(), "--join", &address, "--secret", secret.to_str().unwrap()])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && words.contains("belong to the store"), "{words}");
    assert_eq!(another.session().store_map().unwrap().targets.len(), 1, "it was given no number");
}
