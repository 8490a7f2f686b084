//! Names of collections as names of files. Both are bytes without NUL and '/', at most 255; what a file cannot be called, or
//! is called by the export itself, is written differently, in a way that can be read back.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use ioverbs::{Name, Result, Uuid};

/// What names of the export itself begin with.
const OWN: &[u8] = b".iov-";
/// The directory of sidecars.
pub(crate) const SIDECARS: &str = ".iov-export";
/// The directory of collections without a name.
pub(crate) const UNNAMED: &str = ".iov-unnamed";
/// The longest name of a file.
const LONGEST: usize = 255;

/// The file of a name; `uuid` is what has it, for a name that leaves no room to be written differently.
pub(crate) fn file_of(name: &[u8], uuid: Uuid) -> OsString {
    let other = match name {
        b"." => b".iov-%2e".to_vec(),
        b".." => b".iov-%2e%2e".to_vec(),
        _ if !name.starts_with(OWN) => return OsStr::from_bytes(name).to_owned(),
        _ => [OWN, name].concat(),
    };
    if other.len() > LONGEST {
        return format!(".iov-uuid-{}", &uuid.to_string()["uuid:".len()..]).into();
    }
    OsString::from_vec(other)
}

/// The name of a file that is listed in no sidecar; `None`: it is the export's own.
pub(crate) fn name_of(file: &OsStr) -> Result<Option<Name>> {
    let bytes = file.as_bytes();
    let Some(rest) = bytes.strip_prefix(OWN) else { return Name::new(bytes).map(Some) };
    match rest {
        b"%2e" => Name::new(b".").map(Some),
        b"%2e%2e" => Name::new(b"..").map(Some),
        _ if rest.starts_with(OWN) => Name::new(rest).map(Some),
        _ => Ok(None),
    }
}
