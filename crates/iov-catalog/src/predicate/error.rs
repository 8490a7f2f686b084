//! Errors with a position: what was expected, what was found, and a caret below the place.

use iov_types::{Clause, Error};

/// Characters shown on each side of the place.
const CONTEXT: usize = 40;

/// An error about the text at a byte offset.
pub(crate) fn at(text: &str, offset: usize, message: impl AsRef<str>) -> Error {
    let column = text.get(..offset).map_or(0, |before| before.chars().count());
    let from = column.saturating_sub(CONTEXT);
    let shown: String =
        text.chars().skip(from).take(2 * CONTEXT).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let cut_left = if from > 0 { "…" } else { "" };
    let cut_right = if text.chars().nth(from + 2 * CONTEXT).is_some() { "…" } else { "" };
    let caret = " ".repeat(column - from + cut_left.chars().count());
    Error::invalid(format!("column {}: {}\n  {cut_left}{shown}{cut_right}\n  {caret}^", column + 1, message.as_ref()))
        .with_clause(Clause::O5)
}
