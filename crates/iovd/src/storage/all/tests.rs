use clap::Parser;

use super::*;

/// Its directory may not have been written when the daemon that chose was killed: it is before anything relies on it.
#[test]
fn p3_where_bytes_are_is_on_disk_before_anything_is_stored_there() {
    let at = tempfile::tempdir().unwrap();
    let open = |flags| rustix::fs::open(at.path(), flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let args = |storage: &[&str]| Args::parse_from([&["iovd", "--dir", "/nowhere"], storage].concat());
    let asked = args(&["--storage", "heap:1MiB"]);
    Storages::choose(&open(OFlags::RDONLY), &asked).unwrap();
    // What names can be looked up in, and cannot be synced.
    let unsafe_dir = open(OFlags::PATH);
    for again in [asked, args(&[])] {
        assert!(Storages::choose(&unsafe_dir, &again).is_err(), "it says that it is not safe");
        assert_eq!(Storages::choose(&open(OFlags::RDONLY), &again).unwrap().0, [Storage::Heap(1 << 20)]);
    }
}
