/* SPDX-License-Identifier: Apache-2.0 */
/* Batches and requests: error policies, barriers, pending handles, statuses, explanations. */
#include "test.h"

static iov_session *s;
static iov_workspace *w;

static void test_b1_continue(void) {
    iov_batch *b = new_batch(s, IOV_ON_ERROR_CONTINUE);
    iov_collection *c = new_collection(w, "b1", NULL);
    iov_status status;
    size_t got = 77, untouched = 77;
    char buf[8] = "before", other[8] = "before";
    write_text(c, 0, "abc");
    OK(iov_read(b, c, 0, buf, 3, &got));
    OK(iov_collection_delete(b, w, NULL, "no such name"));
    OK(iov_read(b, c, 100, other, 3, &untouched));
    OK(iov_append(b, c, "def", 3, NULL));
    CHECK(iov_batch_count(b) == 4);
    CHECK(got == 77 && memcmp(buf, "before", 6) == 0); /* appending does nothing */
    FAILS(PARTIAL, finish(b));
    DETAIL("1 of 4");
    CHECK(got == 3 && memcmp(buf, "abc", 3) == 0 && untouched == 0);
    status = status_of(b, 0);
    CHECK(status.code == 0 && status.state == IOV_OP_OK && status.outcome == IOV_OUTCOME_APPLIED && status.bytes == 3);
    CHECK(strcmp(status.detail, "") == 0 && strcmp(status.clause, "") == 0);
    status = status_of(b, 1);
    CHECK(status.code == -IOV_ENOTFOUND && status.state == IOV_OP_FAILED);
    CHECK(status.outcome == IOV_OUTCOME_NOT_APPLIED && strstr(status.detail, "no such name") != NULL);
    {
        iov_status again = status_of(b, 1);
        CHECK(again.detail == status.detail); /* the strings are the batch's */
    }
    CHECK(status_of(b, 3).state == IOV_OP_OK && size_of(c) == 6);
    {
        iov_status none = IOV_STATUS_INIT;
        FAILS(INVALID, iov_batch_status(b, 4, &none));
    }
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
}

static void test_b2_stop(void) {
    iov_batch *b = new_batch(s, IOV_ON_ERROR_STOP);
    iov_collection *c = new_collection(w, "b2", NULL), *made = NULL;
    OK(iov_append(b, c, "1", 1, NULL));
    OK(iov_append(b, c, "2", 1, NULL));
    OK(iov_collection_delete(b, w, NULL, "nothing"));
    OK(iov_append(b, c, "3", 1, NULL));
    OK(iov_collection_create(b, w, NULL, "never made", NULL, NULL, &made));
    FAILS(PARTIAL, finish(b));
    CHECK(status_of(b, 0).state == IOV_OP_OK && status_of(b, 1).state == IOV_OP_OK);
    CHECK(status_of(b, 2).state == IOV_OP_FAILED);
    CHECK(status_of(b, 3).state == IOV_OP_SKIPPED && status_of(b, 4).state == IOV_OP_SKIPPED);
    CHECK(status_of(b, 3).outcome == IOV_OUTCOME_NOT_APPLIED && strcmp(status_of(b, 3).clause, "B2") == 0);
    expect_bytes(c, 0, "12");
    CHECK(size_of(c) == 2);
    CHECK(iov_write(NULL, made, 0, "x", 1) < 0);
    OK(iov_collection_close(NULL, made));
    FAILS(NOTFOUND, iov_collection_lookup(NULL, w, NULL, "never made", NULL, &made));

    OK(iov_batch_reset(b)); /* with barriers: groups */
    OK(iov_collection_delete(b, w, NULL, "nothing"));
    OK(iov_append(b, c, "3", 1, NULL));
    OK(iov_batch_barrier(b));
    OK(iov_batch_barrier(b)); /* an empty group is none */
    OK(iov_append(b, c, "4", 1, NULL));
    CHECK(iov_batch_count(b) == 3);
    FAILS(PARTIAL, finish(b));
    CHECK(status_of(b, 0).state == IOV_OP_FAILED && status_of(b, 1).state == IOV_OP_OK);
    CHECK(status_of(b, 2).state == IOV_OP_SKIPPED);
    CHECK(size_of(c) == 3);
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
}

static void test_b3_rollback(void) {
    iov_batch *b = new_batch(s, IOV_ON_ERROR_ROLLBACK);
    iov_collection *c = new_collection(w, "b3", NULL), *d = new_collection(w, "b3 too", NULL), *made = NULL;
    iov_metadata *md = iov_metadata_new();
    iov_value v = IOV_VALUE_INIT;
    uint64_t offset = 77;
    size_t got = 0;
    char buf[8];
    write_text(c, 0, "old");
    OK(iov_metadata_set_i64(md, "k", 1));
    OK(iov_write(b, c, 0, "new", 3));
    OK(iov_read(b, c, 0, buf, 3, &got)); /* T20: sees what the batch wrote */
    OK(iov_append(b, d, "record", 6, &offset));
    OK(iov_metadata_put(b, c, md));
    OK(iov_collection_create(b, w, NULL, "b3 made", NULL, NULL, &made));
    OK(iov_write(b, made, 0, "born", 4));
    OK(iov_collection_delete(b, w, NULL, "no such name"));
    FAILS(PARTIAL, finish(b));
    CHECK(status_of(b, 6).state == IOV_OP_FAILED && status_of(b, 6).code == -IOV_ENOTFOUND);
    CHECK(status_of(b, 0).state == IOV_OP_UNDONE && status_of(b, 4).state == IOV_OP_UNDONE);
    CHECK(strcmp(status_of(b, 0).clause, "B3") == 0 && offset == 77 && got == 0);
    expect_bytes(c, 0, "old");
    CHECK(size_of(d) == 0);
    FAILS(NOTFOUND, iov_metadata_get(NULL, c, "k", &v));
    OK(iov_collection_close(NULL, made));
    FAILS(NOTFOUND, iov_collection_lookup(NULL, w, NULL, "b3 made", NULL, &made));

    OK(iov_batch_reset(b));
    OK(iov_write(b, c, 0, "new", 3));
    OK(iov_read(b, c, 0, buf, 3, &got));
    OK(iov_append(b, d, "record", 6, &offset));
    OK(iov_metadata_put(b, c, md));
    OK(iov_collection_create(b, w, NULL, "b3 made", NULL, NULL, &made));
    OK(iov_write(b, made, 0, "born", 4));
    OK(finish(b));
    CHECK(got == 3 && memcmp(buf, "new", 3) == 0 && offset == 0);
    expect_bytes(c, 0, "new");
    expect_bytes(made, 0, "born");
    OK(iov_metadata_get(NULL, c, "k", &v));
    OK(iov_batch_free(b));
    iov_metadata_free(md);
    OK(iov_collection_close(NULL, made));
    OK(iov_collection_close(NULL, c));
    OK(iov_collection_close(NULL, d));
}

static void test_b3_a_retry_applies_once(void) {
    iov_batch_attr attr = IOV_BATCH_ATTR_INIT;
    iov_batch *b = NULL, *retry = NULL;
    iov_collection *c = new_collection(w, "retry", NULL);
    attr.on_error = IOV_ON_ERROR_ROLLBACK;
    OK(iov_uuid_new(&attr.id));
    OK(iov_batch_create(s, &attr, &b));
    OK(iov_append(b, c, "once", 4, NULL));
    OK(finish(b));
    OK(iov_batch_create(s, &attr, &retry));
    OK(iov_append(retry, c, "once", 4, NULL));
    OK(finish(retry));
    CHECK(size_of(c) == 4);
    OK(iov_batch_reset(b)); /* the id is used up */
    OK(iov_append(b, c, "x", 1, NULL));
    {
        iov_request *r = NULL;
        FAILS(STALE, iov_batch_start(b, &r));
        CHECK(r == NULL);
    }
    OK(iov_batch_free(b));
    OK(iov_batch_free(retry));
    attr.id.bytes[6] = 0x40; /* version 4 */
    FAILS(INVALID, iov_batch_create(s, &attr, &b));
    OK(iov_collection_close(NULL, c));
}

static void test_o9_order_and_pending_handles(void) {
    iov_batch *b = new_batch(s, 0);
    iov_collection *c = NULL, *again = NULL, *missing = NULL;
    iov_stat stat = IOV_STAT_INIT;
    size_t got = 0;
    char buf[8];
    OK(iov_collection_create(b, w, NULL, "o9", NULL, NULL, &c));
    CHECK(c != NULL);
    FAILS(BUSY, iov_write(NULL, c, 0, "x", 1)); /* pending: for later operations of the batch */
    OK(iov_write(b, c, 0, "one", 3));
    OK(iov_write(b, c, 0, "two", 3));
    OK(iov_read(b, c, 0, buf, 8, &got));
    OK(iov_collection_lookup(b, w, NULL, "o9", NULL, &again));
    OK(iov_write(b, again, 3, "!", 1));
    OK(iov_collection_stat(b, again, &stat));
    OK(iov_collection_lookup(b, w, NULL, "missing", NULL, &missing));
    OK(iov_write(b, missing, 0, "x", 1));
    OK(iov_collection_close(b, again));
    FAILS(PARTIAL, finish(b));
    CHECK(got == 3 && memcmp(buf, "two", 3) == 0 && stat.bytes == 4);
    CHECK(status_of(b, 7).code == -IOV_ENOTFOUND && status_of(b, 8).code == -IOV_ENOTFOUND);
    FAILS(INVALID, iov_write(NULL, again, 0, "x", 1)); /* closed by its batch */
    FAILS(NOTFOUND, iov_write(NULL, missing, 0, "x", 1));
    FAILS(NOTFOUND, iov_collection_stat(NULL, missing, &stat));
    OK(iov_collection_close(NULL, missing)); /* close it all the same */
    FAILS(INVALID, iov_collection_close(NULL, missing));
    expect_bytes(c, 0, "two!");
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
}

static void test_t20_in_batch(void) {
    iov_collection *c = new_collection(w, "t20", NULL);
    iov_batch *b = new_batch(s, 0);
    int i;
    for (i = 0; i < 1000; i++) {
        int seen = -1;
        size_t got = 0;
        OK(iov_write(b, c, 64, &i, sizeof i));
        OK(iov_read(b, c, 64, &seen, sizeof seen, &got));
        OK(finish(b));
        CHECK(seen == i && got == sizeof seen);
        OK(iov_batch_reset(b));
    }
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
}

static void test_never_started(void) {
    iov_batch *b = new_batch(s, 0), *reset = new_batch(s, 0);
    iov_collection *c = NULL, *d = NULL, *kept = new_collection(w, "kept", NULL);
    iov_cursor *cur = NULL;
    iov_entry e;
    size_t n = 0;
    e.size = sizeof e;
    OK(iov_collection_create(b, w, NULL, "never", NULL, NULL, &c));
    OK(iov_collection_search(b, w, NULL, NULL, &cur));
    OK(iov_collection_close(b, kept));
    OK(iov_collection_create(reset, w, NULL, "never", NULL, NULL, &d));
    OK(iov_batch_free(b));
    OK(iov_batch_reset(reset));
    FAILS(CANCELLED, iov_write(NULL, c, 0, "x", 1));
    FAILS(CANCELLED, iov_write(NULL, d, 0, "x", 1));
    FAILS(CANCELLED, iov_cursor_next(cur, &e, 1, &n, -1));
    write_text(kept, 0, "still open");
    OK(iov_collection_close(NULL, c));
    OK(iov_collection_close(NULL, d));
    OK(iov_cursor_close(cur));
    FAILS(NOTFOUND, iov_collection_lookup(NULL, w, NULL, "never", NULL, &c));
    OK(finish(reset)); /* an empty batch completes */
    OK(iov_batch_free(reset));
    OK(iov_collection_close(NULL, kept));
}

static void test_started_once(void) {
    iov_batch *b = new_batch(s, 0);
    iov_collection *c = new_collection(w, "once", NULL), *d = NULL;
    iov_request *r = NULL, *again = NULL;
    iov_status status = IOV_STATUS_INIT;
    int done = 0;
    OK(iov_append(b, c, "1", 1, NULL));
    FAILS(BUSY, iov_batch_status(b, 0, &status));
    FAILS(INVALID, iov_batch_status(b, 1, &status));
    OK(iov_batch_start(b, &r));
    FAILS(BUSY, iov_append(b, c, "2", 1, NULL));
    FAILS(BUSY, iov_batch_barrier(b));
    FAILS(BUSY, iov_batch_start(b, &again));
    FAILS(BUSY, iov_collection_create(b, w, NULL, "x", NULL, NULL, &d));
    CHECK(d == NULL && iov_batch_count(b) == 1);
    while (!done) {
        OK(iov_test(r, &done));
    }
    OK(iov_test(r, &done));
    CHECK(done == 1);
    OK(iov_wait(r, 0));
    OK(iov_cancel(r)); /* too late to matter */
    OK(iov_batch_reset(b)); /* the request is still the program's */
    OK(iov_wait(r, 0));
    OK(iov_request_free(r));
    FAILS(INVALID, iov_wait(r, 0));
    FAILS(INVALID, iov_request_free(r));
    FAILS(INVALID, iov_batch_status(b, 0, &status));
    OK(iov_append(b, c, "2", 1, NULL));
    OK(finish(b));
    expect_bytes(c, 0, "12");
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
}

static void test_attributes(void) {
    iov_batch_attr attr = IOV_BATCH_ATTR_INIT;
    iov_controls controls = IOV_CONTROLS_INIT;
    iov_batch *b = NULL;
    iov_collection *c = new_collection(w, "attr", NULL);
    uint8_t progress;
    for (progress = IOV_PROGRESS_AUTO; progress <= IOV_PROGRESS_BACKGROUND; progress++) {
        attr.progress = progress;
        OK(iov_batch_create(s, &attr, &b));
        OK(iov_append(b, c, "x", 1, NULL));
        OK(finish(b));
        OK(iov_batch_free(b));
    }
    CHECK(size_of(c) == 3);
    attr.progress = 3;
    FAILS(INVALID, iov_batch_create(s, &attr, &b));
    attr.progress = 0;
    attr.on_error = 4;
    FAILS(INVALID, iov_batch_create(s, &attr, &b));
    attr.on_error = 0;
    attr.deadline_ns = -1;
    FAILS(INVALID, iov_batch_create(s, &attr, &b));
    attr.deadline_ns = 0;
    attr.controls = &controls; /* the policy of the controls counts where the attribute leaves it unset */
    OK(iov_controls_parse(&controls, "error=rollback"));
    OK(iov_batch_create(s, &attr, &b));
    OK(iov_append(b, c, "x", 1, NULL));
    OK(iov_collection_delete(b, w, NULL, "nothing"));
    FAILS(PARTIAL, finish(b));
    CHECK(status_of(b, 0).state == IOV_OP_UNDONE);
    OK(iov_batch_free(b));
    iov_controls_init(&controls, sizeof controls);
    OK(iov_controls_parse(&controls, "persistence=durable@batch"));
    OK(iov_batch_create(s, &attr, &b));
    OK(iov_append(b, c, "x", 1, NULL));
    FAILS(PARTIAL, finish(b)); /* what cannot be promised is refused, not ignored */
    CHECK(status_of(b, 0).code == -IOV_EREFUSED && strcmp(status_of(b, 0).clause, "P3") == 0);
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
}

static void test_explain(void) {
    iov_batch *b = new_batch(s, 0);
    iov_collection *c = new_collection(w, "explained", "atomicity=publication");
    char plan[4096], small[4] = "abc";
    size_t needed = 0;
    OK(iov_write(b, c, 0, "x", 1));
    OK(iov_commit(b, c));
    FAILS(TOOBIG, iov_explain(b, small, sizeof small, &needed));
    CHECK(needed > sizeof small && needed < sizeof plan && strcmp(small, "abc") == 0);
    FAILS(TOOBIG, iov_explain(b, NULL, 0, NULL));
    OK(iov_explain(b, plan, sizeof plan, &needed));
    CHECK(strlen(plan) + 1 == needed && plan[0] == '{');
    CHECK(strstr(plan, "\"write\"") != NULL && strstr(plan, "M1") != NULL && strstr(plan, "mem:batch") != NULL);
    CHECK(iov_batch_count(b) == 2 && size_of(c) == 0); /* nothing has run */
    OK(finish(b));
    FAILS(BUSY, iov_explain(b, plan, sizeof plan, &needed));
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
}

static void test_large_batches(void) {
    enum { N = 20000 };
    iov_batch *b = new_batch(s, 0);
    iov_collection **all = (iov_collection **)calloc(N, sizeof *all);
    iov_collection *g = NULL;
    iov_stat stat = IOV_STAT_INIT;
    int i;
    OK(iov_group_create(NULL, w, NULL, "large", NULL, NULL, &g));
    for (i = 0; i < N; i++) {
        char name[24];
        snprintf(name, sizeof name, "c%d", i);
        OK(iov_collection_create(b, w, g, name, NULL, NULL, &all[i]));
    }
    OK(finish(b));
    OK(iov_batch_reset(b));
    OK(iov_collection_stat(NULL, g, &stat));
    CHECK(stat.entries == N);
    for (i = 0; i < N; i++) {
        OK(iov_collection_close(b, all[i]));
    }
    OK(finish(b));
    OK(iov_batch_free(b));
    for (i = 0; i < N; i++) {
        CHECK(iov_collection_close(NULL, all[i]) == -IOV_EINVALID);
    }
    OK(iov_collection_close(NULL, g));
    free(all);
}

int main(void) {
    s = open_store("mem:batch");
    w = new_workspace(s, "ws");
    RUN(test_b1_continue);
    RUN(test_b2_stop);
    RUN(test_b3_rollback);
    RUN(test_b3_a_retry_applies_once);
    RUN(test_o9_order_and_pending_handles);
    RUN(test_t20_in_batch);
    RUN(test_never_started);
    RUN(test_started_once);
    RUN(test_attributes);
    RUN(test_explain);
    RUN(test_large_batches);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    return 0;
}
