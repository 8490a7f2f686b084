//! Sizes and offsets as the C compiler has them. `tests/layout.c` asserts the same numbers of the header.

use super::*;

macro_rules! layout {
    ($($type:ident $size:literal { $($field:ident $offset:literal),* $(,)? })*) => {
        $(
            const _: () = {
                assert!(size_of::<$type>() == $size);
                $(assert!(std::mem::offset_of!($type, $field) == $offset);)*
            };
        )*
    };
}

layout! {
    Uuid 16 { bytes 0 }
    Limits 16 { min 0, max 8 }
    Range 16 { offset 0, len 8 }
    Chunk 24 { offset 0, buf 8, len 16 }
    Extent 24 { offset 0, len 8, kind 16, target 20 }
    Controls 88 {
        size 0, consistency 4, concurrency 5, mutability 6, atomicity 7, persistence 8, persistence_point 9,
        temporality 10, spatiality 11, on_error 12, reserved0 13, eventual_ns 16, atomic_unit 24, drain_ns 32, stride 40,
        block 48, request_size 56, collection_size 72,
    }
    Layout 48 { size 0, targets 4, chunk_size 8, redundancy 16, k 20, m 22, revision 24, backend 32, policy 40 }
    SessionAttr 48 { size 0, flags 4, deadline_ns 8, cache_bytes 16, program 24, token 32, config 40 }
    WorkspaceAttr 88 {
        size 0, reserved0 4, controls 8, layout 16, metadata 24, owner 32, access 40, indexes 48, index_count 56,
        quota_bytes 64, quota_collections 72, expires_ns 80,
    }
    BatchAttr 48 { size 0, on_error 4, progress 5, reserved0 6, id 8, deadline_ns 24, user_data 32, controls 40 }
    Status 40 { size 0, code 4, state 8, outcome 9, reserved0 10, clause 16, detail 24, bytes 32 }
    Completion 32 { size 0, code 4, request 8, batch 16, user_data 24 }
    Stat 152 {
        size 0, kind 4, state 5, reserved0 6, uuid 8, bytes 24, allocated 32, entries 40, abandoned 48, ctime_ns 56,
        mtime_ns 64, staleness_ns 72, revision 80, version 88, mode 96, links 100, uid 104, gid 108, quota_bytes 112,
        quota_collections 120, expires_ns 128, lifetime 136, reserved1 140, lease_ns 144,
    }
    Attr 48 {
        size 0, mask 4, mode 8, uid 12, gid 16, reserved0 20, mtime_ns 24, lifetime 32, reserved1 36, lease_ns 40,
    }
    Value 24 { size 0, kind 4, len 8, payload 16 }
    Entry 56 { size 0, kind 4, uuid 8, group 24, name 40, metadata 48 }
    SearchAttr 64 { size 0, flags 4, group 8, order 16, limit 24, keys 32, key_count 40, params 48, param_count 56 }
    LockAttr 48 { size 0, mode 4, flags 8, reserved0 12, range 16, owner 32, lease_ns 40 }
    BufferAttr 32 { size 0, flags 4, memory 8, device 12, numa_node 16, reserved0 20, alignment 24 }
    HandleStruct 32 { size 0, kind 4, handle 8, range 16 }
    Counters 240 { size 0, reserved0 4, values 8 }
}
