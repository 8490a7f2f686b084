use iov_types::Kind;

use super::*;

#[test]
fn urls_name_hosts_a_secret_and_a_certificate() {
    let host = |name: &str, port| Host { name: name.into(), port };
    let port = iov_net::tcp::PORT;
    assert_eq!(parse("iov://node7").unwrap(), Url { hosts: vec![host("node7", port)], secret: None, tls: None });
    assert_eq!(
        parse("iov://node7:1,[::1]:2/?secret=/a/b").unwrap(),
        Url { hosts: vec![host("node7", 1), host("::1", 2)], secret: Some("/a/b"), tls: None }
    );
    let one = |secret, tls| Url { hosts: vec![host("a", port)], secret, tls };
    assert_eq!(parse("iov://a?tls=/c.pem").unwrap(), one(None, Some("/c.pem")));
    assert_eq!(parse("iov://a/?secret=/s&tls=/c.pem").unwrap(), one(Some("/s"), Some("/c.pem")));
    assert_eq!(parse("iov://a?tls=system&secret=none").unwrap(), one(Some("none"), Some("system")));
    for wrong in [
        "iov:node7",
        "iov://",
        "iov://?secret=x",
        "iov://a/b",
        "iov://a?secret=",
        "iov://a?x=y",
        "iov://a,,b",
        "iov://a?",
        "iov://a?tls",
        "iov://a?tls=",
        "iov://a?tls=x&",
        "iov://a?tls=x&tls=y",
        "iov://a?secret=x?tls=y&secret=z",
        "iov://a?secret=x&TLS=y",
    ] {
        let e = parse(wrong).unwrap_err();
        assert!(e.kind() == Kind::Invalid && e.detail().contains(wrong), "{wrong}: {e}");
    }
}
