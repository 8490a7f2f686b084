use crate::store::{Store, pattern};

#[test]
fn p2_what_one_process_stores_others_find_also_after_the_daemon() {
    let store = Store::with_workspace();
    let bytes = pattern(3 << 20);
    let file = store.file("f", &bytes);
    store.iov(&["put", &file, "w/f", "-m", "temperature=310"]).ok();
    assert_eq!(store.iov(&["find", "w", "temperature > 300"]).ok().lines(), ["w/f"]);
    let status = store.iov(&["status", "--json"]).ok().json();
    assert_eq!(status["running"], true);
    let pid = status["daemon"]["pid"].as_u64().unwrap();
    assert!(pid > 1);
    assert!(store.iov(&["down"]).ok().text().contains("has ended"));
    assert_eq!(store.iov(&["status", "--json"]).ok().json()["running"], false);
    assert!(store.iov(&["down"]).ok().text().contains("no daemon runs"));
    assert!(store.cat("w/f") == bytes);
    assert_ne!(store.iov(&["status", "--json"]).ok().json()["daemon"]["pid"], pid);
    store.iov(&["get", "w/f", "back"]).ok();
    assert!(std::fs::read(store.path("back")).unwrap() == bytes);
}

#[test]
fn status_starts_no_daemon_and_makes_no_store() {
    let store = Store::new();
    assert!(store.iov(&["status"]).ok().text().contains("no daemon runs"));
    assert!(!store.path("store").exists());
}

#[test]
fn a_mistyped_directory_is_told_and_not_made() {
    let store = Store::new();
    for args in [&["ls"][..], &["find", "w"], &["get", "w/a", "-"], &["stats"]] {
        let ran = store.iov(args);
        assert_eq!(ran.code, Some(66), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("there is no store in ") && ran.err.contains("iov ws create"), "{}", ran.err);
    }
    assert!(!store.path("store").exists());
    store.iov(&["ws", "create", "w"]).ok();
    assert_eq!(store.iov(&["ls"]).ok().lines(), ["w"]);
}

#[test]
fn stats_show_the_daemon_and_this_session() {
    let store = Store::with_workspace();
    let stats = store.iov(&["stats", "--json"]).ok().json();
    assert_eq!(stats["session"]["metadata_requests"], 1);
    assert!(stats["daemon"]["pid"].as_u64().is_some(), "{stats}");
}

#[test]
fn the_default_store_is_in_the_data_directory() {
    let store = Store::new();
    let run = |args: &[&str]| {
        let mut command = store.command(args);
        command.env_remove("IOVERBS_URL").env_remove("IOVERBS_STORE").env("XDG_DATA_HOME", store.path("data"));
        crate::store::Ran::new(command.output().unwrap())
    };
    run(&["ws", "create", "w"]).ok();
    assert!(store.path("data/ioverbs").is_dir());
    run(&["down"]).ok();
}

#[test]
fn p3_durable_is_granted_and_stored() {
    let store = Store::with_workspace();
    let file = store.file("f", &pattern(2 << 20));
    let ran = store.iov(&["put", &file, "w/f", "-c", "persistence=durable@close", "--stats"]).ok();
    let syncs = ran.err.lines().find_map(|l| l.strip_prefix("syncs")).expect("a sync").trim().parse::<u64>().unwrap();
    assert!(syncs >= 1);
    let stat = store.iov(&["stat", "w/f", "--json"]).ok().json();
    assert!(stat[0]["controls"].as_str().unwrap().contains("persistence=durable@close"), "{stat}");
}

#[test]
fn o5_an_error_in_a_predicate_points_at_the_place() {
    let store = Store::with_workspace();
    let ran = store.iov(&["find", "w", "temperature >"]);
    let lines: Vec<&str> = ran.err.lines().collect();
    let at = lines.iter().position(|l| l.trim() == "^").expect("a caret");
    assert_eq!(lines[at - 1].trim(), "temperature >");
    assert!(lines[0].starts_with("iov: column 14: ") && lines[0].ends_with("clause O5)"), "{}", ran.err);
    assert_eq!(ran.code, Some(64));
}

#[test]
fn a_setting_that_the_daemon_does_not_take_is_told_in_one_line() {
    let store = Store::new();
    let output = store.command(&["ws", "create", "w"]).env("IOVD_INLINE_BYTES", "100000").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("IOVD_") && said.contains("100000 is not in 0..=65536"), "{said}");
    assert!(!said.contains("--help"), "{said}");
}
