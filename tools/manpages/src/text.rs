//! What the comment of a function says: sentences, errors, and references to other functions and rules.

use crate::header::Header;

/// When a function may wait: the tag at the end of its comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// `[op]`
    Op,
    /// `[call]`
    Call,
    /// `[local]`
    Local,
}

impl Tag {
    /// The word between the brackets.
    pub fn word(self) -> &'static str {
        match self {
            Tag::Op => "op",
            Tag::Call => "call",
            Tag::Local => "local",
        }
    }
}

/// An error that a function may return, and a remark on when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its name without `IOV_E`.
    pub name: String,
    /// A remark, or nothing.
    pub remark: String,
}

/// A comment, taken apart.
#[derive(Debug, Clone)]
pub struct Comment {
    /// When it may wait; a function of a backend has no tag.
    pub tag: Option<Tag>,
    /// All sentences but those that only name errors, a rule or another function.
    pub sentences: Vec<String>,
    /// The errors named anywhere in it.
    pub faults: Vec<Fault>,
    /// The function whose errors it shares: "As iov_write."
    pub like: Option<String>,
    /// The rules of the head comment that it names, from 1 on.
    pub rules: Vec<usize>,
}

/// Takes a comment apart.
pub fn comment(header: &Header, text: &str) -> Comment {
    let (mut body, mut tag) = (text.trim(), None);
    for candidate in [Tag::Op, Tag::Call, Tag::Local] {
        if let Some(rest) = body.strip_suffix(&format!("[{}]", candidate.word())) {
            (body, tag) = (rest.trim(), Some(candidate));
        }
    }
    let mut out = Comment { tag, sentences: Vec::new(), faults: faults(header, body), like: None, rules: Vec::new() };
    for sentence in sentences(body) {
        let bare = sentence.trim_end_matches('.');
        if let Some(function) = bare.strip_prefix("As iov_") {
            out.like = Some(format!("iov_{}", function.split([',', ' ']).next().unwrap_or(function)));
        }
        if let Some(rule) = bare.strip_prefix("Rule ").and_then(|r| r.parse().ok()) {
            out.rules.push(rule);
        } else if !only_as(bare) && !begins_with_fault(header, bare) {
            out.sentences.push(sentence);
        }
    }
    out
}

/// Whether a sentence is "As iov_write" and nothing else.
fn only_as(bare: &str) -> bool {
    bare.strip_prefix("As iov_").is_some_and(|rest| !rest.contains([' ', ',']))
}

/// Splits at every dot that white space or the end follows.
pub fn sentences(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = text.trim();
    while let Some(at) = rest.find(". ") {
        out.push(rest[..=at].to_owned());
        rest = rest[at + 1..].trim_start();
    }
    if !rest.is_empty() {
        out.push(rest.to_owned());
    }
    out
}

/// The words of a text with their positions: letters, digits and `_`.
pub fn words(text: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (c.is_ascii_alphanumeric() || c == '_', start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                out.push((from, &text[from..at]));
                start = None;
            }
            _ => {}
        }
    }
    out
}

/// The error that a word names, with or without `IOV_E`.
pub fn fault_name(header: &Header, word: &str) -> Option<String> {
    let bare = word.strip_prefix("IOV_E").unwrap_or(word);
    header.errors.iter().any(|(name, ..)| name == bare).then(|| bare.to_owned())
}

/// Whether a sentence is about errors only: "NOTFOUND, BUSY (held exclusively)", "TIMEOUT: none yet, ask again".
fn begins_with_fault(header: &Header, sentence: &str) -> bool {
    let Some((0, first)) = words(sentence).first().copied() else { return false };
    let rest = &sentence[first.len()..];
    let about = rest.is_empty() || [",", " (", ":", " while ", " if "].iter().any(|start| rest.starts_with(start));
    fault_name(header, first).is_some() && about
}

/// The errors that a text names, each once, with the remark behind the name.
pub fn faults(header: &Header, text: &str) -> Vec<Fault> {
    let mut out: Vec<Fault> = Vec::new();
    for sentence in sentences(text) {
        for (at, word) in words(&sentence) {
            let Some(name) = fault_name(header, word) else { continue };
            let remark = remark(&sentence[at + word.len()..]);
            match out.iter_mut().find(|f| f.name == name) {
                Some(fault) if fault.remark.is_empty() => fault.remark = remark,
                Some(_) => {}
                None => out.push(Fault { name, remark }),
            }
        }
    }
    out
}

/// What directly follows the name of an error: "(scheme)", ": none yet, ask again", " while it is pending".
fn remark(rest: &str) -> String {
    let to_end = |text: &str| text.split([';', '.']).next().unwrap_or("").trim().to_owned();
    if let Some(inner) = rest.strip_prefix(" (") {
        inner.split(')').next().unwrap_or("").to_owned()
    } else if let Some(text) = rest.strip_prefix(": ") {
        to_end(text)
    } else if rest.starts_with(" while ") || rest.starts_with(" if ") {
        to_end(rest)
    } else {
        String::new()
    }
}
