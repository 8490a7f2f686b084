//! A workspace and what it uses.

use iov_types::{AccessList, Controls, Layout, Metadata, Name, Uuid};
use iov_wire::message;

/// A workspace (O1). It is also the record of its root group.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WorkspaceRecord {
    pub(crate) name: Name,
    pub(crate) owner: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
    pub(crate) access: AccessList,
    pub(crate) metadata: Metadata,
    pub(crate) controls: Controls,
    pub(crate) layout: Option<Layout>,
    /// Metadata keys that an index is kept of (O5).
    pub(crate) indexes: Vec<String>,
    pub(crate) quota_bytes: u64,
    pub(crate) quota_collections: u64,
    pub(crate) expires_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) mtime_ns: i64,
    pub(crate) revision: u64,
    /// Of holds of the root (X2).
    pub(crate) epoch: u64,
    pub(crate) pending: Uuid,
    /// When the root's attributes or metadata were changed last; 0: never.
    pub(crate) changed_ns: i64,
}

message! {
    strict WorkspaceRecord {
        1 => name: required name,
        2 => owner: uint,
        3 => gid: uint,
        4 => mode: uint,
        5 => access: message,
        6 => metadata: pairs,
        7 => controls: message,
        8 => layout: optional message,
        9 => indexes: repeated string,
        10 => quota_bytes: uint,
        11 => quota_collections: uint,
        12 => expires_ns: sint,
        13 => ctime_ns: sint,
        14 => mtime_ns: sint,
        15 => revision: uint,
        16 => epoch: uint,
        17 => pending: uuid,
        18 => changed_ns: sint,
    }
}

/// What a workspace uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    /// Collections and groups.
    pub(crate) collections: u64,
    /// Lengths of collections, as of their last publication.
    pub(crate) bytes: u64,
}

message! { strict Usage { 1 => collections: uint, 2 => bytes: uint } }
