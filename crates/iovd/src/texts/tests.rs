use std::os::unix::fs::MetadataExt;

use super::*;

#[test]
fn p2_what_says_so_already_is_not_written_and_what_does_not_is_replaced_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (at, path) = (File::open(dir.path()).unwrap(), dir.path().join("what"));
    write(&at, "what", b"one").unwrap();
    let first = path.metadata().unwrap().ino();
    let open = File::open(&path).unwrap();
    write(&at, "what", b"one").unwrap();
    assert_eq!(path.metadata().unwrap().ino(), first, "it is as it was");
    write(&at, "what", b"other").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"other");
    assert_eq!(std::io::read_to_string(open).unwrap(), "one", "whoever reads it reads all of one");
    assert!(!dir.path().join(fresh("what")).exists());
}

#[test]
fn p2_what_cannot_be_written_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let at = File::open(dir.path()).unwrap();
    write(&at, "what", b"one").unwrap();
    // In the way of the new one.
    std::fs::create_dir(dir.path().join(fresh("what"))).unwrap();
    write(&at, "what", b"other").unwrap_err();
    assert_eq!(std::fs::read(dir.path().join("what")).unwrap(), b"one");
}

/// Its directory may not have been written when a daemon was killed behind the last step: it is each time, and where that
/// fails it is told.
#[test]
fn p3_what_says_so_already_is_as_safe_as_what_was_written_just_now() {
    let dir = tempfile::tempdir().unwrap();
    write(File::open(dir.path()).unwrap(), "what", b"one").unwrap();
    // What names can be looked up in, and cannot be synced.
    let at = rustix::fs::open(dir.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    write(&at, "what", b"one").unwrap_err();
    assert_eq!(std::fs::read(dir.path().join("what")).unwrap(), b"one");
    assert!(!dir.path().join(fresh("what")).exists());
}
