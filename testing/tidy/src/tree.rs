//! The files of a source tree: those that git tracks or would track.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// A source tree and the files that belong to it.
#[derive(Debug, Clone)]
pub struct Tree {
    /// The top directory.
    pub root: PathBuf,
    /// Files relative to the top, with `/`, sorted.
    pub files: Vec<String>,
}

impl Tree {
    /// The tree that git sees: tracked files and new ones that are not ignored, without those deleted meanwhile.
    ///
    /// # Errors
    /// If git cannot be run or refuses.
    pub fn from_git(root: &Path) -> Result<Tree, String> {
        let out = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|e| format!("git cannot be run: {e}; the checks need git and a work tree"))?;
        if !out.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&out.stderr)));
        }
        let listed = String::from_utf8(out.stdout).map_err(|e| format!("a file name is not UTF-8: {e}"))?;
        let mut files: Vec<String> =
            listed.split('\0').filter(|f| !f.is_empty() && root.join(f).is_file()).map(str::to_owned).collect();
        files.sort();
        files.dedup();
        Ok(Tree { root: root.to_owned(), files })
    }

    /// All files below a directory; for trees that git does not know.
    pub fn from_walk(root: &Path) -> Tree {
        let mut files = Vec::new();
        let mut open = vec![root.to_owned()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    open.push(path);
                } else if let Ok(relative) = path.strip_prefix(root) {
                    files.push(relative.to_string_lossy().into_owned());
                }
            }
        }
        files.sort();
        Tree { root: root.to_owned(), files }
    }

    /// The text of a file; bytes that are not UTF-8 are replaced, a file that cannot be read is empty.
    pub fn text(&self, file: &str) -> String {
        fs::read(self.root.join(file)).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }

    /// Files with one of these extensions.
    pub fn with_extension<'a>(&'a self, extensions: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.files.iter().map(String::as_str).filter(|f| extensions.contains(&extension(f)))
    }

    /// A path below the top as one of `files` would spell it; `None` if it lies outside.
    pub fn relative(&self, path: &Path) -> Option<String> {
        let path = normal(path);
        let path = path.strip_prefix(normal(&self.root)).ok()?;
        Some(path.to_string_lossy().into_owned())
    }
}

/// What follows the last dot of the last part of a path, or nothing.
pub fn extension(file: &str) -> &str {
    Path::new(file).extension().and_then(|e| e.to_str()).unwrap_or("")
}

/// A path without `.` and `..`, by its text alone.
pub fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !out.pop() {
                    out.push("..");
                }
            }
            other => out.push(other),
        }
    }
    out
}
