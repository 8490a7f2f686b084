/* SPDX-License-Identifier: Apache-2.0 */
/* Collections: life, names, facts. */
#include "test.h"

static iov_session *s;
static iov_workspace *w;

static void test_life(void) {
    iov_collection *c = new_collection(w, "life", NULL), *d = NULL, *nameless = NULL;
    iov_stat stat = IOV_STAT_INIT;
    char uuid[IOV_UUID_TEXT];
    FAILS(EXISTS, iov_collection_create(NULL, w, NULL, "life", NULL, NULL, &d));
    CHECK(d == NULL);
    write_text(c, 0, "some bytes");
    OK(iov_collection_stat(NULL, c, &stat));
    CHECK(stat.kind == IOV_KIND_COLLECTION && stat.state == IOV_STATE_OPEN && stat.bytes == 10 && stat.links == 1);
    OK(iov_uuid_format(&stat.uuid, uuid));
    OK(iov_collection_close(NULL, c));
    FAILS(INVALID, iov_collection_close(NULL, c));
    FAILS(INVALID, iov_write(NULL, c, 0, "x", 1));

    d = look_up(w, uuid);
    expect_bytes(d, 0, "some bytes");
    OK(iov_collection_delete(NULL, w, NULL, "life"));
    expect_bytes(d, 0, "some bytes"); /* O10: open handles keep working */
    FAILS(NOTFOUND, iov_collection_lookup(NULL, w, NULL, "life", NULL, &c));
    FAILS(NOTFOUND, iov_collection_delete(NULL, w, NULL, "life"));
    OK(iov_collection_close(NULL, d));

    OK(iov_collection_create(NULL, w, NULL, NULL, NULL, NULL, &nameless));
    OK(iov_collection_stat(NULL, nameless, &stat));
    CHECK(stat.links == 0);
    OK(iov_uuid_format(&stat.uuid, uuid));
    OK(iov_link(NULL, nameless, NULL, "named now"));
    OK(iov_collection_close(NULL, look_up(w, "named now")));
    OK(iov_collection_delete(NULL, w, NULL, uuid));
    OK(iov_collection_close(NULL, nameless));
}

static void test_o3_names_and_links(void) {
    iov_collection *c = new_collection(w, "first", NULL), *d, *g = NULL;
    iov_stat stat = IOV_STAT_INIT;
    OK(iov_group_create(NULL, w, NULL, "group", NULL, NULL, &g));
    OK(iov_link(NULL, c, g, "second"));
    FAILS(EXISTS, iov_link(NULL, c, g, "second"));
    OK(iov_collection_stat(NULL, c, &stat));
    CHECK(stat.links == 2);
    OK(iov_collection_delete(NULL, w, NULL, "first"));
    OK(iov_collection_lookup(NULL, w, g, "second", NULL, &d)); /* the last name keeps it */
    OK(iov_collection_close(NULL, d));
    OK(iov_collection_close(NULL, new_collection(w, "\xff\xfe not UTF-8", NULL)));
    OK(iov_collection_close(NULL, look_up(w, "\xff\xfe not UTF-8")));
    FAILS(NOTEMPTY, iov_collection_delete(NULL, w, NULL, "group"));
    OK(iov_collection_delete(NULL, w, g, "second"));
    OK(iov_collection_delete(NULL, w, NULL, "group"));
    OK(iov_collection_close(NULL, c));
    OK(iov_collection_close(NULL, g));
    FAILS(INVALID, iov_collection_create(NULL, w, NULL, "uuid:x", NULL, NULL, &d));
    FAILS(INVALID, iov_collection_create(NULL, w, NULL, "", NULL, NULL, &d));
    FAILS(INVALID, iov_collection_create(NULL, w, NULL, "a/b", NULL, NULL, &d));
}

static void test_rename(void) {
    iov_collection *a = new_collection(w, "a", NULL), *b = new_collection(w, "b", NULL), *g = NULL, *in = NULL;
    write_text(a, 0, "a");
    write_text(b, 0, "b");
    FAILS(EXISTS, iov_rename(NULL, w, NULL, "a", NULL, "b", IOV_RENAME_NOREPLACE));
    OK(iov_rename(NULL, w, NULL, "a", NULL, "b", IOV_RENAME_EXCHANGE));
    OK(iov_collection_close(NULL, a));
    a = look_up(w, "b");
    expect_bytes(a, 0, "a");
    OK(iov_rename(NULL, w, NULL, "b", NULL, "a", 0));
    FAILS(NOTFOUND, iov_rename(NULL, w, NULL, "b", NULL, "c", 0));
    OK(iov_collection_close(NULL, a));
    OK(iov_collection_close(NULL, b));

    OK(iov_group_create(NULL, w, NULL, "g", NULL, NULL, &g));
    OK(iov_group_create(NULL, w, g, "inner", NULL, NULL, &in));
    FAILS(INVALID, iov_rename(NULL, w, NULL, "g", in, "cycle", 0));
    OK(iov_rename(NULL, w, NULL, "a", in, "moved", 0));
    OK(iov_collection_lookup(NULL, w, in, "moved", NULL, &a));
    expect_bytes(a, 0, "a");
    FAILS(INVALID, iov_rename(NULL, w, NULL, "a", NULL, "b", 3));
    FAILS(INVALID, iov_rename(NULL, w, NULL, "a", NULL, "b", 4));
    FAILS(INVALID, iov_rename(NULL, w, a, "a", NULL, "b", 0)); /* a collection holds no names */
    OK(iov_collection_close(NULL, a));
    OK(iov_collection_close(NULL, g));
    OK(iov_collection_close(NULL, in));
}

static void test_setattr(void) {
    iov_collection *c = new_collection(w, "attr", NULL);
    iov_attr attr = IOV_ATTR_INIT;
    iov_stat stat = IOV_STAT_INIT;
    attr.mask = IOV_ATTR_MODE | IOV_ATTR_MTIME;
    attr.mode = 0640;
    attr.mtime_ns = 1234567890;
    attr.uid = 77; /* not meant */
    OK(iov_setattr(NULL, c, &attr));
    OK(iov_collection_stat(NULL, c, &stat));
    CHECK(stat.mode == 0640 && stat.mtime_ns == 1234567890 && stat.uid != 77);
    attr.mask = 16;
    FAILS(INVALID, iov_setattr(NULL, c, &attr));
    attr.mask = IOV_ATTR_MODE;
    attr.mode = 010000;
    FAILS(INVALID, iov_setattr(NULL, c, &attr));
    OK(iov_collection_close(NULL, c));
}

static void test_lifetime(void) {
    iov_batch *b = new_batch(s, 0);
    iov_collection *c = NULL;
    iov_attr attr = IOV_ATTR_INIT;
    iov_stat stat = IOV_STAT_INIT;
    attr.mask = IOV_ATTR_LIFETIME;
    attr.lifetime = IOV_LIFETIME_LEASE;
    attr.lease_ns = 90 * INT64_C(1000000000);
    OK(iov_collection_create(b, w, NULL, "passing", NULL, NULL, &c));
    OK(iov_setattr(b, c, &attr));
    OK(finish(b));
    OK(iov_batch_free(b));
    OK(iov_collection_stat(NULL, c, &stat));
    CHECK(stat.lifetime == IOV_LIFETIME_LEASE && stat.lease_ns == attr.lease_ns);
    attr.lease_ns = 0;
    FAILS(INVALID, iov_setattr(NULL, c, &attr)); /* a lease has a time */
    attr.lifetime = IOV_LIFETIME_PROCESS;
    OK(iov_setattr(NULL, c, &attr));
    attr.lease_ns = 1;
    FAILS(INVALID, iov_setattr(NULL, c, &attr)); /* and nothing else has */
    attr.lease_ns = 0;
    attr.lifetime = 4;
    FAILS(INVALID, iov_setattr(NULL, c, &attr));
    attr.lifetime = IOV_LIFETIME_WORKSPACE;
    attr.reserved1 = 1;
    FAILS(INVALID, iov_setattr(NULL, c, &attr));
    attr.reserved1 = 0;
    attr.size = 32; /* of a program that was built before there were lifetimes */
    FAILS(INVALID, iov_setattr(NULL, c, &attr));
    attr.size = sizeof attr;
    OK(iov_setattr(NULL, c, &attr));
    OK(iov_collection_stat(NULL, c, &stat));
    CHECK(stat.lifetime == 0 && stat.lease_ns == 0);
    stat.size = 136;
    OK(iov_collection_stat(NULL, c, &stat));
    CHECK(stat.size == 136);
    OK(iov_collection_close(NULL, c));
}

static void test_set_and_layout(void) {
    iov_collection *c = new_collection(w, "exclusive", "concurrency=exclusive"), *shared;
    iov_layout layout = IOV_LAYOUT_INIT;
    iov_controls controls = IOV_CONTROLS_INIT, granted = IOV_CONTROLS_INIT;
    iov_stat before = IOV_STAT_INIT, after = IOV_STAT_INIT;
    OK(iov_collection_layout(c, &layout));
    CHECK(layout.size == sizeof layout && layout.revision >= 1 && layout.backend == NULL);
    OK(iov_collection_stat(NULL, c, &before));
    controls.consistency = IOV_CONSISTENCY_SESSION;
    OK(iov_collection_set(NULL, c, &controls, NULL));
    OK(iov_collection_stat(NULL, c, &after));
    CHECK(after.revision > before.revision);
    OK(iov_collection_close(NULL, c));
    c = look_up(w, "exclusive");
    OK(iov_controls_effective(c, &granted));
    CHECK(granted.consistency == IOV_CONSISTENCY_SESSION && granted.concurrency == IOV_CONCURRENCY_EXCLUSIVE);
    memset((char *)&layout + sizeof layout.size, 0, sizeof layout - sizeof layout.size);
    layout.redundancy = IOV_REDUNDANCY_MIRROR;
    layout.k = 3;
    FAILS(REFUSED, iov_collection_set(NULL, c, NULL, &layout)); /* memory has one target */
    layout.redundancy = 9;
    FAILS(INVALID, iov_collection_set(NULL, c, NULL, &layout));
    OK(iov_collection_close(NULL, c));

    shared = new_collection(w, "shared", NULL);
    FAILS(BUSY, iov_collection_set(NULL, shared, &controls, NULL)); /* only an exclusive holder may */
    OK(iov_collection_close(NULL, shared));
}

static void test_born_as_the_batch_says(void) {
    iov_batch *b = new_batch(s, 0);
    iov_collection *c = NULL;
    iov_controls controls = IOV_CONTROLS_INIT, granted = IOV_CONTROLS_INIT;
    iov_attr attr = IOV_ATTR_INIT;
    iov_stat stat = IOV_STAT_INIT;
    controls.consistency = IOV_CONSISTENCY_COMMIT;
    attr.mask = IOV_ATTR_MODE;
    attr.mode = 0600;
    OK(iov_collection_create(b, w, NULL, "born", NULL, NULL, &c));
    OK(iov_collection_set(b, c, &controls, NULL));
    OK(iov_setattr(b, c, &attr));
    OK(iov_collection_stat(b, c, &stat));
    OK(finish(b));
    CHECK(stat.mode == 0600);
    OK(iov_controls_effective(c, &granted));
    CHECK(granted.consistency == IOV_CONSISTENCY_COMMIT);
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, c));
}

static void test_groups(void) {
    iov_collection *g = NULL, *in = NULL, *again = NULL, *c = NULL, *root = NULL;
    iov_cursor *cur = NULL;
    iov_search_attr attr = IOV_SEARCH_ATTR_INIT;
    iov_entry e[4];
    iov_stat stat = IOV_STAT_INIT;
    size_t n = 0, i;
    char byte;
    OK(iov_group_create(NULL, w, NULL, "listed", NULL, NULL, &g));
    OK(iov_group_create(NULL, w, g, "inner", NULL, NULL, &in));
    OK(iov_collection_create(NULL, w, g, "c", NULL, NULL, &c));
    OK(iov_link(NULL, c, g, "also c"));
    OK(iov_group_lookup(NULL, w, g, NULL, NULL, &again)); /* the group again */
    OK(iov_collection_stat(NULL, again, &stat));
    CHECK(stat.kind == IOV_KIND_GROUP && stat.entries == 3);
    FAILS(INVALID, iov_read(NULL, g, 0, &byte, 1, NULL));
    FAILS(INVALID, iov_write(NULL, again, 0, "x", 1));
    FAILS(NOTFOUND, iov_group_lookup(NULL, w, g, "nothing", NULL, &root));

    OK(iov_group_list(NULL, w, g, NULL, &cur));
    e[0].size = sizeof e[0];
    OK(iov_cursor_next(cur, e, 4, &n, -1));
    CHECK(n == 3);
    for (i = 0; i < n; i++) {
        CHECK(memcmp(&e[i].group, &stat.uuid, sizeof stat.uuid) == 0 && e[i].metadata == NULL);
    }
    OK(iov_cursor_close(cur));
    attr.order = "iov.name";
    OK(iov_group_list(NULL, w, g, &attr, &cur));
    OK(iov_cursor_next(cur, e, 4, &n, -1));
    CHECK(n == 3 && strcmp(e[0].name, "also c") == 0 && strcmp(e[1].name, "c") == 0);
    CHECK(e[2].kind == IOV_KIND_GROUP);
    OK(iov_cursor_close(cur));
    attr.group = g;
    FAILS(INVALID, iov_group_list(NULL, w, g, &attr, &cur));

    OK(iov_group_lookup(NULL, w, NULL, NULL, NULL, &root));
    OK(iov_group_list(NULL, w, root, NULL, &cur));
    OK(iov_cursor_next(cur, e, 4, &n, -1));
    CHECK(n >= 1);
    OK(iov_cursor_close(cur));
    OK(iov_group_list(NULL, w, NULL, NULL, &cur));
    OK(iov_cursor_next(cur, e, 4, &n, -1));
    CHECK(n >= 1);
    OK(iov_cursor_close(cur));
    OK(iov_collection_close(NULL, root));
    OK(iov_collection_close(NULL, again));
    OK(iov_collection_close(NULL, in));
    OK(iov_collection_close(NULL, c));
    OK(iov_collection_close(NULL, g));
}

static void test_handles_of_others(void) {
    iov_session *t = open_store("mem:collection");
    iov_workspace *v = NULL, *other = new_workspace(s, "other");
    iov_collection *c = NULL, *g = NULL, *h = NULL;
    iov_batch *b = new_batch(t, 0);
    OK(iov_workspace_load(t, "ws", &v));
    OK(iov_group_create(NULL, v, NULL, "theirs", NULL, NULL, &g));
    OK(iov_group_create(NULL, other, NULL, "elsewhere", NULL, NULL, &h));
    FAILS(INVALID, iov_collection_create(NULL, w, g, "x", NULL, NULL, &c));
    DETAIL("sessions");
    FAILS(INVALID, iov_collection_create(NULL, w, h, "x", NULL, NULL, &c));
    DETAIL("workspace");
    FAILS(INVALID, iov_collection_create(b, w, NULL, "x", NULL, NULL, &c));
    CHECK(c == NULL && iov_batch_count(b) == 0);
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, g));
    OK(iov_collection_close(NULL, h));
    OK(iov_close(t));
}

static void test_m3_sealed_is_known_by_uuid(void) {
    iov_session *t = open_store("mem:collection");
    iov_workspace *v = NULL;
    iov_collection *c = new_collection(w, "sealed", "mutability=immutable"), *d;
    iov_counters before = IOV_COUNTERS_INIT, after = IOV_COUNTERS_INIT;
    iov_stat stat = IOV_STAT_INIT;
    char uuid[IOV_UUID_TEXT];
    int i;
    write_text(c, 0, "some bytes");
    OK(iov_seal(NULL, c));
    OK(iov_collection_stat(NULL, c, &stat));
    OK(iov_uuid_format(&stat.uuid, uuid));
    OK(iov_collection_close(NULL, c));
    OK(iov_workspace_load(t, "ws", &v));
    c = look_up(v, uuid);
    OK(iov_session_counters(t, &before));
    for (i = 0; i < 10; i++) {
        d = look_up(v, uuid);
        expect_bytes(d, 0, "some bytes");
        OK(iov_collection_close(NULL, d));
    }
    OK(iov_session_counters(t, &after));
    CHECK(after.metadata_requests == before.metadata_requests);
    OK(iov_collection_stat(NULL, c, &stat)); /* a question about it is asked */
    OK(iov_session_counters(t, &after));
    CHECK(after.metadata_requests == before.metadata_requests + 1);
    OK(iov_collection_close(NULL, c));
    OK(iov_collection_delete(NULL, v, NULL, "sealed"));
    FAILS(NOTFOUND, iov_collection_lookup(NULL, v, NULL, uuid, NULL, &d));
    OK(iov_workspace_close(v));
    OK(iov_close(t));
}

int main(void) {
    s = open_store("mem:collection");
    w = new_workspace(s, "ws");
    RUN(test_life);
    RUN(test_o3_names_and_links);
    RUN(test_rename);
    RUN(test_setattr);
    RUN(test_lifetime);
    RUN(test_set_and_layout);
    RUN(test_born_as_the_batch_says);
    RUN(test_groups);
    RUN(test_handles_of_others);
    RUN(test_m3_sealed_is_known_by_uuid);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    return 0;
}
