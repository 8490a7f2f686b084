//! What a mount tells the kernel, which goes by it: rights that are taken from files, directories that have gone, bytes that went past its pages.

use std::{
    os::unix::fs::{MetadataExt, symlink},
    process::Command,
};

use crate::{
    mounts::{Mounted, has_fuse},
    store::Store,
};

/// A program in C that is run in the mounted directory; what it says.
fn said(store: &Store, m: &Mounted<'_>, body: &str) -> String {
    let headers = [
        "errno",
        "fcntl",
        "linux/aio_abi",
        "pthread",
        "stdio",
        "stdlib",
        "string",
        "time",
        "unistd",
        "sys/stat",
        "sys/syscall",
        "sys/wait",
    ];
    let includes: String = headers.map(|header| format!("#include <{header}.h>\n")).concat();
    let (functions, body) = body.split_once("MAIN").unwrap_or(("", body));
    let source = format!("#define _GNU_SOURCE\n{includes}{functions}\nint main(void) {{ {body} return 0; }}");
    let source = store.file("told.c", source.as_bytes());
    let program = store.path("told");
    let built = Command::new("cc").args(["-w", "-pthread", "-o", program.to_str().unwrap(), &source]).status().unwrap();
    assert!(built.success());
    m.shell(program.to_str().unwrap()).ok().text()
}

#[test]
fn rights_that_a_write_takes_are_gone_at_once() {
    if !has_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "allow_other,ttl=30");
    m.shell("chmod 777 .").ok();
    // As somebody else, by each way to change bytes: the mode alone, since a question for times would ask anew.
    let body = r#"
        static unsigned mode(const char *path) { struct statx x; statx(AT_FDCWD, path, 0, STATX_MODE, &x); return x.stx_mode & 07777; }
        MAIN
        for (int way = 0; way < 6; way++) {
            int f = open("f", O_CREAT | O_RDWR | O_TRUNC, 0777), from = open("from", O_CREAT | O_RDWR, 0666); write(f, "0123456789", 10); write(from, "abc", 3); close(f); close(from);
            chmod("from", 0666); chmod("f", 06777); unsigned before = mode("f");
            if (!fork()) {
                setgid(4711); setuid(4711); f = open("f", way == 1 ? O_RDWR | O_TRUNC : way == 2 ? O_WRONLY | O_APPEND : O_RDWR); loff_t zero = 0;
                if (way == 0 || way == 2) write(f, "x", 1);
                if (way == 3) fallocate(f, 0, 0, 100);
                if (way == 4) ftruncate(f, 3);
                if (way == 5) copy_file_range(open("from", O_RDONLY), &zero, f, &zero, 3, 0);
                printf("%o %o\n", before, mode("f")); fflush(stdout); _exit(0);
            }
            wait(0);
        }"#;
    assert_eq!(said(&store, &m, body), "6777 777\n".repeat(6));
}

#[test]
fn a_directory_that_has_gone_has_no_names() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "ttl=30");
    let body = r#"
        struct stat s; mkdir("a", 0755); mkdir("b", 0755); int b = open("b", O_RDONLY); fstat(b, &s); printf("%ld ", s.st_nlink);
        rename("a", "b"); fstat(b, &s); printf("%ld ", s.st_nlink); close(b);
        b = open("b", O_RDONLY); rmdir("b"); fstat(b, &s); printf("%ld %d\n", s.st_nlink, openat(b, "x", O_CREAT | O_RDWR, 0644));"#;
    assert_eq!(said(&store, &m, body), "1 0 0 -1\n");
}

#[test]
fn what_is_written_past_pages_is_read_by_who_waited_for_it() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "");
    // Asynchronous writes past the kernel's pages, which others read anew meanwhile.
    let body = r#"
        enum { N = 655360 }; static volatile int over;
        static void *reads(void *_) { char *b = malloc(N); while (!over) { int f = open("f", O_RDONLY); pread(f, b, N, 0); close(f); } return 0; }
        MAIN
        char *b, *read_back = malloc(N); posix_memalign((void **) &b, 4096, N); memset(b, 0, N); long stale = 0; aio_context_t context = 0; syscall(SYS_io_setup, 4, &context);
        int f = open("f", O_RDWR | O_CREAT | O_DIRECT, 0644); pwrite(f, b, N, 0); pthread_t thread[2]; for (int i = 0; i < 2; i++) pthread_create(thread + i, 0, reads, 0);
        for (int i = 1; i < 1500; i++) {
            memset(b, i, N); struct iocb one = {.aio_fildes = f, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (long) b, .aio_nbytes = N}, *all = &one; struct io_event event;
            if (syscall(SYS_io_submit, context, 1L, &all) != 1 || syscall(SYS_io_getevents, context, 1L, 1L, &event, 0L) != 1 || event.res != N) puts("not written");
            int g = open("f", O_RDONLY); pread(g, read_back, N, 0); stale += memcmp(b, read_back, N) != 0; close(g);
        }
        over = 1; for (int i = 0; i < 2; i++) pthread_join(thread[i], 0); printf("%ld\n", stale);"#;
    assert_eq!(said(&store, &m, body), "0\n");
}

/// The kernel asks what has become of what it knows by that name, and not for the one that has it now.
#[test]
fn a_link_that_was_replaced_through_another_mount_is_the_new_one_before_long() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let (here, there) = (Mounted::new(&store, "here", "ttl=60"), Mounted::new(&store, "there", "ttl=60"));
    symlink("one", here.at.join("link")).unwrap();
    let link = there.at.join("link");
    let read = || (link.symlink_metadata().unwrap().nlink(), link.read_link().unwrap());
    assert_eq!(read(), (1, "one".into()));
    symlink("two", here.at.join("new")).unwrap();
    std::fs::rename(here.at.join("new"), here.at.join("link")).unwrap();
    let begun = std::time::Instant::now();
    while read() != (1, "two".into()) {
        assert!(begun.elapsed().as_secs() < 30, "{:?}", read());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Whether a write goes past the kernel's pages is decided before it is on its way, and what the descriptor says may be another thing by then.
#[test]
fn a_write_comes_back_while_others_change_how_writes_go() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "");
    let body = r#"
        static int f; static volatile int over; static volatile long wrong;
        static void *turns(void *_) { while (!over) { fcntl(f, F_SETFL, O_DIRECT); fcntl(f, F_SETFL, 0); } return 0; }
        /* Of a page that is not read the kernel keeps the lock until it is written; and who waits for another one to have written has found out longer ago how it goes. */
        static void *writes(void *at) { char *b; posix_memalign((void **) &b, 4096, 512); memset(b, 7, 512); while (!over) if (pwrite(f, b, 512, (long) at) != 512) wrong++; return 0; }
        MAIN
        char c[8192]; pthread_t threads[3]; f = open("f", O_RDWR | O_CREAT, 0644); if (pwrite(f, c, 8192, 0) != 8192) wrong++; close(f);
        f = open("f", O_RDWR); int g = open("f", O_RDONLY);
        pthread_create(threads, 0, turns, 0); pthread_create(threads + 1, 0, writes, (void *) 512); pthread_create(threads + 2, 0, writes, (void *) 1024);
        sleep(5);
        over = 1; for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
        if (pread(g, c, 8192, 0) != 8192 || c[512] != 7 || c[1535] != 7) wrong++; printf("%ld\n", wrong);"#;
    let done = std::sync::atomic::AtomicBool::new(false);
    let done_in_time = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let begun = std::time::Instant::now();
            while !done.load(std::sync::atomic::Ordering::Acquire) && begun.elapsed().as_secs() < 120 {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            let in_time = done.load(std::sync::atomic::Ordering::Acquire);
            if !in_time {
                // Nothing else ends a write that does not come back.
                let _ = Command::new("umount").args(["-f", "-l", m.at.to_str().unwrap()]).status();
            }
            in_time
        });
        let told = said(&store, &m, body);
        done.store(true, std::sync::atomic::Ordering::Release);
        (told, watcher.join().unwrap())
    });
    assert_eq!(done_in_time, ("0\n".to_owned(), true));
}
