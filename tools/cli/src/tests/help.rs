use clap::CommandFactory;
use ioverbs::{Clause, Kind};

use super::World;
use crate::cli::Cli;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_help_that_begins_with_what_it_does() {
    let world = World::new();
    let names: Vec<String> = Cli::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
    assert!(names.len() >= 18, "{names:?}");
    for name in names {
        let text = world.iov(&["help", &name]).ok().text();
        assert!(text.contains("Usage: iov"), "{name}: {text}");
        assert!(!text.starts_with("Usage"), "{name} says nothing of itself");
    }
    assert!(world.iov(&["help", "ws", "create"]).ok().text().contains("--quota"));
    assert!(world.iov(&["help", "ws create"]).ok().text().contains("--quota"));
    assert!(world.iov(&["help"]).ok().text().contains("iov help EBUSY"));
    world.iov(&["help", "flying"]).fails(66, &["no command, no error"]);
}

#[test]
fn every_error_is_explained() {
    let world = World::new();
    for kind in Kind::ALL {
        let text = world.iov(&["help", kind.c_name()]).ok().text();
        assert!(text.contains(&kind.code().to_string()), "{kind:?}: {text}");
        let first = kind.text().split_whitespace().next().unwrap();
        assert!(text.contains(first), "{kind:?}: {text}");
    }
    let busy = world.iov(&["help", "EBUSY"]).ok().text();
    assert!(busy.contains("X1\n") && busy.contains("holder"), "{busy}");
    assert_eq!(world.iov(&["help", "1024"]).ok().text(), busy);
    assert_eq!(world.iov(&["help", "--", "-1024"]).ok().text(), busy);
    assert_eq!(world.iov(&["help", "ebusy", "--json"]).ok().json()["exit_code"], 75);
    assert_eq!(world.iov(&["help", "errors"]).ok().lines().len(), Kind::ALL.len());
}

#[test]
fn every_clause_has_its_text() {
    let world = World::new();
    for clause in Clause::ALL {
        let text = world.iov(&["help", clause.id()]).ok().text();
        assert!(text.starts_with(clause.id()) && text.len() > 40, "{clause}: {text}");
    }
    assert!(world.iov(&["help", "controls"]).ok().text().contains("profile=checkpoint"));
}

#[test]
fn completions_and_manual_pages_are_made() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(world.iov(&["completions", shell]).ok().text().contains("explain"), "{shell}");
    }
    let dir = super::arg(&world.path("completions"));
    world.iov(&["completions", "--dir", &dir]).ok();
    for name in ["iov.bash", "_iov", "iov.fish"] {
        assert!(world.path("completions").join(name).exists(), "{name}");
    }
    assert!(world.iov(&["man"]).ok().text().contains(".TH iov 1"));
    world.iov(&["man", "--dir", &super::arg(&world.path("man1"))]).ok();
    assert!(world.path("man1/iov.1").exists() && world.path("man1/iov-put.1").exists());
}
