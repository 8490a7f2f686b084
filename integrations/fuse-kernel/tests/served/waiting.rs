//! Requests that wait for others, and for the end.

use std::{
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
    process::Command,
    time::{Duration, Instant},
};

use iov_fuse_kernel::Rings;

use crate::{ALL, Mounted, for_each, for_each_way, looking};

/// A child that waits for a lock, and ends with 0 when it has it.
fn locker(m: &Mounted) -> std::process::Child {
    let script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX)";
    Command::new("python3").args(["-c", script]).arg(m.path("f")).spawn().unwrap()
}

#[test]
fn many_may_wait_and_others_are_served() {
    for_each_way(|m| {
        let file = File::create(m.path("f")).unwrap();
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        // More than there are threads.
        let mut waiting: Vec<_> = (0..70).map(|_| locker(m)).collect();
        std::thread::sleep(Duration::from_secs(2));
        assert!(waiting.iter_mut().all(|child| child.try_wait().unwrap().is_none()));
        file.write_all_at(b"served", 0).unwrap();
        assert_eq!(std::fs::read(m.path("f")).unwrap(), b"served");
        // One is interrupted: it ends, and needs the lock no more.
        let mut first = waiting.remove(0);
        first.kill().unwrap();
        let begun = Instant::now();
        first.wait().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20));
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
        assert!(waiting.iter_mut().all(|child| child.wait().unwrap().success()));
    });
}

/// What a request waits for may be one that came while nobody could take it.
#[test]
fn none_of_those_that_come_at_once_to_one_processor_is_left_lying() {
    for_each(&[(Rings::Off, None), (Rings::On, None), (Rings::On, Some(looking::by_python))], all_come_through);
}

/// All come to one processor at once, and each waits for all others.
pub(crate) fn all_come_through(m: &Mounted) {
    drop(File::create(m.path("gate")).unwrap());
    for round in 0..20 {
        let start = std::sync::Barrier::new(ALL);
        let done = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..ALL {
                scope.spawn(|| {
                    iov_store::seam::bind(0);
                    start.wait();
                    let opened = File::open(m.path("gate"));
                    done.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
                    opened.unwrap();
                });
            }
            let begun = Instant::now();
            while done.load(std::sync::atomic::Ordering::Acquire) < ALL {
                if begun.elapsed() > Duration::from_secs(60) {
                    // Nothing else ends it.
                    let _ = abort(m);
                    panic!("in round {round} one waits for another that nobody takes");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
    }
}

/// Has the kernel give a mount up, as an administrator may.
fn abort(m: &Mounted) -> std::io::Result<()> {
    use rustix::mount::{MountFlags, UnmountFlags};
    let device = std::fs::metadata(m.at.path())?.dev();
    let all = tempfile::tempdir()?;
    rustix::mount::mount("none", all.path(), "fusectl", MountFlags::empty(), None)?;
    let done = std::fs::write(all.path().join(rustix::fs::minor(device).to_string()).join("abort"), "1");
    rustix::mount::unmount(all.path(), UnmountFlags::DETACH)?;
    done
}

#[test]
fn nobody_waits_on_when_the_kernel_gives_a_mount_up() {
    for rings in [Rings::Off, Rings::Auto] {
        let Some(m) = Mounted::new(rings) else { continue };
        let file = File::create(m.path("f")).unwrap();
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let mut waits = locker(&m);
        std::thread::sleep(Duration::from_millis(500));
        assert!(waits.try_wait().unwrap().is_none());
        // Not everybody may.
        if abort(&m).is_ok() {
            assert!(!waits.wait().unwrap().success());
            assert!(file.write_at(b"x", 0).is_err());
            m.waits_for_its_end("its threads end");
            rustix::mount::unmount(m.at.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
        }
        let _ = waits.kill();
        waits.wait().unwrap();
    }
}
