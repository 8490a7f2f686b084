/* SPDX-License-Identifier: Apache-2.0 */
/* Memory without copies: buffers and views. */
#include "test.h"

static void test_alloc(void) {
    iov_session *s = open_store("mem:buffers");
    iov_workspace *w = new_workspace(s, "ws");
    iov_collection *c = new_collection(w, "c", NULL);
    iov_buffer_attr attr = IOV_BUFFER_ATTR_INIT;
    void *p = NULL, *q = NULL;
    size_t got = 0;
    OK(iov_buffer_alloc(s, 100000, NULL, &p));
    CHECK(((uintptr_t)p & 4095) == 0);
    memset(p, 'b', 100000);
    OK(iov_write(NULL, c, 0, p, 100000));
    memset(p, 0, 100000);
    OK(iov_read(NULL, c, 0, p, 100000, &got));
    CHECK(got == 100000 && ((char *)p)[99999] == 'b');
    attr.alignment = 1 << 21;
    OK(iov_buffer_alloc(s, 5, &attr, &q));
    CHECK(((uintptr_t)q & ((1 << 21) - 1)) == 0);
    ((char *)q)[4] = 'x';
    OK(iov_buffer_free(s, q));
    FAILS(INVALID, iov_buffer_free(s, q));
    FAILS(INVALID, iov_buffer_free(s, (char *)p + 4096));
    FAILS(INVALID, iov_buffer_unregister(s, p));
    DETAIL("iov_buffer_free");
    OK(iov_buffer_free(s, p));
    OK(iov_buffer_free(s, NULL));

    FAILS(INVALID, iov_buffer_alloc(s, 0, NULL, &p));
    FAILS(EXHAUSTED, iov_buffer_alloc(s, SIZE_MAX, NULL, &p));
    FAILS(EXHAUSTED, iov_buffer_alloc(s, SIZE_MAX / 4, NULL, &p));
    attr.alignment = 100;
    FAILS(INVALID, iov_buffer_alloc(s, 5, &attr, &q));
    attr.alignment = 0;
    attr.memory = IOV_MEMORY_CUDA;
    FAILS(UNSUPPORTED, iov_buffer_alloc(s, 5, &attr, &q));
    DETAIL("CUDA");
    attr.memory = 7;
    FAILS(INVALID, iov_buffer_alloc(s, 5, &attr, &q));
    attr.memory = IOV_MEMORY_HOST;
    attr.numa_node = 1;
    FAILS(INVALID, iov_buffer_alloc(s, 5, &attr, &q));
    attr.flags = IOV_BUFFER_ON_NODE;
    attr.numa_node = 5000;
    FAILS(INVALID, iov_buffer_alloc(s, 5, &attr, &q));
    attr.numa_node = 0;
    if (iov_buffer_alloc(s, 5, &attr, &q) == 0) { /* unless the system allows no binding */
        OK(iov_buffer_free(s, q));
    } else {
        DETAIL("NUMA");
    }
    OK(iov_collection_close(NULL, c));
    OK(iov_close(s));
}

static void test_register(void) {
    iov_session *s = open_store("mem:register"), *t = open_store("mem:register");
    iov_buffer_attr attr = IOV_BUFFER_ATTR_INIT;
    static char memory[8192];
    OK(iov_buffer_register(s, memory, 4096, NULL));
    FAILS(INVALID, iov_buffer_register(s, memory + 4095, 10, NULL));
    FAILS(INVALID, iov_buffer_register(s, memory, 4096, NULL));
    OK(iov_buffer_register(s, memory + 4096, 4096, NULL));
    OK(iov_buffer_register(t, memory, 8192, NULL)); /* each session has its own */
    FAILS(INVALID, iov_buffer_free(s, memory));
    DETAIL("iov_buffer_unregister");
    OK(iov_buffer_unregister(s, memory));
    FAILS(INVALID, iov_buffer_unregister(s, memory));
    FAILS(INVALID, iov_buffer_unregister(s, NULL));
    OK(iov_buffer_unregister(s, memory + 4096));
    OK(iov_buffer_unregister(t, memory));
    attr.memory = IOV_MEMORY_HIP;
    FAILS(UNSUPPORTED, iov_buffer_register(s, memory, 1, &attr));
    attr.memory = IOV_MEMORY_HOST;
    attr.alignment = 1 << 20;
    FAILS(INVALID, iov_buffer_register(s, (void *)((uintptr_t)memory | 1), 1, &attr));
    FAILS(INVALID, iov_buffer_register(s, NULL, 1, NULL));
    FAILS(INVALID, iov_buffer_register(s, memory, 0, NULL));
    FAILS(INVALID, iov_buffer_register(s, memory, SIZE_MAX, NULL));
    OK(iov_close(s));
    OK(iov_close(t));
}

static void test_busy_while_a_request_uses_it(void) {
    iov_session *s = open_store("mem:busy");
    iov_workspace *w = new_workspace(s, "ws");
    iov_collection *c = new_collection(w, "c", NULL), *d = look_up(w, "c");
    iov_lock_attr x = IOV_LOCK_ATTR_INIT;
    iov_batch *b = new_batch(s, 0);
    iov_request *r = NULL;
    void *p = NULL, *q = NULL;
    x.mode = IOV_LOCK_EXCLUSIVE;
    OK(iov_buffer_alloc(s, 4096, NULL, &p));
    OK(iov_buffer_alloc(s, 4096, NULL, &q));
    OK(iov_lock(NULL, d, &x));
    OK(iov_lock(b, c, &x));
    OK(iov_batch_barrier(b));
    OK(iov_write(b, c, 0, (char *)p + 100, 10));
    OK(iov_buffer_free(s, q)); /* nobody uses it */
    OK(iov_batch_start(b, &r));
    FAILS(BUSY, iov_buffer_free(s, p));
    OK(iov_unlock(NULL, d, &x));
    OK(iov_wait(r, -1));
    OK(iov_buffer_free(s, p));
    OK(iov_request_free(r));
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
    OK(iov_collection_close(NULL, d));
    OK(iov_close(s));
}

static void test_a_closed_session_leaves_its_buffers(void) {
    iov_session *s = open_store("mem:leave");
    void *p = NULL;
    OK(iov_buffer_alloc(s, 4096, NULL, &p));
    OK(iov_close(s));
    memset(p, 1, 4096); /* the program forgot it, and may still use it */
}

static void test_views_are_out_of_reach(void) {
    iov_session *s = open_store("mem:views");
    iov_workspace *w = new_workspace(s, "ws");
    iov_collection *c = new_collection(w, "c", NULL);
    const void *p = NULL;
    size_t got = 0;
    iov_view_lease *lease = NULL;
    write_text(c, 0, "bytes");
    FAILS(UNSUPPORTED, iov_view(c, 0, 5, &p, &got, &lease));
    DETAIL("iov_read");
    FAILS(INVALID, iov_view(c, 0, 5, NULL, &got, &lease));
    CHECK(p == NULL && lease == NULL);
    iov_view_release(NULL);
    iov_view_release((iov_view_lease *)c);
    expect_bytes(c, 0, "bytes");
    OK(iov_collection_close(NULL, c));
    OK(iov_close(s));
}

int main(void) {
    RUN(test_alloc);
    RUN(test_register);
    RUN(test_busy_while_a_request_uses_it);
    RUN(test_a_closed_session_leaves_its_buffers);
    RUN(test_views_are_out_of_reach);
    return 0;
}
