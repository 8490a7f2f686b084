use std::os::unix::fs::FileExt;

use iov_types::Kind;

use super::{file, id};
use crate::files::sidecar::{Facts, load, store};

fn facts(epoch: u64) -> Facts {
    Facts { epoch, version: epoch * 10, ..Facts::default() }
}

#[test]
fn p2_facts_are_read_as_they_were_written() {
    let file = file();
    assert_eq!(load(&file, id(1)).expect("no facts yet"), Facts::default());
    for epoch in 1..5 {
        let mut new = Facts { failed: epoch == 3, torn: epoch == 4, ..load(&file, id(1)).expect("facts") };
        (new.epoch, new.version) = (epoch, epoch * 10);
        store(&file, &mut new, id(1), epoch == 2).expect("an update");
        assert_eq!(load(&file, id(1)).expect("facts"), new);
    }
}

#[test]
fn p2_one_damaged_copy_is_restored_from_the_other() {
    for slot in 0..2 {
        for byte in 0..512 {
            let file = file();
            let mut new = facts(7);
            store(&file, &mut new, id(1), false).expect("an update");
            let mut whole = vec![0; 1024];
            file.read_exact_at(&mut whole, 0).expect("the file");
            let at = slot * 512 + byte;
            file.write_all_at(&[whole[at as usize] ^ 0x10], at).expect("a flipped bit");
            assert_eq!(load(&file, id(1)).expect("facts"), new, "byte {at}");
            let mut again = vec![0; 1024];
            file.read_exact_at(&mut again, 0).expect("the file");
            assert_eq!(again, whole, "the damaged copy is good again");
        }
    }
}

#[test]
fn p2_an_update_cut_short_is_old_or_new() {
    let (before, after) = (file(), file());
    let mut old = facts(1);
    store(&before, &mut old, id(1), false).expect("an update");
    let mut new = Facts { epoch: 2, ..old };
    store(&after, &mut new, id(1), false).expect("an update");
    let (mut from, mut to) = (vec![0; 1024], vec![0; 1024]);
    before.read_exact_at(&mut from, 0).expect("the file");
    store(&before, &mut Facts { epoch: 2, ..old }, id(1), false).expect("the same update");
    before.read_exact_at(&mut to, 0).expect("the file");
    let new = load(&before, id(1)).expect("facts");
    for cut in 0..=1024 {
        let file = file();
        file.write_all_at(&from, 0).expect("the old bytes");
        file.write_all_at(&to[..cut], 0).expect("some of the new bytes");
        let found = load(&file, id(1)).expect("one copy is whole at any time");
        assert!(found == old || found == new, "after {cut} bytes: {found:?}");
        assert_eq!(found == new, cut >= 512, "after {cut} bytes");
    }
}

#[test]
fn i1_facts_that_cannot_be_known_are_an_error() {
    let file = file();
    let mut new = facts(7);
    store(&file, &mut new, id(1), false).expect("an update");
    let kind = |object| load(&file, id(object)).err().map(|e| e.kind());
    assert_eq!(kind(2), Some(Kind::Corrupt), "the sidecar of another object");
    file.write_all_at(b"?", 30).expect("damage");
    file.write_all_at(b"?", 542).expect("damage to both");
    assert_eq!(kind(1), Some(Kind::Corrupt));
}
