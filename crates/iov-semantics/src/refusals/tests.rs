use std::{fs, path::Path};

use super::*;
use crate::{Control, stores};

const HEAD: &str = "# What cannot be had yet

Whatever a program asks for is given, given stronger, or refused. This page lists what a kind of store refuses today: one
value of one control at a time, combinations that the [clauses](clauses.md) exclude, and layouts. *Clause* is what could not be kept (with `IOV_EINVALID` or `IOV_EUNSUPPORTED`, where it is not `IOV_EREFUSED`);
*offer* is what to ask for instead.

The page is made from the code that refuses, and a test compares the two. After a change of that code,
`UPDATE_DOCS=1 cargo test -p iov-semantics` writes it anew.

";

#[test]
fn the_page_of_refusals_is_what_the_gate_says() {
    let page = format!("{HEAD}{}", table(&[("mem:", stores::mem(1)), ("file:", stores::file(1))]));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/semantics/refusals.md");
    if std::env::var_os("UPDATE_DOCS").is_some_and(|v| v == "1") {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/semantics/refusals.md is out of date: run UPDATE_DOCS=1 cargo test -p iov-semantics"
    );
}

#[test]
fn the_probes_ask_for_every_control() {
    let probes = probes();
    for control in Control::ALL {
        assert!(probes.iter().any(|p| control.is_set(p)), "{control:?}");
    }
    assert!(probes.iter().any(|p| text::format(p) == "spatiality=strided(1MiB,4KiB)"));
}

#[test]
fn the_table_has_what_is_known_to_be_refused() {
    let table = table(&[("mem:", stores::mem(1)), ("file:", stores::file(1))]);
    for line in [
        "| `mem:` | `persistence=durable` | P3 | persistence=durable: bytes on medium heap do not survive power loss | `persistence=volatile` |",
        "| `file:` | `temporality=bursty` | H2 |",
        "| `file:` | `persistence=replicated` | P4 |",
        "| `mem:` | `consistency=eventual,error=rollback` | B3 |",
        "| `file:` | `atomicity=unit(1048577)` | M1 IOV_EINVALID |",
        "| `file:` | `layout backend=NAME` | IOV_EUNSUPPORTED |",
    ] {
        assert!(table.contains(line), "{line} is not in\n{table}");
    }
    assert!(!table.contains("`file:` | `persistence=durable`"));
}
