//! Tickets are signed by the catalog and checked by the daemons of targets, with a key that only those have (A1).
//!
//! A signed ticket is a MAC (BLAKE3, keyed) and the encoded [`Ticket`] that it stands over.

use iov_types::{Clause, Error, Result, SignedTicket, Ticket};

use crate::{Wire, message};

// Strict: a limit that this release does not know must not be overlooked.
message! {
    strict Ticket {
        1 => store: uuid,
        2 => collection: uuid,
        3 => ws: uuid,
        4 => session: uuid,
        5 => rights: uint,
        6 => epoch: uint,
        7 => expires_ns: sint,
    }
}

message! { SignedTicket { 1 => bytes: bytes, 2 => lasts_ns: uint, 3 => writable: boolean } }

const MAC: usize = blake3::OUT_LEN;

/// What tickets of one store are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKey([u8; 32]);

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKey(…)")
    }
}

impl TicketKey {
    /// A key of random bytes.
    pub fn new(bytes: [u8; 32]) -> TicketKey {
        TicketKey(bytes)
    }

    /// The bytes: never to be shown.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Signs a ticket.
    pub fn sign(&self, ticket: &Ticket) -> Vec<u8> {
        let mut signed = vec![0; MAC];
        ticket.encode(&mut signed);
        let mac = blake3::keyed_hash(&self.0, &signed[MAC..]);
        signed[..MAC].copy_from_slice(mac.as_bytes());
        signed
    }

    /// What a ticket says, if it is one of this key.
    pub fn check(&self, signed: &[u8]) -> Result<Ticket> {
        let forged = || {
            Error::denied("a ticket is not of this store's catalog: open the collection anew").with_clause(Clause::A1)
        };
        let (mac, body) = signed.split_first_chunk::<MAC>().ok_or_else(forged)?;
        // This comparison takes the same time whatever differs.
        if blake3::keyed_hash(&self.0, body) != *mac {
            return Err(forged());
        }
        Ticket::decode(body)
    }
}

#[cfg(test)]
mod tests;
