//! What programs in `iov run` ask that the kernel would refuse, or would do by itself: memory that is not there, pipes, offsets that
//! several processes move, another user.

use crate::{
    calls::compiled,
    runs::{has_library, python, shell},
    store::Store,
};

#[test]
fn memory_that_a_program_has_not_is_told_as_such() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        char *bad = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *low = (char *)1, *high = (char *)-1, b[16] = {0};
        int f = open("f", O_CREAT | O_RDWR, 0644); struct stat s; struct iovec v[2] = {{b, 4}, {bad, 4}};
        char *fixed = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        write(f, "0123456789", 10); symlink("f", "l"); setxattr("f", "user.a", "v", 1, 0);
        for (char *at[] = {bad, low, high, 0}, **p = at; *p; p++)
            printf("%s %s %s %s %s %s %s %s\n", E(open(*p, 0)), E(stat("f", (void *)*p)), E(stat(*p, &s)), E(pread(f, *p, 4, 0)), E(pwrite(f, *p, 4, 0)),
                E(readlink("l", *p, 9)), E(rename("f", *p)), E(link(*p, "g")));
        printf("%s %s %s %s\n", E(getxattr("f", "user.a", bad, 9)), E(setxattr("f", bad, "v", 1, 0)), E(setxattr("f", "user.b", bad, 4, 0)), E(symlink(bad, "m")));
        printf("%s %s %s\n", E(utimensat(AT_FDCWD, "f", (void *)bad, 0)), E(fcntl(f, F_GETLK, bad)), E(syscall(SYS_getcwd, bad, 99L)));
        printf("%s %s\n", E(pread(f, fixed, 4, 0)), E(pwrite(f, fixed, 1, 20)));
        printf("%ld %ld %s\n", (long)preadv(f, v, 2, 0), (long)pwritev(f, v, 2, 0), E(pwritev(f, v + 1, 1, 0)));
        v[1].iov_base = b; v[1].iov_len = -1; printf("%s %s %s\n", E(preadv(f, v, 2, 0)), E(pwritev(f, v, 2, 0)), E(preadv(f, v, -1, 0)));
        char *args[] = {bad, 0}; printf("%s %s\n", E(execve("./f", args, 0)), E(execve(bad, args, 0)));
        int r = open("f", O_RDONLY), w = open("f", O_WRONLY); printf("%s %s\n", E(read(w, bad, 4)), E(write(r, bad, 4)));
        /* Room for more than there is of it is room all the same. */
        printf("%ld\n", (long)pread(f, bad + 8192 - 4, 0, 0));
        mprotect(bad, 4096, PROT_READ | PROT_WRITE); printf("%ld ", (long)pread(f, bad + 4092, 4, 4)); printf("%.4s\n", bad + 4092);"#;
    let said = compiled(&store, body).ok().text();
    let told = |n: usize| "EFAULT ".repeat(n).trim_end().to_owned() + "\n";
    let all = [told(8).repeat(3), told(4), told(3), "EFAULT done\n".into(), "4 4 EFAULT\n".into()].concat();
    assert_eq!(said, all + "EINVAL EINVAL EINVAL\nEFAULT EFAULT\nEBADF EBADF\n0\n4 4567\n");
}

#[test]
fn bytes_go_between_pipes_and_files() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        int p[2], f = open("f", O_CREAT | O_RDWR, 0644), a = open("a", O_CREAT | O_WRONLY | O_APPEND, 0644); char b[20] = {0}; long at = 2;
        pipe(p); write(f, "0123456789", 10); lseek(f, 6, SEEK_SET);
        printf("%ld ", (long)splice(f, &at, p[1], 0, 3, 0)); printf("%ld\n", at);
        printf("%ld ", (long)splice(f, 0, p[1], 0, 99, 0)); printf("%ld\n", (long)lseek(f, 0, SEEK_CUR));
        at = 20; printf("%ld ", (long)splice(p[0], 0, f, &at, 99, 0)); printf("%ld\n", at);
        pread(f, b, 9, 20); printf("%s\n", b);
        printf("%s %s ", E(splice(p[0], 0, f, 0, 9, SPLICE_F_NONBLOCK)), E(splice(f, 0, f, 0, 9, 0)));
        printf("%s %s\n", E(splice(f, 0, p[1], &at, 9, 0)), E(splice(p[0], 0, a, 0, 9, 0)));
        printf("%s %s\n", E(sendfile(-1, f, 0, 9)), E(sendfile(p[0], f, 0, 9)));
        /* What the file does not take stays in the pipe. */
        struct rlimit none = {0, RLIM_INFINITY}; signal(SIGXFSZ, SIG_IGN); setrlimit(RLIMIT_FSIZE, &none);
        write(p[1], "kept", 4); printf("%s ", E(splice(p[0], 0, f, 0, 9, 0))); memset(b, 0, 20); read(p[0], b, 9); printf("%s\n", b);"#;
    let said = compiled(&store, body).ok().text();
    assert_eq!(said, "3 5\n4 10\n7 27\n2346789\nEAGAIN EINVAL ESPIPE EINVAL\nEBADF EBADF\nEFBIG kept\n");
}

#[test]
fn named_pipes_lead_from_one_program_to_another() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let script = "mkfifo p && chmod 600 p && (seq 100000 > p &) && test $(wc -l < p) = 100000
        ln p q && (echo second > q &) && cat p && rm p && test -p q && (echo third > q &) && cat q && test $(stat -c %F q) = fifo
        exec 9<> q && pipe=$(readlink /proc/$$/fd/9) && test -p $pipe && rm q && test ! -e $pipe && echo fourth >&9 && read said <&9 && echo $said";
    assert_eq!(shell(&store, script).ok().text(), "second\nthird\nfourth\n");
}

#[test]
fn who_shares_an_offset_reads_each_byte_once() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        char b, all[4001] = {0}; for (int i = 0; i < 4000; i++) all[i] = 'a' + i % 2;
        int f = open("f", O_CREAT | O_RDWR, 0644), p[2], seen[2] = {0}; write(f, all, 4000); lseek(f, 0, SEEK_SET); pipe(p);
        for (int child = 0; child < 4; child++) if (!fork()) {
            for (int i = 0; i < 1000; i++) if (read(f, &b, 1) == 1) write(p[1], &b, 1);
            _exit(0);
        }
        while (wait(0) > 0); close(p[1]);
        while (read(p[0], &b, 1) == 1) seen[b - 'a']++;
        printf("%d %d %ld\n", seen[0], seen[1], (long)read(f, &b, 1));"#;
    assert_eq!(compiled(&store, body).ok().text(), "2000 2000 0\n");
}

#[test]
fn descriptors_are_what_they_were_where_another_process_gets_them() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // Past the library, as code does that has system calls of its own.
    let body = r#"
        #ifdef __x86_64__
        #define RAW(r, n, a, b, c, d) ({ register long r10 asm("r10") = (long)(d); asm volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory"); r; })
        #else
        #define RAW(r, n, a, b, c, d) (r = syscall(n, a, b, c, d))
        #endif
        char t[20] = {0}; struct stat s; long r; int p[2]; pipe(p);
        int a = open("f", O_CREAT | O_RDWR, 0644); write(a, "0123456789", 10);
        int b = dup(a), c = open("f", O_RDONLY), gone = open("f", O_RDONLY), over = open("f", O_WRONLY), d = open(".", O_DIRECTORY);
        printf("%s %s %ld ", E(lseek(a, -1, SEEK_SET)), E(lseek(a, -11, SEEK_CUR)), (long)lseek(a, -6, SEEK_CUR)); printf("%ld\n", (long)lseek(b, 0, SEEK_CUR));
        printf("%s %s %ld\n", E(lseek(d, -1, SEEK_SET)), E(lseek(d, 0, SEEK_END)), (long)lseek(d, 0, SEEK_CUR));
        fcntl(c, F_SETFL, O_APPEND | O_NONBLOCK); int flags = fcntl(c, F_GETFL); printf("%d %d ", !!(flags & O_APPEND), flags & O_ACCMODE);
        flags = fcntl(a, F_GETFL); printf("%d %d\n", !!(flags & O_APPEND), (flags & O_ACCMODE) == O_RDWR);
        /* What was closed and opened behind the library's back stays what it is. */
        RAW(r, SYS_close, gone, 0, 0, 0); int null = RAW(r, SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
        printf("%d %d ", null == gone, dup2(p[1], over) == over); fflush(stdout);
        lseek(c, 2, SEEK_SET); dup2(b, 40); fcntl(40, F_SETFD, FD_CLOEXEC);
        if (!fork()) { read(40, t, 2); read(c, t + 2, 3); write(1, t, 5); write(1, " ", 1); _exit(0); }
        wait(0); read(a, t, 2); read(c, t + 2, 3); printf("%.5s ", t); flags = fcntl(c, F_GETFL); printf("%d ", !!(flags & O_NONBLOCK));
        RAW(r, SYS_fstat, null, &s, 0, 0); printf("%d ", S_ISCHR(s.st_mode)); write(over, "pipe", 4); printf("%d ", (int)read(p[0], t, 4));
        printf("%d %d\n", fcntl(40, F_GETFD), fcntl(b, F_GETFD)); fflush(stdout);
        /* Where there is no room for another file, a child has it all the same, with an offset of its own. */
        int last = open("f", O_RDONLY); lseek(last, 3, SEEK_SET); struct rlimit many, few; getrlimit(RLIMIT_NOFILE, &many); few = many; few.rlim_cur = last + 1; setrlimit(RLIMIT_NOFILE, &few);
        for (int i = 0; i <= last; i++) if (fcntl(i, F_GETFD) < 0) dup(1);
        printf("%s ", E(open("f", O_RDONLY))); fflush(stdout);
        if (!fork()) { setrlimit(RLIMIT_NOFILE, &many); printf("%d ", (int)read(last, t, 4)); printf("%.4s\n", t); fflush(stdout); _exit(0); }
        wait(0); printf("%d\n", (int)read(last, t, 4));"#;
    let said = compiled(&store, body).ok().text();
    let first = "EINVAL EINVAL 4 4\nEINVAL EINVAL 0\n1 0 0 1\n1 1 45234 67567 1 1 4 1 0\n";
    assert_eq!(said, format!("{first}EMFILE 4 3456\n4\n"));
}

#[test]
fn descriptors_share_an_offset_whoever_forks_meanwhile() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        static volatile int over, bad;
        void *work(void *name) {
            char b[4];
            while (!over) {
                int a = open(name, O_CREAT | O_RDWR | O_TRUNC, 0644); write(a, "0123456789", 10); lseek(a, 0, SEEK_SET);
                int n = dup(a), m = fcntl(a, F_DUPFD, 50);
                bad |= read(n, b, 2) != 2 || memcmp(b, "01", 2) || read(a, b, 2) != 2 || memcmp(b, "23", 2);
                bad |= read(m, b, 2) != 2 || memcmp(b, "45", 2) || dup2(m, n) != n || read(n, b, 2) != 2 || memcmp(b, "67", 2);
                close(n); close(m); close(a);
            }
            return 0;
        }
        pthread_t one, two; pthread_create(&one, 0, work, "one"); pthread_create(&two, 0, work, "two");
        for (int i = 0; i < 100; i++) { if (!fork()) _exit(0); wait(0); if (i % 20 == 0) bad |= system("true"); }
        over = 1; pthread_join(one, 0); pthread_join(two, 0); printf("%d\n", bad);"#;
    assert_eq!(compiled(&store, body).ok().text(), "0\n");
}

#[test]
fn a_program_runs_from_the_directory_that_it_says() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r##"
        mkdir("d", 0755); symlink("s", "d/l"); int d = open("d", O_DIRECTORY), s = open("d/s", O_CREAT | O_WRONLY, 0755), at; char *args[] = {"s", "x", 0};
        write(s, "#!/bin/sh\necho $0 $1\n", 21); close(s); at = open("d/s", O_PATH);
        extern char **environ; int flags[] = {0, 0, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, 0x40000000};
        char *paths[] = {"s", "/iov/w/d/s", "", "l", "s"}; int fds[] = {d, -1, at, d, d};
        for (int i = 0; i < 5; i++) {
            if (!fork()) {
                execveat(fds[i], paths[i], args, environ, flags[i]);
                printf("%s\n", strerrorname_np(errno)); fflush(stdout); _exit(0);
            }
            wait(0);
        }"##;
    let said = compiled(&store, body).ok().text();
    assert_eq!(said, "/iov/w/d/s x\n/iov/w/d/s x\n/iov/w/d/s x\nELOOP\nEINVAL\n");
}

#[test]
fn a_child_that_becomes_another_user_keeps_the_store() {
    // Only root can.
    if !has_library() || !rustix::process::geteuid().is_root() {
        return;
    }
    let store = Store::with_workspace();
    let script = r#"
import os
os.chmod("/iov/w", 0o755)
os.mkdir("d"); os.chown("d", 65534, 65534); open("secret", "w").write("s"); os.chmod("secret", 0o600)
pid = os.fork()
if not pid:
    os.setgid(65534); os.setuid(65534)
    open("d/mine", "w").write("of nobody")
    try: open("secret"); print("read")
    except PermissionError: print("refused", flush=True)
    os._exit(0)
os.wait()
print(open("d/mine").read(), os.stat("d/mine").st_uid)
"#;
    assert_eq!(python(&store, script).ok().text(), "refused\nof nobody 65534\n");
}

#[test]
fn what_only_its_owner_may_ask_for_is_refused_to_others() {
    if !has_library() || !rustix::process::geteuid().is_root() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        int f = open("f", O_CREAT | O_RDWR, 0666); mkdir("d", 0777); chmod("f", 0666); struct stat s;
        chmod("/iov/w", 0755); chown("d", 65534, 1); setegid(65534); seteuid(65534);
        printf("%s %s\n", E(open("f", O_RDONLY | O_NOATIME)), E(open("f", O_RDONLY)));
        /* Who is not in its group gives nobody the rights of it. */
        chmod("d", 03777); stat("d", &s); printf("%o\n", s.st_mode);
        seteuid(0); printf("%s\n", E(renameat2(AT_FDCWD, "f", AT_FDCWD, "none/x", RENAME_NOREPLACE | RENAME_EXCHANGE)));
        printf("%s %s\n", E(linkat(-1, "x", AT_FDCWD, "g", 0)), E(linkat(AT_FDCWD, "f", -1, "g", 0)));"#;
    assert_eq!(compiled(&store, body).ok().text(), "EPERM done\n41777\nEINVAL\nEBADF EBADF\n");
}

#[test]
fn attributes_are_as_long_as_the_kernel_takes_them() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        static char value[65537], name[300] = "user."; memset(name + 5, 'n', 245); int f = open("f", O_CREAT | O_RDWR, 0644);
        printf("%s %s ", E(fsetxattr(f, "user.a", value, 65536, 0)), E(fsetxattr(f, "user.a", value, 65537, 0)));
        printf("%s ", E(setxattr("f", name, "v", 1, 0))); memset(name + 5, 'n', 251);
        printf("%s %s %s\n", E(setxattr("f", name, "v", 1, 0)), E(getxattr("f", name, 0, 0)), E(removexattr("f", "")));"#;
    assert_eq!(compiled(&store, body).ok().text(), "done E2BIG done ERANGE ERANGE ERANGE\n");
}

#[test]
fn paths_of_the_system_lead_to_what_is_open_here() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let script = r#"
        echo text > f; mkdir d; echo below > d/x; exec 5< f 6> w 7< d
        # By the shell's number, of which its children are others; by other ways to spell it; below a directory.
        cat /proc/$$/fd/5 /proc/thread-self/fd/5 /dev/fd//5 /proc/self/fd/../fd/5 /proc/self/fd/7/x
        echo written > /proc/$$/fd/6; cat w; stat -Lc %s /proc/$$/fd/5; ls /proc/self/fd/7/
        cat /proc/self/cwd/f; readlink /proc/self/cwd /proc/self/fd/5; cd d; cat /proc/self/cwd/../f; readlink /proc/self/cwd
        rm ../w; cat /proc/$$/fd/6 2> /dev/null || echo gone; readlink /proc/self/exe | grep -c /"#;
    let said = shell(&store, script).ok().text();
    let expected =
        ["text\n".repeat(4), "below\nwritten\n5\nx\ntext\n/iov/w\n/iov/w/f\ntext\n/iov/w/d\ngone\n1\n".into()].concat();
    assert_eq!(said, expected);
}
