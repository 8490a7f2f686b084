//! No dead source file: every `.rs` file is reached from something that cargo builds.

use crate::Violation;
use crate::packages::Package;
use crate::tokens::{Token, matches, tokens};
use crate::tree::{Tree, normal};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Reports Rust files that no target reaches through `mod`, `#[path]`, `include!` or `include_str!`.
pub fn check(tree: &Tree, packages: &[Package]) -> Vec<Violation> {
    let mut reached = BTreeSet::new();
    for target in packages.iter().flat_map(|p| &p.targets) {
        reach(tree, normal(&target.root), true, &mut reached);
    }
    tree.with_extension(&["rs"])
        .filter(|file| !reached.contains(&normal(&tree.root.join(file))))
        .map(|file| {
            Violation::of(file, "no target reaches this file", "declare it with `mod` where it belongs, or remove it")
        })
        .collect()
}

/// Marks `file` and all it declares. `owns`: its modules lie beside it (a root, `mod.rs`, or loaded by `#[path]`).
fn reach(tree: &Tree, file: PathBuf, owns: bool, reached: &mut BTreeSet<PathBuf>) {
    if !file.is_file() || !reached.insert(file.clone()) {
        return;
    }
    let Some(name) = tree.relative(&file) else { return };
    for next in declared(&tree.text(&name), &file, owns) {
        match next {
            Declared::Module(candidates) => {
                for candidate in candidates {
                    let owns = candidate.file_name().is_some_and(|n| n == "mod.rs");
                    reach(tree, normal(&candidate), owns, reached);
                }
            }
            Declared::Path(path) => reach(tree, normal(&path), true, reached),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Declared {
    Module(Vec<PathBuf>),
    Path(PathBuf),
}

fn declared(source: &str, file: &Path, owns: bool) -> Vec<Declared> {
    let tokens = tokens(source);
    let beside = file.parent().unwrap_or(Path::new("")).to_owned();
    let below = if owns { beside.clone() } else { file.with_extension("") };
    let mut inline: Vec<(String, usize)> = Vec::new(); // modules with a body that are open here, and their brace depth
    let (mut depth, mut path_attribute, mut out) = (0usize, None, Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let token = &tokens[at];
        if matches(&tokens, at, &["#", "["]) {
            let end = closing(&tokens, at + 1);
            path_attribute = path_in(&tokens[at..end]).or(path_attribute);
            at = end;
            continue;
        }
        if token.is_word("mod") {
            let name = tokens.get(at + 1).and_then(Token::word);
            let folder = |from: &Path| inline.iter().fold(from.to_owned(), |dir, (name, _)| dir.join(name));
            match (name, tokens.get(at + 2)) {
                (Some(name), Some(end)) if end.is_mark(';') => out.push(match path_attribute.take() {
                    Some(path) if inline.is_empty() => Declared::Path(beside.join(path)),
                    Some(path) => Declared::Path(folder(&below).join(path)),
                    None => {
                        let dir = folder(&below);
                        Declared::Module(vec![dir.join(format!("{name}.rs")), dir.join(name).join("mod.rs")])
                    }
                }),
                (Some(name), Some(open)) if open.is_mark('{') => inline.push((name.to_owned(), depth + 1)),
                _ => {}
            }
        } else if token.is_mark('{') {
            depth += 1;
        } else if token.is_mark('}') {
            inline.retain(|(_, opened)| *opened != depth);
            depth = depth.saturating_sub(1);
        } else if let (Some("include" | "include_str" | "include_bytes"), Some(text)) =
            (token.word(), included(&tokens, at))
        {
            out.push(Declared::Path(beside.join(text)));
        }
        if token.is_mark(';') || token.is_mark('{') {
            path_attribute = None;
        }
        at += 1;
    }
    out
}

/// The position after the bracket that closes the one at `open`.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.is_mark('[') {
            depth += 1;
        } else if token.is_mark(']') {
            depth -= 1;
            if depth == 0 {
                return at + 1;
            }
        }
    }
    tokens.len()
}

/// The value of `path = "…"` in an attribute, `cfg_attr` included.
fn path_in(attribute: &[Token]) -> Option<String> {
    (0..attribute.len())
        .find(|at| matches(attribute, *at, &["path", "="]))
        .and_then(|at| attribute.get(at + 2)?.text().map(str::to_owned))
}

fn included(tokens: &[Token], at: usize) -> Option<&str> {
    matches(tokens, at + 1, &["!", "("]).then(|| tokens.get(at + 3)?.text())?
}
