/* SPDX-License-Identifier: Apache-2.0 */
/* The nine rules at the head of ioverbs.h, and the ways of structs; rule 7 has fork.c. */
#include "test.h"

static iov_session *s;
static iov_workspace *w;

static void test_rule_1_copies_and_loans(void) {
    char name[16] = "mine", text[16] = "unique = 7", predicate_key[8] = "unique";
    iov_controls controls = IOV_CONTROLS_INIT, granted = IOV_CONTROLS_INIT;
    iov_metadata *md = iov_metadata_new();
    iov_batch *b = new_batch(s, 0);
    iov_collection *c = NULL;
    iov_cursor *cur = NULL;
    iov_chunk chunk;
    iov_entry e[2];
    size_t n = 0, done = 0;
    char bytes[4] = "abc";
    controls.consistency = IOV_CONSISTENCY_COMMIT;
    OK(iov_metadata_set_i64(md, predicate_key, 7));
    OK(iov_collection_create(b, w, NULL, name, md, &controls, &c));
    chunk.offset = 0;
    chunk.buf = bytes;
    chunk.len = 3;
    OK(iov_writev(b, c, &chunk, 1, &done));
    OK(iov_collection_search(b, w, text, NULL, &cur));
    /* Names, texts, metadata, controls and arrays of chunks are copied by the call; data buffers are lent. */
    memset(name, 'x', sizeof name - 1);
    memset(text, '?', sizeof text - 1);
    memset(&controls, 0xff, sizeof controls);
    memset(&chunk, 0xff, sizeof chunk);
    iov_metadata_free(md);
    memcpy(bytes, "ABC", 3);
    CHECK(done == 0);
    OK(finish(b));
    CHECK(done == 3);
    OK(iov_batch_free(b));
    expect_bytes(c, 0, "ABC");
    OK(iov_controls_effective(c, &granted));
    CHECK(granted.consistency == IOV_CONSISTENCY_COMMIT);
    e[0].size = sizeof e[0];
    OK(iov_cursor_next(cur, e, 2, &n, -1));
    CHECK(n == 1 && strcmp(e[0].name, "mine") == 0);
    OK(iov_cursor_close(cur));
    OK(iov_collection_close(NULL, c));
}

static void test_rule_1_nothing_is_written_before_it_is_told(void) {
    iov_batch_attr attr = IOV_BATCH_ATTR_INIT;
    iov_batch *b = NULL;
    iov_collection *c = new_collection(w, "told", NULL);
    iov_request *r = NULL;
    iov_stat stat = IOV_STAT_INIT;
    uint64_t offset = 77;
    size_t got = 77;
    char buf[4];
    int i;
    attr.progress = IOV_PROGRESS_BACKGROUND;
    OK(iov_batch_create(s, &attr, &b));
    OK(iov_append(b, c, "abc", 3, &offset));
    OK(iov_read(b, c, 0, buf, 4, &got));
    OK(iov_collection_stat(b, c, &stat));
    OK(iov_batch_start(b, &r));
    for (i = 0; i < 1000 && size_of(c) == 0; i++) {
    }
    CHECK(offset == 77 && got == 77 && stat.bytes == 0);
    OK(iov_wait(r, -1));
    CHECK(offset == 0 && got == 3 && stat.bytes == 3);
    got = 78;
    OK(iov_wait(r, -1));
    CHECK(got == 78); /* once */
    OK(iov_request_free(r));

    OK(iov_batch_reset(b)); /* freed without having been told: the out-arguments stay untouched */
    OK(iov_append(b, c, "abc", 3, &offset));
    OK(iov_batch_start(b, &r));
    while (iov_request_free(r) == -IOV_EBUSY) {
    }
    OK(iov_batch_reset(b));
    CHECK(offset == 0);
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
}

static void test_rule_2_failed_creates_leave_out_alone(void) {
    iov_collection *c = new_collection(w, "there", NULL), *d = c, *e = NULL;
    iov_batch *b = new_batch(s, 0);
    iov_stat stat = IOV_STAT_INIT;
    FAILS(EXISTS, iov_collection_create(NULL, w, NULL, "there", NULL, NULL, &d));
    CHECK(d == c);
    OK(iov_collection_create(b, w, NULL, "there", NULL, NULL, &e));
    CHECK(e != NULL && e != c);
    OK(iov_collection_stat(b, e, &stat));
    OK(iov_collection_close(b, e));
    FAILS(PARTIAL, finish(b));
    CHECK(status_of(b, 0).code == -IOV_EEXISTS && status_of(b, 1).code == -IOV_EEXISTS);
    CHECK(stat.kind == 0);
    FAILS(INVALID, iov_collection_close(NULL, e)); /* the batch has closed it */
    OK(iov_batch_reset(b));
    OK(iov_collection_create(b, w, NULL, "pending", NULL, NULL, &e));
    OK(iov_collection_close(NULL, e)); /* closing what is pending ends the handle, not the operation */
    OK(finish(b));
    OK(iov_collection_close(NULL, look_up(w, "pending")));
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
}

static void test_rule_3_null_is_fine(void) {
    OK(iov_close(NULL));
    OK(iov_workspace_close(NULL));
    OK(iov_collection_close(NULL, NULL));
    OK(iov_cursor_close(NULL));
    OK(iov_batch_free(NULL));
    OK(iov_request_free(NULL));
    OK(iov_buffer_free(s, NULL));
    iov_metadata_free(NULL);
    iov_view_release(NULL);
}

static void test_rule_5_closed_handles_live_on(void) {
    iov_session *t = open_store("mem:rules");
    iov_workspace *v = NULL;
    iov_collection *c, *d = NULL;
    iov_cursor *cur = NULL;
    iov_batch *b = NULL;
    iov_request *r = NULL;
    iov_entry e[2];
    iov_value value = IOV_VALUE_INIT;
    iov_stat stat = IOV_STAT_INIT;
    size_t n = 0, all = 0;
    int i;
    OK(iov_workspace_load(t, "ws", &v));
    for (i = 0; i < 300; i++) { /* more than one page of results */
        char name[16];
        snprintf(name, sizeof name, "page%d", i);
        OK(iov_collection_close(NULL, new_collection(v, name, NULL)));
    }
    c = new_collection(v, "lives on", NULL);
    OK(iov_collection_search(NULL, v, "iov.name ~ \"page*\"", NULL, &cur));
    b = new_batch(t, 0);
    OK(iov_append(b, c, "!", 1, NULL));
    OK(iov_close(t));
    FAILS(INVALID, iov_workspace_load(t, "ws", &v));
    OK(iov_workspace_stat(NULL, v, &stat));
    OK(iov_collection_create(NULL, v, NULL, "made later", NULL, NULL, &d));
    OK(iov_collection_close(NULL, d));
    OK(iov_workspace_close(v));
    FAILS(INVALID, iov_workspace_stat(NULL, v, &stat));
    write_text(c, 0, "lives on");
    expect_bytes(c, 0, "lives on");
    OK(iov_metadata_get(NULL, c, "iov.name", &value));
    OK(iov_batch_start(b, &r));
    OK(iov_wait(r, -1));
    OK(iov_request_free(r));
    OK(iov_batch_free(b));
    CHECK(size_of(c) == 9);
    for (n = 1; n > 0; all += n) {
        e[0].size = sizeof e[0];
        OK(iov_cursor_next(cur, e, 2, &n, -1));
    }
    CHECK(all == 300);
    OK(iov_cursor_close(cur));
    OK(iov_collection_close(NULL, c));
}

static void test_rule_8_names_and_uuids(void) {
    iov_collection *c = new_collection(w, "01234567-89ab-cdef-0123-456789abcdef", NULL), *d = NULL;
    char longest[257];
    OK(iov_collection_close(NULL, c));
    OK(iov_collection_close(NULL, look_up(w, "01234567-89ab-cdef-0123-456789abcdef")));
    FAILS(NOTFOUND, iov_collection_lookup(NULL, w, NULL, "uuid:01234567-89ab-cdef-0123-456789abcdef", NULL, &d));
    FAILS(INVALID, iov_collection_lookup(NULL, w, NULL, "uuid:something", NULL, &d));
    FAILS(INVALID, iov_collection_create(NULL, w, NULL, "uuid:01234567-89ab-cdef-0123-456789abcdef", NULL, NULL, &d));
    memset(longest, 'n', 256);
    longest[256] = 0;
    FAILS(INVALID, iov_collection_create(NULL, w, NULL, longest, NULL, NULL, &d));
    longest[255] = 0;
    OK(iov_collection_close(NULL, new_collection(w, longest, NULL)));
}

static void test_rule_9_results_of_blocking_calls(void) {
    iov_collection *c = NULL;
    iov_metadata *md = iov_metadata_new();
    iov_value v = IOV_VALUE_INIT;
    iov_layout a = IOV_LAYOUT_INIT, b = IOV_LAYOUT_INIT;
    OK(iov_metadata_set_str(md, "k", "a value"));
    OK(iov_collection_create(NULL, w, NULL, "rule 9", md, NULL, &c));
    OK(iov_metadata_get(NULL, c, "k", &v));
    write_text(c, 0, "calls without such results do not matter");
    CHECK(iov_metadata_remove(NULL, c, "nothing") == -IOV_ENOTFOUND);
    CHECK(strcmp(v.str, "a value") == 0 && v.len == 7);
    OK(iov_collection_layout(c, &a));
    OK(iov_collection_layout(c, &b));
    CHECK(a.backend == b.backend && a.policy == b.policy);
    iov_metadata_free(md);
    OK(iov_collection_close(NULL, c));
}

static void test_struct_sizes(void) {
    struct {
        iov_controls known;
        uint64_t later;
    } newer;
    iov_controls older = IOV_CONTROLS_INIT, granted = IOV_CONTROLS_INIT;
    unsigned char stat[200];
    uint32_t size;
    iov_collection *c = NULL;

    memset(&newer, 0, sizeof newer); /* a newer program that uses no new field */
    newer.known.size = sizeof newer;
    OK(iov_collection_create(NULL, w, NULL, "newer", NULL, &newer.known, &c));
    newer.later = 1; /* and one that does */
    FAILS(VERSION, iov_collection_create(NULL, w, NULL, "newest", NULL, &newer.known, &c));
    DETAIL("iov_controls");

    older.size = 16; /* an older program: fields that its struct does not have are zero */
    older.consistency = IOV_CONSISTENCY_COMMIT;
    older.eventual_ns = 5; /* not part of it */
    OK(iov_controls_check(s, NULL, &older, &granted));
    CHECK(granted.consistency == IOV_CONSISTENCY_COMMIT && granted.eventual_ns == 0);
    older.size = 12;
    FAILS(INVALID, iov_controls_check(s, NULL, &older, &granted));
    older.size = 0;
    FAILS(INVALID, iov_controls_check(s, NULL, &older, &granted));
    older.size = 0xa5a5a5a5;
    FAILS(INVALID, iov_controls_check(s, NULL, &older, &granted));
    older.size = 16;
    older.reserved0[1] = 1;
    FAILS(INVALID, iov_controls_check(s, NULL, &older, &granted));
    older.reserved0[1] = 0;
    FAILS(VERSION, iov_controls_parse(&older, "eventual=5s")); /* it has no room for what this sets */
    OK(iov_controls_parse(&older, "consistency=session"));
    CHECK(older.consistency == IOV_CONSISTENCY_SESSION && older.size == 16);

    memset(stat, 0xa5, sizeof stat); /* results fill `size` bytes at most */
    size = 32;
    memcpy(stat, &size, sizeof size);
    OK(iov_collection_stat(NULL, c, (iov_stat *)(void *)stat));
    CHECK(stat[4] == IOV_KIND_COLLECTION && stat[31] == 0 && stat[32] == 0xa5);
    size = 160; /* what the library does not know becomes zero */
    memcpy(stat, &size, sizeof size);
    OK(iov_collection_stat(NULL, c, (iov_stat *)(void *)stat));
    CHECK(stat[136] == 0 && stat[159] == 0 && stat[160] == 0xa5);
    size = 8;
    memcpy(stat, &size, sizeof size);
    FAILS(INVALID, iov_collection_stat(NULL, c, (iov_stat *)(void *)stat));
    OK(iov_collection_close(NULL, c));
}

int main(void) {
    s = open_store("mem:rules");
    w = new_workspace(s, "ws");
    RUN(test_rule_1_copies_and_loans);
    RUN(test_rule_1_nothing_is_written_before_it_is_told);
    RUN(test_rule_2_failed_creates_leave_out_alone);
    RUN(test_rule_3_null_is_fine);
    RUN(test_rule_5_closed_handles_live_on);
    RUN(test_rule_8_names_and_uuids);
    RUN(test_rule_9_results_of_blocking_calls);
    RUN(test_struct_sizes);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    return 0;
}
