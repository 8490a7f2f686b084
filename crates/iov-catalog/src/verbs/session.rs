//! Leases, tokens and the end of a session (X1, O11).

use iov_types::{Error, catalog::CatalogReply};

use super::{Reply, close};
use crate::exec::{Exec, Mode};

/// That others may join is for the store to know before any does: behind a crash they may come back after this one.
pub(crate) fn export(x: &mut Exec<'_>) -> Reply {
    x.core.note_joined()?;
    let token = x.core.sessions().export(x.holder, x.monotonic_ns);
    Ok(CatalogReply::Token(token))
}

pub(crate) fn join(x: &mut Exec<'_>, token: &[u8]) -> Reply {
    if x.mode == Mode::Dry {
        return Err(Error::invalid("joining cannot be tried: do it, or leave it"));
    }
    let holder = x.core.sessions().join(x.cx.caller.session, token, x.monotonic_ns)?;
    x.holder = holder;
    Ok(CatalogReply::Token(holder.0.to_vec()))
}

/// That the session asked at all has renewed its holds; its locks follow here. A cursor lives by its pages.
pub(crate) fn renew(_: &mut Exec<'_>) -> Reply {
    Ok(CatalogReply::Done)
}

pub(crate) fn goodbye(x: &mut Exec<'_>) -> Reply {
    close::close_all(x)?;
    x.after.ended = true;
    Ok(CatalogReply::Done)
}
