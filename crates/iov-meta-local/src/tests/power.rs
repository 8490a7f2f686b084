//! Loss of power: what was not synced may be gone or full of holes, and is cut off. What was synced must be there.

use std::{os::unix::fs::FileExt, path::Path};

use iov_store::MetadataStore;
use iov_types::{Kind, Result};

use super::{
    kit::{Place, all, apply, put, unlocked},
    torn::{as_killed, copy, newest_segment},
};
use crate::{
    LocalStore, Options,
    hooks::{Hooks, Point},
};

/// Opens a store under a boot of the machine.
fn boot(path: &Path, id: u8) -> Result<LocalStore> {
    boot_with(path, id, Options::default())
}

fn boot_with(path: &Path, id: u8, options: Options) -> Result<LocalStore> {
    let hooks = Hooks::default();
    hooks.set_boot([id; 16]);
    unlocked(|| LocalStore::open_with(path, options.clone(), hooks.clone()))
}

/// Commits `n` records, the first `synced` of which are synced. Tells where each frame begins.
fn written(place: &Place, copied: &Place, n: usize, synced: usize) -> Vec<u64> {
    let store = boot(place.path(), 1).expect("a store");
    let log = newest_segment(place.path());
    let mut at = Vec::new();
    for i in 0..n {
        at.push(std::fs::metadata(&log).expect("the log").len());
        apply(&store, vec![put(format!("R{i}"), format!("value {i}"))]);
        if i + 1 == synced {
            store.persist().expect("a sync");
        }
    }
    at.push(std::fs::metadata(&log).expect("the log").len());
    as_killed(&store, place.path(), copied.path());
    at
}

fn hole(copied: &Place, from: u64, to: u64) {
    let log = std::fs::File::options().write(true).open(newest_segment(copied.path())).expect("the log");
    log.write_all_at(&vec![0; (to - from) as usize], from).expect("a hole");
}

#[test]
fn p3_a_hole_behind_what_was_synced_is_cut_off_after_a_loss_of_power() {
    let (place, copied) = (Place::new("power"), Place::new("power-copy"));
    let at = written(&place, &copied, 10, 4);
    for n in 4..10 {
        let again = Place::new("power-again");
        copy(copied.path(), again.path());
        hole(&again, at[n], at[n + 1]);
        // The same boot: no loss of power can have done it.
        let e = boot(again.path(), 1).err().expect("damage");
        assert_eq!(e.kind(), Kind::Corrupt);
        let store = boot(again.path(), 2).expect("a store");
        assert_eq!(all(&store).len(), n, "all before the hole, nothing behind it");
        apply(&store, vec![put("Rnew", "goes on")]);
        drop(store);
        assert_eq!(all(&boot(again.path(), 2).expect("a store")).len(), n + 1);
        assert_eq!(all(&boot(again.path(), 3).expect("a store")).len(), n + 1);
    }
}

#[test]
fn p3_a_hole_in_what_was_synced_is_damage() {
    let (place, copied) = (Place::new("power-synced"), Place::new("power-synced-copy"));
    let at = written(&place, &copied, 10, 6);
    for n in 0..6 {
        let again = Place::new("power-synced-again");
        copy(copied.path(), again.path());
        hole(&again, at[n], at[n + 1]);
        let e = boot(again.path(), 2).err().expect("damage");
        assert!(e.kind() == Kind::Corrupt && e.detail().contains("had been synced"), "hole {n}: {e:?}");
    }
}

#[test]
fn p3_a_store_that_was_closed_has_no_excuse() {
    let place = Place::new("power-closed");
    let copied = Place::new("power-closed-copy");
    let at = written(&place, &copied, 5, 0);
    // It was dropped, and with that synced.
    for n in 0..5 {
        let again = Place::new("power-closed-again");
        copy(place.path(), again.path());
        hole(&again, at[n], at[n + 1]);
        let e = boot(again.path(), 2).err().expect("damage");
        assert_eq!(e.kind(), Kind::Corrupt, "hole {n}: {e:?}");
    }
}

#[test]
fn p3_an_older_segment_with_a_hole_takes_the_newer_ones_along() {
    let (place, copied) = (Place::new("power-two"), Place::new("power-two-copy"));
    let store = boot_with(place.path(), 1, Options { write_buffer: 4 << 10, ..Options::default() }).expect("a store");
    // Neither synced nor moved: the sync of the background fails before it can, which is not a failure of the log here.
    store.engine().hooks.delay(Point::Sync, 2_000_000_000);
    let first = newest_segment(place.path());
    let (mut n, mut at) = (0, Vec::new());
    while newest_segment(place.path()) == first {
        at.push(std::fs::metadata(&first).expect("the log").len());
        apply(&store, vec![put(format!("R{n:03}"), [1; 300])]);
        n += 1;
    }
    apply(&store, vec![put("Rz", "in the second segment")]);
    copy(place.path(), copied.path());
    drop(store);
    let file =
        std::fs::File::options().write(true).open(copied.path().join("log").join(first.file_name().expect("a name")));
    file.expect("the log").write_all_at(&[0; 100], at[3]).expect("a hole");
    let e = boot(copied.path(), 1).err().expect("damage");
    assert!(e.kind() == Kind::Corrupt && e.detail().contains("good frames follow"), "{e:?}");
    let store = boot(copied.path(), 2).expect("a store");
    assert_eq!(all(&store).len(), 3);
    assert_eq!(newest_segment(copied.path()).file_name(), first.file_name(), "the newer segment is gone");
    apply(&store, vec![put("Rnew", "goes on")]);
    drop(store);
    assert_eq!(all(&boot(copied.path(), 2).expect("a store")).len(), 4);
}
