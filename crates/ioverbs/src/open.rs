//! From a URL to a session.

use iov_engine::{Session, SessionAttr};
use iov_types::{Error, Result};

use crate::mem;

/// Opens a store. `None` = `$IOVERBS_URL`.
pub fn open(url: Option<&str>, attr: SessionAttr) -> Result<Session> {
    let from_env;
    let url = match url {
        Some(url) => url,
        None => {
            from_env = std::env::var("IOVERBS_URL").map_err(|_| {
                Error::not_found("no store was named: give a URL such as mem: or set IOVERBS_URL")
            })?;
            &from_env
        }
    };
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(Error::invalid(format!("{url:?} is not a store URL: it begins with mem:, file: or iov:")));
    };
    match scheme {
        "mem" => mem::open(url, rest, attr),
        "file" | "iov" | "etcd" => Err(Error::unsupported(format!("{scheme}: stores are not in this release; use mem:"))),
        other => Err(Error::unsupported(format!("no store has the scheme {other:?}; there are mem:, file:, iov:"))),
    }
}
