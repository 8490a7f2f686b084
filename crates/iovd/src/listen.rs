//! What a daemon listens on besides the socket in its directory, whom it lets in there, and whether they speak TLS.
//!
//! It is written down in the store, so that a daemon which is started in place of one that crashed listens as that did. An end
//! in order takes it back: nothing listens on a network that nobody has asked for.

use std::{fs, os::fd::OwnedFd, path::PathBuf};

use iov_net::{
    Trust,
    secret::Secret,
    tcp::{self, Host},
    tls::{ClientTls, ServerTls},
};
use iov_server::{Entrance, Toward};
use iov_types::{Error, Kind, Result};

use crate::{
    Args, Hosts,
    begin::inside,
    certificate::Certificate,
    member::{self, Member},
    texts,
};

/// The file in the store's directory.
const FILE: &str = iov_net::LISTEN;
/// The secret that is made where none is named.
pub(crate) const SECRET: &str = iov_net::SECRET;
/// First line of the file.
const TITLE: &str = "iovd listen 1";

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    hosts: Vec<Host>,
    /// `None`: the one in the store's directory.
    secret: Option<PathBuf>,
    no_secret: bool,
    /// `None`: in the clear.
    tls: Option<Certificate>,
}

/// What is listened on.
pub(crate) struct Listening {
    pub(crate) network: Vec<OwnedFd>,
    pub(crate) entrance: Entrance,
    pub(crate) tls: Option<ServerTls>,
    /// What it listens on, for the log.
    pub(crate) bound: Vec<String>,
    /// Where it can be reached, the first asked for first.
    pub(crate) addresses: Vec<String>,
    /// How other daemons of the store are reached.
    pub(crate) toward: Option<Toward>,
    /// What the log is to say of it besides.
    pub(crate) trouble: Option<String>,
}

/// Reads a list of hosts and ports.
pub(crate) fn parse(text: &str) -> std::result::Result<Vec<Host>, String> {
    text.split(',').map(|one| Host::parse(one.trim()).map_err(|e| e.detail().to_owned())).collect()
}

fn damaged() -> Error {
    Error::corrupt("is damaged: remove it, and start the daemon with --listen again")
}

impl Asked {
    fn write(&self) -> String {
        let mut text = format!("{TITLE}\n");
        for host in &self.hosts {
            text.push_str(&format!("on {host}\n"));
        }
        match (&self.secret, self.no_secret) {
            (_, true) => text.push_str("no secret\n"),
            (Some(path), _) => text.push_str(&format!("secret {}\n", path.display())),
            (None, _) => {}
        }
        match &self.tls {
            Some(Certificate::Own) => text.push_str("tls self\n"),
            Some(Certificate::Files { chain, key }) => {
                text.push_str(&format!("certificate {}\nkey {}\n", chain.display(), key.display()));
            }
            None => {}
        }
        text
    }

    /// With what is said now besides where to listen: who asks for TLS, or a secret, never gets less.
    fn with(self, args: &Args) -> Asked {
        let no_secret = args.no_secret || self.no_secret && args.secret.is_none();
        Asked {
            secret: args.secret.clone().or(self.secret),
            no_secret,
            tls: args.tls.clone().or(self.tls),
            hosts: self.hosts,
        }
    }

    /// Whether both are the same at other ports: neither is a door to anybody to whom the other is none.
    fn is_but_for_ports(&self, other: &Asked) -> bool {
        let names = |asked: &Asked| asked.hosts.iter().map(|host| host.name.clone()).collect::<Vec<_>>();
        let rest = |asked: &Asked| (asked.secret.clone(), asked.no_secret, asked.tls.clone());
        names(self) == names(other) && rest(self) == rest(other)
    }

    fn read(text: &str) -> Result<Asked> {
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            return Err(Error::version("is not of this release: remove it, and start the daemon with --listen again"));
        }
        let mut asked = Asked::default();
        let (mut chain, mut key) = (None, None);
        for line in lines {
            match line.split_once(' ') {
                Some(("on", host)) => asked.hosts.push(Host::parse(host)?),
                Some(("secret", path)) => asked.secret = Some(path.into()),
                Some(("no", "secret")) => asked.no_secret = true,
                Some(("tls", "self")) => asked.tls = Some(Certificate::Own),
                Some(("certificate", path)) => chain = Some(path.into()),
                Some(("key", path)) => key = Some(path.into()),
                _ => return Err(damaged()),
            }
        }
        match (chain, key) {
            (None, None) => {}
            (Some(chain), Some(key)) => asked.tls = Some(Certificate::Files { chain, key }),
            // Never in the clear what was not to be.
            _ => return Err(damaged()),
        }
        Ok(asked)
    }
}

impl Default for Listening {
    fn default() -> Listening {
        let (network, bound, addresses) = Default::default();
        let (tls, toward, trouble) = Default::default();
        Listening { network, entrance: Entrance::Anybody, tls, bound, addresses, toward, trouble }
    }
}

/// What was asked for now, or of a daemon that crashed.
fn asked(dir: &OwnedFd, args: &Args, member: Option<&Member>) -> Result<Option<Asked>> {
    let secret = || match member {
        // It lets in whoever has the secret of the store that it joins.
        Some(_) => member::secret_of(dir, args),
        None => Ok(args.secret.clone()),
    };
    let of = |hosts: &[Host]| -> Result<Option<Asked>> {
        let (no_secret, tls) = (args.no_secret, args.tls.clone());
        Ok(Some(Asked { hosts: hosts.to_vec(), secret: secret()?, no_secret, tls }))
    };
    if let Some(Hosts(hosts)) = &args.listen {
        return of(hosts);
    }
    let before = match fs::read_to_string(inside(dir, FILE)) {
        Ok(text) => Some(Asked::read(&text).map_err(|e| e.context(format!("the store's file {FILE}")))?),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(Error::from(e).context(format!("the store's file {FILE}"))),
    };
    match (member, before) {
        // Told anew whom to join, and how: only where it listened is as it was.
        (Some(_), Some(before)) if args.join.is_some() => of(&before.hosts),
        (Some(member), None) => of(&member::default_listen(member)?),
        (_, before) => Ok(before.map(|before| before.with(args))),
    }
}

/// Listens on what was asked for now, or of a daemon that crashed; one that joins a store listens in any case.
pub(crate) fn listen(dir: &OwnedFd, args: &Args, member: Option<&Member>) -> Result<Listening> {
    let Some(asked) = asked(dir, args, member)? else { return Ok(Listening::default()) };
    let entrance = match (asked.no_secret, &asked.secret) {
        (true, _) => Entrance::Anybody,
        (false, Some(path)) => Entrance::Secret(Secret::load(path)?),
        (false, None) => {
            let path = inside(dir, SECRET);
            Secret::make(&path)?;
            Entrance::Secret(Secret::load(&path)?)
        }
    };
    let trust = match &entrance {
        Entrance::Anybody => Trust::Anybody,
        Entrance::Secret(secret) => Trust::Secret(secret.clone()),
    };
    let tls = asked.tls.as_ref().map(|certificate| certificate.load(dir, &asked.hosts)).transpose()?;
    // All daemons of a store have copies of one certificate, or are known by one that has signed theirs.
    let believed = asked.tls.as_ref().map(|certificate| {
        let hosts: Vec<Host> = member.map_or(&asked.hosts[..], Member::catalog).to_vec();
        ClientTls::new(Some(&certificate.chain(dir)), &hosts)
    });
    let toward = Some(Toward { trust, tls: believed.transpose()?, networks: args.networks.clone() });
    let mut listening = Listening { entrance, tls, toward, ..Listening::default() };
    let mut taken = Asked { hosts: Vec::new(), ..asked };
    for host in &asked.hosts {
        let fds = match tcp::listen(host) {
            // Where it listened before: clients are told where it does now.
            Err(e) if e.kind() == Kind::Busy && member.is_some() && args.listen.is_none() => {
                tcp::listen(&Host { port: 0, ..host.clone() })
            }
            fds => fds,
        };
        for fd in fds? {
            let address = tcp::address_of(&fd)?;
            // Another port than asked for is the same again after a crash, for whoever was told.
            taken.hosts.push(Host { name: address.ip().to_string(), port: address.port() });
            if !address.ip().is_unspecified() {
                listening.addresses.push(address.to_string());
            }
            listening.bound.push(address.to_string());
            listening.network.push(fd);
        }
    }
    if let Err(e) = texts::write(dir, FILE, taken.write().as_bytes()) {
        let e = Error::from(e).context(format!("the store's file {FILE} cannot be written"));
        let before = || Asked::read(&fs::read_to_string(inside(dir, FILE)).ok()?).ok();
        // What can be deleted must not wait for room to tell of a port.
        if e.kind() != Kind::Exhausted || !before().is_some_and(|before| before.is_but_for_ports(&taken)) {
            return Err(e);
        }
        listening.trouble = Some(format!("after a crash other ports are listened on than now: {e}"));
    }
    Ok(listening)
}

/// The daemon ends in order.
pub(crate) fn end(dir: &OwnedFd) {
    // Left behind, it says what was asked for last.
    let _ = fs::remove_file(inside(dir, FILE));
}

#[cfg(test)]
mod tests;
