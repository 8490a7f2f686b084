//! What looks at files, copies them or makes them in several threads leaves what it does not change as it is, and finds what is there.

use crate::{
    calls::{built, compiled},
    mounts::{Mounted, has_fuse},
    runs::{has_library, shell},
    store::Store,
};

/// When a file was changed last is told of it as it is closed, and not changed by who only looks at it or copies it.
const CHANGED: &str = r#"
    static struct timespec of(const char *path) { struct stat s; stat(path, &s); return s.st_ctim; }
    static const char *since(const char *path, struct timespec was) { struct timespec is = of(path); return memcmp(&is, &was, sizeof is) ? "changed" : "same"; }
    static char b[100000];
    static void make(const char *path, int len, int sets) {
        int f = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600); write(f, b, len);
        if (sets) { struct timespec t[2] = {{1000000000, 5}, {1000000000, 7}}; futimens(f, t); fchmod(f, 0640); }
        close(f);
    }
    MAIN
    for (int i = 0; i < sizeof b; i++) b[i] = i % 251;
    const int lengths[] = {3000, 8192, 9000, 100000}; char p[20], q[20], c[100];
    for (int sets = 0; sets < 2; sets++) for (int i = 0; i < 4; i++) {
        sprintf(p, "f%d%d", sets, i); sprintf(q, "copy%d%d", sets, i); make(p, lengths[i], sets);
        struct timespec was = of(p); usleep(20000);
        int f = open(p, O_RDONLY), t = open(q, O_RDWR | O_CREAT, 0600); loff_t from = 0;
        read(f, c, 100); const char *reads = since(p, was);
        lseek(f, 0, SEEK_HOLE); lseek(f, 0, SEEK_DATA); const char *looks = since(p, was);
        long n = copy_file_range(f, &from, t, 0, lengths[i], 0); const char *copies = since(p, was);
        lseek(f, 0, SEEK_SET); ftruncate(t, 0); lseek(t, 0, SEEK_SET); n += sendfile(t, f, 0, lengths[i]);
        static char got[100000]; long m = pread(t, got, sizeof got, 0); close(t); close(f);
        printf("%s %s %s %s %d\n", reads, looks, copies, since(p, was), n == 2 * lengths[i] && m == lengths[i] && !memcmp(b, got, m));
        if (sets) { struct stat s; stat(p, &s); printf("%ld.%ld %o\n", (long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_mode & 07777); }
    }
    struct stat s; close(open("touched", O_CREAT, 0600)); utimensat(AT_FDCWD, "touched", 0, 0); stat("touched", &s);
    printf("%s\n", memcmp(&s.st_atim, &s.st_mtim, sizeof s.st_atim) ? "two times" : "one time");
"#;

#[test]
fn who_looks_at_a_file_or_copies_it_does_not_change_it() {
    let line = "same same same same 1\n";
    let said = line.repeat(4) + &(line.to_owned() + "1000000000.7 640\n").repeat(4) + "one time\n";
    if has_library() {
        let store = Store::with_workspace();
        assert_eq!(compiled(&store, CHANGED).ok().text(), said, "iov run");
    }
    if has_fuse() {
        let store = Store::with_workspace();
        let program = built(&store, CHANGED);
        let m = Mounted::new(&store, "mnt", "");
        assert_eq!(m.shell(&program).ok().text(), said, "a mount");
    }
}

#[test]
fn threads_that_make_the_same_directory_find_what_each_of_them_has_made_there() {
    if !has_library() {
        return;
    }
    // As several threads do that make a file each, and the directories for it if need be.
    let body = r#"
        enum { T = 4, N = 300 };
        static pthread_barrier_t start; static int bad;
        static void *thread(void *me) {
            char d[30], f[60];
            for (int n = 0; n < N; n++) {
                sprintf(d, "d%d", n); sprintf(f, "d%d/f%ld", n, (long)me);
                pthread_barrier_wait(&start);
                if (mkdir(d, 0755) && errno != EEXIST) bad++;
                int fd = open(f, O_CREAT | O_EXCL | O_WRONLY, 0600);
                if (fd < 0) bad++; else { write(fd, "data", 4); close(fd); }
                if (access(f, F_OK)) bad++;
                if (n % 2 && (unlink(f) || !access(f, F_OK))) bad++;
            }
            return 0;
        }
        MAIN
        pthread_t t[T]; pthread_barrier_init(&start, 0, T);
        for (long i = 0; i < T; i++) pthread_create(t + i, 0, thread, (void *)i);
        for (int i = 0; i < T; i++) pthread_join(t[i], 0);
        printf("%d\n", bad);"#;
    let store = Store::with_workspace();
    assert_eq!(compiled(&store, body).ok().text(), "0\n");
}

#[test]
fn who_locks_a_file_gets_no_copy_of_it_as_shared_memory() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // A copy would not show what others write under their locks.
    let body = r#"
        int f = open("f", O_RDWR | O_CREAT, 0600); char b[9000]; memset(b, 'a', sizeof b); write(f, b, sizeof b);
        char *m = mmap(0, 9000, PROT_READ, MAP_SHARED, f, 0); printf("%c\n", m == MAP_FAILED ? '-' : m[8999]);
        struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 1 << 30, .l_len = 2}; fcntl(f, F_SETLK, &l);
        printf("%s\n", mmap(0, 9000, PROT_READ, MAP_SHARED, f, 0) == MAP_FAILED ? strerrorname_np(errno) : "mapped");
        m = mmap(0, 9000, PROT_READ, MAP_PRIVATE, f, 0); printf("%c\n", m == MAP_FAILED ? '-' : m[0]);"#;
    assert_eq!(compiled(&store, body).ok().text(), "a\nENODEV\na\n");
    let said = shell(
        &store,
        "sqlite3 d 'create table t(a); insert into t values(1);'; for i in 1 2 3; do (for n in $(seq 30); do sqlite3 -cmd '.timeout 20000' d \
         'pragma mmap_size=268435456; begin immediate; update t set a = a + 1; commit;' > /dev/null; done) & done; wait; \
         sqlite3 d 'pragma mmap_size=268435456; select a from t; pragma integrity_check;'",
    );
    assert_eq!(said.ok().text(), "268435456\n91\nok\n");
}

#[test]
fn what_a_workspace_cannot_do_is_said_as_the_system_does() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let out = store.path("out");
    std::fs::create_dir_all(&out).unwrap();
    let body = format!(
        r#"
        int n = inotify_init(); close(open("f", O_CREAT, 0600)); mkdir("d", 0700);
        printf("%s %s %s ", E(inotify_add_watch(n, "f", IN_MODIFY)), E(inotify_add_watch(n, ".", IN_MODIFY)), E(syscall(SYS_inotify_add_watch, n, "d", IN_MODIFY)));
        printf("%s\n", inotify_add_watch(n, "{0}", IN_MODIFY) > 0 ? "watched" : "not");
        printf("%s %s %s %s\n", E(rename("f", "{0}/none/g")), E(rename("f", "{0}/g")), E(rename("d", "{0}/g/")), E(link("f", "{0}/none/g")));"#,
        out.display()
    );
    assert_eq!(compiled(&store, &body).ok().text(), "ENOSYS ENOSYS ENOSYS watched\nENOENT EXDEV EXDEV ENOENT\n");
}
