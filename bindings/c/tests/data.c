/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: reads, writes, holes, appends, copies, commit, persist, seal. */
#include "test.h"

static iov_session *s;
static iov_workspace *w;

static void test_o6_short_reads_and_holes(void) {
    iov_collection *c = new_collection(w, "o6", NULL);
    char buf[16], zeros[16] = {0};
    size_t got = 77;
    write_text(c, 10, "abc");
    CHECK(size_of(c) == 13);
    OK(iov_read(NULL, c, 8, buf, sizeof buf, &got));
    CHECK(got == 5 && memcmp(buf, "\0\0abc", 5) == 0);
    OK(iov_read(NULL, c, 13, buf, sizeof buf, &got));
    CHECK(got == 0);
    OK(iov_read(NULL, c, 1000, buf, sizeof buf, &got));
    CHECK(got == 0);
    OK(iov_read(NULL, c, 0, buf, 10, NULL));
    CHECK(memcmp(buf, zeros, 10) == 0);
    OK(iov_write(NULL, c, 0, NULL, 0));
    OK(iov_read(NULL, c, 0, NULL, 0, &got));
    CHECK(got == 0 && size_of(c) == 13);
    OK(iov_collection_close(NULL, c));
}

static void test_vectors(void) {
    iov_collection *c = new_collection(w, "vectors", NULL);
    char a[4] = "AAA", b[4] = "BBB", x[4], y[8];
    iov_chunk out[2], in[2];
    size_t done = 0;
    out[0].offset = 100;
    out[0].buf = a;
    out[0].len = 3;
    out[1].offset = 0;
    out[1].buf = b;
    out[1].len = 3;
    OK(iov_writev(NULL, c, out, 2, &done));
    CHECK(done == 6 && size_of(c) == 103);
    in[0].offset = 0;
    in[0].buf = x;
    in[0].len = 3;
    in[1].offset = 98;
    in[1].buf = y;
    in[1].len = 8;
    OK(iov_readv(NULL, c, in, 2, &done));
    CHECK(done == 8 && memcmp(x, "BBB", 3) == 0 && memcmp(y, "\0\0AAA", 5) == 0);
    OK(iov_writev(NULL, c, NULL, 0, &done));
    CHECK(done == 0);
    OK(iov_readv(NULL, c, in, 2, NULL));
    in[1].buf = NULL;
    FAILS(INVALID, iov_readv(NULL, c, in, 2, &done));
    in[1].offset = UINT64_MAX;
    FAILS(INVALID, iov_readv(NULL, c, in, 2, &done));
    DETAIL("chunk 1");
    OK(iov_collection_close(NULL, c));
}

static void test_m4_append(void) {
    iov_collection *c = new_collection(w, "log", "mutability=append");
    uint64_t offset = 99;
    OK(iov_append(NULL, c, "first", 5, &offset));
    CHECK(offset == 0);
    OK(iov_append(NULL, c, "second", 6, &offset));
    CHECK(offset == 5);
    OK(iov_append(NULL, c, "!", 1, NULL));
    FAILS(IMMUTABLE, iov_write(NULL, c, 0, "x", 1));
    expect_bytes(c, 0, "firstsecond!");
    OK(iov_collection_close(NULL, c));
}

static void test_truncate_punch_allocate_extents(void) {
    iov_collection *c = new_collection(w, "shape", NULL);
    static char block[65536];
    iov_extent e[8];
    size_t n = 0, i;
    uint64_t from = 0, total = 0;
    memset(block, 'x', sizeof block);
    OK(iov_write(NULL, c, 0, block, sizeof block));
    OK(iov_truncate(NULL, c, 200000));
    CHECK(size_of(c) == 200000);
    OK(iov_write(NULL, c, 131072, block, 4096));
    OK(iov_punch(NULL, c, 16384, 16384));
    CHECK(size_of(c) == 200000);
    {
        char buf[4];
        size_t got = 0;
        OK(iov_read(NULL, c, 16382, buf, 4, &got));
        CHECK(got == 4 && memcmp(buf, "xx\0\0", 4) == 0);
    }
    OK(iov_extents(NULL, c, 0, 200000, e, 8, &n));
    CHECK(n >= 4);
    for (i = 0; i < n; i++) {
        CHECK(e[i].offset == total && e[i].len > 0 && e[i].kind >= IOV_EXTENT_DATA && e[i].kind <= IOV_EXTENT_ABANDONED);
        total += e[i].len;
    }
    CHECK(e[0].kind == IOV_EXTENT_DATA && e[1].kind == IOV_EXTENT_HOLE && total == 200000);
    total = 0;
    do { /* one after the other gives the same */
        OK(iov_extents(NULL, c, from, 200000 - from, e, 1, &n));
        if (n == 1) {
            from = e[0].offset + e[0].len;
            total++;
        }
    } while (n == 1 && from < 200000);
    CHECK(total >= 4 && from == 200000);
    OK(iov_truncate(NULL, c, 10));
    CHECK(size_of(c) == 10);
    OK(iov_allocate(NULL, c, 0, 1 << 20, IOV_ALLOCATE_KEEP_SIZE));
    CHECK(size_of(c) == 10);
    OK(iov_allocate(NULL, c, 0, 1 << 20, 0));
    CHECK(size_of(c) == 1 << 20);
    FAILS(INVALID, iov_allocate(NULL, c, 0, 1, 2));
    FAILS(INVALID, iov_truncate(NULL, c, UINT64_MAX));
    FAILS(INVALID, iov_extents(NULL, c, 0, 1, e, 0, &n));
    OK(iov_collection_close(NULL, c));
}

static void test_h1_the_limit_is_enforced(void) {
    iov_collection *c = new_collection(w, "limited", "collection_size=..100");
    char buf[101] = {0};
    OK(iov_write(NULL, c, 0, buf, 100));
    FAILS(FILETOOBIG, iov_write(NULL, c, 50, buf, 51));
    FAILS(FILETOOBIG, iov_truncate(NULL, c, 101));
    FAILS(FILETOOBIG, iov_append(NULL, c, buf, 1, NULL));
    CHECK(size_of(c) == 100);
    OK(iov_collection_close(NULL, c));
}

static void test_copy(void) {
    iov_collection *a = new_collection(w, "source", NULL), *b = new_collection(w, "target", NULL);
    uint64_t copied = 0;
    write_text(a, 0, "0123456789");
    OK(iov_copy(NULL, a, 2, b, 5, 4, &copied));
    CHECK(copied == 4);
    expect_bytes(b, 5, "2345");
    OK(iov_copy(NULL, a, 8, b, 0, 100, &copied));
    CHECK(copied == 2);
    OK(iov_copy(NULL, a, 50, b, 0, 100, NULL));
    OK(iov_copy(NULL, a, 0, a, 100, 10, &copied));
    CHECK(copied == 10);
    FAILS(INVALID, iov_copy(NULL, a, 0, a, 5, 10, &copied));
    OK(iov_truncate(NULL, a, UINT64_C(1) << 50)); /* holes stay holes: there is no memory for a petabyte of zeros */
    OK(iov_copy(NULL, a, 0, b, 0, UINT64_MAX >> 1, &copied));
    CHECK(copied == UINT64_C(1) << 50 && size_of(b) == copied);
    expect_bytes(b, 100, "0123456789");
    OK(iov_collection_close(NULL, a));
    OK(iov_collection_close(NULL, b));
}

static void test_m2_seal(void) {
    iov_collection *c = new_collection(w, "sealed", "mutability=immutable"), *d;
    iov_stat stat = IOV_STAT_INIT;
    iov_metadata *md = iov_metadata_new();
    OK(iov_collection_stat(NULL, c, &stat));
    CHECK(stat.state == IOV_STATE_STAGING);
    write_text(c, 0, "for good");
    OK(iov_seal(NULL, c));
    FAILS(IMMUTABLE, iov_write(NULL, c, 0, "x", 1));
    FAILS(IMMUTABLE, iov_truncate(NULL, c, 0));
    OK(iov_collection_stat(NULL, c, &stat));
    CHECK(stat.state == IOV_STATE_SEALED && stat.bytes == 8);
    OK(iov_metadata_set_i64(md, "k", 1));
    OK(iov_metadata_put(NULL, c, md)); /* metadata, rename and delete stay possible */
    iov_metadata_free(md);
    OK(iov_collection_close(NULL, c));
    d = look_up(w, "sealed");
    expect_bytes(d, 0, "for good");
    FAILS(IMMUTABLE, iov_append(NULL, d, "x", 1, NULL));
    OK(iov_collection_close(NULL, d));
}

static void test_m1_publication(void) {
    iov_collection *c = new_collection(w, "published", "atomicity=publication"), *reader = look_up(w, "published");
    write_text(c, 0, "version 1");
    CHECK(size_of(reader) == 0); /* nobody sees it before the commit */
    expect_bytes(c, 0, "version 1");
    OK(iov_commit(NULL, c));
    expect_bytes(reader, 0, "version 1");
    write_text(c, 8, "2");
    expect_bytes(reader, 0, "version 1");
    OK(iov_collection_close(NULL, c));
    expect_bytes(reader, 0, "version 2");
    OK(iov_collection_close(NULL, reader));
}

static void test_commit_and_persist(void) {
    iov_collection *c = new_collection(w, "persist", "consistency=commit,persistence=volatile@explicit");
    write_text(c, 0, "x");
    OK(iov_commit(NULL, c));
    OK(iov_persist(NULL, c));
    OK(iov_collection_close(NULL, c));
}

static void test_c3_weaker_reading(void) {
    iov_controls asked = IOV_CONTROLS_INIT;
    iov_collection *c = new_collection(w, "levels", NULL), *reader = NULL;
    OK(iov_controls_parse(&asked, "consistency=session"));
    OK(iov_collection_lookup(NULL, w, NULL, "levels", &asked, &reader));
    write_text(c, 0, "x");
    {
        int code = iov_write(NULL, reader, 0, "y", 1); /* weaker than the collection's is for reading only */
        CHECK(code == -IOV_EREFUSED || code == -IOV_EDENIED);
    }
    OK(iov_collection_close(NULL, reader));
    OK(iov_collection_close(NULL, c));
}

int main(void) {
    s = open_store("mem:data");
    w = new_workspace(s, "ws");
    RUN(test_o6_short_reads_and_holes);
    RUN(test_vectors);
    RUN(test_m4_append);
    RUN(test_truncate_punch_allocate_extents);
    RUN(test_h1_the_limit_is_enforced);
    RUN(test_copy);
    RUN(test_m2_seal);
    RUN(test_m1_publication);
    RUN(test_commit_and_persist);
    RUN(test_c3_weaker_reading);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    return 0;
}
