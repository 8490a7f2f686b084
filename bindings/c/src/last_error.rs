//! What a thread's last failed call has to say. The strings live until the thread's next failure.

use std::{
    cell::RefCell,
    ffi::{CString, c_char, c_int},
};

use ioverbs::{Clause, Error, Kind, OpState, Outcome};

use crate::{abi, log, text_store::c_string};

struct Last {
    error: Error,
    detail: CString,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Remembers the error, and returns its number.
#[cold]
pub(crate) fn failed(error: Error) -> c_int {
    match error.kind() {
        Kind::Internal => log::line(log::ERROR, || format!("a defect: {error}")),
        Kind::Refused => log::line(log::INFO, || format!("refused: {error}")),
        _ => {}
    }
    let code = error.code();
    let detail = c_string(error.detail().as_bytes());
    // While the thread is ending there is nobody to ask any more.
    let _ = LAST.try_with(|last| last.replace(Some(Last { error, detail })));
    code
}

/// The detail, or "".
pub(crate) fn detail() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ref().map_or(c"".as_ptr(), |l| l.detail.as_ptr())).unwrap_or(c"".as_ptr())
}

/// All of it.
pub(crate) fn status() -> abi::Status {
    let mut status = abi::Status::init();
    (status.clause, status.detail) = (c"".as_ptr(), c"".as_ptr());
    let _ = LAST.try_with(|last| {
        if let Some(Last { error, detail }) = &*last.borrow() {
            status.code = error.code();
            status.state = if error.kind() == Kind::Cancelled { OpState::Cancelled } else { OpState::Failed } as u8;
            status.outcome = error.outcome() as u8;
            status.clause = clause_text(error.clause());
            status.detail = detail.as_ptr();
        } else {
            (status.state, status.outcome) = (OpState::Ok as u8, Outcome::Applied as u8);
        }
    });
    status
}

/// The id of a clause as a C string that lives for ever.
pub(crate) fn clause_text(clause: Option<Clause>) -> *const c_char {
    let Some(clause) = clause else { return c"".as_ptr() };
    let index = Clause::ALL.iter().position(|c| *c == clause);
    index.map_or(c"".as_ptr(), |i| CLAUSES[i].as_ptr().cast())
}

/// Ids with a NUL behind them: the longest has three letters.
static CLAUSES: [[u8; 4]; Clause::ALL.len()] = {
    let mut texts = [[0; 4]; Clause::ALL.len()];
    let mut i = 0;
    while i < texts.len() {
        texts[i] = padded(Clause::ALL[i].id());
        i += 1;
    }
    texts
};

/// A text and at least one NUL.
pub(crate) const fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    assert!(text.len() < N, "there is room for the NUL");
    let mut i = 0;
    while i < text.len() {
        out[i] = text.as_bytes()[i];
        i += 1;
    }
    out
}
