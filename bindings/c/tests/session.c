/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: opening, counters, the event descriptor, polling, handles for others. */
#include "test.h"

#include <poll.h>
#include <unistd.h>

static void test_open(void) {
    iov_session_attr attr = IOV_SESSION_ATTR_INIT;
    iov_session *s = NULL, *readonly = NULL;
    iov_workspace *w = NULL;
    attr.program = "session test";
    attr.deadline_ns = 5000000000;
    attr.cache_bytes = 1 << 20;
    attr.flags = IOV_SESSION_NODIRECT | IOV_SESSION_NOCACHE | IOV_SESSION_NOSTART;
    OK(iov_open("mem:session", &attr, &s));
    w = new_workspace(s, "ws");
    attr.flags = IOV_SESSION_READONLY | IOV_SESSION_BACKGROUND;
    OK(setenv("IOVERBS_PRIORITY", "soon", 1));
    FAILS(INVALID, iov_open("mem:session", &attr, &readonly));
    OK(setenv("IOVERBS_PRIORITY", "background", 1));
    OK(iov_open("mem:session", &attr, &readonly));
    OK(unsetenv("IOVERBS_PRIORITY"));
    OK(iov_workspace_close(w));
    OK(iov_workspace_load(readonly, "ws", &w));
    FAILS(DENIED, iov_workspace_create(readonly, "other", NULL, &w));
    OK(iov_workspace_close(w));
    OK(iov_close(readonly));

    attr.flags = 0;
    attr.token = "secret";
    FAILS(UNSUPPORTED, iov_open("mem:session", &attr, &readonly));
    CHECK(strstr(iov_error_detail(), "secret") == NULL);
    attr.token = NULL;
    attr.config = "ioverbs.toml";
    FAILS(UNSUPPORTED, iov_open("mem:session", &attr, &readonly));
    DETAIL("config");

    FAILS(UNSUPPORTED, iov_open("gopher://host", NULL, &readonly));
    FAILS(INVALID, iov_open("nonsense", NULL, &readonly));
    DETAIL("nonsense");
    OK(iov_close(s));
    CHECK(setenv("IOVERBS_URL", "mem:session", 1) == 0);
    OK(iov_open(NULL, NULL, &s));
    OK(iov_workspace_load(s, "ws", &w));
    OK(iov_workspace_close(w));
    OK(iov_close(s));
}

static void test_sessions_share_a_store(void) {
    iov_session *a = open_store("mem:shared"), *b = open_store("mem:shared"), *c = open_store("mem:other");
    iov_workspace *w = new_workspace(a, "ws"), *v = NULL;
    iov_collection *x = new_collection(w, "x", NULL), *y;
    write_text(x, 0, "shared");
    OK(iov_workspace_load(b, "ws", &v));
    y = look_up(v, "x");
    expect_bytes(y, 0, "shared");
    FAILS(NOTFOUND, iov_workspace_load(c, "ws", &v));
    OK(iov_collection_close(NULL, x));
    OK(iov_collection_close(NULL, y));
    OK(iov_close(a));
    OK(iov_close(b));
    OK(iov_close(c));
}

static void test_counters(void) {
    iov_session *s = open_store("mem:counters");
    iov_workspace *w = new_workspace(s, "ws");
    iov_collection *c = new_collection(w, "c", NULL);
    iov_counters before = IOV_COUNTERS_INIT, after = IOV_COUNTERS_INIT;
    OK(iov_session_counters(s, &before));
    write_text(c, 0, "12345678");
    expect_bytes(c, 0, "12345");
    OK(iov_session_counters(s, &after));
    CHECK(after.bytes_written - before.bytes_written == 8);
    CHECK(after.bytes_read - before.bytes_read == 5);
    CHECK(after.operations - before.operations == 2);
    CHECK(after.batches - before.batches == 2);
    CHECK(after.metadata_requests == before.metadata_requests);
    CHECK(after.in_flight == 0);
    OK(iov_collection_close(NULL, c));
    OK(iov_close(s));
}

static int readable(int fd) {
    struct pollfd p;
    p.fd = fd;
    p.events = POLLIN;
    p.revents = 0;
    CHECK(poll(&p, 1, 0) >= 0);
    return (p.revents & POLLIN) != 0;
}

static void test_poll_reports_each_request_once(void) {
    iov_session *s = open_store("mem:poll");
    iov_workspace *w = new_workspace(s, "ws");
    iov_collection *c = new_collection(w, "c", NULL);
    iov_completion done[4];
    iov_request *r[3];
    iov_batch *b[3];
    size_t n = 99, i, seen = 0;
    int fd = iov_event_fd(s), mask = 0;
    uint64_t sizes[3] = {9, 9, 9};
    CHECK(fd >= 0 && iov_event_fd(s) == fd);
    done[0].size = sizeof done[0];
    FAILS(TIMEOUT, iov_poll(s, done, 4, &n, 0));
    CHECK(n == 99);
    for (i = 0; i < 3; i++) {
        iov_batch_attr attr = IOV_BATCH_ATTR_INIT;
        attr.user_data = &sizes[i];
        attr.progress = IOV_PROGRESS_BACKGROUND;
        OK(iov_batch_create(s, &attr, &b[i]));
        OK(iov_append(b[i], c, "record", 6, &sizes[i]));
        OK(iov_batch_start(b[i], &r[i]));
    }
    write_text(c, 1 << 20, "a blocking call is nothing to report");
    while (seen < 3) {
        OK(iov_poll(s, done, 2, &n, 10000000000));
        CHECK(n >= 1 && n <= 2);
        for (i = 0; i < n; i++) {
            size_t which = (size_t)((uint64_t *)done[i].user_data - sizes);
            CHECK(which < 3 && done[i].batch == b[which] && done[i].request == r[which]);
            CHECK(done[i].code == 0 && done[i].size == sizeof done[0]);
            CHECK(sizes[which] != 9); /* out-arguments are written before the completion is told */
            CHECK((mask & 1 << which) == 0);
            mask |= 1 << which;
            seen++;
        }
    }
    FAILS(TIMEOUT, iov_poll(s, done, 4, &n, 1000000));
    CHECK(!readable(fd));
    for (i = 0; i < 3; i++) {
        OK(iov_wait(r[i], -1)); /* says the same again */
        OK(iov_request_free(r[i]));
        OK(iov_batch_reset(b[i]));
    }
    OK(iov_append(b[0], c, "record", 6, NULL));
    OK(iov_batch_start(b[0], &r[0]));
    for (i = 0; i < 10000 && !readable(fd); i++) {
        usleep(1000);
    }
    CHECK(readable(fd));
    OK(iov_wait(r[0], -1));
    FAILS(TIMEOUT, iov_poll(s, done, 4, &n, 0)); /* the wait has told of it */
    OK(iov_request_free(r[0]));
    for (i = 0; i < 3; i++) {
        OK(iov_batch_free(b[i]));
    }
    OK(iov_collection_close(NULL, c));
    OK(iov_close(s));
}

static void test_export_and_import(void) {
    iov_session *a = open_store("mem:export"), *b = open_store("mem:export"), *other = open_store("mem:elsewhere");
    iov_workspace *w = new_workspace(a, "ws");
    iov_collection *c = new_collection(w, "c", NULL), *g = NULL;
    iov_handle handle = IOV_HANDLE_INIT, got = IOV_HANDLE_INIT;
    unsigned char bytes[1024], small[4];
    size_t needed = 0, i;
    write_text(c, 0, "exported");

    handle.kind = IOV_KIND_COLLECTION;
    handle.collection = c;
    FAILS(TOOBIG, iov_handle_export(&handle, small, sizeof small, &needed));
    CHECK(needed > sizeof small && needed <= sizeof bytes);
    OK(iov_handle_export(&handle, bytes, sizeof bytes, &needed));
    OK(iov_handle_import(b, bytes, needed, &got));
    CHECK(got.kind == IOV_KIND_COLLECTION && got.collection != c);
    expect_bytes(got.collection, 0, "exported");
    OK(iov_collection_close(NULL, got.collection));
    FAILS(INVALID, iov_handle_import(other, bytes, needed, &got));
    DETAIL("mem:export");
    for (i = 0; i < needed; i++) { /* any damage is found */
        bytes[i] ^= 0x40;
        FAILS(INVALID, iov_handle_import(b, bytes, needed, &got));
        bytes[i] ^= 0x40;
        FAILS(INVALID, iov_handle_import(b, bytes, i, &got));
    }
    handle.range.len = 4;
    FAILS(UNSUPPORTED, iov_handle_export(&handle, bytes, sizeof bytes, &needed));
    DETAIL("len 0");
    handle.range.len = 0;

    OK(iov_group_create(NULL, w, NULL, "g", NULL, NULL, &g));
    handle.collection = g;
    FAILS(INVALID, iov_handle_export(&handle, bytes, sizeof bytes, &needed));
    handle.kind = IOV_KIND_GROUP;
    OK(iov_handle_export(&handle, bytes, sizeof bytes, &needed));
    OK(iov_handle_import(b, bytes, needed, &got));
    CHECK(got.kind == IOV_KIND_GROUP);
    OK(iov_collection_close(NULL, got.collection));

    handle.kind = IOV_KIND_WORKSPACE;
    handle.workspace = w;
    OK(iov_handle_export(&handle, bytes, sizeof bytes, &needed));
    OK(iov_handle_import(b, bytes, needed, &got));
    CHECK(got.kind == IOV_KIND_WORKSPACE);
    OK(iov_collection_close(NULL, look_up(got.workspace, "c")));
    OK(iov_workspace_close(got.workspace));

    OK(iov_collection_close(NULL, c));
    OK(iov_collection_close(NULL, g));
    OK(iov_close(a));
    OK(iov_close(b));
    OK(iov_close(other));
}

static void test_x1_a_session_joins_an_exclusive_hold(void) {
    iov_session *a = open_store("mem:join"), *b = open_store("mem:join");
    iov_workspace *w = new_workspace(a, "ws"), *v = NULL;
    iov_collection *c = new_collection(w, "held", "concurrency=exclusive"), *d = NULL;
    iov_handle handle = IOV_HANDLE_INIT, got = IOV_HANDLE_INIT;
    unsigned char bytes[1024];
    size_t needed = 0;
    OK(iov_workspace_load(b, "ws", &v));
    FAILS(BUSY, iov_collection_lookup(NULL, v, NULL, "held", NULL, &d));
    handle.kind = IOV_KIND_SESSION;
    handle.session = a;
    OK(iov_handle_export(&handle, bytes, sizeof bytes, &needed));
    OK(iov_handle_import(b, bytes, needed, &got));
    CHECK(got.kind == IOV_KIND_SESSION && got.session == b);
    OK(iov_collection_lookup(NULL, v, NULL, "held", NULL, &d));
    write_text(d, 0, "by the other rank");
    expect_bytes(c, 0, "by the other rank");
    OK(iov_collection_close(NULL, d));
    OK(iov_collection_close(NULL, c));
    OK(iov_close(a));
    OK(iov_close(b));
}

int main(void) {
    RUN(test_open);
    RUN(test_sessions_share_a_store);
    RUN(test_counters);
    RUN(test_poll_reports_each_request_once);
    RUN(test_export_and_import);
    RUN(test_x1_a_session_joins_an_exclusive_hold);
    return 0;
}
