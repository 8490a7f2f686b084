/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces: properties, quota, search, deletion. */
#include "test.h"

#include <unistd.h>

static void test_create_with_everything(void) {
    iov_session *s = open_store("mem:workspace");
    static const char *const indexes[] = {"temperature", "experiment"};
    iov_workspace_attr attr = IOV_WORKSPACE_ATTR_INIT;
    iov_controls controls = IOV_CONTROLS_INIT, granted = IOV_CONTROLS_INIT;
    iov_metadata *md = iov_metadata_new(), *all = NULL;
    iov_workspace *w = NULL, *again = NULL;
    iov_collection *c, *root = NULL;
    iov_stat stat = IOV_STAT_INIT;
    char owner[32], uuid[IOV_UUID_TEXT];
    OK(iov_controls_parse(&controls, "consistency=commit"));
    OK(iov_metadata_set_str(md, "project", "nacelle"));
    snprintf(owner, sizeof owner, "uid:%u", (unsigned)geteuid());
    attr.controls = &controls;
    attr.metadata = md;
    attr.owner = owner;
    attr.indexes = indexes;
    attr.index_count = 2;
    attr.quota_bytes = 1 << 20;
    attr.quota_collections = 3;
    attr.expires_ns = IOV_NEVER - 1;
    attr.access = "any=read"; /* nobody else can reach this store: the list would promise what it cannot keep */
    FAILS(REFUSED, iov_workspace_create(s, "ws", &attr, &w));
    attr.access = NULL;
    OK(iov_workspace_create(s, "ws", &attr, &w));
    iov_metadata_free(md);
    FAILS(EXISTS, iov_workspace_create(s, "ws", NULL, &again));
    OK(iov_workspace_stat(NULL, w, &stat));
    CHECK(stat.kind == IOV_KIND_WORKSPACE && stat.quota_bytes == 1 << 20 && stat.quota_collections == 3);
    CHECK(stat.expires_ns == IOV_NEVER - 1 && stat.uid == geteuid() && stat.ctime_ns > 0);

    c = new_collection(w, "c", NULL);
    OK(iov_controls_effective(c, &granted));
    CHECK(granted.consistency == IOV_CONSISTENCY_COMMIT);
    OK(iov_group_lookup(NULL, w, NULL, NULL, NULL, &root)); /* the root's metadata are the workspace's */
    OK(iov_metadata_list(NULL, root, &all));
    CHECK(iov_metadata_count(all) == 1);
    iov_metadata_free(all);
    OK(iov_collection_close(NULL, root));

    OK(iov_uuid_format(&stat.uuid, uuid));
    OK(iov_workspace_load(s, uuid, &again));
    OK(iov_collection_close(NULL, look_up(again, "c")));
    OK(iov_workspace_close(again));

    FAILS(NOTEMPTY, iov_workspace_delete(s, "ws"));
    OK(iov_collection_close(NULL, c));
    OK(iov_collection_delete(NULL, w, NULL, "c"));
    OK(iov_workspace_delete(s, "ws"));
    FAILS(NOTFOUND, iov_workspace_load(s, "ws", &again));
    FAILS(NOTFOUND, iov_workspace_delete(s, uuid));
    OK(iov_workspace_close(w));
    OK(iov_close(s));
}

static void test_set_and_rename(void) {
    iov_session *s = open_store("mem:set");
    iov_workspace *w = new_workspace(s, "ws");
    iov_workspace_attr attr = IOV_WORKSPACE_ATTR_INIT;
    iov_controls controls = IOV_CONTROLS_INIT, granted = IOV_CONTROLS_INIT;
    iov_stat stat = IOV_STAT_INIT;
    iov_collection *c;
    OK(iov_workspace_stat(NULL, w, &stat));
    CHECK(stat.quota_bytes == IOV_UNLIMITED && stat.quota_collections == IOV_UNLIMITED);
    CHECK(stat.expires_ns == IOV_NEVER);
    attr.quota_collections = 1;
    OK(iov_controls_parse(&controls, "consistency=session"));
    attr.controls = &controls;
    OK(iov_workspace_set(NULL, w, &attr));
    OK(iov_workspace_stat(NULL, w, &stat));
    CHECK(stat.quota_collections == 1 && stat.quota_bytes == IOV_UNLIMITED); /* 0 leaves a property as it is */
    c = new_collection(w, "c", NULL);
    OK(iov_controls_effective(c, &granted));
    CHECK(granted.consistency == IOV_CONSISTENCY_SESSION);
    OK(iov_collection_close(NULL, c));
    FAILS(EXHAUSTED, iov_collection_create(NULL, w, NULL, "d", NULL, NULL, &c));
    DETAIL("quota");

    OK(iov_workspace_rename(NULL, w, "renamed"));
    OK(iov_workspace_commit(NULL, w));
    OK(iov_workspace_persist(NULL, w));
    OK(iov_workspace_close(w));
    FAILS(NOTFOUND, iov_workspace_load(s, "ws", &w));
    OK(iov_workspace_load(s, "renamed", &w));
    new_workspace(s, "taken");
    FAILS(EXISTS, iov_workspace_rename(NULL, w, "taken"));
    attr.access = "user:0=everything";
    FAILS(INVALID, iov_workspace_set(NULL, w, &attr));
    attr.access = NULL;
    attr.owner = "nobody knows this user";
    FAILS(INVALID, iov_workspace_set(NULL, w, &attr));
    OK(iov_workspace_close(w));
    OK(iov_close(s));
}

static void test_search(void) {
    iov_session *s = open_store("mem:spaces");
    iov_search_attr attr = IOV_SEARCH_ATTR_INIT;
    iov_cursor *cur = NULL;
    iov_entry e[8];
    size_t n = 0, i;
    uint64_t count = 0;
    char name[16];
    for (i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "ws%d", (int)i);
        OK(iov_workspace_close(new_workspace(s, name)));
    }
    OK(iov_workspace_search(s, NULL, NULL, &cur));
    e[0].size = sizeof e[0];
    OK(iov_cursor_next(cur, e, 8, &n, -1));
    CHECK(n == 5 && e[0].kind == IOV_KIND_WORKSPACE && strncmp(e[4].name, "ws", 2) == 0);
    OK(iov_cursor_next(cur, e, 8, &n, -1));
    CHECK(n == 0);
    OK(iov_cursor_close(cur));

    attr.order = "iov.name desc";
    attr.limit = 2;
    OK(iov_workspace_search(s, "iov.name ~ \"ws*\"", &attr, &cur));
    OK(iov_cursor_next(cur, e, 8, &n, -1));
    CHECK(n == 2 && strcmp(e[0].name, "ws4") == 0 && strcmp(e[1].name, "ws3") == 0);
    OK(iov_cursor_close(cur));

    attr.order = NULL;
    attr.limit = 0;
    attr.flags = IOV_SEARCH_COUNT;
    OK(iov_workspace_search(s, "iov.name = \"ws1\"", &attr, &cur));
    OK(iov_cursor_count(cur, &count, -1));
    CHECK(count == 1);
    OK(iov_cursor_close(cur));
    attr.flags = IOV_SEARCH_DEEP;
    FAILS(INVALID, iov_workspace_search(s, NULL, &attr, &cur));
    OK(iov_close(s));
}

int main(void) {
    RUN(test_create_with_everything);
    RUN(test_set_and_rename);
    RUN(test_search);
    return 0;
}
