/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and offsets of the header: the numbers of src/abi/layout.rs. */
#include "test.h"

#ifdef __cplusplus
#define ASSERT(condition) static_assert(condition, #condition)
#else
#define ASSERT(condition) _Static_assert(condition, #condition)
#endif
#define SIZE(type, size) ASSERT(sizeof(type) == (size))
#define AT(type, field, offset) ASSERT(offsetof(type, field) == (offset))

SIZE(iov_uuid, 16);
SIZE(iov_limits, 16);
AT(iov_limits, max, 8);
SIZE(iov_range, 16);
AT(iov_range, len, 8);
SIZE(iov_chunk, 24);
AT(iov_chunk, buf, 8);
AT(iov_chunk, len, 16);
SIZE(iov_extent, 24);
AT(iov_extent, len, 8);
AT(iov_extent, kind, 16);
AT(iov_extent, target, 20);

SIZE(iov_controls, 88);
AT(iov_controls, size, 0);
AT(iov_controls, consistency, 4);
AT(iov_controls, concurrency, 5);
AT(iov_controls, mutability, 6);
AT(iov_controls, atomicity, 7);
AT(iov_controls, persistence, 8);
AT(iov_controls, persistence_point, 9);
AT(iov_controls, temporality, 10);
AT(iov_controls, spatiality, 11);
AT(iov_controls, on_error, 12);
AT(iov_controls, reserved0, 13);
AT(iov_controls, eventual_ns, 16);
AT(iov_controls, atomic_unit, 24);
AT(iov_controls, drain_ns, 32);
AT(iov_controls, stride, 40);
AT(iov_controls, block, 48);
AT(iov_controls, request_size, 56);
AT(iov_controls, collection_size, 72);

SIZE(iov_layout, 48);
AT(iov_layout, targets, 4);
AT(iov_layout, chunk_size, 8);
AT(iov_layout, redundancy, 16);
AT(iov_layout, k, 20);
AT(iov_layout, m, 22);
AT(iov_layout, revision, 24);
AT(iov_layout, backend, 32);
AT(iov_layout, policy, 40);

SIZE(iov_session_attr, 48);
AT(iov_session_attr, flags, 4);
AT(iov_session_attr, deadline_ns, 8);
AT(iov_session_attr, cache_bytes, 16);
AT(iov_session_attr, program, 24);
AT(iov_session_attr, token, 32);
AT(iov_session_attr, config, 40);

SIZE(iov_workspace_attr, 88);
AT(iov_workspace_attr, controls, 8);
AT(iov_workspace_attr, layout, 16);
AT(iov_workspace_attr, metadata, 24);
AT(iov_workspace_attr, owner, 32);
AT(iov_workspace_attr, access, 40);
AT(iov_workspace_attr, indexes, 48);
AT(iov_workspace_attr, index_count, 56);
AT(iov_workspace_attr, quota_bytes, 64);
AT(iov_workspace_attr, quota_collections, 72);
AT(iov_workspace_attr, expires_ns, 80);

SIZE(iov_batch_attr, 48);
AT(iov_batch_attr, on_error, 4);
AT(iov_batch_attr, progress, 5);
AT(iov_batch_attr, reserved0, 6);
AT(iov_batch_attr, id, 8);
AT(iov_batch_attr, deadline_ns, 24);
AT(iov_batch_attr, user_data, 32);
AT(iov_batch_attr, controls, 40);

SIZE(iov_status, 40);
AT(iov_status, code, 4);
AT(iov_status, state, 8);
AT(iov_status, outcome, 9);
AT(iov_status, clause, 16);
AT(iov_status, detail, 24);
AT(iov_status, bytes, 32);

SIZE(iov_completion, 32);
AT(iov_completion, code, 4);
AT(iov_completion, request, 8);
AT(iov_completion, batch, 16);
AT(iov_completion, user_data, 24);

SIZE(iov_stat, 152);
AT(iov_stat, kind, 4);
AT(iov_stat, state, 5);
AT(iov_stat, uuid, 8);
AT(iov_stat, bytes, 24);
AT(iov_stat, allocated, 32);
AT(iov_stat, entries, 40);
AT(iov_stat, abandoned, 48);
AT(iov_stat, ctime_ns, 56);
AT(iov_stat, mtime_ns, 64);
AT(iov_stat, staleness_ns, 72);
AT(iov_stat, revision, 80);
AT(iov_stat, version, 88);
AT(iov_stat, mode, 96);
AT(iov_stat, links, 100);
AT(iov_stat, uid, 104);
AT(iov_stat, gid, 108);
AT(iov_stat, quota_bytes, 112);
AT(iov_stat, quota_collections, 120);
AT(iov_stat, expires_ns, 128);
AT(iov_stat, lifetime, 136);
AT(iov_stat, lease_ns, 144);

SIZE(iov_attr, 48);
AT(iov_attr, mask, 4);
AT(iov_attr, mode, 8);
AT(iov_attr, uid, 12);
AT(iov_attr, gid, 16);
AT(iov_attr, mtime_ns, 24);
AT(iov_attr, lifetime, 32);
AT(iov_attr, lease_ns, 40);

SIZE(iov_value, 24);
AT(iov_value, type, 4);
AT(iov_value, len, 8);
AT(iov_value, str, 16);
AT(iov_value, boolean, 16);

SIZE(iov_entry, 56);
AT(iov_entry, kind, 4);
AT(iov_entry, uuid, 8);
AT(iov_entry, group, 24);
AT(iov_entry, name, 40);
AT(iov_entry, metadata, 48);

SIZE(iov_search_attr, 64);
AT(iov_search_attr, flags, 4);
AT(iov_search_attr, group, 8);
AT(iov_search_attr, order, 16);
AT(iov_search_attr, limit, 24);
AT(iov_search_attr, keys, 32);
AT(iov_search_attr, key_count, 40);
AT(iov_search_attr, params, 48);
AT(iov_search_attr, param_count, 56);

SIZE(iov_lock_attr, 48);
AT(iov_lock_attr, mode, 4);
AT(iov_lock_attr, flags, 8);
AT(iov_lock_attr, range, 16);
AT(iov_lock_attr, owner, 32);
AT(iov_lock_attr, lease_ns, 40);

SIZE(iov_buffer_attr, 32);
AT(iov_buffer_attr, flags, 4);
AT(iov_buffer_attr, memory, 8);
AT(iov_buffer_attr, device, 12);
AT(iov_buffer_attr, numa_node, 16);
AT(iov_buffer_attr, alignment, 24);

SIZE(iov_handle, 32);
AT(iov_handle, kind, 4);
AT(iov_handle, session, 8);
AT(iov_handle, range, 16);

SIZE(iov_counters, 240);
AT(iov_counters, metadata_requests, 8);
AT(iov_counters, publications, 64);
AT(iov_counters, bytes_read, 88);
AT(iov_counters, cache_bytes, 144);
AT(iov_counters, straddling_requests, 176);
AT(iov_counters, connections, 232);

int main(void) {
    iov_controls controls = IOV_CONTROLS_INIT;
    iov_counters counters = IOV_COUNTERS_INIT;
    CHECK(controls.size == sizeof controls);
    CHECK(counters.size == sizeof counters);
    return 0;
}
