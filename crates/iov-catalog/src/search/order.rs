//! The order of results: `temperature desc, iov.name`.

use iov_types::{Result, Value};

use super::source::Row;
use crate::{
    index,
    predicate::{Facts, Key, SystemKey, Token, error_at, tokens},
};

/// Most terms of an order.
const TERMS: usize = 16;

/// Before the encoded value of a row that has one, and instead of it in a row that has none: those come last.
const PRESENT: u8 = 0;
const MISSING: u8 = 1;

#[derive(Clone, PartialEq, Eq, Debug)]
struct Term {
    key: Key,
    descending: bool,
}

/// A parsed order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Order {
    terms: Vec<Term>,
}

impl Order {
    /// Reads an order; an error has the column, what was expected and what was found.
    pub(super) fn parse(text: &str) -> Result<Order> {
        let in_order = |e: iov_types::Error| e.context("the order of a search");
        let tokens = tokens(text).map_err(in_order)?;
        let mut tokens = tokens.iter();
        let mut terms = Vec::new();
        let expected = |what: &str, token: &Token, place| {
            Err(in_order(error_at(text, place, format!("expected {what}, found {}", token.found()))))
        };
        // The last token is the end, on which both loops leave.
        while let Some((token, place)) = tokens.next() {
            let key = match token {
                Token::Word(k) | Token::Quoted(k) => {
                    Key::parse(k).map_err(|why| in_order(error_at(text, *place, why)))?
                }
                other => return expected("a key, as in \"temperature desc, iov.name\"", other, *place),
            };
            if terms.len() == TERMS {
                return Err(in_order(error_at(text, *place, format!("more than {TERMS} keys to sort by"))));
            }
            let mut term = Term { key, descending: false };
            let mut next = tokens.next();
            if let Some((Token::Word(w), _)) = next
                && let Some(descending) = direction(w)
            {
                term.descending = descending;
                next = tokens.next();
            }
            terms.push(term);
            match next {
                Some((Token::Mark(','), _)) => {}
                Some((Token::End, _)) | None => break,
                Some((other, place)) => return expected("'asc', 'desc', ',' or the end", other, *place),
            }
        }
        Ok(Order { terms })
    }

    /// Whether names in their byte order are in this order.
    pub(super) fn is_by_name(&self) -> bool {
        matches!(&self.terms[..], [Term { key: Key::System(SystemKey::Name), descending: false }, ..])
    }

    /// Bytes that sort as the rows do.
    pub(super) fn sort_key(&self, row: &Row<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        for term in &self.terms {
            let start = out.len() + 1;
            let value = match &term.key {
                Key::User(key) => row.user(key).map(|v| index::encode_full(marked(&mut out), v)),
                // Names are bytes, whether they are UTF-8 or not.
                Key::System(SystemKey::Name) => row.place.map(|(_, name)| {
                    index::encode_full(marked(&mut out), &Value::Bytes(name.as_bytes().to_vec()));
                }),
                Key::System(key) => row.system(*key).map(|v| index::encode_full(marked(&mut out), &v)),
            };
            match value {
                None => out.push(MISSING),
                // No encoding is the beginning of another, so that inverting the bytes inverts the order.
                Some(()) if term.descending => out[start..].iter_mut().for_each(|b| *b = !*b),
                Some(()) => {}
            }
        }
        out
    }
}

fn marked(out: &mut Vec<u8>) -> &mut Vec<u8> {
    out.push(PRESENT);
    out
}

fn direction(word: &str) -> Option<bool> {
    match word {
        "asc" | "ASC" => Some(false),
        "desc" | "DESC" => Some(true),
        _ => None,
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{}{}", term.key, if term.descending { " desc" } else { "" })?;
        }
        Ok(())
    }
}
