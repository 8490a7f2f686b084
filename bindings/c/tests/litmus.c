/* SPDX-License-Identifier: Apache-2.0 */
/* The litmus programs T1 to T8, T13, T14 and T20 on a store of memory, each client a thread with a session of its own.
 * Forbidden outcomes fail; outcomes that a weaker level allows are counted. */
#include "test.h"

#include <sched.h>

#define MAX_ROUNDS 3000
#define LEVELS 4

static const char *const levels[LEVELS] = {"sequential", "commit", "session", "eventual(1ms)"};
enum { SEQUENTIAL, COMMIT, SESSION, EVENTUAL };

/* What the two clients of a program share. */
static iov_session *sessions[3];
static iov_workspace *spaces[3];
static iov_collection *a[3], *b[3];
static pthread_barrier_t barrier;
static int level, message, rounds;
static uint64_t r1[MAX_ROUNDS + 1], r2[MAX_ROUNDS + 1];
static char name_a[32], name_b[32];

static void meet(void) {
    int code = pthread_barrier_wait(&barrier);
    CHECK(code == 0 || code == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* Some nanoseconds more or less, so that the clients meet in different ways. */
static void jitter(uint64_t i, int client) {
    volatile unsigned spin = (unsigned)((i * 2654435761u >> (client * 3)) & 0x1ff);
    while (spin > 0) {
        spin = spin - 1;
    }
}

static void put(iov_collection *c, uint64_t value) {
    OK(iov_write(NULL, c, 0, &value, sizeof value));
}

static uint64_t get(iov_collection *c) {
    uint64_t value = 0;
    size_t got = 0;
    OK(iov_read(NULL, c, 0, &value, sizeof value, &got));
    CHECK(got == sizeof value);
    return value;
}

static void open_pair(int client) {
    a[client] = look_up(spaces[client], name_a);
    b[client] = look_up(spaces[client], name_b);
}

static void close_pair(int client) {
    OK(iov_collection_close(NULL, a[client]));
    OK(iov_collection_close(NULL, b[client]));
}

typedef void (*program)(uint64_t round);
static program programs[2];

static void *client(void *arg) {
    int me = *(int *)arg;
    uint64_t i;
    for (i = 1; i <= (uint64_t)rounds; i++) {
        meet();
        jitter(i, me);
        programs[me](i);
        meet();
    }
    return NULL;
}

/* Runs two programs against each other on fresh collections at one level. */
static void run(const char *test, int at, program one, program two) {
    pthread_t threads[2];
    char controls[64];
    int me[2] = {0, 1}, i;
    level = at;
    message = 0;
    programs[0] = one;
    programs[1] = two;
    snprintf(name_a, sizeof name_a, "%s-%d-A", test, at);
    snprintf(name_b, sizeof name_b, "%s-%d-B", test, at);
    snprintf(controls, sizeof controls, "consistency=%s", levels[at]);
    OK(iov_collection_close(NULL, new_collection(spaces[2], name_a, controls)));
    OK(iov_collection_close(NULL, new_collection(spaces[2], name_b, controls)));
    for (i = 0; i < 3; i++) {
        open_pair(i);
    }
    put(a[2], 0);
    put(b[2], 0);
    OK(iov_commit(NULL, a[2]));
    OK(iov_commit(NULL, b[2]));
    for (i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, client, &me[i]) == 0);
    }
    for (i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (i = 0; i < 3; i++) {
        close_pair(i);
    }
}

/* Reports how often an outcome came; `from` is the first level that allows it, LEVELS if none does. */
static void judge(const char *test, int at, int count, int from) {
    printf("    > %s %-13s %d of %d%s\n", test, levels[at], count, rounds, at < from ? " (forbidden)" : " (allowed)");
    CHECK(at >= from || count == 0);
}

static void send(int what) {
    __atomic_store_n(&message, what, __ATOMIC_RELEASE);
}

static void receive(int what) {
    while (__atomic_load_n(&message, __ATOMIC_ACQUIRE) != what) {
        sched_yield();
    }
}

static void nothing(uint64_t i) {
    (void)i;
}

/* T1: a client reads what it wrote. */
static void t1_client(uint64_t i) {
    put(a[0], i);
    r1[i] = get(a[0]);
}

static void test_t1_read_your_writes(void) {
    int at, i;
    for (at = 0; at < LEVELS; at++) {
        int wrong = 0;
        run("T1", at, t1_client, nothing);
        for (i = 1; i <= rounds; i++) {
            wrong += r1[i] != (uint64_t)i;
        }
        judge("T1", at, wrong, LEVELS);
    }
}

/* T2: what one handle has read it never unreads. */
static void t2_writer(uint64_t i) {
    put(a[0], i);
}

static void t2_reader(uint64_t i) {
    r1[i] = get(a[1]);
    r2[i] = get(a[1]);
}

static void test_t2_monotonic_reads(void) {
    int at, i;
    for (at = 0; at < LEVELS; at++) {
        int wrong = 0;
        run("T2", at, t2_writer, t2_reader);
        for (i = 1; i <= rounds; i++) {
            wrong += r2[i] < r1[i] || (i > 1 && r1[i] < r2[i - 1]);
        }
        judge("T2", at, wrong, LEVELS);
    }
}

/* T3: store buffering. */
static void t3_one(uint64_t i) {
    put(a[0], i);
    r1[i] = get(b[0]);
}

static void t3_two(uint64_t i) {
    put(b[1], i);
    r2[i] = get(a[1]);
}

static void test_t3_store_buffering(void) {
    int at, i;
    for (at = 0; at < LEVELS; at++) {
        int weak = 0;
        run("T3", at, t3_one, t3_two);
        for (i = 1; i <= rounds; i++) {
            weak += r1[i] < (uint64_t)i && r2[i] < (uint64_t)i;
        }
        judge("T3", at, weak, COMMIT);
    }
}

/* T4: message passing without synchronisation. */
static void t4_writer(uint64_t i) {
    put(a[0], i);
    put(b[0], i);
}

static void t4_reader(uint64_t i) {
    r1[i] = get(b[1]);
    r2[i] = get(a[1]);
}

static void test_t4_message_passing(void) {
    int at, i;
    for (at = 0; at < LEVELS; at++) {
        int weak = 0;
        run("T4", at, t4_writer, t4_reader);
        for (i = 1; i <= rounds; i++) {
            weak += r1[i] == (uint64_t)i && r2[i] < (uint64_t)i;
        }
        judge("T4", at, weak, COMMIT);
    }
}

/* T5: a write has completed, a message says so, the other reads. T6: with a commit before the message. */
static void t5_writer(uint64_t i) {
    put(a[0], i);
    send((int)i);
}

static void t5_reader(uint64_t i) {
    receive((int)i);
    r1[i] = get(a[1]);
}

static void t6_writer(uint64_t i) {
    put(a[0], i);
    OK(iov_commit(NULL, a[0]));
    send((int)i);
}

static int older(void) {
    int i, n = 0;
    for (i = 1; i <= rounds; i++) {
        n += r1[i] < (uint64_t)i;
    }
    return n;
}

static void test_t5_real_time(void) {
    int at;
    for (at = 0; at < LEVELS; at++) {
        run("T5", at, t5_writer, t5_reader);
        judge("T5", at, older(), COMMIT);
    }
}

static void test_t6_commit(void) {
    int at;
    for (at = 0; at < LEVELS; at++) {
        run("T6", at, t6_writer, t5_reader);
        judge("T6", at, older(), SESSION);
    }
}

/* T7: close, message, open. */
static void t7_writer(uint64_t i) {
    iov_collection *c = look_up(spaces[0], name_a);
    put(c, i);
    OK(iov_collection_close(NULL, c));
    send((int)i);
}

static void t7_reader(uint64_t i) {
    iov_collection *c;
    receive((int)i);
    c = look_up(spaces[1], name_a);
    r1[i] = get(c);
    OK(iov_collection_close(NULL, c));
}

static void test_t7_close_and_open(void) {
    int at;
    for (at = 0; at < LEVELS; at++) {
        run("T7", at, t7_writer, t7_reader);
        judge("T7", at, older(), EVENTUAL);
    }
}

/* T8: two write, both publish; then everybody who opens anew sees the same. */
static void t8_writer(int me, uint64_t i) {
    put(a[me], 2 * i + (uint64_t)me);
    OK(iov_commit(NULL, a[me]));
}

static void t8_check(uint64_t i) {
    uint64_t first = 0;
    int k;
    for (k = 0; k < 4; k++) {
        iov_collection *c = look_up(spaces[k % 3], name_a);
        uint64_t value = get(c);
        OK(iov_collection_close(NULL, c));
        CHECK(value == 2 * i || value == 2 * i + 1);
        CHECK(k == 0 || value == first || level == EVENTUAL); /* there, only after T do they have to agree */
        first = value;
    }
}

static void t8_one(uint64_t i) {
    t8_writer(0, i);
    meet();
    t8_check(i);
    meet();
}

static void t8_two(uint64_t i) {
    t8_writer(1, i);
    meet();
    meet();
}

static void test_t8_convergence(void) {
    int at;
    for (at = 0; at < LEVELS; at++) {
        run("T8", at, t8_one, t8_two);
        judge("T8", at, 0, LEVELS);
    }
}

/* T13: two clients create one name: exactly one wins. */
static void create_name(int me, uint64_t i) {
    char name[48];
    iov_collection *c = NULL;
    int code;
    snprintf(name, sizeof name, "T13-%d-%d", level, (int)i);
    code = iov_collection_create(NULL, spaces[me], NULL, name, NULL, NULL, &c);
    CHECK(code == 0 || code == -IOV_EEXISTS);
    (me == 0 ? r1 : r2)[i] = code == 0;
    OK(iov_collection_close(NULL, c));
}

static void t13_one(uint64_t i) {
    create_name(0, i);
}

static void t13_two(uint64_t i) {
    create_name(1, i);
}

static void test_t13_names(void) {
    int i, wrong = 0, second = 0;
    run("T13", SEQUENTIAL, t13_one, t13_two);
    for (i = 1; i <= rounds; i++) {
        wrong += r1[i] + r2[i] != 1;
        second += r2[i] == 1;
    }
    printf("    > T13 the second client won %d of %d\n", second, rounds);
    judge("T13", SEQUENTIAL, wrong, LEVELS);
}

/* T14: created and published, it is found; deleted and published, it is never found again. */
static int found(int me, uint64_t i) {
    iov_search_attr attr = IOV_SEARCH_ATTR_INIT;
    iov_value param = IOV_VALUE_INIT;
    iov_cursor *cur = NULL;
    iov_entry entry = IOV_ENTRY_INIT;
    size_t n = 0;
    param.type = IOV_TYPE_I64;
    param.i64 = (int64_t)i;
    attr.params = &param;
    attr.param_count = 1;
    OK(iov_collection_search(NULL, spaces[me], "t14 = ?", &attr, &cur));
    OK(iov_cursor_next(cur, &entry, 1, &n, -1));
    OK(iov_cursor_close(cur));
    return (int)n;
}

static void t14_writer(uint64_t i) {
    char name[48];
    iov_metadata *md = iov_metadata_new();
    iov_collection *c = NULL;
    snprintf(name, sizeof name, "T14-%d", (int)i);
    OK(iov_metadata_set_i64(md, "t14", (int64_t)i));
    OK(iov_collection_create(NULL, spaces[0], NULL, name, md, NULL, &c));
    iov_metadata_free(md);
    OK(iov_collection_close(NULL, c));
    OK(iov_workspace_commit(NULL, spaces[0]));
    send((int)(3 * i));
    receive((int)(3 * i + 1));
    OK(iov_collection_delete(NULL, spaces[0], NULL, name));
    OK(iov_workspace_commit(NULL, spaces[0]));
    send((int)(3 * i + 2));
}

static void t14_reader(uint64_t i) {
    receive((int)(3 * i));
    r1[i] = (uint64_t)found(1, i);
    send((int)(3 * i + 1));
    receive((int)(3 * i + 2));
    r2[i] = (uint64_t)found(1, i);
}

static void test_t14_search(void) {
    int i, wrong = 0;
    run("T14", SEQUENTIAL, t14_writer, t14_reader);
    for (i = 1; i <= rounds; i++) {
        wrong += r1[i] != 1 || r2[i] != 0;
    }
    judge("T14", SEQUENTIAL, wrong, LEVELS);
}

/* T20: in a batch, a read sees the batch's earlier write. */
static iov_batch *in_batch[2];

static void write_then_read(int me, uint64_t i) {
    iov_collection *c = me == 0 ? a[0] : b[1];
    uint64_t seen = 0;
    size_t got = 0;
    OK(iov_write(in_batch[me], c, 0, &i, sizeof i));
    OK(iov_read(in_batch[me], c, 0, &seen, sizeof seen, &got));
    OK(finish(in_batch[me]));
    OK(iov_batch_reset(in_batch[me]));
    (me == 0 ? r1 : r2)[i] = got == sizeof seen && seen == i;
}

static void t20_one(uint64_t i) {
    write_then_read(0, i);
}

static void t20_two(uint64_t i) {
    write_then_read(1, i);
}

static void test_t20_in_batch(void) {
    int at, i;
    for (at = 0; at < LEVELS; at++) {
        int wrong = 0;
        in_batch[0] = new_batch(sessions[0], 0);
        in_batch[1] = new_batch(sessions[1], 0);
        run("T20", at, t20_one, t20_two);
        for (i = 1; i <= rounds; i++) {
            wrong += r1[i] + r2[i] != 2;
        }
        OK(iov_batch_free(in_batch[0]));
        OK(iov_batch_free(in_batch[1]));
        judge("T20", at, wrong, LEVELS);
    }
}

int main(void) {
    static const char *const indexes[] = {"t14"};
    iov_workspace_attr attr = IOV_WORKSPACE_ATTR_INIT;
    int i;
    attr.indexes = indexes;
    attr.index_count = 1;
    rounds = repeats(800, MAX_ROUNDS);
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    for (i = 0; i < 3; i++) {
        sessions[i] = open_store("mem:litmus");
        if (i == 0) {
            OK(iov_workspace_create(sessions[i], "ws", &attr, &spaces[i]));
        } else {
            OK(iov_workspace_load(sessions[i], "ws", &spaces[i]));
        }
    }
    RUN(test_t1_read_your_writes);
    RUN(test_t2_monotonic_reads);
    RUN(test_t3_store_buffering);
    RUN(test_t4_message_passing);
    RUN(test_t5_real_time);
    RUN(test_t6_commit);
    RUN(test_t7_close_and_open);
    RUN(test_t8_convergence);
    RUN(test_t13_names);
    RUN(test_t14_search);
    RUN(test_t20_in_batch);
    for (i = 0; i < 3; i++) {
        OK(iov_workspace_close(spaces[i]));
        OK(iov_close(sessions[i]));
    }
    pthread_barrier_destroy(&barrier);
    return 0;
}
