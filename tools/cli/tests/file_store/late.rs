//! Answers of a store that come too late: what it has done all the same is not undone, and nothing is lost by it.

use std::time::{Duration, Instant};

use crate::{
    mounts::kill,
    runs::{has_library, run},
    store::{Stopped, Store, finished},
};

#[test]
fn b3_what_is_replaced_is_the_old_or_the_new_one_although_the_answer_comes_too_late() {
    const FILES: usize = 200;
    let store = Store::with_workspace();
    let local = |i: usize| store.path("tree").join(format!("f{i:03}"));
    let fill = |round: usize| (0..FILES).for_each(|i| std::fs::write(local(i), format!("{round} of {i}")).unwrap());
    std::fs::create_dir(store.path("tree")).unwrap();
    fill(0);
    store.iov(&["put", "-r", "tree", "w"]).ok();
    let pid = store.iov(&["status", "--json"]).ok().json()["daemon"]["pid"].as_u64().unwrap() as u32;
    let replace = ["put", "-r", "--if-exists", "replace", "--timeout", "300ms", "tree", "w"];
    let begun = Instant::now();
    store.iov(&["put", "-r", "--if-exists", "replace", "tree", "w"]).ok();
    let takes = begun.elapsed();
    let mut late = 0;
    for round in 1..=10 {
        fill(round);
        let put = store.start(&replace);
        // One name after the other is replaced meanwhile: whatever is on its way is answered too late.
        std::thread::sleep(takes.mul_f64(0.4 + 0.05 * round as f64));
        kill(pid, "STOP");
        std::thread::sleep(Duration::from_millis(450));
        kill(pid, "CONT");
        let ran = finished(put, 60);
        late += usize::from(ran.code != Some(0));
        let back = format!("back{round}");
        store.iov(&["get", "-r", "w/tree", &back]).ok();
        for i in 0..FILES {
            let got = std::fs::read_to_string(store.path(&back).join(format!("f{i:03}"))).unwrap_or_default();
            let old_or_new = got.strip_suffix(&format!(" of {i}")).and_then(|n| n.parse::<usize>().ok());
            // Who says that all is done has done it.
            let good = old_or_new.is_some_and(|n| n <= round && (n == round || ran.code != Some(0)));
            assert!(good, "{i} in round {round} is {got:?}\n{}", ran.err);
        }
    }
    if late == 0 {
        eprintln!("nothing was late: this machine is too busy to show it");
    }
}

#[test]
fn a_store_that_hangs_is_waited_for_a_few_times_and_not_once_for_each_file() {
    const FILES: usize = 150;
    let store = Store::with_workspace();
    let local = |i: usize| store.path("tree").join(format!("f{i:03}"));
    let fill = |round: &str| (0..FILES).for_each(|i| std::fs::write(local(i), format!("{round} of {i}")).unwrap());
    std::fs::create_dir(store.path("tree")).unwrap();
    fill("0");
    store.iov(&["put", "-r", "tree", "w/first"]).ok();
    let daemon = store.daemon();
    for (how, whereto) in [("fail", "w/new"), ("replace", "w/first")] {
        let begun = Instant::now();
        store.iov(&["put", "-r", "--if-exists", how, "tree", whereto]).ok();
        let takes = begun.elapsed();
        for round in 0..6 {
            fill(&round.to_string());
            let to = if how == "fail" { format!("w/new{round}") } else { whereto.to_owned() };
            let put = store.start(&["put", "-r", "--if-exists", how, "--timeout", "300ms", "tree", &to]);
            std::thread::sleep(takes.mul_f64(0.3 + 0.1 * f64::from(round)));
            // Whatever it is about to do then: it may be the links, or one of the replacements.
            let stopped = Stopped::new(daemon);
            let begun = Instant::now();
            // Once for each would take minutes.
            let ran = finished(put, 60);
            let waited = begun.elapsed();
            drop(stopped);
            assert!(waited < Duration::from_secs(10), "{waited:?} in round {round}\n{}", ran.err);
            if how == "fail" {
                continue;
            }
            let back = format!("back{round}");
            store.iov(&["get", "-r", &to, &back]).ok();
            for i in 0..FILES {
                let got = std::fs::read_to_string(store.path(&back).join(format!("f{i:03}"))).unwrap_or_default();
                assert!(got.ends_with(&format!(" of {i}")), "{i} in round {round} is {got:?}\n{}", ran.err);
            }
        }
    }
}

#[test]
fn a_program_that_ends_waits_for_a_store_that_hangs_once_and_not_for_each_file() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let daemon = store.daemon();
    let program = format!(
        "import os, signal, time
files = [os.open('/iov/w/%d' % n, os.O_CREAT | os.O_WRONLY) for n in range(25)]
for f in files: os.write(f, b'x' * 100)
os.kill({daemon}, signal.SIGSTOP); time.sleep(0.2); os._exit(0)"
    );
    // So does one that makes another, and what that does not hear of is told later.
    let forks = program.replace("/iov/w/", "/iov/w/f").replace(
        "os._exit(0)",
        &format!(
            "begun = time.monotonic()
if os.fork() == 0: os._exit(0)
print(time.monotonic() - begun < 25); os.kill({daemon}, signal.SIGCONT); os.wait(); os._exit(0)"
        ),
    );
    let ran = run(&store, &["--timeout", "2s", "--", "python3", "-uc", &forks]).ok();
    assert_eq!((ran.text(), store.cat("w/f24").len()), ("True\n".to_owned(), 100));
    let begun = Instant::now();
    let ran = run(&store, &["--timeout", "2s", "--", "python3", "-c", &program]);
    let waited = begun.elapsed();
    kill(daemon as u32, "CONT");
    assert!(waited < Duration::from_secs(25), "{waited:?}");
    // Each that nobody was told of is named.
    assert!((20..25).all(|n| ran.err.contains(&format!("/iov/w/{n}: "))), "{}", ran.err);
}

/// Behind what runs in place of a program nobody tells anything: each file has had its chance, and is named if that was missed.
#[test]
fn a_program_that_runs_another_loses_nothing_without_a_word() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let daemon = store.daemon();
    for (dir, back) in [("a", "1.5"), ("b", "2.4"), ("c", "60")] {
        store.iov(&["ws", "create", dir]).ok();
        let program = format!(
            "import os, signal, subprocess, sys, time
files = [os.open('/iov/{dir}/%d' % n, os.O_CREAT | os.O_WRONLY) for n in range(12)]
waker = subprocess.Popen(['env', '-u', 'LD_PRELOAD', 'sh', '-c', 'read x; sleep {back}; kill -CONT {daemon}'], stdin=subprocess.PIPE)
time.sleep(0.7)
for f in files: os.write(f, b'x' * 100)
waker.stdin.write(b'now\\n'); waker.stdin.flush()
os.kill({daemon}, signal.SIGSTOP); os.execv('/bin/echo', ['echo', 'ran'])"
        );
        let ran = run(&store, &["--timeout", "2s", "--", "python3", "-c", &program]);
        kill(daemon as u32, "CONT");
        assert_eq!(ran.text(), "ran\n", "{}", ran.err);
        let lost: Vec<_> = (0..12).filter(|n| store.cat(&format!("{dir}/{n}")).len() < 100).collect();
        assert!(lost.iter().all(|n| ran.err.contains(&format!("/iov/{dir}/{n}: "))), "{lost:?}: {}", ran.err);
        assert!(dir == "c" || lost.len() < 10, "{dir} {lost:?}: {}", ran.err);
    }
}

/// A call that asks several things of the store, behind who is telling it something already, has one deadline all the same (O8).
#[test]
fn o8_calls_that_ask_a_store_that_hangs_for_several_things_have_one_deadline() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    let daemon = store.daemon();
    let all = [
        ("os.close(f)", 2.0, 6.0),
        ("os.fsync(f)", 2.0, 6.0),
        ("os.write(f, b'y')", 2.0, 6.0),
        ("os.ftruncate(f, 5)", 2.0, 6.0),
        ("os.open('/iov/w/g', os.O_RDWR | os.O_TRUNC)", 5.0, 9.0),
        ("os.copy_file_range(g, f, 50)", 5.0, 9.0),
    ];
    for (what, timeout, most) in all {
        let program = format!(
            "import os, signal, time
g = os.open('/iov/w/g', os.O_CREAT | os.O_RDWR | os.O_TRUNC); os.write(g, b'x' * 100); os.close(g); g = os.open('/iov/w/g', os.O_RDWR)
f = os.open('/iov/w/f', os.O_CREAT | os.O_RDWR | os.O_TRUNC); os.write(f, b'x' * 100)
os.kill({daemon}, signal.SIGSTOP); time.sleep(3)
begun = time.monotonic()
try: {what}
except OSError: pass
print(time.monotonic() - begun)
os.kill({daemon}, signal.SIGCONT)"
        );
        let ran = run(&store, &["--timeout", &format!("{timeout}s"), "--", "python3", "-uc", &program]);
        kill(daemon as u32, "CONT");
        // It took nearly six of them to close.
        let took: f64 = ran.text().trim().parse().unwrap_or_else(|_| panic!("{what}: {} {}", ran.text(), ran.err));
        assert!(took < most, "{what}: {took} s");
    }
}
