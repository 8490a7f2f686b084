/* SPDX-License-Identifier: Apache-2.0 */
/* T15 in a light form: rollback batches over two collections, a name and metadata, every third with an operation that
 * fails, while an observer reads everything in one order again and again. Once it got a new value it gets no old one,
 * and nothing of a batch that failed is ever seen. */
#include "test.h"

static iov_session *writer_session, *observer_session;
static iov_workspace *writer_space, *observer_space;
static int done;
static uint64_t batches; /* a multiple of three, so that the last one fails */

static void name_of(char *name, size_t size, const char *level, uint64_t i) {
    snprintf(name, size, "T15 %s %d", level, (int)i);
}

typedef struct {
    const char *level;
    uint64_t observations, moved;
} observation;

static void write_batches(const char *level, iov_collection *a, iov_collection *b) {
    iov_batch *batch = new_batch(writer_session, IOV_ON_ERROR_ROLLBACK);
    uint64_t i, last = 0;
    for (i = 1; i <= batches; i++) {
        iov_metadata *md = iov_metadata_new();
        int fails = i % 3 == 0;
        uint64_t value = fails ? UINT64_MAX : i;
        char from[48], to[48];
        name_of(from, sizeof from, level, last);
        name_of(to, sizeof to, level, i);
        OK(iov_metadata_set_i64(md, "k", (int64_t)value));
        OK(iov_write(batch, a, 0, &value, sizeof value));
        OK(iov_write(batch, b, 0, &value, sizeof value));
        OK(iov_metadata_put(batch, b, md));
        OK(iov_rename(batch, writer_space, NULL, from, NULL, to, 0));
        if (fails) {
            OK(iov_collection_delete(batch, writer_space, NULL, "no such name"));
            FAILS(PARTIAL, finish(batch));
            CHECK(status_of(batch, 0).state == IOV_OP_UNDONE && status_of(batch, 4).state == IOV_OP_FAILED);
        } else {
            OK(finish(batch));
            last = i;
        }
        OK(iov_batch_reset(batch));
        iov_metadata_free(md);
    }
    OK(iov_batch_free(batch));
}

static uint64_t bytes_of(iov_collection *c) {
    uint64_t value = 0;
    size_t got = 0;
    OK(iov_read(NULL, c, 0, &value, sizeof value, &got));
    CHECK(got == sizeof value && value <= batches);
    return value;
}

static uint64_t key_of(iov_collection *c) {
    iov_value v = IOV_VALUE_INIT;
    OK(iov_metadata_get(NULL, c, "k", &v));
    CHECK(v.type == IOV_TYPE_I64 && v.i64 >= 0 && (uint64_t)v.i64 <= batches);
    return (uint64_t)v.i64;
}

static void *observe(void *arg) {
    observation *seen = (observation *)arg;
    iov_collection *a, *b;
    uint64_t newest = 0;
    char name[48];
    snprintf(name, sizeof name, "A %s", seen->level);
    a = look_up(observer_space, name);
    snprintf(name, sizeof name, "B %s", seen->level);
    b = look_up(observer_space, name);
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        iov_collection *named = NULL;
        uint64_t values[3];
        int i, code;
        values[0] = bytes_of(a);
        values[1] = bytes_of(b);
        values[2] = key_of(b);
        for (i = 0; i < 3; i++) {
            CHECK(values[i] >= newest);
            seen->moved += values[i] > newest;
            newest = values[i];
        }
        name_of(name, sizeof name, seen->level, newest);
        code = iov_collection_lookup(NULL, observer_space, NULL, name, NULL, &named);
        CHECK(code == 0 || code == -IOV_ENOTFOUND);
        if (code != 0) {
            uint64_t now = key_of(b); /* a newer batch must have renamed it meanwhile */
            CHECK(now > newest);
            newest = now;
        }
        OK(iov_collection_close(NULL, named));
        seen->observations++;
    }
    OK(iov_collection_close(NULL, a));
    OK(iov_collection_close(NULL, b));
    return NULL;
}

static void run_at(const char *level) {
    observation seen = {level, 0, 0};
    iov_metadata *md = iov_metadata_new();
    iov_collection *a, *b;
    pthread_t observer;
    char name[48], controls[48];
    uint64_t zero = 0;
    snprintf(controls, sizeof controls, "consistency=%s", level);
    snprintf(name, sizeof name, "A %s", level);
    a = new_collection(writer_space, name, controls);
    snprintf(name, sizeof name, "B %s", level);
    b = new_collection(writer_space, name, controls);
    OK(iov_metadata_set_i64(md, "k", 0));
    OK(iov_metadata_put(NULL, b, md));
    iov_metadata_free(md);
    OK(iov_write(NULL, a, 0, &zero, sizeof zero));
    OK(iov_write(NULL, b, 0, &zero, sizeof zero));
    OK(iov_commit(NULL, a));
    OK(iov_commit(NULL, b));
    name_of(name, sizeof name, level, 0);
    OK(iov_collection_close(NULL, new_collection(writer_space, name, NULL)));
    done = 0;
    CHECK(pthread_create(&observer, NULL, observe, &seen) == 0);
    write_batches(level, a, b);
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(observer, NULL) == 0);
    CHECK(bytes_of(a) == batches - 1 && bytes_of(b) == batches - 1 && key_of(b) == batches - 1);
    printf("    > T15 %-10s %d batches, %d observations, %d of them new: never an old value after a new one\n", level,
           (int)batches, (int)seen.observations, (int)seen.moved);
    OK(iov_collection_close(NULL, a));
    OK(iov_collection_close(NULL, b));
}

static void test_t15_rollback_light(void) {
    run_at("sequential");
    run_at("commit");
    run_at("session");
}

static void test_b3_refused_on_eventual(void) {
    iov_collection *c = new_collection(writer_space, "T15 eventual", "consistency=eventual(1ms)");
    iov_batch *batch = new_batch(writer_session, IOV_ON_ERROR_ROLLBACK);
    OK(iov_append(batch, c, "x", 1, NULL));
    FAILS(PARTIAL, finish(batch));
    CHECK(status_of(batch, 0).code == -IOV_EREFUSED && strcmp(status_of(batch, 0).clause, "B3") == 0);
    expect_text(__FILE__, __LINE__, status_of(batch, 0).detail, "offer");
    CHECK(size_of(c) == 0);
    OK(iov_batch_free(batch));
    OK(iov_collection_close(NULL, c));
}

int main(void) {
    batches = (uint64_t)repeats(600, 1500);
    writer_session = open_store("mem:litmus");
    observer_session = open_store("mem:litmus");
    writer_space = new_workspace(writer_session, "ws");
    OK(iov_workspace_load(observer_session, "ws", &observer_space));
    RUN(test_t15_rollback_light);
    RUN(test_b3_refused_on_eventual);
    OK(iov_workspace_close(writer_space));
    OK(iov_workspace_close(observer_space));
    OK(iov_close(writer_session));
    OK(iov_close(observer_session));
    return 0;
}
