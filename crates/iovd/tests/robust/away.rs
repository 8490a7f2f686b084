//! What waits for a target that is away, while the connection breaks over which it came.

use std::{io::Write, net::TcpStream, time::Duration};

use iov_net::secret::Secret;
use iov_types::catalog::{CatalogOp, Submission};
use iov_wire::{
    Verb, Wire,
    messages::{CatalogAnswer, CatalogRequest},
};
use ioverbs::{Collection, EntryKind, Kind, Outcome, Reach, SessionAttr, Uuid, Which, open, seam};

use crate::{
    kit::{controls, wait_until},
    members::{Two, bytes, on, workspace},
    raw,
    restart::try_lock,
};

/// A session over the network; it comes again until all of the last connection has ended.
fn connect(two: &Two, session: Uuid) -> TcpStream {
    let secret = Secret::load(&two.store.dir().join("secret")).unwrap();
    let mut connected = None;
    wait_until("a connection of the session", || {
        let (stream, verb) = raw::prove(&two.address(), &raw::hello(session, 0), &secret);
        connected = (verb == Verb::Welcome).then_some(stream);
        connected.is_some()
    });
    connected.unwrap()
}

fn say(stream: &mut TcpStream, op: CatalogOp) {
    let request = CatalogRequest { context: Default::default(), how: Submission::Each, ops: vec![Ok(op)] };
    stream.write_all(&raw::framed(&request)).unwrap();
}

fn hear(stream: &mut TcpStream) -> ioverbs::Result<()> {
    let (verb, body) = raw::answer(stream);
    assert_eq!(verb, Verb::CatalogAnswer);
    CatalogAnswer::decode(&body).unwrap().replies.remove(0).map(drop)
}

#[test]
fn x1_what_waited_over_a_connection_that_broke_takes_no_effect_behind_the_next_one() {
    let mut two = Two::new(&["files"]);
    let ws = two.store.in_workspace();
    let uuid = ioverbs::stat(&on(&ws, "c", "", &[64]).unwrap()).unwrap().uuid;
    let exclusive = || controls("concurrency=exclusive");
    let open = || CatalogOp::Open {
        ws: ws.uuid(),
        parent: Uuid::NIL,
        which: Which::Uuid(uuid),
        kind: EntryKind::Collection,
        controls: exclusive(),
        tell: None,
    };
    two.other.take().unwrap().kill();
    let reach = || two.store.session().store_map().unwrap().targets[1].reach;
    wait_until("its silence is noticed", || reach() != Reach::Online);
    let session = seam::new_uuid();
    let mut first = connect(&two, session);
    say(&mut first, open());
    let parked = Duration::from_millis(500);
    first.set_read_timeout(Some(parked)).unwrap();
    assert!(raw::receive(&mut first).is_none(), "it waits");
    // It breaks, and the session is kept.
    rustix::net::sockopt::set_socket_linger(&first, Some(Duration::ZERO)).unwrap();
    drop(first);
    let mut second = connect(&two, session);
    say(&mut second, open());
    two.join();
    hear(&mut second).expect("the target is back");
    // What came over the first connection has been tried by then, if it was to be.
    std::thread::sleep(Duration::from_secs(1));
    say(&mut second, CatalogOp::Close { ws: ws.uuid(), uuid, published: None });
    hear(&mut second).unwrap();
    let again = ioverbs::lookup(&two.store.again(), None, "c", exclusive());
    assert!(again.is_ok(), "it was opened once, and is closed: {:?}", again.err().map(|e| (e.kind() == Kind::Busy, e)));
}

/// What is locked may be somebody else's once the store's daemon has not been reached for long: nothing of it is written until it is.
#[test]
fn o11_what_is_locked_is_not_written_while_the_catalog_is_away_for_long() {
    let mut two = Two::new(&["files"]);
    two.store.nodirect = true;
    let attr = SessionAttr { nodirect: true, deadline_ns: 8_000_000_000, ..SessionAttr::default() };
    two.store.in_workspace();
    let url = format!("iov://{}?secret={}", two.address(), two.store.dir().join("secret").display());
    let ws = workspace(&open(Some(&url), attr).unwrap());
    let (locked, other) = (on(&ws, "locked", "", &[64]).unwrap(), on(&ws, "other", "", &[64]).unwrap());
    let write = |c: &Collection| ioverbs::write_at(c, 0, &bytes(1, 100_000)).map(drop);
    write(&locked).and(write(&other)).unwrap();
    try_lock(&locked).unwrap();
    two.catalog.take().unwrap().kill();
    write(&locked).unwrap();
    // Until then nobody can have got it.
    std::thread::sleep(Duration::from_millis(5500));
    write(&other).unwrap();
    let e = write(&locked).unwrap_err();
    assert!(matches!(e.kind(), Kind::Unavailable | Kind::Timeout) && e.outcome() == Outcome::NotApplied, "{e}");
    // What only reads waits, too.
    let read = || ioverbs::read_at(&locked, 0, &mut [0; 100]);
    let read = std::thread::scope(|scope| {
        let read = scope.spawn(read);
        std::thread::sleep(Duration::from_millis(300));
        two.catalog = Some(two.store.daemon(&[], &[]));
        read.join().unwrap()
    });
    assert_eq!(read.unwrap(), 100);
    wait_until("the lock is taken up again", || write(&locked).is_ok());
    write(&other).unwrap();
}
