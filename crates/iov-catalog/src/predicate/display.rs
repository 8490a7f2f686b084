//! A predicate as text that parses back to the same predicate.

use std::fmt::{self, Display, Formatter, Write};

use iov_types::Value;

use super::{
    Predicate,
    ast::{Condition, Node, Test},
    time,
};

impl Display for Predicate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.root.fmt(f)
    }
}

impl Display for Node {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Node::And(parts) => joined(f, parts, " and ", |n| matches!(n, Node::Or(_))),
            Node::Or(parts) => joined(f, parts, " or ", |_| false),
            Node::Not(inner) if matches!(**inner, Node::And(_) | Node::Or(_)) => write!(f, "not ({inner})"),
            Node::Not(inner) => write!(f, "not {inner}"),
            Node::Condition(c) => c.fmt(f),
        }
    }
}

fn joined(f: &mut Formatter<'_>, parts: &[Node], word: &str, parentheses: impl Fn(&Node) -> bool) -> fmt::Result {
    for (i, part) in parts.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { word })?;
        if parentheses(part) { write!(f, "({part})") } else { part.fmt(f) }?;
    }
    Ok(())
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            Test::Compare(op, v) => write!(f, "{key} {} {}", op.text(), Literal(v)),
            Test::Glob { glob, negated } => {
                write!(f, "{key} {}~ ", if *negated { "!" } else { "" })?;
                quoted(f, glob.text(), '"')
            }
            Test::Prefix(v) => write!(f, "{key} ^= {}", Literal(v)),
            Test::In(values) => {
                write!(f, "{key} in (")?;
                for (i, v) in values.iter().enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { ", " }, Literal(v))?;
                }
                f.write_char(')')
            }
            Test::Range { from, to, closed } => {
                write!(f, "{key} in [{}, {}{}", Literal(from), Literal(to), if *closed { ']' } else { ')' })
            }
            Test::Exists => write!(f, "exists({key})"),
        }
    }
}

/// A value as the grammar writes it.
pub(crate) struct Literal<'a>(pub(crate) &'a Value);

impl Display for Literal<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Str(s) => quoted(f, s, '"'),
            Value::I64(i) => write!(f, "{i}"),
            Value::F64(x) => write!(f, "{x:?}"), // the shortest text that reads back as the same float
            Value::Bool(b) => write!(f, "{b}"),
            Value::Bytes(bytes) => {
                f.write_str("x\"")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
                f.write_char('"')
            }
            Value::Time(ns) => time::format(f, *ns),
        }
    }
}

/// Text in quotes, with escapes.
pub(crate) fn quoted(f: &mut Formatter<'_>, text: &str, quote: char) -> fmt::Result {
    f.write_char(quote)?;
    for c in text.chars() {
        match c {
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            '\r' => f.write_str("\\r")?,
            c if c == quote => write!(f, "\\{c}")?,
            c if c.is_control() => write!(f, "\\u{{{:x}}}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char(quote)
}
