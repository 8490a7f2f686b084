use std::{fs, path::Path};

use iov_types::{Kind, Limits};
use proptest::prelude::*;

use super::*;
use crate::{
    Control, admit,
    explain::{self, Origin, Sources},
    generate, refusals, resolve, stores, text,
};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/semantics/controls.md");
    fs::read_to_string(path).expect("docs/semantics/controls.md")
}

/// The rows of the table of profiles, as the code would write them.
fn rows() -> String {
    let shown = |text: String| text.replace(',', "`, `");
    NAMES.iter().map(|n| format!("| `{n}` | `{}` |\n", shown(text::format(&get(n).unwrap())))).collect()
}

#[test]
fn the_table_of_profiles_in_the_docs_is_true() {
    assert!(page().contains(&rows()), "docs/semantics/controls.md must hold\n{}", rows());
}

/// Every line of a fence of controls in the docs can be parsed, and every store gives or refuses it.
#[test]
fn the_examples_in_the_docs_can_be_parsed() {
    let page = page();
    let examples: Vec<&str> =
        page.split("```controls\n").skip(1).flat_map(|rest| rest.split("```").next().unwrap_or("").lines()).collect();
    assert!(examples.len() > 5);
    for example in examples {
        let mut c = Controls::default();
        text::parse(&mut c, example).unwrap_or_else(|e| panic!("{example}: {e}"));
        assert!(resolve::create(&Controls::default(), &c, &generate::able()).is_ok(), "{example}");
    }
}

/// Each value has a row, under its control, with the clause that `explain` names.
#[test]
fn the_table_of_controls_in_the_docs_is_complete() {
    let page = page();
    let (mut rows, mut control) = (Vec::new(), "");
    for row in page.lines().filter(|l| l.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, value, .., clauses] = cells[..] else { continue };
        control = name.split('`').nth(1).unwrap_or(control);
        rows.extend(value.split(['`', '(']).nth(1).map(|value| (control, value, clauses)));
    }
    let able = generate::able();
    for asked in refusals::probes() {
        let Ok(e) = resolve::create(&Controls::default(), &asked, &able) else { continue };
        let contract = admit(&e, None, &able).unwrap();
        let sources = Sources { asked: &asked, workspace: &Controls::default(), collection: None };
        for line in explain::lines(&contract, &sources).iter().filter(|l| l.origin == Origin::Asked) {
            let value = line.value.split('(').next().unwrap_or("");
            let sizes = matches!(line.control, Control::RequestSize | Control::CollectionSize);
            let found = rows.iter().any(|(control, of_row, clauses)| {
                *control == line.control.name()
                    && (sizes || *of_row == value)
                    && clauses.split(", ").any(|c| c == line.clause.id())
            });
            assert!(found, "controls.md lacks {}={} with {}", line.control.name(), line.value, line.clause);
        }
    }
}

#[test]
fn every_profile_is_given_by_a_file_store() {
    for name in NAMES {
        let file = stores::file(1);
        let e = resolve::create(&Controls::default(), &get(name).unwrap(), &file).unwrap();
        assert!(admit(&e, None, &file).is_ok(), "{name}");
    }
}

#[test]
fn an_unknown_profile_lists_the_six() {
    let mut c = Controls::default();
    let error = set_unset(&mut c, "Checkpoin").unwrap_err();
    assert_eq!((error.kind(), c), (Kind::NotFound, Controls::default()));
    assert!(error.detail().contains("did you mean \"checkpoint\""), "{error}");
    assert!(error.detail().contains("posix, checkpoint, dataset, log, scratch, exchange"), "{error}");
}

proptest! {
    #[test]
    fn a_profile_changes_nothing_that_is_set(c in generate::controls(), name in proptest::sample::select(NAMES)) {
        let mut filled = c.clone();
        set_unset(&mut filled, name).unwrap();
        let profile = get(name).unwrap();
        prop_assert_eq!(filled.consistency, c.consistency.or(profile.consistency));
        prop_assert_eq!(filled.concurrency, c.concurrency.or(profile.concurrency));
        prop_assert_eq!(filled.mutability, c.mutability.or(profile.mutability));
        prop_assert_eq!(filled.atomicity, c.atomicity.or(profile.atomicity));
        prop_assert_eq!(filled.persistence, c.persistence.or(profile.persistence));
        prop_assert_eq!(filled.point, c.point.or(profile.point));
        prop_assert_eq!(filled.temporality, c.temporality.or(profile.temporality));
        prop_assert_eq!(filled.spatiality, c.spatiality.or(profile.spatiality));
        prop_assert_eq!(filled.on_error, c.on_error);
        prop_assert_eq!((filled.request_size, profile.request_size), (c.request_size, Limits::default()));
    }
}
