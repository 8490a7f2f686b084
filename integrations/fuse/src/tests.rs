//! Translations, options, and what is known of files.

use std::time::Duration;

use iov_posix::{Attributes, FileSystem, Kind, Level, Options};

use crate::{
    MountOptions,
    convert::kind,
    inodes::{Content, Inodes, Known},
    mount::failed,
    owners::{Owners, Taken},
    parse_options,
    running::Running,
    shown::{Dropped, Shown},
    split_options,
    table::{Mounted, unescaped},
    unmount,
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
        parse_options(&mut options, &split_options(text)).map(|()| options)
    };
    let all =
        read("rw,ro, strict,ttl=0.5,allow_other,noexec,x-systemd.requires=a,_netdev,user=me,owner,group,defaults")
            .unwrap();
    assert!(all.posix.readonly && all.posix.level == Level::Strict && all.allow_other);
    assert_eq!((all.ttl, all.kernel), (Duration::from_millis(500), vec!["noexec".to_owned()]));
    assert_eq!(read("sync,nodiratime,default_permissions,strictatime").unwrap().kernel, ["sync"]);
    assert!(read("").is_ok() && !read("rw").unwrap().posix.readonly);
    for wrong in ["nonsense", "ttl=", "ttl=-1", "ttl=nan", "ro=1", "strict=yes"] {
        let e = read(wrong).map(drop).unwrap_err();
        assert!(e.kind() == ioverbs::Kind::Invalid && e.to_string().contains("ttl"), "{wrong}: {e}");
    }
    let said = |wrong: &str| read(wrong).map(drop).unwrap_err().to_string();
    assert!(said("storr=x").contains("did you mean store=URL?"), "{}", said("storr=x"));
    assert!(said("noexe").contains("did you mean noexec?") && !said("ro=1").contains("did you mean"));
    for known in ["store=URL", "remount", "suid", "dirsync", "relatime", "default_permissions", "session", "nofail"] {
        assert!(said("nonsense").contains(known), "{known}");
    }
    assert!(said("strict,ro,session").contains("either"));
}

#[test]
fn only_what_is_ours_is_unmounted() {
    let dir = tempfile::tempdir().unwrap();
    for at in [dir.path(), std::path::Path::new("/"), std::path::Path::new("/proc"), &dir.path().join("none")] {
        let e = unmount(at, true).unwrap_err();
        assert!(e.to_string().contains("no workspace is mounted"), "{e}");
    }
    assert_eq!(unescaped(b"/a\\040b\\134c\\011"), b"/a b\\c\t");
    assert_eq!(unescaped(b"/\\04"), b"/\\04");
    assert_eq!(unescaped("/größe".as_bytes()), "/größe".as_bytes());
}

#[test]
fn the_table_of_mounts_is_bytes_and_the_last_one_hides_the_others() {
    let table = b"1 0 0:1 / / rw - ext4 /dev/vda rw\n\
        2 1 0:2 / /a\\040b rw,nosuid,nodev,noexec,relatime shared:5 - fuse.iov w ro,user_id=7,group_id=7,default_permissions\n\
        3 1 0:3 / /tmp/\xff\xfe rw,noatime - tmpfs \xff rw\n\
        4 2 0:4 / /a\\040b ro,noatime master:1 - fuse.iov iov:///w rw,sync,user_id=8\nbroken\n";
    let last = Mounted::of(table, b"/a b").unwrap();
    assert!(last.is_ours && last.is_readonly() && last.is_of(8) && !last.is_of(7));
    assert_eq!(last.flags(), ["suid", "dev", "exec", "noatime", "sync"]);
    let end = table.windows(3).position(|part| part == b"\n4 ").unwrap();
    let first = Mounted::of(&table[..end], b"/a b").unwrap();
    assert!(first.is_ours && first.is_readonly() && first.is_of(7));
    assert_eq!(first.flags(), ["nosuid", "nodev", "noexec", "relatime"]);
    let other = Mounted::of(table, b"/tmp/\xff\xfe").unwrap();
    assert!(!other.is_ours && !other.is_readonly());
    assert_eq!(Mounted::of(table, b"/none"), None);
}

#[test]
fn a_mount_tells_what_it_is() {
    let ws = file_system().workspace().clone();
    let mut options = MountOptions::default();
    parse_options(&mut options, &split_options("strict,ttl=2.5,tags=about,allow_other,io_uring=off")).unwrap();
    let running = Running::new(&ws, &options);
    assert_eq!(Running::read(&running.to_text()), Some(running));
    assert_eq!(Running::read(b"no uuid\0w\0mem:"), None);
    assert_eq!(Running::read(b""), None);
}

#[test]
fn what_the_systems_program_could_not_unmount_is_in_use() {
    let (at, errno) = (std::path::Path::new("/x"), std::io::Error::from_raw_os_error);
    for (number, own, kind) in [(16, false, Some("is in use")), (1, true, Some("is in use")), (1, false, None)] {
        let e = failed(at, errno(number), own);
        assert_eq!(e.kind() == ioverbs::Kind::Busy, kind.is_some(), "{e}");
    }
}

#[test]
fn a_comma_of_a_value_has_a_backslash_before_it() {
    assert_eq!(split_options("a,store=iov://x\\,y\\\\z,\\q\\"), ["a", "store=iov://x,y\\z", "\\q\\"]);
    assert_eq!(split_options(""), [""]);
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
    let keeps = |a: &Attributes| {
        let keeps = inodes.keeps_pages(ino, Content::of(a));
        inodes.are_of(ino, Content::of(a));
        keeps
    };
    assert!(!keeps(&a) && keeps(&a));
    assert!(!keeps(&Attributes { mtime_ns: a.mtime_ns + 1, ..a }), "another time");
    assert!(!keeps(&Attributes { size: 1, ..a }) && !keeps(&Attributes { version: a.version + 1, ..a }));
    assert!(keeps(&Attributes { version: a.version + 1, ..a }));
    inodes.changed(ino);
    assert!(!keeps(&Attributes { version: a.version + 1, ..a }), "changed here, to nobody knows what");
}

/// A file that is open, by times in milliseconds that both clocks show.
struct Open(Shown);

impl Open {
    fn at(ms: i64) -> i64 {
        1_000_000_000_000 + ms * 1_000_000
    }

    fn content(size: u64, ms: i64) -> Content {
        Content { size, mtime_ns: Open::at(ms), version: 0 }
    }

    fn new() -> Open {
        Open(Shown::new(Open::content(100, 0), Open::at(0)))
    }

    /// Whether what is told is what others have done, so that pages are dropped.
    fn told(&mut self, (size, ms): (u64, i64), asked: i64) -> bool {
        let content = Open::content(size, ms);
        let others = self.0.is_others(content, Open::at(asked), Open::at(asked));
        if others {
            self.dropped(Dropped::Others, asked);
        }
        self.0.told(content, Open::at(asked));
        others
    }

    fn dropped(&mut self, why: Dropped, ms: i64) -> bool {
        self.0.was_dropped(why, Open::at(ms), Open::at(ms))
    }

    fn begins(&mut self, end: u64, ms: i64) -> bool {
        self.0.begins(end, (Open::at(ms), Open::at(ms)))
    }

    fn ends(&mut self, ms: i64) {
        self.0.ends(true, (Open::at(ms), Open::at(ms)));
    }

    fn drops_again(&mut self, ms: i64) -> bool {
        self.0.drops_again(Open::at(ms))
    }
}

#[test]
fn what_was_written_here_explains_what_is_told() {
    let mut open = Open::new();
    assert!(!open.told((100, 0), 10));
    assert!(open.told((100, 5), 11), "another time");
    assert!(!open.told((100, 5), 12), "they are dropped once");
    assert!(!open.told((101, 6), 13) && !open.told((99, 7), 14), "another length, which the kernel sees");

    // A write of ours: its time is between those of its begin and end, and it grows no further than its last byte.
    open.begins(120, 100);
    assert!(!open.told((120, 101), 102), "under way");
    open.ends(110);
    assert!(!open.told((120, 109), 500));
    assert!(open.told((120, 400), 501), "somebody else's behind it");
    assert!(!open.told((120, 109), 500), "an answer from before");
    assert!(!open.told((120, 400), 502));

    // Others write at the same time: what is of before or behind ours is theirs.
    open.begins(150, 600);
    open.ends(601);
    open.begins(160, 602);
    assert!(!open.told((160, 620), 630), "ours is still under way");
    open.ends(640);
    assert!(!open.told((160, 640), 700) && open.told((160, 300), 701));

    // What programs set is ours, too, and an answer from before that is none.
    open.0.was_set(Open::content(7, 3), Open::at(800));
    assert!(!open.told((160, 640), 790));
    assert!(!open.told((7, 3), 801) && open.told((7, 4), 802));
    // One that began before it was opened by who has pages.
    open.0.ends(false, (Open::at(900), Open::at(900)));
    assert!(!open.told((7, 899), 901));
}

#[test]
fn pages_are_dropped_again_where_something_was_on_its_way() {
    let mut open = Open::new();
    assert!(open.told((100, 5), 10) && !open.0.waits(), "nobody has written");
    assert!(!open.begins(50, 20), "who writes behind that has what was there");
    assert!(open.told((100, 500), 30) && open.0.waits(), "one is under way");
    assert!(!open.drops_again(100));
    open.ends(105);
    assert!(open.drops_again(106) && !open.drops_again(107));
    assert!(!open.dropped(Dropped::Again, 106));
    // Some that had not come when they were dropped: no more often than that.
    assert!(open.begins(50, 150));
    open.ends(151);
    assert!(open.drops_again(152) && !open.dropped(Dropped::Again, 152));
    assert!(!open.begins(50, 160), "that is enough");
    // One that does not end: at the end of its time.
    assert!(open.dropped(Dropped::Others, 200) && !open.drops_again(299) && open.drops_again(300));
    open.ends(301);
    // One that began and ended meanwhile.
    assert!(open.0.was_dropped(Dropped::Others, Open::at(300), Open::at(305)) && open.drops_again(306));
    assert!(!open.dropped(Dropped::Others, 2_000) && !open.begins(50, 2_001), "nothing was written lately");
    open.ends(2_002);
    assert!(!open.dropped(Dropped::Locked, 2_200) && !open.begins(50, 2_201), "who locks is alone");
    assert!(open.dropped(Dropped::Others, 2_300));
    open.0.is_mapped();
    assert!(
        !open.0.waits() && !open.dropped(Dropped::Others, 2_301),
        "a page that is dropped may be written by a mapping"
    );
}

#[test]
fn what_others_may_have_done_unseen_is_read_in_the_end() {
    let mut open = Open::new();
    assert!(!open.0.is_in_doubt(i64::MAX, false), "nobody has written");
    open.begins(50, 100);
    assert!(!open.0.is_in_doubt(i64::MAX, false), "under way");
    open.ends(200);
    assert!(!open.0.is_in_doubt(Open::at(199), false) && open.0.is_in_doubt(Open::at(200), false));
    assert!(!open.0.is_in_doubt(i64::MAX, false), "once");
    // What is dropped anyhow is not dropped for that, where others would have another time than ours.
    open.begins(50, 300);
    open.ends(301);
    open.dropped(Dropped::Others, 302);
    assert!(open.0.is_in_doubt(Open::at(302), false));
    open.begins(50, 400);
    open.ends(401);
    open.dropped(Dropped::Others, 550);
    assert!(!open.0.is_in_doubt(i64::MAX, false));
    // Another length, of which the kernel may not have heard, and a time that a program has set over that of others.
    assert!(!open.told((70, 600), 601) && open.0.is_in_doubt(i64::MIN, false) && !open.0.is_in_doubt(i64::MIN, false));
    open.0.was_set(Open::content(70, 3), Open::at(700));
    assert!(open.0.is_in_doubt(Open::at(700), false));
}

#[test]
fn what_was_dropped_while_it_was_written_is_dropped_again_when_nothing_is() {
    let mut open = Open::new();
    let doubt = |open: &mut Open, quiet: i64| open.0.is_in_doubt(Open::at(quiet), true);
    open.begins(50, 100);
    open.ends(101);
    assert!(!open.0.is_unsure() && !doubt(&mut open, 101), "nobody else can have changed it");
    open.begins(50, 200);
    open.dropped(Dropped::Locked, 201);
    open.ends(202);
    assert!(open.0.is_unsure() && !doubt(&mut open, 201) && doubt(&mut open, 202));
    open.dropped(Dropped::Others, 1_300);
    assert!(!open.0.is_unsure() && !doubt(&mut open, 1_300), "nothing was on its way then");
    // One that was on its way, and comes behind it.
    open.begins(50, 1_350);
    open.ends(1_351);
    assert!(open.0.is_unsure());
    open.dropped(Dropped::Others, 3_000);
    open.begins(50, 3_200);
    assert!(!open.0.is_unsure());
    // Some of its pages.
    open.0.were_dropped(Open::at(3_201));
    open.ends(3_202);
    assert!(open.0.is_unsure() && doubt(&mut open, 3_202));
}

#[test]
fn who_has_a_lock_is_told_that_pages_were_dropped() {
    let owners = Owners::default();
    let (a, b, some, more) = (7, 8, (0, 9), (20, 29));
    let gets = |owner, bytes| owners.add(1, owner, Taken::new(owner, 1, bytes));
    gets(a, some);
    gets(b, more);
    drop(owners.dropping(2, None));
    assert!(!owners.gives_back(1, a, (5, 6)), "those of another file");
    drop(owners.dropping(1, Some(a)));
    assert!(!owners.gives_back(1, a, some), "it was done for this one");
    assert!(owners.gives_back(1, b, (20, 28)) && owners.gives_back(1, b, more), "it has some left at first");
    gets(b, more);
    assert!(!owners.gives_back(1, b, (0, 99)), "not since then");
    // Two stretches, of which the second goes first.
    gets(b, some);
    gets(b, more);
    drop(owners.dropping(1, None));
    assert!(owners.gives_back(1, b, more) && owners.gives_back(1, b, some) && !owners.gives_back(1, b, (0, 99)));
    gets(b, more);
    assert!(!owners.gives_back(1, b, more), "nothing is left of that");
    assert!(!owners.gives_back(1, 9, some), "it never had any");
    // Just now.
    gets(a, some);
    let dropping = owners.dropping(1, None);
    assert!(owners.gives_back(1, a, some));
    gets(a, some);
    drop(dropping);
    gets(a, more);
    assert!(owners.take(1, a).unwrap().is_dropped() && !owners.take(1, b).unwrap().is_dropped());
    assert!(owners.take(1, a).is_none() && !owners.has_other(1, 9));
}

#[test]
fn what_is_open_is_known_until_it_is_closed() {
    let fs = file_system();
    let (inodes, root) = (Inodes::default(), fs.root());
    let content = Content::of(&root_attributes(&fs));
    let ino = inodes.tell(&root);
    let due = |most, before_ns| inodes.to_look_at(most, before_ns).len();
    assert!(!inodes.any_shown() && due(9, i64::MAX) == 0);
    inodes.is_shown(ino, content);
    inodes.is_shown(ino, content);
    assert_eq!((due(9, 0), due(9, i64::MAX), due(0, i64::MAX)), (0, 1, 0));
    let other = Content { mtime_ns: content.mtime_ns + 1, ..content };
    assert!(inodes.hears(ino, other, 5) == Some(true) && inodes.has_shown(ino));
    inodes.told(ino, other, 5);
    assert!(inodes.hears(ino, other, 6) == Some(false));
    assert_eq!(inodes.changes(ino, 9), (true, false));
    assert!(inodes.was_dropped(ino, Dropped::Others, 0), "something is on its way");
    assert_eq!(inodes.to_drop_again(), (vec![], true));
    inodes.has_changed(ino, true);
    assert_eq!(inodes.to_drop_again(), (vec![ino], false));
    // It may be forgotten before the last close is heard of.
    inodes.forget(ino, 1);
    inodes.is_hidden(ino);
    assert!(inodes.any_shown() && inodes.get(ino).is_some());
    // Which length the kernel knows.
    let size = content.size;
    assert!(!inodes.has_another_size(ino, size.max(9)) && inodes.has_another_size(ino, size + 10));
    inodes.was_set(ino, Content { size: 3, ..content });
    assert!(!inodes.has_another_size(ino, 3));
    inodes.hears(ino, content, 7);
    assert!(!inodes.has_another_size(ino, size));
    inodes.is_hidden(ino);
    assert!(!inodes.any_shown() && inodes.get(ino).is_none());
    // What is written then is written to nothing that is known.
    assert_eq!(inodes.changes(ino, 5), (false, false));
    inodes.has_changed(ino, false);
}
