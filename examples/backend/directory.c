// SPDX-License-Identifier: Apache-2.0
// A backend in C: each object is a file of one directory. Build it, then make a store on it:
//
//     cc -O2 -fPIC -shared -o directory.so directory.c $(pkg-config --cflags ioverbs) -pthread
//     iov up --dir $HOME/store --storage virtual:$PWD/directory.so,/scratch/bytes
//
// It shows all that a backend has to do. What it leaves out (APPEND, COPY, grants) is done in front of it with what it has.
//
// Files: OBJECT has the bytes, without permission to write once it is sealed; OBJECT.facts has its epoch and version, unless
// both are 0; OBJECT+BATCH is what a batch has staged: the whole object as it will be. OBJECT is the collection's UUID in hex, a
// dash, and the slot.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <ioverbs.h>

enum { NAME = 96 };

struct directory {
    int fd;
    uint64_t incarnation;
    // Readers of bytes share it; everything else is alone. A faster backend has a lock for each object.
    pthread_rwlock_t lock;
};

struct facts { uint64_t epoch, version; };

// ---- Names

static void hex(char *out, const iov_uuid *uuid) {
    for (int i = 0; i < 16; i++) sprintf(out + 2 * i, "%02x", uuid->bytes[i]);
}

static void object_name(char out[NAME], const iov_object *object) {
    hex(out, &object->collection);
    sprintf(out + 32, "-%" PRIu64, object->slot);
}

static void staged_name(char out[NAME], const iov_backend_op *op) {
    object_name(out, &op->object);
    strcat(out, "+");
    hex(out + strlen(out), &op->batch);
}

// Whether a file is an object's bytes, and whose.
static int parse_name(const char *name, iov_object *out) {
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (sscanf(name + 2 * i, "%2x", &byte) != 1) return 0;
        out->collection.bytes[i] = (uint8_t)byte;
    }
    int end = 0;
    return name[32] == '-' && sscanf(name + 33, "%" SCNu64 "%n", &out->slot, &end) == 1 && name[33 + end] == 0;
}

// ---- Answers

static int code_of(int error) {
    switch (error) {
    case 0: return 0;
    case ENOENT: return -IOV_ENOTFOUND;
    case ENOSPC: case EDQUOT: case EMFILE: case ENFILE: case ENOMEM: return -IOV_EEXHAUSTED;
    case EACCES: case EPERM: case EROFS: return -IOV_EDENIED;
    case EFBIG: case EINVAL: return -IOV_EINVALID;
    case EIO: return -IOV_EUNAVAILABLE;
    default: return -IOV_EINTERNAL;
    }
}

// ---- Facts

static struct facts read_facts(struct directory *d, const iov_object *object) {
    char name[NAME + 8], text[64] = {0};
    struct facts facts = {0, 0};
    object_name(name, object);
    strcat(name, ".facts");
    int fd = openat(d->fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return facts;
    if (read(fd, text, sizeof text - 1) > 0) sscanf(text, "%" SCNu64 " %" SCNu64, &facts.epoch, &facts.version);
    close(fd);
    return facts;
}

// In one step: a reader after a crash finds the old ones or the new ones.
static int write_facts(struct directory *d, const iov_object *object, struct facts facts) {
    char name[NAME + 8], fresh[NAME + 16], text[64];
    object_name(name, object);
    strcat(name, ".facts");
    sprintf(fresh, "%s.new", name);
    int len = sprintf(text, "%" PRIu64 " %" PRIu64 "\n", facts.epoch, facts.version);
    int fd = openat(d->fd, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    int error = write(fd, text, (size_t)len) == len && fsync(fd) == 0 ? 0 : errno ? errno : EIO;
    close(fd);
    if (error == 0 && renameat(d->fd, fresh, d->fd, name) != 0) error = errno;
    return error;
}

// ---- Bytes

static int open_object(struct directory *d, const iov_object *object, int flags) {
    char name[NAME];
    object_name(name, object);
    return openat(d->fd, name, flags | O_CLOEXEC, 0600);
}

static int write_all(int fd, const char *bytes, uint64_t len, uint64_t offset) {
    while (len > 0) {
        ssize_t n = pwrite(fd, bytes, len, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? errno : EIO;
        bytes += n, len -= (uint64_t)n, offset += (uint64_t)n;
    }
    return 0;
}

static int read_all(int fd, char *bytes, uint64_t len, uint64_t offset, uint64_t *done) {
    *done = 0;
    while (*done < len) {
        ssize_t n = pread(fd, bytes + *done, len - *done, (off_t)(offset + *done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        if (n == 0) break;
        *done += (uint64_t)n;
    }
    return 0;
}

// Whether an object may be changed as an operation wants it.
static int may_change(struct directory *d, int fd, const iov_backend_op *op) {
    struct stat stat;
    struct facts facts = read_facts(d, &op->object);
    if (fstat(fd, &stat) != 0) return code_of(errno);
    if (op->expect_epoch != 0 && op->expect_epoch != facts.epoch) return -IOV_EFENCED;
    if (op->expect_version != 0 && op->expect_version != facts.version) return -IOV_ECONFLICT;
    return stat.st_mode & S_IWUSR ? 0 : -IOV_EIMMUTABLE;
}

// What was done survives power loss when this returns, if that is asked for.
static int reach(struct directory *d, int fd, const iov_backend_op *op) {
    if (op->durability < IOV_PERSISTENCE_DURABLE) return 0;
    return fsync(fd) == 0 && fsync(d->fd) == 0 ? 0 : errno;
}

// A file with what the object would be, begun as a copy of it.
static int open_staged(struct directory *d, const iov_backend_op *op, int base, int *out) {
    char name[NAME * 2];
    staged_name(name, op);
    *out = openat(d->fd, name, O_WRONLY | O_CLOEXEC);
    if (*out >= 0 || errno != ENOENT) return *out >= 0 ? 0 : errno;
    // Under another name until it is whole: a copy that was cut short must not be taken for one.
    char fresh[NAME * 2 + 8];
    sprintf(fresh, "%s.new", name);
    *out = openat(d->fd, fresh, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (*out < 0) return errno;
    char piece[65536];
    uint64_t at = 0, n;
    int error;
    do {
        error = read_all(base, piece, sizeof piece, at, &n);
        if (error == 0) error = write_all(*out, piece, n, at);
        at += n;
    } while (error == 0 && n == sizeof piece);
    if (error == 0 && renameat(d->fd, fresh, d->fd, name) != 0) error = errno;
    if (error != 0) close(*out);
    return error;
}

static int publish(struct directory *d, const iov_backend_op *op, int base) {
    char name[NAME], staged[NAME * 2];
    object_name(name, &op->object);
    staged_name(staged, op);
    int fd = openat(d->fd, staged, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? 0 : code_of(errno); // it was published before
    struct facts facts = read_facts(d, &op->object);
    int code = may_change(d, base, op);
    int error = 0;
    if (code == 0) {
        facts.version++;
        error = reach(d, fd, op);
        if (error == 0) error = write_facts(d, &op->object, facts);
        if (error == 0 && renameat(d->fd, staged, d->fd, name) != 0) error = errno;
        if (error == 0) error = reach(d, fd, op);
    }
    close(fd);
    return code != 0 ? code : code_of(error);
}

// Removes the files of an object: its bytes last, so that what is left after a crash is found and removed again.
static int remove_object(struct directory *d, const iov_object *object) {
    char name[NAME];
    object_name(name, object);
    size_t len = strlen(name);
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) return errno;
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (strncmp(e->d_name, name, len) == 0 && (e->d_name[len] == '+' || e->d_name[len] == '.'))
            unlinkat(d->fd, e->d_name, 0);
    closedir(dir);
    return unlinkat(d->fd, name, 0) == 0 || errno == ENOENT ? 0 : errno;
}

// ---- Lists

static int compare(const void *a, const void *b) {
    const iov_object *one = a, *other = b;
    int order = memcmp(one->collection.bytes, other->collection.bytes, 16);
    return order != 0 ? order : (one->slot > other->slot) - (one->slot < other->slot);
}

static int list(struct directory *d, const iov_backend_op *op, uint64_t *bytes) {
    size_t count = 0, room = 0;
    iov_object *all = NULL, found;
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) return errno;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (!parse_name(e->d_name, &found) || compare(&found, &op->object) <= 0) continue;
        if (count == room) {
            iov_object *more = realloc(all, (room = room * 2 + 64) * sizeof *all);
            if (more == NULL) {
                free(all);
                closedir(dir);
                return ENOMEM;
            }
            all = more;
        }
        all[count++] = found;
    }
    closedir(dir);
    if (count > 0) qsort(all, count, sizeof *all, compare);
    if (count > op->len / sizeof *all) count = op->len / sizeof *all;
    if (count > 0) memcpy(op->buf, all, count * sizeof *all);
    *bytes = count * sizeof *all;
    free(all);
    return 0;
}

// ---- Operations

static int run(struct directory *d, const iov_backend_op *op, iov_evidence *e) {
    int error = 0, code = 0, fd = -1, staged = -1;
    struct stat stat;
    struct facts facts;
    char name[NAME * 2];
    e->offset = op->offset;
    e->durability = op->durability;
    switch (op->kind) {
    case IOV_BACKEND_LIST:
        return code_of(list(d, op, &e->bytes));
    case IOV_BACKEND_REMOVE:
        return code_of(remove_object(d, &op->object));
    case IOV_BACKEND_DISCARD:
        staged_name(name, op);
        return unlinkat(d->fd, name, 0) == 0 || errno == ENOENT ? 0 : code_of(errno);
    case IOV_BACKEND_CREATE:
        fd = open_object(d, &op->object, O_RDWR | O_CREAT);
        break;
    case IOV_BACKEND_STAT: case IOV_BACKEND_READ: case IOV_BACKEND_SYNC: case IOV_BACKEND_SEAL: case IOV_BACKEND_FENCE:
    case IOV_BACKEND_PUBLISH: case IOV_BACKEND_STAGE:
        fd = open_object(d, &op->object, O_RDONLY);
        break;
    default:
        fd = open_object(d, &op->object, O_RDWR);
    }
    // Root may open what is sealed for writing; everybody else learns of it here.
    if (fd < 0) return errno == EACCES ? -IOV_EIMMUTABLE : code_of(errno);
    switch (op->kind) {
    case IOV_BACKEND_CREATE:
        e->outcome = IOV_OUTCOME_UNKNOWN;
        error = reach(d, fd, op);
        break;
    case IOV_BACKEND_WRITE:
        code = may_change(d, fd, op);
        if (code != 0) break;
        // A part of it may be there from here on, and all of it where only the sync fails.
        e->outcome = IOV_OUTCOME_UNKNOWN;
        error = write_all(fd, op->buf, op->len, op->offset);
        if (error == 0) error = reach(d, fd, op);
        e->bytes = op->len;
        break;
    case IOV_BACKEND_READ:
        error = read_all(fd, op->buf, op->len, op->offset, &e->bytes);
        break;
    case IOV_BACKEND_TRUNCATE:
        code = may_change(d, fd, op);
        if (code != 0) break;
        if (ftruncate(fd, (off_t)op->len) != 0) error = errno;
        else e->outcome = IOV_OUTCOME_UNKNOWN;
        if (error == 0) error = reach(d, fd, op);
        break;
    case IOV_BACKEND_PUNCH:
        code = may_change(d, fd, op);
        if (code != 0) break;
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)op->offset, (off_t)op->len) != 0) error = errno;
        // Then zeros are written.
        if (error == EOPNOTSUPP) code = -IOV_EUNSUPPORTED;
        if (error != 0) break;
        e->outcome = IOV_OUTCOME_UNKNOWN;
        error = reach(d, fd, op);
        break;
    case IOV_BACKEND_SYNC:
        error = reach(d, fd, op);
        break;
    case IOV_BACKEND_SEAL:
        if (fchmod(fd, 0400) != 0) error = errno;
        else e->outcome = IOV_OUTCOME_UNKNOWN;
        if (error == 0) error = reach(d, fd, op);
        break;
    case IOV_BACKEND_FENCE:
        facts = read_facts(d, &op->object);
        if (op->expect_epoch < facts.epoch) code = -IOV_ECONFLICT;
        facts.epoch = op->expect_epoch;
        if (code == 0) error = write_facts(d, &op->object, facts);
        break;
    case IOV_BACKEND_STAGE:
        code = may_change(d, fd, op);
        if (code != 0) break;
        error = open_staged(d, op, fd, &staged);
        if (error != 0) break;
        if (op->buf == NULL) error = ftruncate(staged, (off_t)op->len) == 0 ? 0 : errno;
        else error = write_all(staged, op->buf, op->len, op->offset);
        // Before its publication is decided on it must be safe.
        if (error == 0) error = reach(d, staged, op);
        e->bytes = op->len;
        close(staged);
        break;
    case IOV_BACKEND_PUBLISH:
        code = publish(d, op, fd);
        break;
    case IOV_BACKEND_STAT:
        if (fstat(fd, &stat) != 0) {
            error = errno;
            break;
        }
        e->bytes = (uint64_t)stat.st_size;
        e->mtime_ns = stat.st_mtim.tv_sec * INT64_C(1000000000) + stat.st_mtim.tv_nsec;
        break;
    default:
        code = -IOV_EUNSUPPORTED;
    }
    // 0 would say that it is not told.
    if (fstat(fd, &stat) == 0) e->allocated = stat.st_blocks > 0 ? (uint64_t)stat.st_blocks * 512 : 1;
    facts = read_facts(d, &op->object);
    e->epoch = facts.epoch, e->version = facts.version;
    close(fd);
    return code != 0 ? code : code_of(error);
}

static int submit(void *state, const iov_backend_op *ops, size_t n, iov_backend_done done, void *sink) {
    struct directory *d = state;
    for (size_t i = 0; i < n; i++) {
        iov_evidence e = IOV_EVIDENCE_INIT;
        int looks = ops[i].kind == IOV_BACKEND_READ || ops[i].kind == IOV_BACKEND_STAT || ops[i].kind == IOV_BACKEND_LIST;
        if (looks) pthread_rwlock_rdlock(&d->lock);
        else pthread_rwlock_wrlock(&d->lock);
        e.tag = ops[i].tag;
        e.outcome = IOV_OUTCOME_NOT_APPLIED;
        e.code = run(d, &ops[i], &e);
        if (e.code == 0) e.outcome = IOV_OUTCOME_APPLIED;
        pthread_rwlock_unlock(&d->lock);
        done(sink, &e);
    }
    return 0;
}

// ---- The table

static int init(const char *config, const iov_backend_host *host, void **state) {
    if (config[0] != '/') {
        host->log(host->ctx, IOV_LOG_ERROR, "directory: the configuration is the whole path of a directory");
        return -IOV_EINVALID;
    }
    struct directory *d = calloc(1, sizeof *d);
    if (d == NULL) return -IOV_EEXHAUSTED;
    mkdir(config, 0700);
    d->fd = open(config, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0) {
        int code = code_of(errno);
        free(d);
        return code;
    }
    // It grows each time the directory begins empty.
    int fd = openat(d->fd, "incarnation", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || read(fd, &d->incarnation, sizeof d->incarnation) != sizeof d->incarnation) {
        d->incarnation = (uint64_t)time(NULL);
        if (fd < 0 || write_all(fd, (char *)&d->incarnation, sizeof d->incarnation, 0) != 0) {
            if (fd >= 0) close(fd);
            close(d->fd);
            free(d);
            return -IOV_EUNAVAILABLE;
        }
    }
    close(fd);
    pthread_rwlock_init(&d->lock, NULL);
    *state = d;
    return 0;
}

static void destroy(void *state) {
    struct directory *d = state;
    pthread_rwlock_destroy(&d->lock);
    close(d->fd);
    free(d);
}

static int capability(void *state, iov_capability *out) {
    struct directory *d = state;
    struct statvfs facts;
    out->kinds = 1u << IOV_BACKEND_CREATE | 1u << IOV_BACKEND_WRITE | 1u << IOV_BACKEND_READ | 1u << IOV_BACKEND_TRUNCATE |
                 1u << IOV_BACKEND_PUNCH | 1u << IOV_BACKEND_SYNC | 1u << IOV_BACKEND_SEAL | 1u << IOV_BACKEND_FENCE | 1u << IOV_BACKEND_STAGE |
                 1u << IOV_BACKEND_PUBLISH | 1u << IOV_BACKEND_DISCARD | 1u << IOV_BACKEND_REMOVE | 1u << IOV_BACKEND_STAT |
                 1u << IOV_BACKEND_LIST;
    out->durability = IOV_PERSISTENCE_DURABLE;
    out->incarnation = d->incarnation;
    if (fstatvfs(d->fd, &facts) == 0) {
        out->space = (uint64_t)facts.f_blocks * facts.f_frsize;
        out->space_free = (uint64_t)facts.f_bavail * facts.f_frsize;
    }
    return 0;
}

static const iov_backend_ops table = {
    .size = sizeof table,
    .name = "directory",
    .init = init,
    .destroy = destroy,
    .capability = capability,
    .submit = submit,
};

const iov_backend_ops *iov_backend_ops_v1(void) { return &table; }
