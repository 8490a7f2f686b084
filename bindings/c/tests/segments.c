/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: bytes with an id, in this process and in another one. */
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/iov-segments-XXXXXX";
static char url[64];

static void test_a_segment_is_like_memory(iov_workspace *w) {
    char bytes[1000], back[1000];
    iov_uuid id, none;
    uint64_t size = 0;
    memset(bytes, 'x', sizeof bytes);
    memset(&none, 0xee, sizeof none);
    OK(iov_segment_create(w, 100000, NULL, &id));
    OK(iov_segment_size(w, &id, &size));
    CHECK(size == 100000);
    OK(iov_segment_get(w, &id, 99000, back, sizeof back));
    CHECK(back[0] == 0 && back[999] == 0);
    OK(iov_segment_put(w, &id, 99000, bytes, sizeof bytes));
    OK(iov_segment_get(w, &id, 99000, back, sizeof back));
    CHECK(memcmp(bytes, back, sizeof bytes) == 0);
    FAILS(FILETOOBIG, iov_segment_put(w, &id, 99001, bytes, sizeof bytes));
    FAILS(INVALID, iov_segment_get(w, &id, 99001, back, sizeof back));
    FAILS(NOTFOUND, iov_segment_put(w, &none, 0, bytes, 1));
    FAILS(NOTFOUND, iov_segment_get(w, &none, 0, back, 1));
    FAILS(INVALID, iov_segment_create(w, 0, NULL, &id));
    FAILS(INVALID, iov_segment_create(w, 1, NULL, NULL));
    FAILS(INVALID, iov_segment_put(w, NULL, 0, bytes, 1));
    OK(iov_segment_remove(w, &id));
    FAILS(NOTFOUND, iov_segment_remove(w, &id));
    FAILS(NOTFOUND, iov_segment_size(w, &id, &size));
}

static void test_the_space_is_endless(iov_workspace *w) {
    iov_uuid id;
    char back[8] = ".......";
    size_t got = 99;
    memset(&id, 7, sizeof id);
    OK(iov_segment_read(w, &id, UINT64_C(1) << 40, back, sizeof back, &got));
    CHECK(got == 0 && back[0] == 0 && back[7] == 0);
    OK(iov_segment_write(w, &id, UINT64_C(1) << 40, "edge", 4));
    OK(iov_segment_read(w, &id, (UINT64_C(1) << 40) - 2, back, sizeof back, &got));
    CHECK(got == 6 && memcmp(back, "\0\0edge\0", 8) == 0);
    OK(iov_segment_remove(w, &id));
}

/* A child has nothing but the id. */
static void test_another_process_knows_it_by_its_id(iov_workspace *w) {
    iov_uuid id;
    char back[5] = "";
    int status = 0;
    pid_t child;
    OK(iov_segment_create(w, 1 << 20, NULL, &id));
    OK(iov_segment_put(w, &id, 500000, "hello", 5));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        iov_session *s = open_store(url);
        iov_workspace *own = NULL;
        OK(iov_workspace_load(s, "w", &own));
        OK(iov_segment_get(own, &id, 500000, back, 5));
        CHECK(memcmp(back, "hello", 5) == 0);
        OK(iov_segment_put(own, &id, 500000, "HELLO", 5));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(iov_segment_get(w, &id, 500000, back, 5));
    CHECK(memcmp(back, "HELLO", 5) == 0);
}

static void test_a_segment_is_a_collection(iov_session *s, iov_workspace *w) {
    iov_uuid id;
    iov_batch *b = NULL;
    iov_request *r = NULL;
    iov_collection *c = NULL;
    char back[5] = "";
    size_t got = 0;
    OK(iov_segment_create(w, 4096, NULL, &id));
    OK(iov_batch_create(s, NULL, &b));
    OK(iov_collection_open_segment(b, w, &id, &c));
    OK(iov_write(b, c, 10, "batch", 5));
    OK(iov_read(b, c, 10, back, 5, &got));
    OK(iov_batch_start(b, &r));
    OK(iov_wait(r, -1));
    CHECK(got == 5 && memcmp(back, "batch", 5) == 0);
    OK(iov_request_free(r));
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
    OK(iov_segment_get(w, &id, 10, back, 5));
    CHECK(memcmp(back, "batch", 5) == 0);
    memset(&id, 0xdd, sizeof id);
    FAILS(NOTFOUND, iov_collection_open_segment(NULL, w, &id, &c));
}

int main(void) {
    iov_session *s;
    iov_workspace *w;
    char line[64];
    CHECK(mkdtemp(dir) != NULL);
    snprintf(url, sizeof url, "file:%s", dir);
    s = open_store(url);
    w = new_workspace(s, "w");
    test_a_segment_is_like_memory(w);
    test_the_space_is_endless(w);
    test_another_process_knows_it_by_its_id(w);
    test_a_segment_is_a_collection(s, w);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    snprintf(line, sizeof line, "rm -rf %s", dir);
    CHECK(system(line) == 0);
    return 0;
}
