//! Translations, options, and what is known of files.

use std::time::Duration;

use iov_posix::{Attributes, FileSystem, Kind, Level, Options};

use crate::{
    MountOptions,
    convert::kind,
    inodes::{Content, Inodes, Known},
    mount::unescaped,
    parse_options, unmount,
};

fn file_system() -> FileSystem {
    let session = ioverbs::open(Some("mem:"), Default::default()).unwrap();
    let name = ioverbs::Name::new(format!("fuse-{:?}", ioverbs::seam::new_uuid())).unwrap();
    FileSystem::new(session.create_workspace(name, Default::default()).unwrap(), Options::default())
}

fn root_attributes(fs: &FileSystem) -> Attributes {
    fs.root().attributes().unwrap()
}

#[test]
fn kinds_are_the_kernels() {
    for (mode, expected) in
        [(0o100_644, Kind::File), (0o644, Kind::File), (0o010_600, Kind::Fifo), (0o140_755, Kind::Socket)]
    {
        assert_eq!(kind(mode), Some(expected));
    }
    assert_eq!(kind(0o070_000), None);
}

#[test]
fn options_are_read_as_in_fstab() {
    let read = |text: &str| {
        let mut options = MountOptions::default();
        parse_options(&mut options, text).map(|()| options)
    };
    let all = read("rw,ro, strict,ttl=0.5,allow_other,noexec,x-systemd.requires=a,_netdev,user=me,defaults").unwrap();
    assert!(all.posix.readonly && all.posix.level == Level::Strict && all.allow_other);
    assert_eq!((all.ttl, all.kernel), (Duration::from_millis(500), vec!["noexec".to_owned()]));
    assert!(read("").is_ok() && !read("rw").unwrap().posix.readonly);
    for wrong in ["nonsense", "ttl=", "ttl=-1", "ttl=nan", "ro=1", "strict=yes"] {
        let e = read(wrong).map(drop).unwrap_err();
        assert!(e.kind() == ioverbs::Kind::Invalid && e.to_string().contains("ttl"), "{wrong}: {e}");
    }
}

#[test]
fn only_what_is_ours_is_unmounted() {
    let dir = tempfile::tempdir().unwrap();
    for at in [dir.path(), std::path::Path::new("/"), std::path::Path::new("/proc"), &dir.path().join("none")] {
        let e = unmount(at, true).unwrap_err();
        assert!(e.to_string().contains("no workspace is mounted"), "{e}");
    }
    assert_eq!(unescaped("/a\\040b\\134c\\011"), b"/a b\\c\t");
    assert_eq!(unescaped("/\\04"), b"/\\04");
    assert_eq!(unescaped("/größe"), "/größe".as_bytes());
}

#[test]
fn the_kernel_forgets_as_often_as_it_was_told() {
    let fs = file_system();
    let (inodes, root) = (Inodes::default(), fs.root());
    let ino = inodes.tell(&root);
    assert_eq!((ino, inodes.tell(&root)), (1, 1));
    inodes.forget(ino, 1);
    assert!(matches!(inodes.get(ino), Some(Known::Node(node)) if node.is(&root)));
    inodes.forget(ino, 5);
    assert!(inodes.get(ino).is_none());
    inodes.forget(ino, 1);
}

#[test]
fn pages_are_kept_while_nothing_has_changed() {
    let fs = file_system();
    let (inodes, root) = (Inodes::default(), fs.root());
    let (ino, a) = (inodes.tell(&root), root_attributes(&fs));
    let keeps = |a: &Attributes| inodes.keeps_pages(ino, Content::of(a));
    assert!(!keeps(&a) && keeps(&a));
    assert!(!keeps(&Attributes { mtime_ns: a.mtime_ns + 1, ..a }), "another time");
    assert!(!keeps(&Attributes { size: 1, ..a }) && !keeps(&Attributes { version: a.version + 1, ..a }));
    assert!(keeps(&Attributes { version: a.version + 1, ..a }));
    inodes.changed(ino);
    assert!(!keeps(&Attributes { version: a.version + 1, ..a }), "changed here, to nobody knows what");
}
