#![allow(clippy::disallowed_methods)]

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::atomic::AtomicU32,
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

/// How often there is something to do.
fn seen(copy: &Copied, times: u32) -> u32 {
    let mut done = 0;
    for _ in 0..times {
        // What is called for it comes here, too.
        copy.see(|| done += 1 + u32::from(!copy.see(|| unreachable!("it is being done"))));
    }
    done
}

#[test]
fn a_copy_is_found_once_whatever_made_it() {
    let copy = Copied::new();
    assert!(!copy.see(|| unreachable!("nobody has watched")));
    assert_eq!(of_child(copied, || seen(&copy, 1) as i32), 0);
    copy.watch();
    for make in [copied, forked] {
        assert_eq!(of_child(make, || seen(&copy, 3) as i32), 1);
    }
    assert!(copy.see(|| unreachable!("it is the first one")));
}

#[test]
fn threads_of_a_copy_wait_for_who_sees_to_it() {
    let copy = Copied::new();
    copy.watch();
    let late = of_child(copied, || {
        let done = AtomicU32::new(0);
        let late = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    copy.see(|| {
                        std::thread::sleep(std::time::Duration::from_millis(50));
                        done.store(1, Ordering::Relaxed);
                    });
                    late.fetch_add(1 - done.load(Ordering::Relaxed), Ordering::Relaxed);
                });
            }
        });
        late.into_inner() as i32
    });
    assert_eq!(late, 0);
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
