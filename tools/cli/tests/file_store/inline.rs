//! Programs that call the kernel by themselves, as those do that are written with `rustix`.

use crate::{calls::compiled, runs::has_library, store::Store};

/// `rustix` in C: the compiler puts a number and `syscall` into whatever calls one of them.
const DIRECT: &str = r#"
#pragma GCC optimize("O2")
#define RAW(n, A, B, C, D, X, F) ({ \
    register long r10 asm("r10") = (long) (D), r8 asm("r8") = (long) (X), r9 asm("r9") = (long) (F); long done; \
    asm volatile("mov %[number], %%eax; syscall" : "=a"(done) : [number] "i"(n), "D"((long) (A)), "S"((long) (B)), "d"((long) (C)), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory"); done; })
"#;

#[test]
fn calls_past_the_c_library_are_those_of_its_functions() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        // The first thing that it does to the workspace.
        long f = RAW(SYS_openat, AT_FDCWD, "/iov/w/direct", O_CREAT | O_RDWR, 0644, 0, 0); char b[20] = {0}; struct stat s; struct statx x;
        P(f > 2); P(RAW(SYS_write, f, "0123456789", 10, 0, 0, 0)); P(RAW(SYS_pread64, f, b, 4, 3, 0, 0)); puts(b);
        P(RAW(SYS_lseek, f, 2, SEEK_SET, 0, 0, 0)); P(RAW(SYS_ftruncate, f, 8, 0, 0, 0, 0)); P(RAW(SYS_fstat, f, &s, 0, 0, 0, 0)); P(s.st_size);
        P(RAW(SYS_statx, f, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x, 0)); P(x.stx_size); puts("");
        P(RAW(SYS_mkdirat, AT_FDCWD, "dir", 0755, 0, 0, 0)); P(RAW(SYS_mkdirat, AT_FDCWD, "dir", 0755, 0, 0, 0));
        P(RAW(SYS_renameat, AT_FDCWD, "direct", AT_FDCWD, "dir/renamed", 0, 0)); P(RAW(SYS_renameat2, AT_FDCWD, "dir/renamed", AT_FDCWD, "dir", RENAME_NOREPLACE, 0));
        P(RAW(SYS_linkat, AT_FDCWD, "dir/renamed", AT_FDCWD, "link", 0, 0)); P(RAW(SYS_symlinkat, "dir", AT_FDCWD, "sym", 0, 0, 0)); puts("");
        memset(b, 0, sizeof b); P(RAW(SYS_readlinkat, AT_FDCWD, "sym", b, sizeof b, 0, 0)); puts(b);
        P(RAW(SYS_faccessat, AT_FDCWD, "sym/renamed", R_OK, 0, 0, 0)); P(RAW(SYS_unlinkat, AT_FDCWD, "link", 0, 0, 0, 0));
        P(RAW(SYS_flock, f, LOCK_EX, 0, 0, 0, 0)); P(RAW(SYS_fchmod, f, 0600, 0, 0, 0, 0)); stat("dir/renamed", &s); printf("%o\n", s.st_mode);
        // What is no file of a workspace is the kernel's, errors too; `errno` is nobody's.
        errno = 77; P(RAW(SYS_openat, AT_FDCWD, "/nowhere/x", 0, 0, 0, 0)); P(RAW(SYS_unlinkat, AT_FDCWD, "none", 0, 0, 0, 0)); P(RAW(SYS_close, 999, 0, 0, 0, 0, 0)); P(errno);
        P(RAW(SYS_close, f, 0, 0, 0, 0, 0)); P(RAW(SYS_close, f, 0, 0, 0, 0, 0)); puts("");"#;
    let said = compiled(&store, &format!("{DIRECT}\n#define P(number) printf(\"%ld \", (long) (number))\nMAIN{body}"))
        .ok()
        .text();
    let expected = "1 10 4 3456\n2 0 0 8 0 8 \n0 -17 0 -17 0 0 \n3 dir\n0 0 0 0 100600\n-2 -2 -9 77 0 -9 \n";
    assert_eq!(said, expected);
    assert_eq!(store.cat("w/dir/renamed"), b"01234567");
}

#[test]
fn what_is_in_registers_stays_there() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // Vectors, numbers and what lies below the stack are kept across calls, which do not say that they change them.
    let body = r#"
        __attribute__((noinline)) double kept(double a, double b, long *n) {
            long below[8]; for (int i = 0; i < 8; i++) below[i] = i * 3 + n[0]; asm volatile("" : : "r"(below) : "memory");
            long done = RAW(SYS_faccessat, AT_FDCWD, "/iov/w/there", F_OK, 0, 0, 0); long sum = 0; for (int i = 0; i < 8; i++) sum += below[i];
            n[1] += done; n[2] += sum; return a * b + a / b;
        }
        MAIN
        close(open("there", O_CREAT | O_RDWR, 0644)); long n[3] = {5}; double all = 0, expected = 0;
        for (int i = 1; i < 3000; i++) { double a = i, b = i + 0.5; all += kept(a, b, n); expected += a * b + a / b; }
        printf("%d %ld %d\n", all == expected, n[1], n[2] == 2999 * (8 * 5 + 84));
        // The carry and the direction, and a call in a loop, to whose number it goes back.
        long done = 0; unsigned char carry;
        for (int i = 0; i < 3; i++) {
            register long r10 asm("r10") = 0; long one;
            asm volatile("stc; mov $269, %%eax; lea %2, %%rsi; mov $-100, %%edi; mov $0, %%edx; syscall; setc %1"
                : "=&a"(one), "=&r"(carry) : "m"(*"/iov/w/there"), "r"(r10) : "rdi", "rsi", "rdx", "rcx", "r11", "memory");
            done += one;
        }
        printf("%ld %d\n", done, carry);"#;
    assert_eq!(compiled(&store, &format!("{DIRECT}{body}")).ok().text(), "1 0 1\n0 1\n");
}

#[test]
fn code_that_only_looks_like_a_call_stays_as_it_is() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // Another call, and between its number and `syscall` a store of a small number at 72 bytes below, in which the byte of `mov eax` stands before it.
    let body = r#"
        __attribute__((noinline)) long clock_of(long *out) {
            char room[256]; long done; (void) room;
            asm volatile("lea 128(%2), %%rbx; mov $228, %%eax; movq $2, -72(%%rbx); mov $1, %%edi; mov %%r12, %%rsi; syscall; mov -72(%%rbx), %1"
                : "=&a"(done), "=&r"(out[0]) : "r"(room), "m"(*(char (*)[256]) room) : "rbx", "r12", "rdi", "rsi", "rcx", "r11", "memory");
            return done;
        }
        MAIN
        struct stat s; stat("/iov/w", &s); struct timespec now; register long r12 asm("r12") = (long) &now; asm volatile("" : : "r"(r12));
        long out[1]; clock_of(out); printf("%ld\n", out[0]);"#;
    assert_eq!(compiled(&store, body).ok().text(), "2\n");
}

#[test]
fn what_is_loaded_beside_other_threads_leads_to_workspaces_and_leaves_nothing() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // While another thread looks at the workspace all the time; then libraries come and go at one place.
    let body = r#"
        #include <dlfcn.h>
        static volatile int over; static void *looks(void *_) { struct stat s; while (!over) stat("/iov/w", &s); return 0; }
        static int lines(void) { int n = 0, c; FILE *f = fopen("/proc/self/maps", "r"); while ((c = getc(f)) != EOF) n += c == '\n'; fclose(f); return n; }
        static void library(const char *path) {
            FILE *f = fopen("/tmp/iov-inline.c", "w"); fputs("long renames(const char *a, const char *b) { long done; register const char *r10 asm(\"r10\") = b;"
                "for (volatile int i = 0; i < 2; i++); asm volatile(\"mov $264, %%eax; mov $-100, %%edi; mov $-100, %%edx; syscall\" : \"=&a\"(done) : \"S\"(a), \"r\"(r10) : \"rdi\", \"rdx\", \"rcx\", \"r11\", \"memory\"); return done; }", f); fclose(f);
            char line[300]; sprintf(line, "cc -O1 -shared -fPIC -o %s /tmp/iov-inline.c && rm /tmp/iov-inline.c", path); system(line);
        }
        MAIN
        char path[100]; sprintf(path, "/tmp/iov-inline-%d.so", getpid()); library(path); close(open("a", O_CREAT | O_RDWR, 0644));
        pthread_t thread; pthread_create(&thread, 0, looks, 0); void *h = dlopen(path, RTLD_NOW); struct stat s; stat("a", &s);
        long (*renames)(const char *, const char *) = dlsym(h, "renames"); printf("%ld ", renames("a", "b")); over = 1; pthread_join(thread, 0); dlclose(h);
        int before = 0; long failed = 0;
        for (int i = 0; i < 60; i++) {
            h = dlopen(path, RTLD_NOW); stat("b", &s); renames = dlsym(h, "renames"); failed += renames(i % 2 ? "a" : "b", i % 2 ? "b" : "a"); dlclose(h);
            stat("b", &s); if (i == 20) before = lines();
        }
        printf("%ld %d\n", failed, lines() - before < 10); unlink(path);"#;
    assert_eq!(compiled(&store, body).ok().text(), "0 0 1\n");
}
