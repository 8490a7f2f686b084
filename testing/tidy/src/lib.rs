//! The rules of the house, as checks over the source tree.
//!
//! Every check takes what it looks at as an argument and returns all violations it finds. `tests/repo.rs` runs the checks
//! on this repository; `tests/fixtures_*.rs` runs them on small trees that are right or wrong on purpose, so that each
//! check is seen to fail.
#![forbid(unsafe_code)]

pub mod clauses;
pub mod layers;
pub mod links;
pub mod mods;
pub mod packages;
pub mod roots;
pub mod sizes;
pub mod symbols;
pub mod tokens;
pub mod tree;
pub mod words;

use std::fmt;

/// One breach of one rule: where it is, what is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path relative to the top of the tree.
    pub file: String,
    /// Line, from 1 on; 0 if the violation is about the file as a whole.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl Violation {
    /// A violation at one line.
    pub fn at(file: &str, line: usize, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Violation { file: file.to_owned(), line, what: what.into(), remedy: remedy.into() }
    }

    /// A violation of a file as a whole.
    pub fn of(file: &str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Violation::at(file, 0, what, remedy)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {} -> {}", self.file, self.what, self.remedy),
            line => write!(f, "{}:{}: {} -> {}", self.file, line, self.what, self.remedy),
        }
    }
}

/// Panics with all violations, sorted, one a line; does nothing if there are none.
///
/// # Panics
/// If `violations` is not empty.
pub fn expect_none(rule: &str, mut violations: Vec<Violation>) {
    if violations.is_empty() {
        return;
    }
    violations.sort();
    let lines: Vec<String> = violations.iter().map(|v| format!("  {v}")).collect();
    panic!("{} violation(s) of the rule: {rule}\n{}", lines.len(), lines.join("\n"));
}
