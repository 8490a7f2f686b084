//! Who asks a mount for something, and what becomes of a mount whose program for that is none.

use std::{path::Path, process::Command, sync::atomic::Ordering, time::Instant};

use iov_fuse_kernel::Rings;

use crate::{for_each, waiting::all_come_through};

/// As `look_on` does.
pub(crate) fn by_python(at: &Path) -> Command {
    let script = "
import os, sys, threading
def look(queue):
    try: os.sched_setaffinity(0, [int.from_bytes(queue, 'little')])
    except OSError: pass
    try: os.getxattr(sys.argv[1], 'system.iov.nothing')
    except OSError: pass
    os.write(1, queue)
os.write(1, b'\\xff\\xff')
while len(queue := os.read(0, 2)) == 2: threading.Thread(target=look, args=(queue,)).start()";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(at);
    command
}

/// It ends at once.
fn by_nothing(_: &Path) -> Command {
    Command::new("false")
}

/// It stays for as long as the mount does, and does nothing.
fn by_a_listener(_: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "while read -r line; do :; done"]);
    command
}

#[test]
fn a_program_that_does_not_work_is_done_without() {
    for_each(&[(Rings::On, Some(by_nothing)), (Rings::On, Some(by_a_listener))], |m| {
        let begun = Instant::now();
        all_come_through(m);
        let (starts, took) = (m.starts.load(Ordering::Relaxed), begun.elapsed());
        // After one second, two more, four more.
        assert!(starts >= 1 && (1 << (starts - 1)) <= took.as_secs() + 2, "it was started {starts} times in {took:?}");
    });
}
