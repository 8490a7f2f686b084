use std::{
    ffi::OsString,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use super::{World, arg, pattern};
use crate::{interrupt::Interrupt, transfer::download::Part};

#[test]
fn a_file_comes_back_as_it_was() {
    let world = World::with_workspace();
    for (name, len) in [("empty", 0), ("one", 1), ("small", 47_008), ("border", 1 << 20), ("large", (1 << 20) + 1)] {
        let bytes = pattern(len);
        let file = world.file(name, &bytes);
        world.iov(&["put", &file, "w"]).ok();
        assert_eq!(world.cat(&format!("w/{name}")), bytes, "{name}");
        let back = arg(&world.path("back"));
        world.iov(&["get", &format!("w/{name}"), &back]).ok();
        assert_eq!(std::fs::read(&back).unwrap(), bytes, "{name}");
    }
    assert_eq!(world.parts(), 0);
}

#[test]
fn a_file_of_several_pieces_comes_back_as_it_was() {
    let world = World::with_workspace();
    let bytes = pattern((40 << 20) + 12_345);
    let file = world.file("big", &bytes);
    world.iov(&["put", &file, "w/big"]).ok();
    assert!(world.cat("w/big") == bytes);
    let back = arg(&world.path("back"));
    world.iov(&["get", "w/big", &back]).ok();
    assert!(std::fs::read(&back).unwrap() == bytes);
    let part = world.iov(&["cat", "w/big", "--range", "9MiB+20MiB"]).ok().out;
    assert!(part == bytes[9 << 20..29 << 20]);
    world.iov(&["cp", "w/big", "w/copy"]).ok();
    assert!(world.cat("w/copy") == bytes);
}

#[test]
fn put_does_not_replace_what_it_has_just_stored() {
    for len in [3, (1 << 20) + 1] {
        let world = World::with_workspace();
        let one = world.file("1/data", &vec![1; len]);
        let two = world.file("2/data", &vec![2; len]);
        for (i, how) in ["replace", "fail", "replace"].into_iter().enumerate() {
            if i == 1 {
                world.iov(&["rm", "w/data"]).ok();
            }
            let ran = world.iov(&["put", "--if-exists", how, &one, &two, "w"]);
            let ran = ran.fails(73, &["IOV_EEXISTS", &two, "w/data was put there by this command", "next: "]);
            assert!(!ran.err.contains("--if-exists replace"), "{}", ran.err);
            assert!(world.cat("w/data") == vec![1; len]);
        }
        world.iov(&["put", "--if-exists", "skip", &one, &two, "w"]).ok();
        assert_eq!(world.count(), "1");
        world.iov(&["put", "--if-exists", "replace", &two, "w"]).ok();
        assert!(world.cat("w/data") == vec![2; len]);
        // What failed is not there: the next one of its name is stored.
        let missing = arg(&world.path("none/data"));
        world.iov(&["put", &missing, &one, "w/g/", "-p"]).fails(66, &["none/data"]);
        assert!(world.cat("w/g/data") == vec![1; len]);
    }
}

#[test]
fn standard_input_is_stored_and_fetched_to_standard_output() {
    let world = World::with_workspace();
    let bytes = pattern((17 << 20) + 3);
    world.with_stdin(&bytes, &["put", "-", "w/stream"]).ok();
    assert!(world.iov(&["get", "w/stream", "-"]).ok().out == bytes);
    world.with_stdin(b"", &["put", "-", "w/nothing"]).ok();
    assert_eq!(world.cat("w/nothing"), b"");
    world.with_stdin(b"x", &["put", "-", "w"]).fails(64, &["has no name"]);
    world.with_stdin(b"x", &["put", "-", "-", "w/x"]).fails(66, &["there is no group"]);
}

#[test]
fn o6_a_part_behind_the_end_is_an_error() {
    let world = World::with_workspace();
    world.with_stdin(b"12345", &["put", "-", "w/a"]).ok();
    let to = arg(&world.path("back"));
    for args in [&["get", "w/a", &to][..], &["get", "w/a", "-"], &["cat", "w/a"]] {
        let ran = world.iov(&[args, &["--range", "10..20"]].concat());
        assert_eq!(ran.fails(64, &["w/a", "begins at byte 10", "there are 5 bytes"]).out, b"");
    }
    assert!(!world.path("back").exists() && world.parts() == 0);
    assert_eq!(world.iov(&["cat", "w/a", "--range", "3..20"]).ok().out, b"45");
}

#[test]
fn links_that_lead_nowhere_are_left_out_with_a_warning() {
    let world = World::with_workspace();
    world.file("tree/a", b"a");
    for (to, link) in [("a", "good"), ("nothing", "dangling"), ("circle", "circle"), ("a/below", "through")] {
        std::os::unix::fs::symlink(to, world.path("tree").join(link)).unwrap();
    }
    let ran = world.iov(&["put", "-r", &arg(&world.path("tree")), "w"]).ok();
    assert_eq!(world.iov(&["ls", "w/tree"]).ok().lines(), ["a", "good"]);
    for link in ["dangling", "circle", "through"] {
        assert!(ran.err.contains(&format!("{link} is a link that leads nowhere: left out")), "{}", ran.err);
    }
    // Who names one wants it.
    world.iov(&["put", &arg(&world.path("tree/dangling")), "w"]).fails(66, &["dangling"]);
}

#[test]
fn many_small_files_go_in_few_requests() {
    let world = World::with_workspace();
    let files: Vec<String> = (0..300).map(|i| world.file(&format!("f{i:03}"), format!("{i}").as_bytes())).collect();
    let mut args = vec!["put", "--stats"];
    args.extend(files.iter().map(String::as_str));
    args.push("w");
    let ran = world.iov(&args).ok();
    let requests = ran.err.lines().find_map(|l| l.strip_prefix("metadata_requests")).unwrap();
    let requests: u64 = requests.trim().parse().unwrap();
    assert!(requests < 40, "{requests} requests for 300 files");
    assert_eq!(world.iov(&["ls", "w"]).ok().lines().len(), 300);
    assert_eq!(world.cat("w/f299"), b"299");
    let back = arg(&world.path("back"));
    let ran = world.iov(&["get", "-r", "w", &back, "--stats"]).ok();
    assert_eq!(std::fs::read(world.path("back/f123")).unwrap(), b"123");
    let requests = ran.err.lines().find_map(|l| l.strip_prefix("metadata_requests")).unwrap();
    assert!(requests.trim().parse::<u64>().unwrap() < 20, "{requests}");
}

#[test]
fn a_taken_name_is_told_replaced_or_left() {
    let world = World::with_workspace();
    for (old, new) in [(pattern(10), pattern(20)), (pattern(3 << 20), pattern(2 << 20))] {
        let file = world.file("f", &old);
        world.iov(&["put", &file, "w", "--if-exists", "replace"]).ok();
        let file = world.file("f", &new);
        world.iov(&["put", &file, "w"]).fails(73, &["IOV_EEXISTS", "w/f is there already", "--if-exists replace"]);
        assert!(world.cat("w/f") == old);
        world.iov(&["put", &file, "w", "--if-exists", "skip"]).ok();
        assert!(world.cat("w/f") == old);
        world.iov(&["put", &file, "w", "--if-exists", "replace"]).ok();
        assert!(world.cat("w/f") == new);
    }
    assert_eq!(world.count(), "1", "what was replaced, and what was not stored, is gone");
}

#[test]
fn one_failure_does_not_keep_the_others_back() {
    let world = World::with_workspace();
    let (a, b) = (world.file("a", b"a"), world.file("b", b"b"));
    let missing = arg(&world.path("missing"));
    world.iov(&["put", &a, &missing, &b, "w"]).fails(66, &["missing", "IOV_ENOTFOUND"]);
    assert_eq!(world.iov(&["ls", "w"]).ok().lines(), ["a", "b"]);
    let ran = world.iov(&["put", &a, &b, "w"]).fails(73, &["w/a", "w/b"]);
    assert_eq!(ran.err.matches("IOV_EEXISTS").count(), 2);
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let world = World::with_workspace();
    let file = world.file("f", &pattern(30 << 20));
    let stop = Interrupt::default();
    stop.set();
    let args = ["put", &file, "w"].iter().map(OsString::from).collect();
    let ran = world.run(args, Box::new(std::io::empty()), stop.clone());
    assert_eq!(ran.code, 130, "{ran:?}");
    assert_eq!(world.count(), "0");
    world.iov(&["put", &file, "w"]).ok();
    let back = arg(&world.path("back"));
    let args = ["get", "w/f", &back].iter().map(OsString::from).collect();
    assert_eq!(world.run(args, Box::new(std::io::empty()), stop).code, 130);
    assert!(!world.path("back").exists() && world.parts() == 0);
}

/// A stream that asks to stop, and one that breaks.
struct Trouble {
    given: usize,
    stop: Option<Interrupt>,
}

impl std::io::Read for Trouble {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.given += buf.len();
        if self.given < 20 << 20 {
            return Ok(buf.len());
        }
        match &self.stop {
            Some(stop) => {
                stop.set();
                Ok(buf.len())
            }
            None => Err(std::io::Error::other("the tape is torn")),
        }
    }
}

#[test]
fn a_stream_that_breaks_or_is_interrupted_leaves_nothing_behind() {
    let world = World::with_workspace();
    let args = || ["put", "-", "w/f"].iter().map(OsString::from).collect();
    let stop = Interrupt::default();
    let ran = world.run(args(), Box::new(Trouble { given: 0, stop: Some(stop.clone()) }), stop);
    assert_eq!(ran.code, 130, "{ran:?}");
    let ran = world.run(args(), Box::new(Trouble { given: 0, stop: None }), Interrupt::default());
    ran.fails(69, &["the tape is torn"]);
    assert_eq!(world.count(), "0");
    assert_eq!(world.iov(&["ls", "w"]).ok().text(), "");
}

#[test]
fn local_files_are_replaced_as_cp_does_unless_told_otherwise() {
    let world = World::with_workspace();
    let file = world.file("f", b"new");
    world.iov(&["put", &file, "w"]).ok();
    let old = world.file("old", b"old");
    world.iov(&["get", "w/f", &old, "--if-exists", "fail"]).fails(73, &["is there already"]);
    world.iov(&["get", "w/f", &old, "--if-exists", "skip"]).ok();
    assert_eq!(std::fs::read(&old).unwrap(), b"old");
    world.iov(&["get", "w/f", &old]).ok();
    assert_eq!(std::fs::read(&old).unwrap(), b"new");
    world.iov(&["get", "w/f", &arg(world.dir.path())]).ok();
    let elsewhere = arg(&world.path("no/such/folder/f"));
    world.iov(&["get", "w/f", &elsewhere]).fails(66, &["a new file in", "no/such/folder: No such file"]);
}

#[test]
fn a_device_is_written_to_as_it_is() {
    let world = World::with_workspace();
    world.with_stdin(b"x", &["put", "-", "w/f"]).ok();
    world.iov(&["get", "w/f", "/dev/null"]).ok();
    world.iov(&["put", "/dev/null", "w/nothing"]).ok();
    assert_eq!(world.cat("w/nothing"), b"");
}

#[test]
fn what_a_process_has_open_is_written_to_as_it_is_and_stays_what_it_is() {
    let world = World::with_workspace();
    world.with_stdin(b"bytes ", &["put", "-", "w/f"]).ok();
    world.with_stdin(b"block ", &["segment", "write", "w", "1", "-"]).ok();
    let own = world.file("own", b"own ");
    let open = std::fs::File::open(&own).unwrap();
    // As /dev/stdout leads to what a shell has opened.
    let link = |name: &str, to: &str| {
        std::os::unix::fs::symlink(to, world.path(name)).unwrap();
        arg(&world.path(name))
    };
    let opened = link("opened", &format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open)));
    let (via, out) = (link("via", "opened"), link("out", "/proc/self/fd/1"));
    for to in [&opened, &via] {
        world.iov(&["get", "w/f", to]).ok();
        world.iov(&["segment", "get", "w", "1", to]).ok();
    }
    assert_eq!(std::fs::read(own).unwrap(), b"own bytes block bytes block ");
    assert_eq!(world.iov(&["get", "w/f", &out]).ok().out, b"bytes ");
    assert_eq!(world.iov(&["segment", "read", "w", "1", &out]).ok().out, b"block ");
    assert!([opened, via, out].iter().all(|link| Path::new(link).is_symlink()));
    assert_eq!(world.parts(), 0);
}

#[test]
fn a_directory_that_a_process_has_open_is_written_into() {
    let world = World::with_workspace();
    world.with_stdin(b"bytes", &["put", "-", "w/f"]).ok();
    world.file("tree/below", b"below");
    world.iov(&["put", "-r", &arg(&world.path("tree")), "w/g"]).ok();
    let open = std::fs::File::open(&world.dir).unwrap();
    let directory = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
    world.iov(&["get", "w/f", &directory]).ok();
    assert_eq!(std::fs::read(world.path("f")).unwrap(), b"bytes");
    world.iov(&["get", "-r", "w/g", &directory]).ok();
    assert_eq!(std::fs::read(world.path("g/below")).unwrap(), b"below");
    assert_eq!(world.parts(), 0);
}

#[test]
fn files_that_are_called_as_parts_are_left_alone() {
    let world = World::with_workspace();
    let bytes = pattern(2 << 20);
    world.with_stdin(b"report", &["put", "-", "w/report"]).ok();
    world.with_stdin(&bytes, &["put", "-", "w/report.part"]).ok();
    // What the same command fetches.
    world.iov(&["get", "-r", "w", &arg(&world.path("all"))]).ok();
    assert_eq!(std::fs::read(world.path("all/report")).unwrap(), b"report");
    assert!(std::fs::read(world.path("all/report.part")).unwrap() == bytes);
    assert_eq!(std::fs::read_dir(world.path("all")).unwrap().count(), 2);
    // What is there, and what a link of that name leads to.
    world.file("report.part", b"own");
    let (victim, link) = (world.file("victim", b"precious"), world.path("back.part"));
    std::os::unix::fs::symlink(&victim, &link).unwrap();
    for name in ["report", "back"] {
        world.iov(&["get", "w/report", &arg(&world.path(name))]).ok();
        assert!(world.path(name).symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read(world.path(name)).unwrap(), b"report");
    }
    assert_eq!(std::fs::read(world.path("report.part")).unwrap(), b"own");
    assert_eq!((std::fs::read(victim).unwrap(), link.is_symlink()), (b"precious".to_vec(), true));
    // A name as long as names may be.
    let long = arg(&world.path(&"n".repeat(255)));
    world.iov(&["get", "w/report", &long]).ok();
    assert_eq!(std::fs::read(long).unwrap(), b"report");
}

#[test]
fn a_part_takes_its_name_with_or_without_one_before() {
    let world = World::with_workspace();
    let target = world.path("target");
    for make in [Part::new, Part::named] {
        for old in [None, Some("old")] {
            let _ = std::fs::remove_file(&target);
            old.map(|old| world.file("target", old.as_bytes()));
            drop(make(&target, 0o600).unwrap());
            assert_eq!(std::fs::read_to_string(&target).ok().as_deref(), old);
            let part = make(&target, 0o600).unwrap();
            part.file().write_all_at(b"new", 0).unwrap();
            assert_eq!(std::fs::read_to_string(&target).ok().as_deref(), old);
            part.finish().unwrap();
            assert_eq!(std::fs::read(&target).unwrap(), b"new");
            assert_eq!((world.parts(), target.metadata().unwrap().mode() & 0o777), (0, 0o600));
        }
    }
}

#[test]
fn a_file_that_says_less_than_it_has_is_stored_to_its_end() {
    let world = World::with_workspace();
    // Files of the kernel say that they have no bytes.
    for path in ["/proc/kallsyms", "/proc/version"] {
        let Ok(bytes) = std::fs::read(path) else { continue };
        world.iov(&["put", path, "w/f", "--if-exists", "replace"]).ok();
        assert!(world.cat("w/f") == bytes, "{path}: {} of {} bytes", world.cat("w/f").len(), bytes.len());
        let (from, link) = (world.path("from"), world.path("from/f"));
        let _ = std::fs::remove_dir_all(&from);
        std::fs::create_dir(&from).unwrap();
        std::os::unix::fs::symlink(path, link).unwrap();
        let ran = world.iov(&["import", &arg(&from), "imported", "--replace"]);
        if bytes.len() > 1 << 20 {
            ran.fails(64, &["it says it has 0 bytes and has more", "iov put"]);
        } else {
            ran.ok();
            assert_eq!(world.cat("imported/f"), bytes);
        }
    }
}

#[test]
fn what_was_stored_is_told_as_json() {
    let world = World::with_workspace();
    let (a, b) = (world.file("a", b"12345"), world.file("b", &pattern(2 << 20)));
    let stored = world.iov(&["put", "--json", &a, &b, "w"]).ok().json();
    let mut found: Vec<(String, u64)> = stored
        .as_array()
        .unwrap()
        .iter()
        .map(|i| (i["address"].as_str().unwrap().to_owned(), i["bytes"].as_u64().unwrap()))
        .collect();
    found.sort();
    assert_eq!(found, [("w/a".to_owned(), 5), ("w/b".to_owned(), 2 << 20)]);
}
