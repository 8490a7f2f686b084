/* SPDX-License-Identifier: Apache-2.0 */
/* Search: predicates, parameters, order, keys, counting, cursors. */
#include "test.h"

#define RUNS 300

static iov_session *s;
static iov_workspace *w;

static void fill(void) {
    static const char *const indexes[] = {"temperature"};
    iov_workspace_attr attr = IOV_WORKSPACE_ATTR_INIT;
    iov_collection *g = NULL;
    int i;
    attr.indexes = indexes;
    attr.index_count = 1;
    OK(iov_workspace_create(s, "ws", &attr, &w));
    OK(iov_group_create(NULL, w, NULL, "deep", NULL, NULL, &g));
    for (i = 0; i < RUNS; i++) {
        char name[32];
        iov_metadata *md = iov_metadata_new();
        iov_collection *c = NULL;
        snprintf(name, sizeof name, "run_%03d", i);
        OK(iov_metadata_set_i64(md, "temperature", i));
        OK(iov_metadata_set_str(md, "experiment", i % 3 == 0 ? "nacelle" : "wake"));
        if (i % 2 == 0) {
            OK(iov_metadata_set_bool(md, "converged", 1));
        }
        OK(iov_collection_create(NULL, w, i < 10 ? g : NULL, name, md, NULL, &c));
        OK(iov_collection_close(NULL, c));
        iov_metadata_free(md);
    }
    OK(iov_collection_close(NULL, g));
}

static size_t matches(const char *predicate, const iov_search_attr *attr) {
    iov_cursor *cur = NULL;
    iov_entry e[7];
    size_t n = 1, all = 0;
    OK(iov_collection_search(NULL, w, predicate, attr, &cur));
    while (n > 0) {
        e[0].size = sizeof e[0];
        OK(iov_cursor_next(cur, e, 7, &n, -1));
        all += n;
    }
    OK(iov_cursor_close(cur));
    return all;
}

static void test_o5_predicates(void) {
    CHECK(matches(NULL, NULL) == RUNS + 1);
    CHECK(matches("temperature >= 290", NULL) == 10);
    CHECK(matches("temperature > 280 and experiment = \"nacelle\" and iov.name ~ \"run_*\"", NULL) == 6);
    CHECK(matches("exists(converged) and not temperature < 298", NULL) == 1);
    CHECK(matches("iov.name = \"deep\"", NULL) == 1);
    CHECK(matches("temperature > 1000", NULL) == 0);
}

static void test_errors_have_a_position(void) {
    iov_cursor *cur = NULL;
    iov_batch *b = new_batch(s, 0);
    FAILS(INVALID, iov_collection_search(NULL, w, "temperature >> 5", NULL, &cur));
    DETAIL("14");
    FAILS(INVALID, iov_collection_search(b, w, "temperature > ", NULL, &cur)); /* at once, in a batch too */
    CHECK(iov_batch_count(b) == 0 && cur == NULL);
    FAILS(INVALID, iov_collection_search(NULL, w, "a = \"\xff\"", NULL, &cur));
    DETAIL("byte 5");
    OK(iov_batch_free(b));
}

static void test_parameters(void) {
    iov_search_attr attr = IOV_SEARCH_ATTR_INIT;
    iov_value params[2] = {IOV_VALUE_INIT, IOV_VALUE_INIT};
    params[0].type = IOV_TYPE_I64;
    params[0].i64 = 150;
    params[1].type = IOV_TYPE_STR;
    params[1].str = "nacelle";
    attr.params = params;
    attr.param_count = 2;
    CHECK(matches("temperature > ? and experiment = ?", &attr) == 49);
    params[1].len = 7;
    CHECK(matches("temperature > ? and experiment = ?", &attr) == 49);
    params[1].len = 3; /* the text is as long as it says */
    CHECK(matches("temperature > ? and experiment = ?", &attr) == 0);
    {
        iov_cursor *cur = NULL;
        FAILS(INVALID, iov_collection_search(NULL, w, "temperature > ?", &attr, &cur));
        FAILS(INVALID, iov_collection_search(NULL, w, NULL, &attr, &cur));
        params[1].type = 9;
        FAILS(INVALID, iov_collection_search(NULL, w, "temperature > ? and experiment = ?", &attr, &cur));
    }
}

static void test_keys_order_limit(void) {
    static const char *const keys[] = {"temperature", "iov.name"}, *const all[] = {"*"};
    iov_search_attr attr = IOV_SEARCH_ATTR_INIT;
    iov_cursor *cur = NULL;
    iov_entry e[5];
    iov_value v = IOV_VALUE_INIT;
    const iov_metadata *first;
    size_t n = 0, i;
    attr.keys = keys;
    attr.key_count = 2;
    attr.order = "temperature desc";
    attr.limit = 8;
    OK(iov_collection_search(NULL, w, "exists(temperature)", &attr, &cur));
    e[0].size = sizeof e[0];
    OK(iov_cursor_next(cur, e, 5, &n, -1));
    CHECK(n == 5);
    for (i = 0; i < n; i++) {
        CHECK(e[i].size == sizeof e[0]);
        OK(iov_metadata_find(e[i].metadata, "temperature", &v));
        CHECK(v.i64 == RUNS - 1 - (int64_t)i);
        OK(iov_metadata_find(e[i].metadata, "iov.name", &v));
        CHECK(strcmp(v.str, e[i].name) == 0);
        CHECK(iov_metadata_count(e[i].metadata) == 2);
        FAILS(NOTFOUND, iov_metadata_find(e[i].metadata, "experiment", &v));
    }
    first = e[0].metadata;
    FAILS(INVALID, iov_metadata_set_i64((iov_metadata *)first, "k", 1)); /* it belongs to the cursor */
    iov_metadata_free((iov_metadata *)first);
    CHECK(iov_metadata_count(first) == 2);
    OK(iov_cursor_next(cur, e, 5, &n, -1));
    CHECK(n == 3);
    CHECK(iov_metadata_count(first) == 0); /* until its next step */
    OK(iov_cursor_next(cur, e, 5, &n, -1));
    CHECK(n == 0);
    OK(iov_cursor_close(cur));
    FAILS(INVALID, iov_cursor_next(cur, e, 5, &n, -1));

    attr.keys = all;
    attr.key_count = 1;
    OK(iov_collection_search(NULL, w, "temperature = 100", &attr, &cur));
    OK(iov_cursor_next(cur, e, 5, &n, -1));
    CHECK(n == 1 && iov_metadata_count(e[0].metadata) == 3);
    OK(iov_cursor_close(cur));
}

static void test_count_and_group(void) {
    iov_search_attr attr = IOV_SEARCH_ATTR_INIT;
    iov_cursor *cur = NULL;
    iov_collection *g = NULL;
    uint64_t count = 0;
    attr.flags = IOV_SEARCH_COUNT;
    OK(iov_collection_search(NULL, w, "temperature < 100", &attr, &cur));
    OK(iov_cursor_count(cur, &count, -1));
    CHECK(count == 100);
    OK(iov_cursor_close(cur));
    attr.flags = 0;
    OK(iov_collection_search(NULL, w, NULL, &attr, &cur));
    FAILS(INVALID, iov_cursor_count(cur, &count, -1));
    OK(iov_cursor_close(cur));
    OK(iov_group_lookup(NULL, w, NULL, "deep", NULL, &g));
    attr.group = g;
    CHECK(matches("exists(temperature)", &attr) == 10);
    OK(iov_collection_close(NULL, g));
    OK(iov_group_lookup(NULL, w, NULL, NULL, NULL, &g));
    attr.group = g;
    CHECK(matches("exists(temperature)", &attr) == RUNS - 10);
    attr.flags = IOV_SEARCH_DEEP;
    CHECK(matches("exists(temperature)", &attr) == RUNS);
    OK(iov_collection_close(NULL, g));
    attr.group = NULL;
    attr.flags = 8;
    FAILS(INVALID, iov_collection_search(NULL, w, NULL, &attr, &cur));
}

static void test_search_in_a_batch(void) {
    iov_batch *b = new_batch(s, 0);
    iov_collection *c = NULL;
    iov_metadata *md = iov_metadata_new();
    iov_cursor *found = NULL, *closed = NULL;
    iov_entry e[4];
    size_t n = 7;
    OK(iov_metadata_set_i64(md, "unique", 1));
    OK(iov_collection_create(b, w, NULL, "in batch", md, NULL, &c));
    OK(iov_collection_search(b, w, "unique = 1", NULL, &found));
    OK(iov_collection_search(b, w, NULL, NULL, &closed));
    e[0].size = sizeof e[0];
    FAILS(BUSY, iov_cursor_next(found, e, 4, &n, -1));
    OK(iov_cursor_close(closed)); /* before its search */
    OK(finish(b));
    OK(iov_cursor_next(found, e, 4, &n, -1));
    CHECK(n == 1 && strcmp(e[0].name, "in batch") == 0);
    OK(iov_cursor_close(found));
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
    iov_metadata_free(md);
}

static void test_small_and_large_entries(void) {
    iov_cursor *cur = NULL;
    struct {
        iov_entry entry;
        uint64_t later[2]; /* fields of a later release */
    } large[3];
    unsigned char small[3 * 24];
    uint32_t size = 24;
    size_t n = 0;
    memset(large, 0xa5, sizeof large);
    memset(small, 0xa5, sizeof small);
    OK(iov_collection_search(NULL, w, "temperature < 6", NULL, &cur));
    large[0].entry.size = sizeof large[0];
    OK(iov_cursor_next(cur, &large[0].entry, 3, &n, -1));
    CHECK(n == 3 && large[2].entry.size == sizeof large[0] && strncmp(large[2].entry.name, "run_", 4) == 0);
    CHECK(large[0].later[0] == 0 && large[2].later[1] == 0);
    memcpy(small, &size, 4);
    OK(iov_cursor_next(cur, (iov_entry *)(void *)small, 2, &n, -1));
    CHECK(n == 2 && small[2 * 24] == 0xa5); /* two elements of 24 bytes, and not one more */
    memcpy(&size, small + 24 + 4, 4);
    CHECK(size == IOV_KIND_COLLECTION);
    OK(iov_cursor_close(cur));
}

int main(void) {
    s = open_store("mem:search");
    fill();
    RUN(test_o5_predicates);
    RUN(test_errors_have_a_position);
    RUN(test_parameters);
    RUN(test_keys_order_limit);
    RUN(test_count_and_group);
    RUN(test_search_in_a_batch);
    RUN(test_small_and_large_entries);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    return 0;
}
