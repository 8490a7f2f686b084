//! The symbol map of the C library lists exactly the functions of its header.

use crate::Violation;
use crate::tree::Tree;
use std::collections::BTreeMap;

/// The header and its map.
pub const HEADER: &str = "bindings/c/include/ioverbs.h";
/// The version script of the linker.
pub const MAP: &str = "bindings/c/ioverbs.map";

/// Declared in the header, but exported by backends, not by the library.
const NOT_OURS: &[&str] = &["iov_backend_ops_v1"];

/// The functions that a header declares with `IOV_API`, with their lines.
pub fn declared(header: &str) -> Vec<(String, usize)> {
    let declarations =
        header.lines().enumerate().filter_map(|(at, line)| Some((at + 1, line.strip_prefix("IOV_API ")?)));
    declarations.filter_map(|(at, rest)| Some((last_word(rest.split_once('(')?.0), at))).collect()
}

/// The symbols that a version script makes global, with their lines.
pub fn exported(map: &str) -> Vec<(String, usize)> {
    let mut global = false;
    let mut out = Vec::new();
    for (at, line) in map.lines().enumerate() {
        let mut line = line.split('#').next().unwrap_or("").trim();
        for (label, value) in [("global:", true), ("local:", false)] {
            if let Some(rest) = line.strip_prefix(label) {
                (global, line) = (value, rest);
            }
        }
        if line.starts_with('}') {
            global = false;
        }
        if global {
            let names = line.split(';').map(str::trim).filter(|n| !n.is_empty() && !n.contains('{'));
            out.extend(names.map(|name| (name.to_owned(), at + 1)));
        }
    }
    out
}

fn last_word(text: &str) -> String {
    text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("").to_owned()
}

/// Reports functions without a symbol, symbols without a function, and symbols that stand twice.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let header: BTreeMap<String, usize> = declared(&tree.text(HEADER)).into_iter().collect();
    let text = tree.text(MAP);
    let mut map: BTreeMap<String, usize> = BTreeMap::new();
    let mut violations = Vec::new();
    if header.is_empty() {
        violations.push(Violation::of(HEADER, "no function is declared", "restore the header"));
    }
    for (name, line) in exported(&text) {
        if !header.contains_key(&name) || NOT_OURS.contains(&name.as_str()) {
            violations.push(Violation::at(MAP, line, format!("`{name}` is no function of the library"), "remove it"));
        }
        if map.insert(name.clone(), line).is_some() {
            violations.push(Violation::at(MAP, line, format!("`{name}` stands here twice"), "remove one"));
        }
    }
    for (name, line) in header {
        if !map.contains_key(&name) && !NOT_OURS.contains(&name.as_str()) {
            let remedy = format!("add it to the newest node of {MAP}");
            violations.push(Violation::at(HEADER, line, format!("`{name}` is not exported"), remedy));
        }
    }
    if !text.contains("local: *;") {
        violations.push(Violation::of(MAP, "other symbols are not hidden", "end the first node with `local: *;`"));
    }
    violations
}
