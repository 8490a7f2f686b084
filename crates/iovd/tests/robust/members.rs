//! Daemons that serve targets of a store whose catalog is another daemon's.

use ioverbs::{
    BatchAttr, Collection, EntryKind, Kind, Layout, Metadata, Name, Op, Reach, Session, SessionAttr, Which, Workspace,
    open, write_at,
};

use crate::kit::{Daemon, Store, batch, controls, lookup, read, wait_until};

const MIB: usize = 1 << 20;

/// A store whose catalog's daemon has one target, and a daemon with others.
struct Two {
    store: Store,
    member: Store,
    catalog: Option<Daemon>,
    other: Option<Daemon>,
    storage: Vec<&'static str>,
}

impl Two {
    fn new(storage: &[&'static str]) -> Two {
        let (store, member) = (Store::new(), Store::new());
        let catalog = Some(store.daemon(&["--storage", "files", "--listen", "127.0.0.1:0"], &[]));
        let mut two = Two { store, member, catalog, other: None, storage: storage.to_vec() };
        two.join();
        two
    }

    fn address(&self) -> String {
        ioverbs::daemon_addresses_within(&self.store.url(), 30_000_000_000).unwrap().unwrap()[0].clone()
    }

    fn join(&mut self) {
        let secret = self.store.dir().join("secret");
        let mut args = vec!["--join".to_owned(), self.address(), "--secret".into(), secret.display().to_string()];
        self.storage.iter().for_each(|what| args.extend(["--storage".into(), (*what).to_owned()]));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.other = Some(self.member.daemon(&args, &[]));
    }

    /// A session over the network.
    fn by_network(&self) -> Session {
        let url = format!("iov://{}?secret={}", self.address(), self.store.dir().join("secret").display());
        open(Some(&url), SessionAttr::default()).unwrap()
    }

    fn reach(&self) -> Vec<(u32, Reach)> {
        let map = self.store.session().store_map().unwrap();
        map.targets.into_iter().map(|target| (target.number, target.reach)).collect()
    }
}

fn workspace(session: &Session) -> Workspace {
    session.load_workspace(Which::parse("w").unwrap()).unwrap()
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) + i / 4093 + seed * 7) as u8).collect()
}

/// Creates a collection on targets, each chunk of 64 KiB on another one.
fn on(ws: &Workspace, name: &str, asked: &str, targets: &[u32]) -> ioverbs::Result<Collection> {
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
    let two = Two::new(&["files", "heap:64MiB"]);
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
}

#[test]
fn a_daemon_that_is_gone_is_told_and_is_awaited() {
    let mut two = Two::new(&["files"]);
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
    assert!(e.detail().contains("target 64 is probably-offline"), "{e}");
    two.join();
    assert_eq!(two.reach()[1].1, Reach::Online);
    assert!(read(&c) == data, "nothing acknowledged is lost");
    write_at(&c, 0, &other).unwrap();
    assert!(read(&lookup(&two.store.again(), "c")) == other);
    on(&ws, "there", "", &[64]).unwrap();
}

#[test]
fn what_was_in_the_memory_of_a_daemon_that_is_gone_is_told_as_lost() {
    let mut two = Two::new(&["heap:64MiB"]);
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

#[test]
fn the_catalog_comes_back_and_all_goes_on() {
    let mut two = Two::new(&["files"]);
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

#[test]
fn m1_publications_over_two_daemons_are_whole() {
    let two = Two::new(&["files"]);
    let ws = two.store.in_workspace();
    let c = on(&ws, "c", "atomicity=publication", &[0, 64]).unwrap();
    write_at(&c, 0, &bytes(1, MIB)).unwrap();
    assert!(read(&lookup(&two.store.again(), "c")).is_empty(), "nothing of it is to be seen");
    ioverbs::commit(&c).unwrap();
    assert!(read(&lookup(&two.store.again(), "c")) == bytes(1, MIB));
}

#[test]
fn who_has_not_the_secret_does_not_join() {
    let two = Two::new(&["files"]);
    let wrong = Store::new();
    std::fs::create_dir_all(wrong.dir()).unwrap();
    let secret = wrong.dir().join("other");
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
