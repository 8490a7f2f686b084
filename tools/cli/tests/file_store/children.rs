//! Children of programs in `iov run`, and threads that are called as the library's.

use std::{os::unix::fs::PermissionsExt, process::Command};

use crate::{
    calls::{built, compiled},
    runs::{has_library, run, shell},
    store::Store,
};

/// Who runs a program does not wait for children that another thread has made meanwhile, and that live for long.
#[test]
fn a_program_is_run_while_others_make_children_that_stay() {
    if !has_library() {
        return;
    }
    let body = r#"
        extern char **environ; static pid_t made[100]; static int n; static volatile int over;
        static void *forks(void *x) {
            while (n < 60 && !over) { pid_t p = fork(); if (!p) { alarm(60); pause(); _exit(0); } made[n++] = p; usleep(20000); }
            return 0;
        }
        MAIN
        alarm(100); pthread_t t; pthread_create(&t, 0, forks, 0); int ran = 0;
        while (n < 60) {
            char *a[] = {"true", 0}; pid_t p; int s;
            if (posix_spawn(&p, "/bin/true", 0, 0, a, environ)) break;
            waitpid(p, &s, 0); ran += WIFEXITED(s) && !WEXITSTATUS(s);
        }
        over = 1; pthread_join(t, 0); for (int i = 0; i < n; i++) { kill(made[i], SIGKILL); waitpid(made[i], 0, 0); }
        puts(ran > 0 && n > 0 ? "ran" : "did not");"#;
    assert_eq!(compiled(&Store::with_workspace(), body).ok().text(), "ran\n");
}

/// What a thread has written is there for the programs that it runs, whatever the program is called.
#[test]
fn a_program_may_be_called_as_threads_of_the_library_are() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let body = r#"
        static void *work(void *x) { int f = open("f", O_CREAT | O_WRONLY, 0644); write(f, "data", 4); system("wc -c < f"); return 0; }
        MAIN
        pthread_t t; pthread_create(&t, 0, work, 0); pthread_join(t, 0);"#;
    let program = built(&store, body);
    let named = store.path("iov-solver");
    let program = program.split_whitespace().next().expect("a program").trim_matches('\'').to_owned();
    std::fs::copy(&program, &named).expect("a copy");
    assert_eq!(shell(&store, &named.display().to_string()).ok().text(), "4\n");
}

/// The link of a descriptor is nobody's to remove, and what is open does not go with it.
#[test]
fn the_link_of_a_descriptor_is_not_what_it_leads_to_for_who_removes() {
    if !has_library() {
        return;
    }
    let body = r#"
        int f = open("f", O_CREAT | O_RDWR, 0644); char l[40]; sprintf(l, "/proc/self/fd/%d", f);
        printf("%s ", E(unlink(l))); printf("%d\n", access("f", F_OK));"#;
    assert_eq!(compiled(&Store::with_workspace(), body).ok().text(), "EPERM 0\n");
}

#[test]
fn programs_that_cannot_know_what_a_descriptor_stands_for_do_not_get_it() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let source = store.file(
        "static.c",
        b"#include <stdio.h>\nint main(void) { int c; while ((c = getchar()) >= 0) putchar(c); return 0; }",
    );
    let program = store.path("static");
    let built = Command::new("cc").args(["-static", "-o", program.to_str().unwrap(), &source]).status().unwrap();
    assert!(built.success());
    let foreign = store.file("foreign", b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0");
    let by_static = store.file("script", format!("#!{}\n", program.display()).as_bytes());
    for file in [&foreign, &by_static] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    shell(&store, &format!("echo text > f; cp {} in", program.display())).ok();
    for program in ["/iov/w/in", &foreign, &by_static] {
        let ran = run(&store, &["sh", "-c", &format!("{program} < /iov/w/f")]);
        assert_eq!((ran.code, ran.text().as_str()), (Some(126), ""), "{program}");
        assert!(ran.err.contains("iov mount"), "{program}: {}", ran.err);
    }
    // Who is given nothing of the store may run.
    for program in ["/iov/w/in", &by_static] {
        let ran = run(&store, &["sh", "-c", &format!("echo piped | {program}")]).ok();
        assert!(ran.text().ends_with("piped\n"), "{program}: {}", ran.text());
    }
    run(&store, &[&by_static]).fails(69, &["static program"]);
}
