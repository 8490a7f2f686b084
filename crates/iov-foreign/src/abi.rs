//! The types of the section "Run-time backends" of `ioverbs.h`, as Rust sees them. Sizes and offsets are compared with those
//! of a C compiler in the tests.
#![allow(missing_docs)] // the header has them

use std::ffi::{c_char, c_int, c_void};

pub const CREATE: u32 = 1;
pub const WRITE: u32 = 2;
pub const READ: u32 = 3;
pub const APPEND: u32 = 4;
pub const TRUNCATE: u32 = 5;
pub const PUNCH: u32 = 6;
pub const COPY: u32 = 7;
pub const SYNC: u32 = 8;
pub const SEAL: u32 = 9;
pub const FENCE: u32 = 10;
pub const STAGE: u32 = 11;
pub const PUBLISH: u32 = 12;
pub const DISCARD: u32 = 13;
pub const REMOVE: u32 = 14;
pub const STAT: u32 = 15;
pub const LIST: u32 = 16;

pub const CHECKSUM_CRC32C: u8 = 1;

#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Object {
    pub collection: [u8; 16],
    pub slot: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Range {
    pub offset: u64,
    pub len: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub size: u32,
    pub kind: u32,
    pub tag: *mut c_void,
    pub object: Object,
    pub source: Object,
    pub offset: u64,
    pub source_offset: u64,
    pub len: u64,
    pub buf: *mut c_void,
    pub batch: [u8; 16],
    pub expect_epoch: u64,
    pub expect_version: u64,
    pub revision: u64,
    pub deadline_ns: i64,
    pub checksum: u64,
    pub checksum_kind: u8,
    pub durability: u8,
    pub priority: u8,
    pub reserved0: [u8; 5],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    pub size: u32,
    pub code: i32,
    pub tag: *mut c_void,
    pub bytes: u64,
    pub offset: u64,
    pub version: u64,
    pub epoch: u64,
    pub incarnation: u64,
    pub checksum: u64,
    pub checksum_kind: u8,
    pub durability: u8,
    pub outcome: u8,
    pub reserved0: [u8; 5],
    pub detail: *const c_char,
    pub allocated: u64,
    pub mtime_ns: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Capability {
    pub size: u32,
    pub alignment: u32,
    pub kinds: u64,
    pub max_len: u64,
    pub unit: u64,
    pub space: u64,
    pub space_free: u64,
    pub incarnation: u64,
    pub durability: u8,
    pub reserved0: [u8; 7],
}

#[repr(C)]
#[derive(Debug)]
pub struct Host {
    pub size: u32,
    pub reserved0: u32,
    pub ctx: *mut c_void,
    pub log: Option<unsafe extern "C" fn(ctx: *mut c_void, level: u32, line: *const c_char)>,
    pub recall: Option<unsafe extern "C" fn(ctx: *mut c_void, token: *mut c_void)>,
}

pub type Done = Option<unsafe extern "C" fn(sink: *mut c_void, evidence: *const Evidence)>;
pub type Granted = Option<unsafe extern "C" fn(sink: *mut c_void, code: c_int, grant: *const c_void)>;

#[repr(C)]
pub struct Ops {
    pub size: u32,
    pub reserved0: u32,
    pub name: *const c_char,
    pub init: Option<unsafe extern "C" fn(config: *const c_char, host: *const Host, state: *mut *mut c_void) -> c_int>,
    pub destroy: Option<unsafe extern "C" fn(state: *mut c_void)>,
    pub capability: Option<unsafe extern "C" fn(state: *mut c_void, out: *mut Capability) -> c_int>,
    pub allocate: Option<
        unsafe extern "C" fn(state: *mut c_void, len: usize, attr: *const c_void, out: *mut *mut c_void) -> c_int,
    >,
    pub free: Option<unsafe extern "C" fn(state: *mut c_void, p: *mut c_void)>,
    pub submit: Option<
        unsafe extern "C" fn(state: *mut c_void, ops: *const Op, n: usize, done: Done, sink: *mut c_void) -> c_int,
    >,
    pub grant: Option<
        unsafe extern "C" fn(
            state: *mut c_void,
            object: *const Object,
            range: Range,
            access: u32,
            deadline_ns: i64,
            done: Granted,
            sink: *mut c_void,
        ) -> c_int,
    >,
    pub release: Option<unsafe extern "C" fn(state: *mut c_void, token: *mut c_void)>,
}

// SAFETY: a table is constant, and its functions may be called by several threads at once (`ioverbs.h`).
unsafe impl Send for Ops {}
// SAFETY: as above.
unsafe impl Sync for Ops {}

/// The entry of a shared object.
pub type Entry = unsafe extern "C" fn() -> *const Ops;

/// Its name.
pub const ENTRY: &str = "iov_backend_ops_v1";

/// Nothing but its size and its kind.
pub fn op(kind: u32) -> Op {
    Op {
        size: size_of::<Op>() as u32,
        kind,
        tag: std::ptr::null_mut(),
        object: Object::default(),
        source: Object::default(),
        offset: 0,
        source_offset: 0,
        len: 0,
        buf: std::ptr::null_mut(),
        batch: [0; 16],
        expect_epoch: 0,
        expect_version: 0,
        revision: 0,
        deadline_ns: 0,
        checksum: 0,
        checksum_kind: 0,
        durability: 0,
        priority: 0,
        reserved0: [0; 5],
    }
}

/// Nothing but its size.
pub fn evidence() -> Evidence {
    Evidence {
        size: size_of::<Evidence>() as u32,
        code: 0,
        tag: std::ptr::null_mut(),
        bytes: 0,
        offset: 0,
        version: 0,
        epoch: 0,
        incarnation: 0,
        checksum: 0,
        checksum_kind: 0,
        durability: 0,
        outcome: 0,
        reserved0: [0; 5],
        detail: std::ptr::null(),
        allocated: 0,
        mtime_ns: 0,
    }
}

/// Nothing but its size.
pub fn capability() -> Capability {
    Capability {
        size: size_of::<Capability>() as u32,
        alignment: 0,
        kinds: 0,
        max_len: 0,
        unit: 0,
        space: 0,
        space_free: 0,
        incarnation: 0,
        durability: 0,
        reserved0: [0; 7],
    }
}
