//! Words with their positions, and the errors that name both.

use iov_types::{Error, Result};

use crate::suggest;

/// A part of the text, spaces around it cut off, and the byte offset where it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

/// Longest piece of a text that an error repeats.
const SHOWN_CHARS: usize = 40;

impl<'a> Word<'a> {
    pub(super) fn new(text: &'a str) -> Word<'a> {
        Word { text, at: 0 }.trimmed()
    }

    fn trimmed(self) -> Word<'a> {
        let start = self.text.len() - self.text.trim_start().len();
        Word { text: self.text.trim(), at: self.at + start }
    }

    /// The bytes `from..to` of this word.
    fn part(self, from: usize, to: usize) -> Word<'a> {
        Word { text: &self.text[from..to], at: self.at + from }.trimmed()
    }

    /// What is before and behind the first `separator`.
    pub(super) fn split_once(self, separator: &str) -> Option<(Word<'a>, Word<'a>)> {
        let at = self.text.find(separator)?;
        Some((self.part(0, at), self.part(at + separator.len(), self.text.len())))
    }

    /// The pieces between commas that are not inside parentheses.
    pub(super) fn items(self) -> Vec<Word<'a>> {
        let (mut items, mut start, mut depth) = (Vec::new(), 0, 0usize);
        for (i, b) in self.text.bytes().enumerate() {
            match b {
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                b',' if depth == 0 => {
                    items.push(self.part(start, i));
                    start = i + 1;
                }
                _ => {}
            }
        }
        items.push(self.part(start, self.text.len()));
        items
    }

    /// `name(argument, argument)`: the name, and its arguments if there are parentheses.
    pub(super) fn call(self) -> Result<(Word<'a>, Vec<Word<'a>>)> {
        let Some(open) = self.text.find('(') else { return Ok((self, Vec::new())) };
        if !self.text.ends_with(')') {
            return Err(self.wrong("has no closing parenthesis at its end"));
        }
        let inner = self.part(open + 1, self.text.len() - 1);
        Ok((self.part(0, open), inner.items()))
    }

    /// An error at this word: `says` goes on after its quotation.
    pub(super) fn wrong(self, says: impl std::fmt::Display) -> Error {
        let mut shown: String = self.text.chars().take(SHOWN_CHARS).collect();
        if shown.len() < self.text.len() {
            shown.push('…');
        }
        Error::invalid(format!("controls, byte {}: {shown:?} {says}", self.at))
    }

    /// The error of a word that is none of `known`; `forms` lists the allowed ones as they are written.
    pub(super) fn unknown(self, what: &str, known: &[&str], forms: &str) -> Error {
        let hint = suggest::nearest(self.text, known).map_or(String::new(), |k| format!(", did you mean {k:?}?"));
        self.wrong(format!("is no {what}{hint}; allowed: {forms}"))
    }
}
