//! Facts about a workspace, group or collection.

use crate::{Lifetime, Uuid};

/// What a handle or entry is; the numbers of `IOV_KIND_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// A workspace.
    Workspace = 2,
    /// A group.
    Group = 3,
    /// A collection.
    Collection = 4,
}

/// Where a collection is in its life (O2); the numbers of `IOV_STATE_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum State {
    /// Immutable, not sealed yet.
    Staging = 1,
    /// May change.
    Open = 2,
    /// Fixed for good.
    Sealed = 3,
}

/// Facts; what does not apply is 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// What it is.
    pub kind: EntryKind,
    /// Of a collection.
    pub state: Option<State>,
    /// Its identity.
    pub uuid: Uuid,
    /// Length of a collection, use of a workspace, in bytes.
    pub bytes: u64,
    /// Space taken, redundancy included, in bytes.
    pub allocated: u64,
    /// Members of a group, collections of a workspace.
    pub entries: u64,
    /// Holes left by dead appenders (M4).
    pub abandoned: u64,
    /// Made at, in nanoseconds since 1970.
    pub ctime_ns: i64,
    /// Bytes last changed at, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// The answer may be this old, in nanoseconds (C4).
    pub staleness_ns: u64,
    /// Revision of the layout.
    pub revision: u64,
    /// Version of the content; grows with each publication.
    pub version: u64,
    /// Time of the last access, as somebody set it, in nanoseconds since 1970; 0 = nobody did.
    pub atime_ns: i64,
    /// Names, owner, mode, metadata or bytes last changed at, in nanoseconds since 1970.
    pub changed_ns: i64,
    /// Permission bits, and the kind of file that a POSIX front door made (`S_IFMT`).
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Of a workspace; `u64::MAX` = unlimited.
    pub quota_bytes: u64,
    /// Of a workspace; `u64::MAX` = unlimited.
    pub quota_collections: u64,
    /// Of a workspace, in nanoseconds since 1970; `i64::MAX` = never.
    pub expires_ns: i64,
    /// Of a collection that goes by itself.
    pub lifetime: Option<Lifetime>,
}

impl Stat {
    /// Everything zero but what and who it is.
    pub fn new(kind: EntryKind, uuid: Uuid) -> Stat {
        Stat {
            kind,
            state: None,
            uuid,
            bytes: 0,
            allocated: 0,
            entries: 0,
            abandoned: 0,
            ctime_ns: 0,
            mtime_ns: 0,
            staleness_ns: 0,
            atime_ns: 0,
            changed_ns: 0,
            revision: 0,
            version: 0,
            mode: 0,
            links: 0,
            uid: 0,
            gid: 0,
            quota_bytes: 0,
            quota_collections: 0,
            expires_ns: 0,
            lifetime: None,
        }
    }
}
