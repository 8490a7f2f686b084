//! Every clause that a test names or code cites stands in `docs/semantics/clauses.md`.
//!
//! A test names its clause by how its own name begins: `c1_…` in Rust, `test_c1_…` in Python and C. Code cites one by
//! `clause("C1")`. The letters are those of the clauses (O C P M X B H G I A) and of the litmus tests (T).

use crate::Violation;
use crate::tokens::{Token, matches, tokens};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// Where the clauses are.
pub const CLAUSES: &str = "docs/semantics/clauses.md";

const LETTERS: &str = "OCPMXBHGIAT";
const REMEDY: &str = "name a clause of docs/semantics/clauses.md, or let the name begin otherwise";

/// The ids that a page of clauses defines: the first word of the first cell of each table row.
pub fn defined(page: &str) -> BTreeSet<String> {
    let first_word = |line: &str| line.trim().strip_prefix('|')?.split_whitespace().next().map(str::to_owned);
    page.lines().filter_map(first_word).filter(|word| is_id(word)).collect()
}

/// Reports test names and citations whose clause does not exist.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let known = defined(&tree.text(CLAUSES));
    if known.is_empty() {
        return vec![Violation::of(CLAUSES, "no clause is defined here", "restore the table of clauses")];
    }
    let mut violations = Vec::new();
    for file in tree.with_extension(&["rs", "py", "c", "cpp"]) {
        let text = tree.text(file);
        let cited = if file.ends_with(".rs") { in_rust(&text) } else { in_names(&text) };
        for (id, line, how) in cited.into_iter().filter(|(id, ..)| !known.contains(id)) {
            violations.push(Violation::at(file, line, format!("{how} cites {id}, which is no clause"), REMEDY));
        }
    }
    violations
}

fn is_id(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| LETTERS.contains(c)) && chars.as_str().parse::<u8>().is_ok()
}

/// The id with which the name of a test begins: `c1_visible` -> `C1`. Integer types are not meant: `i64_limits`.
fn id_of(name: &str) -> Option<String> {
    let id = name.split_once('_')?.0;
    let lower = id.starts_with(|c: char| c.is_ascii_lowercase());
    let id = id.to_uppercase();
    (lower && is_id(&id) && !matches!(id.as_str(), "I8" | "I16" | "I32" | "I64" | "I128")).then_some(id)
}

fn in_rust(source: &str) -> Vec<(String, usize, String)> {
    let tokens = tokens(source);
    let mut out = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.is_word("fn") && is_test(&tokens[..at]) {
            let name = tokens.get(at + 1).and_then(Token::word).unwrap_or("");
            out.extend(id_of(name).map(|id| (id, token.line, format!("the test `{name}`"))));
        }
        if matches(&tokens, at, &["clause", "("])
            && let Some(text) = tokens.get(at + 2).and_then(Token::text)
        {
            out.push((text.to_owned(), token.line, format!("clause(\"{text}\")")));
        }
    }
    out
}

/// Whether what stands before a `fn` ends with attributes of which one is a `test`.
fn is_test(before: &[Token]) -> bool {
    let start = before.iter().rposition(|t| t.is_mark(';') || t.is_mark('{') || t.is_mark('}')).map_or(0, |at| at + 1);
    let head = &before[start..];
    (0..head.len()).any(|at| {
        matches(head, at, &["#", "["])
            && head[at..].iter().take_while(|t| !t.is_mark(']') && !t.is_mark('(')).any(|t| t.is_word("test"))
    })
}

/// Python and C: every name that begins with `test_` and an id.
fn in_names(source: &str) -> Vec<(String, usize, String)> {
    let mut out = Vec::new();
    for (at, line) in source.lines().enumerate() {
        for word in line.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if let Some(id) = word.strip_prefix("test_").and_then(id_of) {
                out.push((id, at + 1, format!("the test `{word}`")));
            }
        }
    }
    out
}
