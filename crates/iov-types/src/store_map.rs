//! The targets of a store, as its clients and operators see them.

use crate::{Capability, Uuid};

/// Whether a target answers; the numbers go over the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Reach {
    /// It does.
    #[default]
    Online = 1,
    /// Nothing has come from it for a while.
    ProbablyOffline = 2,
    /// It has ended, or nothing has come from it for long: nothing new is put there.
    Offline = 3,
}

/// Whether what a target holds can be relied on; the numbers go over the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Health {
    /// It can.
    #[default]
    Good = 1,
    /// It was away, and what it holds may be old (P6).
    NeedsResync = 2,
    /// It cannot: its medium is damaged, or has lost what it held.
    Bad = 3,
}

impl Reach {
    /// A word for it.
    pub const fn text(self) -> &'static str {
        match self {
            Reach::Online => "online",
            Reach::ProbablyOffline => "probably-offline",
            Reach::Offline => "offline",
        }
    }
}

impl Health {
    /// A word for it.
    pub const fn text(self) -> &'static str {
        match self {
            Health::Good => "good",
            Health::NeedsResync => "needs-resync",
            Health::Bad => "bad",
        }
    }
}

/// A target of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its number in the store, for ever: 0 is the first one.
    pub number: u32,
    /// Its identity, which its medium has written down.
    pub uuid: Uuid,
    /// What it can do.
    pub capability: Capability,
    /// The word by which a layout asks for targets of its kind: `shmem`, `files`, …
    pub storage: String,
    /// The machine it is on.
    pub host: String,
    /// What fails together with it: targets of one domain never hold two copies of the same bytes. The machine, unless
    /// somebody has said otherwise.
    pub domain: String,
    /// Where its daemon can be reached, as `HOST:PORT`; none: at that of the catalog.
    pub addresses: Vec<String>,
    /// Bytes that it has room for; 0 = no bounds of its own.
    pub capacity: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Whether it answers.
    pub reach: Reach,
    /// Whether it can be relied on.
    pub health: Health,
    /// Of another daemon than the catalog's: its host and its directory, for programs that are there too; empty = not told.
    pub local: String,
}

/// A list of targets with a number, which never changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pattern {
    /// From 1 on.
    pub number: u32,
    /// The numbers of the targets, in the order in which chunks go to them.
    pub targets: Vec<u32>,
}

/// The targets of a store and its patterns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreMap {
    /// All targets.
    pub targets: Vec<Target>,
    /// Patterns, by their numbers.
    pub patterns: Vec<Pattern>,
}
