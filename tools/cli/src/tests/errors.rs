use std::io::Write;

use ioverbs::Kind;

use super::{Shared, World};
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
    let code = app::run(args, streams.0, streams.1, Box::new(std::io::empty()), Interrupt::default());
    assert_eq!((code, err.0.lock().unwrap().len()), (141, 0));
}

#[test]
fn nothing_on_a_terminal_can_steer_it() {
    let world = World::with_workspace();
    world.with_stdin(b"", &["put", "-", "w/\u{1b}[31mred"]).ok();
    let out = Shared::default();
    let streams = (Out::new(Box::new(out.clone()), true), Out::new(Box::new(Shared::default()), true));
    let args = ["iov", "--store", &world.url, "ls", "w"].map(Into::into);
    app::run(args, streams.0, streams.1, Box::new(std::io::empty()), Interrupt::default());
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
