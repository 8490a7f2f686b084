//! Handlers of signals in `iov run`: they may do to workspaces what they may do to any file, whatever they have interrupted.

use std::process::Command;

use crate::{calls::compiled, runs::has_library, store::Store};

#[test]
fn handlers_write_open_and_look_whatever_they_interrupt() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        static int log; static volatile int ticks;
        void tick(int _) {
            struct stat s; int e = errno, f = open("each", O_CREAT | O_WRONLY | O_APPEND, 0644);
            write(log, "tick\n", 5); write(f, "x", 1); close(f); stat("log", &s); ticks++; errno = e;
        }
        MAIN
        alarm(100);
        log = open("log", O_CREAT | O_WRONLY | O_APPEND, 0644); int data = open("data", O_CREAT | O_RDWR, 0644); char b[300] = {0}; long wrote = 0;
        struct sigaction a = {.sa_handler = tick, .sa_flags = SA_RESTART}; sigaction(SIGUSR1, &a, 0);
        timer_t timer; struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1}; timer_create(CLOCK_MONOTONIC, &how, &timer);
        struct itimerspec often = {{0, 20000000}, {0, 20000000}}; timer_settime(timer, 0, &often, 0);
        // What is interrupted has memory of the C library locked, or of this one, or something of the store.
        for (int i = 0; ticks < 120; i++) {
            wrote += write(data, b, sizeof b); free(malloc(i % 5000));
            if (i % 50 == 0) { int f = open("other", O_CREAT | O_RDWR, 0644); write(f, b, 9); close(f); unlink("other"); }
        }
        timer_delete(timer); struct stat s[3]; fstat(log, s); fstat(data, s + 1); stat("each", s + 2);
        printf("%d %d %d\n", s[0].st_size == 5 * ticks, s[1].st_size == wrote, s[2].st_size == ticks);"#;
    assert_eq!(compiled(&store, body).ok().text(), "1 1 1\n");
}

#[test]
fn handlers_may_come_in_any_call_and_block_nothing_in_children() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        static volatile int ticks, depth, deepest;
        void tick(int _) {
            int e = errno, f; char b[100]; deepest = ++depth > deepest ? depth : deepest;
            f = open("/iov/w/each", O_CREAT | O_WRONLY | O_APPEND, 0644); write(f, "x", 1); close(f); readlink("/proc/self/cwd", b, 100); access("/iov/w/none", F_OK);
            ticks++; depth--; errno = e;
        }
        int visit(const char *path, const struct stat *s, int kind, struct FTW *at) { return 0; }
        MAIN
        alarm(200); mkdir("d", 0755); close(open("d/f", O_CREAT | O_RDWR, 0644));
        int data = open("data", O_CREAT | O_RDWR, 0644), here = open(".", O_RDONLY | O_DIRECTORY), says[2], bad = 0; char b[4096] = {0}; write(data, b, 4096);
        struct sigaction a = {.sa_handler = tick, .sa_flags = SA_RESTART}; sigaction(SIGUSR1, &a, 0);
        timer_t timer; struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1}; timer_create(CLOCK_MONOTONIC, &how, &timer);
        struct itimerspec often = {{0, 30000000}, {0, 30000000}}; timer_settime(timer, 0, &often, 0); pipe(says);
        for (int i = 0; ticks < 100; i++) {
            struct dirent **found; int n = scandirat(here, "d", &found, 0, alphasort); while (n-- > 0) free(found[n]);
            bad += nftw("d", visit, 9, FTW_PHYS) != 0; bad += chdir("d") != 0; bad += fchdir(here) != 0; bad += chdir("/tmp") != 0; bad += chdir("/iov/w") != 0;
            sprintf(b, "/proc/self/fd/%d", data); bad += readlink(b, b, 100) != 11; bad += dup2(data, 700) != 700; bad += close(700) != 0;
            bad += link("data", "other") != 0; bad += rename("other", "d/moved") != 0; bad += unlink("d/moved") != 0; off_t at = 0; bad += sendfile(says[1], data, &at, 100) != 100; read(says[0], b, 100);
            bad += access("/tmp/none/such", F_OK) == 0; struct iocb *none[1]; aio_context_t c = 0; syscall(SYS_io_setup, 1, &c); syscall(SYS_io_destroy, c);
            if (i % 8 == 0) {
                int child = fork(); if (!child) execlp("sh", "sh", "-c", "grep SigBlk /proc/self/status >> blocked; read x < data; exec true", 0);
                int status; while (waitpid(child, &status, 0) < 0); bad += status != 0;
            }
        }
        timer_delete(timer); sigset_t set; sigprocmask(SIG_SETMASK, 0, &set); struct stat s; stat("each", &s);
        printf("%d %d %d %d\n", bad, s.st_size == ticks, sigismember(&set, SIGUSR1), deepest);"#;
    let said = compiled(&store, body).ok().text();
    assert_eq!(said, "0 1 0 1\n");
    let blocked = String::from_utf8(store.cat("w/blocked")).unwrap();
    assert!(!blocked.is_empty() && blocked.lines().all(|line| line == "SigBlk:\t0000000000000000"), "{blocked}");
}

#[test]
fn who_leaves_a_call_by_a_handler_goes_on_with_the_next() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        static sigjmp_buf back; static volatile int left;
        void leave(int _) { left++; siglongjmp(back, 1); }
        MAIN
        alarm(100); signal(SIGUSR1, leave);
        int f = open("f", O_CREAT | O_RDWR, 0644); char b[5000]; volatile int i = 0;
        timer_t timer; struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1}; timer_create(CLOCK_MONOTONIC, &how, &timer);
        struct itimerspec often = {{0, 10000000}, {0, 10000000}};
        sigsetjmp(back, 1);
        timer_settime(timer, 0, &often, 0);
        while (left < 100) { i++; pwrite(f, b, sizeof b, i % 100 * 5000); pread(f, b, sizeof b, 0); struct stat s; stat("f", &s); stat("none", &s); }
        timer_delete(timer); struct stat s; fstat(f, &s); close(f);
        printf("%d %s\n", (int)s.st_size, E(rename("f", "g")));"#;
    assert_eq!(compiled(&store, body).ok().text(), "500000 done\n");
}

#[test]
fn handlers_are_told_and_told_of_as_elsewhere() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        static int depth;
        void one(int n) { printf("one %d\n", n); }
        void more(int n, siginfo_t *i, void *c) { printf("more %d %d %d %d\n", n, i->si_code, i->si_value.sival_int, i->si_pid == getpid()); }
        void again(int n) { printf("again %d\n", depth); if (depth++ < 2) raise(n); depth--; }
        void masked(int n) { raise(SIGUSR2); puts("masked"); }
        void told(int n) { struct sigaction a; sigaction(n, 0, &a);
            printf("%d %d %x %d\n", a.sa_handler == one, (void *)a.sa_sigaction == (void *)more, a.sa_flags & ~0x04000000, sigismember(&a.sa_mask, SIGUSR2)); }
        MAIN
        setvbuf(stdout, 0, _IONBF, 0);
        union sigval v = {.sival_int = 42}; struct sigaction a = {.sa_sigaction = more, .sa_flags = SA_SIGINFO}, old;
        told(SIGUSR1); printf("%d\n", signal(SIGUSR1, one) == SIG_DFL); told(SIGUSR1); raise(SIGUSR1);
        sigaction(SIGUSR1, &a, &old); printf("%d %x\n", old.sa_handler == one, old.sa_flags & ~0x04000000); told(SIGUSR1); sigqueue(getpid(), SIGUSR1, v);
        sigaction(SIGUSR1, &old, 0); told(SIGUSR1); raise(SIGUSR1);
        a = (struct sigaction){.sa_handler = again, .sa_flags = SA_NODEFER}; sigaction(SIGUSR1, &a, 0); raise(SIGUSR1);
        a = (struct sigaction){.sa_handler = masked}; sigaddset(&a.sa_mask, SIGUSR2); sigaction(SIGUSR1, &a, 0); told(SIGUSR1); signal(SIGUSR2, one); raise(SIGUSR1);
        a = (struct sigaction){.sa_handler = one, .sa_flags = SA_RESETHAND}; sigaction(SIGUSR1, &a, 0); told(SIGUSR1); raise(SIGUSR1); sigaction(SIGUSR1, 0, &a); printf("%d\n", a.sa_handler == SIG_DFL);
        printf("%d\n", signal(SIGUSR1, SIG_IGN) == SIG_DFL); raise(SIGUSR1); told(SIGUSR1);
        printf("%s %s %s %s\n", E(sigaction(0, 0, 0)), E(sigaction(65, &a, 0)), E(sigaction(SIGKILL, &a, 0)), E(sigaction(32, &a, 0)));
        signal(SIGTERM, one); signal(SIGUSR1, SIG_DFL);
        if (!fork()) { told(SIGTERM); kill(getpid(), SIGTERM); signal(SIGTERM, SIG_DFL); kill(getpid(), SIGTERM); }
        int status; wait(&status); printf("%x\n", status); told(SIGTERM);"#;
    let said = compiled(&store, body).ok().text();
    let native = Command::new(store.path("program")).output().unwrap();
    assert_eq!(said, String::from_utf8(native.stdout).unwrap());
    assert!(said.contains("more 10 -1 42 1\n") && said.ends_with("f\n1 0 10000000 0\n"), "{said}");
}
