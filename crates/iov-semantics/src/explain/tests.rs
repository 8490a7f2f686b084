use iov_types::{Controls, Persistence};
use proptest::prelude::*;

use super::*;
use crate::{admit, generate, resolve, stores, text};

fn controls(text: &str) -> Controls {
    let mut c = Controls::default();
    text::parse(&mut c, text).unwrap();
    c
}

fn origins(lines: &[Line]) -> Vec<(&str, &str, &str)> {
    lines.iter().map(|l| (l.control.name(), l.value.as_str(), l.origin.text())).collect()
}

#[test]
fn a_create_tells_who_decided() {
    let (asked, workspace) = (controls("consistency=commit,atomicity=unit"), controls("persistence=durable,unit=8KiB"));
    let file = stores::file(1);
    let e = resolve::create(&workspace, &asked, &file).unwrap();
    let contract = admit(&e, None, &file).unwrap();
    let sources = Sources { asked: &asked, workspace: &workspace, collection: None };
    let lines = lines(&contract, &sources);
    assert_eq!(
        origins(&lines)[..6],
        [
            ("consistency", "commit", "asked"),
            ("concurrency", "shared", "default"),
            ("mutability", "overwrite", "default"),
            ("atomicity", "unit(8KiB)", "asked"),
            ("persistence", "durable", "workspace"),
            ("point", "close", "default"),
        ]
    );
    assert_eq!(lines[0].clause, Clause::C2);
    assert!(lines[4].follows.contains("power loss") && lines[5].follows.contains("close completes after the sync"));
}

#[test]
fn an_open_tells_what_was_given_stronger() {
    let nothing = Controls::default();
    let able = generate::able();
    let collection = resolve::create(&nothing, &controls("persistence=durable,collection_size=..1GiB"), &able).unwrap();
    let asked = controls("persistence=volatile@batch,collection_size=..2GiB");
    let contract = admit(&resolve::open(&collection, &asked, &able).unwrap(), None, &able).unwrap();
    let lines = lines(&contract, &Sources { asked: &asked, workspace: &nothing, collection: Some(&collection) });
    let found = origins(&lines);
    assert!(found.contains(&("persistence", "durable", "given stronger")), "{found:?}");
    assert!(found.contains(&("collection_size", "..1GiB", "given stronger")), "{found:?}");
    assert!(found.contains(&("point", "batch", "asked")), "{found:?}");
    assert!(found.contains(&("consistency", "sequential", "collection")), "{found:?}");
}

#[test]
fn the_tree_reads_as_json_and_as_lines() {
    let nothing = Controls::default();
    let contract = admit(&generate::posix(), None, &stores::mem(1)).unwrap();
    let tree = explain(&contract, &Sources { asked: &nothing, workspace: &nothing, collection: None })
        .with("steps", Tree::List(vec!["write".into(), Tree::map().with("n", 3u64).with("odd", "a\"b\\\n\u{1}é")]));
    let json = tree.to_json();
    assert!(json.starts_with(
        r#"{"controls":[{"control":"consistency","value":"sequential","from":"default","clause":"C1","follows":"#
    ));
    assert!(json.contains(r#""contract":{"publish":"at once","staged":false,"unit":0,"sync":"never""#), "{json}");
    assert!(json.ends_with(r#""steps":["write",{"n":3,"odd":"a\"b\\\n\u0001é"}]}"#), "{json}");
    assert_eq!(tree.get("contract").and_then(|c| c.get("read_ahead")), Some(&Tree::Flag(true)));

    let human = tree.to_string();
    assert!(human.starts_with("controls\n  control          value       from     clause  follows\n"), "{human}");
    assert!(human.contains("\n  consistency      sequential  default  C1      a write is seen"), "{human}");
    assert!(human.contains("\ncontract\n  publish      at once\n  staged       no\n"), "{human}");
    assert!(human.contains("\nsteps\n  write\n  2.\n    n    3\n"), "{human}");
    assert!(human.lines().all(|l| l == l.trim_end()));
}

proptest! {
    #[test]
    fn every_value_is_explained(e in generate::effective(), asked in generate::controls(), workspace in generate::controls()) {
        let able = generate::able();
        let contract = admit(&e, None, &able).unwrap_or_else(|r| admit(&r.offer, None, &able).unwrap());
        let lines = lines(&contract, &Sources { asked: &asked, workspace: &workspace, collection: None });
        prop_assert_eq!(lines.len(), Control::ALL.len());
        for line in &lines {
            prop_assert!(!line.follows.is_empty() && !line.value.is_empty());
        }
        if contract.durability < Persistence::Durable {
            prop_assert!(lines.iter().any(|l| l.follows.contains("no sync")));
        }
    }

    /// Of two contracts that differ in one control, that control's line differs too.
    #[test]
    fn a_different_value_reads_differently(a in generate::effective(), b in generate::effective()) {
        let able = generate::able();
        let contract = |e: &Effective| admit(e, None, &able).unwrap_or_else(|r| admit(&r.offer, None, &able).unwrap());
        let nothing = Controls::default();
        let of = |c: &Contract| lines(c, &Sources { asked: &nothing, workspace: &nothing, collection: None });
        let (a, b) = (contract(&a), contract(&b));
        for (la, lb) in of(&a).into_iter().zip(of(&b)) {
            prop_assert_eq!(la.value == lb.value, la.control.same(&a.effective, &b.effective));
        }
    }
}
