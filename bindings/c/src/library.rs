//! The library itself: version, errors, log, UUIDs.

use std::ffi::{c_char, c_int, c_void};

use ioverbs::{Error, Kind, Uuid, seam};

use crate::{
    abi,
    arg::{Array, Text},
    convert,
    guard::{guard, guard_value},
    last_error::{self, padded},
    log::{self, LogFn},
    out::{Out, OutStruct},
};

/// The version at run time.
#[unsafe(no_mangle)]
pub extern "C" fn iov_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Longest sentence of an error, and its NUL.
const SENTENCE: usize = 160;

static SENTENCES: [[u8; SENTENCE]; Kind::ALL.len()] = {
    let mut texts = [[0; SENTENCE]; Kind::ALL.len()];
    let mut i = 0;
    while i < texts.len() {
        texts[i] = padded(Kind::ALL[i].text());
        i += 1;
    }
    texts
};

/// A sentence for a code.
#[unsafe(no_mangle)]
pub extern "C" fn iov_strerror(code: c_int) -> *const c_char {
    if code == 0 {
        return c"Success.".as_ptr();
    }
    let index = Kind::ALL.iter().position(|k| k.code() == code.saturating_abs());
    index.map_or(c"A number that is no error of this library.".as_ptr(), |i| SENTENCES[i].as_ptr().cast())
}

/// The detail of this thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn iov_error_detail() -> *const c_char {
    last_error::detail()
}

/// This thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn iov_error_last(out: OutStruct<abi::Status>) -> c_int {
    guard(|| {
        out.place()?.write(last_error::status());
        Ok(())
    })
}

/// Sends log lines to a function.
#[unsafe(no_mangle)]
pub extern "C" fn iov_log_set(level: u32, function: LogFn, ctx: *mut c_void) -> c_int {
    guard(|| log::set(level, function, ctx))
}

/// Makes a UUID of version 7.
#[unsafe(no_mangle)]
pub extern "C" fn iov_uuid_new(out: Out<abi::Uuid>) -> c_int {
    guard(|| {
        out.required("out")?.write(convert::uuid_out(seam::new_uuid()));
        Ok(())
    })
}

/// Reads a UUID.
#[unsafe(no_mangle)]
pub extern "C" fn iov_uuid_parse(text: Text, out: Out<abi::Uuid>) -> c_int {
    guard(|| {
        let out = out.required("out")?;
        out.write(convert::uuid_out(Uuid::parse(text.required_utf8("UUID")?)?));
        Ok(())
    })
}

/// Writes a UUID.
#[unsafe(no_mangle)]
pub extern "C" fn iov_uuid_format(uuid: Array<abi::Uuid>, out: Out<[c_char; 42]>) -> c_int {
    guard(|| {
        let out = out.required("out")?;
        let uuid = uuid.items(1, "uuid")?[0];
        let text: [u8; 42] = padded(&Uuid(uuid.bytes).to_string());
        out.write(text.map(|b| b as c_char));
        Ok(())
    })
}

/// For functions that return nothing but must have something to say.
pub(crate) fn quiet(body: impl FnOnce() -> Result<(), Error>) {
    guard_value((), body);
}

/// Makes a table of the program known by a name.
///
/// # Safety
/// `ops` is NULL, or leads to a table that stays as it is until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iov_backend_import(name: Text, ops: *const ioverbs::BackendOps) -> c_int {
    guard(|| {
        if ops.is_null() || !ops.is_aligned() {
            return Err(Error::invalid("ops is NULL or misaligned: give the table of a backend"));
        }
        // SAFETY: promised by the caller; what is in it is checked when it is opened.
        ioverbs::import_backend(name.required_utf8("name")?, unsafe { &*ops })
    })
}
