//! What a daemon that serves targets only and the daemon of the catalog tell each other.

use iov_types::{Target, Uuid};

use crate::message;

/// A daemon of targets is there. Sent when it starts, and again and again: who is not heard of is taken for gone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Join {
    /// The daemon: the same for as long as its directory is.
    pub daemon: Uuid,
    /// Grows each time it starts.
    pub incarnation: u64,
    /// Its targets. Their numbers are those that the catalog has given them; a new one has none yet, and the number here is
    /// nothing.
    pub targets: Vec<Target>,
    /// It ends: nothing more comes.
    pub leaves: bool,
    /// It serves them. Before, it only asks for what it needs to begin.
    pub ready: bool,
    /// The session of the catalog that it knows of, after whose last word it has put its stages in order; nil = none yet.
    pub catalog: Uuid,
    /// The store that its targets belong to; nil = none yet.
    pub store: Uuid,
}

// Strict: what is told of targets decides where bytes go.
message! {
    strict Join {
        1 => daemon: uuid,
        2 => incarnation: uint,
        3 => targets: repeated message,
        4 => leaves: boolean,
        5 => ready: boolean,
        6 => catalog: uuid,
        7 => store: uuid,
    }
}

/// The catalog's daemon has taken note.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JoinAnswer {
    /// The store.
    pub store: Uuid,
    /// The numbers of the targets, in the order in which they were told.
    pub numbers: Vec<u32>,
    /// The session in which the catalog itself comes to them.
    pub catalog: Uuid,
    /// By what tickets are checked, masked if `nonce` is not empty.
    pub key: Vec<u8>,
    /// Random bytes that the mask was made with, and the store's secret.
    pub nonce: Vec<u8>,
    /// The catalog's clock, in nanoseconds since 1970.
    pub now_ns: i64,
    /// How long sessions that break may stay away, in nanoseconds.
    pub lease_ns: u64,
    /// How often to tell anew, in nanoseconds.
    pub beat_ns: u64,
    /// Batches that are committed, and not yet published everywhere: their stages are kept.
    pub unfinished: Vec<Uuid>,
}

message! {
    JoinAnswer {
        1 => store: uuid,
        2 => numbers: repeated uint,
        3 => catalog: uuid,
        4 => key: bytes,
        5 => nonce: bytes,
        6 => now_ns: sint,
        7 => lease_ns: uint,
        8 => beat_ns: uint,
        9 => unfinished: repeated uuid,
    }
}
