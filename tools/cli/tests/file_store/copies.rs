//! Copies that `iov` makes of what programs have made in a mount.

use crate::{
    mounts::{Mounted, has_fuse},
    store::Store,
};

#[test]
fn links_and_pipes_stay_what_they_are_in_copies() {
    if !has_fuse() {
        return;
    }
    let store = Store::with_workspace();
    let m = Mounted::new(&store, "mnt", "ttl=0");
    m.shell("mkdir -p d/sub; echo bytes > d/f; ln -s ../f d/sub/l; ln -s /no/such d/dangling; mkfifo d/p; sync").ok();
    store.iov(&["cp", "-r", "w/d", "w/copy"]).ok();
    store.iov(&["cp", "w/d/sub/l", "w/copy/again"]).ok();
    let said = m.shell("cd copy; readlink sub/l dangling again; cat sub/l; stat -c '%F %a' p sub/l").ok().text();
    assert!(said.starts_with("../f\n/no/such\n../f\nbytes\nfifo "), "{said}");
    assert!(said.ends_with("symbolic link 777\n"), "{said}");
    // A local link is made, in one step; what is no file is told.
    let ran = store.iov(&["get", "-r", "w/d", "out"]).ok();
    assert!(ran.err.contains("w/d/p is no file and no group: left out"), "{}", ran.err);
    assert_eq!(std::fs::read_link(store.path("out/sub/l")).unwrap().to_str(), Some("../f"));
    assert_eq!(std::fs::read_link(store.path("out/dangling")).unwrap().to_str(), Some("/no/such"));
    assert_eq!(std::fs::read(store.path("out/sub/l")).unwrap(), b"bytes\n");
    assert!(std::fs::symlink_metadata(store.path("out/p")).is_err());
    store.iov(&["get", "w/d/p", "p"]).fails(64, &["is a pipe, a socket or a device"]);
    std::fs::write(store.path("l"), "before").unwrap();
    store.iov(&["get", "w/d/sub/l", "l"]).ok();
    assert_eq!(std::fs::read_link(store.path("l")).unwrap().to_str(), Some("../f"));
    assert_eq!(store.iov(&["cat", "w/d/sub/l"]).ok().text(), "../f");
    // Nothing is put where a link leads that is to be a directory now.
    std::fs::create_dir(store.path("elsewhere")).unwrap();
    m.shell("rm d/dangling; mkdir d/dangling; echo x > d/dangling/x; sync").ok();
    std::fs::remove_file(store.path("out/dangling")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", store.path("out/dangling")).unwrap();
    store.iov(&["get", "-r", "w/d", "."]).ok();
    std::fs::remove_dir_all(store.path("d")).unwrap();
    std::fs::rename(store.path("out"), store.path("d")).unwrap();
    store.iov(&["get", "-r", "w/d", "."]).fails(73, &["d/dangling is a link, and is to be a directory"]);
    assert!(!store.path("elsewhere/x").exists());
}
