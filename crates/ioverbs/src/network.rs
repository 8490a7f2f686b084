//! `iov://HOST[:PORT][,HOST…]` stores: a daemon that listens on a network. All bytes go over connections to it, by TLS if the
//! URL or the environment says so.

use std::{path::Path, sync::Arc};

use iov_engine::{Session, SessionAttr, Sides};
use iov_net::{
    Address, Link, Mapped, Networks, Place, RemoteBackend, Trust, polling, secret::Secret, tcp::Host, tls::ClientTls,
};
use iov_types::{Counters, Error, Result, Uuid, limits};

use crate::{file, identity};

/// What a URL of this kind says.
#[derive(Debug, PartialEq, Eq)]
struct Url<'a> {
    hosts: Vec<Host>,
    /// The file of the secret, or `none`.
    secret: Option<&'a str>,
    /// The file of the certificate, `system` or `none`.
    tls: Option<&'a str>,
}

fn parse(url: &str) -> Result<Url<'_>> {
    let wrong = |why: String| Error::invalid(format!("{url}: {why}"));
    let rest = url.strip_prefix("iov://").ok_or_else(|| wrong("behind iov: come two slashes and a host".into()))?;
    let (hosts, query) = rest.split_once('?').map_or((rest, None), |(hosts, query)| (hosts, Some(query)));
    let hosts = hosts.trim_end_matches('/');
    if hosts.contains('/') {
        return Err(wrong(
            "a store has no path; name what is in it behind opening it, or give this to the iov command".into(),
        ));
    }
    let hosts = match hosts {
        "" => {
            return Err(wrong(
                "it names no host, as in iov://node7, or iov://node7-ib,node7 by several addresses of one machine"
                    .into(),
            ));
        }
        hosts => hosts.split(',').map(Host::parse).collect::<Result<_>>().map_err(|e| e.context(url))?,
    };
    let (mut secret, mut tls) = (None, None);
    for pair in query.into_iter().flat_map(|query| query.split('&')) {
        let (place, file) = match pair.split_once('=') {
            Some(("secret", file)) if !file.is_empty() => (&mut secret, file),
            Some(("tls", file)) if !file.is_empty() => (&mut tls, file),
            _ => {
                return Err(wrong(
                    "behind the question mark come secret=FILE or secret=none, and tls=FILE, tls=system or tls=none, with & \
                     between them"
                        .into(),
                ));
            }
        };
        if place.replace(file).is_some() {
            return Err(wrong("it says the same twice behind the question mark".into()));
        }
    }
    Ok(Url { hosts, secret, tls })
}

/// By what the daemon is known: the URL says, else the environment, else a file of the user.
fn trust(url: &Url<'_>) -> Result<Trust> {
    let from_env = std::env::var("IOVERBS_SECRET").ok().filter(|v| !v.is_empty());
    if let Some(named) = url.secret.or(from_env.as_deref()) {
        return Ok(match named {
            "none" => Trust::Anybody,
            file => Trust::Secret(Secret::load(Path::new(file))?),
        });
    }
    let config = std::env::var_os("XDG_CONFIG_HOME").filter(|v| !v.is_empty()).map(std::path::PathBuf::from);
    let config = config.or_else(|| crate::file::home_dir().map(|home| home.join(".config")));
    let file = config.map(|config| config.join("ioverbs/secret"));
    match file {
        Some(file) if file.exists() => Ok(Trust::Secret(Secret::load(&file)?)),
        file => {
            let place = file.map_or_else(|| "~/.config/ioverbs/secret".to_owned(), |file| file.display().to_string());
            Err(Error::not_found(format!(
                "no secret for a store over a network: copy the file named secret from the store's directory to {place}, or \
                 name it in IOVERBS_SECRET or as ?secret=FILE behind the URL; secret=none is for a daemon that asks for none"
            )))
        }
    }
}

/// Whether TLS is spoken, and with whom: the URL says, else the environment.
fn tls(url: &Url<'_>) -> Result<Option<ClientTls>> {
    let from_env = std::env::var("IOVERBS_TLS").ok().filter(|v| !v.is_empty());
    match url.tls.or(from_env.as_deref()) {
        None | Some("none") => Ok(None),
        Some("system") => ClientTls::new(None, &url.hosts).map(Some),
        Some(file) => ClientTls::new(Some(Path::new(file)), &url.hosts).map(Some),
    }
}

/// The networks that daemons are preferably reached by, as the environment says. What else it says of connections must make sense, too.
pub(crate) fn preferred() -> Result<Networks> {
    polling::check_settings()?;
    let text = std::env::var("IOVERBS_NETWORKS").unwrap_or_default();
    Networks::parse(&text).map_err(|e| e.context("IOVERBS_NETWORKS"))
}

pub(crate) fn link(url: &str, attr: &SessionAttr, session: Uuid, counters: Arc<Counters>) -> Result<Arc<Link>> {
    let parsed = parse(url)?;
    let trust = trust(&parsed)?;
    let tls = tls(&parsed)?;
    let place = Place::Network { hosts: parsed.hosts, trust, tls };
    let address = Address::new(place, session, attr.program.clone().unwrap_or_else(identity::program));
    let address = address.preferring(preferred()?);
    let timeout = if attr.deadline_ns > 0 { attr.deadline_ns } else { limits::DEFAULT_DEADLINE_NS };
    Link::open(address, counters, timeout)
}

pub(crate) fn open(url: &str, attr: SessionAttr) -> Result<Session> {
    let caller = identity::caller();
    let counters = Arc::<Counters>::default();
    let link = link(url, &attr, caller.session, counters.clone())?;
    let first = Arc::new(RemoteBackend(link.clone()));
    let (catalog, backend) = Mapped::open(link, first, !attr.nodirect, &file::cx(&caller, &attr))?;
    let sides = Sides { catalog: Arc::new(catalog), backend: Arc::new(backend) };
    Ok(Session::new(url, sides, caller, attr, counters))
}

#[cfg(test)]
mod tests;
