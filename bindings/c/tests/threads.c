/* SPDX-License-Identifier: Apache-2.0 */
/* Rule 6: sessions, workspaces and collections from any thread at any time. */
#include "test.h"

#define THREADS 8
#define ROUNDS 2000

static iov_session *s;
static iov_workspace *w;
static iov_collection *shared;
static int stop;

typedef struct {
    pthread_t thread;
    int index;
    uint64_t count;
} worker;

static void run_all(worker *workers, int n, void *(*body)(void *)) {
    int i;
    for (i = 0; i < n; i++) {
        workers[i].index = i;
        workers[i].count = 0;
        CHECK(pthread_create(&workers[i].thread, NULL, body, &workers[i]) == 0);
    }
    for (i = 0; i < n; i++) {
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
    }
}

/* Writers of disjoint unaligned ranges lose nothing (X3). */
static void *write_own_range(void *arg) {
    worker *me = (worker *)arg;
    uint64_t offset = (uint64_t)me->index * 471;
    char block[471], back[471];
    int i;
    for (i = 0; i < ROUNDS; i++) {
        size_t got = 0;
        memset(block, (me->index * 31 + i) & 0xff, sizeof block);
        OK(iov_write(NULL, shared, offset, block, sizeof block));
        OK(iov_read(NULL, shared, offset, back, sizeof back, &got));
        CHECK(got == sizeof back && memcmp(block, back, sizeof back) == 0);
    }
    return NULL;
}

static void test_x3_disjoint_writers(void) {
    worker workers[THREADS];
    shared = new_collection(w, "disjoint", NULL);
    run_all(workers, THREADS, write_own_range);
    CHECK(size_of(shared) == 471 * THREADS);
    OK(iov_collection_close(NULL, shared));
}

/* Each record once, whole, in its writer's order (M4, T10). */
static void *append_records(void *arg) {
    worker *me = (worker *)arg;
    uint64_t record[2], last = 0, offset = 0;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        record[0] = (uint64_t)me->index;
        record[1] = (uint64_t)i;
        OK(iov_append(NULL, shared, record, sizeof record, &offset));
        CHECK(offset % sizeof record == 0 && (i == 0 || offset > last));
        last = offset;
    }
    return NULL;
}

static void test_t10_append(void) {
    worker workers[THREADS];
    uint64_t next[THREADS] = {0}, record[2], offset;
    size_t got = 0;
    shared = new_collection(w, "append", "mutability=append");
    run_all(workers, THREADS, append_records);
    CHECK(size_of(shared) == (uint64_t)THREADS * ROUNDS * sizeof record);
    for (offset = 0; offset < (uint64_t)THREADS * ROUNDS * sizeof record; offset += sizeof record) {
        OK(iov_read(NULL, shared, offset, record, sizeof record, &got));
        CHECK(record[0] < THREADS && record[1] == next[record[0]]++);
    }
    OK(iov_collection_close(NULL, shared));
}

/* Handles come and go; one closed by another thread is an error, never a crash, and never somebody else's. */
static iov_collection *current;

static void *open_and_close(void *arg) {
    worker *me = (worker *)arg;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        iov_collection *mine = NULL, *old;
        OK(iov_collection_lookup(NULL, w, NULL, "churn", NULL, &mine));
        old = __atomic_exchange_n(&current, mine, __ATOMIC_ACQ_REL);
        CHECK(iov_collection_close(NULL, old) == 0 || old == NULL);
        me->count++;
    }
    return NULL;
}

static void *use_current(void *arg) {
    worker *me = (worker *)arg;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        iov_collection *c = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
        uint64_t value = 0;
        size_t got = 0;
        int code = iov_read(NULL, c, 0, &value, sizeof value, &got);
        CHECK(code == 0 || code == -IOV_EINVALID);
        CHECK(code != 0 || (got == sizeof value && value == 0x1122334455667788));
        me->count += code == 0;
    }
    return NULL;
}

static void *close_others(void *arg) {
    worker workers[THREADS / 2];
    run_all(workers, THREADS / 2, open_and_close);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    return arg;
}

static void test_handles_closed_under_others(void) {
    worker users[2];
    pthread_t closer;
    uint64_t value = 0x1122334455667788;
    iov_collection *c = new_collection(w, "churn", NULL);
    OK(iov_write(NULL, c, 0, &value, sizeof value));
    stop = 0;
    CHECK(pthread_create(&closer, NULL, close_others, NULL) == 0);
    run_all(users, 2, use_current);
    CHECK(pthread_join(closer, NULL) == 0);
    OK(iov_collection_close(NULL, current));
    OK(iov_collection_close(NULL, c));
    printf("    > %d handles closed under %d successful reads\n", THREADS / 2 * ROUNDS,
           (int)(users[0].count + users[1].count));
}

/* Exactly one of the threads that close a handle at the same time is told that it did. */
static iov_collection *contested[ROUNDS];
static int closed[ROUNDS];

static void *close_all(void *arg) {
    int i;
    for (i = 0; i < ROUNDS; i++) {
        int code = iov_collection_close(NULL, contested[i]);
        CHECK(code == 0 || code == -IOV_EINVALID);
        __atomic_fetch_add(&closed[i], code == 0, __ATOMIC_RELAXED);
    }
    return arg;
}

static void test_closed_once(void) {
    worker workers[THREADS];
    int i;
    for (i = 0; i < ROUNDS; i++) {
        contested[i] = look_up(w, "churn");
    }
    run_all(workers, THREADS, close_all);
    for (i = 0; i < ROUNDS; i++) {
        CHECK(closed[i] == 1);
    }
}

/* Batches of many threads in one session; one thread polls for all of them. */
static uint64_t polled;

static void *start_batches(void *arg) {
    worker *me = (worker *)arg;
    char name[32];
    int i;
    snprintf(name, sizeof name, "batches%d", me->index);
    for (i = 0; i < ROUNDS / 10; i++) {
        iov_batch *b = new_batch(s, 0);
        iov_collection *c = NULL;
        iov_request *r = NULL;
        OK(iov_collection_create(b, w, NULL, name, NULL, NULL, &c));
        OK(iov_write(b, c, 0, &i, sizeof i));
        OK(iov_collection_close(b, c));
        OK(iov_collection_delete(b, w, NULL, name));
        OK(iov_batch_start(b, &r));
        if (i % 2 == 0) {
            OK(iov_wait(r, -1));
            OK(iov_request_free(r));
            OK(iov_batch_free(b));
        } else {
            me->count++; /* left to the poller, who frees it */
        }
    }
    return NULL;
}

static void *poll_for_all(void *arg) {
    iov_completion done[4];
    size_t n = 0, i;
    for (;;) {
        int code;
        done[0].size = sizeof done[0];
        code = iov_poll(s, done, 4, &n, 10000000);
        if (code == -IOV_ETIMEOUT && __atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
            return arg;
        }
        CHECK(code == 0 || code == -IOV_ETIMEOUT);
        for (i = 0; code == 0 && i < n; i++) {
            polled += done[i].user_data == NULL;
            CHECK(done[i].code == 0);
        }
    }
}

static void test_polling_for_many_threads(void) {
    worker workers[4];
    pthread_t poller;
    uint64_t left = 0;
    int i;
    stop = 0;
    CHECK(pthread_create(&poller, NULL, poll_for_all, NULL) == 0);
    run_all(workers, 4, start_batches);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(poller, NULL) == 0);
    for (i = 0; i < 4; i++) {
        left += workers[i].count;
    }
    CHECK(polled >= left && polled <= 2 * left);
}

int main(void) {
    s = open_store("mem:threads");
    w = new_workspace(s, "ws");
    RUN(test_x3_disjoint_writers);
    RUN(test_t10_append);
    RUN(test_handles_closed_under_others);
    RUN(test_closed_once);
    RUN(test_polling_for_many_threads);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    return 0;
}
