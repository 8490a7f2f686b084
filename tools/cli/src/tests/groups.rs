use super::{World, arg, pattern};

fn tree(world: &World) -> String {
    world.file("tree/a", b"a");
    world.file("tree/sub/b", b"b");
    world.file("tree/sub/deep/c", &pattern(2 << 20));
    std::fs::create_dir(world.path("tree/empty")).unwrap();
    arg(&world.path("tree"))
}

#[test]
fn o3_directories_become_groups_and_come_back() {
    let world = World::with_workspace();
    let tree = tree(&world);
    world.iov(&["put", &tree, "w"]).fails(64, &["is a directory", "-r"]);
    world.iov(&["put", "-r", &tree, "w"]).ok();
    let all = world.iov(&["ls", "-r", "w"]).ok().lines();
    assert_eq!(all, ["tree/", "tree/a", "tree/empty/", "tree/sub/", "tree/sub/b", "tree/sub/deep/", "tree/sub/deep/c"]);
    assert_eq!(world.cat("w/tree/sub/b"), b"b");
    world.iov(&["get", "w/tree", &arg(&world.path("x"))]).fails(64, &["-r"]);
    world.iov(&["get", "-r", "w/tree", &arg(&world.path("back"))]).ok();
    assert_eq!(std::fs::read(world.path("back/sub/deep/c")).unwrap(), pattern(2 << 20));
    assert!(world.path("back/empty").is_dir());
    assert_eq!(std::fs::read(world.path("back/a")).unwrap(), b"a");
}

#[test]
fn o3_a_directory_gets_the_name_of_the_target_or_goes_into_it() {
    let world = World::with_workspace();
    let tree = tree(&world);
    world.iov(&["put", "-r", &tree, "w/new"]).ok();
    assert_eq!(world.cat("w/new/a"), b"a");
    world.iov(&["put", "-r", &tree, "w/new"]).ok();
    assert_eq!(world.cat("w/new/tree/a"), b"a");
    let a = arg(&world.path("tree/a"));
    world.iov(&["put", &a, "w/none/"]).fails(66, &["there is no group \"none\" in w", "--parents (-p) makes it"]);
    world.iov(&["put", &a, "w/x/y/"]).fails(66, &["there is no \"x\" in w"]);
    world.iov(&["put", "-p", &a, "w/x/y/"]).ok();
    assert_eq!(world.cat("w/x/y/a"), b"a");
    world.iov(&["put", "-p", &a, "w/p/q"]).ok();
    assert_eq!(world.cat("w/p/q"), b"a");
    world.iov(&["put", &a, "w/p/q/z"]).fails(64, &["holds no names"]);
}

#[test]
fn o3_groups_are_copied_moved_and_removed() {
    let world = World::with_workspace();
    world.iov(&["put", "-r", &tree(&world), "w", "-m", "k=1"]).ok();
    world.iov(&["cp", "w/tree", "w/copy"]).fails(64, &["-r copies it"]);
    world.iov(&["cp", "-r", "w/tree", "w/copy", "-m", "by=cp"]).ok();
    assert!(world.cat("w/copy/sub/deep/c") == pattern(2 << 20));
    let tags = world.iov(&["tag", "w/copy/a", "--json"]).ok().json();
    assert_eq!(tags["metadata"], serde_json::json!({ "by": "cp", "k": 1 }));
    world.iov(&["cp", "-r", "w/tree", "w/tree/sub"]).ok();
    assert_eq!(world.cat("w/tree/sub/tree/a"), b"a");
    world.iov(&["mv", "w/copy", "w/tree/moved"]).ok();
    assert_eq!(world.cat("w/tree/moved/a"), b"a");
    world.iov(&["mv", "w/tree", "w/tree/sub/inside"]).fails(64, &["inside itself", "O3"]);
    world.iov(&["rm", "w/tree"]).fails(73, &["IOV_ENOTEMPTY", "iov rm -r w/tree"]);
    world.iov(&["rm", "-r", "w/tree"]).ok();
    assert_eq!(world.count(), "0");
}

#[test]
fn rm_of_many_names() {
    let world = World::with_workspace();
    let mut args = vec!["put".to_owned()];
    args.extend((0..1500).map(|i| world.file(&format!("many/{i}"), b"")));
    args.extend(["w/g/".to_owned(), "-p".to_owned()]);
    world.iov(&args.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    assert_eq!(world.count(), "1500");
    world.iov(&["rm", "-r", "w/g"]).ok();
    assert_eq!(world.count(), "0");
}

#[test]
fn names_that_lead_elsewhere_are_not_fetched() {
    let world = World::with_workspace();
    let file = world.file("f", b"x");
    world.iov(&["put", &file, "w/g/..", "-p"]).ok();
    world.iov(&["put", &file, "w/g/fine"]).ok();
    world.iov(&["get", "-r", "w/g", &arg(&world.path("back"))]).fails(64, &["cannot be the name of a local file"]);
    assert!(world.path("back/fine").exists());
    world.iov(&["get", "w/g/..", &arg(&world.path("named"))]).ok();
}
