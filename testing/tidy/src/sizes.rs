//! The file-size rule: a room with more than 500 lines is two rooms.

use crate::Violation;
use crate::tree::Tree;

/// The most lines that a source file may have.
pub const MAX_LINES: usize = 500;

const EXTENSIONS: &[&str] = &["rs", "c", "h", "cpp", "hpp", "py", "sh"];

/// Files that may be longer, and why.
pub const EXCEPTIONS: &[(&str, &str)] =
    &[("bindings/c/include/ioverbs.h", "the C ABI is one header, so that a program includes one file")];

/// Reports source files with more than [`MAX_LINES`] lines.
pub fn check(tree: &Tree) -> Vec<Violation> {
    tree.with_extension(EXTENSIONS)
        .filter(|file| !EXCEPTIONS.iter().any(|(exception, _)| exception == file))
        .filter_map(|file| {
            let lines = tree.text(file).lines().count();
            (lines > MAX_LINES).then(|| {
                Violation::at(
                    file,
                    lines,
                    format!("{lines} lines, at most {MAX_LINES} are allowed"),
                    "split it by what it does; unit tests go to a sibling tests.rs",
                )
            })
        })
        .collect()
}
