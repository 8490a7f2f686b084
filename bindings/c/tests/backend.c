/* SPDX-License-Identifier: Apache-2.0 */
/* Backends of somebody else: linked in, loaded at run time, and both at once. The one here is examples/backend/directory.c. */
#include "test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/iov-backend-XXXXXX";
static char url[1024];

static const char *store(const char *name, const char *storage, const char *place) {
    snprintf(url, sizeof url, "mem:%s?storage=%s%s%s%s", name, storage, place == NULL ? "" : ",",
             place == NULL ? "" : dir, place == NULL ? "" : place);
    return url;
}

/* Writes a collection, commits part of it as a publication, and reads it back. */
static void use(iov_session *s, char byte) {
    static char bytes[300000], back[300000];
    iov_workspace *w = new_workspace(s, "w");
    iov_collection *c = new_collection(w, "c", NULL), *p = new_collection(w, "p", "atomicity=publication");
    uint64_t got = 0;
    memset(bytes, byte, sizeof bytes);
    OK(iov_write(NULL, c, 0, bytes, sizeof bytes));
    OK(iov_read(NULL, c, 0, back, sizeof back, &got));
    CHECK(got == sizeof back && memcmp(bytes, back, sizeof back) == 0);
    OK(iov_write(NULL, p, 100, bytes, 1000));
    OK(iov_truncate(NULL, p, 600));
    OK(iov_commit(NULL, p));
    OK(iov_read(NULL, p, 0, back, sizeof back, &got));
    CHECK(got == 600 && back[99] == 0 && back[100] == byte && back[599] == byte);
    OK(iov_seal(NULL, c));
    FAILS(IMMUTABLE, iov_write(NULL, c, 0, bytes, 10));
    OK(iov_collection_close(NULL, c));
    OK(iov_collection_close(NULL, p));
    OK(iov_workspace_close(w));
}

static int count(const char *place) {
    char line[256], number[32] = "";
    FILE *f;
    snprintf(line, sizeof line, "find %s%s -type f -size +100k | wc -l", dir, place);
    f = popen(line, "r");
    CHECK(f != NULL && fgets(number, sizeof number, f) != NULL && pclose(f) == 0);
    return atoi(number);
}

static void test_a_linked_table_has_the_bytes(void) {
    iov_session *s, *again, *nothing = NULL;
    FAILS(NOTFOUND, iov_open(store("linked", "import:directory", "/linked"), NULL, &nothing));
    DETAIL("iov_backend_import");
    OK(iov_backend_import("directory", iov_backend_ops_v1()));
    OK(iov_backend_import("directory", iov_backend_ops_v1()));
    s = open_store(store("linked", "import:directory", "/linked"));
    use(s, 'a');
    CHECK(count("/linked") == 1);
    again = open_store("mem:linked");
    FAILS(EXISTS, iov_open("mem:linked?storage=heap:1GiB", NULL, &nothing));
    OK(iov_close(again));
    OK(iov_close(s));
}

static void test_names_are_one_table_each(void) {
    static const iov_backend_ops other = {sizeof other, 0, "other", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    iov_session *nothing = NULL;
    FAILS(EXISTS, iov_backend_import("directory", &other));
    FAILS(INVALID, iov_backend_import("a/b", &other));
    OK(iov_backend_import("other", &other));
    FAILS(INVALID, iov_open("mem:other?storage=import:other", NULL, &nothing));
    DETAIL("lacks init");
    FAILS(INVALID, iov_open(store("wrong", "import:directory,relative", NULL), NULL, &nothing));
    DETAIL("whole path");
}

static void test_several_backends_at_once(void) {
    char virtual_[512];
    const char *library = getenv("IOV_TEST_BACKEND");
    iov_session *linked, *one, *other, *null, *nothing = NULL;
    CHECK(library != NULL);
    snprintf(virtual_, sizeof virtual_, "virtual:%s", library);
    linked = open_store("mem:linked");
    one = open_store(store("one", virtual_, "/one"));
    other = open_store(store("other", virtual_, "/other"));
    null = open_store("mem:null?storage=null");
    use(one, 'b');
    use(other, 'c');
    CHECK(count("/one") == 1 && count("/other") == 1 && count("/linked") == 1);
    OK(iov_close(null));
    OK(iov_close(other));
    OK(iov_close(one));
    OK(iov_close(linked));
    FAILS(NOTFOUND, iov_open("mem:none?storage=virtual:/no/such/library.so", NULL, &nothing));
    FAILS(INVALID, iov_open("mem:none?storage=tape", NULL, &nothing));
    FAILS(INVALID, iov_open("mem:none?colour=blue", NULL, &nothing));
}

/* A table that, before it moves bytes, tries to take away the memory that they are moved from or to. */
static const iov_backend_ops *behind;
static iov_session *holder;
static void *lent;
static int tried;

static int submit_and_try(void *state, const iov_backend_op *ops, size_t n, iov_backend_done done, void *sink) {
    if (lent != NULL) {
        FAILS(BUSY, iov_buffer_free(holder, lent));
        tried++;
    }
    return behind->submit(state, ops, n, done, sink);
}

static void test_a_segment_keeps_the_buffer_that_it_uses(void) {
    static iov_backend_ops table;
    const size_t len = 300000;
    iov_workspace *w;
    iov_uuid id, space;
    size_t got = 0;
    void *buffer = NULL;
    behind = iov_backend_ops_v1();
    table = *behind;
    table.name = "jealous";
    table.submit = submit_and_try;
    OK(iov_backend_import("jealous", &table));
    holder = open_store(store("jealous", "import:jealous", "/jealous"));
    w = new_workspace(holder, "w");
    memset(&space, 7, sizeof space);
    OK(iov_segment_create(w, len, NULL, &id));
    OK(iov_buffer_alloc(holder, len, NULL, &buffer));
    memset(buffer, 's', len);
    lent = buffer;
    OK(iov_segment_put(w, &id, 0, buffer, len));
    CHECK(tried > 0);
    tried = 0;
    OK(iov_segment_get(w, &id, 0, buffer, len));
    CHECK(tried > 0);
    tried = 0;
    OK(iov_segment_write(w, &space, 0, buffer, len));
    CHECK(tried > 0);
    tried = 0;
    OK(iov_segment_read(w, &space, 0, buffer, len, &got));
    CHECK(tried > 0 && got == len && ((char *)buffer)[len - 1] == 's');
    lent = NULL;
    OK(iov_buffer_free(holder, buffer));
    OK(iov_workspace_close(w));
    OK(iov_close(holder));
}

int main(void) {
    char line[64];
    CHECK(mkdtemp(dir) != NULL);
    RUN(test_a_linked_table_has_the_bytes);
    RUN(test_names_are_one_table_each);
    RUN(test_several_backends_at_once);
    RUN(test_a_segment_keeps_the_buffer_that_it_uses);
    snprintf(line, sizeof line, "rm -r %s", dir);
    CHECK(system(line) == 0);
    return 0;
}
