//! One test of where they are kept, as all of that is of the process.

use std::{fs::File, os::fd::AsRawFd};

use super::*;

#[test]
fn what_is_set_aside_is_kept_until_it_is_let_go() {
    let open = || OwnedFd::from(File::open("/dev/null").unwrap());
    // The program has the limit that it may have.
    let all = getrlimit(Resource::Nofile);
    let maximum = all.maximum.unwrap_or(1 << 20).min(1 << 20);
    let limited = |first| prlimit(None, Resource::Nofile, Rlimit { current: Some(first), ..all }).unwrap();
    limited(maximum);
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
    let over = i32::try_from(maximum).unwrap_or(1 << 20);
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
    drop(low);
    // Where it may have more, they lie behind what it can have, and take none of that.
    if maximum > 300 {
        keep_above(150);
        limited(300);
        let behind = set_aside(open());
        assert!((300..=300 + BEHIND as i32).contains(&behind.as_raw_fd()) && is_kept(behind.as_raw_fd()), "{behind:?}");
        assert_eq!(getrlimit(Resource::Nofile).current, Some(300), "as it was");
        let_go(behind.as_raw_fd());
        limited(maximum);
    }
    keep_above(0);
}

#[test]
fn who_can_spare_descriptors_is_asked_as_long_as_it_is_there() {
    struct One(Mutex<Option<OwnedFd>>);
    impl Spares for One {
        fn give_up(&self) {
            self.0.lock().unwrap().take();
        }
    }
    assert!(!give_up(), "nobody can");
    let one = std::sync::Arc::new(One(Mutex::new(Some(OwnedFd::from(File::open("/dev/null").unwrap())))));
    let weak: Weak<One> = std::sync::Arc::downgrade(&one);
    can_spare(weak);
    assert!(give_up() && one.0.lock().unwrap().is_none());
    drop(one);
    assert!(!give_up());
}
