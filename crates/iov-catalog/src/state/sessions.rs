//! Sessions, the holders they act for, leases and tokens (X1).

use std::collections::HashMap;

use iov_store::seam;
use iov_types::{Caller, Clause, Error, Result, Uuid};

use crate::hash::Seeded;

/// Bytes of the secret in a token.
const SECRET: usize = 16;

#[derive(Debug)]
struct Holder {
    /// When a session of it last asked for anything, on the monotonic clock.
    renewed_ns: i64,
    /// The session of that UUID has not ended.
    present: bool,
    /// Made at the first export.
    secret: Option<[u8; SECRET]>,
}

/// Who is there. A holder is a session, or several that joined one by its token.
#[derive(Debug)]
pub(crate) struct Sessions {
    holders: HashMap<Uuid, Holder, Seeded>,
    joined: HashMap<Uuid, Uuid, Seeded>,
    lease_ns: i64,
}

fn unknown() -> Error {
    Error::stale("the token is unknown or its lease has ended: export a new one").with_clause(Clause::X1)
}

impl Sessions {
    /// Nobody yet.
    pub(crate) fn new(lease_ns: i64) -> Sessions {
        Sessions { holders: HashMap::default(), joined: HashMap::default(), lease_ns }
    }

    /// Renews the leases of a session and tells for whom it acts.
    pub(crate) fn touch(&mut self, caller: &Caller, now_ns: i64) -> Uuid {
        let session = caller.session;
        self.renew(session, now_ns).present = true;
        // What the client says of its holder proves nothing, and after a restart it is outdated: it acts for itself then.
        let joined = if self.joined.is_empty() { None } else { self.joined.get(&session).copied() };
        if let Some(holder) = joined {
            self.renew(holder, now_ns);
        }
        joined.unwrap_or(session)
    }

    fn renew(&mut self, holder: Uuid, now_ns: i64) -> &mut Holder {
        let entry = self.holders.entry(holder);
        let holder = entry.or_insert(Holder { renewed_ns: now_ns, present: false, secret: None });
        holder.renewed_ns = holder.renewed_ns.max(now_ns);
        holder
    }

    /// Whether a holder's lease has not ended.
    pub(crate) fn is_live(&self, holder: Uuid, now_ns: i64) -> bool {
        self.holders.get(&holder).is_some_and(|h| h.renewed_ns.saturating_add(self.lease_ns) > now_ns)
    }

    /// For whom a session acts now.
    pub(crate) fn acts_for(&self, session: Uuid) -> Uuid {
        self.joined.get(&session).copied().unwrap_or(session)
    }

    /// Whether a session acts for a holder, or may come back to.
    pub(crate) fn is_there(&self, holder: Uuid) -> bool {
        self.holders.contains_key(&holder)
    }

    /// How long what a session has is kept for it.
    pub(crate) fn lease_ns(&self) -> i64 {
        self.lease_ns
    }

    /// A token with which others join a holder.
    pub(crate) fn export(&mut self, holder: Uuid, now_ns: i64) -> Vec<u8> {
        let secret = self.renew(holder, now_ns).secret.get_or_insert_with(|| {
            let mut secret = [0; SECRET];
            seam::random_bytes(&mut secret);
            secret
        });
        [&holder.0[..], &secret[..]].concat()
    }

    /// Joins the holder of a token.
    pub(crate) fn join(&mut self, session: Uuid, token: &[u8], now_ns: i64) -> Result<Uuid> {
        if token.len() != 16 + SECRET {
            return Err(Error::invalid(format!("a token has {} bytes, this has {}", 16 + SECRET, token.len())));
        }
        let holder = Uuid(token[..16].try_into().map_err(|_| unknown())?);
        let secret = self.holders.get(&holder).and_then(|h| h.secret).ok_or_else(unknown)?;
        // Without an early end, so that the time taken tells nothing about the secret.
        let wrong = secret.iter().zip(&token[16..]).fold(0, |wrong, (a, b)| wrong | (a ^ b));
        if wrong != 0 || !self.is_live(holder, now_ns) {
            return Err(unknown());
        }
        if holder == session {
            self.joined.remove(&session);
        } else {
            self.joined.insert(session, holder);
        }
        Ok(holder)
    }

    /// A session says whom it acted for before the catalog was opened anew. Only where all are one user's.
    pub(crate) fn rejoin(&mut self, session: Uuid, holder: Uuid, now_ns: i64) {
        self.renew(holder, now_ns);
        self.joined.insert(session, holder);
    }

    /// Forgets a session; a holder is forgotten with the last session that acts for it.
    pub(crate) fn end(&mut self, session: Uuid) {
        if let Some(holder) = self.holders.get_mut(&session) {
            holder.present = false;
        }
        let joined = self.joined.remove(&session);
        for holder in joined.into_iter().chain([session]) {
            let used =
                self.holders.get(&holder).is_some_and(|h| h.present) || self.joined.values().any(|h| *h == holder);
            if !used {
                self.holders.remove(&holder);
            }
        }
    }
}

#[cfg(test)]
mod tests;
