use std::os::unix::fs::PermissionsExt;

use iov_types::{Kind, Uuid};

use super::*;

fn hello() -> Hello {
    Hello {
        min_version: 1,
        max_version: 1,
        library: String::new(),
        session: Uuid([7; 16]),
        program: "p".into(),
        pid: 1,
        channel: 0,
        challenge: vec![1; 32],
        target: 0,
        of: iov_types::Uuid::NIL,
        rings: false,
    }
}

#[test]
fn a2_a_proof_is_good_for_one_side_one_hello_and_one_challenge() {
    let secret = Secret::new(&[b'x'; 32]).unwrap();
    let (hello, theirs) = (hello(), [2; 32]);
    let proof = secret.proof(Side::Client, &hello, &theirs);
    assert!(secret.fits(&proof, Side::Client, &hello, &theirs));
    assert!(!secret.fits(&proof, Side::Server, &hello, &theirs), "sent back, it proves nothing");
    assert!(!secret.fits(&proof, Side::Client, &hello, &[3; 32]), "nor at another time");
    for other in [
        Hello { channel: 1, ..hello.clone() },
        Hello { session: Uuid([8; 16]), ..hello.clone() },
        Hello { challenge: vec![4; 32], ..hello.clone() },
        Hello { max_version: 2, ..hello.clone() },
    ] {
        assert!(!secret.fits(&proof, Side::Client, &other, &theirs), "{other:?}");
    }
    let another = Secret::new(&[b'y'; 32]).unwrap();
    assert!(!another.fits(&proof, Side::Client, &hello, &theirs));
    for bad in [&proof[..31], &[], &[0; 32]] {
        assert!(!secret.fits(bad, Side::Client, &hello, &theirs));
    }
}

#[test]
fn a2_a_proof_of_one_tls_connection_is_good_for_no_other() {
    let secret = Secret::new(&[b'x'; 32]).unwrap();
    let (hello, theirs) = (hello(), [2; 32]);
    let (one, other) = (secret.within(Some(&[7; 32])), secret.within(Some(&[8; 32])));
    for side in [Side::Client, Side::Server] {
        let proof = one.proof(side, &hello, &theirs);
        assert!(one.fits(&proof, side, &hello, &theirs));
        assert!(!other.fits(&proof, side, &hello, &theirs), "handed on to another connection");
        assert!(!secret.fits(&proof, side, &hello, &theirs), "nor to one in the clear");
        assert!(!one.fits(&secret.proof(side, &hello, &theirs), side, &hello, &theirs));
    }
    assert_eq!(secret.within(None).0, secret.0, "without TLS it is what it was");
}

#[test]
fn a_secret_is_made_once_and_read_by_its_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    Secret::make(&path).unwrap();
    let first = Secret::load(&path).unwrap();
    Secret::make(&path).unwrap();
    assert_eq!(Secret::load(&path).unwrap().0, first.0, "it stays");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let e = Secret::load(&path).unwrap_err();
    assert!(e.kind() == Kind::Denied && e.detail().contains("chmod 600"), "{e}");
}

#[test]
fn a_secret_is_not_shown_and_not_short() {
    let secret = Secret::new(&[b'k'; 40]).unwrap();
    assert_eq!(format!("{secret:?}"), "Secret(…)");
    let spaced = Secret::new(&[&b"\n"[..], &[b'k'; 40], b" \n"].concat()).unwrap();
    assert_eq!(spaced.0, secret.0, "what an editor adds does not count");
    let e = Secret::new(b"hunter2\n").unwrap_err();
    assert!(e.kind() == Kind::Invalid && !e.detail().contains("hunter2"), "{e}");
}
