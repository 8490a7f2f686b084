//! The layer rule: a crate sees only lower layers, and siblings do not see each other.

use crate::Violation;
use crate::packages::{Need, Package};
use crate::tree::Tree;
use std::collections::BTreeMap;

/// Every crate of the house and its layer. A name that ends in `-*` stands for all that begin so.
pub const LAYERS: &[(&str, u8)] = &[
    ("iov-types", 0),
    ("iov-layout", 1),
    ("iov-semantics", 1),
    ("iov-wire", 1),
    ("iov-store", 2),
    ("iov-media", 3),
    ("iov-foreign", 3),
    ("iov-meta-local", 3),
    ("iov-net", 3),
    ("iov-catalog", 3),
    ("iov-engine", 4),
    ("iov-server", 4),
    ("ioverbs", 5),
    ("iovd", 5),
    ("iov-offline", 5),
    ("iov-backend-*", 4),
    ("iov-posix", 6),
    ("iov-fuse-kernel", 6),
    ("iov-fuse", 7),
    ("iov-preload", 7),
    ("iov-capi", 6),
    ("iov-python", 6),
    ("iov-cli", 8),
    ("iov-bench", 6),
    ("iov-manpages", 6),
    ("iov-litmus", 6),
    ("testing-*", 6),
];

/// Siblings that may see each other all the same: (who, whom, why).
pub const SIBLINGS: &[(&str, &str, &str)] = &[
    ("iov-cli", "iov-bench", "`iov bench` is a command of the tool, its cases are a crate of their own"),
    ("iov-bench", "iov-capi", "figures are measured through the C ABI, as programs use it"),
];

/// The layer of a crate, if it is in the table.
pub fn layer(name: &str) -> Option<u8> {
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    };
    LAYERS.iter().find(|(pattern, _)| fits(pattern)).map(|(_, layer)| *layer)
}

/// Reports crates without a layer, dependencies that do not point downwards, and cycles of any kind.
pub fn check(tree: &Tree, packages: &[Package]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        let manifest = tree.relative(&package.manifest).unwrap_or_else(|| package.name.clone());
        let Some(own) = layer(&package.name) else {
            violations.push(Violation::of(
                &manifest,
                format!("the crate `{}` has no layer", package.name),
                "add it to LAYERS in testing/tidy/src/layers.rs, and to ARCHITECTURE.md",
            ));
            continue;
        };
        for (name, need) in &package.needs {
            if *need == Need::Test || SIBLINGS.iter().any(|(who, whom, _)| *who == package.name && whom == name) {
                continue;
            }
            let Some(other) = layer(name) else { continue };
            if other >= own {
                violations.push(Violation::at(
                    &manifest,
                    line_of(&tree.text(&manifest), name),
                    format!("`{}` (layer {own}) depends on `{name}` (layer {other})", package.name),
                    "depend on lower layers only: move what both need down, or pass it in through a trait",
                ));
            }
        }
    }
    violations.extend(cycles(tree, packages));
    violations
}

/// The line of a manifest that names a dependency; 0 if none does.
fn line_of(manifest: &str, name: &str) -> usize {
    let names = |line: &str| {
        let key = line.split(['=', '.', ' ']).next().unwrap_or("").trim_matches('"');
        key == name || line.contains(&format!("package = \"{name}\""))
    };
    manifest.lines().position(names).map_or(0, |at| at + 1)
}

/// Cycles among the packages, with test dependencies counted: one report for each package where a cycle begins.
fn cycles(tree: &Tree, packages: &[Package]) -> Vec<Violation> {
    let by_name: BTreeMap<&str, &Package> = packages.iter().map(|p| (p.name.as_str(), p)).collect();
    let mut done: BTreeMap<&str, bool> = BTreeMap::new();
    let mut found = Vec::new();
    for name in by_name.keys() {
        visit(name, &by_name, &mut Vec::new(), &mut done, &mut found);
    }
    found
        .into_iter()
        .map(|path| {
            let first = by_name[path[0]];
            Violation::of(
                &tree.relative(&first.manifest).unwrap_or_else(|| first.name.clone()),
                format!("dependencies in a circle: {} -> {}", path.join(" -> "), path[0]),
                "break it; tests that need both belong to a crate of testing/",
            )
        })
        .collect()
}

/// Depth first; `done[name]` is false while `name` is on the path, true once all below it is known.
fn visit<'a>(
    name: &'a str,
    by_name: &BTreeMap<&'a str, &'a Package>,
    path: &mut Vec<&'a str>,
    done: &mut BTreeMap<&'a str, bool>,
    found: &mut Vec<Vec<&'a str>>,
) {
    match done.get(name) {
        Some(true) => return,
        Some(false) => {
            let start = path.iter().position(|n| *n == name).unwrap_or(0);
            found.push(path[start..].to_vec());
            return;
        }
        None => {}
    }
    let Some(package) = by_name.get(name) else { return };
    done.insert(name, false);
    path.push(name);
    for (next, _) in &package.needs {
        visit(next, by_name, path, done, found);
    }
    path.pop();
    done.insert(name, true);
}
