//! `iov up --listen`, and what it says to those on other machines.

use std::os::unix::fs::PermissionsExt;

use crate::{
    runs::has_library,
    store::{Ran, Store, pattern},
};

/// The address in what `iov up` says.
fn address(said: &str) -> String {
    let rest = said.split("IOVERBS_URL=iov://").nth(1).unwrap_or_else(|| panic!("{said}"));
    rest.lines().next().unwrap().to_owned()
}

#[test]
fn a2_up_says_by_which_secret_and_certificate_a_store_is_reached() {
    let store = Store::with_workspace();
    store.iov(&["up", "--tls", "self"]).fails(64, &["--listen"]);
    store.iov(&["down"]).ok();
    store.iov(&["up", "--listen", "127.0.0.1:0", "--tls", "c.pem"]).fails(64, &["with a comma between"]);
    let said = store.iov(&["up", "--listen", "127.0.0.1:0", "--tls", "self"]).ok().text();
    let (secret, certificate) = (store.path("store/secret"), store.path("store/tls.cert"));
    assert!(
        said.contains(&format!("by TLS, with a copy of {}, named in IOVERBS_TLS", certificate.display())),
        "{said}"
    );
    assert!(said.contains(&format!("with a copy of {}, named in IOVERBS_SECRET", secret.display())), "{said}");
    let clear = format!("iov://{}?secret={}", address(&said), secret.display());
    let url = format!("{clear}&tls={}", certificate.display());
    let bytes = pattern(3 << 20);
    store.iov(&["-S", &url, "put", &store.file("f", &bytes), "w/f"]).ok();
    assert!(store.iov(&["-S", &url, "cat", "w/f"]).ok().out == bytes);
    store.iov(&["-S", &clear, "ls", "w"]).fails(77, &["speaks TLS only", "IOVERBS_TLS"]);
    // By a certificate and a key in files, which are named from here.
    for (from, to) in [("store/tls.cert", "c.pem"), ("store/tls.key", "k.pem")] {
        std::fs::copy(store.path(from), store.path(to)).unwrap();
        std::fs::set_permissions(store.path(to), PermissionsExt::from_mode(0o600)).unwrap();
    }
    store.iov(&["up", "--listen", "127.0.0.1:0", "--tls", "self"]).fails(75, &["it can be told to listen"]);
    store.iov(&["down"]).ok();
    let said = store.iov(&["up", "--listen", "127.0.0.1:0", "--tls", "c.pem,k.pem"]).ok().text();
    assert!(said.contains(&format!("with a copy of {}, named", store.path("c.pem").display())), "{said}");
    let url = format!("iov://{}?tls=c.pem&secret=store/secret", address(&said));
    assert!(store.iov(&["-S", &url, "cat", "w/f"]).ok().out == bytes);
}

#[test]
fn preferred_networks_say_by_which_address_a_store_is_reached() {
    let store = Store::with_workspace();
    store.iov(&["down"]).ok();
    let said = store.iov(&["up", "--listen", "127.0.0.1:0,127.0.0.2:0"]).ok().text();
    let url = format!("iov://{}?secret=store/secret", address(&said));
    let at = |networks: &str, url: &str| {
        let mut command = store.command(&["-S", url, "net", "--json"]);
        let ran = Ran::new(command.env("IOVERBS_NETWORKS", networks).output().unwrap());
        ran.ok().json()["routes"][0]["at"].as_str().unwrap().split(':').next().unwrap().to_owned()
    };
    assert_eq!(at("", &url), "127.0.0.1");
    assert_eq!(at("127.0.0.2/32", &url), "127.0.0.2");
    assert_eq!(at("10.0.0.0/8,127.0.0.1,127.0.0.0/8", &url), "127.0.0.1");
    // One that nobody answers at is passed over, whatever is preferred.
    let gone = url.replacen("iov://", "iov://127.0.0.3:1,", 1);
    assert_eq!(at("127.0.0.3/32,127.0.0.2", &gone), "127.0.0.2");
    let mut wrong = store.command(&["-S", &url, "ls"]);
    let ran = Ran::new(wrong.env("IOVERBS_NETWORKS", "ib0").output().unwrap());
    ran.fails(64, &["IOVERBS_NETWORKS", "is no network, as in"]);
}

/// Nobody waits for a program that has ended, although the answer to its last unlock was never read.
#[test]
fn x1_a_program_that_ends_over_a_network_leaves_no_session() {
    if !has_library() {
        return;
    }
    let store = Store::with_workspace();
    store.iov(&["down"]).ok();
    let said = store.iov(&["up", "--listen", "127.0.0.1:0"]).ok().text();
    let url = format!("iov://{}?secret={}", address(&said), store.path("store/secret").display());
    let program = "import fcntl, os, time
a = os.open('/iov/w/a', os.O_RDWR | os.O_CREAT); fcntl.lockf(a, fcntl.LOCK_EX); os.write(a, b'x' * 1000); os.fsync(a)
b = os.open('/iov/w/b', os.O_RDWR | os.O_CREAT); os.write(b, b'x' * 70000)
fcntl.lockf(b, fcntl.LOCK_EX); fcntl.lockf(b, fcntl.LOCK_UN); os.close(b)
time.sleep(0.3); fcntl.lockf(a, fcntl.LOCK_UN); os.close(a)";
    let sessions = || {
        let status = store.iov(&["status"]).ok().text();
        let line = status.lines().find(|line| line.starts_with("sessions")).unwrap_or_else(|| panic!("{status}"));
        line.split_whitespace().last().unwrap().parse::<u32>().unwrap()
    };
    for _ in 0..3 {
        store.iov(&["-S", &url, "run", "--", "python3", "-c", program]).ok();
    }
    let begun = std::time::Instant::now();
    while sessions() > 1 {
        assert!(begun.elapsed().as_secs() < 15, "{} sessions", sessions());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
