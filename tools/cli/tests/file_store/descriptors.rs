//! Descriptors of the library itself, in programs that close what they do not know, and have few.

use crate::{
    calls::compiled,
    runs::{has_library, python},
    store::Store,
};

/// Writes `a0` to `a7`, closes all that it has not opened, opens 40 other files, writes the eight again, and says what is wrong with any of them.
const CLOSES_ALL: &str = r#"
    for (int i = 0; i < 8; i++) { sprintf(p, "a%d", i); int f = open(p, O_RDWR | O_CREAT | O_TRUNC, 0644); if (write(f, b, sizeof b) != sizeof b) printf("%s %m ", p); fsync(f); close(f); }
    for (int i = 3; i < 1024; i++) close(i);
    for (int i = 0; i < 40; i++) { sprintf(p, "%s/other%d", out, i); open(p, O_RDWR | O_CREAT | O_TRUNC, 0644); }
    memset(b, 'B', sizeof b);
    for (int i = 0; i < 8; i++) { sprintf(p, "a%d", i); int f = open(p, O_RDWR); if (f >= 0) { if (pwrite(f, b, sizeof b, 0) != sizeof b || fsync(f)) printf("%s %m ", p); close(f); } else if (few) b[0] = 0; else printf("%s %m ", p); }
    for (int i = 0; i < 40; i++) { struct stat s; sprintf(p, "%s/other%d", out, i); if (!stat(p, &s) && s.st_size) printf("other %d has %ld bytes ", i, s.st_size); }
"#;

fn program(store: &Store, begin: &str) -> String {
    let out = store.path("out");
    std::fs::create_dir_all(&out).unwrap();
    let out = out.display();
    format!(
        r#"static char b[200000], p[4096]; static const char *out = "{out}"; static int few;
        MAIN memset(b, 'A', sizeof b); {begin} {CLOSES_ALL} puts("done");"#
    )
}

#[test]
fn nobody_elses_file_is_written_by_a_program_with_a_lower_limit() {
    if !has_library() {
        return;
    }
    let lower = "struct rlimit r; getrlimit(RLIMIT_NOFILE, &r); r.rlim_cur = 256; setrlimit(RLIMIT_NOFILE, &r);";
    // Before anything of a workspace was used, and after.
    let used = "int f = open(\"first\", O_RDWR | O_CREAT, 0644); write(f, b, sizeof b); close(f);";
    for begin in [lower.to_owned(), format!("{used} {lower}")] {
        let store = Store::with_workspace();
        assert_eq!(compiled(&store, &program(&store, &begin)).ok().text(), "done\n");
        assert_eq!(store.cat("w/a7"), vec![b'B'; 200_000]);
    }
}

#[test]
fn nobody_elses_file_is_written_by_a_program_that_has_all_higher_numbers() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let begin = "few = 1; struct rlimit r = {256, 256}; setrlimit(RLIMIT_NOFILE, &r); int f = open(\"first\", O_RDWR | O_CREAT, 0644); write(f, b, sizeof b); close(f); \
        while (open(\"/dev/null\", O_RDONLY) >= 0); for (int i = 3; i < 30; i++) close(i);";
    assert_eq!(compiled(&store, &program(&store, &begin.replace('\\', ""))).ok().text(), "done\n");
}

#[test]
fn a_program_has_all_its_descriptors_for_itself() {
    if !has_library() {
        return;
    }
    // 150 files that the library has descriptors of, then as many descriptors as can be had, of a workspace, of others and of copies: all numbers, but for
    // some that are no files' (connections, the standard streams of the test).
    let body = |maximum: &str| {
        format!(
            r#"static char b[100000]; static int fds[300]; MAIN
            struct rlimit r; getrlimit(RLIMIT_NOFILE, &r); r.rlim_cur = 256; {maximum} setrlimit(RLIMIT_NOFILE, &r); char p[99];
            for (int i = 0; i < 150; i++) {{ sprintf(p, "a%d", i); int f = open(p, O_RDWR | O_CREAT, 0644); if (write(f, b, sizeof b) != sizeof b || pread(f, b, sizeof b, 0) != sizeof b) puts(p); close(f); }}
            for (int way = 0; way < 4; way++) {{
                int n = 0;
                for (;;) {{
                    sprintf(p, "a%d", n % 150);
                    int f = way == 0 ? open(p, O_RDONLY) : way == 1 ? open("/dev/null", O_RDONLY) : way == 2 ? dup(0) : fcntl(0, F_DUPFD, 3);
                    if (f < 0) break;
                    fds[n++] = f;
                }}
                printf("%s %s\n", n >= 230 ? "all" : "few", strerrorname_np(errno)); if (n < 230) printf("%d\n", n);
                for (int i = 0; i < n; i++) close(fds[i]);
                for (int i = 0; i < 150; i++) {{ sprintf(p, "a%d", i); int f = open(p, O_RDWR); if (pwrite(f, b, sizeof b, 0) != sizeof b || pread(f, b, sizeof b, 0) != sizeof b) puts(p); close(f); }}
            }}"#
        )
    };
    for maximum in ["", "r.rlim_max = 256;"] {
        let store = Store::with_workspace();
        assert_eq!(compiled(&store, &body(maximum)).ok().text(), "all EMFILE\n".repeat(4), "{maximum}");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_told_whatever_its_child_closes() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        static const char *spawned(int closes, int in_path, const char *path) {
            posix_spawn_file_actions_t a; posix_spawn_file_actions_init(&a); pid_t pid; int status = 0; char *v[] = {"x", 0};
            if (closes == 1) posix_spawn_file_actions_addclosefrom_np(&a, 3);
            if (closes == 2) for (int i = 3; i < 1024; i++) posix_spawn_file_actions_addclose(&a, i);
            if (closes == 3) for (int i = 500; i < 600; i++) posix_spawn_file_actions_adddup2(&a, 0, i);
            int e = (in_path ? posix_spawnp : posix_spawn)(&pid, path, &a, 0, v, environ); posix_spawn_file_actions_destroy(&a);
            if (e) return strerrorname_np(e); waitpid(pid, &status, 0); return status ? "failed" : "ran";
        }
        MAIN
        close(open("text", O_CREAT | O_WRONLY, 0755)); int f = open("words", O_CREAT | O_WRONLY, 0755); write(f, "exit 0\n", 7); close(f); close(open("rights", O_CREAT | O_WRONLY, 0644));
        for (int closes = 0; closes < 4; closes++)
            printf("%s %s %s %s %s %s %s\n", spawned(closes, 0, "none"), spawned(closes, 1, "none-such"), spawned(closes, 0, "words"), spawned(closes, 1, "./words"), spawned(closes, 0, "rights"),
                spawned(closes, 0, "/bin/true"), spawned(closes, 1, "true"));"#;
    assert_eq!(compiled(&store, body).ok().text(), "ENOENT ENOENT ENOEXEC ENOEXEC EACCES ran ran\n".repeat(4));
}

#[test]
fn an_open_that_gets_no_descriptor_has_done_nothing() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"static char b[5000], p[64]; static const char *said(int f) { return f < 0 ? strerrorname_np(errno) : "opened"; }
        static void look(const char *what, int f) { struct stat s; const char *e = said(f); printf("%s %s %ld %s\n", what, e, stat("a", &s) ? -1L : (long)s.st_size, access("new", F_OK) ? "none" : "made"); }
        MAIN int k = open("a", O_RDWR | O_CREAT, 0644); if (write(k, b, sizeof b) != sizeof b) return 1;
        struct rlimit r = {64, 64}; setrlimit(RLIMIT_NOFILE, &r);
        look("room", open("a", O_WRONLY));
        while (dup(1) >= 0);
        look("truncate", open("a", O_WRONLY | O_TRUNC));
        look("create", open("new", O_WRONLY | O_CREAT | O_EXCL, 0644));
        look("unnamed", open(".", O_WRONLY | O_TMPFILE, 0644));
        sprintf(p, "/proc/self/fd/%d", k); look("again", open(p, O_WRONLY | O_TRUNC));
        close(k); look("room", open("new", O_WRONLY | O_CREAT | O_TRUNC, 0644));"#;
    let all = "truncate EMFILE 5000 none\ncreate EMFILE 5000 none\nunnamed EMFILE 5000 none\nagain EMFILE 5000 none\n";
    let told = compiled(&store, body).ok().text();
    assert_eq!(told, format!("room opened 5000 none\n{all}room opened 5000 made\n"));
}

/// What stands for an open file says nothing to who gets it over a socket.
#[test]
fn a_descriptor_that_is_sent_over_a_socket_is_not_taken_for_a_file_of_other_bytes() {
    if !has_library() {
        return;
    }
    let program = "import errno, os, socket
ours, theirs = socket.socketpair()
if os.fork() == 0:
    fd = os.open('/iov/w/f', os.O_CREAT | os.O_RDWR); os.write(fd, b'data'); os.lseek(fd, 0, 0)
    # It has a file of its own from then on.
    if os.fork() == 0: os._exit(0 if os.read(fd, 9) == b'data' else 1)
    os.wait(); socket.send_fds(theirs, [b'x'], [fd]); os._exit(0)
_, [fd], _, _ = socket.recv_fds(ours, 9, 1); os.wait()
for what in (lambda: os.read(fd, 99), lambda: os.pread(fd, 99, 0), lambda: os.write(fd, b'x')):
    try: print(what())
    except OSError as e: print(errno.errorcode[e.errno])
os.close(fd); print(open('/iov/w/f').read())
# So does what only names one.
if os.fork() == 0:
    fd = os.open('/iov/w/f', os.O_PATH)
    if os.fork() == 0: os._exit(0 if os.fstat(fd).st_size == 4 else 1)
    os.wait(); socket.send_fds(theirs, [b'x'], [fd]); os._exit(0)
_, [fd], _, _ = socket.recv_fds(ours, 9, 1); os.wait()
try: print(os.read(fd, 99))
except OSError as e: print(errno.errorcode[e.errno])";
    let said = python(&Store::with_workspace(), program).ok().text();
    assert_eq!(said, "EBADF\nEBADF\nEPERM\ndata\nEBADF\n");
}

/// Who closes a descriptor waits for who moves the offset, and comes before who moves it next.
#[test]
fn a_descriptor_is_closed_although_another_thread_reads_all_the_time() {
    if !has_library() {
        return;
    }
    let body = r#"
        #define L (4 << 20)
        static int fd; static volatile int stop, closed; static char b[L];
        static void *closes(void *a) { while (!stop) { close(dup(fd)); closed++; } return 0; }
        MAIN fd = open("f", O_CREAT | O_RDWR, 0644); ftruncate(fd, 400L * L); pthread_t t; int to[2]; char x; pipe(to);
        // Another process may move it, too.
        pid_t c = fork(); if (!c) { close(to[1]); read(to[0], &x, 1); _exit(0); }
        pthread_create(&t, 0, closes, 0); int n = 0; while (read(fd, b, L) == L) n++;
        stop = 1; pthread_join(t, 0); close(to[1]); waitpid(c, 0, 0);
        printf("%d %s\n", n, closed > 50 ? "often" : "seldom");"#;
    assert_eq!(compiled(&Store::with_workspace(), body).ok().text(), "400 often\n");
}

/// Closing a descriptor ends the locks of a process on what stands for a file, and with them the one by which it moves the offset that others have, too.
#[test]
fn two_processes_that_read_one_open_file_get_each_part_once_whatever_other_threads_do_with_it() {
    if !has_library() {
        return;
    }
    // A lock of the open file is another process's to hold, which is asked by what is written in the file that stands for it.
    let body = r#"#define N 1500
        #define L 4096
        static int fd; static int *seen; static volatile int stop; static char b[L];
        static void *closes(void *how) { for (long n = 0; !stop; n++) if (how) close(dup(fd)); else flock(fd, n % 2 ? LOCK_SH : LOCK_EX); return 0; }
        static void takes() { while (read(fd, b, L) > 0) __sync_fetch_and_add(&seen[*(int *)b], 1); }
        static void round_of(void *how) { pthread_t t; int to[2]; char x; pipe(to); memset(seen, 0, N * sizeof *seen); stop = 0; lseek(fd, 0, 0);
            pid_t c = fork(); if (!c) { read(to[0], &x, 1); takes(); _exit(0); }
            pthread_create(&t, 0, closes, how); write(to[1], "x", 1); takes(); waitpid(c, 0, 0); stop = 1; pthread_join(t, 0);
            int other = 0; for (int i = 0; i < N; i++) other += seen[i] != 1; printf("%d\n", other); fflush(stdout); }
        MAIN seen = mmap(0, N * sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int w = open("f", O_CREAT | O_WRONLY, 0644); for (int i = 0; i < N; i++) { *(int *)b = i; write(w, b, L); } close(w);
        fd = open("f", O_RDWR); flock(fd, LOCK_SH); round_of(0); round_of("dup");"#;
    assert_eq!(compiled(&Store::with_workspace(), body).ok().text(), "0\n0\n");
}

#[test]
fn a_lock_that_others_hold_for_a_process_without_descriptors_is_not_said_to_have_ended() {
    if !has_library() {
        return;
    }
    let body = r#"static const char *other() { static int r[2]; pipe(r); pid_t c = fork(); if (!c) { int g = open("f", O_RDWR); int e = flock(g, LOCK_EX | LOCK_NB); _exit(e ? errno : 0); }
            int s; waitpid(c, &s, 0); return WEXITSTATUS(s) ? strerrorname_np(WEXITSTATUS(s)) : "locked"; }
        MAIN int f = open("f", O_CREAT | O_RDWR, 0644), to[2]; char x; pipe(to);
        pid_t c = fork(); if (!c) { close(to[1]); read(to[0], &x, 1); _exit(0); }
        printf("%s\n", E(flock(f, LOCK_EX))); fflush(stdout);
        struct rlimit r = {100, 100}; setrlimit(RLIMIT_NOFILE, &r);
        int n = 0, all[100]; while ((all[n] = dup(1)) >= 0) n++;
        int e = flock(f, LOCK_UN); const char *said = e ? strerrorname_np(errno) : "done"; while (n) close(all[--n]);
        // Either it has ended, or that is said.
        const char *has = other(); puts(!strcmp(said, "done") == !strcmp(has, "locked") ? "true" : "false"); close(to[1]); waitpid(c, 0, 0);"#;
    assert_eq!(compiled(&Store::with_workspace(), body).ok().text(), "done\ntrue\n");
}

/// What stands for a directory is listed by who had it open before it made a child, and by that.
#[test]
fn a_directory_is_listed_by_its_descriptor_on_either_side_of_a_fork() {
    if !has_library() {
        return;
    }
    let program = "import os
os.makedirs('/iov/w/d/e'); f = os.open('/iov/w/d', os.O_RDONLY); print(os.listdir(f), flush=True)
if os.fork() == 0: print(os.listdir(f), flush=True); os._exit(0)
os.wait(); print(os.listdir(f), flush=True); os.set_inheritable(f, True)
os.execvp('python3', ['python3', '-c', 'import os, sys; print(os.listdir(int(sys.argv[1])))', str(f)])";
    assert_eq!(python(&Store::with_workspace(), program).ok().text(), "['e']\n".repeat(4));
}
