use super::*;

fn taken(dir: &tempfile::TempDir) -> Hold {
    match Hold::take(File::open(dir.path()).unwrap().as_fd()).unwrap() {
        Taken::Ours(hold) => hold,
        Taken::Served => panic!("nobody serves it"),
    }
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
