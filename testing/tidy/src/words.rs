//! Words that do not belong in the tree: promises to finish later, paths of one machine, ways around the seam.

use crate::Violation;
use crate::tokens::{matches, tokens};
use crate::tree::{Tree, extension};

const SOURCES: &[&str] = &["rs", "c", "h", "cpp", "hpp", "py", "pyi", "sh", "toml", "map", "in", "yml", "yaml"];

/// Marks of unfinished work. They are put together here, so that this file does not contain them.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Folders of one machine. A document may name none of them; a source may name a temporary folder.
const MACHINE: &[&str] = &[concat!("/wo", "rk"), concat!("/ro", "ot"), concat!("/ho", "me")];
const MACHINE_IN_DOCUMENTS: &[&str] = &[concat!("/tm", "p")];

fn is_source(file: &str) -> bool {
    SOURCES.contains(&extension(file)) || matches!(file, "Makefile" | ".ci/run" | ".editorconfig")
}

/// Reports marks of unfinished work in sources, and the macros `todo!` and `unimplemented!`.
pub fn unfinished(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut report = |file: &str, line: usize, word: &str| {
        let remedy = "finish it, or file an issue and say in a sentence what holds today";
        violations.push(Violation::at(file, line, format!("`{word}` in a source"), remedy));
    };
    for file in tree.files.iter().filter(|f| is_source(f)) {
        let text = tree.text(file);
        for (at, line) in text.lines().enumerate() {
            for word in UNFINISHED.iter().filter(|word| has_word(line, word)) {
                report(file, at + 1, word);
            }
        }
        if file.ends_with(".rs") {
            let tokens = tokens(&text);
            for (at, token) in tokens.iter().enumerate() {
                for name in ["todo", "unimplemented"] {
                    if matches(&tokens, at, &[name, "!", "("]) {
                        report(file, token.line, &format!("{name}!"));
                    }
                }
            }
        }
    }
    violations
}

/// Reports absolute paths of one machine in sources and documents.
pub fn machine_paths(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in &tree.files {
        let document = file.ends_with(".md");
        if !document && !is_source(file) {
            continue;
        }
        let more = if document { MACHINE_IN_DOCUMENTS } else { &[] };
        for (at, line) in tree.text(file).lines().enumerate() {
            for folder in MACHINE.iter().chain(more).filter(|folder| has_folder(line, folder)) {
                let remedy = "use a relative path, a variable, or a name such as DIR";
                violations.push(Violation::at(file, at + 1, format!("a path of one machine: {folder}"), remedy));
            }
        }
    }
    violations
}

/// Reports `disallowed_methods` outside tests and the seam: nobody else reads clocks, sleeps, spawns or draws lots.
pub fn seam(tree: &Tree) -> Vec<Violation> {
    let exempt = |file: &str| {
        file.split('/').any(|part| matches!(part, "tests" | "testing" | "tests.rs"))
            || file.starts_with("crates/iov-store/src/seam")
    };
    let mut violations = Vec::new();
    for file in tree.with_extension(&["rs"]).filter(|f| !exempt(f)) {
        for token in tokens(&tree.text(file)).iter().filter(|t| t.is_word("disallowed_methods")) {
            let remedy = "call iov_store::seam, or take the time, the number or the thread as an argument";
            violations.push(Violation::at(file, token.line, "a way around the banned functions", remedy));
        }
    }
    violations
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `word` occurs in `line` as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_word_char) && !line[at + word.len()..].starts_with(is_word_char))
}

/// Whether `folder` occurs in `line` as the beginning of an absolute path.
fn has_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let is_path = |c: char| is_word_char(c) || matches!(c, '.' | '-' | '/' | '~' | '}' | ')' | '*' | '>' | '$');
        let is_longer_name = |c: char| is_word_char(c) || matches!(c, '-' | '.');
        !line[..at].ends_with(is_path) && !line[at + folder.len()..].starts_with(is_longer_name)
    })
}
