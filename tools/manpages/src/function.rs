//! The page of a function, or of functions that share a comment.

use crate::Title;
use crate::head::Scope;
use crate::header::{Group, Header, Item};
use crate::notes;
use crate::roff::{inline, line, prose, prototype, see_also, summary};
use crate::text::{Comment, Fault, Tag, comment, faults, sentences, words};
use crate::types;
use std::fmt::Write as _;

/// How many functions before and after this one its SEE ALSO names.
const NEIGHBOURS: usize = 3;

/// What NAME says of a group of functions.
pub fn brief(group: &Group) -> String {
    let first = sentences(&group.comment).into_iter().next().unwrap_or_default();
    let short = first.split([';', ':']).next().unwrap_or(&first).to_owned();
    summary(notes::on(&group.functions[0].name).and_then(|n| n.summary).unwrap_or(&short))
}

/// Makes the page.
///
/// # Errors
/// If the comment names a rule or function that does not exist, or lacks its tag.
pub fn page(header: &Header, group: &Group, title: &Title) -> Result<String, String> {
    let name = &group.functions[0].name;
    let comment = comment(header, &group.comment);
    let ours = header.section_of(name).is_some_and(|s| s.note.is_empty());
    if comment.tag.is_none() && ours {
        return Err(format!("the comment of {name} does not end with [op], [call] or [local]"));
    }
    let mut out = title.line(name, 3);
    let names: Vec<&str> = group.functions.iter().map(|f| f.name.as_str()).collect();
    let _ = write!(out, ".SH NAME\n{} \\- {}\n", names.join(", "), brief(group));
    out.push_str(&synopsis(header, group));
    out.push_str(".SH DESCRIPTION\n");
    out.push_str(&description(header, group, &comment)?);
    out.push_str(&constants(header, &group.comment));
    out.push_str(&returns(header, group, &comment));
    out.push_str(&errors(header, group, &comment)?);
    if let Some(tag) = comment.tag {
        out.push_str(&blocking(header, tag));
    }
    out.push_str(&see_also(&related(header, group, &comment)));
    Ok(out)
}

fn synopsis(header: &Header, group: &Group) -> String {
    let mut out = String::from(".SH SYNOPSIS\n.nf\n.B #include <ioverbs.h>\n.PP\n");
    let uses = |name: &str| {
        let parameters = group.functions.iter().flat_map(|f| &f.parameters);
        parameters.flat_map(|p| words(p)).any(|(_, word)| word == name)
    };
    for item in header.items() {
        if let Item::Callback(callback) = item
            && uses(&callback.name)
        {
            let _ = write!(out, "\\fB{}\\fP\n.PP\n", crate::header::squeeze(&callback.source));
        }
    }
    for function in &group.functions {
        out.push_str(&prototype(&function.returns, &function.name, &function.parameters));
    }
    out.push_str(".fi\n.PP\nCompile and link with \\fIpkg-config \\-\\-cflags \\-\\-libs ioverbs\\fP.\n");
    out
}

fn description(header: &Header, group: &Group, comment: &Comment) -> Result<String, String> {
    let name = &group.functions[0].name;
    let mut out = String::new();
    if let Some(before) = notes::on(name).and_then(|n| n.follows) {
        let first = header.group_of(before).ok_or_else(|| format!("{before} does not exist"))?;
        let text = crate::text::comment(header, &first.comment).sentences.join(" ");
        let _ = write!(out, ".BR {before} (3):\n{}.PP\n.BR {name} ():\n", prose(header, &text, before));
    }
    out.push_str(&prose(header, &comment.sentences.join(" "), name));
    if let Some(like) = comment.like.as_ref().filter(|like| !comment.sentences.iter().any(|s| s.contains(*like))) {
        let _ = writeln!(out, "In all else it is as\n.BR {like} (3).");
    }
    for item in header.items() {
        if let Item::Callback(callback) = item
            && group.functions.iter().flat_map(|f| &f.parameters).any(|p| p.starts_with(&callback.name))
        {
            let _ = write!(out, ".PP\n\\fB{}\\fP:\n{}", callback.name, prose(header, &callback.comment, name));
        }
    }
    for rule in &comment.rules {
        let text = header.head.rules.get(rule - 1).ok_or_else(|| format!("{name} names rule {rule}, which is none"))?;
        let _ = write!(out, ".PP\nRule {rule} of\n.BR ioverbs (7):\n{}", prose(header, text, name));
    }
    let note = header.section_of(name).map(|s| s.note.as_str()).unwrap_or_default();
    if !note.is_empty() {
        let _ = write!(out, ".PP\n{}", prose(header, note, name));
    }
    Ok(out)
}

/// The constants that a comment means by `IOV_NAME_*`.
pub fn constants(header: &Header, comment: &str) -> String {
    let mut out = String::new();
    for (at, prefix) in words(comment) {
        if !prefix.starts_with("IOV_") || !prefix.ends_with('_') || !comment[at + prefix.len()..].starts_with('*') {
            continue;
        }
        let meant: Vec<_> = header.constants().filter(|(name, _)| name.starts_with(prefix)).cloned().collect();
        if !meant.is_empty() && !out.contains(&format!(" {prefix}*")) {
            let _ = write!(out, ".PP\n.B {prefix}*\nstands for:\n{}", types::list(&meant, ""));
        }
    }
    out
}

fn returns(header: &Header, group: &Group, comment: &Comment) -> String {
    let function = &group.functions[0];
    let mut out = String::from(".SH RETURN VALUE\n");
    if let Some(text) = notes::on(&function.name).and_then(|n| n.returns) {
        out.push_str(&prose(header, text, &function.name));
    } else if function.returns == "void" {
        out.push_str("None.\n");
    } else if function.returns != "int" {
        out.push_str("The value described above.\n");
    } else {
        out.push_str("0 on success, otherwise the negative of one of the values below.\n");
        out.push_str("Out-arguments are set on success only.\n");
        if comment.tag == Some(Tag::Op) {
            out.push_str("With a batch, 0 says that the operation was appended;\nhow it ended is told by\n");
            out.push_str(".BR iov_batch_status (3).\n");
        }
    }
    let sized = group.functions.iter().flat_map(|f| &f.parameters).any(|p| p.ends_with("*needed"));
    let convention = header.head.conventions.iter().flat_map(|p| sentences(p)).find(|s| s.contains("*needed"));
    if let Some(sentence) = convention.filter(|_| sized) {
        out.push_str(&prose(header, &sentence, &function.name));
    }
    if function.returns == "int" {
        out.push_str("On an error\n.BR iov_error_detail (3)\nsays more.\n");
    }
    out
}

/// Everything that may go wrong: named in the comment, in that of the function it is like, in a rule, or for all.
fn all_faults(header: &Header, group: &Group, comment: &Comment) -> Result<Vec<Fault>, String> {
    let mut found = comment.faults.clone();
    if let Some(like) = &comment.like {
        let other = header.group_of(like).ok_or_else(|| format!("{like} does not exist"))?;
        if other.functions[0].name == group.functions[0].name {
            return Err(format!("{like} is described as itself"));
        }
        found.extend(all_faults(header, other, &crate::text::comment(header, &other.comment))?);
    }
    for rule in comment.rules.iter().filter_map(|rule| header.head.rules.get(rule - 1)) {
        found.extend(faults(header, rule).into_iter().map(|f| Fault { remark: String::new(), ..f }));
    }
    for (name, scope, remark) in &header.head.errors {
        let applies = match scope {
            Scope::Anywhere => true,
            Scope::Remote => matches!(comment.tag, Some(Tag::Op | Tag::Call)),
            Scope::Append => comment.tag == Some(Tag::Op),
        };
        if applies {
            found.push(Fault { name: name.clone(), remark: remark.clone() });
        }
    }
    Ok(found)
}

fn errors(header: &Header, group: &Group, comment: &Comment) -> Result<String, String> {
    let mut out = String::from(".SH ERRORS\n");
    if group.functions[0].returns != "int" {
        out.push_str("This function reports none.\n");
        return Ok(out);
    }
    let found = all_faults(header, group, comment)?;
    for (name, _, text) in &header.errors {
        let mut remarks: Vec<&str> = Vec::new();
        for fault in found.iter().filter(|f| f.name == *name && !f.remark.is_empty()) {
            if !remarks.contains(&fault.remark.as_str()) {
                remarks.push(&fault.remark);
            }
        }
        if !found.iter().any(|f| f.name == *name) {
            continue;
        }
        let _ = write!(out, ".TP\n.B IOV_E{name}\n{}", prose(header, text, &group.functions[0].name));
        if !remarks.is_empty() {
            let remarks: Vec<String> = remarks.iter().map(|r| inline(header, &spelled(r), "")).collect();
            out.push_str(&line(&format!("Here: {}.", remarks.join("; "))));
        }
    }
    Ok(out)
}

/// A remark that is only the id of a clause, as a phrase.
fn spelled(remark: &str) -> String {
    let mut chars = remark.chars();
    let clause = chars.next().is_some_and(|c| c.is_ascii_uppercase()) && chars.as_str().parse::<u8>().is_ok();
    if clause { format!("see clause {remark}") } else { remark.to_owned() }
}

fn blocking(header: &Header, tag: Tag) -> String {
    let text = header.head.tags.iter().find(|(name, _)| name == tag.word()).map_or("", |(_, text)| text);
    let mut chars = text.chars();
    let first: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    format!(".SH BLOCKING\n{}", prose(header, &format!("{first}{}", chars.as_str()), ""))
}

fn related(header: &Header, group: &Group, comment: &Comment) -> Vec<(String, u8)> {
    let own = &group.functions[0].name;
    let mut out: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        let target = header.group_of(name).map_or(name, |g| g.functions[0].name.as_str());
        if target != own && !out.iter().any(|n| n == target) {
            out.push(target.to_owned());
        }
    };
    comment.like.iter().for_each(|n| add(n));
    notes::on(own).and_then(|n| n.follows).iter().for_each(|n| add(n));
    for (_, word) in words(&group.comment).into_iter().filter(|(_, w)| header.group_of(w).is_some()) {
        add(word);
    }
    for parameter in group.functions.iter().flat_map(|f| &f.parameters) {
        for (_, word) in words(parameter).into_iter().filter(|(_, w)| header.has_struct(w)) {
            add(types::page_of(header, word));
        }
    }
    if let Some(section) = header.section_of(own) {
        let all: Vec<&str> = section
            .items
            .iter()
            .filter_map(|i| if let Item::Functions(g) = i { Some(g.functions[0].name.as_str()) } else { None })
            .collect();
        let at = all.iter().position(|n| n == own).unwrap_or(0);
        all[at.saturating_sub(NEIGHBOURS)..all.len().min(at + NEIGHBOURS + 1)].iter().for_each(|n| add(n));
    }
    out.push("iov_error".to_owned());
    out.sort();
    let mut out: Vec<(String, u8)> = out.into_iter().map(|n| (n, 3)).collect();
    out.push(("ioverbs".to_owned(), 7));
    out
}
