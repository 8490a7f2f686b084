//! What ends with a process in `iov run`, and what with a descriptor.

use crate::{
    calls::{built, compiled},
    runs::{has_library, shell},
    store::Store,
};

#[test]
fn m2_a_process_that_ends_closes_what_it_has_open() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        int f = open("returned", O_CREAT | O_WRONLY, 0644), g = dup(f); write(f, "x", 1);
        int r = open("returned by two", O_CREAT | O_RDWR, 0644); write(r, "x", 1);
        if (fork() == 0) { write(r, "y", 1); exit(0); }
        wait(0);"#;
    let program = built(&store, body);
    let script = format!(
        "mkdir d; setfattr -n user.posix.controls -v mutability=immutable,concurrency=exclusive d; cd d; {program}
        bash -c 'exec 9> shell; /bin/echo x >&9; exit 0'
        bash -c 'exec 9> another; exec /bin/echo x >&9'
        python3 -c 'import os; f = open(\"python\", \"w\"); f.write(\"x\"); f.flush(); os._exit(0)'
        (sleep 0.3; echo x) > child & wait"
    );
    shell(&store, &script).ok();
    let sealed = || store.iov(&["find", "w/d", "iov.state = \"sealed\""]).ok().text();
    for name in ["returned", "returned by two", "shell", "another", "python", "child"] {
        assert!(sealed().lines().any(|line| line.ends_with(name)), "{name}: {}", sealed());
    }
    assert_eq!(store.cat("w/d/returned by two"), b"xy");
}

#[test]
fn locks_end_with_a_close_that_comes_while_another_thread_uses_the_file() {
    if !has_library() {
        return;
    }
    let body = r#"
        static int f; static size_t size = 256 << 20; static char *b;
        static void *reads(void *x) { pread(f, b, size, 0); return 0; }
        MAIN
        b = malloc(size); open("l", O_CREAT | O_RDWR, 0644);
        for (int i = 0; i < 5; i++) {
            f = open("l", O_CREAT | O_RDWR, 0644); ftruncate(f, size); printf("%s ", E(flock(f, LOCK_EX | LOCK_NB)));
            pthread_t t; pthread_create(&t, 0, reads, 0); usleep(10000 * i); close(f); pthread_join(t, 0);
            int g = open("l", O_RDWR); flock(g, LOCK_EX | LOCK_NB); close(g);
        }"#;
    assert_eq!(compiled(&Store::with_workspace(), body).ok().text(), "done done done done done ");
}

#[test]
fn what_was_written_under_a_lock_is_there_for_who_has_it_next() {
    if !has_library() {
        return;
    }
    let body = r#"
        struct stat s; int f = open("n", O_CREAT | O_RDWR, 0644); close(f);
        for (int who = 0; who < 3; who++) if (fork() == 0) {
            for (int i = 0; i < 15; i++) {
                f = open("n", O_RDWR);
                // Two processes have it from now on.
                int p[2]; pipe(p); pid_t child = fork(); if (child == 0) { close(p[1]); read(p[0], &s, 1); _exit(0); }
                close(p[0]); if (flock(f, LOCK_EX)) abort();
                close(p[1]); waitpid(child, 0, 0);
                fstat(f, &s); pwrite(f, b, sizeof b, s.st_size); close(f);
            }
            _exit(0);
        }
        while (wait(0) > 0); stat("n", &s); printf("%ld\n", s.st_size / sizeof b);"#;
    let store = Store::with_workspace();
    let program = built(&store, &format!("static char b[1 << 20]; MAIN {body}"));
    let script = format!("mkdir d; setfattr -n user.posix.controls -v persistence=durable d; cd d; {program}");
    assert_eq!(shell(&store, &script).ok().text(), "45\n");
}

#[test]
fn a_process_keeps_its_locks_when_it_closes_what_only_names_the_file() {
    if !has_library() {
        return;
    }
    let body = r#"
        struct flock l = {.l_type = F_WRLCK}; int a = open("f", O_CREAT | O_RDWR, 0644), b = open("f", O_RDWR), status;
        int other(void) {
            if (fork() == 0) { int c = open("f", O_RDWR); _exit(fcntl(c, F_SETLK, &l) ? 1 : 0); }
            wait(&status); return WEXITSTATUS(status);
        }
        fcntl(b, F_SETLK, &l); close(open("f", O_PATH)); printf("%d ", other()); close(b); printf("%d\n", other());"#;
    assert_eq!(compiled(&Store::with_workspace(), body).ok().text(), "1 0\n");
}
