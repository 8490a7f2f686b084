//! The rules of the house, checked on this repository.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use testing_tidy::packages::{self, Package};
use testing_tidy::tree::Tree;
use testing_tidy::{clauses, expect_none, layers, links, mods, roots, sizes, symbols, words};

fn tree() -> Tree {
    let top: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two levels down").into();
    Tree::from_git(&top).unwrap_or_else(|e| panic!("{e}"))
}

fn packages(tree: &Tree) -> Vec<Package> {
    packages::load(tree).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn crates_see_only_lower_layers() {
    let tree = tree();
    expect_none("a crate depends on lower layers only, and siblings do not see each other", {
        layers::check(&tree, &packages(&tree))
    });
}

#[test]
fn files_are_short() {
    expect_none("a source file has at most 500 lines", sizes::check(&tree()));
}

#[test]
fn no_source_is_dead() {
    let tree = tree();
    expect_none("every Rust file is part of something that is built", mods::check(&tree, &packages(&tree)));
}

#[test]
fn crate_roots_are_documented_and_safe() {
    let tree = tree();
    expect_none("a crate says what it is for and forbids unsafe", roots::check(&tree, &packages(&tree)));
}

#[test]
fn cited_clauses_exist() {
    expect_none("a cited clause exists", clauses::check(&tree()));
}

#[test]
fn links_lead_somewhere() {
    expect_none("a relative link leads to a file and heading of the repository", links::check(&tree()));
}

#[test]
fn nothing_is_left_unfinished() {
    expect_none("sources hold no marks of unfinished work", words::unfinished(&tree()));
}

#[test]
fn no_path_of_one_machine() {
    expect_none("nothing names a folder of one machine", words::machine_paths(&tree()));
}

#[test]
fn clocks_and_lots_only_in_the_seam() {
    expect_none("only the seam and tests may use the banned functions", words::seam(&tree()));
}

#[test]
fn symbol_map_is_the_header() {
    expect_none("the symbol map lists the functions of the header", symbols::check(&tree()));
}
