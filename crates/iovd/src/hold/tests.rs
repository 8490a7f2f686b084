use super::*;

fn taken(dir: &tempfile::TempDir) -> Hold {
    // A child of another test may have what was closed here until it runs its program.
    for _ in 0..1000 {
        match Hold::take(File::open(dir.path()).unwrap().as_fd()).unwrap() {
            Taken::Ours(hold) => return hold,
            Taken::Served => iov_store::seam::sleep(10_000_000),
        }
    }
    panic!("nobody serves it");
}

#[test]
fn a_start_that_fails_gives_back_what_it_took_and_no_other_hosts_claim() {
    let dir = tempfile::tempdir().unwrap();
    let lock = dir.path().join("lock");
    let said = || std::fs::read_to_string(&lock).unwrap();
    let hold = taken(&dir);
    assert!(said().starts_with(&format!("{}\n", host())), "{}", said());
    drop(hold);
    assert_eq!(said(), "\n");
    // Where locks do not reach it, another host has found nobody as this one did, and has written over its name.
    let other = "another\nboot\n1\n";
    for serves in [false, true] {
        let mut hold = taken(&dir);
        std::fs::write(&lock, other).unwrap();
        if serves {
            hold.serves();
            hold.release().unwrap();
        } else {
            drop(hold);
        }
        assert_eq!(said(), other, "it is that host's");
        std::fs::remove_file(&lock).unwrap();
    }
    let hold = taken(&dir);
    hold.release().unwrap();
    assert_eq!(said(), "\n");
}

/// As a machine that is still called localhost when it starts its daemons.
#[test]
fn a_hold_is_given_back_also_where_the_host_was_renamed_meanwhile() {
    const MARK: &str = "IOVD_TEST_RENAMES_ITS_HOST";
    if std::env::var_os(MARK).is_none() {
        let test = "hold::tests::a_hold_is_given_back_also_where_the_host_was_renamed_meanwhile";
        let mut own = std::process::Command::new("unshare");
        own.args(["--uts", "--"]).arg(std::env::current_exe().unwrap()).args(["--exact", test]).env(MARK, "");
        let out = own.output();
        let words = |out: &std::process::Output| String::from_utf8_lossy(&out.stdout).contains("running 1 test");
        return match out {
            Ok(out) if words(&out) => assert!(out.status.success(), "{out:?}"),
            other => eprintln!("skipped: no host name can be had for oneself here: {other:?}"),
        };
    }
    let dir = tempfile::tempdir().unwrap();
    let mut hold = taken(&dir);
    hold.serves();
    rustix::system::sethostname(b"another-name").unwrap();
    hold.release().unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("lock")).unwrap(), "\n");
}
