//! Strings and bytes that a program got a pointer to, kept where their container says (rule 9).

use std::ffi::{CString, c_char};

/// A C string; bytes behind a NUL would not be seen, so that NULs become spaces.
pub(crate) fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_else(|_| {
        let without: Vec<u8> = bytes.iter().map(|b| if *b == 0 { b' ' } else { *b }).collect();
        CString::new(without).unwrap_or_default()
    })
}

/// Bytes that stay where they are until this is dropped or cleared.
#[derive(Default)]
pub(crate) struct TextStore(Vec<Box<[u8]>>);

impl TextStore {
    /// Keeps a copy with a NUL behind it, and tells where it is.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> *const c_char {
        let mut copy = Vec::with_capacity(bytes.len() + 1);
        copy.extend_from_slice(bytes);
        copy.push(0);
        self.0.push(copy.into());
        self.0.last().map_or(c"".as_ptr(), |b| b.as_ptr().cast())
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
