/* SPDX-License-Identifier: Apache-2.0 */
/* Controls: text, profiles, what a create would get, what a handle was granted. */
#include "test.h"

static void test_init(void) {
    iov_controls c;
    unsigned char *bytes = (unsigned char *)&c;
    size_t i;
    memset(&c, 0xa5, sizeof c);
    iov_controls_init(&c, sizeof c);
    CHECK(c.size == sizeof c);
    for (i = sizeof c.size; i < sizeof c; i++) {
        CHECK(bytes[i] == 0);
    }
    memset(&c, 0xa5, sizeof c);
    iov_controls_init(&c, 16); /* an older program's struct */
    CHECK(c.size == 16 && c.on_error == 0);
    CHECK(bytes[16] == 0xa5);
    memset(&c, 0xa5, sizeof c);
    iov_controls_init(&c, 1 << 30); /* makes no sense, and changes nothing */
    CHECK(bytes[0] == 0xa5);
    iov_controls_init(NULL, sizeof c);
}

static void test_text(void) {
    iov_controls c = IOV_CONTROLS_INIT;
    char text[256], small[8];
    size_t needed = 0;
    OK(iov_controls_parse(&c, "profile=checkpoint,consistency=session,persistence=durable@close,request_size=47008"));
    CHECK(c.consistency == IOV_CONSISTENCY_SESSION && c.persistence == IOV_PERSISTENCE_DURABLE);
    CHECK(c.persistence_point == IOV_POINT_CLOSE && c.temporality == IOV_TEMPORALITY_ONCE);
    CHECK(c.request_size.min == 47008 && c.request_size.max == 47008);
    OK(iov_controls_parse(&c, "consistency=eventual(2s)"));
    CHECK(c.consistency == IOV_CONSISTENCY_EVENTUAL && c.eventual_ns == 2000000000u);
    CHECK(c.persistence == IOV_PERSISTENCE_DURABLE); /* what is not named stays */
    OK(iov_controls_format(&c, text, sizeof text, &needed));
    CHECK(needed == strlen(text) + 1);
    strcpy(small, "before");
    FAILS(TOOBIG, iov_controls_format(&c, small, sizeof small, &needed));
    CHECK(needed == strlen(text) + 1 && strcmp(small, "before") == 0);
    needed = 0;
    FAILS(TOOBIG, iov_controls_format(&c, NULL, 0, &needed));
    CHECK(needed == strlen(text) + 1);
    {
        iov_controls again = IOV_CONTROLS_INIT;
        OK(iov_controls_parse(&again, text));
        CHECK(memcmp(&again, &c, sizeof c) == 0);
    }
    FAILS(INVALID, iov_controls_parse(&c, "consistency=weak"));
    DETAIL("weak");
    FAILS(INVALID, iov_controls_parse(&c, "consistency=session,,"));
    DETAIL("byte");
}

static void test_profiles(void) {
    static const char *const names[] = {"posix", "checkpoint", "dataset", "log", "scratch", "exchange"};
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        iov_controls c = IOV_CONTROLS_INIT;
        c.consistency = IOV_CONSISTENCY_COMMIT;
        OK(iov_controls_profile(&c, names[i]));
        CHECK(c.consistency == IOV_CONSISTENCY_COMMIT); /* sets only what is unset */
        CHECK(c.concurrency != 0 && c.mutability != 0);
    }
    {
        iov_controls c = IOV_CONTROLS_INIT;
        FAILS(NOTFOUND, iov_controls_profile(&c, "chekpoint"));
        DETAIL("checkpoint");
    }
}

static void test_check_offers(void) {
    iov_session *s = open_store("mem:check");
    iov_workspace_attr attr = IOV_WORKSPACE_ATTR_INIT;
    iov_workspace *w = NULL;
    iov_controls defaults = IOV_CONTROLS_INIT, asked = IOV_CONTROLS_INIT, granted = IOV_CONTROLS_INIT;
    iov_status status = IOV_STATUS_INIT;
    OK(iov_controls_parse(&defaults, "consistency=session"));
    attr.controls = &defaults;
    OK(iov_workspace_create(s, "ws", &attr, &w));

    OK(iov_controls_check(s, NULL, &asked, &granted));
    CHECK(granted.consistency == IOV_CONSISTENCY_SEQUENTIAL && granted.persistence == IOV_PERSISTENCE_VOLATILE);
    OK(iov_controls_check(s, w, &asked, &granted));
    CHECK(granted.consistency == IOV_CONSISTENCY_SESSION);
    CHECK(granted.concurrency && granted.mutability && granted.atomicity && granted.persistence_point);

    memset((char *)&granted + 4, 0, sizeof granted - 4);
    OK(iov_controls_parse(&asked, "persistence=durable"));
    FAILS(REFUSED, iov_controls_check(s, w, &asked, &granted));
    OK(iov_error_last(&status));
    CHECK(strcmp(status.clause, "P3") == 0);
    DETAIL("offer");
    CHECK(granted.persistence == IOV_PERSISTENCE_VOLATILE && granted.consistency == IOV_CONSISTENCY_SESSION);
    OK(iov_controls_check(s, w, &granted, &granted)); /* the offer is one */

    memset((char *)&granted + 4, 0, sizeof granted - 4);
    iov_controls_init(&asked, sizeof asked);
    asked.stride = 4096; /* a parameter whose value is not asked for */
    FAILS(INVALID, iov_controls_check(s, w, &asked, &granted));
    CHECK(granted.consistency == 0);
    OK(iov_workspace_close(w));
    OK(iov_close(s));
}

static void test_effective(void) {
    iov_session *s = open_store("mem:effective");
    iov_workspace *w = new_workspace(s, "ws");
    iov_collection *c = new_collection(w, "c", "consistency=commit,atomicity=unit(8192)"), *pending = NULL;
    iov_controls granted = IOV_CONTROLS_INIT;
    iov_batch *b = new_batch(s, 0);
    OK(iov_controls_effective(c, &granted));
    CHECK(granted.consistency == IOV_CONSISTENCY_COMMIT && granted.atomicity == IOV_ATOMICITY_UNIT);
    CHECK(granted.atomic_unit == 8192 && granted.temporality == IOV_TEMPORALITY_MULTIPLE);
    OK(iov_collection_create(b, w, NULL, "pending", NULL, NULL, &pending));
    FAILS(BUSY, iov_controls_effective(pending, &granted));
    OK(finish(b));
    OK(iov_controls_effective(pending, &granted));
    OK(iov_batch_free(b));
    OK(iov_collection_close(NULL, pending));
    OK(iov_collection_close(NULL, c));
    OK(iov_close(s));
}

int main(void) {
    RUN(test_init);
    RUN(test_text);
    RUN(test_profiles);
    RUN(test_check_offers);
    RUN(test_effective);
    return 0;
}
