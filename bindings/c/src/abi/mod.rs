//! The structs of `ioverbs.h` as memory: the same fields, of plain numbers and pointers, so that any bytes are valid.
//!
//! `layout` checks sizes and offsets when this is compiled; `tests/layout.c` checks the same numbers for the header.
#![allow(missing_docs)] // each field is the one of the same name in ioverbs.h

mod layout;

use std::ffi::{c_char, c_void};

use crate::{collection::CollectionObject, metadata::MetadataObject, object::Handle};

/// A struct that begins with `size` and may grow at its end.
///
/// # Safety
/// The type is `repr(C)`, begins with a `u32` that holds its size, and every pattern of bits is a valid value.
pub unsafe trait CStruct: Copy {
    /// The name in C, for messages.
    const NAME: &'static str;
    /// The smallest size that makes sense: what the first release cannot do without.
    const MIN: usize;
}

macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident = $c:literal, at least $min:literal { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name { pub size: u32, $(pub $field: $type),* }

            // SAFETY: `repr(C)`, `size` first, and the fields are integers, raw pointers and handles, of which any bits
            // are valid values.
            unsafe impl CStruct for $name {
                const NAME: &'static str = $c;
                const MIN: usize = $min;
            }

            impl $name {
                /// All zero but for the size: `IOV_*_INIT`.
                #[allow(dead_code)] // of some structs the library only reads values
                pub(crate) fn init() -> $name {
                    // SAFETY: every pattern of bits is a valid value; see `CStruct`.
                    let mut value: $name = unsafe { std::mem::zeroed() };
                    value.size = size_of::<$name>() as u32;
                    value
                }
            }
        )*
    };
}

/// 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Uuid {
    pub bytes: [u8; 16],
}

/// Smallest and largest.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Limits {
    pub min: u64,
    pub max: u64,
}

/// A stretch of bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Range {
    pub offset: u64,
    pub len: u64,
}

/// A stretch of bytes and the memory that goes with it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Chunk {
    pub offset: u64,
    pub buf: *mut c_void,
    pub len: usize,
}

/// What lies in a range.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Extent {
    pub offset: u64,
    pub len: u64,
    pub kind: u32,
    pub target: u32,
}

structs! {
    /// `iov_controls`
    Controls = "iov_controls", at least 16 {
        consistency: u8, concurrency: u8, mutability: u8, atomicity: u8, persistence: u8, persistence_point: u8,
        temporality: u8, spatiality: u8, on_error: u8, reserved0: [u8; 3],
        eventual_ns: u64, atomic_unit: u64, drain_ns: u64, stride: u64, block: u64,
        request_size: Limits, collection_size: Limits,
    }

    /// `iov_layout`
    Layout = "iov_layout", at least 16 {
        targets: u32, chunk_size: u64, redundancy: u32, k: u16, m: u16, revision: u64,
        backend: *const c_char, policy: *const c_char,
    }

    /// `iov_session_attr`
    SessionAttr = "iov_session_attr", at least 8 {
        flags: u32, deadline_ns: i64, cache_bytes: u64,
        program: *const c_char, token: *const c_char, config: *const c_char,
    }

    /// `iov_workspace_attr`
    WorkspaceAttr = "iov_workspace_attr", at least 8 {
        reserved0: u32, controls: *const Controls, layout: *const Layout, metadata: Handle<MetadataObject>,
        owner: *const c_char, access: *const c_char, indexes: *const *const c_char, index_count: usize,
        quota_bytes: u64, quota_collections: u64, expires_ns: i64,
    }

    /// `iov_batch_attr`
    BatchAttr = "iov_batch_attr", at least 8 {
        on_error: u8, progress: u8, reserved0: [u8; 2], id: Uuid, deadline_ns: i64, user_data: *mut c_void,
        controls: *const Controls,
    }

    /// `iov_status`
    Status = "iov_status", at least 16 {
        code: i32, state: u8, outcome: u8, reserved0: [u8; 6], clause: *const c_char, detail: *const c_char, bytes: u64,
    }

    /// `iov_completion`
    Completion = "iov_completion", at least 16 {
        code: i32, request: u64, batch: u64, user_data: *mut c_void,
    }

    /// `iov_stat`
    Stat = "iov_stat", at least 32 {
        kind: u8, state: u8, reserved0: [u8; 2], uuid: Uuid, bytes: u64, allocated: u64, entries: u64, abandoned: u64,
        ctime_ns: i64, mtime_ns: i64, staleness_ns: u64, revision: u64, version: u64,
        mode: u32, links: u32, uid: u32, gid: u32, quota_bytes: u64, quota_collections: u64, expires_ns: i64,
        lifetime: u32, reserved1: u32, lease_ns: i64,
    }

    /// `iov_attr`
    Attr = "iov_attr", at least 24 {
        mask: u32, mode: u32, uid: u32, gid: u32, reserved0: u32, mtime_ns: i64, lifetime: u32, reserved1: u32,
        lease_ns: i64,
    }

    /// `iov_value`
    Value = "iov_value", at least 24 {
        kind: u32, len: usize, payload: u64,
    }

    /// `iov_entry`
    Entry = "iov_entry", at least 24 {
        kind: u32, uuid: Uuid, group: Uuid, name: *const c_char, metadata: u64,
    }

    /// `iov_search_attr`
    SearchAttr = "iov_search_attr", at least 8 {
        flags: u32, group: Handle<CollectionObject>, order: *const c_char, limit: u64, keys: *const *const c_char,
        key_count: usize, params: *const Value, param_count: usize,
    }

    /// `iov_lock_attr`
    LockAttr = "iov_lock_attr", at least 32 {
        mode: u32, flags: u32, reserved0: u32, range: Range, owner: u64, lease_ns: i64,
    }

    /// `iov_buffer_attr`
    BufferAttr = "iov_buffer_attr", at least 16 {
        flags: u32, memory: u32, device: u32, numa_node: u32, reserved0: u32, alignment: u64,
    }

    /// `iov_handle`
    HandleStruct = "iov_handle", at least 16 {
        kind: u32, handle: u64, range: Range,
    }

    /// `iov_counters`
    Counters = "iov_counters", at least 8 {
        reserved0: u32, values: [u64; 29],
    }
}

/// The flags of `ioverbs.h`.
pub(crate) mod flag {
    pub(crate) const SESSION_READONLY: u32 = 1;
    pub(crate) const SESSION_NODIRECT: u32 = 2;
    pub(crate) const SESSION_NOCACHE: u32 = 4;
    pub(crate) const SESSION_NOSTART: u32 = 8;
    pub(crate) const SESSION_BACKGROUND: u32 = 16;
    pub(crate) const SEARCH_COUNT: u32 = 1;
    pub(crate) const SEARCH_DEEP: u32 = 2;
    pub(crate) const RENAME_NOREPLACE: u32 = 1;
    pub(crate) const RENAME_EXCHANGE: u32 = 2;
    pub(crate) const ALLOCATE_KEEP_SIZE: u32 = 1;
    pub(crate) const LOCK_TRY: u32 = 1;
    pub(crate) const BUFFER_ON_NODE: u32 = 1;
    pub(crate) const ATTR_MODE: u32 = 1;
    pub(crate) const ATTR_UID: u32 = 2;
    pub(crate) const ATTR_GID: u32 = 4;
    pub(crate) const ATTR_MTIME: u32 = 8;
    pub(crate) const ATTR_LIFETIME: u32 = 16;
}

/// `IOV_KIND_*` of what `iov_handle` may hold.
pub(crate) mod kind {
    pub(crate) const SESSION: u32 = 1;
    pub(crate) const WORKSPACE: u32 = 2;
    pub(crate) const GROUP: u32 = 3;
    pub(crate) const COLLECTION: u32 = 4;
}
