/* SPDX-License-Identifier: Apache-2.0 */
/* A simulation stores ten runs; then those that were hot are found and read back. With the argument `read` it only
 * looks for what another program has stored. */
#include <ioverbs.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 10
#define LINES 65536
#define BYTES (LINES * 16)

/* Ends the program if a call has failed, and says why. */
static void check(int code, const char *what) {
    if (code != 0) {
        fprintf(stderr, "%s: %s %s\n", what, iov_strerror(code), iov_error_detail());
        exit(1);
    }
}

/* The CRC-32 of gzip and zlib. */
static uint32_t crc32(const unsigned char *bytes, size_t len) {
    static uint32_t table[256];
    uint32_t crc = 0xffffffff;
    size_t i;
    if (table[1] == 0) {
        uint32_t n, k;
        for (n = 0; n < 256; n++) {
            table[n] = n;
            for (k = 0; k < 8; k++) {
                table[n] = table[n] & 1 ? table[n] >> 1 ^ 0xedb88320 : table[n] >> 1;
            }
        }
    }
    for (i = 0; i < len; i++) {
        crc = table[(crc ^ bytes[i]) & 0xff] ^ crc >> 8;
    }
    return ~crc;
}

/* What a run computed: 1 MiB. */
static void results(char *data, int run) {
    char line[32];
    int i;
    for (i = 0; i < LINES; i++) {
        snprintf(line, sizeof line, "run_%d %09d\n", run, i);
        memcpy(data + 16 * i, line, 16);
    }
}

static void store(iov_session *s) {
    const char *const indexes[] = {"temperature"};
    iov_workspace_attr attr = IOV_WORKSPACE_ATTR_INIT;
    iov_controls controls = IOV_CONTROLS_INIT;
    iov_workspace *w = NULL;
    char *data = (char *)malloc(BYTES);
    int i;

    attr.indexes = indexes;
    attr.index_count = 1;
    check(iov_workspace_create(s, "simulation", &attr, &w), "creating the workspace");

    /* Nobody reads a run before it is closed, so that nothing has to be published earlier. */
    check(iov_controls_parse(&controls, "consistency=session"), "the controls");
    for (i = 0; i < RUNS; i++) {
        iov_metadata *md = iov_metadata_new();
        iov_collection *c = NULL;
        char name[16];
        results(data, i);
        snprintf(name, sizeof name, "run_%d", i);
        check(iov_metadata_set_i64(md, "temperature", 290 + 5 * i), "metadata");
        check(iov_metadata_set_str(md, "experiment", "nacelle"), "metadata");
        check(iov_metadata_set_i64(md, "iteration", i), "metadata");
        check(iov_metadata_set_i64(md, "crc32", crc32((unsigned char *)data, BYTES)), "metadata");
        check(iov_collection_create(NULL, w, NULL, name, md, &controls, &c), name);
        check(iov_write(NULL, c, 0, data, BYTES), name);
        check(iov_collection_close(NULL, c), name);
        iov_metadata_free(md);
    }
    free(data);
    check(iov_workspace_close(w), "closing the workspace");
}

/* Opens, reads and closes in one batch, which is one request. Returns the number of bytes. */
static size_t read_back(iov_session *s, iov_workspace *w, const char *name, char *data, size_t room) {
    iov_batch *b = NULL;
    iov_request *r = NULL;
    iov_collection *c = NULL;
    size_t got = 0;
    check(iov_batch_create(s, NULL, &b), "a batch");
    check(iov_collection_lookup(b, w, NULL, name, NULL, &c), name);
    check(iov_read(b, c, 0, data, room, &got), name);
    check(iov_collection_close(b, c), name);
    check(iov_batch_start(b, &r), name);
    check(iov_wait(r, -1), name); /* until here `data` and `got` are in use */
    check(iov_request_free(r), name);
    check(iov_batch_free(b), name);
    return got;
}

static void find(iov_session *s) {
    const char *const keys[] = {"crc32"};
    iov_search_attr attr = IOV_SEARCH_ATTR_INIT;
    iov_workspace *w = NULL;
    iov_cursor *cur = NULL;
    iov_entry found = IOV_ENTRY_INIT;
    size_t n = 0, matches = 0, total = 0;
    char *data = (char *)malloc(BYTES + 1); /* room for one more, so that too many would show */

    check(iov_workspace_load(s, "simulation", &w), "opening the workspace");
    attr.order = "iov.name";
    attr.keys = keys;
    attr.key_count = 1;
    check(iov_collection_search(NULL, w, "temperature > 310 and experiment = \"nacelle\"", &attr, &cur), "the search");
    for (;;) {
        iov_value wanted = IOV_VALUE_INIT;
        size_t got;
        uint32_t crc;
        check(iov_cursor_next(cur, &found, 1, &n, -1), "the search");
        if (n == 0) {
            break;
        }
        got = read_back(s, w, found.name, data, BYTES + 1);
        crc = crc32((unsigned char *)data, got);
        check(iov_metadata_find(found.metadata, "crc32", &wanted), found.name);
        if (wanted.type != IOV_TYPE_I64 || wanted.i64 != crc) {
            fprintf(stderr, "%s has the checksum %u, and was stored with %lld\n", found.name, (unsigned)crc,
                    (long long)wanted.i64);
            exit(1);
        }
        printf("%s %zu %08x\n", found.name, got, (unsigned)crc);
        matches++;
        total += got;
    }
    printf("%zu matches, %zu bytes\n", matches, total);
    check(iov_cursor_close(cur), "ending the search");
    check(iov_workspace_close(w), "closing the workspace");
    free(data);
}

int main(int argc, char **argv) {
    iov_session *s = NULL;
    check(iov_open(NULL, NULL, &s), "opening the store"); /* no URL: $IOVERBS_URL, or the default store */
    if (argc < 2 || strcmp(argv[1], "read") != 0) {
        store(s);
    }
    find(s);
    check(iov_close(s), "closing the store");
    return 0;
}
