//! A store that is full: what a program was told is written it reads, until it has closed the file.

use crate::{
    calls::built,
    mounts::{Mounted, has_fuse},
    runs::{has_library, shell},
    store::Store,
};

/// Fills the store, writes a file for which there is no room, and makes room.
const FULL: &str = r#"
    static char b[1 << 20], c[1 << 20];
    MAIN
    int f = open("fill", O_RDWR | O_CREAT, 0644), fd, n = 0; struct stat s; long at = 0, k;
    for (long step = sizeof b; step >= 4096; step /= 4) while ((k = pwrite(f, b, step, at)) > 0) at += k;
    printf("%s %s\n", at > 4 << 20 ? "filled" : "small", strerrorname_np(errno));
    for (int i = 0; i < 20000; i++) b[i] = 1 + i % 100;
    fd = open("j", O_RDWR | O_CREAT | O_EXCL, 0644);
    if (fd < 0) { puts("cannot be made"); return 1; }
    printf("%ld ", (long)write(fd, b, 20000)); printf("%ld\n", (long)pread(fd, c, 8, 20100));
    k = pread(fd, c, sizeof c, 0); printf("%ld %d\n", k, memcmp(b, c, 20000));
    printf("%s ", E(fsync(fd))); printf("%s\n", E(fsync(fd)));
    fstat(fd, &s); memset(c, 0, 20000);
    k = pread(fd, c, sizeof c, 0); printf("%ld %ld %d\n", (long)s.st_size, k, memcmp(b, c, 20000));
    k = pread(fd, c, 100, 19950); printf("%ld %d %d\n", k, c[0], c[49]);
    stat("j", &s); printf("%ld\n", (long)s.st_size);
    printf("%ld ", (long)lseek(fd, 0, SEEK_DATA)); printf("%ld\n", (long)lseek(fd, 0, SEEK_HOLE));
    int x = open("x", O_RDWR | O_CREAT | O_EXCL, 0644); write(x, b, 20000); fsync(x); fsync(x); fchmod(x, 0600);
    printf("%s\n", E(close(x)));
    x = open("y", O_RDWR | O_CREAT | O_EXCL, 0644); write(x, b, 20000); fsync(x); ftruncate(x, 0); printf("%s ", E(fsync(x))); printf("%s\n", E(close(x)));
    printf("%s\n", E(ftruncate(fd, 15000))); fstat(fd, &s); printf("%ld\n", (long)s.st_size);
    printf("%s\n", E(unlink("fill"))); close(f);
    for (int i = 0; i < 200 && fsync(fd); i++) usleep(50000);
    printf("%s\n", E(fsync(fd)));
    printf("%s\n", E(close(fd)));
    fd = open("j", O_RDONLY); memset(c, 0, 20000); k = read(fd, c, sizeof c); printf("%ld %d\n", k, memcmp(b, c, 15000));
"#;

const SAID: &str = "filled ENOSPC\n20000 0\n20000 0\nENOSPC ENOSPC\n20000 20000 0\n50 51 100\n20000\n0 20000\nENOSPC\ndone done\ndone\n15000\ndone\ndone\ndone\n15000 0\n";

fn store() -> Store {
    let store = Store::new();
    store.iov(&["up", "--storage", "shmem:16MiB"]).ok();
    store.iov(&["ws", "create", "w"]).ok();
    store
}

/// What had no room until it was closed is lost, but for the first of its bytes perhaps.
fn nothing_was_made_up(store: &Store) {
    let bytes = store.cat("w/x");
    assert!(bytes.iter().enumerate().all(|(i, byte)| usize::from(*byte) == 1 + i % 100), "{} bytes", bytes.len());
}

#[test]
fn what_was_written_to_a_full_store_is_read_until_it_has_room() {
    if has_library() {
        let store = store();
        let program = built(&store, FULL);
        assert_eq!(shell(&store, &program).ok().text(), SAID, "iov run");
        nothing_was_made_up(&store);
    }
    if has_fuse() {
        let store = store();
        let program = built(&store, FULL);
        let m = Mounted::new(&store, "mnt", "");
        assert_eq!(m.shell(&program).ok().text(), SAID, "a mount");
        nothing_was_made_up(&store);
    }
}

/// Writes what finds no room, and asks in other ways than by its descriptor whether it is safe; a reader comes and goes meanwhile.
const ASKED: &str = r#"
    static char b[1 << 20];
    MAIN
    int f = open("fill", O_RDWR | O_CREAT, 0644); long at = 0;
    for (long step = sizeof b; step >= 4096; step /= 4) while ((argc = pwrite(f, b, step, at)) > 0) at += argc;
    int fd = open("j", O_RDWR | O_CREAT | O_EXCL, 0644), other = open("other", O_RDONLY);
    write(fd, b, 20000); printf("%s ", E(fsync(fd)));
    if (argv[1]) { printf("%s ", E(syncfs(fd))); printf("%s ", E(syncfs(other))); }
    int r = open("j", O_RDONLY); read(r, b, 100); printf("%s ", E(close(r))); printf("%s\n", E(close(fd)));
"#;

#[test]
fn p5_what_found_no_room_is_safe_by_nobodys_word_and_only_its_writer_is_told() {
    if has_library() {
        let store = store();
        let program = built(&store, ASKED);
        let said = shell(&store, &format!("touch other; {program} run")).ok().text();
        assert_eq!(said, "ENOSPC ENOSPC ENOSPC done ENOSPC\n", "iov run");
    }
    if has_fuse() {
        let store = store();
        let program = built(&store, ASKED);
        let said = Mounted::new(&store, "mnt", "").shell(&program).ok().text();
        assert_eq!(said, "ENOSPC done ENOSPC\n", "a mount");
    }
}

/// What found no room is told once there is some, whoever has asked for it before, and rights are taken at once.
const LATER: &str = r#"
    static char b[1 << 20];
    MAIN
    int f = open("fill", O_RDWR | O_CREAT, 0644); long at = 0; struct stat s;
    for (long step = sizeof b; step >= 4096; step /= 4) while ((argc = pwrite(f, b, step, at)) > 0) at += argc;
    close(f);
    int fd = open("j", O_RDWR | O_CREAT | O_EXCL, 0644), other = open("k", O_RDWR | O_CREAT | O_EXCL, 0644);
    write(other, b, 20000); printf("%s ", E(fchmod(other, 0600))); fstat(other, &s); printf("%o\n", s.st_mode & 0777);
    write(fd, b, 20000); printf("%s ", E(syncfs(fd))); fflush(stdout);
    if (!fork()) { unlink("fill"); _exit(0); }
    wait(0);
    for (int i = 0; argv[1] && i < 200 && syncfs(fd); i++) usleep(50000);
    if (argv[1]) { printf("%s ", E(syncfs(fd))); printf("%s %s", E(close(fd)), E(close(other))); fflush(stdout); }
    _exit(0);
"#;

#[test]
fn what_found_no_room_is_told_when_there_is_some_whoever_has_asked_before() {
    if !has_library() {
        return;
    }
    for (asks, said) in [("", "done 600\nENOSPC "), ("asks", "done 600\nENOSPC done done done")] {
        let store = store();
        let program = built(&store, LATER);
        assert_eq!(shell(&store, &format!("{program} {asks}")).ok().text(), said, "{asks}");
        assert_eq!((store.cat("w/j").len(), store.cat("w/k").len()), (20000, 20000), "{asks}");
    }
}

/// Writes to the end of a file until there is no room, and looks whether it is as long as it was told; then once more.
const TOLD: &str = r#"
    static char b[3 << 20];
    MAIN
    int f = open("fill", O_RDWR | O_CREAT, 0644); struct stat s; long at = 0, k;
    memset(b, 7, sizeof b);
    pwrite(f, b, 50000, 0); at = 50000;
    while ((k = pwrite(f, b, sizeof b, at)) > 0) at += k;
    printf("%s ", strerrorname_np(errno)); fstat(f, &s); printf("%s\n", at > 4 << 20 && s.st_size == at ? "as told" : "otherwise");
    k = pwrite(f, b, sizeof b, at); fstat(f, &s); printf("%s\n", s.st_size == at + (k > 0 ? k : 0) ? "as told" : "otherwise");
"#;

#[test]
fn a_file_is_as_long_as_was_told_where_there_is_no_room() {
    let place = tempfile::tempdir().expect("a directory");
    let mount = |args: &[&str]| std::process::Command::new("mount").args(args).arg(place.path()).status();
    let small = || mount(&["-t", "tmpfs", "-o", "size=32m", "none"]).is_ok_and(|status| status.success());
    if !has_library() || !has_fuse() || !small() {
        return;
    }
    let _mounted = Unmounts(place.path());
    let store = Store::new();
    let files = format!("files:{}", place.path().join("bytes").display());
    store.iov(&["up", "--storage", &files]).ok();
    store.iov(&["ws", "create", "w"]).ok();
    let program = built(&store, TOLD);
    assert_eq!(shell(&store, &program).ok().text(), "ENOSPC as told\nas told\n", "iov run");
    store.iov(&["rm", "w/fill"]).ok();
    let mounted = Mounted::new(&store, "mnt", "");
    assert_eq!(mounted.shell(&program).ok().text(), "ENOSPC as told\nas told\n", "a mount");
    drop(mounted);
    store.iov(&["down"]).ok();
}

/// What is written to memory is said to be safe, and is, or not to be; of several lengths, so that the room ends in the last request, too.
const MAPPED: &str = r#"
    static char b[1 << 20] __attribute__((aligned(4096)));
    MAIN
    int safe = 0, not = 0, lies = 0;
    for (long len = 29l << 20; len < 34l << 20; len += 100 << 10) {
        int f = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (ftruncate(f, len)) return 1;
        char *m = mmap(0, len, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
        for (long at = 0; at < len; at += 4096) m[at] = 7;
        int is_safe = !msync(m, len, MS_SYNC);
        munmap(m, len); close(f);
        if (is_safe) {
            f = open("mapped", O_RDONLY | O_DIRECT); long at = 0, k, same = 1;
            while ((k = pread(f, b, sizeof b, at)) > 0) { for (long i = 0; i < k; i += 4096) same &= b[i] == 7; at += k; }
            lies += !same || at != len; close(f);
        }
        is_safe ? safe++ : not++; unlink("mapped");
    }
    printf("%s %s %d", safe ? "safe" : "never safe", not ? "not safe" : "always safe", lies);
"#;

#[test]
fn mapped_memory_that_finds_no_room_is_not_said_to_be_safe() {
    let place = tempfile::tempdir().expect("a directory");
    let mount = |args: &[&str]| std::process::Command::new("mount").args(args).arg(place.path()).status();
    let small = || mount(&["-t", "tmpfs", "-o", "size=32m", "none"]).is_ok_and(|status| status.success());
    if !has_fuse() || !small() {
        return;
    }
    let _mounted = Unmounts(place.path());
    let store = Store::new();
    store.iov(&["up", "--storage", &format!("files:{}", place.path().join("bytes").display())]).ok();
    store.iov(&["ws", "create", "w"]).ok();
    let mounted = Mounted::new(&store, "mnt", "");
    assert_eq!(mounted.shell(&built(&store, MAPPED)).ok().text(), "safe not safe 0");
    drop(mounted);
    store.iov(&["down"]).ok();
}

struct Unmounts<'a>(&'a std::path::Path);

impl Drop for Unmounts<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l"]).arg(self.0).status();
    }
}
