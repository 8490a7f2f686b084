use std::{
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    process::Stdio,
};

use crate::{
    mounts::kill,
    runs::{has_library, shell},
    store::{Ran, Store, finished, pattern, signal, signals, until},
};

/// A put that has stored a part of its input, and waits for more.
fn half_put(store: &Store, args: &[&str]) -> (std::process::Child, std::process::ChildStdin) {
    let mut child = store.start(args);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&pattern(20 << 20)).unwrap();
    until("the first pieces are stored", || store.count() != "0");
    (child, stdin)
}

/// How many files there are that were not fetched to their end.
fn parts(store: &Store) -> usize {
    let names = std::fs::read_dir(&store.dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().is_some_and(|name| name.ends_with(".part"))).count()
}

/// Whether a get of `back` has a file that has not its name yet, or has taken the place of the old one.
fn is_fetching(store: &Store, child: &std::process::Child, old: Option<&str>) -> bool {
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten();
    let mut open = open.filter_map(|fd| fd.ok()?.path().read_link().ok());
    let now = store.path("back").metadata().ok().map(|now| now.len());
    open.any(|path| path.parent() == Some(store.dir.path())) || now != old.map(|old| old.len() as u64)
}

#[test]
fn ctrl_c_takes_a_half_put_back() {
    for name in ["INT", "TERM"] {
        let store = Store::with_workspace();
        let (child, _stdin) = half_put(&store, &["put", "-", "w/f"]);
        assert_eq!(store.iov(&["ls", "w"]).ok().text(), "");
        signal(&child, name);
        let ran = Ran::new(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(130), "{ran:?}");
        assert_eq!(store.count(), "0");
    }
}

#[test]
fn two_signals_at_once_are_one_wish() {
    // As `timeout` sends them: to the process, and to its group. Different ones, since two of a kind may become one.
    for _ in 0..4 {
        let store = Store::with_workspace();
        let (child, _stdin) = half_put(&store, &["put", "-", "w/f"]);
        signals(&child, &["INT", "TERM", "HUP"]);
        let ran = Ran::new(child.wait_with_output().unwrap());
        assert_eq!((ran.code, store.count().as_str()), (Some(130), "0"), "{ran:?}");
    }
}

#[test]
fn two_signals_at_once_leave_no_part_of_a_get() {
    let store = Store::with_workspace();
    let bytes = pattern(64 << 20);
    store.with_stdin(&bytes, &["put", "-", "w/f"]).ok();
    for _ in 0..4 {
        let child = store.start(&["get", "w/f", "back"]);
        until("it has begun", || is_fetching(&store, &child, None));
        signals(&child, &["INT", "TERM"]);
        let ran = Ran::new(child.wait_with_output().unwrap());
        // It may have been faster.
        assert!(matches!(ran.code, Some(0 | 130)), "{ran:?}");
        assert_eq!(store.path("back").exists(), ran.code == Some(0));
        assert_eq!(parts(&store), 0);
        let _ = std::fs::remove_file(store.path("back"));
    }
}

#[test]
fn a_get_that_is_killed_outright_leaves_nothing() {
    use rustix::fs::{Mode, OFlags, open};
    let store = Store::with_workspace();
    if open(store.dir.path(), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).is_err() {
        return eprintln!("there are no files without names here");
    }
    let bytes = pattern(64 << 20);
    store.with_stdin(&bytes, &["put", "-", "w/f"]).ok();
    for old in [None, Some("old")] {
        for _ in 0..4 {
            let _ = std::fs::remove_file(store.path("back"));
            old.map(|old| store.file("back", old.as_bytes()));
            let child = store.start(&["get", "w/f", "back"]);
            until("it has begun", || is_fetching(&store, &child, old));
            signal(&child, "KILL");
            Ran::new(child.wait_with_output().unwrap());
            let back = std::fs::read(store.path("back")).ok();
            assert!(back.as_deref() == old.map(str::as_bytes) || back.as_ref() == Some(&bytes));
            assert_eq!(parts(&store), 0);
        }
    }
}

#[test]
fn signals_that_whoever_starts_it_ignores_are_ignored() {
    let store = Store::with_workspace();
    // As `nohup` starts it.
    let ignoring = |args: &[&str]| {
        let iov = store.command(args);
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(iov.get_program()).args(iov.get_args());
        command.current_dir(store.path("")).envs(iov.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut child = ignoring(&["put", "-", "w/f"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&pattern(20 << 20)).unwrap();
    until("the first pieces are stored", || store.count() != "0");
    signal(&child, "HUP");
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(stdin);
    finished(child, 60).ok();
    assert!(store.cat("w/f") == pattern(20 << 20));
    if has_library() {
        let ran = finished(ignoring(&["run", "--", "grep", "SigIgn", "/proc/self/status"]), 60).ok().text();
        let mask = u64::from_str_radix(ran.trim().rsplit('\t').next().unwrap(), 16).unwrap();
        assert_eq!(mask & 1, 1, "{ran}");
    }
}

#[test]
fn arguments_that_are_no_text_are_wrong_and_no_defect() {
    let store = Store::new();
    let mut command = store.command(&[]);
    command.arg(std::ffi::OsStr::from_bytes(b"\xff"));
    Ran::new(command.output().unwrap()).fails(64, &["unrecognized subcommand"]);
}

#[test]
fn a_later_signal_ends_a_command_that_cannot_clean_up() {
    let store = Store::with_workspace();
    let (mut child, _stdin) = half_put(&store, &["put", "-", "w/f", "--timeout", "10min"]);
    let daemon = store.stop_daemon();
    signal(&child, "INT");
    // It waits for the daemon now, and would do so for ten minutes. Until a second has passed this is the same wish.
    until("a later signal has ended it", || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        child.try_wait().unwrap().is_some() || {
            signal(&child, "INT");
            false
        }
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(daemon);
}

#[test]
fn o8_status_and_down_end_by_their_timeout() {
    let store = Store::with_workspace();
    let _daemon = store.stop_daemon();
    for args in [&["status"][..], &["down"]] {
        let child = store.start(&[args, &["--timeout", "1s"]].concat());
        // The default is 60 s.
        let ran = finished(child, 40);
        assert_eq!(ran.code, Some(75), "{ran:?}");
        assert!(ran.err.contains("IOV_ETIMEOUT") && ran.err.contains("--timeout 5min"), "{}", ran.err);
    }
    store.iov(&["status", "--timeout", "soon"]).fails(64, &["soon"]);
}

#[test]
fn a_killed_put_shows_nothing_and_what_it_left_can_be_found() {
    let store = Store::with_workspace();
    let (child, _stdin) = half_put(&store, &["put", "-", "w/f"]);
    signal(&child, "KILL");
    assert_eq!(Ran::new(child.wait_with_output().unwrap()).code, None);
    assert_eq!(store.iov(&["ls", "w"]).ok().text(), "");
    let left = store.iov(&["find", "w", "not exists(iov.name)"]).ok().lines();
    assert_eq!(left.len(), 1, "{left:?}");
    store.iov(&["rm", &left[0]]).ok();
    assert_eq!(store.count(), "0");
}

#[test]
fn ctrl_c_takes_a_half_get_back() {
    let store = Store::with_workspace();
    let bytes = pattern(64 << 20);
    store.with_stdin(&bytes, &["put", "-", "w/f"]).ok();
    let child = store.start(&["get", "w/f", "back"]);
    signal(&child, "INT");
    let ran = Ran::new(child.wait_with_output().unwrap());
    // It may have been faster than the signal, or not yet have begun to listen: then the signal itself ends it.
    if ran.code == Some(0) {
        assert!(std::fs::read(store.path("back")).unwrap() == bytes);
    } else {
        assert!(matches!(ran.code, Some(130) | None), "{ran:?}");
        assert!(!store.path("back").exists());
    }
    assert_eq!(parts(&store), 0);
}

#[test]
fn a_put_that_is_stopped_by_a_full_limit_leaves_nothing_behind() {
    let store = Store::new();
    store.iov(&["ws", "create", "w", "--quota", "4MiB"]).ok();
    let file = store.file("f", &pattern(12 << 20));
    store.iov(&["put", &file, "w"]).fails(73, &["IOV_EEXHAUSTED"]);
    assert_eq!(store.count(), "0");
}

#[test]
fn a_reader_that_goes_ends_find_quietly() {
    let store = Store::with_workspace();
    let mut args = vec!["put".to_owned()];
    std::fs::create_dir(store.path("many")).unwrap();
    args.extend((0..3000).map(|i| store.file(&format!("many/a_rather_long_name_{i}"), b"")));
    args.push("w".into());
    store.iov(&args.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    let mut child = store.start(&["ls", "-l", "w"]);
    let mut first = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (Some(141), ""));
}

#[test]
fn p2_a_program_brings_back_a_daemon_that_was_killed_and_tells_it_what_was_written() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    // What it does behind the kill: nothing but end, write, or look.
    for behind in ["pass", "os.pwrite(f, b'z' * 10, 10)", "os.listdir('/iov/w')"] {
        let go = store.path("go");
        let script = format!(
            "import os, time\nf = os.open('/iov/w/f', os.O_RDWR | os.O_CREAT, 0o644); os.pwrite(f, b'x' * 20000, 0); os.fsync(f); os.pwrite(f, b'y' * 10, 0)\n\
             open('{0}', 'w').close()\nwhile os.path.exists('{0}'): time.sleep(0.01)\n{behind}",
            go.display()
        );
        let child = store.start(&["run", "--", "python3", "-c", &script]);
        until("the program has written", || go.exists());
        let status = store.iov(&["status", "--json"]).json();
        kill(status["daemon"]["pid"].as_u64().unwrap() as u32, "KILL");
        std::fs::remove_file(&go).unwrap();
        finished(child, 30).ok();
        assert_eq!(&store.cat("w/f")[..10], b"yyyyyyyyyy", "{behind}");
    }
}

#[test]
fn a_child_without_memory_ends() {
    if !has_library() {
        return;
    }
    // The limits begin where nothing can be had, and end where the program runs; it says by calls of its own what it could not get.
    let script = "echo . > f; export RUST_BACKTRACE=1; for v in 3000 5000 8000 20000 400000; do \
        ( ulimit -v $v; exec 2>/dev/null; timeout -s KILL 20 dd if=f of=f2 status=none ) && echo done || { test $? != 137 || echo hung; }; done 2>/dev/null";
    let told = shell(&Store::with_workspace(), script).ok().text();
    assert!(told.ends_with("done\n") && !told.contains("hung"), "{told}");
}
