/* SPDX-License-Identifier: Apache-2.0 */
/* Every function with every kind of wrong handle: NULL, stale, of another type, garbage. An error, never a crash. */
#include "test.h"

enum { SESSION, WORKSPACE, COLLECTION, BATCH, REQUEST, CURSOR, METADATA, KINDS };

/* Good handles of each kind, and closed ones. */
static void *good[KINDS], *stale[KINDS];
static iov_session *s;
static iov_workspace *w;
static iov_collection *c;
static iov_batch *b;
static iov_request *r;
static iov_cursor *cur;
static iov_metadata *md;

/* Places for results that should never come. */
static iov_workspace *w_out;
static iov_collection *c_out;
static iov_batch *b_out;
static iov_request *r_out;
static iov_cursor *cur_out;
static iov_metadata *md_out;
static iov_view_lease *lease_out;
static const void *view_out;
static void *p_out;
static size_t n_out;
static uint64_t u_out;
static int i_out;
static const char *key_out;
static char buf[256];
static iov_controls controls = IOV_CONTROLS_INIT;
static iov_status status = IOV_STATUS_INIT;
static iov_completion completion = IOV_COMPLETION_INIT;
static iov_stat stat_out = IOV_STAT_INIT;
static iov_attr attr = IOV_ATTR_INIT;
static iov_value value = IOV_VALUE_INIT;
static iov_entry entry = IOV_ENTRY_INIT;
static iov_lock_attr lock = IOV_LOCK_ATTR_INIT, lock_out = IOV_LOCK_ATTR_INIT;
static iov_layout layout_out = IOV_LAYOUT_INIT;
static iov_counters counters = IOV_COUNTERS_INIT;
static iov_handle handle_out = IOV_HANDLE_INIT;
static iov_workspace_attr w_attr = IOV_WORKSPACE_ATTR_INIT;
static iov_extent extent;

static int export_of(uint32_t kind, void *h) {
    iov_handle handle = IOV_HANDLE_INIT;
    handle.kind = kind;
    handle.session = (iov_session *)h;
    return iov_handle_export(&handle, buf, sizeof buf, &n_out);
}

static int search_in(void *h) {
    iov_search_attr search = IOV_SEARCH_ATTR_INIT;
    search.group = (iov_collection *)h;
    return iov_collection_search(NULL, w, NULL, &search, &cur_out);
}

static int create_with(void *h) {
    iov_workspace_attr with = IOV_WORKSPACE_ATTR_INIT;
    with.metadata = (iov_metadata *)h;
    return iov_workspace_create(s, "never made", &with, &w_out);
}

static int quiet(int code) {
    return code;
}

#define H(type) ((type *)h)
#define HS H(iov_session)
#define HW H(iov_workspace)
#define HC H(iov_collection)
#define HB H(iov_batch)
#define HR H(iov_request)
#define HCUR H(iov_cursor)
#define HMD H(iov_metadata)

/* Name, kind of the handle that varies, whether NULL is right there, and the call. */
#define CASES(X) \
    X(close, SESSION, 1, iov_close(HS)) \
    X(session_counters, SESSION, 0, iov_session_counters(HS, &counters)) \
    X(event_fd, SESSION, 0, iov_event_fd(HS)) \
    X(poll, SESSION, 0, iov_poll(HS, &completion, 1, &n_out, 0)) \
    X(export_session, SESSION, 0, export_of(IOV_KIND_SESSION, h)) \
    X(export_workspace, WORKSPACE, 0, export_of(IOV_KIND_WORKSPACE, h)) \
    X(export_collection, COLLECTION, 0, export_of(IOV_KIND_COLLECTION, h)) \
    X(import, SESSION, 0, iov_handle_import(HS, buf, sizeof buf, &handle_out)) \
    X(controls_check_s, SESSION, 0, iov_controls_check(HS, NULL, &controls, &controls)) \
    X(controls_check_w, WORKSPACE, 1, iov_controls_check(s, HW, &controls, &controls)) \
    X(controls_effective, COLLECTION, 0, iov_controls_effective(HC, &controls)) \
    X(set_str, METADATA, 0, iov_metadata_set_str(HMD, "k", "v")) \
    X(set_i64, METADATA, 0, iov_metadata_set_i64(HMD, "k", 1)) \
    X(set_f64, METADATA, 0, iov_metadata_set_f64(HMD, "k", 1)) \
    X(set_bool, METADATA, 0, iov_metadata_set_bool(HMD, "k", 1)) \
    X(set_bytes, METADATA, 0, iov_metadata_set_bytes(HMD, "k", "v", 1)) \
    X(set_time, METADATA, 0, iov_metadata_set_time(HMD, "k", 1)) \
    X(metadata_next, METADATA, 0, (n_out = 0, iov_metadata_next(HMD, &n_out, &key_out, &value))) \
    X(metadata_find, METADATA, 0, iov_metadata_find(HMD, "k", &value)) \
    X(metadata_get_b, BATCH, 1, iov_metadata_get(HB, c, "k", &value)) \
    X(metadata_get, COLLECTION, 0, iov_metadata_get(NULL, HC, "k", &value)) \
    X(metadata_put_b, BATCH, 1, iov_metadata_put(HB, c, md)) \
    X(metadata_put, COLLECTION, 0, iov_metadata_put(NULL, HC, md)) \
    X(metadata_put_md, METADATA, 0, iov_metadata_put(NULL, c, HMD)) \
    X(metadata_remove_b, BATCH, 1, iov_metadata_remove(HB, c, "none")) \
    X(metadata_remove, COLLECTION, 0, iov_metadata_remove(NULL, HC, "none")) \
    X(metadata_list_b, BATCH, 1, iov_metadata_list(HB, c, &md_out)) \
    X(metadata_list, COLLECTION, 0, iov_metadata_list(NULL, HC, &md_out)) \
    X(workspace_create, SESSION, 0, iov_workspace_create(HS, "never made", NULL, &w_out)) \
    X(workspace_create_md, METADATA, 1, create_with(h)) \
    X(workspace_load, SESSION, 0, iov_workspace_load(HS, "ws", &w_out)) \
    X(workspace_search, SESSION, 0, iov_workspace_search(HS, NULL, NULL, &cur_out)) \
    X(workspace_close, WORKSPACE, 1, iov_workspace_close(HW)) \
    X(workspace_delete, SESSION, 0, iov_workspace_delete(HS, "none")) \
    X(workspace_stat_b, BATCH, 1, iov_workspace_stat(HB, w, &stat_out)) \
    X(workspace_stat, WORKSPACE, 0, iov_workspace_stat(NULL, HW, &stat_out)) \
    X(workspace_set_b, BATCH, 1, iov_workspace_set(HB, w, &w_attr)) \
    X(workspace_set, WORKSPACE, 0, iov_workspace_set(NULL, HW, &w_attr)) \
    X(workspace_rename_b, BATCH, 1, iov_workspace_rename(HB, w, "ws")) \
    X(workspace_rename, WORKSPACE, 0, iov_workspace_rename(NULL, HW, "ws")) \
    X(workspace_commit_b, BATCH, 1, iov_workspace_commit(HB, w)) \
    X(workspace_commit, WORKSPACE, 0, iov_workspace_commit(NULL, HW)) \
    X(workspace_persist_b, BATCH, 1, iov_workspace_persist(HB, w)) \
    X(workspace_persist, WORKSPACE, 0, iov_workspace_persist(NULL, HW)) \
    X(create_b, BATCH, 1, iov_collection_create(HB, w, NULL, "c", NULL, NULL, &c_out)) \
    X(create_w, WORKSPACE, 0, iov_collection_create(NULL, HW, NULL, "c", NULL, NULL, &c_out)) \
    X(create_g, COLLECTION, 1, iov_collection_create(NULL, w, HC, "c", NULL, NULL, &c_out)) \
    X(create_md, METADATA, 1, iov_collection_create(NULL, w, NULL, "c", HMD, NULL, &c_out)) \
    X(lookup_b, BATCH, 1, iov_collection_lookup(HB, w, NULL, "none", NULL, &c_out)) \
    X(lookup_w, WORKSPACE, 0, iov_collection_lookup(NULL, HW, NULL, "none", NULL, &c_out)) \
    X(lookup_g, COLLECTION, 1, iov_collection_lookup(NULL, w, HC, "none", NULL, &c_out)) \
    X(search_b, BATCH, 1, iov_collection_search(HB, w, NULL, NULL, &cur_out)) \
    X(search_w, WORKSPACE, 0, iov_collection_search(NULL, HW, NULL, NULL, &cur_out)) \
    X(search_g, COLLECTION, 1, search_in(h)) \
    X(collection_close, COLLECTION, 1, iov_collection_close(NULL, HC)) \
    X(collection_close_b, BATCH, 1, quiet(h == NULL ? 0 : iov_collection_close(HB, c))) \
    X(delete_b, BATCH, 1, iov_collection_delete(HB, w, NULL, "none")) \
    X(delete_w, WORKSPACE, 0, iov_collection_delete(NULL, HW, NULL, "none")) \
    X(delete_g, COLLECTION, 1, iov_collection_delete(NULL, w, HC, "none")) \
    X(stat_b, BATCH, 1, iov_collection_stat(HB, c, &stat_out)) \
    X(stat, COLLECTION, 0, iov_collection_stat(NULL, HC, &stat_out)) \
    X(set_b, BATCH, 1, iov_collection_set(HB, c, NULL, NULL)) \
    X(set, COLLECTION, 0, iov_collection_set(NULL, HC, NULL, NULL)) \
    X(layout, COLLECTION, 0, iov_collection_layout(HC, &layout_out)) \
    X(setattr_b, BATCH, 1, iov_setattr(HB, c, &attr)) \
    X(setattr, COLLECTION, 0, iov_setattr(NULL, HC, &attr)) \
    X(rename_b, BATCH, 1, iov_rename(HB, w, NULL, "none", NULL, "n", 0)) \
    X(rename_w, WORKSPACE, 0, iov_rename(NULL, HW, NULL, "none", NULL, "n", 0)) \
    X(rename_from, COLLECTION, 1, iov_rename(NULL, w, HC, "none", NULL, "n", 0)) \
    X(rename_to, COLLECTION, 1, iov_rename(NULL, w, NULL, "none", HC, "n", 0)) \
    X(link_b, BATCH, 1, iov_link(HB, c, NULL, "c")) \
    X(link, COLLECTION, 0, iov_link(NULL, HC, NULL, "c")) \
    X(link_g, COLLECTION, 1, iov_link(NULL, c, HC, "c")) \
    X(group_create_b, BATCH, 1, iov_group_create(HB, w, NULL, "g", NULL, NULL, &c_out)) \
    X(group_create_w, WORKSPACE, 0, iov_group_create(NULL, HW, NULL, "g", NULL, NULL, &c_out)) \
    X(group_create_g, COLLECTION, 1, iov_group_create(NULL, w, HC, "g", NULL, NULL, &c_out)) \
    X(group_create_md, METADATA, 1, iov_group_create(NULL, w, NULL, "g", HMD, NULL, &c_out)) \
    X(group_lookup_b, BATCH, 1, iov_group_lookup(HB, w, NULL, "none", NULL, &c_out)) \
    X(group_lookup_w, WORKSPACE, 0, iov_group_lookup(NULL, HW, NULL, "none", NULL, &c_out)) \
    X(group_lookup_g, COLLECTION, 1, iov_group_lookup(NULL, w, HC, "none", NULL, &c_out)) \
    X(group_list_b, BATCH, 1, iov_group_list(HB, w, NULL, NULL, &cur_out)) \
    X(group_list_w, WORKSPACE, 0, iov_group_list(NULL, HW, NULL, NULL, &cur_out)) \
    X(group_list_g, COLLECTION, 1, iov_group_list(NULL, w, HC, NULL, &cur_out)) \
    X(cursor_next, CURSOR, 0, iov_cursor_next(HCUR, &entry, 1, &n_out, 0)) \
    X(cursor_count, CURSOR, 0, iov_cursor_count(HCUR, &u_out, 0)) \
    X(cursor_close, CURSOR, 1, iov_cursor_close(HCUR)) \
    X(write_b, BATCH, 1, iov_write(HB, c, 0, "x", 1)) \
    X(write, COLLECTION, 0, iov_write(NULL, HC, 0, "x", 1)) \
    X(read_b, BATCH, 1, iov_read(HB, c, 0, buf, 1, &n_out)) \
    X(read, COLLECTION, 0, iov_read(NULL, HC, 0, buf, 1, &n_out)) \
    X(writev_b, BATCH, 1, iov_writev(HB, c, NULL, 0, &n_out)) \
    X(writev, COLLECTION, 0, iov_writev(NULL, HC, NULL, 0, &n_out)) \
    X(readv_b, BATCH, 1, iov_readv(HB, c, NULL, 0, &n_out)) \
    X(readv, COLLECTION, 0, iov_readv(NULL, HC, NULL, 0, &n_out)) \
    X(append_b, BATCH, 1, iov_append(HB, c, "x", 1, &u_out)) \
    X(append, COLLECTION, 0, iov_append(NULL, HC, "x", 1, &u_out)) \
    X(truncate_b, BATCH, 1, iov_truncate(HB, c, 0)) \
    X(truncate, COLLECTION, 0, iov_truncate(NULL, HC, 0)) \
    X(punch_b, BATCH, 1, iov_punch(HB, c, 0, 1)) \
    X(punch, COLLECTION, 0, iov_punch(NULL, HC, 0, 1)) \
    X(allocate_b, BATCH, 1, iov_allocate(HB, c, 0, 1, 0)) \
    X(allocate, COLLECTION, 0, iov_allocate(NULL, HC, 0, 1, 0)) \
    X(extents_b, BATCH, 1, iov_extents(HB, c, 0, 1, &extent, 1, &n_out)) \
    X(extents, COLLECTION, 0, iov_extents(NULL, HC, 0, 1, &extent, 1, &n_out)) \
    X(copy_b, BATCH, 1, iov_copy(HB, c, 0, c, 100, 1, &u_out)) \
    X(copy_src, COLLECTION, 0, iov_copy(NULL, HC, 0, c, 100, 1, &u_out)) \
    X(copy_dst, COLLECTION, 0, iov_copy(NULL, c, 0, HC, 100, 1, &u_out)) \
    X(commit_b, BATCH, 1, iov_commit(HB, c)) \
    X(commit, COLLECTION, 0, iov_commit(NULL, HC)) \
    X(persist_b, BATCH, 1, iov_persist(HB, c)) \
    X(persist, COLLECTION, 0, iov_persist(NULL, HC)) \
    X(seal_b, BATCH, 1, quiet(h == NULL ? 0 : iov_seal(HB, c))) \
    X(seal, COLLECTION, 0, iov_seal(NULL, HC)) \
    X(lock_b, BATCH, 1, iov_lock(HB, c, &lock)) \
    X(lock, COLLECTION, 0, iov_lock(NULL, HC, &lock)) \
    X(unlock_b, BATCH, 1, iov_unlock(HB, c, &lock)) \
    X(unlock, COLLECTION, 0, iov_unlock(NULL, HC, &lock)) \
    X(lock_query_b, BATCH, 1, iov_lock_query(HB, c, &lock, &lock_out)) \
    X(lock_query, COLLECTION, 0, iov_lock_query(NULL, HC, &lock, &lock_out)) \
    X(batch_create, SESSION, 0, iov_batch_create(HS, NULL, &b_out)) \
    X(batch_barrier, BATCH, 0, iov_batch_barrier(HB)) \
    X(explain, BATCH, 0, iov_explain(HB, buf, sizeof buf, &n_out)) \
    X(batch_start, BATCH, 0, iov_batch_start(HB, &r_out)) \
    X(batch_status, BATCH, 0, iov_batch_status(HB, 0, &status)) \
    X(batch_reset, BATCH, 0, iov_batch_reset(HB)) \
    X(batch_free, BATCH, 1, iov_batch_free(HB)) \
    X(wait, REQUEST, 0, iov_wait(HR, 0)) \
    X(test, REQUEST, 0, iov_test(HR, &i_out)) \
    X(cancel, REQUEST, 0, iov_cancel(HR)) \
    X(request_free, REQUEST, 1, iov_request_free(HR)) \
    X(buffer_alloc, SESSION, 0, iov_buffer_alloc(HS, 1, NULL, &p_out)) \
    X(buffer_free, SESSION, 0, iov_buffer_free(HS, buf)) \
    X(buffer_register, SESSION, 0, iov_buffer_register(HS, buf, 1, NULL)) \
    X(buffer_unregister, SESSION, 0, iov_buffer_unregister(HS, buf)) \
    X(view, COLLECTION, 0, iov_view(HC, 0, 1, &view_out, &n_out, &lease_out))

#define DEFINE(name, kind, null_ok, call) \
    static int call_##name(void *h) { return call; }
CASES(DEFINE)

#define ROW(name, kind, null_ok, call) {#name, kind, null_ok, call_##name},
static const struct {
    const char *name;
    int kind, null_ok;
    int (*call)(void *);
} cases[] = {CASES(ROW)};

static void fixtures(void) {
    iov_session *s2 = open_store("mem:abuse");
    iov_workspace *w2 = new_workspace(s2, "stale");
    iov_collection *c2 = new_collection(w2, "stale", NULL);
    iov_batch *b2 = new_batch(s2, 0);
    iov_request *r2 = NULL;
    iov_cursor *cur2 = NULL;
    iov_metadata *md2 = iov_metadata_new();
    OK(iov_batch_start(b2, &r2));
    OK(iov_wait(r2, -1));
    OK(iov_collection_search(NULL, w2, NULL, NULL, &cur2));
    stale[SESSION] = s2;
    stale[WORKSPACE] = w2;
    stale[COLLECTION] = c2;
    stale[BATCH] = b2;
    stale[REQUEST] = r2;
    stale[CURSOR] = cur2;
    stale[METADATA] = md2;
    OK(iov_request_free(r2));
    OK(iov_batch_free(b2));
    OK(iov_cursor_close(cur2));
    OK(iov_collection_close(NULL, c2));
    OK(iov_workspace_close(w2));
    OK(iov_close(s2));
    iov_metadata_free(md2);

    s = open_store("mem:abuse");
    w = new_workspace(s, "ws");
    c = new_collection(w, "c", NULL);
    b = new_batch(s, 0);
    OK(iov_batch_start(b, &r));
    OK(iov_wait(r, -1));
    OK(iov_collection_search(NULL, w, NULL, NULL, &cur));
    md = iov_metadata_new();
    good[SESSION] = s;
    good[WORKSPACE] = w;
    good[COLLECTION] = c;
    good[BATCH] = b;
    good[REQUEST] = r;
    good[CURSOR] = cur;
    good[METADATA] = md;
    lock.mode = IOV_LOCK_SHARED;
    lock.flags = IOV_LOCK_TRY;
}

static void test_wrong_handles(void) {
    uint64_t local[4] = {0, 0, 0, 0};
    void *garbage[] = {(void *)1, (void *)8, (void *)(uintptr_t)0xdeadbeef, local, (void *)&cases, (void *)buf,
                       (void *)UINTPTR_MAX, (void *)(UINTPTR_MAX >> 4), (void *)((uintptr_t)1 << 60),
                       (void *)((uintptr_t)15 << 60), NULL, NULL, NULL};
    size_t i, j, calls = 0, last = sizeof garbage / sizeof *garbage;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *mine = good[cases[i].kind];
        /* Bits next to a good handle: another slot, another generation. */
        garbage[last - 3] = (void *)((uintptr_t)mine ^ ((uintptr_t)1 << 33));
        garbage[last - 2] = (void *)((uintptr_t)mine + 0xffff);
        garbage[last - 1] = (void *)((uintptr_t)mine | 0xffffffffu);
        for (j = 0; j < last; j++) {
            if (cases[i].call(garbage[j]) != -IOV_EINVALID) {
                fprintf(stderr, "%s with %p\n", cases[i].name, garbage[j]);
                CHECK(!"garbage is recognised");
            }
            calls++;
        }
        for (j = 0; j < KINDS; j++) {
            if (cases[i].call(stale[j]) != -IOV_EINVALID) {
                fprintf(stderr, "%s with a stale handle of kind %d\n", cases[i].name, (int)j);
                CHECK(!"a stale handle is recognised");
            }
            if ((int)j != cases[i].kind && cases[i].call(good[j]) != -IOV_EINVALID) {
                fprintf(stderr, "%s with a handle of kind %d\n", cases[i].name, (int)j);
                CHECK(!"a handle of another kind is recognised");
            }
            calls += 2;
        }
        if (!cases[i].null_ok) {
            if (cases[i].call(NULL) != -IOV_EINVALID) {
                fprintf(stderr, "%s with NULL\n", cases[i].name);
                CHECK(!"NULL is recognised");
            }
            expect_text(__FILE__, __LINE__, iov_error_detail(), "NULL");
            calls++;
        }
    }
    printf("    > %d functions and parameters, %d calls\n", (int)(sizeof cases / sizeof *cases), (int)calls);
}

static void test_functions_that_cannot_fail(void) {
    size_t j;
    for (j = 0; j < KINDS; j++) {
        CHECK(iov_metadata_count((iov_metadata *)stale[j]) == 0);
        CHECK(iov_batch_count((iov_batch *)stale[j]) == 0);
        iov_metadata_free((iov_metadata *)stale[j]);
        iov_view_release((iov_view_lease *)stale[j]);
        if (j != METADATA) {
            iov_metadata_free((iov_metadata *)good[j]);
        }
        iov_view_release((iov_view_lease *)good[j]);
    }
    iov_view_release((iov_view_lease *)(uintptr_t)0x1234);
    iov_metadata_free((iov_metadata *)(uintptr_t)0x1234);
    CHECK(iov_strerror(123456) != NULL);
    write_text(c, 0, "everything is still there");
    OK(iov_metadata_set_i64(md, "k", 1));
}

int main(void) {
    fixtures();
    RUN(test_wrong_handles);
    RUN(test_functions_that_cannot_fail);
    OK(iov_collection_close(NULL, c));
    OK(iov_cursor_close(cur));
    OK(iov_request_free(r));
    OK(iov_batch_free(b));
    iov_metadata_free(md);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    return 0;
}
