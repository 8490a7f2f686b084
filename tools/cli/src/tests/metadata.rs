use super::World;

#[test]
fn o4_tags_are_set_shown_and_removed() {
    let world = World::with_workspace();
    world.with_stdin(b"x", &["put", "-", "w/a", "-m", "temperature=310", "-m", "experiment=nacelle"]).ok();
    world.iov(&["tag", "w/a", "temperature=311.5", "done=true", "-d", "experiment"]).ok();
    let tags = world.iov(&["tag", "w/a", "--json"]).ok().json();
    assert_eq!(tags["metadata"], serde_json::json!({ "done": true, "temperature": 311.5 }));
    let text = world.iov(&["tag", "w/a"]).ok().text();
    assert!(text.contains("temperature  f64    311.5"), "{text}");
    world.iov(&["tag", "w/a", "iov.size=1"]).fails(64, &["clause O4"]);
    world.iov(&["tag", "w/none", "k=1"]).fails(66, &["there is no \"none\""]);
}

#[test]
fn b3_the_changes_of_one_tag_take_effect_together_or_not() {
    let world = World::with_workspace();
    world.with_stdin(b"x", &["put", "-", "w/a", "-m", "keep=1"]).ok();
    world.iov(&["tag", "w/a", "new=1", "-d", "not_there"]).fails(66, &["not_there"]);
    let tags = world.iov(&["tag", "w/a", "--json"]).ok().json();
    assert_eq!(tags["metadata"], serde_json::json!({ "keep": 1 }));
}

#[test]
fn o4_groups_and_workspaces_have_metadata_too() {
    let world = World::with_workspace();
    world.with_stdin(b"x", &["put", "-", "w/g/a", "-p"]).ok();
    world.iov(&["tag", "w/g", "campaign=1"]).ok();
    world.iov(&["tag", "w", "owner=cfd"]).ok();
    assert_eq!(world.iov(&["find", "w", "campaign = 1"]).ok().lines(), ["w/g"]);
    assert_eq!(world.iov(&["ws", "show", "w", "--json"]).ok().json()[0]["metadata"]["owner"], "cfd");
}

#[test]
fn stat_tells_facts_controls_and_metadata() {
    let world = World::with_workspace();
    world.with_stdin(&[7; 5000], &["put", "-", "w/a", "-m", "k=v"]).ok();
    let stat = world.iov(&["stat", "w/a", "--json"]).ok().json();
    assert_eq!((&stat[0]["size"], &stat[0]["state"]), (&5000.into(), &"open".into()));
    assert_eq!((&stat[0]["links"], &stat[0]["kind"]), (&1.into(), &"collection".into()));
    let text = world.iov(&["stat", "w/a"]).ok().text();
    assert!(text.contains("4.88 KiB (5000 B)") && text.contains("consistency=sequential"), "{text}");
    world.iov(&["stat", "w/a", "w/x"]).fails(66, &["no \"x\""]);
}

#[test]
fn collections_stay_or_go_as_keep_says() {
    let world = World::with_workspace();
    world.with_stdin(b"x", &["put", "-", "w/g/a", "-p"]).ok();
    let lifetime = |world: &World| world.iov(&["stat", "w/g/a", "--json"]).ok().json()[0]["lifetime"].clone();
    assert_eq!(lifetime(&world), "workspace");
    world.iov(&["keep", "w/g/a", "--lease", "90min"]).ok();
    assert_eq!(lifetime(&world), "lease(90min)");
    assert!(world.iov(&["stat", "w/g/a"]).ok().text().contains("lifetime  lease(90min)"));
    world.iov(&["keep", "w/g/a"]).ok();
    assert_eq!(lifetime(&world), "workspace");
    world.iov(&["keep", "w/g/a", "--lease", "soon"]).fails(64, &["--lease"]);
    world.iov(&["keep", "w/g"]).fails(64, &["is a group"]);
    world.iov(&["keep", "w"]).fails(64, &["is a workspace"]);
    world.iov(&["keep", "w/none"]).fails(66, &["there is no \"none\""]);
    // One that is over goes when the catalog next looks.
    world.iov(&["keep", "w/g/a", "--lease", "1ms"]).ok();
    ioverbs::seam::sleep(1_100_000_000);
    world.iov(&["tag", "w/g", "k=1"]).ok();
    assert!(world.iov(&["ls", "w/g"]).ok().lines().is_empty());
}
