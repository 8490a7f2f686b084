//! Ways into a workspace that programs in `iov run` take past the usual calls: links outside, walks of the C library, asynchronous I/O, and threads that have hardly any
//! memory or give much back.

use std::{os::unix::fs::symlink, process::Command};

use crate::{
    calls::compiled,
    runs::{has_library, python, run, shell},
    store::Store,
};

#[test]
fn links_outside_lead_into_workspaces() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    std::fs::create_dir(store.path("case")).unwrap();
    let script = format!(
        "mkdir -p /iov/w/run && cd {}
        ln -s /iov/w/run data; ln -s ../case/data chain; ln -s data/new dangling; ln -s /iov/nothing nothing
        echo a > data/a; cat chain/a; ls data/; test -d chain && stat -Lc %F data; stat -c %F data
        mkdir data/sub; mv data/a data/sub/b; cp data/sub/b copy; mv copy data/c; ln data/c data/d; stat -c %h data/c
        echo new > dangling; cat /iov/w/run/new; rm dangling; test ! -L dangling
        printf '#!/bin/sh\necho ran\n' > data/run; chmod +x data/run; data/run
        (cd data && pwd -P && cat c && cd -P .. && pwd); readlink -f data/sub
        ! cat data/none 2> /dev/null; ! cat nothing/x 2> /dev/null; ! rmdir data 2> /dev/null
        rm -r data/sub; mv data moved; ls moved; rm moved; ls /iov/w/run",
        store.path("case").display()
    );
    let said = shell(&store, &script).ok().text();
    let want = "a\na\ndirectory\nsymbolic link\n2\nnew\nran\n/iov/w/run\na\n/iov/w\n/iov/w/run/sub\nc\nd\nnew\nrun\nc\nd\nnew\nrun\n";
    assert_eq!(said, want);
    // To a place that somebody has chosen, above which there need be nothing.
    symlink("/no/such/place/run", store.path("case/chosen")).unwrap();
    let chosen = store.path("case/chosen/c");
    let said = run(&store, &["--at", "w=/no/such/place", "--", "cat", chosen.to_str().unwrap()]).ok().text();
    assert_eq!(said, "a\n");
}

#[test]
fn above_a_workspace_behind_a_link_is_where_the_link_leads() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    for dir in ["to", "to/x", "to/x/y", "from"] {
        std::fs::create_dir(store.path(dir)).unwrap();
    }
    for (file, text) in [("to/f", "right"), ("from/f", "wrong"), ("f", "wrong")] {
        std::fs::write(store.path(file), text).unwrap();
    }
    symlink(store.path("to/x/y"), store.path("from/link")).unwrap();
    let at = store.path("from/link/w").display().to_string();
    let script = format!("cd {at}; cat ../../../f; cat {at}/../../../f");
    assert_eq!(run(&store, &["--at", &format!("w={at}"), "--", "bash", "-c", &script]).ok().text(), "rightright");
}

#[test]
fn the_directory_of_a_process_is_found_by_its_link_where_others_have_moved_it() {
    if !has_library() {
        return;
    }
    let script = "mkdir a; cd a; bash -c 'cd ..; mv a c; mkdir a'; sleep 1.5; readlink /proc/self/cwd; echo > /proc/self/cwd/f; cd ..; ls a c";
    assert_eq!(shell(&Store::with_workspace(), script).ok().text(), "/iov/w/c\na:\n\nc:\nf\n");
}

#[test]
fn the_link_of_a_directory_that_others_have_removed_leads_nowhere() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let program = "import errno, os, subprocess
os.mkdir('/iov/w/a'); os.chdir('/iov/w/a'); subprocess.run(['rmdir', '/iov/w/a'], check=True)
for call, args in ((os.chdir, ('/proc/self/cwd',)), (os.open, ('/proc/self/cwd/f', os.O_CREAT | os.O_WRONLY)), (os.stat, ('/proc/self/cwd/.',)), (os.mkdir, ('/proc/self/cwd/d',)), (os.listdir, ('.',))):
    try: print(call(*args))
    except OSError as e: print(errno.errorcode[e.errno])";
    let said = python(&store, program).ok().text();
    assert!(said.starts_with("ENOENT\nENOENT\nENOENT\nENOENT\n"), "{said}");
    assert!(!store.path("f").exists() && !store.path("d").exists());
}

#[test]
fn who_moves_a_link_outside_does_not_move_what_it_leads_to() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let program = format!(
        "import errno, os
os.chdir('{}'); os.symlink('/iov/w/f', 'l'); open('l', 'w').write('kept')
for call, args in ((os.rename, ('l', 'no/such')), (os.link, ('l', 'no/such')), (os.rename, ('none', 'l')), (os.unlink, ('none',)), (os.rename, ('l', '/iov/w/g'))):
    try: call(*args, **({{'follow_symlinks': False}} if call is os.link else {{}}))
    except OSError as e: print(errno.errorcode[e.errno])
print(sorted(os.listdir('/iov/w')), open('l').read(), os.readlink('l'))
os.rename('l', 'm'); os.unlink('m'); print(open('/iov/w/f').read())",
        store.path("").display()
    );
    let said = python(&store, &program).ok().text();
    assert_eq!(said, "ENOENT\nENOENT\nENOENT\nENOENT\nEXDEV\n['f'] kept /iov/w/f\nkept\n");
}

#[test]
fn the_c_librarys_walks_go_through_workspaces_as_elsewhere() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        static int skip = -1;
        int visit(const char *path, const struct stat *s, int kind, struct FTW *at) {
            char here[4096]; getcwd(here, sizeof here);
            printf("%s %d %d %o %s\n", path, kind, at->level, kind == FTW_NS ? 0 : s->st_mode, strrchr(here, '/'));
            return strcmp(path + at->base, "e") ? 0 : skip;
        }
        int old(const char *path, const struct stat *s, int kind) { printf("%s %d\n", path, kind); return 0; }
        MAIN
        chdir("w"); int flags[] = {FTW_PHYS, FTW_PHYS | FTW_DEPTH, FTW_PHYS | FTW_CHDIR, FTW_PHYS | FTW_CHDIR | FTW_DEPTH, FTW_PHYS | FTW_MOUNT, 64};
        char *from[] = {"t", "./t///", "t/file", "t/dangling", "none", ""};
        for (int i = 0; i < 6; i++) for (int j = 0; j < 6; j++) { skip = 0; printf("%s\n", E(nftw(from[j], visit, 3, flags[i]))); }
        printf("%s\n", E(nftw("t/dangling", visit, 3, 0))); printf("%s\n", E(nftw("t/d", visit, 3, 0)));
        for (skip = 1; skip < 4; skip++) printf("%d\n", nftw("t/d", visit, 3, FTW_PHYS | FTW_ACTIONRETVAL));
        skip = 7; printf("%d\n", nftw("t/d", visit, 3, FTW_PHYS));
        printf("%s\n", E(ftw("t/d", old, 3)));
        struct dirent **found; int t = open("t", O_RDONLY | O_DIRECTORY);
        int n = scandirat(t, "d", &found, 0, alphasort); for (int i = 0; i < n; i++) puts(found[i]->d_name);
        printf("%s %s\n", E(scandirat(t, "none", &found, 0, alphasort)), E(scandirat(t, "file", &found, 0, alphasort)));"#;
    // One thing in each directory, as the order of several is anybody's.
    let tree = "mkdir -p t/d/e/f && ln -s nowhere t/d/e/f/link && echo > t/file && ln -s nowhere t/dangling && mkdir w && mv t w";
    shell(&store, tree).ok();
    // The program goes to the directory with the tree, which is called the same in both.
    let said = compiled(&store, body).ok().text();
    let there = tempfile::tempdir().unwrap();
    assert!(Command::new("sh").current_dir(&there).args(["-c", tree]).status().unwrap().success());
    let native = Command::new(store.path("program")).current_dir(&there).output().unwrap();
    let native = String::from_utf8(native.stdout).unwrap();
    assert!(native.contains("t/d/e/f/link 4 4"), "{native}");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&said), sorted(&native));
}

#[test]
fn asynchronous_io_of_the_kernel_is_done_and_told() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    std::fs::create_dir(store.path("out")).unwrap();
    let body = format!(
        r#"
        int ours = open("f", O_CREAT | O_RDWR | O_TRUNC, 0644), other = open("{}/f", O_CREAT | O_RDWR | O_TRUNC, 0644), reads = open("f", O_RDONLY);
        aio_context_t c = 0; struct io_event e[8]; struct timespec none = {{0, 0}}; char b[8] = {{0}}; long seen = 0;
        syscall(SYS_io_setup, 8, &c);
        struct iovec v[2] = {{{{"cd", 2}}, {{"efg", 3}}}};
        struct iocb a[5] = {{
            {{.aio_data = 0, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = ours, .aio_buf = (long)"ab", .aio_nbytes = 2}},
            {{.aio_data = 1, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = other, .aio_buf = (long)"xy", .aio_nbytes = 2}},
            {{.aio_data = 2, .aio_lio_opcode = IOCB_CMD_PWRITEV, .aio_fildes = ours, .aio_buf = (long)v, .aio_nbytes = 2, .aio_offset = 2}},
            {{.aio_data = 3, .aio_lio_opcode = IOCB_CMD_FSYNC, .aio_fildes = ours}},
            {{.aio_data = 4, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = ours, .aio_buf = (long)b, .aio_nbytes = 8, .aio_offset = 1}}}};
        struct iocb *list[5] = {{a, a + 1, a + 2, a + 3, a + 4}};
        printf("%ld ", syscall(SYS_io_submit, c, 5, list));
        printf("%ld ", syscall(SYS_io_getevents, c, 5, 8, e, 0));
        for (int i = 0; i < 5; i++) seen += (e[i].obj == (long)(a + e[i].data)) << e[i].data | e[i].res << (e[i].data * 4 + 8);
        printf("%lx %s\n", seen, b);
        a[0].aio_fildes = reads; printf("%s ", E(syscall(SYS_io_submit, c, 1, list)));
        a[0].aio_fildes = ours; a[0].aio_offset = -1; printf("%s ", E(syscall(SYS_io_submit, c, 1, list)));
        printf("%s %s ", E(syscall(SYS_io_submit, c, 1, 8)), E(syscall(SYS_io_submit, 99, 1, list + 4)));
        printf("%ld\n", syscall(SYS_io_getevents, c, 1, 8, e, &none));
        printf("%s ", E(syscall(SYS_io_destroy, c))); printf("%s ", E(syscall(SYS_io_submit, c, 1, list + 4)));
        printf("%s\n", E(syscall(SYS_io_uring_setup, 8, b)));"#,
        store.path("out").display()
    );
    let said = compiled(&store, &body).ok().text();
    assert_eq!(said, "5 5 605221f bcdefg\nEBADF EINVAL EFAULT EINVAL 0\ndone EINVAL ENOSYS\n");
    assert_eq!((store.cat("w/f"), std::fs::read(store.path("out/f")).unwrap()), (b"abcdefg".to_vec(), b"xy".to_vec()));
}

#[test]
fn threads_with_little_memory_use_a_workspace_and_those_that_give_it_back_go_on() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // The C library looks at a file of the system to give back what a thread has freed, and has that memory locked meanwhile.
    let body = r#"
        void *gives(void *_) { void *b[200]; for (int i = 0; i < 200; i++) b[i] = malloc(60000); for (int i = 200; i--;) free(b[i]); return 0; }
        void *writes(void *_) { int f = open("f", O_CREAT | O_RDWR, 0644); write(f, "abc", 3); fsync(f); close(f); return 0; }
        MAIN
        pthread_t t; pthread_attr_t small; pthread_attr_init(&small);
        alarm(60); close(open("first", O_CREAT | O_RDWR, 0644));
        pthread_create(&t, 0, gives, 0); pthread_join(t, 0);
        printf("%s ", strerrorname_np(pthread_attr_setstacksize(&small, 100)));
        printf("%d ", pthread_attr_setstacksize(&small, 16384));
        pthread_create(&t, &small, writes, 0); pthread_join(t, 0);
        puts(access("f", F_OK) ? "lost" : "there");"#;
    assert_eq!(compiled(&store, body).ok().text(), "EINVAL 0 there\n");
}

#[test]
fn behind_a_workspace_links_outside_lead_where_they_lead() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    for dir in ["a/x", "b"] {
        std::fs::create_dir_all(store.path(dir)).unwrap();
    }
    std::os::unix::fs::symlink(store.path("a/x"), store.path("b/link")).unwrap();
    store.file("a/f", b"behind");
    store.file("b/f", b"by text");
    let up = format!("..{}/b/link/../f", store.dir.path().display());
    let script = format!("cat ../{up} /iov/{up} /iov/w/../{up} ../../iov/../iov/../{up}; ls -d ../.. ../../.");
    assert_eq!(shell(&store, &script).ok().text(), format!("{}../..\n../../.\n", "behind".repeat(4)));
    // Nor need there be anything above.
    let said = run(&store, &["--at", "w=/no/such", "sh", "-c", &format!("cd /no/such; cat ../{up} ../../{up}")]);
    assert_eq!(said.ok().text(), "behind".repeat(2));
}
