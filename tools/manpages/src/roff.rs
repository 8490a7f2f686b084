//! Text as roff, in the macros of man(7).

use crate::header::Header;
use crate::text::{fault_name, sentences, words};

/// Makes plain characters safe.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let next = text[at + c.len_utf8()..].chars().next().unwrap_or(' ');
        match c {
            '\\' => out.push_str("\\e"),
            '~' => out.push_str("\\(ti"),
            '^' => out.push_str("\\(ha"),
            '\'' => out.push_str("\\(aq"),
            '-' if !before.is_alphanumeric() && next.is_alphanumeric() => out.push_str("\\-"),
            '-' if before == '-' || next == '-' => out.push_str("\\-"),
            c => out.push(c),
        }
        before = c;
    }
    out
}

/// A line of text that roff cannot take for a request.
pub fn line(text: &str) -> String {
    if text.starts_with(['.', '\'']) { format!("\\&{text}\n") } else { format!("{text}\n") }
}

/// A paragraph, one sentence a line, with names set in bold, and in italics what the header puts between backticks.
/// `own` is the function that the page is about: it is not a reference.
pub fn prose(header: &Header, text: &str, own: &str) -> String {
    sentences(text).iter().map(|s| line(&inline(header, s, own))).collect()
}

/// One sentence.
pub fn inline(header: &Header, text: &str, own: &str) -> String {
    let mut out = String::new();
    for (at, part) in text.split('`').enumerate() {
        if at % 2 == 1 {
            out.push_str(&format!("\\fI{}\\fP", escape(part)));
        } else {
            out.push_str(&names(header, part, own));
        }
    }
    out
}

fn names(header: &Header, text: &str, own: &str) -> String {
    let mut out = String::new();
    let mut done = 0;
    for (at, word) in words(text) {
        let before = &text[done..at];
        let pointer = before.ends_with('*');
        let styled = if let Some(error) = fault_name(header, word) {
            format!("\\fBIOV_E{error}\\fP")
        } else if word.starts_with("IOV_") || word == own {
            format!("\\fB{word}\\fP")
        } else if word.starts_with("iov_") && (header.group_of(word).is_some() || has_page(header, word)) {
            format!("\\fB{word}\\fP(3)")
        } else if pointer && word.starts_with(|c: char| c.is_ascii_lowercase()) {
            out.push_str(&escape_between(before.strip_suffix('*').unwrap_or(before), word));
            out.push_str(&format!("\\fI*{word}\\fP"));
            done = at + word.len();
            continue;
        } else {
            continue;
        };
        out.push_str(&escape_between(before, word));
        out.push_str(&styled);
        done = at + word.len();
    }
    out + &escape(&text[done..])
}

/// Escapes a text that a word follows directly: a `-` at its end is a minus.
fn escape_between(text: &str, next: &str) -> String {
    let whole = escape(&format!("{text}{}", &next[..1]));
    whole[..whole.len() - 1].to_owned()
}

fn has_page(header: &Header, name: &str) -> bool {
    name == "iov_error" || header.has_struct(name)
}

/// A name for the NAME line: plain text without references, clauses and backticks, beginning in lower case.
pub fn summary(text: &str) -> String {
    let mut out = text.replace('`', "");
    while let (Some(open), Some(close)) = (out.find(" ("), out.find(')')) {
        out.replace_range(open..=close.max(open), "");
    }
    let mut chars = out.chars();
    let first = chars.next().unwrap_or(' ');
    let lower = chars.clone().next().is_none_or(|c| c.is_lowercase() || c == ' ');
    let out = if lower { format!("{}{}", first.to_lowercase(), chars.as_str()) } else { out.clone() };
    escape(out.trim_end_matches(['.', ' ']))
}

/// A prototype in at most 70 columns, parameters in italics.
pub fn prototype(returns: &str, name: &str, parameters: &[String]) -> String {
    let space = if returns.ends_with('*') { "" } else { " " };
    let start = format!("{returns}{space}{name}(");
    let mut column = start.len();
    let mut out = format!("\\fB{start}\\fP");
    for (at, parameter) in parameters.iter().enumerate() {
        let end = if at + 1 == parameters.len() { ");" } else { "," };
        let width = parameter.len() + end.len() + 1;
        if at > 0 && column + width > 70 {
            column = start.len().min(12);
            out.push_str(&format!("\n{}", " ".repeat(column)));
        } else if at > 0 {
            out.push(' ');
        }
        column += width;
        let split = parameter.rfind([' ', '*']).map_or(0, |p| p + 1);
        let (kind, variable) = parameter.split_at(split);
        if kind.is_empty() {
            out.push_str(&format!("\\fB{variable}{end}\\fP"));
        } else {
            out.push_str(&format!("\\fB{kind}\\fP\\fI{variable}\\fP\\fB{end}\\fP"));
        }
    }
    out.push('\n');
    out
}

/// The SEE ALSO section; `pages` as `("iov_read", 3)`.
pub fn see_also(pages: &[(String, u8)]) -> String {
    let mut out = String::from(".SH SEE ALSO\n");
    for (at, (name, section)) in pages.iter().enumerate() {
        let comma = if at + 1 == pages.len() { "" } else { "," };
        out.push_str(&format!(".BR {name} ({section}){comma}\n"));
    }
    out
}
