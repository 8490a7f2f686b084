//! How a store's daemon is reached: by the socket in its directory, where it is started if there is none, or over a network.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use iov_store::{CatalogCapability, seam};
use iov_types::{Capability, Clause, Error, Kind, Result, Uuid, limits};
use iov_wire::{
    MAX_VERSION, MIN_VERSION,
    messages::{Hello, Welcome},
};
use rustix::io::Errno;

use crate::{
    conn::Connection,
    handshake::{self, Trust},
    link::{Up, lock},
    networks::Networks,
    secret::{self, Secret},
    socket,
    start::Starter,
    stream::Stream,
    tcp::{self, Host},
    tls::ClientTls,
};

/// The name of a store's socket in its directory.
pub const SOCKET: &str = "socket";

/// The name of the secret that a store's daemon makes there.
pub const SECRET: &str = "secret";

/// The name of the page there in which its catalog says what changes.
pub const CHANGES: &str = "changes";

/// The name of the file there in which a daemon writes down where and how it listens.
pub const LISTEN: &str = "listen";

/// Most addresses that a daemon is believed to have.
const MOST_ADDRESSES: usize = 16;
/// Longest that one address of several is waited for.
const TRY_NS: i64 = 5_000_000_000;
/// How long an address that has answered comes before all others.
const GOOD_NS: i64 = 60_000_000_000;

/// How other daemons of a store are reached, as the catalog's daemon has written down in the store's directory how it is: all have
/// one secret, and speak TLS or none of them does.
fn told_in(dir: &OwnedFd, hosts: Vec<Host>) -> Result<Place> {
    let inside = |name: &str| PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()));
    let told = std::fs::read_to_string(inside(LISTEN)).unwrap_or_default();
    let named = |what: &str| told.lines().find_map(|line| line.strip_prefix(what)).map(PathBuf::from);
    let trust = match told.lines().any(|line| line == "no secret") {
        true => Trust::Anybody,
        false => Trust::Secret(Secret::load(&named("secret ").unwrap_or_else(|| inside(SECRET)))?),
    };
    let own = told.lines().any(|line| line == "tls self").then(|| inside("tls.cert"));
    let certificate = own.or_else(|| named("certificate "));
    let tls = certificate.map(|file| ClientTls::new(Some(&file), &hosts)).transpose()?;
    Ok(Place::Network { hosts, trust, tls })
}

/// Where a store's daemon is.
pub enum Place {
    /// In this directory.
    Directory {
        /// The store's directory.
        dir: OwnedFd,
        /// How to start a daemon; `None` = start none.
        starter: Option<Starter>,
    },
    /// At one of these, the best first.
    Network {
        /// Names and ports.
        hosts: Vec<Host>,
        /// By what it is known.
        trust: Trust,
        /// Over TLS only, with a daemon that this believes; `None` = in the clear.
        tls: Option<ClientTls>,
    },
}

/// What is needed to reach a store's daemon.
pub struct Address {
    /// Where it is.
    pub place: Place,
    /// The session.
    pub session: Uuid,
    /// The program's name, for people.
    pub program: String,
    /// The target that the session is for; 0 = the store as a whole.
    target: u32,
    /// Then: the session for the store.
    of: Uuid,
    /// Which of the hosts answered last.
    last: AtomicUsize,
    /// Where else the daemon has said that it can be reached.
    learned: Mutex<Vec<Host>>,
    /// Somebody else starts the daemon: it is waited for.
    waits: bool,
    /// Where the daemon is for others, if this is its directory on this host, and that is known.
    far: Option<Place>,
    /// It is to be reached there.
    is_far: AtomicBool,
    /// Which of several addresses are tried first.
    networks: Networks,
    /// The address that answered last, and when: while that is fresh it comes before all that are preferred.
    good: Mutex<Option<(SocketAddr, i64)>>,
}

impl Address {
    /// A place and who wants to reach it.
    pub fn new(place: Place, session: Uuid, program: String) -> Address {
        Address {
            place,
            session,
            program,
            target: 0,
            of: Uuid::NIL,
            last: AtomicUsize::new(0),
            learned: Mutex::default(),
            waits: false,
            far: None,
            is_far: AtomicBool::new(false),
            networks: Networks::default(),
            good: Mutex::default(),
        }
    }

    /// The same, with networks whose addresses are tried first.
    pub fn preferring(self, networks: Networks) -> Address {
        Address { networks, ..self }
    }

    /// The same for one target of the daemon, for whom `of` is the session for the store.
    pub fn of_target(self, target: u32, of: Uuid) -> Address {
        Address { target, of, ..self }
    }

    /// The way to a target: of the same daemon, or of one at these addresses, or `near`, in this directory. Another session is
    /// what goes there.
    pub(crate) fn to_target(
        &self,
        target: u32,
        addresses: &[String],
        near: Option<OwnedFd>,
        session: Uuid,
    ) -> Result<Address> {
        let new = |place| {
            let address = Address::new(place, session, self.program.clone()).of_target(target, self.session);
            address.preferring(self.networks.clone())
        };
        let far = self.place_of(addresses);
        if let Some(dir) = near {
            return Ok(Address { waits: true, far: far.ok(), ..new(Place::Directory { dir, starter: None }) });
        }
        let learned = Mutex::new(if addresses.is_empty() { lock(&self.learned).clone() } else { Vec::new() });
        Ok(Address { learned, ..new(far?) })
    }

    /// Where a daemon is that has told these addresses; none: it is the same.
    fn place_of(&self, addresses: &[String]) -> Result<Place> {
        let elsewhere: Vec<Host> = addresses.iter().map(|text| Host::parse(text)).collect::<Result<_>>()?;
        Ok(match &self.place {
            Place::Directory { dir, starter } if elsewhere.is_empty() => {
                Place::Directory { dir: dir.try_clone().map_err(Error::from)?, starter: starter.clone() }
            }
            Place::Network { hosts, trust, tls } => {
                let hosts = if elsewhere.is_empty() { hosts.clone() } else { elsewhere };
                Place::Network { hosts, trust: trust.clone(), tls: tls.clone() }
            }
            Place::Directory { dir, .. } => told_in(dir, elsewhere)?,
        })
    }

    /// Where the daemon is, as far as that is known by now.
    fn place(&self) -> &Place {
        match &self.far {
            Some(far) if self.is_far.load(Ordering::Relaxed) => far,
            _ => &self.place,
        }
    }

    /// In the directory is another daemon than the one that is meant, or one that does not serve who comes from here.
    fn is_not_near(&self, tried: &Place, e: &Error) -> bool {
        let passes = matches!(e.kind(), Kind::Unavailable | Kind::Exists | Kind::Timeout | Kind::Stale);
        let turns = self.far.is_some() && !passes && matches!(tried, Place::Directory { .. });
        self.is_far.fetch_or(turns, Ordering::Relaxed);
        turns
    }

    /// Takes note of where else the daemon can be reached: after the addresses that were given, if those fail.
    pub(crate) fn learn(&self, addresses: &[String]) {
        let Place::Network { hosts, .. } = &self.place else { return };
        let is_loopback = |host: &Host| host.name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        // The loopback of another machine leads to this one.
        let local = hosts.iter().any(|host| is_loopback(host) || host.name == "localhost");
        let new = addresses.iter().filter_map(|text| Host::parse(text).ok());
        let new = new.filter(|host| !hosts.contains(host) && (local || !is_loopback(host)));
        *lock(&self.learned) = new.take(MOST_ADDRESSES).collect();
    }

    /// The target that it leads to.
    pub(crate) fn target(&self) -> u32 {
        self.target
    }

    /// Whether it is the store's as a whole.
    pub(crate) fn is_of_store(&self) -> bool {
        self.target == 0
    }

    fn hello(&self, channel: u32) -> Hello {
        let challenge = match self.place() {
            Place::Directory { .. } => Vec::new(),
            Place::Network { .. } => secret::nonce().to_vec(),
        };
        Hello {
            min_version: MIN_VERSION,
            max_version: MAX_VERSION,
            library: env!("CARGO_PKG_VERSION").into(),
            session: self.session,
            program: self.program.clone(),
            pid: std::process::id(),
            channel,
            challenge,
            target: self.target,
            of: self.of,
            rings: channel == 0 && is_local(self),
        }
    }
}

/// A connection, what the store can do, and where else its daemon can be reached.
pub(crate) struct Reached {
    pub(crate) up: Up,
    pub(crate) capability: CatalogCapability,
    pub(crate) addresses: Vec<String>,
    pub(crate) store: Uuid,
}

/// How an attempt ended.
enum Tried {
    Up(Box<Reached>),
    /// To be tried again.
    Again,
    /// It cannot be reached this way now; why.
    Not(Error),
}

/// Connects until a time of the monotonic clock.
pub(crate) fn connect(address: &Address, channel: u32, until: i64) -> Result<Reached> {
    let mut started = false;
    let mut pause = 1_000_000;
    loop {
        let place = address.place();
        let tried = match place {
            Place::Directory { dir, starter } => {
                by_directory(address, channel, dir, starter.as_ref(), &mut started, until)
            }
            Place::Network { hosts, trust, tls } => over_network(address, channel, hosts, trust, tls.as_ref(), until),
        };
        let tried = match tried {
            Err(e) if address.is_not_near(place, &e) => Tried::Again,
            tried => tried?,
        };
        let why = match tried {
            Tried::Up(up) => return Ok(*up),
            Tried::Again => None,
            Tried::Not(e) => Some(e),
        };
        if seam::monotonic_ns() >= until {
            return Err(why.unwrap_or_else(|| {
                Error::unavailable("the store's daemon does not answer; look into its log file in the store")
            }));
        }
        seam::sleep(pause);
        pause = (pause * 2).min(100_000_000);
    }
}

fn by_directory(
    address: &Address,
    channel: u32,
    dir: &OwnedFd,
    starter: Option<&Starter>,
    started: &mut bool,
    until: i64,
) -> Result<Tried> {
    match socket::connect(dir.as_fd(), SOCKET)? {
        Ok(fd) => greet(address, channel, fd.into(), &Trust::Directory, until),
        Err(Errno::NOENT | Errno::CONNREFUSED) => match starter {
            None if address.waits => Ok(Tried::Not(Error::unavailable(
                "the daemon of this target does not run: start it again where it was (iov up --dir DIR)",
            ))),
            None => Err(Error::unavailable(
                "no daemon runs for this store, and the session may start none (IOV_SESSION_NOSTART)",
            )),
            Some(starter) => {
                // It returns once the daemon listens, or somebody else's does.
                starter.start(dir.as_fd(), until)?;
                if !std::mem::replace(started, true) {
                    return by_directory(address, channel, dir, Some(starter), started, until);
                }
                Ok(Tried::Again)
            }
        },
        Err(Errno::AGAIN) => Ok(Tried::Again),
        Err(Errno::ACCESS | Errno::PERM) => Err(Error::denied(
            "the store belongs to another user: a file: store serves its owner only; ask for a store of your own",
        )
        .with_clause(Clause::A2)),
        Err(e) => Err(Error::from(std::io::Error::from(e)).context("the store's daemon cannot be reached")),
    }
}

/// One host after the other, those of preferred networks first, else beginning with the one that answered last.
fn over_network(
    address: &Address,
    channel: u32,
    hosts: &[Host],
    trust: &Trust,
    tls: Option<&ClientTls>,
    until: i64,
) -> Result<Tried> {
    let mut why: Option<Error> = None;
    let all: Vec<Host> = hosts.iter().cloned().chain(lock(&address.learned).iter().cloned()).collect();
    // Of several, none takes all of the time; nor do names that cannot be looked up.
    let patience = |several: bool| if several { until.min(seam::monotonic_ns().saturating_add(TRY_NS)) } else { until };
    let begun = seam::monotonic_ns();
    let look_up_until = begun.saturating_add(TRY_NS.min(until.saturating_sub(begun) / 2));
    let first = address.last.load(Ordering::Relaxed);
    let (mut order, mut ways) = ((0..all.len()).map(|i| (first + i) % all.len()), VecDeque::new());
    // Those of preferred networks come first, for which all names are to be known.
    if !address.networks.is_none() {
        for at in order.by_ref() {
            find(&all[at], at, look_up_until, &mut ways, &mut why);
        }
        let good = lock(&address.good).filter(|(_, when)| begun.saturating_sub(*when) < GOOD_NS).map(|(one, _)| one);
        ways.make_contiguous().sort_by_key(|(_, one)| (Some(*one) != good, address.networks.rank(one.ip())));
    }
    let mut several = all.len() > 1 || ways.len() > 1;
    loop {
        let Some((at, one)) = ways.pop_front() else {
            let Some(at) = order.next() else { break };
            find(&all[at], at, patience(all.len() > 1), &mut ways, &mut why);
            several |= ways.len() > 1;
            continue;
        };
        let (host, patience) = (&all[at], patience(several));
        let e = match tcp::connect(one, patience)? {
            Ok(fd) => match greet(address, channel, over(fd, tls, host, one)?, trust, patience) {
                Ok(Tried::Not(e)) => e,
                Ok(tried) => {
                    address.last.store(at, Ordering::Relaxed);
                    *lock(&address.good) = Some((one, seam::monotonic_ns()));
                    return Ok(tried);
                }
                // It listens and says nothing; another may be well.
                Err(e) if e.kind() == Kind::Timeout && several => e,
                Err(e) => return Err(e),
            },
            Err(e) => {
                let e = std::io::Error::from(e);
                Error::unavailable(format!(
                    "no store's daemon answers at {host}: {e}; it listens where it is started with --listen (iov up)"
                ))
            }
        };
        why.get_or_insert(e);
    }
    Ok(Tried::Not(why.unwrap_or_else(|| Error::invalid("a store over a network has a host"))))
}

/// Adds the addresses of a host to the ways to try, or the reason why there are none.
fn find(host: &Host, at: usize, until: i64, ways: &mut VecDeque<(usize, SocketAddr)>, why: &mut Option<Error>) {
    match host.resolve_until(until) {
        Ok(found) => ways.extend(found.into_iter().map(|one| (at, one))),
        Err(e) => drop(why.get_or_insert(e)),
    }
}

/// The stream over a socket that is connected to a host at one of its addresses.
fn over(fd: OwnedFd, tls: Option<&ClientTls>, host: &Host, address: SocketAddr) -> Result<Stream> {
    match tls {
        Some(tls) => tls.connect(fd, host, address.ip()),
        None => Ok(fd.into()),
    }
}

fn greet(address: &Address, channel: u32, stream: Stream, trust: &Trust, until: i64) -> Result<Tried> {
    let shaken = match handshake::shake(stream, &address.hello(channel), trust, until) {
        Ok(shaken) => shaken,
        // A daemon that is just ending closes without a word: its successor will answer.
        Err(e) if e.kind() == Kind::Unavailable => return Ok(Tried::Not(e)),
        // It has not noticed yet that the connection we had is gone.
        Err(e) if e.kind() == Kind::Exists => return Ok(Tried::Again),
        Err(e) => return Err(e),
    };
    let welcome = &shaken.welcome;
    if welcome.target != address.target {
        return Err(Error::version("the store's daemon does not know of several targets: update it"));
    }
    let capability = CatalogCapability {
        targets: {
            let targets = welcome.capability.targets.clone();
            let medium = Capability::medium_named(&targets.medium);
            targets.named(medium)
        },
        max_ops: welcome.capability.max_ops as usize,
        single_user: welcome.capability.single_user,
        inline_bytes: welcome.capability.inline_bytes,
        lease_ns: match welcome.lease_ns {
            0 => limits::LEASE_NS,
            ns => ns.min(i64::MAX as u64) as i64,
        },
    };
    let network = matches!(address.place(), Place::Network { .. });
    let connection = Connection::new(shaken.stream, shaken.frames, welcome, network);
    let up = Up::new(connection, shaken.page);
    let Welcome { addresses, store, .. } = shaken.welcome;
    Ok(Tried::Up(Box::new(Reached { up, capability, addresses, store })))
}

/// Whether it is reached by a socket of this machine, over which descriptors can be passed.
pub(crate) fn is_local(address: &Address) -> bool {
    matches!(address.place, Place::Directory { .. })
}
