//! Relative links in documents lead somewhere.

use crate::Violation;
use crate::tree::{Tree, normal};
use std::collections::BTreeSet;
use std::path::Path;

/// Reports relative links in Markdown files whose file or heading does not exist.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.with_extension(&["md"]) {
        for (target, line) in links(&tree.text(file)) {
            if let Some(problem) = problem(tree, file, &target) {
                let what = format!("the link `{target}` {problem}");
                violations.push(Violation::at(file, line, what, "correct the link, or add what it leads to"));
            }
        }
    }
    violations
}

fn problem(tree: &Tree, file: &str, target: &str) -> Option<String> {
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let to = if path.is_empty() { file.into() } else { normal(&folder.join(path)) };
    if path.starts_with('/') || to.starts_with("..") {
        return Some("leaves the repository".into());
    }
    let name = to.to_string_lossy();
    let known = tree.files.iter().any(|f| *f == *name || f.starts_with(&format!("{name}/"))) || name.is_empty();
    if !known {
        return Some("leads to no file of the repository".into());
    }
    let lost = !heading.is_empty() && name.ends_with(".md") && !headings(&tree.text(&name)).contains(heading);
    lost.then(|| format!("leads to no heading of {name}"))
}

/// The relative targets of `[text](target)` and `[label]: target`, outside of code, with their lines.
pub fn links(page: &str) -> Vec<(String, usize)> {
    let mut out = Vec::new();
    for (line, at) in prose(page) {
        if let Some((_, rest)) = line.split_once("]: ").filter(|_| line.starts_with('[')) {
            out.extend(rest.split_whitespace().next().map(|t| (t.to_owned(), at)));
        }
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or("");
            out.push((target.trim_matches(['<', '>']).to_owned(), at));
        }
    }
    out.retain(|(target, _)| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"));
    out
}

/// The lines of a page that are not in a fence, without what stands between backticks.
fn prose(page: &str) -> Vec<(String, usize)> {
    let mut fenced = false;
    let mut out = Vec::new();
    for (at, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            out.push((line.split('`').step_by(2).collect(), at + 1));
        }
    }
    out
}

/// The anchors of a page's headings, as GitHub and GitLab make them.
fn headings(page: &str) -> BTreeSet<String> {
    let slug = |title: &str| -> String {
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
    };
    let mut fenced = false;
    let mut out = BTreeSet::new();
    for line in page.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced && line.starts_with('#') {
            out.insert(slug(line.trim_start_matches('#')));
        }
    }
    out
}
