use std::ffi::OsString;

use super::{World, arg, pattern};
use crate::interrupt::Interrupt;

#[test]
fn a_segment_is_made_filled_read_and_removed() {
    let world = World::with_workspace();
    let id = world.iov(&["segment", "create", "w", "3MiB"]).ok().text().trim().to_owned();
    assert_eq!(world.iov(&["segment", "size", "w", &id]).ok().text().trim(), "3145728");
    let bytes = pattern(2 << 20);
    world.iov(&["segment", "put", "w", &id, &world.file("f", &bytes), "--at", "1MiB"]).ok();
    let whole = world.iov(&["segment", "get", "w", &id]).ok().out;
    assert!(whole[..1 << 20].iter().all(|b| *b == 0) && whole[1 << 20..] == bytes);
    let part = world.iov(&["segment", "get", "w", &id, "--range", "1MiB+10"]).ok().out;
    assert_eq!(part, bytes[..10]);
    world.with_stdin(b"piped", &["segment", "put", "w", &id, "-"]).ok();
    world.iov(&["segment", "get", "w", &id, &arg(&world.path("back")), "--range", "0..5"]).ok();
    assert_eq!(std::fs::read(world.path("back")).unwrap(), b"piped");
    world.with_stdin(b"x", &["segment", "put", "w", &id, "-", "--at", "3MiB"]).fails(73, &["collection_size.max"]);
    let other = world.iov(&["segment", "create", "w", "100", "--json"]).ok().json()["id"].as_str().unwrap().to_owned();
    let listed = world.iov(&["segment", "ls", "w", "--bytes"]).ok().text();
    assert!(listed.contains(&format!(" 3145728 {id}\n")) && listed.contains(&format!(" 100 {other}\n")), "{listed}");
    world.iov(&["segment", "rm", "w", &id, &other]).ok();
    assert_eq!(world.iov(&["segment", "list", "w"]).ok().text(), "");
    world.iov(&["segment", "get", "w", &id]).fails(66, &["there is no segment", &id]);
    world.iov(&["segment", "create", "w", "0"]).fails(64, &["at least one byte"]);
    world.iov(&["segment", "get", "w", "no-id"]).fails(64, &["no-id", "or a number"]);
    world.iov(&["segment", "ls", "w/group"]).fails(64, &[]);
}

#[test]
fn a_workspace_is_an_endless_space_of_blocks() {
    let world = World::with_workspace();
    assert_eq!(world.iov(&["segment", "read", "w", "7", "--range", "0..4"]).ok().out, [0; 4]);
    assert_eq!(world.iov(&["segment", "read", "w", "7"]).ok().out, b"", "nobody has written it");
    world.with_stdin(b"block seven", &["segment", "write", "w", "7", "-", "--at", "1GiB"]).ok();
    let read = world.iov(&["segment", "read", "w", "7", "--range", "1073741822+8"]).ok().out;
    assert_eq!(read, b"\0\0block ");
    let id = "00000000-0000-0000-0000-000000000007";
    assert_eq!(world.iov(&["segment", "size", "w", id]).ok().text().trim(), (11 + (1 << 30)).to_string());
    assert!(world.iov(&["segment", "ls", "w"]).ok().text().contains(id));
    world.with_stdin(b"", &["segment", "write", "w", "8", "-"]).ok();
    world.with_stdin(b"x", &["segment", "put", "w", "8", "-"]).fails(66, &["there is no segment"]);
}

#[test]
fn a_file_is_replaced_by_a_segment_that_was_read_and_not_before() {
    let world = World::with_workspace();
    world.with_stdin(&pattern(9 << 20), &["segment", "write", "w", "1", "-"]).ok();
    let file = world.file("own", b"precious");
    world.iov(&["segment", "get", "w", "2", &file]).fails(66, &[]);
    world.iov(&["segment", "get", "w", "1", &file, "--range", "10MiB..11MiB"]).fails(64, &[]);
    let stop = Interrupt::default();
    stop.set();
    let args = |args: &[&str]| args.iter().map(OsString::from).collect();
    let ran = world.run(args(&["segment", "get", "w", "1", &file]), Box::new(std::io::empty()), stop.clone());
    assert_eq!((ran.code, std::fs::read(&file).unwrap()), (130, b"precious".to_vec()));
    // A stream that says nothing does not keep anybody.
    let (silent, _write) = std::io::pipe().unwrap();
    assert_eq!(world.run(args(&["segment", "write", "w", "3", "-"]), Box::new(silent), stop).code, 130);
    assert_eq!(world.parts(), 0);
    world.iov(&["segment", "get", "w", "1", &file]).ok();
    assert!(std::fs::read(&file).unwrap() == pattern(9 << 20));
    world.iov(&["segment", "get", "w", "1", "/dev/null"]).ok();
}
