//! Processes that look, end, or are none that do.
#![allow(clippy::disallowed_methods)]

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use super::*;

const S: i64 = 1_000_000_000;

#[test]
fn a_program_that_does_not_work_is_tried_ever_more_seldom() {
    let mut starts = Starts::default();
    assert!(starts.is_due(0));
    let mut now_ns = S;
    for pause_s in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600] {
        starts.ended(now_ns, 0, false);
        assert!(!starts.is_due(now_ns + pause_s * S - 1) && starts.is_due(now_ns + pause_s * S), "{pause_s}");
        now_ns += pause_s * S;
    }
    // One that has looked and soon ends may do so again.
    starts.ended(now_ns, S - 1, true);
    assert!(!starts.is_due(now_ns + 599 * S));
    // One that was ended by somebody is there again at once, and so is the next.
    starts.ended(now_ns, S, true);
    assert!(starts.is_due(now_ns));
    starts.ended(now_ns, 0, true);
    assert!(!starts.is_due(now_ns + S - 1) && starts.is_due(now_ns + S));
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn crew() -> Crew {
    Crew::new(Arc::default(), true, || true)
}

/// By a script of the shell in a directory, and how often that was started.
fn looker(at: &Path, script: &'static str) -> (Looker, Arc<AtomicUsize>) {
    let starts = Arc::<AtomicUsize>::default();
    let (here, count) = (at.to_owned(), starts.clone());
    let program = move || {
        count.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(&here);
        command
    };
    (Looker::new(at, Some(Box::new(program))), starts)
}

/// Tells its number and all that it is asked, and says that it has done that.
const LOOKS: &str = r"echo $$ > pid; printf '\377\377'; exec tee -a asked";

#[test]
fn what_a_process_does_not_hear_another_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let ((looker, starts), crew) = (looker(dir.path(), LOOKS), crew());
    let asked = || std::fs::read(dir.path().join("asked")).unwrap_or_default();
    looker.begin();
    looker.watch(&crew, 1);
    until("it hears", || asked() == [1, 0] && crew.pulse().looking == 0);
    // It has lived for so long that it is one that works.
    std::thread::sleep(Duration::from_millis(1100));
    let number = std::fs::read_to_string(dir.path().join("pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(number.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let stat = Path::new("/proc").join(number.trim()).join("stat");
    until("it ends", || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(" Z ")));
    // Whether that is known or not.
    looker.watch(&crew, 2);
    until("the next one hears", || asked() == [1, 0, 2, 0] && crew.pulse().looking == 0);
    assert_eq!(starts.load(Ordering::Relaxed), 2);
}

#[test]
fn queues_start_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ((looker, starts), crew) = (looker(dir.path(), LOOKS), crew());
    looker.look(&crew, 0);
    until("a thread does it", || crew.pulse().looking == 0);
    assert_eq!(starts.load(Ordering::Relaxed), 0);
}

#[test]
fn what_a_program_leaves_undone_that_ends_is_not_under_way() {
    let dir = tempfile::tempdir().unwrap();
    // It says that it is there, and ends when it is to look.
    for script in ["exit 127", r"printf '\377\377'; head -c 2"] {
        let ((looker, starts), crew) = (looker(dir.path(), script), crew());
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2500) {
            looker.begin();
            looker.watch(&crew, 0);
            std::thread::sleep(Duration::from_millis(20));
        }
        looker.begin();
        until("nothing is under way", || crew.pulse().looking == 0);
        let starts = starts.load(Ordering::Relaxed);
        assert!((2..=3).contains(&starts), "{script}: {starts}");
    }
}

#[test]
fn nobody_waits_for_a_process_that_does_not_listen() {
    let dir = tempfile::tempdir().unwrap();
    let ((looker, _), crew) = (looker(dir.path(), "while [ ! -e over ]; do sleep 0.1; done"), crew());
    looker.begin();
    (0..70_000).for_each(|_| looker.look(&crew, 0));
    std::fs::write(dir.path().join("over"), "").unwrap();
}
