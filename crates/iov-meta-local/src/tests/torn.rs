//! A log that ends within its last frame, as a killed process leaves it: everything before is kept, and the store goes
//! on.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::kit::{Place, all, apply, open, put, tiny, value};
use crate::{LocalStore, Options};

/// The newest file of the log.
pub(super) fn newest_segment(store: &Path) -> PathBuf {
    let mut files: Vec<_> =
        std::fs::read_dir(store.join("log")).expect("a log").map(|e| e.expect("a file").path()).collect();
    files.sort();
    files.pop().expect("a segment")
}

/// Makes a copy of a store.
pub(crate) fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).expect("a copy")),
        }
    }
}

/// What lies below a directory, directories before what is in them; files with their bytes. `None` if one went meanwhile.
fn contents(dir: &Path, below: &Path, into: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) -> Option<()> {
    into.insert(below.to_path_buf(), None);
    for entry in std::fs::read_dir(dir.join(below)).ok()? {
        let entry = entry.expect("an entry");
        let path = below.join(entry.file_name());
        match entry.file_type().ok()?.is_dir() {
            true => contents(dir, &path, into)?,
            false => drop(into.insert(path.clone(), Some(std::fs::read(dir.join(&path)).ok()?))),
        }
    }
    Some(())
}

/// Copies a store while it is open: what a kill at this moment would leave.
pub(super) fn as_killed(store: &LocalStore, from: &Path, to: &Path) {
    super::kit::wait_until("the background to be idle", || store.engine().parts().sealed.is_empty());
    // The tables' library still merges and removes files on its own: what is found twice without a difference was there
    // at one moment.
    let look = || {
        let mut found = BTreeMap::new();
        contents(from, Path::new(""), &mut found).map(|()| found)
    };
    let mut seen = None;
    super::kit::wait_until("files that do not move", || {
        let found = look();
        let same = found.is_some() && found == seen;
        seen = found;
        same
    });
    let _ = std::fs::remove_dir_all(to);
    for (name, bytes) in seen.expect("files") {
        match bytes {
            None => std::fs::create_dir_all(to.join(name)).expect("a directory"),
            Some(bytes) => std::fs::write(to.join(name), bytes).expect("a copy"),
        }
    }
}

#[test]
fn p2_a_frame_torn_at_any_byte_is_cut_off_and_nothing_else() {
    let (place, copied) = (Place::new("torn"), Place::new("torn-copy"));
    let store = open(place.path(), &Options::default());
    for i in 0..5 {
        apply(&store, vec![put(format!("R{i}"), "kept"), put(format!("N{i}"), "kept")]);
    }
    let before = all(&store);
    let log = newest_segment(place.path());
    let good = std::fs::metadata(&log).expect("a log").len();
    apply(&store, vec![put("R9", "the last, longer than the others"), put("R0", "changed"), ("N1".into(), None)]);
    let after = all(&store);
    let whole = std::fs::metadata(&log).expect("a log").len();
    as_killed(&store, place.path(), copied.path());
    drop(store);
    let log = newest_segment(copied.path());
    let bytes = std::fs::read(&log).expect("the log");
    assert_eq!(bytes.len() as u64, whole);
    for len in good..=whole {
        std::fs::write(&log, &bytes[..len as usize]).expect("a torn log");
        let store = open(copied.path(), &Options::default());
        let expected = if len == whole { &after } else { &before };
        assert!(all(&store) == *expected, "cut at {len} of {good}..{whole}");
        let revision = apply(&store, vec![put("new", "goes on")]);
        assert!(expected.iter().all(|(_, r)| r.revision < revision));
        drop(store);
        assert_eq!(value(&open(copied.path(), &Options::default()), "new").as_deref(), Some(&b"goes on"[..]));
    }
}

#[test]
fn p2_a_new_segment_torn_at_any_byte_is_forgotten() {
    let (place, copied) = (Place::new("torn-new"), Place::new("torn-new-copy"));
    let options = Options { write_buffer: 4 << 10, ..tiny() };
    let store = open(place.path(), &options);
    // Nothing is moved, so that the segment before the new one stays.
    store.engine().hooks.fail(crate::hooks::Point::Ingest, 5);
    let first = newest_segment(place.path());
    let mut n = 0;
    while newest_segment(place.path()) == first {
        apply(&store, vec![put(format!("R{n}"), [1; 300])]);
        n += 1;
    }
    let everything = all(&store);
    let log = newest_segment(place.path());
    let bytes = std::fs::read(&log).expect("the log");
    assert_eq!(bytes.len() as u64, crate::log::EMPTY_SEGMENT);
    copy(place.path(), copied.path());
    drop(store);
    for len in 0..bytes.len() {
        let again = Place::new("torn-new-again");
        copy(copied.path(), again.path());
        std::fs::write(newest_segment(again.path()), &bytes[..len]).expect("a torn log");
        let store = open(again.path(), &options);
        assert!(all(&store) == everything, "cut at {len}");
        apply(&store, vec![put("R", "goes on")]);
    }
}
