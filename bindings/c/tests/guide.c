/* SPDX-License-Identifier: Apache-2.0 */
/* What docs/guide/c.md shows in C and the example does not need: guide.sh sees to it that the page says the same. */
#include "test.h"

static iov_session *s;
static iov_workspace *w;

static void test_m1_publication(void) {
    static double field[1000];
    iov_controls controls = IOV_CONTROLS_INIT;
    iov_collection *c = NULL;
    int code;
    controls.atomicity = IOV_ATOMICITY_PUBLICATION;
    controls.persistence = IOV_PERSISTENCE_DURABLE;
    code = iov_collection_create(NULL, w, NULL, "checkpoint", NULL, &controls, &c);
    if (code == -IOV_EREFUSED) {
        iov_status why = IOV_STATUS_INIT;
        iov_error_last(&why);
        fprintf(stderr, "clause %s: %s\n", why.clause, why.detail);
    }
    CHECK(code == -IOV_EREFUSED); /* memory is not durable */
    controls.persistence = 0;
    OK(iov_collection_create(NULL, w, NULL, "checkpoint", NULL, &controls, &c));
    OK(iov_write(NULL, c, 0, field, sizeof field));
    OK(iov_commit(NULL, c)); /* now others see it, all of it */
    OK(iov_collection_close(NULL, c));
}

static void test_b3_rollback(void) {
    iov_collection *a = new_collection(w, "a", NULL), *log = new_collection(w, "log", "mutability=append");
    iov_metadata *md = iov_metadata_new();
    const char record[] = "step 7 is done\n";
    double state[8] = {1};
    OK(iov_metadata_set_i64(md, "step", 7));
    {
        iov_batch_attr attr = IOV_BATCH_ATTR_INIT;
        iov_batch *b = NULL;
        iov_request *r = NULL;
        attr.on_error = IOV_ON_ERROR_ROLLBACK;
        OK(iov_batch_create(s, &attr, &b));
        OK(iov_write(b, a, 0, state, sizeof state));
        OK(iov_metadata_put(b, a, md));
        OK(iov_append(b, log, record, strlen(record), NULL));
        OK(iov_batch_start(b, &r));
        if (iov_wait(r, -1) == -IOV_EPARTIAL) {
            for (size_t i = 0; i < iov_batch_count(b); i++) {
                iov_status status = IOV_STATUS_INIT;
                OK(iov_batch_status(b, i, &status));
                fprintf(stderr, "operation %zu: %s %s\n", i, iov_strerror(status.code), status.detail);
            }
        }
        OK(iov_request_free(r));
        OK(iov_batch_free(b));
    }
    CHECK(size_of(a) == sizeof state && size_of(log) == strlen(record));
    iov_metadata_free(md);
    OK(iov_collection_close(NULL, a));
    OK(iov_collection_close(NULL, log));
}

int main(void) {
    s = open_store("mem:guide");
    w = new_workspace(s, "ws");
    RUN(test_m1_publication);
    RUN(test_b3_rollback);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
    return 0;
}
