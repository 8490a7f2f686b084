use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use super::{World, pattern};
use crate::interrupt::Interrupt;

#[test]
fn mv_renames_moves_and_swaps() {
    let world = World::with_workspace();
    world.with_stdin(b"a", &["put", "-", "w/a"]).ok();
    world.with_stdin(b"b", &["put", "-", "w/g/b", "-p"]).ok();
    world.iov(&["mv", "w/a", "w/c"]).ok();
    assert_eq!(world.cat("w/c"), b"a");
    world.iov(&["mv", "w/c", "w/g"]).ok();
    assert_eq!(world.cat("w/g/c"), b"a");
    world.iov(&["mv", "w/g/c", "w/g/b", "--if-exists", "fail"]).fails(73, &["IOV_EEXISTS", "without --if-exists"]);
    world.iov(&["mv", "w/g/c", "w/g/b", "--exchange"]).ok();
    assert_eq!((world.cat("w/g/c"), world.cat("w/g/b")), (b"b".to_vec(), b"a".to_vec()));
    world.iov(&["mv", "w/g/c", "w/g/b", "--if-exists", "skip"]).ok();
    // As iov_rename and Workspace.rename do.
    world.iov(&["mv", "w/g/c", "w/g/b"]).ok();
    assert_eq!((world.cat("w/g/b"), world.count()), (b"b".to_vec(), "1".to_owned()));
    world.with_stdin(b"x", &["put", "-", "w/h/g/b", "-p"]).ok();
    world.iov(&["mv", "w/g", "w/h"]).fails(73, &["IOV_ENOTEMPTY"]);
    world.iov(&["rm", "-r", "w/h"]).ok();
    world.iov(&["mv", "w/g/nothing", "w/x"]).fails(66, &["there is no \"nothing\" in w/g"]);
    world.iov(&["ws", "create", "v"]).ok();
    world.iov(&["mv", "w/g/b", "v"]).fails(69, &["IOV_EUNSUPPORTED", "iov cp -r w/g/b v"]);
    world.iov(&["mv", "w", "v"]).fails(64, &["iov ws set w --name"]);
}

#[test]
fn cp_copies_between_workspaces() {
    let world = World::with_workspace();
    world.iov(&["ws", "create", "v"]).ok();
    world.with_stdin(&pattern(100), &["put", "-", "w/a", "-m", "k=1", "-c", "consistency=session"]).ok();
    world.iov(&["cp", "w/a", "v"]).ok();
    assert_eq!(world.cat("v/a"), pattern(100));
    let stat = world.iov(&["stat", "v/a", "--json"]).ok().json();
    assert!(stat[0]["controls"].as_str().unwrap().contains("consistency=session"));
    assert_eq!(stat[0]["metadata"]["k"], 1);
    world.iov(&["cp", "w/a", "v"]).fails(73, &["v/a is there already"]);
}

#[test]
fn o3_any_bytes_make_a_name() {
    let world = World::with_workspace();
    let name = b"w/\xff\x1b[31m".to_vec();
    let address = OsString::from_vec(name.clone());
    let put = vec!["put".into(), "-".into(), address.clone()];
    world.run(put, Box::new(&b"x"[..]), Interrupt::default()).ok();
    let listed = world.iov(&["find", "w", "-0"]).ok().out;
    assert_eq!(listed, [name.as_slice(), b"\0"].concat());
    let json = world.iov(&["ls", "w", "--json"]).ok().json();
    assert_eq!(json[0]["name"]["hex"], "ff1b5b33316d");
    let cat = vec!["cat".into(), address.clone()];
    assert_eq!(world.run(cat, Box::new(std::io::empty()), Interrupt::default()).ok().out, b"x");
    let rm = vec!["rm".into(), address];
    world.run(rm, Box::new(std::io::empty()), Interrupt::default()).ok();
    assert_eq!(world.count(), "0");
}

#[test]
fn a_uuid_is_an_address() {
    let world = World::with_workspace();
    world.with_stdin(b"x", &["put", "-", "w/g/a", "-p"]).ok();
    let uuid = world.iov(&["stat", "w/g/a", "--json"]).ok().json()[0]["uuid"].as_str().unwrap().to_owned();
    let address = format!("w/{uuid}");
    assert_eq!(world.cat(&address), b"x");
    world.iov(&["mv", &address, "w/b"]).ok();
    assert_eq!(world.cat("w/b"), b"x");
    world.iov(&["rm", &address]).ok();
    assert_eq!(world.count(), "0");
    world.iov(&["cat", &address]).fails(66, &["there is no uuid:"]);
}

#[test]
fn rm_minds_what_is_not_there_unless_forced() {
    let world = World::with_workspace();
    world.with_stdin(b"x", &["put", "-", "w/temperature"]).ok();
    world.iov(&["rm", "w/temprature"]).fails(66, &["did you mean w/temperature"]);
    world.iov(&["rm", "-f", "w/temprature"]).ok();
    world.iov(&["rm", "w/temperature", "w/x"]).fails(66, &["no \"x\" in w"]);
    assert_eq!(world.count(), "0");
    world.iov(&["rm", "w"]).fails(64, &["iov ws rm w"]);
}

#[test]
fn o3_the_longest_names_are_fetched_under_their_own() {
    let world = World::with_workspace();
    for len in [250, 251, 255] {
        let name = "n".repeat(len);
        let address = format!("w/{name}");
        world.with_stdin(b"x", &["put", "-", &address]).ok();
        let target = world.path(&name);
        world.iov(&["get", &address, target.to_str().unwrap()]).ok();
        assert_eq!(std::fs::read(&target).unwrap(), b"x");
    }
}
