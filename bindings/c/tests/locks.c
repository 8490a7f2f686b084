/* SPDX-License-Identifier: Apache-2.0 */
/* Advisory locks (O11). */
#include "test.h"

#include <unistd.h>

static iov_session *s;
static iov_workspace *w;

static iov_lock_attr lock_of(uint32_t mode, uint64_t offset, uint64_t len, uint32_t flags) {
    iov_lock_attr lock = IOV_LOCK_ATTR_INIT;
    lock.mode = mode;
    lock.range.offset = offset;
    lock.range.len = len;
    lock.flags = flags;
    return lock;
}

static void test_o11_ranges_and_modes(void) {
    iov_collection *a = new_collection(w, "modes", NULL), *b = look_up(w, "modes");
    iov_lock_attr x = lock_of(IOV_LOCK_EXCLUSIVE, 0, 10, 0), y = lock_of(IOV_LOCK_EXCLUSIVE, 5, 10, IOV_LOCK_TRY);
    iov_lock_attr found = IOV_LOCK_ATTR_INIT;
    OK(iov_lock(NULL, a, &x));
    OK(iov_lock(NULL, a, &x)); /* the owner's own is not in the way */
    FAILS(BUSY, iov_lock(NULL, b, &y));
    OK(iov_lock_query(NULL, b, &y, &found));
    CHECK(found.mode == IOV_LOCK_EXCLUSIVE && found.range.offset == 0 && found.range.len == 10 && found.owner != 0);
    y.range.offset = 10;
    OK(iov_lock(NULL, b, &y));
    FAILS(NOTFOUND, iov_lock_query(NULL, b, &y, &found));
    write_text(b, 0, "reads and writes do not look at locks");
    OK(iov_unlock(NULL, a, &x));
    y.range.offset = 0;
    y.range.len = 0; /* to the end, wherever that moves */
    OK(iov_lock(NULL, b, &y));
    x = lock_of(IOV_LOCK_SHARED, UINT64_C(1) << 40, 1, IOV_LOCK_TRY);
    FAILS(BUSY, iov_lock(NULL, a, &x));
    y.mode = IOV_LOCK_SHARED;
    OK(iov_lock(NULL, b, &y));
    OK(iov_lock(NULL, a, &x));
    OK(iov_collection_close(NULL, a));
    OK(iov_collection_close(NULL, b));
}

static void test_o11_owners_within_a_session(void) {
    iov_collection *c = new_collection(w, "owners", NULL);
    iov_lock_attr x = lock_of(IOV_LOCK_EXCLUSIVE, 0, 0, IOV_LOCK_TRY), found = IOV_LOCK_ATTR_INIT;
    x.owner = 1;
    OK(iov_lock(NULL, c, &x));
    x.owner = 2;
    FAILS(BUSY, iov_lock(NULL, c, &x));
    OK(iov_lock_query(NULL, c, &x, &found));
    CHECK(found.owner == 1);
    x.owner = 1;
    OK(iov_unlock(NULL, c, &x));
    x.owner = 2;
    OK(iov_lock(NULL, c, &x));
    OK(iov_collection_close(NULL, c));
}

static void test_o11_locks_of_a_handle_end_with_it(void) {
    iov_collection *a = new_collection(w, "ends", NULL), *b = look_up(w, "ends"), *d = look_up(w, "ends");
    iov_lock_attr x = lock_of(IOV_LOCK_EXCLUSIVE, 0, 0, IOV_LOCK_TRY);
    iov_batch *batch = new_batch(s, 0);
    OK(iov_lock(NULL, a, &x));
    FAILS(BUSY, iov_lock(NULL, b, &x));
    OK(iov_collection_close(NULL, a));
    OK(iov_lock(NULL, b, &x));
    FAILS(BUSY, iov_lock(NULL, d, &x));
    OK(iov_collection_close(batch, b));
    OK(finish(batch));
    OK(iov_lock(NULL, d, &x));
    OK(iov_batch_free(batch));
    OK(iov_collection_close(NULL, d));
}

static iov_collection *waiter;
static int waited;

static void *wait_for_lock(void *arg) {
    iov_lock_attr x = lock_of(IOV_LOCK_EXCLUSIVE, 0, 0, 0);
    OK(iov_lock(NULL, waiter, &x));
    __atomic_store_n(&waited, 1, __ATOMIC_SEQ_CST);
    return arg;
}

static void test_a_waiting_lock_is_handed_over(void) {
    iov_collection *a = new_collection(w, "waiting", NULL);
    iov_lock_attr x = lock_of(IOV_LOCK_EXCLUSIVE, 0, 0, 0);
    pthread_t thread;
    waiter = look_up(w, "waiting");
    OK(iov_lock(NULL, a, &x));
    CHECK(pthread_create(&thread, NULL, wait_for_lock, NULL) == 0);
    usleep(50000);
    CHECK(!__atomic_load_n(&waited, __ATOMIC_SEQ_CST));
    write_text(a, 0, "others go on meanwhile");
    OK(iov_unlock(NULL, a, &x));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(waited);
    OK(iov_collection_close(NULL, a));
    OK(iov_collection_close(NULL, waiter));
}

static void test_o8_a_waiting_lock_ends_with_its_deadline(void) {
    iov_collection *a = new_collection(w, "deadline", NULL), *b = look_up(w, "deadline");
    iov_lock_attr x = lock_of(IOV_LOCK_EXCLUSIVE, 0, 0, 0);
    iov_batch_attr attr = IOV_BATCH_ATTR_INIT;
    iov_batch *batch = NULL;
    iov_request *r = NULL;
    iov_status status;
    int done = 7;
    OK(iov_lock(NULL, a, &x));
    attr.deadline_ns = 200000000;
    OK(iov_batch_create(s, &attr, &batch));
    OK(iov_lock(batch, b, &x));
    OK(iov_batch_start(batch, &r));
    FAILS(TIMEOUT, iov_wait(r, 1000000));
    {
        iov_status last = IOV_STATUS_INIT;
        OK(iov_error_last(&last));
        CHECK(last.outcome == IOV_OUTCOME_PENDING);
    }
    OK(iov_test(r, &done));
    CHECK(done == 0);
    FAILS(BUSY, iov_request_free(r));
    FAILS(BUSY, iov_batch_free(batch));
    FAILS(BUSY, iov_batch_reset(batch));
    FAILS(BUSY, iov_close(s));
    {
        iov_status early = IOV_STATUS_INIT;
        FAILS(BUSY, iov_batch_status(batch, 0, &early));
    }
    FAILS(PARTIAL, iov_wait(r, -1));
    status = status_of(batch, 0);
    CHECK(status.code == -IOV_ETIMEOUT && status.state == IOV_OP_FAILED);
    OK(iov_request_free(r));
    OK(iov_batch_reset(batch));

    attr.deadline_ns = 0; /* and with a cancel */
    OK(iov_batch_free(batch));
    OK(iov_batch_create(s, &attr, &batch));
    OK(iov_lock(batch, b, &x));
    OK(iov_append(batch, b, "behind the lock", 15, NULL));
    OK(iov_batch_start(batch, &r));
    FAILS(TIMEOUT, iov_wait(r, 1000000));
    OK(iov_cancel(r));
    OK(iov_unlock(NULL, a, &x));
    CHECK(iov_wait(r, -1) == -IOV_EPARTIAL || size_of(b) == 15);
    OK(iov_request_free(r));
    OK(iov_batch_free(batch));
    OK(iov_collection_close(NULL, a));
    OK(iov_collection_close(NULL, b));
}

int main(void) {
    s = open_store("mem:locks");
    w = new_workspace(s, "ws");
    RUN(test_o11_ranges_and_modes);
    RUN(test_o11_owners_within_a_session);
    RUN(test_o11_locks_of_a_handle_end_with_it);
    RUN(test_a_waiting_lock_is_handed_over);
    RUN(test_o8_a_waiting_lock_ends_with_its_deadline);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    return 0;
}
