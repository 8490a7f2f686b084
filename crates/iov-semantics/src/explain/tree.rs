//! A tree of facts: JSON for programs, aligned lines for people.

use std::fmt::{self, Display, Formatter, Write};

/// A value, a list, or a map that keeps its order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tree {
    /// Words.
    Text(String),
    /// A count.
    Number(u64),
    /// Yes or no.
    Flag(bool),
    /// Several of a kind.
    List(Vec<Tree>),
    /// Named parts.
    Map(Vec<(String, Tree)>),
}

impl From<&str> for Tree {
    fn from(text: &str) -> Tree {
        Tree::Text(text.into())
    }
}

impl From<String> for Tree {
    fn from(text: String) -> Tree {
        Tree::Text(text)
    }
}

impl From<u64> for Tree {
    fn from(n: u64) -> Tree {
        Tree::Number(n)
    }
}

impl From<bool> for Tree {
    fn from(flag: bool) -> Tree {
        Tree::Flag(flag)
    }
}

impl Tree {
    /// An empty map.
    pub fn map() -> Tree {
        Tree::Map(Vec::new())
    }

    /// The same map with one more part, at the end. Anything else becomes a map, under the key `value`.
    pub fn with(self, key: impl Into<String>, value: impl Into<Tree>) -> Tree {
        let mut parts = match self {
            Tree::Map(parts) => parts,
            other => vec![("value".into(), other)],
        };
        parts.push((key.into(), value.into()));
        Tree::Map(parts)
    }

    /// A part of a map.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        match self {
            Tree::Map(parts) => parts.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// JSON on one line.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.json(&mut out);
        out
    }

    fn json(&self, out: &mut String) {
        match self {
            Tree::Text(text) => escape(text, out),
            Tree::Number(n) => out.push_str(&n.to_string()),
            Tree::Flag(flag) => out.push_str(if *flag { "true" } else { "false" }),
            Tree::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    item.json(out);
                }
                out.push(']');
            }
            Tree::Map(parts) => {
                out.push('{');
                for (i, (key, value)) in parts.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    escape(key, out);
                    out.push(':');
                    value.json(out);
                }
                out.push('}');
            }
        }
    }

    fn is_scalar(&self) -> bool {
        matches!(self, Tree::Text(_) | Tree::Number(_) | Tree::Flag(_))
    }

    fn scalar(&self) -> String {
        match self {
            Tree::Text(text) => text.clone(),
            Tree::Flag(true) => "yes".into(),
            Tree::Flag(false) => "no".into(),
            Tree::Number(n) => n.to_string(),
            Tree::List(_) | Tree::Map(_) => String::new(),
        }
    }

    fn human(&self, f: &mut Formatter<'_>, indent: usize) -> fmt::Result {
        match self {
            Tree::Map(parts) => {
                let width = parts.iter().filter(|(_, v)| v.is_scalar()).map(|(k, _)| k.chars().count()).max();
                for (key, value) in parts {
                    if value.is_scalar() {
                        let width = width.unwrap_or(0);
                        writeln!(f, "{:indent$}{key:width$}  {}", "", value.scalar())?;
                    } else {
                        writeln!(f, "{:indent$}{key}", "")?;
                        value.human(f, indent + 2)?;
                    }
                }
                Ok(())
            }
            Tree::List(items) => match columns(items) {
                Some(table) => rows(f, &table, indent),
                None => items.iter().enumerate().try_for_each(|(i, item)| {
                    if item.is_scalar() {
                        return item.human(f, indent);
                    }
                    writeln!(f, "{:indent$}{}.", "", i + 1)?;
                    item.human(f, indent + 2)
                }),
            },
            scalar => writeln!(f, "{:indent$}{}", "", scalar.scalar()),
        }
    }
}

impl Display for Tree {
    /// For people: one line per fact, lists of like things as a table.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.human(f, 0)
    }
}

/// A list of maps with the same keys and only values in them, as a table with a head.
fn columns(items: &[Tree]) -> Option<Vec<Vec<String>>> {
    let Some(Tree::Map(first)) = items.first() else { return None };
    let head: Vec<String> = first.iter().map(|(k, _)| k.clone()).collect();
    let mut table = vec![head.clone()];
    for item in items {
        let Tree::Map(parts) = item else { return None };
        let same = parts.len() == head.len() && parts.iter().zip(&head).all(|((k, v), h)| k == h && v.is_scalar());
        if !same {
            return None;
        }
        table.push(parts.iter().map(|(_, v)| v.scalar()).collect());
    }
    Some(table)
}

fn rows(f: &mut Formatter<'_>, table: &[Vec<String>], indent: usize) -> fmt::Result {
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table[0].len()).map(width).collect();
    for row in table {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:width$}  ")?;
        }
        writeln!(f, "{:indent$}{}", "", line.trim_end())?;
    }
    Ok(())
}

fn escape(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}
