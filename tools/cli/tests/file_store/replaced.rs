//! Names that somebody gives to other files all the time, and files to whose end several write: nobody misses one, or finds pieces of another.

use std::process::Command;

use crate::{
    calls::{built, compiled},
    mounts::{Mounted, has_fuse},
    runs::has_library,
    store::Store,
};

/// `replace SECONDS`: gives a file and a link to other ones all the time, as programs do that write a new one and rename it.
const REPLACE: &str = r#"
    static int replaced(int seconds) {
        time_t end = time(0) + seconds; int n = 0; char b[3000] = {1};
        while (time(0) < end) {
            int f = open("new", O_CREAT | O_TRUNC | O_WRONLY, 0644); write(f, b, sizeof b); close(f);
            unlink("link2"); if (symlink(n % 2 ? "a" : "b", "link2")) return -1;
            if (rename("new", "name") || rename("link2", "link")) return -1;
            n++;
        }
        return n;
    }
    static void prepare(void) {
        mkdir("a", 0755); mkdir("b", 0755); close(open("a/x", O_CREAT, 0644)); close(open("b/x", O_CREAT, 0644));
        symlink("a", "link"); close(open("name", O_CREAT, 0644));
    }
"#;

/// Whatever is done with them by their names finds them.
const USES: &str = r#"
    static int missed[12]; static volatile int over;
    static void *use(void *me) {
        struct stat s; char b[100]; struct timespec t[2] = {{1, 1}, {2, 2}}; int f;
        while (!over) {
            missed[0] += stat("name", &s) != 0; missed[1] += access("name", F_OK) != 0; missed[2] += chmod("name", 0600 + 4 * (long)me) != 0;
            missed[3] += utimensat(AT_FDCWD, "name", t, 0) != 0; missed[4] += setxattr("name", "user.k", "v", 1, 0) != 0;
            missed[5] += getxattr("name", "user.none", b, 9) >= 0 || errno != ENODATA; missed[6] += listxattr("name", b, 0) < 0;
            missed[7] += (f = open("name", O_RDONLY)) < 0; close(f); missed[8] += (f = open("name", O_RDWR | O_CREAT, 0600)) < 0; close(f);
            missed[9] += truncate("name", 2000) != 0; missed[10] += stat("link/x", &s) != 0; missed[11] += (f = open("link/x", O_RDONLY)) < 0; close(f);
        }
        return 0;
    }
    MAIN
    prepare(); pthread_t t[2]; for (long i = 0; i < 2; i++) pthread_create(t + i, 0, use, (void *)i);
    int n = replaced(3); over = 1; for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    printf("%s", n > 2 ? "replaced" : "few"); for (int i = 0; i < 12; i++) printf(" %d", missed[i]); puts("");"#;

#[test]
fn what_is_replaced_is_always_there_for_threads_in_iov_run() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    assert_eq!(compiled(&store, &format!("{REPLACE} {USES}")).ok().text(), format!("replaced{}\n", " 0".repeat(12)));
}

#[test]
fn listings_in_a_mount_have_a_name_that_another_one_replaces() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        MAIN
        if (argc > 1) { prepare(); puts(replaced(4) > 2 ? "replaced" : "few"); return 0; }
        while (access("link", F_OK) || access("name", F_OK)) usleep(1000);
        for (int i = 0; i < 40; i++) { char p[20]; sprintf(p, "other%d", i); close(open(p, O_CREAT, 0600)); }
        int misses = 0, lists = 0; time_t end = time(0) + 3;
        while (time(0) < end) {
            int there = 0; DIR *d = opendir("."); struct dirent *e;
            while ((e = readdir(d))) there += !strcmp(e->d_name, "name") + !strcmp(e->d_name, "link");
            closedir(d); lists++; misses += there != 2;
        }
        printf("%d of %s\n", misses, lists > 2 ? "many" : "few");"#;
    let program = built(&store, &format!("{REPLACE} {body}"));
    let (a, b) = (Mounted::new(&store, "a", ""), Mounted::new(&store, "b", ""));
    let there = b.path("");
    let mut replacing = Command::new(&program).arg("replace").current_dir(&there).spawn().unwrap();
    assert_eq!(a.shell(&program).ok().text(), "0 of many\n");
    assert!(replacing.wait().unwrap().success());
}

#[test]
fn nobody_is_told_in_a_mount_that_what_another_one_replaces_is_stale() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        MAIN
        if (argc > 1) { prepare(); puts(replaced(5) > 2 ? "replaced" : "few"); return 0; }
        while (access("link", F_OK) || access("name", F_OK)) usleep(1000);
        int misses = 0, links = 0, others = 0, done = 0; time_t end = time(0) + 4;
        while (time(0) < end) {
            int f = open("name", O_RDONLY); misses += f < 0; close(f); misses += chmod("name", 0644) != 0;
            // What has no name any more gets none, as with other file systems.
            if (link("name", "linked")) { links++; others += errno != ENOENT; } else { done++; unlink("linked"); }
        }
        printf("%d missed, %s, %d others\n", misses, links && done ? "both" : "none", others);"#;
    let program = built(&store, &format!("{REPLACE} {body}"));
    let (a, b) = (Mounted::new(&store, "a", ""), Mounted::new(&store, "b", ""));
    let mut replacing = Command::new(&program).arg("replace").current_dir(b.path("")).spawn().unwrap();
    assert_eq!(a.shell(&program).ok().text(), "0 missed, both, 0 others\n");
    assert!(replacing.wait().unwrap().success());
}

#[test]
fn what_several_mounts_append_stays_in_one_piece() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        MAIN
        static char b[20000]; char c = argv[1][0];
        for (int n = 0; n < 300; n++) {
            int len = n % 10 ? 200 + n * 7 : 20000; memset(b, c, len); b[len - 1] = '\n';
            int f = open("log", O_WRONLY | O_APPEND | O_CREAT, 0644); if (write(f, b, len) != len) return 1; close(f);
            if (n % 3 == 0) { char r[100]; f = open("log", O_RDWR | O_APPEND); read(f, r, 100); if (write(f, b, len) != len) return 1; close(f); }
        }"#;
    let program = built(&store, body);
    let (a, b) = (Mounted::new(&store, "a", ""), Mounted::new(&store, "b", ""));
    let start = |m: &Mounted<'_>, tag: &str| Command::new(&program).arg(tag).current_dir(m.path("")).spawn().unwrap();
    let all = [start(&a, "a"), start(&a, "c"), start(&b, "b")];
    for mut one in all {
        assert!(one.wait().unwrap().success());
    }
    let log = store.cat("w/log");
    let torn = log.split(|b| *b == b'\n').filter(|line| line.iter().any(|b| *b != line[0])).count();
    let lens: usize =
        (0..300).map(|n| if n % 10 != 0 { 200 + n * 7 } else { 20_000 } * if n % 3 == 0 { 2 } else { 1 }).sum();
    assert_eq!((torn, log.len()), (0, 3 * lens));
}

#[test]
fn what_is_found_in_a_new_directory_can_be_removed_though_another_mount_has_made_it_meanwhile() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let (one, other) = (Mounted::new(&store, "one", ""), Mounted::new(&store, "other", ""));
    for round in 0..150 {
        let dir = format!("d{round}");
        std::fs::create_dir(one.path(&dir)).unwrap();
        assert!(other.path(&dir).is_dir());
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for (mounted, name) in [(&one, "ours"), (&other, "theirs")] {
                let (at, both) = (mounted.path(&dir).join(name), &both);
                scope.spawn(move || {
                    both.wait();
                    std::fs::write(at, name).unwrap();
                });
            }
        });
        let theirs = one.path(&dir).join("theirs");
        assert_eq!(std::fs::read(&theirs).unwrap(), b"theirs", "round {round}");
        std::fs::remove_file(&theirs).unwrap_or_else(|e| panic!("{e}, in round {round}"));
    }
}

#[test]
fn a_directory_that_was_moved_says_so_at_once_however_it_was_moved() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"const unsigned how[] = {0, RENAME_NOREPLACE, RENAME_EXCHANGE};
        for (int i = 0; i < 3; i++) {
            struct stat before, behind; mkdir("a", 0755); if (how[i] == RENAME_EXCHANGE) mkdir("b", 0755);
            usleep(20000); stat("a", &before); int f = open("a", O_RDONLY | O_DIRECTORY);
            if (renameat2(AT_FDCWD, "a", AT_FDCWD, "b", how[i])) printf("%m ");
            fstat(f, &behind); close(f);
            printf("%d ", before.st_ino == behind.st_ino && (before.st_ctim.tv_sec != behind.st_ctim.tv_sec || before.st_ctim.tv_nsec != behind.st_ctim.tv_nsec));
            rmdir("a"); rmdir("b");
        }"#;
    let program = built(&store, body);
    let mounted = Mounted::new(&store, "m", "");
    assert_eq!(mounted.shell(&program).ok().text(), "1 1 1 ");
}
