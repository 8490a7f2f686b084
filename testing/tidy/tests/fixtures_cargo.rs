//! The checks of crates, on small workspaces that are right or wrong on purpose.
#![allow(missing_docs)]

mod fixture;

use fixture::{Fixture, places};
use testing_tidy::tokens::{Kind, tokens};
use testing_tidy::{layers, mods, packages, roots};

const WORKSPACE: &str = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\nexclude = [\"apart\"]\n";
const SAFE: &str = "//! A crate.\n#![forbid(unsafe_code)]\n";

fn manifest(name: &str, tables: &str) -> String {
    format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n{tables}")
}

/// A workspace of crates, each given by its name and the tables of its manifest.
fn workspace(crates: &[(&str, &str)]) -> Fixture {
    let mut files = vec![("Cargo.toml".to_owned(), WORKSPACE.to_owned())];
    for (name, tables) in crates {
        files.push((format!("crates/{name}/Cargo.toml"), manifest(name, tables)));
        files.push((format!("crates/{name}/src/lib.rs"), SAFE.to_owned()));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(f, t)| (f.as_str(), t.as_str())).collect();
    Fixture::new(&files)
}

fn layer_places(fixture: &Fixture) -> Vec<String> {
    let tree = fixture.tree();
    places(&layers::check(&tree, &packages::load(&tree).expect("metadata")))
}

#[test]
fn layers_that_point_downwards_are_fine() {
    let fixture = workspace(&[
        ("iov-types", ""),
        ("iov-layout", "[dependencies]\niov-types = { path = \"../iov-types\" }\n"),
        ("iov-semantics", "[dev-dependencies]\niov-layout = { path = \"../iov-layout\" }\n"),
        ("iov-bench", ""),
        ("iov-cli", "[dependencies]\niov-bench = { path = \"../iov-bench\" }\n"),
    ]);
    assert_eq!(layer_places(&fixture), [""; 0]);
}

#[test]
fn layers_that_point_sideways_or_up_are_reported() {
    let fixture = workspace(&[
        ("iov-types", "[dependencies]\niov-store.path = \"../iov-store\"\n"),
        ("iov-layout", "[build-dependencies]\nl = { package = \"iov-semantics\", path = \"../iov-semantics\" }\n"),
        ("iov-semantics", ""),
        ("iov-store", ""),
        ("iov-bench", "[dependencies]\niov-cli = { path = \"../iov-cli\" }\n"),
        ("iov-cli", ""),
    ]);
    let expected = ["crates/iov-bench/Cargo.toml:5", "crates/iov-layout/Cargo.toml:5", "crates/iov-types/Cargo.toml:5"];
    assert_eq!(layer_places(&fixture), expected);
}

#[test]
fn a_crate_without_a_layer_is_reported() {
    let fixture = workspace(&[("iov-types", ""), ("iov-novelty", ""), ("testing-anything", "")]);
    assert_eq!(layer_places(&fixture), ["crates/iov-novelty/Cargo.toml:0"]);
}

#[test]
fn circles_of_test_dependencies_are_reported() {
    let fixture = workspace(&[
        ("iov-types", "[dev-dependencies]\niov-store = { path = \"../iov-store\" }\n"),
        ("iov-store", "[dependencies]\niov-types = { path = \"../iov-types\" }\n"),
    ]);
    let tree = fixture.tree();
    let found = layers::check(&tree, &packages::load(&tree).expect("metadata"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].what.ends_with("iov-store -> iov-types -> iov-store"), "{}", found[0].what);
}

#[test]
fn dead_sources_are_reported() {
    let library = r#"//! A crate.
        mod plain;
        mod folder;
        #[cfg(test)]
        mod tests;
        #[path = "else/where.rs"]
        mod moved;
        mod inline { mod inner; #[path = "odd.rs"] mod named; }
        pub mod last;
        const TEXT: &str = include_str!("shown.rs");
        // mod dead;
        const S: &str = "mod dead;";
        const R: &str = r"mod dead;";
    "#;
    let fixture = Fixture::new(&[
        ("Cargo.toml", WORKSPACE),
        ("crates/a/Cargo.toml", &manifest("a", "")),
        ("crates/a/build.rs", "fn main() {}"),
        ("crates/a/src/lib.rs", library),
        ("crates/a/src/plain.rs", "mod below;"),
        ("crates/a/src/plain/below.rs", ""),
        ("crates/a/src/folder/mod.rs", "mod beside;"),
        ("crates/a/src/folder/beside.rs", ""),
        ("crates/a/src/else/where.rs", "mod near;"),
        ("crates/a/src/else/near.rs", ""),
        ("crates/a/src/inline/inner.rs", ""),
        ("crates/a/src/inline/odd.rs", ""),
        ("crates/a/src/last.rs", ""),
        ("crates/a/src/shown.rs", ""),
        ("crates/a/src/tests.rs", ""),
        ("crates/a/src/dead.rs", ""),
        ("crates/a/src/bin/tool.rs", "fn main() {}"),
        ("crates/a/tests/one.rs", "mod common;"),
        ("crates/a/tests/common/mod.rs", ""),
        ("crates/a/tests/lost/mod.rs", ""),
        ("crates/a/benches/two.rs", ""),
        ("crates/a/examples/three.rs", "fn main() {}"),
        ("apart/Cargo.toml", &manifest("apart", "[workspace]\n")),
        ("apart/src/lib.rs", ""),
        ("apart/src/dead.rs", ""),
        ("stray.rs", ""),
    ]);
    let tree = fixture.tree();
    let found = mods::check(&tree, &packages::load(&tree).expect("metadata"));
    let expected = ["apart/src/dead.rs:0", "crates/a/src/dead.rs:0", "crates/a/tests/lost/mod.rs:0", "stray.rs:0"];
    assert_eq!(places(&found), expected);
}

#[test]
fn roots_without_doc_or_forbid_are_reported() {
    let fixture = Fixture::new(&[
        ("Cargo.toml", WORKSPACE),
        ("crates/good/Cargo.toml", &manifest("good", "")),
        ("crates/good/src/lib.rs", SAFE),
        ("crates/good/tests/t.rs", ""),
        ("crates/bare/Cargo.toml", &manifest("bare", "")),
        ("crates/bare/src/lib.rs", "mod a; //! no\n"),
        ("crates/bare/src/a.rs", ""),
        ("crates/bare/src/main.rs", "//! A program.\n// #![forbid(unsafe_code)]\nfn main() {}\n"),
        ("crates/iov-capi/Cargo.toml", &manifest("iov-capi", "")),
        ("crates/iov-capi/src/lib.rs", "//! The C ABI.\n"),
    ]);
    let tree = fixture.tree();
    let found = roots::check(&tree, &packages::load(&tree).expect("metadata"));
    let expected = ["crates/bare/src/lib.rs:1", "crates/bare/src/lib.rs:1", "crates/bare/src/main.rs:1"];
    assert_eq!(places(&found), expected);
}

#[test]
fn tokens_are_told_from_comments_and_strings() {
    let source = "a /* b /* c */ d */ 'x' '\\'' 'e: \"f\\\"g\" // h\nr#\"i\"j\"# b'\"' r#k b\"l\"";
    let found: Vec<(String, usize)> = tokens(source)
        .into_iter()
        .map(|t| match t.kind {
            Kind::Word(w) => (w, t.line),
            Kind::Text(s) => (format!("<{s}>"), t.line),
            Kind::Mark(c) => (c.to_string(), t.line),
        })
        .collect();
    let expected = [("a", 1), ("e", 1), (":", 1), ("<f\\\"g>", 1), ("<i\"j>", 2), ("k", 2), ("<l>", 2)];
    assert_eq!(found, expected.map(|(s, l)| (s.to_owned(), l)));
}
