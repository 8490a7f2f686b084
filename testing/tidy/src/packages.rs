//! The packages of the tree, as `cargo metadata` tells them.

use crate::tree::Tree;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How one package needs another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// To be built: `[dependencies]` and `[build-dependencies]`.
    Build,
    /// To be tested: `[dev-dependencies]`.
    Test,
}

/// What cargo builds from a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `lib`, `bin`, `test`, `bench`, `example`, `custom-build`, `cdylib`, …
    pub kinds: Vec<String>,
    /// Its first source file.
    pub root: PathBuf,
}

impl Target {
    /// Whether it is a library or a program, rather than a test, benchmark, example or build script.
    pub fn is_product(&self) -> bool {
        !self.kinds.iter().any(|k| matches!(k.as_str(), "test" | "bench" | "example" | "custom-build"))
    }
}

/// A package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its `Cargo.toml`.
    pub manifest: PathBuf,
    /// The names of the packages it needs.
    pub needs: Vec<(String, Need)>,
    /// What is built from it.
    pub targets: Vec<Target>,
}

/// Reads the JSON that `cargo metadata --no-deps --format-version 1` prints.
///
/// # Errors
/// If the text is not what cargo prints.
pub fn parse(json: &str) -> Result<Vec<Package>, String> {
    let all: Value = serde_json::from_str(json).map_err(|e| format!("cargo metadata printed no JSON: {e}"))?;
    list(&all["packages"]).iter().map(package).collect()
}

fn package(value: &Value) -> Result<Package, String> {
    let needs = list(&value["dependencies"]).iter().map(|d| {
        let need = if d["kind"] == "dev" { Need::Test } else { Need::Build };
        Ok((string(&d["name"])?, need))
    });
    let targets = list(&value["targets"]).iter().map(|t| {
        let kinds = list(&t["kind"]).iter().map(string).collect::<Result<_, String>>()?;
        Ok(Target { kinds, root: string(&t["src_path"])?.into() })
    });
    Ok(Package {
        name: string(&value["name"])?,
        manifest: string(&value["manifest_path"])?.into(),
        needs: needs.collect::<Result<_, String>>()?,
        targets: targets.collect::<Result<_, String>>()?,
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn string(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("cargo metadata: a string was expected, not {value}"))
}

/// All packages of a tree: the workspace at its top, and those that stand apart from it.
///
/// # Errors
/// If cargo cannot read a manifest.
pub fn load(tree: &Tree) -> Result<Vec<Package>, String> {
    let mut packages: Vec<Package> = Vec::new();
    let mut seen: BTreeSet<PathBuf> = BTreeSet::new();
    let mut manifests: Vec<&str> =
        tree.files.iter().map(String::as_str).filter(|f| *f == "Cargo.toml" || f.ends_with("/Cargo.toml")).collect();
    manifests.sort_by_key(|m| m.matches('/').count());
    for manifest in manifests {
        let path = tree.root.join(manifest);
        if seen.contains(&path) {
            continue;
        }
        for package in parse(&metadata(&path)?)? {
            if seen.insert(package.manifest.clone()) {
                packages.push(package);
            }
        }
    }
    Ok(packages)
}

fn metadata(manifest: &Path) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(manifest)
        .output()
        .map_err(|e| format!("cargo cannot be run: {e}"))?;
    if !out.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&out.stderr)));
    }
    String::from_utf8(out.stdout).map_err(|e| format!("cargo metadata: {e}"))
}
