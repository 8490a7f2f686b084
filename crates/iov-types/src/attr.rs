//! Attributes that an owner sets: of a workspace, of a collection.

use crate::{AccessList, Controls, Layout, Lifetime, Metadata};

/// System attributes of a collection or group that its owner may set (O4); `None` leaves one as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attr {
    /// Permission bits. At a create also the kind of a file that a POSIX front door sees in a collection (`S_IFMT`, as
    /// `S_IFLNK` for a symbolic link whose bytes are its target); 0 = a regular one. It stays.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Owning group.
    pub gid: Option<u32>,
    /// Time of the last change of the bytes, in nanoseconds since 1970.
    pub mtime_ns: Option<i64>,
    /// Time of the last access, in nanoseconds since 1970: it is kept for programs, and reading does not change it.
    pub atime_ns: Option<i64>,
    /// How long it stays when nobody deletes it; of collections only.
    pub lifetime: Option<Lifetime>,
}

/// Properties of a workspace (O1). At create, `None` means the default; at set, "leave as it is".
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WorkspaceAttr {
    /// Default controls of what is created in it.
    pub controls: Option<Controls>,
    /// Default layout.
    pub layout: Option<Layout>,
    /// Pairs to put.
    pub metadata: Metadata,
    /// Owner's user id; at create `None` = the caller.
    pub owner: Option<u32>,
    /// Who else may do what.
    pub access: Option<AccessList>,
    /// Metadata keys to keep an index of (O5); no list leaves it as it is, one empty key means none at all.
    pub indexes: Vec<String>,
    /// Most bytes; `u64::MAX` = unlimited.
    pub quota_bytes: Option<u64>,
    /// Most collections; `u64::MAX` = unlimited.
    pub quota_collections: Option<u64>,
    /// When it ends, in nanoseconds since 1970; `i64::MAX` = never.
    pub expires_ns: Option<i64>,
}

impl WorkspaceAttr {
    /// The value of `indexes` that takes all of them away: an empty key names nothing.
    pub fn no_indexes() -> Vec<String> {
        vec![String::new()]
    }

    /// The indexes that are asked for; `None` = nothing is said about them.
    pub fn asked_indexes(&self) -> Option<Vec<String>> {
        match self.indexes.as_slice() {
            [] => None,
            [none] if none.is_empty() => Some(Vec::new()),
            some => Some(some.to_vec()),
        }
    }
}
