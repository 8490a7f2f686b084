//! What programs in `iov run` do seldom: with memory that is a file's, by links of descriptors, with signals in threads.

use crate::{
    calls::{built, compiled},
    runs::{has_library, run},
    store::Store,
};

/// What a program in C prints.
fn says(body: &str) -> String {
    compiled(&Store::with_workspace(), body).ok().text()
}

#[test]
fn memory_of_a_file_is_the_files_again_when_it_was_dropped_and_never_lost() {
    if !has_library() {
        return;
    }
    let body = r#"
        int f = open("f", O_CREAT | O_RDWR, 0644); write(f, "content", 7); char b[8] = ""; int n = open_now();
        char *p = mmap(0, 4096, PROT_READ, MAP_PRIVATE, f, 0), *q = mmap(0, 4096, PROT_READ, MAP_SHARED, f, 0);
        madvise(p, 4096, MADV_DONTNEED); madvise(q, 4096, MADV_DONTNEED);
        printf("%s %s %s\n", p, q, E(mprotect(q, 4096, PROT_READ | PROT_WRITE)));
        char *own = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, f, 0); own[0] = 'C'; pread(f, b, 7, 0);
        printf("%s %s %d ", own, b, ((char *)mmap(0, 8192, PROT_READ, MAP_PRIVATE, f, 0))[5000]);
        madvise(own, 8192, MADV_DONTNEED); printf("%s\n", own);
        printf("%d\n", open_now() - n);"#;
    let body = format!(
        "static int open_now(void) {{ DIR *d = opendir(\"/proc/self/fd\"); int n = 0; while (readdir(d)) n++; closedir(d); return n; }} MAIN {body}"
    );
    // Nothing of it stays open.
    assert_eq!(says(&body), "content content EACCES\nContent content 0 content\n0\n");
    // Where no file may be so long it is memory of the process.
    let body = r#"
        int f = open("f", O_CREAT | O_RDWR, 0644); write(f, "content", 7);
        struct rlimit none = {0, RLIM_INFINITY}; signal(SIGXFSZ, SIG_IGN); setrlimit(RLIMIT_FSIZE, &none);
        puts((char *)mmap(0, 4096, PROT_READ, MAP_PRIVATE, f, 0));"#;
    assert_eq!(says(body), "content\n");
}

#[test]
fn a_file_is_changed_by_the_link_of_its_descriptor_whatever_its_name() {
    if !has_library() {
        return;
    }
    let body = r#"
        struct stat s; char l[40]; struct timespec t[2] = {{1, 0}, {2, 0}};
        int f = open("a", O_CREAT | O_RDWR, 0644); write(f, "moved", 5); rename("a", "b");
        int other = open("a", O_CREAT | O_RDWR, 0644); write(other, "another", 7);
        sprintf(l, "/proc/self/fd/%d", f);
        printf("%s ", E(truncate(l, 2))); printf("%s ", E(chmod(l, 0600)));
        printf("%s ", E(utimensat(AT_FDCWD, l, t, 0))); printf("%s ", E(setxattr(l, "user.k", "v", 1, 0)));
        stat("b", &s); printf("%ld %o %ld %ld, ", s.st_size, s.st_mode & 0777, s.st_mtime, (long)getxattr("b", "user.k", 0, 0));
        stat("a", &s); printf("%ld %o\n", s.st_size, s.st_mode & 0777);
        int unnamed = open(".", O_TMPFILE | O_RDWR, 0644); sprintf(l, "/proc/self/fd/%d", unnamed);
        printf("%s ", E(chmod(l, 0640))); fstat(unnamed, &s); printf("%o\n", s.st_mode & 0777);"#;
    assert_eq!(says(body), "done done done done 2 600 2 1, 7 644\ndone 640\n");
}

#[test]
fn handlers_in_threads_run_behind_the_call_that_they_come_into() {
    if !has_library() {
        return;
    }
    let body = r#"
        static int f; static volatile int over, ran;
        static void handler(int s) { char *p = malloc(100); free(p); if (write(f, "x", 1) == 1) ran++; }
        static void *writes(void *n) {
            sigset_t all; sigfillset(&all); sigdelset(&all, SIGUSR1); pthread_sigmask(SIG_SETMASK, &all, 0);
            char b[300] = {0}; while (!over) if (write(f, b, 300) != 300) abort();
            return 0;
        }
        MAIN
        f = open("data", O_CREAT | O_RDWR | O_APPEND, 0644); write(f, "first", 5);
        struct sigaction a = {.sa_handler = handler}; sigaction(SIGUSR1, &a, 0);
        sigset_t one; sigemptyset(&one); sigaddset(&one, SIGUSR1); pthread_sigmask(SIG_BLOCK, &one, 0);
        pthread_t t; pthread_create(&t, 0, writes, 0);
        for (int i = 0; i < 5000; i++) { kill(getpid(), SIGUSR1); usleep(100); }
        over = 1; pthread_join(t, 0); struct stat s; fstat(f, &s);
        printf("%s %ld\n", ran > 0 ? "handled" : "none", (s.st_size - 5 - ran) % 300);"#;
    let store = Store::with_workspace();
    // Who waits for itself is ended.
    let program = format!("cd /iov/w && timeout -s KILL 60 {}", built(&store, body));
    assert_eq!(run(&store, &["--", "sh", "-c", &program]).ok().text(), "handled 0\n");
}

#[test]
fn a_range_of_descriptors_that_is_closed_ends_its_locks() {
    if !has_library() {
        return;
    }
    let body = r#"
        int a = open("l", O_RDWR | O_CREAT, 0644), b = open("l", O_RDWR);
        flock(a, LOCK_EX); close_range(a, a, 0); puts(E(flock(b, LOCK_EX | LOCK_NB)));"#;
    assert_eq!(says(body), "done\n");
}

#[test]
fn space_for_a_file_outside_is_never_made_by_changing_what_is_there() {
    // Of file systems that cannot make it themselves, only root can mount one.
    if !has_library() || !rustix::process::geteuid().is_root() {
        return;
    }
    let store = Store::with_workspace();
    let at = store.path("ram");
    std::fs::create_dir(&at).unwrap();
    let ram = |verb: &[&str]| std::process::Command::new(verb[0]).args(&verb[1..]).arg(&at).status().unwrap().success();
    if !ram(&["mount", "-t", "ramfs", "ram"]) {
        return;
    }
    let (old, log) = (at.join("old"), at.join("log"));
    std::fs::write(&old, [1; 10_000]).unwrap();
    std::fs::write(&log, [1; 10]).unwrap();
    let body = format!(
        r#"
        int f = open("{}", O_WRONLY), g = open("{}", O_WRONLY | O_APPEND), h = open("{}", O_RDWR | O_CREAT, 0600);
        printf("%s %s ", strerrorname_np(posix_fallocate(f, 0, 20000)), strerrorname_np(posix_fallocate(g, 0, 9000)));
        printf("%d\n", posix_fallocate(h, 0, 9000));"#,
        old.display(),
        log.display(),
        at.join("new").display()
    );
    let said = compiled(&store, &body);
    let left = (std::fs::read(&old), std::fs::read(&log), std::fs::metadata(at.join("new")).map(|facts| facts.len()));
    ram(&["umount"]);
    assert_eq!(said.ok().text(), "EBADF EBADF 0\n");
    assert_eq!((left.0.unwrap(), left.1.unwrap(), left.2.unwrap()), (vec![1; 10_000], vec![1; 10], 9000));
}

#[test]
fn children_have_a_world_of_their_own_by_whichever_way_they_are_made() {
    if !has_library() {
        return;
    }
    let body = r#"
        for (int way = 0; way < 3; way++) {
            char name[] = "f0", b[20] = ""; name[1] += way;
            int f = open(name, O_CREAT | O_RDWR, 0644); write(f, "parent ", 7);
            int child = way == 0 ? _Fork() : way == 1 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : syscall(SYS_fork);
            if (child == 0) {
                write(f, "child ", 6); close(f); int g = open("of the child", O_CREAT | O_WRONLY | O_APPEND, 0644);
                write(g, name, 2); close(g); _exit(3);
            }
            int status; waitpid(child, &status, 0); write(f, "parent", 6); close(f);
            f = open(name, O_RDONLY); read(f, b, 19); close(f); printf("%d %s\n", WEXITSTATUS(status), b);
        }
        char b[9] = ""; int f = open("of the child", O_RDONLY); read(f, b, 8); puts(b);"#;
    assert_eq!(says(body), format!("{}f0f1f2\n", "3 parent child parent\n".repeat(3)));
}

#[test]
fn a_file_is_appended_to_from_when_somebody_else_who_has_it_says_so() {
    if !has_library() {
        return;
    }
    let body = r#"
        char b[9] = ""; int f = open("f", O_CREAT | O_RDWR, 0644); write(f, "aaaa", 4); lseek(f, 0, SEEK_SET);
        if (!fork()) { fcntl(f, F_SETFL, O_APPEND); _exit(0); }
        wait(0); write(f, "b", 1); pread(f, b, 8, 0); printf("%s ", b);
        if (!fork()) { fcntl(f, F_SETFL, 0); lseek(f, 0, SEEK_SET); _exit(0); }
        wait(0); write(f, "c", 1); pread(f, b, 8, 0); puts(b);"#;
    assert_eq!(says(body), "aaaab caaab\n");
}

#[test]
fn what_is_above_a_link_outside_is_above_where_it_leads() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let (out, link) = (store.path("out/x/y"), store.path("link"));
    std::fs::create_dir_all(&out).unwrap();
    std::fs::create_dir_all(store.path("out/iov/w")).unwrap();
    std::fs::write(store.path("out/iov/w/f"), "outside").unwrap();
    std::os::unix::fs::symlink(&out, &link).unwrap();
    // By its text it would be `/iov/w/f`.
    let ups = "../".repeat(store.path("").components().count() - 1);
    let near = format!("{}/../../iov/w/f", link.display());
    let far = format!("{}/../../{ups}../iov/w/f", link.display());
    let script =
        format!("echo inside > /iov/w/f; cat {near}; echo; echo changed > {near}; cat {far}; cat /iov/w/../w/f");
    let said = run(&store, &["--", "sh", "-ec", &script]).ok().text();
    assert_eq!(said, "outside\ninside\ninside\n");
    assert_eq!(std::fs::read_to_string(store.path("out/iov/w/f")).unwrap(), "changed\n");
    // Out of a workspace, and past a link there.
    let near = store.path("near");
    std::os::unix::fs::symlink(store.path("out"), &near).unwrap();
    let script = format!("cd /iov/w; cat ../..{}/../out/iov/w/f", near.display());
    assert_eq!(run(&store, &["--", "sh", "-ec", &script]).ok().text(), "changed\n");
}
