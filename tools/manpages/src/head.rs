//! The comment at the head of the header: what it says once for all functions.

use crate::header::squeeze;

/// Which functions a general error belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All.
    Anywhere,
    /// Those that may ask a server: `[op]` and `[call]`.
    Remote,
    /// Those that append to a batch: `[op]`.
    Append,
}

/// The head comment.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// What the library is, without its name.
    pub brief: String,
    /// What comes before the rules.
    pub intro: Vec<String>,
    /// The rules, from 1 on, without their numbers.
    pub rules: Vec<String>,
    /// What comes after the rules.
    pub conventions: Vec<String>,
    /// What the tags mean: `op`, `call`, `local`.
    pub tags: Vec<(String, String)>,
    /// Errors that are not repeated at each function: name without `IOV_E`, scope, remark.
    pub errors: Vec<(String, Scope, String)>,
}

/// Reads the comment.
///
/// # Errors
/// If the tags or the general errors are not where they are looked for.
pub fn parse(raw: &str) -> Result<Head, String> {
    let mut head = Head::default();
    let lines: Vec<&str> = raw.lines().filter_map(|l| l.trim_start().strip_prefix('*')).collect();
    for block in lines.split(|l| l.trim().is_empty()) {
        let text: Vec<&str> = block.iter().map(|l| l.strip_prefix(' ').unwrap_or(l)).collect();
        let first = text.first().copied().unwrap_or("");
        if let Some(brief) = text.iter().find_map(|l| l.strip_prefix("@brief ")) {
            head.brief = brief.split_once(": ").map_or(brief, |(_, b)| b).trim_end_matches('.').to_owned();
        } else if numbered(text.get(1).unwrap_or(&"")).is_some() {
            head.rules = paragraphs(&text[1..], |l| numbered(l).is_some());
            head.rules.iter_mut().for_each(|r| *r = numbered(r).unwrap_or(r).to_owned());
        } else if text.iter().any(|l| l.starts_with(' ')) {
            head.conventions = paragraphs(&text, |l| !l.starts_with(' '));
        } else if !first.is_empty() && first != "/" {
            head.intro.push(squeeze(&text.join(" ")));
        }
    }
    head.tags = tags(&head.conventions).ok_or("the head comment does not explain [op], [call] and [local]")?;
    head.errors = errors(&head.conventions)?;
    Ok(head)
}

/// The text behind `1. `.
fn numbered(line: &str) -> Option<&str> {
    let (number, rest) = line.trim_start().split_once(". ")?;
    number.parse::<u8>().ok().map(|_| rest)
}

fn paragraphs(lines: &[&str], begins: impl Fn(&str) -> bool) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for line in lines.iter().filter(|l| l.trim() != "/") {
        match out.last_mut() {
            Some(last) if !begins(line) => *last = squeeze(&format!("{last} {line}")),
            _ => out.push(squeeze(line)),
        }
    }
    out
}

fn tags(conventions: &[String]) -> Option<Vec<(String, String)>> {
    let names = ["op", "call", "local"];
    let text = conventions.iter().find(|p| names.iter().all(|n| p.contains(&format!("[{n}]:"))))?;
    let meaning = |name: &str| {
        let rest = text.split_once(&format!("[{name}]:"))?.1;
        let end = names.iter().filter_map(|n| rest.find(&format!("[{n}]:"))).min().unwrap_or(rest.len());
        Some((name.to_owned(), rest[..end].trim().to_owned()))
    };
    names.iter().map(|n| meaning(n)).collect()
}

/// Reads "Not repeated: INVALID, EXHAUSTED (memory) anywhere; DENIED with [op] and [call]; BUSY on …".
fn errors(conventions: &[String]) -> Result<Vec<(String, Scope, String)>, String> {
    let text = conventions.iter().find_map(|p| p.split_once("Not repeated: "));
    let text = text.ok_or("the head comment does not say which errors are not repeated")?.1.trim_end_matches('.');
    let mut out = Vec::new();
    for part in text.split("; ") {
        let (scope, names, remark) = if let Some(names) = part.strip_suffix(" anywhere") {
            (Scope::Anywhere, names, "")
        } else if let Some(names) = part.strip_suffix(" with [op] and [call]") {
            (Scope::Remote, names, "")
        } else if let Some((names, remark)) = part.split_once(" on appending ") {
            (Scope::Append, names, remark)
        } else {
            return Err(format!("which functions are meant by: {part}"));
        };
        let remark = if remark.is_empty() { String::new() } else { format!("on appending {remark}") };
        for name in names.split(", ") {
            let (name, own) = name.split_once(" (").unwrap_or((name, ""));
            let own = own.trim_end_matches(')');
            let remark = if own.is_empty() { remark.clone() } else { own.to_owned() };
            out.push((name.to_owned(), scope, remark));
        }
    }
    Ok(out)
}
