//! Plain data that several messages and the records of the catalog hold.

use iov_types::{
    AccessEntry, AccessList, Attr, Controls, Effective, Extent, Layout, Lifetime, Limits, Range, Stat, Subject, Which,
    WorkspaceAttr,
};

use crate::{choice, message};

message! { Range { 1 => offset: uint, 2 => len: uint } }
message! { Extent { 1 => range: message, 2 => kind: required number, 3 => target: uint } }
message! { Limits { 1 => min: uint, 2 => max: uint } }
choice! { Which { 1 => Name(name), 2 => Uuid(uuid) } }
choice! { Subject { 1 => User(uint), 2 => Group(uint), 3 => Any } }
message! { AccessEntry { 1 => subject: required message, 2 => right: required number } }
message! { AccessList { 1 => entries: repeated message } }

message! {
    // Strict: a control that this release does not know would be a promise that nobody keeps.
    strict Controls {
        1 => consistency: optional number,
        2 => eventual_ns: uint,
        3 => concurrency: optional number,
        4 => mutability: optional number,
        5 => atomicity: optional number,
        6 => atomic_unit: uint,
        7 => persistence: optional number,
        8 => point: optional number,
        9 => temporality: optional number,
        10 => drain_ns: uint,
        11 => spatiality: optional number,
        12 => stride: uint,
        13 => block: uint,
        14 => request_size: message,
        15 => collection_size: message,
        16 => on_error: optional number,
    }
}

message! {
    strict Effective {
        1 => consistency: required number,
        2 => eventual_ns: uint,
        3 => concurrency: required number,
        4 => mutability: required number,
        5 => atomicity: required number,
        6 => atomic_unit: uint,
        7 => persistence: required number,
        8 => point: required number,
        9 => temporality: required number,
        10 => drain_ns: uint,
        11 => spatiality: required number,
        12 => stride: uint,
        13 => block: uint,
        14 => request_size: message,
        15 => collection_size: message,
        16 => on_error: required number,
    }
}

message! {
    // Strict: bytes laid out in a way that this release does not know would be read as garbage.
    strict Layout {
        1 => targets: uint,
        2 => chunk_size: uint,
        3 => redundancy: optional number,
        4 => k: uint,
        5 => m: uint,
        6 => revision: uint,
        7 => backend: optional string,
        8 => policy: optional string,
        9 => place: uint,
    }
}

message! {
    strict Attr {
        1 => mode: optional uint,
        2 => uid: optional uint,
        3 => gid: optional uint,
        4 => mtime_ns: optional sint,
        5 => lifetime: optional message,
        6 => atime_ns: optional sint,
    }
}

message! {
    strict Lifetime { 1 => scope: required number, 2 => lease_ns: uint }
}

message! {
    strict WorkspaceAttr {
        1 => controls: optional message,
        2 => layout: optional message,
        3 => metadata: pairs,
        4 => owner: optional uint,
        5 => access: optional message,
        6 => indexes: repeated string,
        7 => quota_bytes: optional uint,
        8 => quota_collections: optional uint,
        9 => expires_ns: optional sint,
    }
}

message! {
    Stat {
        1 => kind: required number,
        2 => state: optional number,
        3 => uuid: uuid,
        4 => bytes: uint,
        5 => allocated: uint,
        6 => entries: uint,
        7 => abandoned: uint,
        8 => ctime_ns: sint,
        9 => mtime_ns: sint,
        10 => staleness_ns: uint,
        11 => revision: uint,
        12 => version: uint,
        13 => mode: uint,
        14 => links: uint,
        15 => uid: uint,
        16 => gid: uint,
        17 => quota_bytes: uint,
        18 => quota_collections: uint,
        19 => expires_ns: sint,
        20 => lifetime: optional message,
        21 => atime_ns: sint,
        22 => changed_ns: sint,
    }
}
