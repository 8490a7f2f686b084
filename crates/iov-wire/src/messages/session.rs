//! Beginning, keeping and ending a connection.

use iov_types::{Error, Result, Uuid};

use super::TargetCapability;
use crate::message;
use crate::version::{MAX_VERSION, MIN_VERSION};

/// The first frame of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Oldest protocol version it speaks.
    pub min_version: u16,
    /// Newest.
    pub max_version: u16,
    /// Version of the library, for people.
    pub library: String,
    /// The session; several connections may belong to one.
    pub session: Uuid,
    /// Name of the program, for people.
    pub program: String,
    /// Its process.
    pub pid: u32,
    /// Which of the session's connections: 0 = its first, over which it asks for facts; others only move bytes.
    pub channel: u32,
    /// Random bytes for the server to prove itself with; empty on a socket where the kernel tells who it is.
    pub challenge: Vec<u8>,
    /// The target that the session is for, if it is not the first one: it is asked for objects only.
    pub target: u32,
    /// Then: the client's session for the store, which comes first and ends last.
    pub of: Uuid,
    /// It can also be talked to by rings in shared memory.
    pub rings: bool,
}

message! {
    Hello {
        1 => min_version: uint,
        2 => max_version: uint,
        3 => library: string,
        4 => session: uuid,
        5 => program: string,
        6 => pid: uint,
        7 => channel: uint,
        8 => challenge: bytes,
        9 => target: uint,
        10 => of: uuid,
        11 => rings: boolean,
    }
}

impl Hello {
    /// The newest version that both sides speak.
    pub fn choose(&self) -> Result<u16> {
        let version = self.max_version.min(MAX_VERSION);
        if version >= self.min_version.max(MIN_VERSION) {
            return Ok(version);
        }
        let older = if self.max_version < MIN_VERSION { "program's library" } else { "daemon" };
        Err(Error::version(format!(
            "library {} speaks protocol versions {} to {}, this daemon {MIN_VERSION} to {MAX_VERSION}: update the {older}",
            self.library, self.min_version, self.max_version
        )))
    }
}

/// The server's answer to [`Hello`]; every later frame has the chosen version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The version both speak from now on.
    pub version: u16,
    /// The store.
    pub store: Uuid,
    /// Grows each time the server starts; what volatile objects held before is gone (P1).
    pub incarnation: u64,
    /// What it can do.
    pub capability: StoreCapability,
    /// Version of the daemon, for people.
    pub daemon: String,
    /// Its process.
    pub pid: u32,
    /// How long exclusive holds and locks outlive a session that does not renew them, in nanoseconds; 0 = the server is
    /// older than this field.
    pub lease_ns: u64,
    /// That the server has the store's secret too; empty where none was asked for.
    pub proof: Vec<u8>,
    /// Where else the server can be reached, as `HOST:PORT`, the best first.
    pub addresses: Vec<String>,
    /// The target of [`Hello`]: a server that does not know of several leaves it out.
    pub target: u32,
    /// It knows [`BACKGROUND`](crate::frame::BACKGROUND).
    pub priorities: bool,
    /// A second descriptor comes along, of the memory of the connection's rings.
    pub rings: bool,
}

/// Before a server lets anybody in over a network: prove that you have the store's secret.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Challenge {
    /// Random bytes.
    pub challenge: Vec<u8>,
}

message! { Challenge { 1 => challenge: bytes } }

/// The client has the store's secret.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Proof {
    /// A MAC over both challenges and all of `Hello`.
    pub proof: Vec<u8>,
}

message! { Proof { 1 => proof: bytes } }

message! {
    Welcome {
        1 => version: uint,
        2 => store: uuid,
        3 => incarnation: uint,
        4 => capability: required message,
        5 => daemon: string,
        6 => pid: uint,
        7 => lease_ns: uint,
        8 => proof: bytes,
        9 => addresses: repeated string,
        10 => target: uint,
        11 => priorities: boolean,
        12 => rings: boolean,
    }
}

/// What a catalog and its targets can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreCapability {
    /// What its targets can do.
    pub targets: TargetCapability,
    /// Most operations in one submission.
    pub max_ops: u64,
    /// Whether only one user can ever reach it (A2).
    pub single_user: bool,
    /// Collections up to this many bytes live in their record; 0 = none do.
    pub inline_bytes: u64,
}

message! {
    StoreCapability { 1 => targets: required message, 2 => max_ops: uint, 3 => single_user: boolean, 4 => inline_bytes: uint }
}

/// Keeps the leases of a session. A client sends it, and the server sends it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Renew {
    /// From the server: how long the leases last from now on, in nanoseconds.
    pub lease_ns: u64,
}

message! { Renew { 1 => lease_ns: uint } }

/// Ends a connection in order; from the server: it will take no more requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Goodbye;

message! { Goodbye {} }

/// Wakes whoever stopped to look into its ring just as something was put there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wake;

message! { Wake {} }

/// What is wrong with the connection or with a frame that cannot be answered otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The error. With request id 0 the sender closes the connection; else only that request has failed.
    pub error: Error,
}

message! { Fault { 1 => error: required message } }

/// Asks a daemon how it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatusRequest;

message! { StatusRequest {} }

/// How a daemon is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatusAnswer {
    /// Version of the daemon, for people.
    pub daemon: String,
    /// Its process.
    pub pid: u32,
    /// How long it has run, in nanoseconds.
    pub uptime_ns: u64,
    /// Sessions open now.
    pub sessions: u32,
    /// Connections open now.
    pub connections: u32,
    /// Named counters and gauges.
    pub counters: Vec<Counter>,
}

message! {
    StatusAnswer {
        1 => daemon: string,
        2 => pid: uint,
        3 => uptime_ns: uint,
        4 => sessions: uint,
        5 => connections: uint,
        6 => counters: repeated message,
    }
}

/// A named number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: u64,
}

message! { Counter { 1 => name: string, 2 => value: uint } }

/// Asks a daemon to end once its connections are idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shutdown;

message! { Shutdown {} }
