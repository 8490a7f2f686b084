/* The example backend, of which writes in the background wait while DIRECTORY.hold is there, and which notes in DIRECTORY.seen of each
 * write which priority it came with. */
#define iov_backend_ops_v1 directory_ops
#include "directory.c"
#undef iov_backend_ops_v1

static char place[4096];

static int held_init(const char *config, const iov_backend_host *host, void **state) {
    snprintf(place, sizeof place, "%s", config);
    return directory_ops()->init(config, host, state);
}

static int held_submit(void *state, const iov_backend_op *ops, size_t n,
                       void (*done)(void *sink, const iov_evidence *e), void *sink) {
    char name[4200];
    for (size_t i = 0; i < n; i++) {
        if (ops[i].kind != IOV_BACKEND_WRITE) continue;
        snprintf(name, sizeof name, "%s.seen", place);
        int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (fd >= 0) {
            (void)!write(fd, ops[i].priority == 0 ? "0" : ops[i].priority == 1 ? "1" : "?", 1);
            close(fd);
        }
        snprintf(name, sizeof name, "%s.hold", place);
        while (ops[i].priority == 1 && access(name, F_OK) == 0) usleep(5000);
    }
    return directory_ops()->submit(state, ops, n, done, sink);
}

const iov_backend_ops *iov_backend_ops_v1(void) {
    static iov_backend_ops held;
    held = *directory_ops();
    held.init = held_init;
    held.submit = held_submit;
    return &held;
}
