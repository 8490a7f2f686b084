//! The pages of structs, errors and constants.

use crate::Title;
use crate::function::constants as constants_of;
use crate::header::{Header, Item, Struct, comment_text, squeeze};
use crate::roff::{escape, line, prose, see_also, summary};
use crate::text::{fault_name, sentences, words};
use std::fmt::Write as _;

/// The widest line of a declaration.
const WIDTH: usize = 70;

/// Structs that share a page: each documented one alone, runs of others under the comment before them.
pub fn groups(header: &Header) -> Vec<Vec<&Struct>> {
    let mut out: Vec<Vec<&Struct>> = Vec::new();
    for section in &header.sections {
        let mut open = false;
        for item in &section.items {
            match item {
                Item::Struct(s) if open && !s.documented => out.last_mut().expect("a group is open").push(s),
                Item::Struct(s) => {
                    out.push(vec![s]);
                    open = !s.documented;
                }
                _ => open = false,
            }
        }
    }
    out
}

/// The name of the page that describes a struct.
pub fn page_of<'a>(header: &'a Header, name: &'a str) -> &'a str {
    groups(header).iter().find(|g| g.iter().any(|s| s.name == name)).map_or(name, |g| g[0].name.as_str())
}

/// The page of a group of structs.
pub fn page(header: &Header, group: &[&Struct], title: &Title) -> String {
    let first = group[0];
    let mut out = title.line(&first.name, 3);
    let names: Vec<&str> = group.iter().map(|s| s.name.as_str()).collect();
    let brief = sentences(&first.comment).into_iter().next().unwrap_or_default();
    let _ = write!(out, ".SH NAME\n{} \\- {}\n", names.join(", "), summary(&brief));
    out.push_str(".SH SYNOPSIS\n.nf\n.B #include <ioverbs.h>\n");
    for s in group {
        let init = init_of(&s.name);
        if header.items().any(|i| matches!(i, Item::Init(name) if *name == init)) {
            let _ = write!(out, ".PP\n\\fB{}\\fP \\fIx\\fP = \\fB{init}\\fP;\n", s.name);
        }
    }
    let _ = write!(out, ".fi\n.SH DESCRIPTION\n{}", prose(header, &first.comment, &first.name));
    let sources: String = group.iter().map(|s| s.source.as_str()).collect::<Vec<_>>().join("\n");
    out.push_str(".PP\n.EX\n");
    for item in header.items() {
        if let Item::Callback(c) = item
            && words(&sources).iter().any(|(_, w)| *w == c.name)
        {
            out.push_str(&code(header, &c.source));
            out.push('\n');
        }
    }
    for s in group {
        out.push_str(&code(header, &s.source));
    }
    out.push_str(".EE\n");
    out.push_str(&constants_of(header, &sources));
    let section =
        header.sections.iter().find(|s| s.items.iter().any(|i| matches!(i, Item::Struct(x) if x.name == first.name)));
    if let Some(note) = section.map(|s| &s.note).filter(|n| !n.is_empty()) {
        let _ = write!(out, ".SH NOTES\n{}", prose(header, note, ""));
    }
    let mut related = Vec::new();
    for function in header.functions().flat_map(|g| &g.functions) {
        let uses = |text: &str| words(text).iter().any(|(_, w)| names.contains(w));
        if function.parameters.iter().any(|p| uses(p)) || uses(&function.returns) {
            related.push((function.name.clone(), 3));
        }
    }
    related.push(("iov_constants".to_owned(), 3));
    related.sort();
    related.push(("ioverbs".to_owned(), 7));
    out.push_str(&see_also(&related));
    out
}

fn init_of(name: &str) -> String {
    format!("{}_INIT", name.to_uppercase())
}

/// A declaration in at most [`WIDTH`] columns: a comment that does not fit beside its field goes above it.
fn code(header: &Header, source: &str) -> String {
    let mut out = String::new();
    let mut pending: Vec<&str> = Vec::new();
    let opened = opened(source);
    for raw in opened.lines() {
        let (field, comment) =
            raw.split_once("/*").map_or((raw, None), |(f, c)| (f, Some(spelled(header, &comment_text(c)))));
        if field.trim().is_empty() && comment.is_some() {
            above(&mut out, raw, &comment.unwrap_or_default());
            continue;
        }
        pending.push(field.trim_end());
        let complete = field.trim_end().ends_with([';', '{', '}']) || comment.is_some();
        if !complete {
            continue;
        }
        let whole = if pending.len() == 1 {
            pending[0].to_owned()
        } else {
            let indent = &pending[0][..pending[0].len() - pending[0].trim_start().len()];
            format!("{indent}{}", squeeze(&pending.join(" ")))
        };
        pending.clear();
        match comment {
            None => wrap(&mut out, &whole),
            Some(c) if whole.len() + c.len() + 7 <= WIDTH => {
                out.push_str(&line(&escape(&format!("{:<30} /* {c} */", whole))));
            }
            Some(c) => {
                above(&mut out, &whole, &c);
                wrap(&mut out, &whole);
            }
        }
    }
    out
}

/// A comment without backticks and with the full names of errors.
fn spelled(header: &Header, comment: &str) -> String {
    let mut out = comment.to_owned();
    for (at, word) in words(comment).into_iter().rev() {
        if let Some(error) = fault_name(header, word) {
            out.replace_range(at..at + word.len(), &format!("IOV_E{error}"));
        }
    }
    out.replace('`', "")
}

/// A struct that stands in one line, with its comment before it and a line for each field if it is long.
fn opened(source: &str) -> String {
    let (fields, comment) = source.split_once("/*").unwrap_or((source, ""));
    let fields = squeeze(fields);
    if source.contains('\n') || fields.len() <= WIDTH && comment.is_empty() || !fields.contains(" { ") {
        return source.to_owned();
    }
    let comment = if comment.is_empty() { String::new() } else { format!("/*{comment}\n") };
    if fields.len() <= WIDTH {
        return format!("{comment}{fields}");
    }
    format!("{comment}{}", fields.replace(" { ", " {\n    ").replace("; }", ";\n}").replace("; ", ";\n    "))
}

/// A comment above a field, at its indentation.
fn above(out: &mut String, field: &str, comment: &str) {
    let indent = " ".repeat(field.len() - field.trim_start().len());
    let mut row = format!("{indent}/*");
    for word in comment.split(' ') {
        if row.len() + word.len() + 4 > WIDTH {
            out.push_str(&line(&escape(&row)));
            row = format!("{indent}  ");
        }
        row.push(' ');
        row.push_str(word);
    }
    out.push_str(&line(&escape(&format!("{row} */"))));
}

/// A field, broken behind commas.
fn wrap(out: &mut String, field: &str) {
    let indent = " ".repeat(field.len() - field.trim_start().len() + 4);
    let mut row = String::new();
    for (at, part) in field.split(", ").enumerate() {
        if at > 0 && row.len() + part.len() + 3 > WIDTH {
            out.push_str(&line(&escape(&format!("{row},"))));
            row = format!("{indent}{part}");
        } else {
            row = if at > 0 { format!("{row}, {part}") } else { part.to_owned() };
        }
    }
    out.push_str(&line(&escape(&row)));
}

/// A table of constants, with a remark below it or nothing.
pub fn list(constants: &[(String, String)], remark: &str) -> String {
    let mut out = String::from(".RS 4\n.nf\n");
    for (name, value) in constants {
        let _ = writeln!(out, "\\fB{name}\\fP = {}", escape(value));
    }
    if !remark.is_empty() {
        let _ = writeln!(out, "({})", escape(remark));
    }
    out.push_str(".fi\n.RE\n");
    out
}

/// The page of the error numbers.
pub fn errors(header: &Header, title: &Title) -> String {
    let mut out = title.line("iov_error", 3);
    out.push_str(".SH NAME\niov_error \\- what went wrong, and what the caller should do\n");
    out.push_str(".SH SYNOPSIS\n.nf\n.B #include <ioverbs.h>\n.fi\n.SH DESCRIPTION\n");
    out.push_str(&prose(header, &header.error_comment, ""));
    out.push_str("Functions return the negative of these values.\n");
    for (name, number, text) in &header.errors {
        let _ = write!(out, ".TP\n.BR IOV_E{name} \" ({number})\"\n{}", prose(header, text, ""));
    }
    let also = ["iov_error_detail", "iov_error_last", "iov_strerror"].map(|n| (n.to_owned(), 3));
    out.push_str(&see_also(&[also.as_slice(), &[("ioverbs".to_owned(), 7)]].concat()));
    out
}

/// The page of all other constants.
pub fn constants(header: &Header, title: &Title) -> String {
    let mut out = title.line("iov_constants", 3);
    out.push_str(".SH NAME\niov_constants \\- the constants of the library\n");
    out.push_str(".SH SYNOPSIS\n.nf\n.B #include <ioverbs.h>\n.fi\n.SH DESCRIPTION\n");
    out.push_str("All constants but the error numbers, in the order of the header.\n");
    let mut said: Vec<&str> = Vec::new();
    for item in header.items() {
        if let Item::Constants(constants, before, behind) = item {
            if !before.is_empty() && !said.contains(&before.as_str()) {
                let _ = write!(out, ".PP\n{}", prose(header, before, ""));
                said.push(before);
            }
            let _ = write!(out, ".PP\n{}", list(constants, behind));
        }
    }
    out.push_str(&see_also(&[("iov_error".to_owned(), 3), ("ioverbs".to_owned(), 7)]));
    out
}
