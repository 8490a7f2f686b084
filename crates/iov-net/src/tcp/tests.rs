use iov_types::Kind;

use super::*;

#[test]
fn hosts_are_read_with_and_without_ports() {
    let host = |name: &str, port| Host { name: name.into(), port };
    for (text, expected) in [
        ("node7", host("node7", PORT)),
        ("node7.cluster:99", host("node7.cluster", 99)),
        ("10.0.0.1:0", host("10.0.0.1", 0)),
        ("[::1]", host("::1", PORT)),
        ("[fe80::1%eth0]:4000", host("fe80::1%eth0", 4000)),
    ] {
        assert_eq!(Host::parse(text).unwrap(), expected);
        assert_eq!(Host::parse(&expected.to_string()).unwrap(), expected, "written as it is read");
    }
    for wrong in ["", ":1", "a:", "a:b", "a:65536", "::1", "[::1", "[::1]x", "a b", "a/b:1"] {
        assert_eq!(Host::parse(wrong).unwrap_err().kind(), Kind::Invalid, "{wrong:?}");
    }
}

#[test]
fn a_connection_comes_about_within_its_time() {
    let listeners = listen(&Host::parse("127.0.0.1:0").unwrap()).unwrap();
    let at = address_of(&listeners[0]).unwrap();
    let soon = || seam::monotonic_ns() + 5_000_000_000;
    let fd = connect(at, soon()).unwrap().unwrap();
    assert!(sockopt::tcp_nodelay(&fd).unwrap() && sockopt::socket_keepalive(&fd).unwrap());
    drop(listeners);
    assert_eq!(connect(at, soon()).unwrap().unwrap_err(), Errno::CONNREFUSED);
}

#[test]
fn what_cannot_be_listened_on_is_told() {
    let first = listen(&Host::parse("127.0.0.1:0").unwrap()).unwrap();
    let port = address_of(&first[0]).unwrap().port();
    let e = listen(&Host { name: "127.0.0.1".into(), port }).unwrap_err();
    assert!(e.kind() == Kind::Busy && e.detail().contains("another port"), "{e}");
    // Reserved for examples: no machine has it.
    let e = listen(&Host::parse("192.0.2.1:0").unwrap()).unwrap_err();
    assert!(e.kind() == Kind::Invalid && e.detail().contains("no address of this machine"), "{e}");
}

#[test]
fn a_name_is_not_waited_for_beyond_the_time_there_is() {
    let host = Host::parse("localhost:7").unwrap();
    let far = seam::monotonic_ns() + 30_000_000_000;
    assert!(host.resolve_until(far).unwrap().iter().all(|found| found.ip().is_loopback() && found.port() == 7));
    let e = host.resolve_until(seam::monotonic_ns() - 1).unwrap_err();
    assert!(e.detail().contains("could not be looked up in time"), "{e}");
    // An address needs nobody's time.
    assert_eq!(Host::parse("10.0.0.1").unwrap().resolve_until(0).unwrap(), ["10.0.0.1:4867".parse().unwrap()]);
}
