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

/// A job's ranks are bound to a processor each; the daemon that the first of them starts serves them all.
#[test]
fn a_daemon_that_is_started_on_demand_is_not_bound_to_the_processor_of_who_came_first() {
    let list = |status: &str| {
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
    };
    let of = |path: &str| list(&std::fs::read_to_string(path).unwrap());
    // Whatever these tests are bound to.
    let everywhere = std::process::Command::new("taskset").args(["-c", "0-1023", "cat", "/proc/self/status"]).output();
    let all = list(&String::from_utf8_lossy(&everywhere.unwrap().stdout));
    let first = all.split([',', '-']).next().unwrap();
    let store = Store::with_workspace();
    let runs_on = |args: &[&str]| {
        store.iov(&["down"]).ok();
        let command = store.command(args);
        let mut bound = std::process::Command::new("taskset");
        bound.args(["-c", first]).arg(command.get_program()).args(args);
        bound.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        assert!(bound.output().unwrap().status.success(), "{args:?}");
        let pid = &store.iov(&["status", "--json"]).ok().json()["daemon"]["pid"];
        of(&format!("/proc/{pid}/status"))
    };
    assert_eq!(runs_on(&["ls", "w"]), all);
    assert_eq!(runs_on(&["up"]), first, "whoever asks for it says where");
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
fn suggested_commands_name_the_store_that_was_named() {
    let store = Store::with_workspace();
    let url = store.url();
    let ran = store.iov(&["-S", &url, "ls", "none"]);
    ran.fails(66, &["next: iov -S ", "ws create none", "more: iov help ENOTFOUND"]);
    let elsewhere = format!("file:{}", store.path("else where").display());
    store
        .iov(&["-S", &elsewhere, "ls"])
        .fails(66, &["there is no store in ", "next: iov -S 'file:", "else where' ws create"]);
}

#[test]
fn a2_the_store_of_somebody_else_is_denied_and_not_missing() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};
    let store = Store::with_workspace();
    if !rustix::process::geteuid().is_root() {
        return; // only root can be two users
    }
    std::fs::set_permissions(store.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = store.path("iov");
    // By another process: a child that a test beside this one forks meanwhile would hold a descriptor of this one for writing,
    // and then the program cannot be run (ETXTBSY).
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_iov")).arg(&program).status();
    assert!(copied.unwrap().success());
    for args in [&["ls"][..], &["find", "w"], &["get", "w/a", "-"], &["status"], &["ws", "create", "x"]] {
        let mut command = std::process::Command::new(&program);
        command.args(args).env("IOVERBS_URL", store.url()).env("IOVERBS_IOVD", &program);
        command.uid(65_534).gid(65_534).current_dir("/");
        let ran = crate::store::Ran::new(command.output().unwrap());
        ran.fails(77, &["IOV_EDENIED", "clause A2", "belongs to another user"]);
    }
}

#[test]
fn i1_why_finds_what_is_damaged() {
    use std::os::unix::fs::FileExt;
    let store = Store::with_workspace();
    let file = store.file("f", &pattern(3 << 20));
    store.iov(&["put", &file, "w/f", "-c", "persistence=durable"]).ok();
    assert!(store.iov(&["why", "w/f"]).ok().text().contains("nothing stands in the way"));
    let data = store.files("data");
    assert_eq!(data.len(), 1, "{data:?}");
    let damage = |change: &dyn Fn(&std::fs::File)| {
        store.iov(&["down"]).ok();
        change(&std::fs::OpenOptions::new().write(true).open(&data[0]).unwrap());
    };
    damage(&|f| [5000, 2 << 20].iter().for_each(|at| f.write_all_at(b"bad", *at).unwrap()));
    let why = store.iov(&["why", "w/f", "--json"]).ok().json();
    let found: Vec<&str> = why.as_array().unwrap().iter().map(|f| f["why"].as_str().unwrap()).collect();
    assert_eq!(found.len(), 2, "{why}");
    assert!(found[0].starts_with("bytes 4096 to 8192") && found[1].starts_with("bytes 2097152 to"), "{why}");
    assert_eq!((&why[0]["clause"], &why[0]["stops"]), (&"I1".into(), &"reads there".into()));
    assert!(store.iov(&["why", "w/f", "--quick"]).ok().text().contains("nothing stands in the way"));
    store.iov(&["get", "w/f", "back"]).fails(65, &["IOV_ECORRUPT", "next: restore it from a copy"]);
    store.iov(&["get", "w/f", "part", "--range", "1MiB+4KiB"]).ok();
    damage(&|f| f.set_len(100_000).unwrap());
    let why = store.iov(&["why", "w/f"]).ok().text();
    assert!(why.contains("should have at least") && why.contains("(I1)"), "{why}");
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
    // Whoever only looks makes none.
    for args in [&["ls"][..], &["ws", "list"], &["find", "w"], &["explain", "-c", "profile=posix"], &["stats"]] {
        run(args).fails(66, &["IOV_ENOTFOUND", "you have no store yet", "iov ws create NAME makes one"]);
    }
    assert!(run(&["--json", "ls"]).text().is_empty());
    assert!(!store.path("data").exists());
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

#[test]
fn a_directory_for_bytes_is_meant_as_seen_from_here() {
    let store = Store::new();
    store.iov(&["up", "--dir", "store", "--storage", "files:bytes,io=direct"]).ok();
    store.iov(&["ws", "create", "w"]).ok();
    let file = store.file("f", &pattern(1 << 20));
    store.iov(&["put", &file, "w/f"]).ok();
    assert!(store.path("bytes").is_dir(), "beside the store");
    assert!(store.cat("w/f") == pattern(1 << 20));
    store.iov(&["down"]).ok();
}

#[test]
fn small_collections_stay_beside_their_records_when_they_are_read() {
    let store = Store::with_workspace();
    for (name, len) in [("a", 0), ("b", 1), ("c", 8000)] {
        let file = store.file(name, &pattern(len));
        store.iov(&["put", &file, "w"]).ok();
        assert!(store.cat(&format!("w/{name}")) == pattern(len));
        store.iov(&["get", &format!("w/{name}"), &format!("back-{name}")]).ok();
        assert!(std::fs::read(store.path(&format!("back-{name}"))).unwrap() == pattern(len));
    }
    store.iov(&["export", "w", "plain"]).ok();
    assert!(store.files("data").is_empty(), "{:?}", store.files("data"));
}

#[test]
fn a_directory_of_other_peoples_files_becomes_no_store() {
    use std::os::unix::fs::PermissionsExt;
    let store = Store::new();
    let dir = store.path("store");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o775)).unwrap();
    std::fs::write(dir.join("thesis.txt"), "x").unwrap();
    for args in [&["ws", "create", "w"][..], &["up"]] {
        store.iov(args).fails(64, &["thesis.txt", "new or empty"]);
    }
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o775);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
    // That is one's own.
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
    store.iov(&["ws", "create", "w"]).ok();
}

#[test]
fn settings_that_make_no_sense_are_told() {
    let store = Store::with_workspace();
    for (name, value) in [("IOVERBS_POLL_US", "abc"), ("IOVERBS_CHANNELS", "many")] {
        let mut ls = store.command(&["ls"]);
        let ran = crate::store::Ran::new(ls.env(name, value).output().unwrap());
        ran.fails(64, &[&format!("{name}={value}"), "it is a number from"]);
    }
    let mut ls = store.command(&["ls"]);
    crate::store::Ran::new(ls.env("IOVERBS_POLL_US", "5000").env("IOVERBS_CHANNELS", "99").output().unwrap()).ok();
}

#[test]
fn o2_of_several_targets_a_default_names_only_what_there_is() {
    let store = Store::new();
    let said = store.iov(&["up", "--storage", "shmem:64MiB", "--storage", "files"]).ok().text();
    assert!(said.contains("with 2 targets"), "{said}");
    store.iov(&["up", "--storage", "files"]).fails(75, &["next: iov down --keep, then this command again"]);
    store.iov(&["ws", "create", "w"]).ok();
    let group = store.with_stdin(b"x", &["put", "-p", "-", "w/g/f"]);
    group.ok();
    for address in ["w", "w/g"] {
        for (option, value, why) in [
            ("--storage", "disk", "keeps bytes in"),
            ("--policy", "bogus", "no placement policy"),
            ("--policy", "targets:", "no placement policy"),
            ("--policy", "targets:a", "no placement policy"),
        ] {
            store.iov(&["pattern", "set", address, option, value]).fails(69, &[why]);
        }
        store.iov(&["pattern", "set", address, "--policy", "targets:9"]).fails(66, &["no target 9"]);
        store.iov(&["pattern", "set", address, "--policy", "targets:1", "--storage", "files", "--targets", "2"]).ok();
    }
    store.with_stdin(b"x", &["put", "-", "w/h"]).ok();
    store.iov(&["down"]).ok();
}
