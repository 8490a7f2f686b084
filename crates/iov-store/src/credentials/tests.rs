#![allow(clippy::disallowed_methods)]

use std::os::unix::net::UnixStream;

use super::*;

#[test]
fn a2_the_kernel_says_who_is_on_the_other_side() {
    let (one, _other) = UnixStream::pair().unwrap();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!(peer_credentials(&one).unwrap(), Credentials { pid: std::process::id(), uid, gid });
    assert!(peer_credentials(std::fs::File::open("/dev/null").unwrap()).is_err());
}
