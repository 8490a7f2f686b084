use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use super::*;
use crate::seam;

/// What a child says by how it ends, whichever call has made it.
fn of_child(make: impl FnOnce() -> i64, says: impl FnOnce() -> i32) -> i32 {
    match make() {
        0 => {
            let said = says();
            // SAFETY: it ends this process.
            unsafe { libc::_exit(said) }
        }
        child => {
            assert!(child > 0, "{}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: it waits for a child of this thread's.
            let ended = unsafe { libc::waitpid(child as i32, &mut status, 0) };
            assert!(i64::from(ended) == child && libc::WIFEXITED(status));
            libc::WEXITSTATUS(status)
        }
    }
}

fn copied() -> i64 {
    // SAFETY: it makes a copy of the process, which does not much.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
}

fn forked() -> i64 {
    // SAFETY: as above.
    i64::from(unsafe { libc::fork() })
}

#[test]
fn a_copy_is_found_once_whatever_made_it() {
    let copy = Copied::new();
    assert!(!copy.is_new());
    assert_eq!(of_child(copied, || i32::from(copy.is_new())), 0, "nobody has watched");
    copy.watch();
    for make in [copied, forked] {
        let twice = of_child(make, || i32::from(copy.is_new()) + 2 * i32::from(copy.is_new()));
        assert_eq!(twice, 1);
    }
    assert!(!copy.is_new());
}

/// Who has the number of its parent's would make the same identifiers.
#[test]
fn a_copy_is_of_another_generation() {
    let generation = seam::fork_generation();
    for make in [copied, forked] {
        let grown = of_child(make, || {
            let first = seam::fork_generation() - generation;
            (10 * first + seam::fork_generation() - generation) as i32
        });
        assert_eq!(grown, 11);
    }
    assert_eq!(seam::fork_generation(), generation);
}

#[test]
fn a_copy_draws_other_numbers() {
    let draw = || {
        let mut bytes = [0; 8];
        seam::random_bytes(&mut bytes);
        bytes
    };
    // Some are drawn at a time.
    draw();
    for make in [copied, forked] {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        of_child(make, || i32::from(there.write_all(&draw()).is_err()));
        let mut drawn = [0; 8];
        here.read_exact(&mut drawn).unwrap();
        assert_ne!(drawn, draw());
    }
}
