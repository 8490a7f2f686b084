/* SPDX-License-Identifier: Apache-2.0 */
/* What the test programs share. They are valid C11 and C++17; each runs as both. */
#ifndef IOV_TEST_H
#define IOV_TEST_H

#include <ioverbs.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs a call that must succeed. */
#define OK(call) expect_code(__FILE__, __LINE__, #call, (call), 0)
/* Runs a call that must fail with IOV_E##kind. */
#define FAILS(kind, call) expect_code(__FILE__, __LINE__, #call, (call), -IOV_E##kind)
/* A condition that must hold. */
#define CHECK(condition) ((condition) ? (void)0 : failed(__FILE__, __LINE__, #condition))
/* The detail of the last failure must contain this. */
#define DETAIL(part) expect_text(__FILE__, __LINE__, iov_error_detail(), part)
/* Runs a function of this program and says so. */
#define RUN(test) (test(), (void)printf("    %s\n", #test))

static inline void failed(const char *file, int line, const char *what) {
    fflush(stdout);
    fprintf(stderr, "%s:%d: %s\n    last error: %s\n", file, line, what, iov_error_detail());
    exit(1);
}

static inline void expect_code(const char *file, int line, const char *what, int code, int expected) {
    if (code == expected) {
        return;
    }
    fflush(stdout);
    fprintf(stderr, "%s:%d: %s\n    returned %d (%s), expected %d (%s)\n    detail: %s\n", file, line, what, code,
            iov_strerror(code), expected, iov_strerror(expected), iov_error_detail());
    exit(1);
}

static inline void expect_text(const char *file, int line, const char *text, const char *part) {
    if (text == NULL || strstr(text, part) == NULL) {
        fflush(stdout);
        fprintf(stderr, "%s:%d: \"%s\" is not in \"%s\"\n", file, line, part, text == NULL ? "(NULL)" : text);
        exit(1);
    }
}

/* How often something is repeated: `full` times where IOV_TEST_LONG is set (`make test-long`), else fewer. */
static inline int repeats(int quick, int full) {
    const char *wanted = getenv("IOV_TEST_LONG");
    return wanted == NULL || *wanted == '\0' ? quick : full;
}

/* A session on a store of memory: the same store for the same URL. */
static inline iov_session *open_store(const char *url) {
    iov_session *s = NULL;
    OK(iov_open(url, NULL, &s));
    CHECK(s != NULL);
    return s;
}

/* A workspace with a new name. */
static inline iov_workspace *new_workspace(iov_session *s, const char *name) {
    iov_workspace *w = NULL;
    OK(iov_workspace_create(s, name, NULL, &w));
    CHECK(w != NULL);
    return w;
}

/* A collection in the root of a workspace, as a controls text says; NULL = the defaults. */
static inline iov_collection *new_collection(iov_workspace *w, const char *name, const char *controls) {
    iov_controls asked = IOV_CONTROLS_INIT;
    iov_collection *c = NULL;
    if (controls != NULL) {
        OK(iov_controls_parse(&asked, controls));
    }
    OK(iov_collection_create(NULL, w, NULL, name, NULL, controls == NULL ? NULL : &asked, &c));
    CHECK(c != NULL);
    return c;
}

static inline iov_collection *look_up(iov_workspace *w, const char *name) {
    iov_collection *c = NULL;
    OK(iov_collection_lookup(NULL, w, NULL, name, NULL, &c));
    return c;
}

/* A batch with an error policy. */
static inline iov_batch *new_batch(iov_session *s, uint8_t on_error) {
    iov_batch_attr attr = IOV_BATCH_ATTR_INIT;
    iov_batch *b = NULL;
    attr.on_error = on_error;
    OK(iov_batch_create(s, &attr, &b));
    return b;
}

/* Starts a batch, waits, frees the request; returns what iov_wait did. */
static inline int finish(iov_batch *b) {
    iov_request *r = NULL;
    int code;
    OK(iov_batch_start(b, &r));
    code = iov_wait(r, -1);
    OK(iov_request_free(r));
    return code;
}

static inline iov_status status_of(iov_batch *b, size_t index) {
    iov_status status = IOV_STATUS_INIT;
    OK(iov_batch_status(b, index, &status));
    return status;
}

static inline uint64_t size_of(iov_collection *c) {
    iov_stat stat = IOV_STAT_INIT;
    OK(iov_collection_stat(NULL, c, &stat));
    return stat.bytes;
}

static inline void write_text(iov_collection *c, uint64_t offset, const char *text) {
    OK(iov_write(NULL, c, offset, text, strlen(text)));
}

/* The bytes at an offset are this text, and all of it is there. */
static inline void expect_bytes(iov_collection *c, uint64_t offset, const char *text) {
    char buf[256];
    size_t got = 0, len = strlen(text);
    CHECK(len < sizeof buf);
    OK(iov_read(NULL, c, offset, buf, len, &got));
    CHECK(got == len);
    CHECK(memcmp(buf, text, len) == 0);
}

#endif
