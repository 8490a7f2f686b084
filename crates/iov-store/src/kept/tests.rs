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
    assert_eq!(set_aside(high).as_raw_fd(), number, "it is there");
    let_go(number);
    assert!(!is_kept(number) && kept().is_empty() && !is_kept(-1) && !is_kept(1 << 20));
    keep_above(0);
}
