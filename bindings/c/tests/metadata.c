/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata: sets in memory, and those of collections and groups. */
#include "test.h"

static iov_metadata *sample(void) {
    iov_metadata *md = iov_metadata_new();
    CHECK(md != NULL);
    OK(iov_metadata_set_str(md, "experiment", "nacelle \xc3\xa4"));
    OK(iov_metadata_set_i64(md, "iteration", -7));
    OK(iov_metadata_set_f64(md, "temperature", 310.25));
    OK(iov_metadata_set_bool(md, "converged", 5));
    OK(iov_metadata_set_bytes(md, "mask", "\0\1\2", 3));
    OK(iov_metadata_set_time(md, "begun", 1700000000000000000));
    return md;
}

static void check_sample(const iov_metadata *md) {
    static const char *const keys[] = {"begun", "converged", "experiment", "iteration", "mask", "temperature"};
    static const uint32_t types[] = {IOV_TYPE_TIME, IOV_TYPE_BOOL, IOV_TYPE_STR, IOV_TYPE_I64, IOV_TYPE_BYTES,
                                     IOV_TYPE_F64};
    size_t position = 0, i = 0;
    const char *key = NULL;
    iov_value v = IOV_VALUE_INIT;
    CHECK(iov_metadata_count(md) == 6);
    while (iov_metadata_next(md, &position, &key, &v) == 0) {
        CHECK(i < 6 && strcmp(key, keys[i]) == 0 && v.type == types[i]);
        i++;
    }
    CHECK(i == 6 && position == 6);
    FAILS(NOTFOUND, iov_metadata_next(md, &position, &key, &v));
    CHECK(position == 6);
    OK(iov_metadata_find(md, "experiment", &v));
    CHECK(v.len == strlen("nacelle \xc3\xa4") && strcmp(v.str, "nacelle \xc3\xa4") == 0);
    OK(iov_metadata_find(md, "iteration", &v));
    CHECK(v.i64 == -7);
    OK(iov_metadata_find(md, "temperature", &v));
    CHECK(v.f64 == 310.25);
    OK(iov_metadata_find(md, "converged", &v));
    CHECK(v.boolean == 1);
    OK(iov_metadata_find(md, "mask", &v));
    CHECK(v.len == 3 && memcmp(v.bytes, "\0\1\2", 4) == 0); /* even bytes have a NUL behind them */
    OK(iov_metadata_find(md, "begun", &v));
    CHECK(v.time_ns == 1700000000000000000);
    FAILS(NOTFOUND, iov_metadata_find(md, "nothing", &v));
}

static void test_sets(void) {
    iov_metadata *md = sample();
    iov_value old = IOV_VALUE_INIT, now = IOV_VALUE_INIT;
    static char big[(1 << 20) + 1];
    check_sample(md);
    OK(iov_metadata_find(md, "experiment", &old));
    OK(iov_metadata_set_str(md, "experiment", "wake"));
    OK(iov_metadata_find(md, "experiment", &now));
    CHECK(strcmp(now.str, "wake") == 0);
    CHECK(strncmp(old.str, "nacelle", 7) == 0); /* what was seen stays until the set is freed */
    OK(iov_metadata_set_i64(md, "experiment", 1));
    CHECK(iov_metadata_count(md) == 6);
    OK(iov_metadata_set_bytes(md, "empty", NULL, 0));

    FAILS(INVALID, iov_metadata_set_i64(md, "", 1));
    FAILS(INVALID, iov_metadata_set_i64(md, "iov.size", 1));
    FAILS(INVALID, iov_metadata_set_i64(md, NULL, 1));
    FAILS(INVALID, iov_metadata_set_str(md, "k", NULL));
    FAILS(INVALID, iov_metadata_set_str(md, "k", "a\xff"));
    DETAIL("byte 1 is 0xff");
    FAILS(INVALID, iov_metadata_set_i64(md, "key\xc3", 1));
    DETAIL("byte 3");
    FAILS(INVALID, iov_metadata_set_bytes(md, "k", NULL, 1));
    FAILS(TOOBIG, iov_metadata_set_bytes(md, "k", big, sizeof big));
    memset(big, 'k', 256);
    big[256] = 0;
    FAILS(INVALID, iov_metadata_set_i64(md, big, 1));
    big[255] = 0;
    OK(iov_metadata_set_i64(md, big, 1));
    iov_metadata_free(md);
    FAILS(INVALID, iov_metadata_set_i64(md, "stale", 1));
    CHECK(iov_metadata_count(md) == 0 && iov_metadata_count(NULL) == 0);
    iov_metadata_free(md);
    iov_metadata_free(NULL);
}

static void test_o4_metadata_of_collections(void) {
    iov_session *s = open_store("mem:metadata");
    iov_workspace *w = new_workspace(s, "ws");
    iov_metadata *md = sample(), *all = NULL, *more = iov_metadata_new();
    iov_collection *c = NULL;
    iov_value v = IOV_VALUE_INIT, w2 = IOV_VALUE_INIT;
    OK(iov_collection_create(NULL, w, NULL, "c", md, NULL, &c));
    iov_metadata_free(md); /* the call has copied it */
    OK(iov_metadata_list(NULL, c, &all));
    check_sample(all);
    iov_metadata_free(all);

    OK(iov_metadata_get(NULL, c, "experiment", &v));
    CHECK(v.type == IOV_TYPE_STR && strncmp(v.str, "nacelle", 7) == 0);
    OK(iov_metadata_get(NULL, c, "iov.name", &w2));
    CHECK(w2.type == IOV_TYPE_STR && strcmp(w2.str, "c") == 0);
    FAILS(NOTFOUND, iov_metadata_get(NULL, c, "nothing", &v));

    OK(iov_metadata_set_str(more, "experiment", "wake"));
    OK(iov_metadata_set_i64(more, "new", 1));
    OK(iov_metadata_put(NULL, c, more));
    OK(iov_metadata_remove(NULL, c, "mask"));
    FAILS(NOTFOUND, iov_metadata_remove(NULL, c, "mask"));
    FAILS(INVALID, iov_metadata_remove(NULL, c, "iov.name"));
    OK(iov_metadata_list(NULL, c, &all));
    CHECK(iov_metadata_count(all) == 6);
    OK(iov_metadata_find(all, "experiment", &v));
    CHECK(strcmp(v.str, "wake") == 0);
    OK(iov_metadata_put(NULL, c, all)); /* what was listed can be put again */
    iov_metadata_free(all);
    iov_metadata_free(more);
    OK(iov_collection_close(NULL, c));
    OK(iov_close(s));
}

static void test_values_of_a_batch_live_until_reset(void) {
    iov_session *s = open_store("mem:values");
    iov_workspace *w = new_workspace(s, "ws");
    iov_metadata *md = sample(), *all = NULL;
    iov_collection *c = NULL;
    iov_value text = IOV_VALUE_INIT, other = IOV_VALUE_INIT, missing = IOV_VALUE_INIT;
    iov_batch *b = new_batch(s, 0);
    OK(iov_collection_create(NULL, w, NULL, "c", md, NULL, &c));
    OK(iov_metadata_get(b, c, "experiment", &text));
    OK(iov_metadata_get(b, c, "nothing", &missing));
    OK(iov_metadata_list(b, c, &all));
    CHECK(text.type == 0 && all == NULL);
    FAILS(PARTIAL, finish(b));
    OK(iov_metadata_get(NULL, c, "iov.name", &other));
    CHECK(strcmp(text.str, "nacelle \xc3\xa4") == 0);
    CHECK(missing.type == 0);
    check_sample(all);
    OK(iov_batch_free(b));
    check_sample(all); /* a list is the program's */
    iov_metadata_free(all);
    iov_metadata_free(md);
    OK(iov_collection_close(NULL, c));
    OK(iov_close(s));
}

int main(void) {
    RUN(test_sets);
    RUN(test_o4_metadata_of_collections);
    RUN(test_values_of_a_batch_live_until_reset);
    return 0;
}
