//! Texts: bytes that end with NUL.

use std::ffi::{CStr, c_char};

use ioverbs::{Error, Name, Result, Which};

/// `const char *`; NULL where the header allows it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// No text.
    pub(crate) const NULL: Text = Text(std::ptr::null());

    /// # Safety
    /// `p` must be NULL, or lead to bytes that end with NUL and do not change during the call.
    pub unsafe fn new(p: *const c_char) -> Self {
        Text(p)
    }

    /// Its bytes, without the NUL; `None` for NULL.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not NULL, and NUL-terminated by the promise of the caller.
        Some(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    fn required(&self, what: &str) -> Result<&[u8]> {
        self.bytes().ok_or_else(|| Error::invalid(format!("the {what} is NULL")))
    }

    /// A text of characters; `None` for NULL.
    pub(crate) fn utf8(&self, what: &str) -> Result<Option<&str>> {
        self.bytes().map(|b| utf8(b, what)).transpose()
    }

    /// The same, where NULL is not allowed.
    pub(crate) fn required_utf8(&self, what: &str) -> Result<&str> {
        utf8(self.required(what)?, what)
    }

    /// A name; `None` for NULL.
    pub(crate) fn name(&self) -> Result<Option<Name>> {
        self.bytes().map(Name::new).transpose()
    }

    /// The same, where NULL is not allowed.
    pub(crate) fn required_name(&self) -> Result<Name> {
        Name::new(self.required("name")?)
    }

    /// A name or `uuid:…`; `None` for NULL.
    pub(crate) fn which(&self) -> Result<Option<Which>> {
        self.bytes().map(Which::parse).transpose()
    }

    /// The same, where NULL is not allowed.
    pub(crate) fn required_which(&self) -> Result<Which> {
        Which::parse(self.required("name or UUID")?)
    }
}

/// Bytes as text; an error tells where they cease to be one.
pub(crate) fn utf8<'a>(bytes: &'a [u8], what: &str) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|e| {
        let at = e.valid_up_to();
        Error::invalid(format!("the {what} is not UTF-8: byte {at} is {:#04x}", bytes[at]))
    })
}
