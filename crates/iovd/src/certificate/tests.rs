use std::os::unix::fs::{MetadataExt, PermissionsExt};

use iov_types::{Clause, Kind};

use super::*;

fn files(dir: &Path) -> (Vec<u8>, Vec<u8>) {
    (fs::read(dir.join(CERTIFICATE)).unwrap(), fs::read(dir.join(KEY)).unwrap())
}

#[test]
fn what_was_asked_for_is_read() {
    assert_eq!(Certificate::parse("self").unwrap(), Certificate::Own);
    let both = Certificate::parse("/a dir/c.pem,/k.pem").unwrap();
    assert_eq!(both, Certificate::Files { chain: "/a dir/c.pem".into(), key: "/k.pem".into() });
    for wrong in ["", "/c.pem", "a,b,c", "self,self2,x", ",k", "c,"] {
        assert!(Certificate::parse(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn a2_its_own_is_made_once_and_for_its_owner_only() {
    let temp = tempfile::tempdir().unwrap();
    let dir = OwnedFd::from(fs::File::open(temp.path()).unwrap());
    let hosts = [Host::parse("node7").unwrap(), Host::parse("[fe80::1%ib0]:1").unwrap()];
    Certificate::Own.load(&dir, &hosts).unwrap();
    let first = files(temp.path());
    for name in [CERTIFICATE, KEY] {
        assert_eq!(fs::metadata(temp.path().join(name)).unwrap().mode() & 0o777, 0o600, "{name}");
    }
    Certificate::Own.load(&dir, &[]).unwrap();
    assert!(files(temp.path()) == first, "it stays");
    // As after a crash between the two, or where one was removed to have new ones.
    for gone in [CERTIFICATE, KEY] {
        let before = files(temp.path());
        fs::remove_file(temp.path().join(gone)).unwrap();
        Certificate::Own.load(&dir, &hosts).unwrap();
        let after = files(temp.path());
        assert!(after.0 != before.0 && after.1 != before.1, "{gone}");
    }
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn a2_a_key_that_others_can_read_or_of_another_certificate_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    make(&at("c"), &at("k"), &[]).unwrap();
    make(&at("c2"), &at("k2"), &[]).unwrap();
    ServerTls::load(&at("c"), &at("k")).unwrap();
    let e = ServerTls::load(&at("c"), &at("k2")).unwrap_err();
    assert!(e.kind() == Kind::Invalid && e.detail().contains("of no use together"), "{e}");
    let e = ServerTls::load(&at("k"), &at("k")).unwrap_err();
    assert!(e.kind() == Kind::Invalid && e.detail().contains("holds no certificate"), "{e}");
    let e = ServerTls::load(&at("c"), &at("c")).unwrap_err();
    assert!(e.kind() == Kind::Invalid && e.detail().contains("holds no key"), "{e}");
    fs::set_permissions(at("k"), PermissionsExt::from_mode(0o640)).unwrap();
    let e = ServerTls::load(&at("c"), &at("k")).unwrap_err();
    assert_eq!((e.kind(), e.clause()), (Kind::Denied, Some(Clause::A2)), "{e}");
    assert!(e.detail().contains("chmod 600"), "{e}");
}
