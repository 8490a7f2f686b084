/* SPDX-License-Identifier: Apache-2.0 */
/* The library itself: version, errors, log, UUIDs. */
#include "test.h"

static void test_version(void) {
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", IOV_VERSION_MAJOR, IOV_VERSION_MINOR, IOV_VERSION_PATCH);
    CHECK(strcmp(iov_version(), expected) == 0);
}

static void test_every_error_has_a_sentence(void) {
    static const int codes[] = {
        IOV_EINVALID, IOV_EREFUSED, IOV_EUNSUPPORTED, IOV_EVERSION, IOV_EFORKED, IOV_ENOTFOUND, IOV_EEXISTS,
        IOV_ENOTEMPTY, IOV_ECONFLICT, IOV_EBUSY, IOV_EDENIED, IOV_EIMMUTABLE, IOV_ESTALE, IOV_EFENCED,
        IOV_EUNAVAILABLE, IOV_ETIMEOUT, IOV_ECANCELLED, IOV_EPARTIAL, IOV_EEXHAUSTED, IOV_ETOOBIG, IOV_EFILETOOBIG,
        IOV_ECORRUPT, IOV_ELOST, IOV_EINTERNAL,
    };
    const char *unknown = iov_strerror(7);
    size_t i, j;
    for (i = 0; i < sizeof codes / sizeof *codes; i++) {
        const char *sentence = iov_strerror(-codes[i]);
        CHECK(sentence == iov_strerror(codes[i]));
        CHECK(strlen(sentence) > 10 && sentence != unknown);
        for (j = 0; j < i; j++) {
            CHECK(strcmp(sentence, iov_strerror(codes[j])) != 0);
        }
    }
    CHECK(strcmp(iov_strerror(0), "Success.") == 0);
    CHECK(iov_strerror(INT32_MIN) != NULL);
}

static void *fail_elsewhere(void *arg) {
    iov_uuid uuid;
    CHECK(strcmp(iov_error_detail(), "") == 0);
    FAILS(INVALID, iov_uuid_parse("uuid:elsewhere", &uuid));
    return arg;
}

static void test_last_error(void) {
    iov_status status = IOV_STATUS_INIT;
    iov_uuid uuid;
    pthread_t thread;
    const char *detail;
    CHECK(strcmp(iov_error_detail(), "") == 0);
    OK(iov_error_last(&status));
    CHECK(status.code == 0 && strcmp(status.detail, "") == 0 && strcmp(status.clause, "") == 0);

    FAILS(INVALID, iov_uuid_parse("here", &uuid));
    DETAIL("here");
    detail = iov_error_detail();
    OK(iov_uuid_new(&uuid)); /* success changes nothing */
    CHECK(iov_error_detail() == detail);
    CHECK(pthread_create(&thread, NULL, fail_elsewhere, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(iov_error_detail() == detail && strstr(detail, "here") != NULL);

    OK(iov_error_last(&status));
    CHECK(status.code == -IOV_EINVALID && status.state == IOV_OP_FAILED);
    CHECK(status.outcome == IOV_OUTCOME_NOT_APPLIED && status.detail == detail);
    FAILS(INVALID, iov_error_last(NULL));
    DETAIL("iov_status is NULL");
}

static void test_o3_names_tell_the_clause(void) {
    iov_session *s = open_store("mem:library");
    iov_workspace *w = NULL;
    iov_status status = IOV_STATUS_INIT;
    FAILS(INVALID, iov_workspace_create(s, "a/b", NULL, &w));
    CHECK(w == NULL);
    OK(iov_error_last(&status));
    CHECK(strcmp(status.clause, "O3") == 0);
    OK(iov_close(s));
}

static int lines, opened, closed, refused;
static uint32_t highest;

static void take_line(void *ctx, uint32_t level, const char *line) {
    CHECK(ctx == &lines);
    CHECK(level >= IOV_LOG_ERROR && level <= IOV_LOG_TRACE);
    lines++;
    highest = level > highest ? level : highest;
    opened += strstr(line, "session opened: mem:log") != NULL;
    closed += strstr(line, "session closed: mem:log") != NULL;
    refused += strncmp(line, "refused:", 8) == 0;
    CHECK(iov_log_set(IOV_LOG_OFF, NULL, NULL) == -IOV_EINVALID); /* must not call the library, and is told so */
}

static void test_log(void) {
    iov_controls asked = IOV_CONTROLS_INIT, granted = IOV_CONTROLS_INIT;
    iov_session *s;
    int before;
    OK(iov_log_set(IOV_LOG_INFO, take_line, &lines));
    s = open_store("mem:log");
    OK(iov_controls_parse(&asked, "persistence=durable"));
    FAILS(REFUSED, iov_controls_check(s, NULL, &asked, &granted));
    OK(iov_close(s));
    CHECK(opened == 1 && closed == 1 && refused == 1);
    CHECK(highest <= IOV_LOG_INFO);
    before = lines;
    OK(iov_log_set(IOV_LOG_ERROR, take_line, &lines));
    OK(iov_close(open_store("mem:log")));
    OK(iov_log_set(IOV_LOG_OFF, take_line, &lines));
    OK(iov_close(open_store("mem:log")));
    OK(iov_log_set(IOV_LOG_TRACE, NULL, NULL));
    OK(iov_close(open_store("mem:log")));
    CHECK(lines == before);
    FAILS(INVALID, iov_log_set(17, NULL, NULL));
}

static void test_uuids(void) {
    iov_uuid a, b;
    char text[IOV_UUID_TEXT];
    OK(iov_uuid_new(&a));
    OK(iov_uuid_new(&b));
    CHECK(memcmp(&a, &b, sizeof a) != 0);
    CHECK(a.bytes[6] >> 4 == 7 && a.bytes[8] >> 6 == 2);
    OK(iov_uuid_format(&a, text));
    CHECK(strlen(text) + 1 == IOV_UUID_TEXT && strncmp(text, "uuid:", 5) == 0);
    OK(iov_uuid_parse(text, &b));
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    FAILS(INVALID, iov_uuid_parse(text + 1, &b));
    FAILS(INVALID, iov_uuid_parse("uuid:01234567-89ab-cdef-0123-456789abcde", &b));
    FAILS(INVALID, iov_uuid_parse("uuid:01234567-89ab-cdef-0123-456789abcdeg", &b));
    CHECK(memcmp(&a, &b, sizeof a) == 0);
}

int main(void) {
    RUN(test_version);
    RUN(test_every_error_has_a_sentence);
    RUN(test_last_error);
    RUN(test_o3_names_tell_the_clause);
    RUN(test_log);
    RUN(test_uuids);
    return 0;
}
