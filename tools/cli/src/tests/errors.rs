use std::io::Write;

use ioverbs::Kind;

use super::{Shared, World, arg};
use crate::{app, failure::code, interrupt::Interrupt, output::Out};

#[test]
fn every_error_has_an_exit_code_of_sysexits() {
    for kind in Kind::ALL {
        let code = code(*kind);
        assert!((64..=78).contains(&code) || code == 130, "{kind:?}: {code}");
    }
}

#[test]
fn errors_name_kind_clause_and_a_next_step() {
    let world = World::with_workspace();
    let ran = world.iov(&["cat", "w/nothing"]).fails(66, &[]);
    assert_eq!(
        ran.err,
        "iov: w/nothing: there is no \"nothing\" in w (IOV_ENOTFOUND, clause O3)\n  next: iov ls w\n  more: iov help ENOTFOUND\n"
    );
    let ran = world.iov(&["cat", "w/nothing", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((&error["error"], &error["clause"]), (&"IOV_ENOTFOUND".into(), &"O3".into()));
    assert_eq!(error["next"], "iov ls w");
    // As Python spells it.
    assert_eq!(error["outcome"], "not applied");
}

#[test]
fn usage_errors_are_json_where_json_is_asked_for() {
    let world = World::new();
    let wrong: [&[&str]; 5] = [
        &["--json", "fly"],
        &["ls", "/w", "--json"],
        &["get", "--json"],
        &["put", "--json", "f"],
        &["ls", "--json", "--no-such-option"],
    ];
    for args in wrong {
        let ran = world.iov(args).fails(64, &[]);
        let error: serde_json::Value = serde_json::from_str(&ran.err).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
        assert_eq!((&error["error"], &error["code"]), (&"IOV_EINVALID".into(), &1010.into()), "{args:?}");
        assert_eq!(error["outcome"], "not applied");
        assert!(error["detail"].as_str().unwrap().len() > 10 && error["next"].is_string(), "{error}");
        assert_eq!(ran.text(), "");
    }
    // Behind `--` it is a word like any other.
    assert!(world.iov(&["fly", "--", "--json"]).fails(64, &["unrecognized"]).err.starts_with("error:"));
    assert!(world.iov(&["--json", "--help"]).ok().text().contains("Usage: iov"));
}

#[test]
fn a_list_of_nothing_that_was_found_is_not_written() {
    let world = World::with_workspace();
    let missing = arg(&world.path("missing"));
    let wrong: [&[&str]; 7] = [
        &["ls", "w/x"],
        &["ls", "x"],
        &["get", "w/x"],
        &["stat", "w/x", "w/y"],
        &["ws", "show", "x"],
        &["put", &missing, "w"],
        &["cp", "w/x", "w/y"],
    ];
    for args in wrong {
        let ran = world.iov(&[&["--json"], args].concat()).fails(66, &["IOV_ENOTFOUND"]);
        assert_eq!(ran.text(), "", "{args:?}");
    }
    // What is there is listed all the same, and an empty list is one.
    world.with_stdin(b"x", &["put", "-", "w/a"]).ok();
    let ran = world.iov(&["--json", "stat", "w/a", "w/x"]).fails(66, &["IOV_ENOTFOUND"]);
    assert_eq!(ran.json().as_array().unwrap().len(), 1);
    world.iov(&["ws", "create", "empty"]).ok();
    assert_eq!(world.iov(&["--json", "ls", "empty"]).ok().json(), serde_json::json!([]));
}

#[test]
fn next_steps_are_ones_that_there_are() {
    for kind in Kind::ALL {
        let error = ioverbs::Error::new(*kind, "");
        let next = crate::advice::advice(&error);
        for word in ["scrub", "iov_", "batch id", "the detail"] {
            assert!(!next.contains(word), "{kind:?}: {next}");
        }
    }
    let world = World::with_workspace();
    let file = world.file("f", b"x");
    world.iov(&["put", &file, "w/file"]).ok();
    world
        .iov(&["put", "-p", &file, "w/file/x"])
        .fails(64, &["w/file is a collection: it holds no names", "clause O3", "next: choose another name"]);
    let ran = world.iov(&["tag", "w/file", "iov.size=3"]).fails(64, &["clause O4", "next: choose a key"]);
    assert!(!ran.err.contains("iov_setattr"), "{}", ran.err);
    world.iov(&["tag", "w/file", "-d", "iov.size"]).fails(64, &["next: choose a key"]);
    let help = world.iov(&["help", "ECORRUPT"]).ok().text();
    assert!(help.contains("With iov: restore it from a copy"), "{help}");
}

#[test]
fn a_local_file_has_no_workspace_owner() {
    let denied = ioverbs::Error::denied("the file x: Permission denied");
    assert!(!crate::advice::advice(&denied).contains("workspace"));
    let denied = denied.with_clause(ioverbs::Clause::A1);
    assert!(crate::advice::advice(&denied).contains("owner of the workspace"));
}

#[test]
fn suggested_commands_can_be_copied() {
    use crate::output::quoted;
    for (name, shown) in [
        (&b"plain-1.0_x/y:z"[..], "plain-1.0_x/y:z"),
        (b"two words", "'two words'"),
        (b"it's", r"'it'\''s'"),
        (b"$HOME", "'$HOME'"),
        (b"*", "'*'"),
        (b"", "''"),
        ("\u{e9}t\u{e9}".as_bytes(), "'\u{e9}t\u{e9}'"),
        (b"a\x1b\xff", r"$'a\x1b\xff'"),
    ] {
        assert_eq!(quoted(name), shown);
    }
    let world = World::new();
    world.iov(&["ws", "create", "my data"]).ok();
    world.with_stdin(b"x", &["put", "-", "my data/run one"]).ok();
    let near = "next: did you mean 'my data/run one'? `iov ls 'my data'` shows all";
    world.iov(&["cat", "my data/run onne"]).fails(66, &[near]);
    world.iov(&["rm", "my data"]).fails(64, &["next: iov ws rm 'my data'"]);
    world.iov(&["ws", "create", "my data"]).fails(73, &["iov ws show 'my data', or"]);
    world.iov(&["ls", "your data"]).fails(66, &["next: iov ws create 'your data'"]);
}

#[test]
fn behind_two_dashes_everything_is_a_name() {
    let world = World::with_workspace();
    std::fs::write(world.path("-dash"), b"1").unwrap();
    std::fs::write(world.path("--json"), b"2").unwrap();
    let at = |name: &str| arg(&world.path(name));
    let ran = world.iov(&["put", "--", &at("-dash"), &at("--json"), "w"]).ok();
    assert_eq!((ran.text(), ran.err), (String::new(), String::new()));
    assert_eq!(world.iov(&["ls", "w"]).ok().lines(), ["--json", "-dash"]);
    world.iov(&["put", "--", "--json", "w"]).fails(66, &["the file --json"]);
    world.iov(&["put", "--", "--json", "-x", "w"]).fails(66, &["the file --json", "the file -x"]);
    world.iov(&["rm", "--", "w/-dash", "--json"]).fails(66, &["no workspace \"--json\""]);
    world.iov(&["cp", "--", "w/--json", "w/-r"]).ok();
    world.iov(&["mv", "--", "w/-r", "w/-f"]).ok();
    assert_eq!(world.iov(&["ls", "w"]).ok().lines(), ["--json", "-f"]);
    world.iov(&["tag", "--", "w/-f", "-d=1"]).ok();
    assert_eq!(world.iov(&["tag", "w/-f", "--json"]).ok().json()["metadata"], serde_json::json!({ "-d": 1 }));
}

#[test]
fn wrong_usage_is_64_and_help_is_0() {
    let world = World::new();
    world.iov(&["fly"]).fails(64, &["unrecognized subcommand"]);
    world.iov(&["put", "f"]).fails(64, &["TARGET"]);
    world.iov(&["ls", "/w"]).fails(64, &["begins with '/'"]);
    assert!(world.iov(&["--help"]).ok().text().contains("put"));
    assert!(world.iov(&["--version"]).ok().text().starts_with("iov "));
    world.iov(&["ls", "--timeout", "soon"]).fails(64, &["soon"]);
}

#[test]
fn a_store_that_there_is_not_says_which_there_are() {
    let mut world = World::new();
    world.url = "ftp:x".into();
    world.iov(&["ls"]).fails(69, &["IOV_EUNSUPPORTED", "file:"]);
    world.url = "nonsense".into();
    world.iov(&["ls"]).fails(64, &["is not a store URL"]);
    world.url = "mem:x".into();
    world.iov(&["ls", "iov://host/w"]).fails(64, &["in another store"]);
    world.iov(&["status"]).fails(69, &["has no daemon"]);
}

#[test]
fn a_reader_that_goes_ends_the_command_quietly() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let world = World::with_workspace();
    let err = Shared::default();
    let streams = (Out::new(Box::new(Gone), false), Out::new(Box::new(err.clone()), false));
    let args = ["iov", "--store", &world.url, "ls"].map(Into::into);
    let code = app::run(args, streams.0, streams.1, Box::new(std::io::empty()), |_| Interrupt::default());
    assert_eq!((code, err.0.lock().unwrap().len()), (141, 0));
}

#[test]
fn nothing_on_a_terminal_can_steer_it() {
    let world = World::with_workspace();
    world.with_stdin(b"", &["put", "-", "w/\u{1b}[31mred"]).ok();
    let out = Shared::default();
    let streams = (Out::new(Box::new(out.clone()), true), Out::new(Box::new(Shared::default()), true));
    let args = ["iov", "--store", &world.url, "ls", "w"].map(Into::into);
    app::run(args, streams.0, streams.1, Box::new(std::io::empty()), |_| Interrupt::default());
    assert_eq!(out.0.lock().unwrap().as_slice(), b"\\u{1b}[31mred\n");
}

#[test]
fn counters_show_what_a_command_has_cost() {
    let world = World::with_workspace();
    let ran = world.with_stdin(&[1; 5000], &["put", "-", "w/a", "--stats"]).ok();
    assert!(ran.err.lines().any(|l| l.starts_with("bytes_written") && l.ends_with(" 5000")), "{}", ran.err);
    let ran = world.iov(&["cat", "w/a", "--stats", "--json"]).ok();
    let counters: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(counters["counters"]["bytes_read"], 5000);
    let stats = world.iov(&["stats", "--json"]).ok().json();
    assert_eq!(stats["session"]["metadata_requests"], 1);
    assert_eq!(stats["daemon"], serde_json::Value::Null);
}

#[test]
fn a_next_step_fits_what_was_said() {
    let advice = |e: &ioverbs::Error| crate::advice::advice(e).to_owned();
    let own = ioverbs::Error::busy("it is up").with_next("end it").context("the store");
    assert_eq!(advice(&own), "end it");
    // Who may use a store is no question of its workspaces.
    let denied = ioverbs::Error::denied("the secret can be read by others: chmod 600 it");
    assert!(advice(&denied.with_clause(ioverbs::Clause::A2)).contains("as is said there"));
    // 30: a file system that is mounted read-only.
    let readonly = ioverbs::Error::from(std::io::Error::from_raw_os_error(30));
    assert_eq!(code(readonly.kind()), 77);
    assert!(advice(&readonly).contains("choose another place"));
    let unreadable = ioverbs::Error::from(std::io::Error::from_raw_os_error(13)).context("read-only.h5");
    assert!(advice(&unreadable).contains("owner and permissions"));
    let expired = ioverbs::Error::denied("the workspace \"w\" has expired").with_clause(ioverbs::Clause::O1);
    assert!(advice(&expired).contains("--expires"));
    let mut world = World::with_workspace();
    world.iov(&["umount", "not-there"]).fails(64, &["next: findmnt"]);
    world.iov(&["bench", "micro", "--runs", "1", "--collections", "1000"]).fails(64, &["2000 collections"]);
    world.url = "file:".into();
    world.iov(&["ls"]).fails(64, &["names no directory"]);
    world.url = "file:/etc/passwd".into();
    world.iov(&["ls"]).fails(64, &["is not a directory", "next: name the directory of a store"]);
}
