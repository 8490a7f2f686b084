//! Processes that programs in `iov run` make by other calls than `fork`, as those do that run something in namespaces.

use std::process::Command;

use crate::{
    calls::compiled,
    runs::{has_library, python, run, shell},
    store::Store,
};

/// Ways to make a process that runs `child`.
const WAYS: &str = r#"
    #include <linux/sched.h>
    #include <sched.h>
    static char stack[1 << 20]; static int child(void *of);
    static int runs(int pid, void *of) { if (!pid) _exit(child(of)); return pid; }
    static int inlined(void) { long made; __asm__ volatile("syscall" : "=a"(made) : "a"(56L), "D"((long)SIGCHLD), "S"(0L), "d"(0L), "r"((long)0) : "rcx", "r11", "memory"); return made; }
    static int make(int way, void *of) {
        struct clone_args how = {.exit_signal = SIGCHLD};
        switch (way) {
            case 0: return runs(syscall(SYS_clone, SIGCHLD | CLONE_SYSVSEM, 0L, 0L, 0L, 0L), of);
            case 1: return runs(syscall(SYS_clone3, &how, sizeof how), of);
            case 2: return clone(child, stack + sizeof stack, SIGCHLD, of);
            default: return runs(inlined(), of);
        }
    }
"#;

#[test]
fn a_process_is_one_of_its_own_by_whichever_call_it_was_made() {
    if !has_library() {
        return;
    }
    let body = r#"
        static int put(const char *name, const char *text) { int f = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644); int n = strlen(text); return f < 0 || write(f, text, n) != n || close(f); }
        static int child(void *of) {
            char name[40], *a[] = {"sh", "-c", "echo program >> log", 0}; int log = *(int *)of;
            for (int i = 0; i < 20; i++) { sprintf(name, "child%d", i); if (put(name, "by the child")) return 1; }
            if (write(log, "child\n", 6) != 6) return 2;
            execv("/bin/sh", a); return 3;
        }
        MAIN
        for (int way = 0; way < 4; way++) {
            char name[40]; int wrong = 0, status = -1; struct stat s; alarm(60);
            sprintf(name, "way%d", way); mkdir(name, 0755); chdir(name);
            int log = open("log", O_CREAT | O_RDWR | O_APPEND, 0644); write(log, "begin\n", 6);
            int pid = make(way, &log);
            for (int i = 0; i < 100; i++) { sprintf(name, "parent%d", i); wrong += put(name, "by the parent") || stat(name, &s) || s.st_size != 13; }
            int waited = waitpid(pid, &status, 0) == pid;
            for (int i = 0; i < 20; i++) { sprintf(name, "child%d", i); wrong += stat(name, &s) || s.st_size != 12; }
            write(log, "end\n", 4); char b[100] = {0}; pread(log, b, 99, 0);
            for (char *c = b; *c; c++) if (*c == '\n') *c = ' ';
            printf("%d: %d %x %d %s\n", way, waited, status, wrong, b); chdir("..");
        }"#;
    let ran = compiled(&Store::with_workspace(), &format!("{WAYS}{body}")).ok();
    let expected: String = (0..4).map(|way| format!("{way}: 1 0 0 begin child program end \n")).collect();
    assert_eq!((ran.text(), ran.err.as_str()), (expected, ""));
}

/// Its parent was in the middle of something in another thread, which is not there in the copy.
#[test]
fn a_copy_of_a_process_with_threads_does_not_wait_for_them() {
    if !has_library() {
        return;
    }
    let body = r#"
        static volatile int over; static long wrote;
        static void *work(void *of) {
            char name[40]; sprintf(name, "of%ld", (long)of);
            while (!over) { int f = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644); if (write(f, "x", 1) == 1) wrote++; close(f); }
            return 0;
        }
        static int child(void *of) { char *a[] = {"sh", "-c", "echo program > made", 0}; execv("/bin/sh", a); return 3; }
        MAIN
        alarm(100); pthread_t t[3]; for (long i = 0; i < 3; i++) pthread_create(t + i, 0, work, (void *)i);
        int bad = 0, all = 0;
        for (int i = 0; i < 60; i++) {
            int status = -1, pid = make(i % 4, 0); all++;
            for (int n = 0; n < 1000 && !waitpid(pid, &status, WNOHANG); n++) usleep(10000);
            if (status || access("made", F_OK)) bad++;
            unlink("made");
        }
        over = 1; for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
        printf("%d of %d, %s\n", bad, all, wrote > 100 ? "and the threads went on" : "and they did not");"#;
    let ran = compiled(&Store::with_workspace(), &format!("{WAYS}{body}")).ok();
    assert_eq!(ran.text(), "0 of 60, and the threads went on\n");
}

/// Who makes it moves about and forks in other threads, and the copy closes all that it does not know, and asks where it is.
#[test]
fn a_copy_knows_where_it_is_whatever_other_threads_of_its_parent_did() {
    if !has_library() {
        return;
    }
    let body = r#"
        static volatile int over;
        static void *work(void *of) {
            char name[40]; sprintf(name, "../of%ld", (long)of); int g = open(name, O_CREAT | O_RDWR, 0644);
            while (!over) { dup2(g, 40); close(40); if (of) { int p = fork(); if (!p) _exit(0); waitpid(p, 0, 0); } }
            return 0;
        }
        static int child(void *of) {
            char *a[] = {"pwd", "-P", 0};
            close_range(3, ~0U, 0); dup2(*(int *)of, 1); execv("/bin/pwd", a); return 6;
        }
        MAIN
        alarm(100); mkdir("d", 0755); chdir("d"); pthread_t t[2]; for (long i = 0; i < 2; i++) pthread_create(t + i, 0, work, (void *)i);
        int bad = 0;
        for (int i = 0; i < 40; i++) {
            int ends[2], to, status = -1; char b[200] = {0}; pipe(ends); to = dup2(ends[1], 2); int pid = make(3, &to); close(ends[1]); dup2(1, 2);
            read(ends[0], b, 199); close(ends[0]);
            for (int n = 0; n < 1000 && !waitpid(pid, &status, WNOHANG); n++) usleep(10000);
            bad += status || strcmp(b, "/iov/w/d\n");
        }
        over = 1; for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
        printf("%d\n", bad);"#;
    let ran = compiled(&Store::with_workspace(), &format!("{WAYS}{body}")).ok();
    assert_eq!(ran.text(), "0\n");
}

/// Of which none has asked for anything before the others.
#[test]
fn threads_of_a_copy_have_one_world() {
    if !has_library() {
        return;
    }
    let body = r#"
        static pthread_barrier_t all;
        static void *makes(void *of) { char name[60]; sprintf(name, "of%d-%ld", getpid(), (long)of); pthread_barrier_wait(&all); int f = open(name, O_CREAT | O_WRONLY, 0644); return (void *)(long)(write(f, "x", 1) == 1 && !close(f)); }
        static int child(void *of) {
            pthread_t t[4]; void *done; int bad = 0; pthread_barrier_init(&all, 0, 4);
            for (long i = 0; i < 4; i++) pthread_create(t + i, 0, makes, (void *)i);
            for (int i = 0; i < 4; i++) { pthread_join(t[i], &done); bad += !done; }
            return bad;
        }
        MAIN
        alarm(100); int bad = 0, f = open("f", O_CREAT | O_WRONLY, 0644); write(f, "x", 1);
        for (int i = 0; i < 40; i++) { int status = -1, pid = make(i % 4, 0); waitpid(pid, &status, 0); bad += status != 0; }
        printf("%d\n", bad);"#;
    let ran = compiled(&Store::with_workspace(), &format!("{WAYS}{body}")).ok();
    assert_eq!(ran.text(), "0\n");
}

/// A library that is loaded before this one, and has something to do in children.
#[test]
fn what_others_do_in_children_may_open_files() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let source = "#include <pthread.h>\n#include <fcntl.h>\n#include <unistd.h>\n\
        static void in_child(void) { close(77); int f = open(\"of-library\", O_CREAT | O_WRONLY | O_APPEND, 0644); write(f, \"child\\n\", 6); close(f); }\n\
        __attribute__((constructor)) static void begin(void) { pthread_atfork(0, 0, in_child); }\n";
    let source = store.file("first.c", source.as_bytes());
    let library = store.path("first.so");
    let built = Command::new("cc").args(["-w", "-shared", "-fPIC", "-o", library.to_str().unwrap(), &source]).status();
    assert!(built.unwrap().success());
    let body = r#"
        int f = open("f", O_CREAT | O_WRONLY | O_APPEND, 0644); alarm(60);
        for (int i = 0; i < 3; i++) { int s, p = fork(); if (!p) _exit(write(f, "forked\n", 7) != 7 || fsync(f)); waitpid(p, &s, 0); printf("%x ", s); }
        fflush(stdout); execlp("cat", "cat", "of-library", "f", (char *)0);"#;
    let program = crate::calls::built(&store, body);
    let ran = shell(&store, &format!("LD_PRELOAD=$LD_PRELOAD:{} exec {program}", library.display())).ok();
    assert_eq!(ran.text(), format!("0 0 0 {}{}", "child\n".repeat(3), "forked\n".repeat(3)));
}

#[test]
fn a_child_has_the_stack_that_it_is_given_and_its_parent_goes_on_meanwhile() {
    if !has_library() {
        return;
    }
    let body = r#"
        static int to; static volatile int all;
        static int child(void *of) { volatile char large[600000]; memset((void *)large, 1, sizeof large); for (int i = 0; i < 40; i++) write(to, (void *)large, 10000); return large[5] + 1; }
        static void *reads(void *of) { char b[4096]; int n, f = open("copied", O_CREAT | O_WRONLY, 0644); while ((n = read(*(int *)of, b, sizeof b)) > 0) { write(f, b, n); all += n; } close(f); return 0; }
        static void *makes(void *of) { int s, p = clone(child, stack + sizeof stack - 4, *(int *)of, 0); close(to); waitpid(p, &s, 0); return (void *)(long)s; }
        MAIN
        int flags[] = {SIGCHLD, SIGCHLD | CLONE_VFORK}; alarm(60); int f = open("open", O_CREAT | O_WRONLY, 0644);
        for (int way = 0; way < 2; way++) {
            int ends[2]; pthread_t t[2]; void *status; pthread_attr_t small; pthread_attr_init(&small); pthread_attr_setstacksize(&small, 64 << 10);
            pipe(ends); to = ends[1]; all = 0; fcntl(ends[0], F_SETFD, FD_CLOEXEC);
            pthread_create(t, 0, reads, ends); pthread_create(t + 1, &small, makes, flags + way);
            pthread_join(t[1], &status); pthread_join(t[0], 0); printf("%lx %d ", (long)status, all); close(ends[0]);
        }
        puts("");"#;
    let ran = compiled(&Store::with_workspace(), &format!("{WAYS}{body}")).ok();
    assert_eq!(ran.text(), "200 400000 200 400000 \n");
}

/// What shares the memory of a process, and is not to be a copy, does.
#[test]
fn what_shares_memory_runs_as_the_c_library_has_it() {
    if !has_library() {
        return;
    }
    let body = r#"
        static int said; static int child(void *of) { said = *(int *)of; return 7; }
        MAIN
        int with = 5, status, tid = 0, cleared = 1;
        int pid = clone(child, stack + sizeof stack - 8, CLONE_VM | SIGCHLD | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID, &with, &tid, 0, &cleared);
        int waited = waitpid(pid, &status, 0) == pid;
        printf("%d %d %d %d %d\n", waited, said, WEXITSTATUS(status), tid == pid, cleared);
        printf("%s ", E(clone(0, stack + sizeof stack, SIGCHLD, 0))); printf("%s\n", E(clone(child, 0, SIGCHLD, 0)));"#;
    let ran = compiled(&Store::with_workspace(), &format!("{WAYS}{body}")).ok();
    assert_eq!(ran.text(), "1 5 7 1 0\nEINVAL EINVAL\n");
}

#[test]
fn who_calls_vfork_waits_until_its_child_runs_a_program_or_ends() {
    if !has_library() {
        return;
    }
    let body = r#"
        MAIN
        alarm(60); char name[40]; int status, failed = 0, soon = 0; struct timespec a, b;
        for (int i = 0; i < 20; i++) {
            sprintf(name, "./program%d", i); symlink("/bin/true", name);
            int pid = vfork(); if (!pid) { execl(name, name, (char *)0); _exit(127); }
            unlink(name); waitpid(pid, &status, 0); failed += status != 0;
        }
        clock_gettime(CLOCK_MONOTONIC, &a);
        int pid = vfork(); if (!pid) { usleep(300000); _exit(0); }
        clock_gettime(CLOCK_MONOTONIC, &b); soon = (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < 300; waitpid(pid, &status, 0);
        pid = vfork(); if (!pid) _exit(dup2(1, 3) != 3 || dup2(1, 4) != 4 || dup2(1, 9) != 9); waitpid(pid, &status, 0); failed += status != 0;
        // It does not wait for a child of its child, nor for what the program leaves behind.
        pid = vfork(); if (!pid) { if (!fork()) { sleep(20); _exit(0); } _exit(4); }
        waitpid(pid, &status, 0); int first = WEXITSTATUS(status);
        pid = vfork(); if (!pid) { execl("/bin/sh", "sh", "-c", "sleep 20 < /dev/null > /dev/null 2>&1 &", (char *)0); _exit(127); }
        waitpid(pid, &status, 0); clock_gettime(CLOCK_MONOTONIC, &a);
        printf("%d %d %d %d %s\n", failed, soon, first, status, a.tv_sec - b.tv_sec < 15 ? "at once" : "late"); fflush(stdout); kill(0, SIGTERM);"#;
    let store = Store::with_workspace();
    let program = crate::calls::built(&store, body);
    // In a group of its own, which it ends.
    let ran = shell(&store, &format!("setsid -w {program} || true")).ok();
    assert_eq!(ran.text(), "0 0 4 0 at once\n");
}

/// Another process may say of a file that both have whether it appends.
#[test]
fn what_another_process_says_of_a_shared_file_holds_for_each_write() {
    if !has_library() {
        return;
    }
    let body = r#"
        static long size(int f) { struct stat s; fstat(f, &s); return s.st_size; }
        MAIN
        int f = open("f", O_CREAT | O_RDWR, 0644), g = open("g", O_CREAT | O_RDWR | O_APPEND, 0644); write(f, "0123456789", 10); write(g, "abc", 3);
        if (!fork()) { fcntl(f, F_SETFL, O_APPEND); fcntl(g, F_SETFL, 0); _exit(0); } wait(0);
        pwrite(f, "AA", 2, 0); pwrite(g, "X", 1, 0); printf("%ld %ld\n", size(f), size(g));
        fcntl(g, F_SETFL, O_APPEND); struct iovec v = {"Y", 1}; printf("%ld ", (long)pwritev2(g, &v, 1, 1, 0x20)); printf("%ld %s\n", size(g), E(pwritev2(g, &v, 1, 1, 0x20 | RWF_APPEND)));
        int on = 1; ioctl(f, 0x5421, &on); printf("%d ", !!(fcntl(f, F_GETFL) & O_NONBLOCK)); on = 0; ioctl(f, 0x5421, &on); printf("%d\n", !!(fcntl(f, F_GETFL) & O_NONBLOCK));
        printf("%s ", E(sendfile(f, g, 0, 1))); printf("%s ", E(ioctl(f, 0x40049409, g))); printf("%s ", E(copy_file_range(99, 0, f, 0, 1, 0)));
        char handle[200] = {128}; int mount; printf("%s ", E(name_to_handle_at(AT_FDCWD, "f", (void *)handle, &mount, 0))); printf("%d\n", posix_fadvise(f, 0, -1, 0));"#;
    let ran = compiled(&Store::with_workspace(), body).ok();
    assert_eq!(ran.text(), "12 3\n1 3 EINVAL\n1 0\nEINVAL EOPNOTSUPP EBADF EOPNOTSUPP 22\n");
}

#[test]
fn the_offset_of_those_who_append_is_behind_the_last_of_them() {
    if !has_library() {
        return;
    }
    let body = r#"
        int f = open("f", O_CREAT | O_RDWR | O_APPEND, 0644), bad = 0; struct stat s;
        for (int round = 0; round < 60; round++) {
            for (int i = 0; i < 2; i++) if (!fork()) { for (int n = 0; n < 20; n++) write(f, "line\n", 5); _exit(0); }
            wait(0); wait(0); fstat(f, &s); bad += lseek(f, 0, SEEK_CUR) != s.st_size;
        }
        lseek(f, 1000000, SEEK_SET); write(f, "end\n", 4); fstat(f, &s);
        printf("%d %ld %d\n", bad, (long)s.st_size, lseek(f, 0, SEEK_CUR) == s.st_size);"#;
    assert_eq!(compiled(&Store::with_workspace(), body).ok().text(), "0 12004 1\n");
}

/// Logs that are rotated, or a shell that puts something else under a number for a moment.
#[test]
fn who_appends_moves_no_offset_of_another_file() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        static int f; static volatile int over; static int bad; static void *writes(void *x) { char b[4096]; memset(b, 'l', sizeof b); while (!over) bad += write(f, b, sizeof b) != sizeof b; return 0; }
        MAIN
        alarm(60); f = open("log", O_CREAT | O_WRONLY | O_APPEND, 0644); write(f, "x", 1); if (!fork()) _exit(0); wait(0);
        int n = fcntl(f, F_DUPFD, 50), kept = dup(f), wrong = 0, small = f; f = n; pthread_t t; pthread_create(&t, 0, writes, 0);
        for (int i = 0; i < 100; i++) {
            char name[200]; sprintf(name, "OUT/o%d", i); int o = open(name, O_CREAT | O_RDWR | O_TRUNC, 0644);
            dup2(o, n); usleep(300); dup2(kept, n); wrong += lseek(o, 0, SEEK_CUR) % 4096; close(o); usleep(200);
        }
        over = 1; pthread_join(t, 0); printf("%d %d\n", wrong, bad);
        for (int i = 0; i < 100; i++) { char name[200]; struct stat s; sprintf(name, "OUT/o%d", i); int o = open(name, O_RDONLY); fstat(o, &s); wrong += s.st_size && lseek(o, 0, SEEK_DATA); close(o); }
        printf("%d\n", wrong);"#;
    let out = store.path("out");
    std::fs::create_dir_all(&out).unwrap();
    let ran = compiled(&store, &body.replace("OUT", &out.display().to_string())).ok();
    assert_eq!(ran.text(), "0 0\n0\n");
}

/// A debugger, or who presses a key, stops one of several that write a log.
#[test]
fn who_is_stopped_while_it_writes_stops_nobody_else() {
    if !has_library() {
        return;
    }
    let program = r"
import os, signal, threading, time
for name, flags in ('log', os.O_APPEND), ('shared', 0):
    f = os.open(name, os.O_RDWR | os.O_CREAT | flags)
    pid = os.fork()
    while pid == 0:
        os.write(f, b'line\n')
    stuck = 0
    for i in range(8):
        time.sleep(.01)
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        done = []
        t = threading.Thread(target=lambda: done.append(os.write(f, b'LINE\n')))
        t.start()
        t.join(20)
        stuck += not done
        os.kill(pid, signal.SIGCONT)
        t.join()
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    lines = open(name, 'rb').read().split(b'\n')
    print(name, stuck, lines.count(b'LINE'), set(lines) <= {b'line', b'LINE', b''})
";
    let ran = python(&Store::with_workspace(), program).ok();
    assert_eq!(ran.text(), "log 0 8 True\nshared 0 8 True\n");
}

#[test]
fn a_mapping_is_of_whole_pages_and_a_hole_takes_no_memory() {
    if !has_library() {
        return;
    }
    let body = r#"
        static long shmem(void) { char l[200]; long n = 0; FILE *m = fopen("/proc/meminfo", "r"); while (fgets(l, 200, m)) sscanf(l, "Shmem: %ld", &n); fclose(m); return n; }
        MAIN
        static char b[9000]; memset(b, 'm', 9000); int f = open("f", O_CREAT | O_RDWR, 0644); write(f, b, 9000);
        char *m = mmap(0, 100, PROT_READ, MAP_PRIVATE, f, 0), *n = mmap(0, 100, PROT_READ, MAP_SHARED, f, 8192);
        printf("%c%c %c%d\n", m[99], m[4000], n[807], n[808]);
        int s = open("sparse", O_CREAT | O_RDWR, 0644); ftruncate(s, 1L << 30); pwrite(s, "data", 4, 300L << 20);
        long before = shmem(); char *h = mmap(0, 1L << 30, PROT_READ, MAP_SHARED, s, 0);
        printf("%.4s %d %d %s\n", h + (300L << 20), h[0], h[(1L << 30) - 1], shmem() - before < 500000 ? "little" : "much");"#;
    assert_eq!(compiled(&Store::with_workspace(), body).ok().text(), "mm m0\ndata 0 0 little\n");
}

/// The names of directories may be longer together than any path that can be given.
#[test]
fn what_lies_deep_is_handed_to_another_program() {
    if !has_library() {
        return;
    }
    let program = r"
import os, subprocess
for i in range(60):
    os.mkdir('d' * 200)
    os.chdir('d' * 200)
open('f', 'w').write('deep\n')
print(subprocess.run(['cat'], stdin=open('f'), capture_output=True).stdout)
subprocess.run(['sh', '-c', 'echo out; cat f'], stdout=open('g', 'w'))
print(open('g').read().split())
";
    let ran = python(&Store::with_workspace(), program).ok();
    assert_eq!(ran.text(), "b'deep\\n'\n['out', 'deep']\n");
}

/// A shell that lets its programs write nothing reads what it likes.
#[test]
fn a_limit_of_the_length_of_files_ends_nobody_who_reads() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let ran = shell(&store, "echo text > f; (ulimit -f 0; cat f; (cat) < f || echo on) | cat").ok();
    assert!(ran.text().starts_with("text\n") && ran.text().ends_with("on\n"), "{}", ran.text());
}

#[test]
fn a_user_for_files_alone_is_who_meets_them() {
    if !has_library() || !rustix::process::geteuid().is_root() {
        return;
    }
    let body = r#"
        #include <sys/fsuid.h>
        MAIN
        mkdir("d", 0777); chmod("d", 0777); chmod(".", 0755); chdir("d"); struct stat s;
        int f = open("secret", O_CREAT | O_RDWR, 0600); write(f, "s", 1); close(f); setfsuid(1000);
        printf("%s ", E(open("secret", O_RDONLY))); fstat(open("own", O_CREAT | O_RDWR, 0644), &s); printf("%d ", s.st_uid); fflush(stdout);
        if (!fork()) { printf("%s ", E(open("of-child", O_CREAT | O_RDWR, 0644))); fflush(stdout); _exit(0); } wait(0);
        setfsuid(0); printf("%s\n", E(open("secret", O_RDONLY)));"#;
    let store = Store::with_workspace();
    assert_eq!(compiled(&store, body).ok().text(), "EACCES 1000 done done\n");
    // Before anything is known of the store.
    let body = "#include <sys/fsuid.h>\n MAIN setfsuid(1000); printf(\"%s\", E(open(\"/iov/w/d/secret\", O_RDONLY)));";
    let program = crate::calls::built(&store, body);
    assert_eq!(run(&store, &[&program]).ok().text(), "EACCES");
}
