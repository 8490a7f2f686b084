use iov_types::{Kind, ObjectId, Uuid};

use super::{disk, id};
use crate::files::tree::{FileName, Tree, log_of, object_of, page_of};

#[test]
fn o2_names_of_files_tell_what_they_hold() {
    let (stage, object) = (Uuid([0x1f; 16]), ObjectId { collection: Uuid([0xe0; 16]), slot: u64::MAX });
    let data = FileName::Data(object).path();
    let name = data.rsplit('/').next().expect("a name");
    assert_eq!(object_of(name), Some(object));
    let log = FileName::Log(stage, object).path();
    assert_eq!(log_of(log.strip_prefix("stage/").expect("its folder")), Some((stage, object)));
    let lease = FileName::Lease(stage).path();
    assert_eq!(page_of(lease.strip_prefix("leases/").expect("its folder")), Some(stage));
    for wrong in [
        "",
        "-",
        "abab-1",
        &name.to_uppercase(),
        &format!("{name}.side"),
        &name.replace('-', "-0"),
        &name.replace('-', "-+"),
        "éeabababababababababababababababa-1",
    ] {
        assert_eq!(object_of(wrong), None, "{wrong:?}");
    }
    assert_eq!(log_of("x.log"), None);
}

#[test]
fn o2_folders_are_made_when_they_are_needed() {
    let (directory, disk) = disk();
    let shelves = || std::fs::read_dir(directory.path().join("data")).expect("the folder").count();
    assert_eq!(shelves(), 0);
    for slot in 0..40 {
        disk.create(FileName::Data(id(slot))).expect("a file");
    }
    assert_eq!(shelves(), 40, "slots of one collection lie on different shelves");
    assert_eq!(disk.count(), 8, "descriptors are bounded");
    let mut found = Vec::new();
    disk.tree.objects(|id| found.push(id)).expect("a list");
    found.sort_unstable();
    assert_eq!(found, (0..40).map(id).collect::<Vec<_>>());
}

#[test]
fn i1_a_directory_that_is_no_target_is_refused() {
    let open = |path: &std::path::Path| {
        let root = std::fs::File::open(path).expect("the directory").into();
        Tree::open(root, 5).map(|tree| tree.incarnation).map_err(|e| e.kind())
    };
    let (directory, disk) = disk();
    disk.create(FileName::Data(id(1))).expect("a file");
    assert_eq!(open(directory.path()), Err(Kind::Busy));
    drop(disk);
    assert_eq!(open(directory.path()), Ok(1), "the incarnation stays");
    let format = directory.path().join("format");
    for (text, kind) in [
        ("", Kind::Corrupt),
        ("something else\n", Kind::Corrupt),
        ("IOVerbs files\nversion 1\n", Kind::Corrupt),
        ("IOVerbs files\nversion 2\nincarnation 1\n", Kind::Version),
    ] {
        std::fs::write(&format, text).expect("a format file");
        assert_eq!(open(directory.path()), Err(kind), "{text:?}");
    }
    std::fs::remove_file(&format).expect("the format file");
    assert_eq!(open(directory.path()), Err(Kind::Corrupt), "bytes without a format file");
}
