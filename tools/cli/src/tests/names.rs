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

/// Two collections of one name in two groups, and a group to bring them together in.
fn two_of_one_name(len: usize) -> World {
    let world = World::with_workspace();
    for (group, byte) in [("g1", b'1'), ("g2", b'2')] {
        world.with_stdin(&vec![byte; len], &["put", "-", &format!("w/{group}/data"), "-p"]).ok();
    }
    world.with_stdin(b"old", &["put", "-", "w/out/data", "-p"]).ok();
    world
}

#[test]
fn mv_does_not_replace_what_it_has_just_moved() {
    let world = two_of_one_name(3);
    world.with_stdin(b"other", &["put", "-", "w/g2/other"]).ok();
    let ran = world.iov(&["mv", "w/g1/data", "w/g2/data", "w/g2/other", "w/out"]);
    ran.fails(73, &["IOV_EEXISTS", "w/g2/data", "w/out/data was put there by this command", "next: "]);
    assert_eq!((world.cat("w/out/data"), world.cat("w/g2/data")), (b"111".to_vec(), b"222".to_vec()));
    assert_eq!(world.cat("w/out/other"), b"other");
    // What was there before the command is replaced, and an empty group is not lost either.
    world.iov(&["mv", "w/g2/data", "w/out"]).ok();
    assert_eq!((world.cat("w/out/data"), world.count()), (b"222".to_vec(), "2".to_owned()));
    let f = world.file("f", b"");
    for group in ["w/a/e/", "w/b/e/"] {
        world.iov(&["put", "-p", &f, group]).ok();
        world.iov(&["rm", &format!("{group}f")]).ok();
    }
    world.iov(&["mv", "w/a/e", "w/b/e", "w/out"]).fails(73, &["by this command"]);
    assert_eq!(world.iov(&["ls", "w/b"]).ok().lines(), ["e/"]);
    // Whoever says so leaves the second where it is, and that is no failure.
    world.with_stdin(b"1", &["put", "-", "w/a/s"]).ok();
    world.with_stdin(b"2", &["put", "-", "w/b/s"]).ok();
    world.iov(&["mv", "--if-exists", "skip", "w/a/s", "w/b/s", "w/out"]).ok();
    assert_eq!((world.cat("w/out/s"), world.cat("w/b/s")), (b"1".to_vec(), b"2".to_vec()));
    // Advice to replace would be the wrong one.
    world.with_stdin(b"3", &["put", "-", "w/a/t"]).ok();
    world.with_stdin(b"4", &["put", "-", "w/b/t"]).ok();
    let ran = world.iov(&["mv", "--if-exists", "fail", "w/a/t", "w/b/t", "w/out"]).fails(73, &["by this command"]);
    assert!(!ran.err.contains("without --if-exists"), "{}", ran.err);
}

#[test]
fn cp_does_not_replace_what_it_has_just_copied() {
    // Small ones go in batches, large ones by themselves.
    for len in [3, (1 << 20) + 1] {
        let world = two_of_one_name(len);
        let replace = ["cp", "--if-exists", "replace", "w/g1/data", "w/g2/data", "w/out"];
        world.iov(&replace).fails(73, &["IOV_EEXISTS", "iov: w/g2/data: w/out/data was put there by this"]);
        assert!(world.cat("w/out/data") == vec![b'1'; len]);
        assert_eq!(world.count(), "3");
        // A later command may.
        world.iov(&["cp", "--if-exists", "replace", "w/g2/data", "w/out"]).ok();
        assert!(world.cat("w/out/data") == vec![b'2'; len]);
    }
    let world = two_of_one_name(3);
    world.iov(&["cp", "--if-exists", "skip", "w/g1/data", "w/g2/data", "w"]).ok();
    assert_eq!(world.cat("w/data"), b"111");
    let ran = world.iov(&["cp", "w/g1/data", "w/g2/data", "w/g1/data", "w/out/"]);
    // It was there before this command: then the advice holds.
    assert!(ran.fails(73, &["is there already", "--if-exists replace"]).err.matches("by this command").count() == 0);
    // Groups of one name become one, what is in them does not replace each other.
    world.iov(&["rm", "w/data"]).ok();
    for (from, name) in [("w/g1", "a"), ("w/g2", "b")] {
        world.with_stdin(name.as_bytes(), &["put", "-", &format!("{from}/sub/{name}"), "-p"]).ok();
        world.with_stdin(name.as_bytes(), &["put", "-", &format!("{from}/sub/same")]).ok();
    }
    let ran = world.iov(&["cp", "-r", "--if-exists", "replace", "w/g1/sub", "w/g2/sub", "w"]);
    ran.fails(73, &["w/sub/same was put there by this command"]);
    assert_eq!(world.iov(&["ls", "w/sub"]).ok().lines(), ["a", "b", "same"]);
    assert_eq!(world.cat("w/sub/same"), b"a");
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
