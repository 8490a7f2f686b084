/* SPDX-License-Identifier: Apache-2.0 */
/* iov_view on a store in shared memory: what it shows, how long, and to whom. */
#include "test.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 3 << 20 };

static char dir[] = "/tmp/iov-views-XXXXXX";
static char url[64];
static unsigned char bytes[LEN];

static void ends(const char *command) {
    char line[512];
    const char *daemon = getenv("IOVERBS_IOVD");
    CHECK(daemon != NULL);
    snprintf(line, sizeof line, command, daemon, dir);
    CHECK(system(line) == 0);
}

static iov_collection *filled(iov_workspace *w, const char *name) {
    iov_collection *c = new_collection(w, name, NULL);
    OK(iov_write(NULL, c, 0, bytes, LEN));
    return c;
}

static void test_a_view_shows_what_is_stored(iov_workspace *w) {
    iov_collection *c = filled(w, "shown");
    size_t at = 0;
    while (at < LEN) {
        const void *p = NULL;
        size_t got = 0;
        iov_view_lease *lease = NULL;
        OK(iov_view(c, at, LEN, &p, &got, &lease));
        CHECK(got > 0 && got <= LEN - at && lease != NULL);
        CHECK((uintptr_t)p % 64 == at % 64);
        CHECK(memcmp(p, bytes + at, got) == 0);
        iov_view_release(lease);
        at += got;
    }
    {
        const void *p = NULL;
        size_t got = 1;
        iov_view_lease *lease = NULL;
        OK(iov_view(c, LEN + 10, 5, &p, &got, &lease));
        CHECK(got == 0);
        iov_view_release(lease);
        FAILS(INVALID, iov_view(c, UINT64_MAX, 5, &p, &got, &lease));
        FAILS(INVALID, iov_view(c, 0, 5, NULL, &got, &lease));
        iov_view_release(NULL);
        iov_view_release(lease); /* ended before: it is told in the log, and that is all */
    }
    OK(iov_collection_close(NULL, c));
}

static void test_a_view_outlives_its_handle_and_its_collection(iov_session *s, iov_workspace *w) {
    iov_collection *c = filled(w, "short-lived"), *other;
    const void *p = NULL;
    size_t got = 0;
    iov_view_lease *lease = NULL;
    (void)s;
    OK(iov_view(c, 1000, 200000, &p, &got, &lease));
    OK(iov_collection_close(NULL, c));
    OK(iov_collection_delete(NULL, w, NULL, "short-lived"));
    other = new_collection(w, "other", NULL);
    {
        static unsigned char foreign[8 << 20];
        memset(foreign, 0xee, sizeof foreign);
        OK(iov_write(NULL, other, 0, foreign, sizeof foreign));
    }
    CHECK(memcmp(p, bytes + 1000, got) == 0);
    iov_view_release(lease);
    OK(iov_collection_close(NULL, other));
}

static void test_a_child_may_look_on(iov_workspace *w) {
    iov_collection *c = filled(w, "forked");
    const void *p = NULL;
    size_t got = 0;
    iov_view_lease *lease = NULL;
    pid_t child;
    int status = 0;
    OK(iov_view(c, 0, 4096, &p, &got, &lease));
    child = fork();
    if (child == 0) {
        const void *q = NULL;
        size_t n = 0;
        iov_view_lease *l = NULL;
        int same = memcmp(p, bytes, got) == 0;
        _exit(same && iov_view(c, 0, 10, &q, &n, &l) == -IOV_EFORKED ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(memcmp(p, bytes, got) == 0);
    iov_view_release(lease);
    OK(iov_collection_close(NULL, c));
}

static iov_collection *shared;

static void *looks(void *arg) {
    int i;
    (void)arg;
    for (i = 0; i < 2000; i++) {
        const void *p = NULL;
        size_t got = 0, at = (size_t)(i * 7919) % (LEN - 5000);
        iov_view_lease *lease = NULL;
        OK(iov_view(shared, at, 5000, &p, &got, &lease));
        CHECK(memcmp(p, bytes + at, got) == 0);
        iov_view_release(lease);
    }
    return NULL;
}

static void test_many_threads_look(iov_workspace *w) {
    pthread_t threads[4];
    size_t i;
    shared = filled(w, "threads");
    OK(iov_seal(NULL, shared));
    for (i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, looks, NULL) == 0);
    }
    for (i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(iov_collection_close(NULL, shared));
}

int main(void) {
    iov_session *s;
    iov_workspace *w;
    size_t i;
    for (i = 0; i < LEN; i++) {
        bytes[i] = (unsigned char)(i ^ (i >> 11));
    }
    CHECK(mkdtemp(dir) != NULL);
    snprintf(url, sizeof url, "file:%s", dir);
    setenv("IOVD_STORAGE", "shmem:64MiB", 1);
    s = open_store(url);
    w = new_workspace(s, "w");
    test_a_view_shows_what_is_stored(w);
    test_a_view_outlives_its_handle_and_its_collection(s, w);
    test_a_child_may_look_on(w);
    test_many_threads_look(w);
    {
        /* Whoever forgets a view loses it with the session. */
        iov_collection *c = filled(w, "forgotten");
        const void *p = NULL;
        size_t got = 0;
        iov_view_lease *lease = NULL;
        OK(iov_view(c, 0, 100, &p, &got, &lease));
    }
    OK(iov_close(s));
    ends("for i in $(seq 100); do pid=$(sed -n 3p %2$s/lock); [ -z \"$pid\" ] && break; kill \"$pid\" 2>/dev/null; sleep 0.1; "
         "done; %1$s --dir %2$s --release > /dev/null && rm -r %2$s");
    return 0;
}
