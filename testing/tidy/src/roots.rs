//! Every crate says what it is for, and forbids `unsafe` unless it stands in the list.

use crate::Violation;
use crate::packages::Package;
use crate::tokens::{matches, tokens};
use crate::tree::Tree;

/// Crates that may use `unsafe`, and what for. A crate here still denies it in modules that do without.
pub const UNSAFE: &[(&str, &str)] = &[
    ("iov-store", "buffers that a backend and a program share"),
    ("iov-engine", "the caller's memory, lent until a request has completed"),
    ("iov-media", "io_uring, in a module of its own"),
    ("iov-foreign", "tables of C functions, linked in or loaded at run time"),
    ("iov-backend-null", "the symbol that a shared object exports"),
    ("iov-net", "passing descriptors over local sockets"),
    ("ioverbs", "lending the caller's memory to the engine"),
    ("iov-capi", "the C ABI"),
    ("iov-fuse-kernel", "io_uring, and calls of `/dev/fuse`"),
    ("iov-preload", "functions of the C library, and calls of the kernel past it"),
    ("iov-python", "the buffer protocol"),
    ("iov-litmus", "a fork, which T23 is about"),
    ("iov-bench", "raw copies and mappings as the ceilings to measure against"),
];

/// Reports roots of libraries and programs without a doc comment or without `#![forbid(unsafe_code)]`.
pub fn check(tree: &Tree, packages: &[Package]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        let may = UNSAFE.iter().any(|(name, _)| *name == package.name);
        for target in package.targets.iter().filter(|t| t.is_product()) {
            let Some(file) = tree.relative(&target.root) else { continue };
            let text = tree.text(&file);
            if !has_doc(&text) {
                violations.push(Violation::at(
                    &file,
                    1,
                    format!("the root of `{}` has no doc comment", package.name),
                    "begin it with `//!` lines that say what the crate is for",
                ));
            }
            if !may && !forbids_unsafe(&text) {
                violations.push(Violation::at(
                    &file,
                    1,
                    format!("`{}` does not forbid unsafe code", package.name),
                    "add `#![forbid(unsafe_code)]`; if memory or a C ABI demands unsafe, add the crate with its \
                     reason to UNSAFE in testing/tidy/src/roots.rs",
                ));
            }
        }
    }
    violations
}

/// Whether there is an inner doc comment before the first item.
fn has_doc(source: &str) -> bool {
    source
        .lines()
        .map(str::trim)
        .take_while(|l| {
            l.is_empty() || l.starts_with("//") || l.starts_with("/*") || l.starts_with('*') || l.starts_with("#![")
        })
        .any(|l| l.starts_with("//! ") || l.starts_with("/*!") || l.starts_with("#![doc"))
}

fn forbids_unsafe(source: &str) -> bool {
    let tokens = tokens(source);
    (0..tokens.len()).any(|at| matches(&tokens, at, &["#", "!", "[", "forbid", "(", "unsafe_code"]))
}
