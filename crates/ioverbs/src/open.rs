//! From a URL to a session.

use iov_engine::{Session, SessionAttr};
use iov_types::{Error, Priority, Result};

use crate::{file, mem, network};

/// Opens a store. `None` = `$IOVERBS_URL`, else the embedded default store of this user. With `IOVERBS_PRIORITY=background` all of
/// the program's sessions work in the background.
pub fn open(url: Option<&str>, mut attr: SessionAttr) -> Result<Session> {
    attr.priority = attr.priority.max(priority()?);
    let default;
    let url = match url {
        Some(url) => url,
        None => {
            default = default_url()?;
            &default
        }
    };
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(Error::invalid(format!("{url:?} is not a store URL: it begins with mem:, file: or iov:")));
    };
    match scheme {
        "mem" => mem::open(url, rest, attr),
        "file" => file::open(url, rest, attr),
        "iov" => network::open(url, attr),
        "etcd" => {
            Err(Error::unsupported(format!("{scheme}: is for daemons and administrators: programs use iov://HOST")))
        }
        other => Err(Error::unsupported(format!("no store has the scheme {other:?}; there are mem:, file: and iov:"))),
    }
}

/// What `$IOVERBS_PRIORITY` says of all that this program asks.
fn priority() -> Result<Priority> {
    match std::env::var("IOVERBS_PRIORITY") {
        Ok(name) if !name.is_empty() => Priority::parse(&name).map_err(|e| e.context("IOVERBS_PRIORITY")),
        _ => Ok(Priority::default()),
    }
}

/// The URL that `open(None, …)` opens.
pub fn default_url() -> Result<String> {
    match std::env::var("IOVERBS_URL") {
        Ok(url) if !url.is_empty() => Ok(url),
        _ => Ok(format!("file:{}", file::default_dir()?.display())),
    }
}
