//! Stores over TCP: who is let in, and what becomes of clients whose connections break, are damaged, or lead nowhere.

mod breaks;
mod cable;
mod entrance;
mod load;
mod tls;

use std::path::PathBuf;

use ioverbs::{Result, Session, SessionAttr, Which, Workspace, open};

use self::cable::Cable;
use crate::kit::{Daemon, Store, create, listen, say};

/// A store whose daemon listens.
pub(crate) struct Net {
    // Ends first.
    daemon: Option<Daemon>,
    store: Store,
    address: String,
}

impl Net {
    fn new() -> Net {
        Net::with(&[])
    }

    fn with(args: &[&str]) -> Net {
        let store = Store::new();
        let daemon = store.daemon(&[&["--listen", "127.0.0.1:0"], args].concat(), &[]);
        let address = addresses(&store).remove(0);
        store.in_workspace();
        Net { daemon: Some(daemon), store, address }
    }

    fn secret(&self) -> PathBuf {
        self.store.dir().join("secret")
    }

    /// The daemon's own certificate, if it has made one.
    fn certificate(&self) -> PathBuf {
        self.store.dir().join("tls.cert")
    }

    /// The URL of an address.
    fn url_at(&self, address: &str) -> String {
        let url = format!("iov://{address}?secret={}", self.secret().display());
        match self.certificate() {
            file if file.exists() => format!("{url}&tls={}", file.display()),
            _ => url,
        }
    }

    fn url(&self) -> String {
        self.url_at(&self.address)
    }

    fn cable(&self) -> Cable {
        Cable::to(&self.address)
    }

    fn open(&self, url: &str) -> Result<Session> {
        open(Some(url), SessionAttr { deadline_ns: 20_000_000_000, ..SessionAttr::default() })
    }

    /// The workspace, seen through a cable.
    fn through(&self, cable: &Cable) -> Workspace {
        workspace(&self.open(&self.url_at(&format!("127.0.0.1:{}", cable.port))).unwrap())
    }

    /// The workspace, seen over the network.
    fn workspace(&self) -> Workspace {
        workspace(&self.open(&self.url()).unwrap())
    }
}

fn workspace(session: &Session) -> Workspace {
    session.load_workspace(Which::parse("w").unwrap()).unwrap()
}

/// In a child: holds something of the store that a variable names, until it is killed.
pub(crate) fn holds_over_the_network(_: &str) {
    let url = std::env::var("IOV_TEST_URL").unwrap();
    let ws = workspace(&open(Some(&url), SessionAttr::default()).unwrap());
    let held = create(&ws, "held", "concurrency=exclusive");
    ioverbs::write_at(&held, 0, b"one").unwrap();
    say("holds");
    listen();
}

/// Where a store's daemon listens.
fn addresses(store: &Store) -> Vec<String> {
    ioverbs::daemon_addresses_within(&store.url(), 10_000_000_000).unwrap().unwrap()
}

/// Bytes that are the same nowhere else.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    let mut out: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).collect();
    out.truncate(len);
    out
}
