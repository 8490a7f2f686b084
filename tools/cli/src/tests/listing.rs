use super::World;

fn runs() -> World {
    let world = World::with_workspace();
    for i in 0..10 {
        let (name, t) = (format!("w/run_{i}"), format!("temperature={}", 290 + 5 * i));
        world.with_stdin(&vec![0; 100 * i], &["put", "-", &name, "-m", &t, "-m", "experiment=nacelle"]).ok();
    }
    world
}

#[test]
fn o5_find_streams_what_matches() {
    let world = runs();
    let predicate = "temperature > 310 and experiment = \"nacelle\"";
    let mut found = world.iov(&["find", "w", predicate]).ok().lines();
    found.sort();
    assert_eq!(found, ["w/run_5", "w/run_6", "w/run_7", "w/run_8", "w/run_9"]);
    assert_eq!(world.iov(&["find", "w", predicate, "--count"]).ok().text(), "5\n");
    assert_eq!(world.iov(&["find", "w", predicate, "--count", "--json"]).ok().json()["count"], 5);
    let ordered = world.iov(&["find", "w", "--order", "temperature desc", "--limit", "2"]).ok().lines();
    assert_eq!(ordered, ["w/run_9", "w/run_8"]);
    let keys = ["find", "w", "iov.name = \"run_3\"", "-k", "temperature", "-k", "iov.size"];
    assert_eq!(world.iov(&keys).ok().text(), "w/run_3\ttemperature=305\tiov.size=300\n");
    let json = world.iov(&[&keys[..], &["--json"]].concat()).ok().json();
    assert_eq!(json[0]["metadata"], serde_json::json!({ "temperature": 305, "iov.size": 300 }));
    assert_eq!(json[0]["address"], "w/run_3");
}

#[test]
fn o5_find_looks_below_a_group_and_names_the_way() {
    let world = World::with_workspace();
    world.with_stdin(b"", &["put", "-", "w/a/b/c", "-p", "-m", "k=1"]).ok();
    world.with_stdin(b"", &["put", "-", "w/z", "-m", "k=1"]).ok();
    let mut all = world.iov(&["find", "w", "k = 1"]).ok().lines();
    all.sort();
    assert_eq!(all, ["w/a/b/c", "w/z"]);
    assert_eq!(world.iov(&["find", "w/a", "k = 1"]).ok().lines(), ["w/a/b/c"]);
    world.iov(&["find", "w/z"]).fails(64, &["is a collection"]);
}

#[test]
fn o5_a_predicate_that_cannot_be_read_says_where() {
    let world = runs();
    world.iov(&["find", "w", "temperature >"]).fails(64, &["IOV_EINVALID", "column", "iov help find"]);
    world.iov(&["find", "w", "iov.nonsense = 1"]).fails(64, &["IOV_EINVALID"]);
    world.iov(&["find", "w", "--limit", "0"]).fails(64, &["--count"]);
}

#[test]
fn find_explains_what_it_read_and_what_it_cost() {
    let world = runs();
    let report =
        world.iov(&["find", "w", "temperature>310 and iov.name ~ \"run_*\"", "--explain", "--json"]).ok().json();
    assert_eq!(report["read_as"], "temperature > 310 and iov.name ~ \"run_*\"");
    assert_eq!((&report["matches"], &report["requests"]), (&5.into(), &1.into()));
    assert_eq!(report["system_keys"], serde_json::json!(["iov.name"]));
    let text = world.iov(&["find", "w", "temperature > 310", "--explain"]).ok().text();
    assert!(text.contains("iov ws set w --index temperature makes"), "{text}");
}

#[test]
fn find_does_not_advise_an_index_that_there_is() {
    let world = runs();
    world.iov(&["ws", "set", "w", "--index", "temperature", "--index", "grid size"]).ok();
    let text = world.iov(&["find", "w", "temperature > 310", "--explain"]).ok().text();
    assert!(!text.contains("iov ws set") && text.contains("indexes      temperature\n"), "{text}");
    let text = world.iov(&["find", "w", "temperature > 310 and experiment = \"x\"", "--explain"]).ok().text();
    let all = "iov ws set w --index temperature --index 'grid size' --index experiment makes a search by experiment";
    assert!(text.contains(all), "{text}");
    let json = world.iov(&["find", "w", "temperature > 310 and a = 1", "--explain", "--json"]).ok().json();
    assert_eq!(json["indexed_keys"], serde_json::json!(["temperature"]));
}

#[test]
fn ls_lists_names_in_order() {
    let world = runs();
    let names = world.iov(&["ls", "w"]).ok().lines();
    assert_eq!(names, (0..10).map(|i| format!("run_{i}")).collect::<Vec<_>>());
    let long = world.iov(&["ls", "-l", "--bytes", "w"]).ok().lines();
    assert!(long[9].starts_with("c open            900  2") && long[9].ends_with("  run_9"), "{}", long[9]);
    assert!(world.iov(&["ls", "-l", "w/run_9"]).ok().text().contains("900 B"));
    assert_eq!(world.iov(&["ls", "-0", "w/run_1"]).ok().out, b"w/run_1\0");
    world.iov(&["ls", "w/run_x"]).fails(66, &["IOV_ENOTFOUND"]);
    assert_eq!(world.iov(&["ls", "w", "--json"]).ok().json().as_array().unwrap().len(), 10);
}

#[test]
fn o5_an_index_changes_no_result() {
    let world = runs();
    let before = world.iov(&["find", "w", "temperature >= 300", "--order", "iov.name"]).ok().out;
    world.iov(&["ws", "set", "w", "--index", "temperature"]).ok();
    assert_eq!(world.iov(&["find", "w", "temperature >= 300", "--order", "iov.name"]).ok().out, before);
}

#[test]
fn what_has_no_name_is_found_by_its_uuid() {
    let world = World::with_workspace();
    let session = ioverbs::open(Some(&world.url), Default::default()).unwrap();
    let ws = session.load_workspace(ioverbs::Workspace::which("w").unwrap()).unwrap();
    let c = ioverbs::create(&ws, None, None, Default::default(), Default::default()).unwrap();
    ioverbs::close(&c).unwrap();
    let found = world.iov(&["find", "w", "not exists(iov.name)"]).ok().lines();
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("w/uuid:"), "{found:?}");
    world.iov(&["mv", &found[0], "w/named"]).ok();
    assert_eq!(world.iov(&["ls", "w"]).ok().lines(), ["named"]);
    // A taken name is taken over, as by every move.
    let c = ioverbs::create(&ws, None, None, Default::default(), Default::default()).unwrap();
    ioverbs::write_at(&c, 0, b"new").unwrap();
    let address = format!("w/{}", c.uuid().unwrap());
    ioverbs::close(&c).unwrap();
    world.iov(&["mv", &address, "w/named", "--if-exists", "fail"]).fails(73, &["IOV_EEXISTS"]);
    world.iov(&["mv", &address, "w/named"]).ok();
    assert_eq!((world.cat("w/named"), world.count().as_str()), (b"new".to_vec(), "1"));
}
