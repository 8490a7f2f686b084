/* SPDX-License-Identifier: Apache-2.0 */
/* Rule 7: after fork, handles are the parent's; the child opens its own, also while the parent's threads were busy. */
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS 150

static iov_session *s;
static iov_workspace *w;
static iov_collection *c, *g;
static iov_batch *b, *unstarted;
static iov_request *r;
static iov_cursor *cur;
static iov_metadata *md;
static void *buffer;
static int stop;

static void every_handle_is_the_parents(void) {
    iov_counters counters = IOV_COUNTERS_INIT;
    iov_completion completion = IOV_COMPLETION_INIT;
    iov_controls controls = IOV_CONTROLS_INIT;
    iov_stat stat = IOV_STAT_INIT;
    iov_value value = IOV_VALUE_INIT;
    iov_entry entry = IOV_ENTRY_INIT;
    iov_status status = IOV_STATUS_INIT;
    iov_handle handle = IOV_HANDLE_INIT;
    iov_workspace *w2 = NULL;
    iov_collection *c2 = NULL;
    iov_batch *b2 = NULL;
    iov_request *r2 = NULL;
    iov_metadata *md2 = NULL;
    void *p = NULL;
    char buf[64];
    size_t n = 0;
    int done = 0;
    FAILS(FORKED, iov_session_counters(s, &counters));
    FAILS(FORKED, iov_poll(s, &completion, 1, &n, 0));
    FAILS(FORKED, iov_event_fd(s));
    FAILS(FORKED, iov_workspace_create(s, "x", NULL, &w2));
    FAILS(FORKED, iov_workspace_load(s, "ws", &w2));
    FAILS(FORKED, iov_workspace_delete(s, "ws"));
    FAILS(FORKED, iov_controls_check(s, NULL, &controls, &controls));
    FAILS(FORKED, iov_batch_create(s, NULL, &b2));
    FAILS(FORKED, iov_buffer_alloc(s, 10, NULL, &p));
    FAILS(FORKED, iov_buffer_free(s, buffer));
    FAILS(FORKED, iov_close(s));
    handle.kind = IOV_KIND_SESSION;
    handle.session = s;
    FAILS(FORKED, iov_handle_export(&handle, buf, sizeof buf, &n));

    FAILS(FORKED, iov_workspace_stat(NULL, w, &stat));
    FAILS(FORKED, iov_collection_create(NULL, w, NULL, "x", NULL, NULL, &c2));
    FAILS(FORKED, iov_workspace_close(w));

    FAILS(FORKED, iov_write(NULL, c, 0, "x", 1));
    FAILS(FORKED, iov_read(NULL, c, 0, buf, 1, &n));
    FAILS(FORKED, iov_write(b, c, 0, "x", 1));
    FAILS(FORKED, iov_collection_stat(NULL, g, &stat));
    FAILS(FORKED, iov_controls_effective(c, &controls));
    FAILS(FORKED, iov_metadata_get(NULL, c, "k", &value));
    FAILS(FORKED, iov_metadata_list(NULL, c, &md2));
    FAILS(FORKED, iov_collection_close(NULL, c));
    FAILS(FORKED, iov_collection_close(unstarted, c));

    FAILS(FORKED, iov_batch_barrier(unstarted));
    FAILS(FORKED, iov_batch_start(unstarted, &r2));
    FAILS(FORKED, iov_batch_status(b, 0, &status));
    FAILS(FORKED, iov_explain(unstarted, buf, sizeof buf, &n));
    FAILS(FORKED, iov_batch_reset(b));
    FAILS(FORKED, iov_batch_free(b));
    CHECK(iov_batch_count(unstarted) == 0);

    FAILS(FORKED, iov_wait(r, -1));
    FAILS(FORKED, iov_test(r, &done));
    FAILS(FORKED, iov_cancel(r));
    FAILS(FORKED, iov_request_free(r));

    FAILS(FORKED, iov_cursor_next(cur, &entry, 1, &n, -1));
    FAILS(FORKED, iov_cursor_close(cur));

    FAILS(FORKED, iov_metadata_set_i64(md, "k", 1));
    FAILS(FORKED, iov_metadata_find(md, "k", &value));
    CHECK(iov_metadata_count(md) == 0);
    iov_metadata_free(md);
    ((char *)buffer)[0] = 'c'; /* memory of its own by now */
}

static void the_child_opens_its_own(void) {
    iov_session *t = open_store("mem:fork");
    iov_workspace *v = NULL;
    iov_collection *d;
    iov_metadata *own = iov_metadata_new();
    iov_batch *batch;
    char name[32];
    FAILS(NOTFOUND, iov_workspace_load(t, "ws", &v)); /* memory stores are their process's */
    v = new_workspace(t, "child");
    snprintf(name, sizeof name, "of %d", (int)getpid());
    d = new_collection(v, name, NULL);
    write_text(d, 0, "child");
    expect_bytes(d, 0, "child");
    OK(iov_metadata_set_i64(own, "k", 1));
    OK(iov_metadata_put(NULL, d, own));
    iov_metadata_free(own);
    batch = new_batch(t, IOV_ON_ERROR_ROLLBACK);
    OK(iov_append(batch, d, "!", 1, NULL));
    OK(finish(batch));
    OK(iov_batch_free(batch));
    OK(iov_collection_close(NULL, d));
    OK(iov_workspace_close(v));
    OK(iov_close(t));
}

static void in_a_child(void (*body)(void)) {
    int status = 0;
    pid_t child;
    fflush(NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60); /* a deadlock is a failure */
        body();
        fflush(NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "the child ended with status %#x%s\n", (unsigned)status,
                WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it hung" : "");
        exit(1);
    }
}

static void everything(void) {
    every_handle_is_the_parents();
    the_child_opens_its_own();
    every_handle_is_the_parents();
}

static void test_t23_fork(void) {
    iov_stat stat = IOV_STAT_INIT;
    in_a_child(everything);
    OK(iov_collection_stat(NULL, c, &stat)); /* the parent has lost nothing */
    CHECK(iov_batch_count(unstarted) == 1 && iov_metadata_count(md) == 1);
}

static void grandchild(void) {
    iov_session *t = open_store("mem:fork");
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        iov_counters counters = IOV_COUNTERS_INIT;
        FAILS(FORKED, iov_session_counters(t, &counters));
        everything();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(iov_close(t));
}

static void test_t23_fork_in_a_fork(void) {
    in_a_child(grandchild);
}

static void nothing_to_log(void *ctx, uint32_t level, const char *line) {
    (void)ctx;
    (void)level;
    (void)line;
}

/* Keeps every lock of the library busy. */
static void *be_busy(void *arg) {
    int which = *(int *)arg;
    unsigned i;
    for (i = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i++) {
        char name[32], buf[64];
        snprintf(name, sizeof name, "busy %d %u", which, i);
        if (which == 0) {
            iov_collection *d = new_collection(w, name, NULL);
            write_text(d, 0, name);
            OK(iov_collection_close(NULL, d));
            OK(iov_collection_delete(NULL, w, NULL, name));
        } else if (which == 1) {
            iov_session *t = NULL;
            snprintf(name, sizeof name, "mem:busy%u", i % 50);
            t = open_store(name);
            OK(iov_close(t));
            OK(iov_log_set(IOV_LOG_INFO, i % 2 ? nothing_to_log : NULL, NULL));
        } else if (which == 2) {
            iov_cursor *found = NULL;
            iov_entry entry = IOV_ENTRY_INIT;
            size_t n = 0;
            OK(iov_write(NULL, c, i % 100, name, strlen(name)));
            OK(iov_read(NULL, c, i % 100, buf, sizeof buf, &n));
            OK(iov_collection_search(NULL, w, "iov.name ~ \"busy*\"", NULL, &found));
            OK(iov_cursor_next(found, &entry, 1, &n, -1));
            OK(iov_cursor_close(found));
        } else {
            iov_batch_attr attr = IOV_BATCH_ATTR_INIT;
            iov_batch *mine = NULL;
            void *p = NULL;
            attr.progress = IOV_PROGRESS_BACKGROUND;
            OK(iov_batch_create(s, &attr, &mine));
            OK(iov_write(mine, c, 0, "x", 1));
            OK(finish(mine));
            OK(iov_batch_free(mine));
            OK(iov_buffer_alloc(s, 100, NULL, &p));
            OK(iov_buffer_free(s, p));
        }
    }
    return NULL;
}

static void test_t23_fork_while_threads_are_busy(void) {
    pthread_t threads[4];
    int which[4], i;
    for (i = 0; i < 4; i++) {
        which[i] = i;
        CHECK(pthread_create(&threads[i], NULL, be_busy, &which[i]) == 0);
    }
    for (i = 0; i < FORKS; i++) {
        in_a_child(everything);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    printf("    > %d forks while 4 threads were inside the library\n", FORKS);
}

int main(void) {
    s = open_store("mem:fork");
    w = new_workspace(s, "ws");
    c = new_collection(w, "c", NULL);
    OK(iov_group_create(NULL, w, NULL, "g", NULL, NULL, &g));
    b = new_batch(s, 0);
    OK(iov_append(b, c, "x", 1, NULL));
    OK(iov_batch_start(b, &r));
    OK(iov_wait(r, -1));
    unstarted = new_batch(s, 0);
    OK(iov_append(unstarted, c, "x", 1, NULL));
    OK(iov_collection_search(NULL, w, NULL, NULL, &cur));
    md = iov_metadata_new();
    OK(iov_metadata_set_i64(md, "k", 1));
    OK(iov_buffer_alloc(s, 100, NULL, &buffer));
    RUN(test_t23_fork);
    RUN(test_t23_fork_in_a_fork);
    RUN(test_t23_fork_while_threads_are_busy);
    OK(iov_buffer_free(s, buffer));
    OK(iov_batch_free(unstarted));
    OK(iov_request_free(r));
    OK(iov_batch_free(b));
    OK(iov_cursor_close(cur));
    OK(iov_collection_close(NULL, c));
    OK(iov_collection_close(NULL, g));
    iov_metadata_free(md);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    return 0;
}
