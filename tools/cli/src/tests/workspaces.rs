use super::World;

#[test]
fn o1_workspaces_are_made_listed_shown_changed_and_removed() {
    let world = World::new();
    world
        .iov(&["ws", "create", "sim", "--quota", "1GiB", "--files", "10", "--expires", "2d", "-m", "project=cfd"])
        .ok();
    world.iov(&["ws", "create", "other"]).ok();
    assert_eq!(world.iov(&["ws", "list"]).ok().lines(), ["other", "sim"]);
    assert_eq!(world.iov(&["ls"]).ok().lines(), ["other", "sim"]);
    let shown = world.iov(&["ws", "show", "sim", "--json"]).ok().json();
    assert_eq!(shown[0]["quota_bytes"], 1u64 << 30);
    assert_eq!(shown[0]["quota_collections"], 10);
    assert_eq!(shown[0]["metadata"]["project"], "cfd");
    let text = world.iov(&["ws", "show", "sim"]).ok().text();
    assert!(text.contains("0 B of 1.00 GiB") && text.contains("in 2.0 d") && text.contains("cfd"), "{text}");
    world.iov(&["ws", "set", "sim", "--quota", "none", "-c", "consistency=session", "-m", "phase=2"]).ok();
    let shown = world.iov(&["stat", "sim", "--json"]).ok().json();
    assert_eq!(shown[0]["quota_bytes"], serde_json::Value::Null);
    assert_eq!(shown[0]["controls"], "consistency=session");
    assert_eq!(shown[0]["metadata"], serde_json::json!({ "phase": 2, "project": "cfd" }));
    world.iov(&["ws", "set", "sim", "--index", "temperature", "--index", "run"]).ok();
    assert_eq!(
        world.iov(&["ws", "show", "sim", "--json"]).ok().json()[0]["indexes"],
        serde_json::json!(["temperature", "run"])
    );
    assert!(world.iov(&["ws", "show", "sim"]).ok().text().contains("temperature, run"));
    world.iov(&["ws", "set", "sim", "--index", "none"]).ok();
    assert_eq!(world.iov(&["ws", "show", "sim", "--json"]).ok().json()[0]["indexes"], serde_json::json!([]));
    world.iov(&["ws", "set", "sim", "--index", "none", "--index", "run"]).fails(64, &["give it alone", "clause O5"]);
    world.iov(&["ws", "set", "sim", "--index", ""]).fails(64, &["--index none"]);
    world.iov(&["ws", "create", "plain", "--index", "none"]).ok();
    assert_eq!(world.iov(&["ws", "show", "plain", "--json"]).ok().json()[0]["indexes"], serde_json::json!([]));
    world.iov(&["ws", "rm", "plain"]).ok();
    world.iov(&["ws", "set", "sim", "--name", "simulation"]).ok();
    world.iov(&["ws", "rm", "simulation", "other"]).ok();
    assert_eq!(world.iov(&["ws", "list", "--json"]).ok().json(), serde_json::json!([]));
}

#[test]
fn o1_names_are_unique_and_errors_say_what_to_do() {
    let world = World::with_workspace();
    world.iov(&["ws", "create", "w"]).fails(73, &["IOV_EEXISTS", "clause O1", "--exist-ok"]);
    world.iov(&["ws", "create", "w", "--exist-ok"]).ok();
    world.iov(&["ws", "create", "w/x"]).fails(64, &["inside a workspace"]);
    world.iov(&["ws", "show", "nothing"]).fails(66, &["IOV_ENOTFOUND", "iov ws create nothing"]);
    world.iov(&["ws", "create", "simulation"]).ok();
    world.iov(&["ws", "show", "simulatoin"]).fails(66, &["did you mean simulation"]);
    world.iov(&["ws", "set", "w"]).fails(64, &["nothing to set"]);
}

#[test]
fn o11_only_an_empty_workspace_is_removed_unless_all_of_it_is_meant() {
    let world = World::with_workspace();
    let file = world.file("f", b"x");
    world.iov(&["put", &file, "w/a/b/c", "-p"]).ok();
    world.iov(&["ws", "rm", "w"]).fails(73, &["IOV_ENOTEMPTY", "iov ws rm -r w"]);
    world.iov(&["ws", "rm", "-r", "w"]).ok();
    assert_eq!(world.iov(&["ws", "list"]).ok().text(), "");
}

#[test]
fn o1_a_workspace_is_extended_not_shortened() {
    let world = World::new();
    world.iov(&["ws", "create", "w", "--expires", "2d"]).ok();
    world.iov(&["ws", "extend", "w", "--expires", "1d"]).fails(64, &["does not shorten"]);
    world.iov(&["ws", "extend", "w", "--expires", "9d"]).ok();
    assert!(world.iov(&["ws", "show", "w"]).ok().text().contains("in 9.0 d"));
    world.iov(&["ws", "extend", "w", "--expires", "never"]).ok();
    world.iov(&["ws", "extend", "w", "--expires", "9d"]).fails(64, &["never expires"]);
}

#[test]
fn release_and_restore_say_what_is_missing() {
    let world = World::with_workspace();
    world.iov(&["ws", "release", "w"]).fails(69, &["IOV_EUNSUPPORTED", "tier", "iov get -r w"]);
    world.iov(&["ws", "restore", "w"]).fails(69, &["IOV_EUNSUPPORTED", "tier"]);
}

#[test]
fn o1_an_expired_workspace_takes_nothing_more() {
    let world = World::with_workspace();
    let file = world.file("f", b"x");
    world.iov(&["put", &file, "w"]).ok();
    world.iov(&["ws", "set", "w", "--expires", "2020-01-01"]).ok();
    world.iov(&["put", &file, "w/g"]).fails(77, &["IOV_EDENIED", "expired"]);
    assert_eq!(world.cat("w/f"), b"x");
    assert!(world.iov(&["why", "w/f"]).ok().text().contains("expired"));
}

#[test]
fn o1_a_quota_is_kept() {
    let world = World::new();
    world.iov(&["ws", "create", "w", "--files", "2"]).ok();
    let files: Vec<String> = ["a", "b", "c"].iter().map(|n| world.file(n, b"x")).collect();
    world.iov(&["put", &files[0], &files[1], "w"]).ok();
    world.iov(&["put", &files[2], "w"]).fails(73, &["IOV_EEXHAUSTED"]);
    assert_eq!(world.iov(&["ls", "w"]).ok().lines(), ["a", "b"]);
    assert_eq!(world.iov(&["ls", "-r"]).ok().lines(), ["w", "w/a", "w/b"]);
    assert!(world.iov(&["why", "w"]).ok().text().contains("as many collections as it may have"));
}

#[test]
fn o1_no_workspace_is_born_expired_or_called_as_a_directory_calls_itself() {
    let world = World::with_workspace();
    world.iov(&["ws", "create", "x", "--expires", "2001-01-01"]).fails(64, &["is over already"]);
    for name in [".", ".."] {
        world.iov(&["ws", "create", name]).fails(64, &["is no name for a workspace"]);
        world.iov(&["ws", "set", "w", "--name", name]).fails(64, &["is no name for a workspace"]);
        let file = world.file("f", b"x");
        world.iov(&["put", &file, name]).fails(66, &["next: name a workspace"]);
    }
    assert_eq!(world.iov(&["ws", "list"]).ok().lines(), ["w"]);
}
