use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::{World, arg, pattern};

impl World {
    /// A file with a mode, as an argument.
    fn with_mode(&self, name: &str, bytes: &[u8], mode: u32) -> String {
        let file = self.file(name, bytes);
        self.chmod(name, mode);
        file
    }

    fn chmod(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }

    /// The mode of a local file or directory.
    fn mode(&self, name: &str) -> u32 {
        self.path(name).metadata().unwrap().mode() & 0o7777
    }

    /// What the store says of one.
    fn stored(&self, address: &str) -> String {
        self.iov(&["stat", "--json", address]).ok().json()[0]["mode"].as_str().unwrap().to_owned()
    }
}

/// What the umask of whoever runs the tests leaves of a mode.
fn left(mode: u32) -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    mode & !u32::from_str_radix(mask.trim(), 8).unwrap()
}

/// Some files and directories that others may do more and less with.
fn tree(world: &World) -> Vec<(&'static str, u32)> {
    world.with_mode("tree/key", b"secret", 0o600);
    world.with_mode("tree/large", &pattern(2 << 20), 0o604);
    world.with_mode("tree/own/program", b"#!/bin/sh", 0o755);
    world.chmod("tree/own", 0o711);
    world.chmod("tree", 0o750);
    vec![("", 0o750), ("/key", 0o600), ("/large", 0o604), ("/own", 0o711), ("/own/program", 0o755)]
}

#[test]
fn a_copy_is_for_no_more_people_and_runs_if_its_source_does() {
    let world = World::with_workspace();
    let modes = tree(&world);
    world.iov(&["put", "-r", &arg(&world.path("tree")), "w"]).ok();
    world.iov(&["cp", "-r", "w/tree", "w/copy"]).ok();
    world.iov(&["get", "-r", "w/copy", &arg(&world.path("back"))]).ok();
    for (name, mode) in &modes {
        let mode = left(*mode);
        for top in ["w/tree", "w/copy"] {
            assert_eq!(world.stored(&format!("{top}{name}")), format!("{mode:04o}"), "{top}{name}");
        }
        assert_eq!(world.mode(&format!("back{name}")), mode, "{name}");
    }
    // In the place of one that was for fewer, and alone.
    let file = world.with_mode("closed", b"", 0o700);
    world.iov(&["get", "w/copy/own/program", &file]).ok();
    assert_eq!((world.mode("closed"), std::fs::read(&file).unwrap()), (left(0o700), b"#!/bin/sh".to_vec()));
    world.with_stdin(b"block", &["segment", "write", "w", "1", "-"]).ok();
    let secret = world.with_mode("secret", b"", 0o600);
    world.iov(&["segment", "get", "w", "1", &secret]).ok();
    assert_eq!((world.mode("secret"), std::fs::read(&secret).unwrap()), (0o600, b"block".to_vec()));
    world.iov(&["get", "w/copy/large", &arg(&world.path("alone"))]).ok();
    assert_eq!(world.mode("alone"), left(0o604));
}

#[test]
fn a_group_gets_no_more_than_its_list_says() {
    let world = World::with_workspace();
    let file = world.with_mode("f", b"", 0o660);
    let list = "posix.acl.access=u::rw-,u:1007:rw-,g::---,m::rw-,o::---";
    world.iov(&["put", &file, "w", "-m", list]).ok();
    world.iov(&["cp", "w/f", "w/copy"]).ok();
    assert_eq!((world.stored("w/f"), world.stored("w/copy")), (format!("{:04o}", left(0o660)), "0600".into()));
    for (from, to) in [("w/f", "back/f"), ("w", "all")] {
        std::fs::create_dir_all(world.path("back")).unwrap();
        world.iov(&["get", "-r", from, &arg(&world.path(to))]).ok();
    }
    assert_eq!((world.mode("back/f"), world.mode("all/f")), (0o600, 0o600));
}

#[test]
fn an_export_is_for_no_more_people_and_comes_back_with_its_modes() {
    let world = World::with_workspace();
    let modes = tree(&world);
    let (tree, out) = (arg(&world.path("tree")), arg(&world.path("out")));
    // A plain directory first.
    world.iov(&["import", &tree, "x"]).ok();
    world.iov(&["export", "x", &out]).ok();
    assert_eq!(world.mode("out/.iov-export"), 0o700);
    world.iov(&["import", &out, "y"]).ok();
    for (name, mode) in &modes[1..] {
        let mode = left(*mode);
        assert_eq!(world.mode(&format!("out/x{name}")), mode | if name.contains("own") { 0 } else { 0o400 }, "{name}");
        for ws in ["x", "y"] {
            assert_eq!(world.stored(&format!("{ws}{name}")), format!("{mode:04o}"), "{ws}{name}");
        }
    }
}
