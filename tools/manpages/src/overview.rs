//! The page `ioverbs(7)`: what the head comment says, and a list of everything.

use crate::Title;
use crate::function::brief;
use crate::header::{Header, Item};
use crate::roff::{inline, line, prose, see_also, summary};
use crate::types;
use std::fmt::Write as _;

/// Makes the page.
pub fn page(header: &Header, title: &Title) -> String {
    let head = &header.head;
    let mut out = title.line("ioverbs", 7);
    let _ = write!(out, ".SH NAME\nioverbs \\- {}\n", summary(&head.brief));
    out.push_str(".SH SYNOPSIS\n.nf\n.B #include <ioverbs.h>\n.PP\n");
    out.push_str(
        "\\fBcc\\fP \\fIprogram.c\\fP \\fB$(pkg-config \\-\\-cflags \\-\\-libs ioverbs)\\fP\n.fi\n.SH DESCRIPTION\n",
    );
    let intro: Vec<String> = head.intro.iter().map(|p| prose(header, p, "")).collect();
    out.push_str(&intro.join(".PP\n"));
    out.push_str(".SH RULES\n");
    for (at, rule) in head.rules.iter().enumerate() {
        let _ = write!(out, ".IP {}. 4\n{}", at + 1, prose(header, rule, ""));
    }
    out.push_str(".SH CONVENTIONS\n");
    let tagged = |p: &String| p.contains("[op]:") || p.contains("Not repeated: ");
    let plain: Vec<String> = head.conventions.iter().filter(|p| !tagged(p)).map(|p| prose(header, p, "")).collect();
    out.push_str(&plain.join(".PP\n"));
    out.push_str(
        ".PP\nThe section BLOCKING of each page says when a function may wait, and the section ERRORS what it may\n",
    );
    out.push_str("return; see\n.BR iov_error (3)\nfor what to do about it.\n.SH HANDLES\n");
    for item in header.items() {
        if let Item::Opaque(name, comment) = item {
            let _ = write!(out, ".TP\n.B {name}\n{}", line(&inline(header, comment, "")));
        }
    }
    out.push_str(".SH FUNCTIONS\n");
    for section in &header.sections {
        let groups: Vec<_> =
            section.items.iter().filter_map(|i| if let Item::Functions(g) = i { Some(g) } else { None }).collect();
        if groups.is_empty() {
            continue;
        }
        let name = section.title.split(" (").next().unwrap_or("");
        let _ = writeln!(out, ".SS {name}");
        for group in groups {
            let names: Vec<String> = group.functions.iter().map(|f| format!("\\fB{}\\fP(3)", f.name)).collect();
            let _ = write!(out, ".TP\n{}\n{}", names.join(", "), line(&brief(group)));
        }
    }
    out.push_str(".SH TYPES\n");
    for group in types::groups(header) {
        let names: Vec<String> = group.iter().map(|s| format!("\\fB{}\\fP(3)", s.name)).collect();
        let comment = group[0].comment.split(". ").next().unwrap_or("");
        let _ = write!(out, ".TP\n{}\n{}", names.join(", "), line(&summary(comment)));
    }
    out.push_str(&see_also(&[("iov_constants".to_owned(), 3), ("iov_error".to_owned(), 3)]));
    out
}
