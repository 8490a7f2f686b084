/* SPDX-License-Identifier: Apache-2.0 */
/* Every function without a place for its results, and with wrong structs, flags, texts and lengths: an error, never a
 * crash. */
#include "test.h"

static iov_session *s, *s_out;
static iov_workspace *w, *w_out;
static iov_collection *c, *c_out;
static iov_batch *b, *b_out;
static iov_request *r;
static iov_cursor *cur, *cur_out;
static iov_metadata *md;
static iov_view_lease *lease_out;
static const void *view_out;
static void *p_out;
static size_t n_out;
static uint64_t u_out;
static const char *key_out;
static char buf[256];
static iov_uuid uuid;
static iov_controls controls = IOV_CONTROLS_INIT;
static iov_completion completion = IOV_COMPLETION_INIT;
static iov_value value = IOV_VALUE_INIT;
static iov_entry entry = IOV_ENTRY_INIT;
static iov_lock_attr lock = IOV_LOCK_ATTR_INIT, lock_out = IOV_LOCK_ATTR_INIT;
static iov_handle handle_out = IOV_HANDLE_INIT;
static iov_extent extent;

/* A misaligned place for results. */
#define ODD(type) ((type *)(void *)(buf + 1))
#define INVALID(call) FAILS(INVALID, call)

static void test_no_place_for_results(void) {
    INVALID(iov_uuid_new(NULL));
    INVALID(iov_uuid_parse("uuid:01234567-89ab-cdef-0123-456789abcdef", NULL));
    INVALID(iov_uuid_parse(NULL, &uuid));
    INVALID(iov_uuid_format(NULL, buf));
    INVALID(iov_uuid_format(&uuid, NULL));
    INVALID(iov_error_last(NULL));
    INVALID(iov_backend_import("abuse", NULL));
    INVALID(iov_backend_import(NULL, ODD(iov_backend_ops)));
    INVALID(iov_backend_import("abuse", ODD(iov_backend_ops)));
    INVALID(iov_open("mem:abuse", NULL, NULL));
    INVALID(iov_open("mem:abuse", NULL, ODD(iov_session *)));
    INVALID(iov_session_counters(s, NULL));
    INVALID(iov_session_counters(s, ODD(iov_counters)));
    INVALID(iov_poll(s, NULL, 1, &n_out, 0));
    INVALID(iov_poll(s, &completion, 1, NULL, 0));
    INVALID(iov_poll(s, &completion, 0, &n_out, 0));
    INVALID(iov_handle_export(NULL, buf, sizeof buf, &n_out));
    INVALID(iov_handle_import(s, NULL, 5, &handle_out));
    INVALID(iov_handle_import(s, buf, 5, NULL));
    INVALID(iov_controls_profile(NULL, "log"));
    INVALID(iov_controls_profile(&controls, NULL));
    INVALID(iov_controls_parse(NULL, ""));
    INVALID(iov_controls_parse(&controls, NULL));
    INVALID(iov_controls_format(NULL, buf, sizeof buf, &n_out));
    INVALID(iov_controls_format(&controls, NULL, 5, &n_out));
    INVALID(iov_controls_check(s, NULL, NULL, &controls));
    INVALID(iov_controls_check(s, NULL, &controls, NULL));
    INVALID(iov_controls_effective(c, NULL));
    INVALID(iov_metadata_next(md, NULL, &key_out, &value));
    INVALID(iov_metadata_next(md, &n_out, NULL, &value));
    INVALID(iov_metadata_next(md, &n_out, &key_out, NULL));
    INVALID(iov_metadata_find(md, "k", NULL));
    INVALID(iov_metadata_find(md, NULL, &value));
    INVALID(iov_metadata_get(NULL, c, NULL, &value));
    INVALID(iov_metadata_get(NULL, c, "k", NULL));
    INVALID(iov_metadata_put(NULL, c, NULL));
    INVALID(iov_metadata_remove(NULL, c, NULL));
    INVALID(iov_metadata_list(NULL, c, NULL));
    INVALID(iov_workspace_create(s, "x", NULL, NULL));
    INVALID(iov_workspace_create(s, NULL, NULL, &w_out));
    INVALID(iov_workspace_load(s, NULL, &w_out));
    INVALID(iov_workspace_load(s, "ws", NULL));
    INVALID(iov_workspace_search(s, NULL, NULL, NULL));
    INVALID(iov_workspace_delete(s, NULL));
    INVALID(iov_workspace_stat(NULL, w, NULL));
    INVALID(iov_workspace_set(NULL, w, NULL));
    INVALID(iov_workspace_rename(NULL, w, NULL));
    INVALID(iov_collection_create(NULL, w, NULL, "x", NULL, NULL, NULL));
    INVALID(iov_collection_lookup(NULL, w, NULL, "c", NULL, NULL));
    INVALID(iov_collection_lookup(NULL, w, NULL, NULL, NULL, &c_out));
    INVALID(iov_collection_search(NULL, w, NULL, NULL, NULL));
    INVALID(iov_collection_delete(NULL, w, NULL, NULL));
    INVALID(iov_collection_stat(NULL, c, NULL));
    INVALID(iov_collection_stat(NULL, c, ODD(iov_stat)));
    INVALID(iov_collection_layout(c, NULL));
    INVALID(iov_setattr(NULL, c, NULL));
    INVALID(iov_rename(NULL, w, NULL, NULL, NULL, "x", 0));
    INVALID(iov_rename(NULL, w, NULL, "x", NULL, NULL, 0));
    INVALID(iov_link(NULL, c, NULL, NULL));
    INVALID(iov_group_create(NULL, w, NULL, "x", NULL, NULL, NULL));
    INVALID(iov_group_lookup(NULL, w, NULL, NULL, NULL, NULL));
    INVALID(iov_group_list(NULL, w, NULL, NULL, NULL));
    INVALID(iov_cursor_next(cur, NULL, 1, &n_out, 0));
    INVALID(iov_cursor_next(cur, &entry, 1, NULL, 0));
    INVALID(iov_cursor_next(cur, &entry, 0, &n_out, 0));
    INVALID(iov_cursor_count(cur, NULL, 0));
    INVALID(iov_write(NULL, c, 0, NULL, 1));
    INVALID(iov_read(NULL, c, 0, NULL, 1, &n_out));
    INVALID(iov_read(NULL, c, 0, buf, 1, ODD(size_t)));
    INVALID(iov_writev(NULL, c, NULL, 1, &n_out));
    INVALID(iov_readv(NULL, c, NULL, 1, &n_out));
    FAILS(TOOBIG, iov_readv(NULL, c, (iov_chunk *)(void *)buf, SIZE_MAX, &n_out));
    INVALID(iov_append(NULL, c, NULL, 1, &u_out));
    INVALID(iov_write(NULL, c, UINT64_MAX, "x", 1));
    INVALID(iov_write(NULL, c, 0, buf, SIZE_MAX));
    INVALID(iov_read(NULL, c, 1, buf, SIZE_MAX / 2, &n_out));
    INVALID(iov_append(NULL, c, buf, SIZE_MAX, &u_out));
    INVALID(iov_punch(NULL, c, 1, UINT64_MAX));
    INVALID(iov_allocate(NULL, c, 1, UINT64_MAX, 0));
    INVALID(iov_extents(NULL, c, 0, 1, NULL, 1, &n_out));
    INVALID(iov_extents(NULL, c, 0, 1, &extent, 1, NULL));
    INVALID(iov_copy(NULL, c, UINT64_MAX, c, 0, 1, &u_out));
    INVALID(iov_lock(NULL, c, NULL));
    INVALID(iov_unlock(NULL, c, NULL));
    INVALID(iov_lock_query(NULL, c, NULL, &lock_out));
    INVALID(iov_lock_query(NULL, c, &lock, NULL));
    INVALID(iov_batch_create(s, NULL, NULL));
    INVALID(iov_batch_start(b, NULL));
    INVALID(iov_batch_status(b, 0, NULL));
    INVALID(iov_test(r, NULL));
    INVALID(iov_buffer_alloc(s, 1, NULL, NULL));
    INVALID(iov_view(c, 0, 1, &view_out, NULL, &lease_out));
    INVALID(iov_view(c, 0, 1, &view_out, &n_out, NULL));
}

/* Each struct with sizes that make no sense, and a size beyond what is known with something set there. */
static void wrong_sizes(uint32_t *size, size_t known, size_t room, int (*call)(void)) {
    static const uint32_t sizes[] = {0, 1, 4, 7, 4097, 0x7fffffff, 0xa5a5a5a5, UINT32_MAX};
    size_t i;
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *size = sizes[i];
        CHECK(call() == -IOV_EINVALID);
        expect_text(__FILE__, __LINE__, iov_error_detail(), "size");
    }
    if (room > 0) {
        *size = (uint32_t)(known + room);
        memset((char *)size + known, 0, room);
        ((char *)size)[known + room - 1] = 1;
        CHECK(call() == -IOV_EVERSION);
    }
    *size = (uint32_t)known;
}

static union {
    uint32_t size;
    iov_controls controls;
    iov_layout layout;
    iov_session_attr session;
    iov_workspace_attr workspace;
    iov_batch_attr batch;
    iov_search_attr search;
    iov_lock_attr lock;
    iov_buffer_attr buffer;
    iov_attr attr;
    iov_handle handle;
    iov_value value;
    iov_stat stat;
    char room[512];
} any;

static int with_controls(void) { return iov_controls_check(s, NULL, &any.controls, &controls); }
static int with_layout(void) { return iov_collection_set(NULL, c, NULL, &any.layout); }
static int with_session(void) { return iov_open("mem:abuse", &any.session, &s_out); }
static int with_workspace(void) { return iov_workspace_set(NULL, w, &any.workspace); }
static int with_batch(void) { return iov_batch_create(s, &any.batch, &b_out); }
static int with_search(void) { return iov_collection_search(NULL, w, NULL, &any.search, &cur_out); }
static int with_lock(void) { return iov_lock(NULL, c, &any.lock); }
static int with_buffer(void) { return iov_buffer_alloc(s, 1, &any.buffer, &p_out); }
static int with_attr(void) { return iov_setattr(NULL, c, &any.attr); }
static int with_handle(void) { return iov_handle_export(&any.handle, buf, sizeof buf, &n_out); }
static int into_stat(void) { return iov_collection_stat(NULL, c, &any.stat); }
static int into_value(void) { return iov_metadata_find(md, "k", &any.value); }
static int with_params(void) {
    iov_search_attr search = IOV_SEARCH_ATTR_INIT;
    search.params = &any.value;
    search.param_count = 1;
    return iov_collection_search(NULL, w, "k = ?", &search, &cur_out);
}

static void test_wrong_sizes(void) {
    memset(&any, 0, sizeof any);
    wrong_sizes(&any.size, sizeof any.controls, 8, with_controls);
    wrong_sizes(&any.size, sizeof any.layout, 8, with_layout);
    wrong_sizes(&any.size, sizeof any.session, 8, with_session);
    wrong_sizes(&any.size, sizeof any.workspace, 8, with_workspace);
    wrong_sizes(&any.size, sizeof any.batch, 8, with_batch);
    wrong_sizes(&any.size, sizeof any.search, 8, with_search);
    wrong_sizes(&any.size, sizeof any.lock, 8, with_lock);
    wrong_sizes(&any.size, sizeof any.buffer, 8, with_buffer);
    wrong_sizes(&any.size, sizeof any.attr, 8, with_attr);
    wrong_sizes(&any.size, sizeof any.handle, 8, with_handle);
    wrong_sizes(&any.size, sizeof any.value, 8, with_params);
    wrong_sizes(&any.size, sizeof any.stat, 0, into_stat);
    wrong_sizes(&any.size, sizeof any.value, 0, into_value);
}

static void test_unknown_values_and_reserved_fields(void) {
    iov_session_attr session = IOV_SESSION_ATTR_INIT;
    iov_workspace_attr workspace = IOV_WORKSPACE_ATTR_INIT;
    iov_batch_attr batch = IOV_BATCH_ATTR_INIT;
    iov_search_attr search = IOV_SEARCH_ATTR_INIT;
    iov_lock_attr wrong = IOV_LOCK_ATTR_INIT;
    iov_buffer_attr buffer = IOV_BUFFER_ATTR_INIT;
    iov_layout layout = IOV_LAYOUT_INIT;
    iov_handle handle = IOV_HANDLE_INIT;
    iov_attr set = IOV_ATTR_INIT;
    uint8_t *fields = &any.controls.consistency;
    int i;
    for (i = 0; i < 9; i++) { /* each control with a number that has no meaning */
        memset(&any, 0, sizeof any);
        any.size = sizeof any.controls;
        fields[i] = 99;
        INVALID(with_controls());
    }
    session.flags = 32;
    INVALID(iov_open("mem:abuse", &session, &s_out));
    session.flags = 0;
    session.deadline_ns = -5;
    INVALID(iov_open("mem:abuse", &session, &s_out));
    session.deadline_ns = 0;
    session.program = "\xff";
    INVALID(iov_open("mem:abuse", &session, &s_out));
    INVALID(iov_open("mem:\xff", NULL, &s_out));
    workspace.reserved0 = 1;
    INVALID(iov_workspace_create(s, "x", &workspace, &w_out));
    workspace.reserved0 = 0;
    workspace.index_count = 1;
    INVALID(iov_workspace_create(s, "x", &workspace, &w_out));
    workspace.index_count = SIZE_MAX;
    FAILS(TOOBIG, iov_workspace_create(s, "x", &workspace, &w_out));
    workspace.index_count = 0;
    workspace.expires_ns = -1;
    INVALID(iov_workspace_create(s, "x", &workspace, &w_out));
    batch.reserved0[0] = 1;
    INVALID(iov_batch_create(s, &batch, &b_out));
    search.flags = 4;
    INVALID(iov_collection_search(NULL, w, NULL, &search, &cur_out));
    search.flags = 0;
    search.key_count = 1;
    INVALID(iov_collection_search(NULL, w, NULL, &search, &cur_out));
    search.key_count = 0;
    search.param_count = 1;
    INVALID(iov_collection_search(NULL, w, "k = ?", &search, &cur_out));
    search.param_count = SIZE_MAX;
    FAILS(TOOBIG, iov_collection_search(NULL, w, "k = ?", &search, &cur_out));
    search.param_count = 0;
    search.order = "\xff";
    INVALID(iov_collection_search(NULL, w, NULL, &search, &cur_out));
    wrong.mode = 3;
    INVALID(iov_lock(NULL, c, &wrong));
    wrong.mode = IOV_LOCK_SHARED;
    wrong.flags = 2;
    INVALID(iov_lock(NULL, c, &wrong));
    wrong.flags = 0;
    wrong.reserved0 = 1;
    INVALID(iov_lock(NULL, c, &wrong));
    wrong.reserved0 = 0;
    wrong.lease_ns = -1;
    INVALID(iov_lock(NULL, c, &wrong));
    wrong.lease_ns = 0;
    wrong.range.offset = UINT64_MAX;
    wrong.range.len = 2;
    INVALID(iov_lock(NULL, c, &wrong));
    buffer.flags = 2;
    INVALID(iov_buffer_alloc(s, 1, &buffer, &p_out));
    buffer.flags = 0;
    buffer.reserved0 = 1;
    INVALID(iov_buffer_alloc(s, 1, &buffer, &p_out));
    layout.revision = 5;
    INVALID(iov_collection_set(NULL, c, NULL, &layout));
    layout.revision = 0;
    layout.policy = "\xff";
    INVALID(iov_collection_set(NULL, c, NULL, &layout));
    handle.kind = 5;
    INVALID(iov_handle_export(&handle, buf, sizeof buf, &n_out));
    set.reserved0 = 1;
    INVALID(iov_setattr(NULL, c, &set));
    INVALID(iov_allocate(NULL, c, 0, 1, 0x80000000u));
    INVALID(iov_rename(NULL, w, NULL, "a", NULL, "b", 0x80000000u));
    INVALID(iov_log_set(6, NULL, NULL));
    INVALID(iov_metadata_set_i64(md, "\xc3\x28", 1));
    INVALID(iov_metadata_get(NULL, c, "", &value));
    INVALID(iov_workspace_create(s, "a/b", NULL, &w_out));
    INVALID(iov_workspace_load(s, "uuid:zzz", &w_out));
}

int main(void) {
    s = open_store("mem:abuse");
    w = new_workspace(s, "ws");
    c = new_collection(w, "c", NULL);
    b = new_batch(s, 0);
    OK(iov_batch_start(b, &r));
    OK(iov_wait(r, -1));
    OK(iov_collection_search(NULL, w, NULL, NULL, &cur));
    md = iov_metadata_new();
    lock.mode = IOV_LOCK_SHARED;
    RUN(test_no_place_for_results);
    RUN(test_wrong_sizes);
    RUN(test_unknown_values_and_reserved_fields);
    OK(iov_collection_close(NULL, c));
    OK(iov_cursor_close(cur));
    OK(iov_request_free(r));
    OK(iov_batch_free(b));
    iov_metadata_free(md);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    return 0;
}
