use iov_types::Kind;

use super::*;

#[test]
fn what_is_written_down_is_read_again() {
    let hosts = parse("10.0.0.7:4000,[::1]:4001, node7").unwrap();
    let files = Certificate::Files { chain: "/a dir/c.pem".into(), key: "/a dir/k.pem".into() };
    for (secret, no_secret) in [(None, false), (Some("/a dir/secret".into()), false), (None, true)] {
        for tls in [None, Some(Certificate::Own), Some(files.clone())] {
            let asked = Asked { hosts: hosts.clone(), secret: Option::clone(&secret), no_secret, tls };
            assert_eq!(Asked::read(&asked.write()).unwrap(), asked);
        }
    }
}

#[test]
fn what_is_damaged_or_of_another_release_is_told() {
    assert_eq!(Asked::read("").unwrap_err().kind(), Kind::Version);
    assert_eq!(Asked::read("iovd listen 2\n").unwrap_err().kind(), Kind::Version);
    assert_eq!(Asked::read(&format!("{TITLE}\nnonsense\n")).unwrap_err().kind(), Kind::Corrupt);
    // A certificate without a key is no leave to listen in the clear.
    assert_eq!(Asked::read(&format!("{TITLE}\ncertificate /c.pem\n")).unwrap_err().kind(), Kind::Corrupt);
    assert!(parse("10.0.0.7:x").unwrap_err().contains("10.0.0.7:x"));
}

#[test]
fn a2_what_is_asked_for_now_goes_before_what_was_written_down() {
    use clap::Parser;
    let at = tempfile::tempdir().unwrap();
    let dir = OwnedFd::from(fs::File::open(at.path()).unwrap());
    let now = |args: &[&str]| {
        let args = Args::parse_from([&["iovd", "--dir", "/nowhere"], args].concat());
        asked(&dir, &args, None).unwrap().unwrap()
    };
    let hosts = parse("127.0.0.1:4000").unwrap();
    let before = Asked { hosts: hosts.clone(), no_secret: true, ..Asked::default() };
    fs::write(at.path().join(FILE), before.write()).unwrap();
    assert_eq!(now(&[]), before);
    let tls = Some(Certificate::Own);
    assert_eq!(
        now(&["--tls", "self"]),
        Asked { hosts: hosts.clone(), no_secret: true, tls: tls.clone(), secret: None }
    );
    let secret = Some(PathBuf::from("/a/secret"));
    let with_both = Asked { hosts, no_secret: false, tls, secret };
    assert_eq!(now(&["--tls", "self", "--secret", "/a/secret"]), with_both);
    fs::write(at.path().join(FILE), with_both.write()).unwrap();
    assert_eq!(now(&[]), with_both, "who says nothing gets what there was");
}

#[test]
fn a2_other_ports_let_in_nobody_else() {
    let at = |hosts: &str| Asked { hosts: parse(hosts).unwrap(), ..Asked::default() };
    let before = at("127.0.0.1:4000,[::1]:4001");
    assert!(before.is_but_for_ports(&at("127.0.0.1:5000,[::1]:5001")));
    let more = ["127.0.0.1:4000", "0.0.0.0:4000,[::1]:4001", "127.0.0.1:4000,[::1]:4001,10.0.0.7:4000"];
    assert!(more.iter().all(|other| !before.is_but_for_ports(&at(other))));
    let others = [
        Asked { no_secret: true, ..at("127.0.0.1:4000,[::1]:4001") },
        Asked { secret: Some("/a/secret".into()), ..at("127.0.0.1:4000,[::1]:4001") },
        Asked { tls: Some(Certificate::Own), ..at("127.0.0.1:4000,[::1]:4001") },
    ];
    assert!(others.iter().all(|other| !before.is_but_for_ports(other)));
}
