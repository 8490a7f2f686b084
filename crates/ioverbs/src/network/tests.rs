use iov_types::Kind;

use super::*;

#[test]
fn urls_name_hosts_and_a_secret() {
    let host = |name: &str, port| Host { name: name.into(), port };
    let port = iov_net::tcp::PORT;
    assert_eq!(parse("iov://node7").unwrap(), Url { hosts: vec![host("node7", port)], secret: None });
    assert_eq!(
        parse("iov://node7:1,[::1]:2/?secret=/a/b").unwrap(),
        Url { hosts: vec![host("node7", 1), host("::1", 2)], secret: Some("/a/b") }
    );
    for wrong in ["iov:node7", "iov://", "iov://?secret=x", "iov://a/b", "iov://a?secret=", "iov://a?x=y", "iov://a,,b"]
    {
        let e = parse(wrong).unwrap_err();
        assert!(e.kind() == Kind::Invalid && e.detail().contains(wrong), "{wrong}: {e}");
    }
}
