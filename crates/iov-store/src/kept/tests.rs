//! One test, as all of it is of the process.

use std::{fs::File, os::fd::AsRawFd};

use super::*;

#[test]
fn what_is_set_aside_is_kept_until_it_is_let_go() {
    let open = || OwnedFd::from(File::open("/dev/null").unwrap());
    let low = open();
    let number = low.as_raw_fd();
    let low = set_aside(low);
    assert_eq!((low.as_raw_fd(), kept()), (number, vec![]), "nobody has said where");
    keep_above(300);
    let high = set_aside(low);
    assert!(high.as_raw_fd() >= 300 && is_kept(high.as_raw_fd()) && !is_kept(number));
    assert_eq!(kept(), [high.as_raw_fd()]);
    let flags = rustix::io::fcntl_getfd(&high).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    let number = high.as_raw_fd();
    let high = set_aside(high);
    assert_eq!((high.as_raw_fd(), kept()), (number, vec![number]), "it is there");
    let_go(number);
    drop(high);
    assert!(!is_kept(number) && kept().is_empty() && !is_kept(-1) && !is_kept(1 << 20));
    // Where nobody may have such a number, it is one as high as may be, and kept all the same.
    // SAFETY: all of it may be zero, and the call fills it.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur
    };
    let over = i32::try_from(limit).unwrap_or(1 << 20);
    keep_above(over);
    let below = set_aside(open());
    assert!(below.as_raw_fd() >= over.min(1 << 16) / 2 && is_kept(below.as_raw_fd()), "{below:?} of {over}");
    let number = below.as_raw_fd();
    let_go(number);
    drop(below);
    // Also one that had no lower number to begin with.
    keep_above(3);
    let low = set_aside(open());
    assert_eq!(kept(), [low.as_raw_fd()]);
    let_go(low.as_raw_fd());
    keep_above(0);
}
