//! A daemon that serves targets of a store whose catalog is another daemon's (`--join`).
//!
//! It tells that daemon again and again that it is there, and hears by what to check the tickets of clients. What it has joined
//! is written down in its directory: it comes back to it without being told.

use std::{
    fs,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use iov_net::{Address, Link, Place, Trust, near, secret::Nonce, tcp::Host};
use iov_server::{Afar, Bound, Doors, Facts, Server, Toward};
use iov_store::{OpCx, seam};
use iov_types::{Error, Kind, Outcome, Result, Target, Uuid};
use iov_wire::{
    messages::{Join, JoinAnswer},
    ticket::TicketKey,
};

use crate::{
    Args, Hosts,
    begin::{self, Begun, inside},
    fleet,
    listen::{self, Listening},
    log,
    storage::Storages,
    texts,
};

/// The file in its directory.
pub(crate) const FILE: &str = "member";
/// First line of the file.
const TITLE: &str = "iovd member 1";
/// What a store with a catalog has in its directory.
const CATALOG: &str = "meta";
/// How long a start tries to reach the catalog's daemon, …
const START_NS: i64 = 30_000_000_000;
/// … and how long one telling that it is there may take.
const BEAT_NS: i64 = 5_000_000_000;

/// What is written down.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Member {
    daemon: Uuid,
    /// The store; nil = it was not joined yet.
    store: Uuid,
    catalog: Vec<Host>,
    domain: Option<String>,
    /// Those of its targets, in their order.
    targets: Vec<Uuid>,
}

fn damaged() -> Error {
    Error::corrupt(format!(
        "the file {FILE} in the daemon's directory is damaged: restore it, or join with an empty directory"
    ))
}

impl Member {
    fn text(&self) -> String {
        let mut text = format!("{TITLE}\ndaemon {}\nstore {}\n", self.daemon, self.store);
        self.catalog.iter().for_each(|host| text.push_str(&format!("catalog {host}\n")));
        self.domain.iter().for_each(|domain| text.push_str(&format!("domain {domain}\n")));
        self.targets.iter().for_each(|target| text.push_str(&format!("target {target}\n")));
        text
    }

    fn read(text: &str) -> Result<Member> {
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            return Err(damaged());
        }
        let mut member = Member::default();
        let uuid = |text: &str| Uuid::parse(text).map_err(|_| damaged());
        for line in lines {
            match line.split_once(' ') {
                Some(("daemon", text)) => member.daemon = uuid(text)?,
                Some(("store", text)) => member.store = uuid(text)?,
                Some(("catalog", text)) => member.catalog.push(Host::parse(text)?),
                Some(("domain", text)) => member.domain = Some(text.to_owned()),
                Some(("target", text)) => member.targets.push(uuid(text)?),
                _ => return Err(damaged()),
            }
        }
        match member.daemon.is_nil() || member.catalog.is_empty() {
            true => Err(damaged()),
            false => Ok(member),
        }
    }

    /// What the directory's daemon is a member of, or is to be; `None`: it has a catalog of its own.
    pub(crate) fn load(dir: &OwnedFd, args: &Args) -> Result<Option<Member>> {
        let found = match fs::read_to_string(inside(dir, FILE)) {
            Ok(text) => Some(Member::read(&text)?),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(Error::from(e).context(format!("the file {FILE} in the daemon's directory"))),
        };
        let Some(Hosts(hosts)) = &args.join else { return Ok(found) };
        if found.is_none() && inside(dir, CATALOG).exists() {
            return Err(Error::exists(
                "the directory holds a store with a catalog of its own, which cannot join another: name a directory for this \
                 daemon's targets",
            ));
        }
        let mut member = found.unwrap_or_else(|| Member { daemon: seam::new_uuid(), ..Member::default() });
        member.catalog = hosts.clone();
        member.domain = args.domain.clone().or(member.domain);
        Ok(Some(member))
    }

    /// Where the catalog's daemon is.
    pub(crate) fn catalog(&self) -> &[Host] {
        &self.catalog
    }

    fn write(&self, dir: &OwnedFd) -> Result<()> {
        texts::write(dir, FILE, self.text().as_bytes())
            .map_err(|e| Error::from(e).context(format!("the file {FILE} in the daemon's directory")))
    }
}

/// The secret of the store that is joined: named, or where clients have it; `None`: none is asked for, or it is the copy in the
/// daemon's directory.
pub(crate) fn secret_of(dir: &OwnedFd, args: &Args) -> Result<Option<PathBuf>> {
    if args.no_secret || args.secret.is_some() {
        return Ok(args.secret.clone());
    }
    if inside(dir, listen::SECRET).exists() {
        return Ok(None);
    }
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    let config = config.map(|config| config.join("ioverbs/secret")).filter(|path| path.exists());
    set("IOVERBS_SECRET").or(config).map(Some).ok_or_else(|| {
        Error::not_found(
            "no secret of the store to join: copy the file named secret from the directory of its catalog's daemon, and name it \
             with --secret FILE (or in IOVERBS_SECRET); --no-secret is for a store that asks for none",
        )
    })
}

/// The address of this machine from which others are reached.
fn address_toward(hosts: &[Host]) -> Result<std::net::IpAddr> {
    let mut failed = None;
    for host in hosts {
        for address in host.resolve()? {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            // Nothing is sent: the kernel says which way it would go.
            let found = std::net::UdpSocket::bind(any).and_then(|socket| {
                socket.connect(address)?;
                socket.local_addr()
            });
            match found {
                Ok(local) => return Ok(local.ip()),
                Err(e) => failed = Some(e),
            }
        }
    }
    let e = failed.map_or_else(|| Error::invalid("no host to join"), Error::from);
    Err(e.context("no way leads to the daemon of the store's catalog"))
}

/// Where it listens unless it is told.
pub(crate) fn default_listen(member: &Member) -> Result<Vec<Host>> {
    Ok(vec![Host { name: address_toward(&member.catalog)?.to_string(), port: 0 }])
}

/// What is told to the catalog's daemon, again and again.
struct Telling {
    link: Arc<Link>,
    trust: Trust,
    join: Join,
    bound: Arc<Bound>,
}

impl Telling {
    fn tell(&self, join: &Join, timeout_ns: i64) -> Result<JoinAnswer> {
        let answer = self.link.join(&OpCx::own(timeout_ns), join)?;
        if join.leaves {
            return Ok(answer);
        }
        if answer.numbers.len() != join.targets.len() {
            return Err(Error::corrupt("the catalog's daemon has given no numbers to some targets"));
        }
        let wrong = |_| Error::corrupt("the catalog's daemon has sent a key of tickets that is none");
        let mut key: [u8; 32] = answer.key[..].try_into().map_err(wrong)?;
        if !answer.nonce.is_empty() {
            let Trust::Secret(secret) = &self.trust else {
                return Err(Error::denied(
                    "the catalog's daemon has a secret, and this one was told that there is none",
                ));
            };
            let nonce: Nonce = answer.nonce[..].try_into().map_err(wrong)?;
            key = secret.mask(&nonce, &key);
        }
        self.bound.learn(&answer, TicketKey::new(key));
        Ok(answer)
    }

    /// Until the catalog's daemon has answered, which may be just starting.
    fn first(link: impl Fn() -> Result<Arc<Link>>, trust: &Trust, join: &Join) -> Result<(Telling, JoinAnswer)> {
        let until = seam::monotonic_ns().saturating_add(START_NS);
        loop {
            let bound = Arc::<Bound>::default();
            let told = link().and_then(|link| {
                let telling = Telling { link, trust: trust.clone(), join: join.clone(), bound };
                let answer = telling.tell(join, BEAT_NS)?;
                Ok((telling, answer))
            });
            match told {
                Err(e) if matches!(e.kind(), Kind::Unavailable | Kind::Timeout) && seam::monotonic_ns() < until => {
                    seam::sleep(200_000_000);
                }
                Err(e) => return Err(e.context("the store cannot be joined").with_outcome(Outcome::NotApplied)),
                told => return told,
            }
        }
    }

    /// Tells that the daemon is there until it ends; calls `told` behind the first time.
    fn go_on(mut self, server: &Server, first: &JoinAnswer, stop: &dyn Fn() -> bool, told: impl FnOnce()) {
        let mut told = Some(told);
        let mut trouble = None;
        // What this daemon begins with is by this catalog's word.
        (self.join.ready, self.join.catalog, self.join.store) = (true, first.catalog, first.store);
        let beat_ns = (first.beat_ns.clamp(100_000_000, 60_000_000_000)) as i64;
        while !stop() {
            let next = seam::monotonic_ns().saturating_add(beat_ns);
            for (target, room) in self.join.targets.iter_mut().zip(server.rooms()) {
                (target.capacity, target.free) = room.unwrap_or_default();
            }
            match self.tell(&self.join, BEAT_NS) {
                Ok(answer) => {
                    if trouble.take().is_some() {
                        log::line("the catalog's daemon answers again");
                    }
                    if answer.catalog != self.join.catalog {
                        server.settle(answer.catalog, &answer.unfinished);
                        self.join.catalog = answer.catalog;
                        continue;
                    }
                }
                Err(e) if trouble.as_deref() == Some(e.detail()) => {}
                Err(e) => {
                    log::line(&format!("the catalog's daemon does not hear that this one is there: {e}"));
                    trouble = Some(e.detail().to_owned());
                }
            }
            // Whoever started it can use it now, or read in its log why not.
            if let Some(told) = told.take() {
                told();
            }
            while !stop() && seam::monotonic_ns() < next {
                seam::sleep(50_000_000);
            }
        }
        // It would notice anyway.
        let _ = self.tell(&Join { leaves: true, ..self.join.clone() }, 1_000_000_000);
    }
}

/// Serves targets until it is told to end.
pub(crate) fn run(args: &Args, begun: Begun, mut member: Member) -> Result<u8> {
    let Begun { dir, mut hold, stop, mut troubles, connections } = begun;
    let incarnation = seam::now_ns() as u64;
    let storages = Storages::choose(&dir, args)?;
    let fleet::Open { fleet, mut targets, .. } = fleet::open(&dir, &storages, incarnation, args.trace.as_deref())?;
    let listening = listen::listen(&dir, args, Some(&member))?;
    let Listening { network, entrance, tls, bound, addresses, toward, trouble } = listening;
    troubles.extend(trouble);
    let Some(Toward { trust, tls: believed, networks }) = toward.clone() else {
        return Err(Error::invalid("a daemon that joins a store listens on a network: --listen"));
    };
    let addresses = match addresses.is_empty() {
        // It listens on all that the machine has: that which leads to the catalog is known to lead back.
        true => {
            let name = address_toward(&member.catalog)?.to_string();
            let ports = bound.iter().filter_map(|text| Host::parse(text).ok()).map(|host| host.port);
            ports.take(1).map(|port| Host { name: name.clone(), port }.to_string()).collect()
        }
        false => addresses,
    };
    member.targets.resize_with(member.targets.len().max(targets.len()), seam::new_uuid);
    let domain = member.domain.clone();
    // The library names the directory by its descriptor.
    let local = fs::canonicalize(&args.dir).map(|dir| near::tell(&dir)).unwrap_or_default();
    let about = |(target, uuid): (Target, &Uuid)| Target {
        uuid: *uuid,
        addresses: addresses.clone(),
        domain: domain.clone().unwrap_or(target.domain.clone()),
        local: local.clone(),
        ..target
    };
    let told = fleet.targets.into_iter().zip(&member.targets).map(about).collect();
    let join = Join { daemon: member.daemon, incarnation, targets: told, store: member.store, ..Join::default() };
    let place = || Place::Network { hosts: member.catalog.clone(), trust: trust.clone(), tls: believed.clone() };
    let link = || {
        let address = Address::new(place(), seam::new_uuid(), "iovd".into());
        Link::open(address.preferring(networks.clone()), Arc::default(), BEAT_NS)
    };
    let first = Telling::first(link, &trust, &join);
    // One that has never been there need not come back to where it listened.
    let (telling, answer) = first.inspect_err(|_| listen::end(&dir))?;
    if !member.store.is_nil() && member.store != answer.store {
        return Err(Error::conflict(format!(
            "the daemon's targets belong to the store {}, and there is another one ({}): join with an empty directory",
            member.store, answer.store
        )));
    }
    member.store = answer.store;
    member.write(&dir)?;
    targets.iter_mut().zip(&answer.numbers).for_each(|(target, number)| target.number = *number);
    let afar = Afar::open(inside(&dir, "network"), answer.lease_ns.min(i64::MAX as u64) as i64, log::line)?;
    for target in &targets {
        let failed = target.grants.settle(&answer.unfinished, afar.awaits());
        troubles.extend(failed.iter().map(|e| format!("recovery of target {}: {e}", target.number)));
    }
    let options = iov_server::Options {
        store: answer.store,
        incarnation,
        owner: rustix::process::geteuid().as_raw(),
        idle_ns: i64::MAX,
        connections,
        entrance,
        tls,
        toward: None,
        addresses,
        data_workers: usize::from(args.workers),
    };
    let doors = Doors { local: iov_server::listen(dir.as_fd())?, network };
    let facts = Facts::Elsewhere(telling.bound.clone());
    let server = Server::new(options, facts, targets, &answer.unfinished, afar)?;
    let of = member.catalog.iter().map(Host::to_string).collect::<Vec<_>>().join(", ");
    let (served, ends) = (server.clone(), stop.clone());
    let over = Arc::new(AtomicBool::new(false));
    let ended = over.clone();
    let (args, at) = (args.clone(), dir.try_clone().map_err(Error::from)?);
    let network = !doors.network.is_empty();
    let teller = seam::spawn("iov-join", move || {
        let told = || {
            // Without a log it serves all the same.
            let place = begin::end_start(&args, &at, &troubles).unwrap_or_else(|_| args.dir.clone());
            let pid = std::process::id();
            log::line(&format!("serving targets in {} of the store at {of} as process {pid}", place.display()));
            begin::tell_doors(&served, network, &bound);
        };
        telling.go_on(&served, &answer, &|| ends.load(Ordering::Relaxed) || ended.load(Ordering::Relaxed), told);
    })
    .map_err(|e| Error::from(e).context("a thread to keep in touch with the catalog's daemon"))?;
    hold.serves();
    let ran = server.run(&doors, &|| stop.load(Ordering::Relaxed));
    over.store(true, Ordering::Relaxed);
    // A panic there was told there.
    let _ = teller.join();
    ran?;
    // That it listens is what it joins for: the next start does so as this one did.
    drop(doors);
    drop(server);
    log::line("ended in order");
    hold.release()?;
    Ok(0)
}

#[cfg(test)]
mod tests;
