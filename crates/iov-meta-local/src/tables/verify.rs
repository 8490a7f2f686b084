//! What the table library believes without a look at its sum, checked before it opens a tree.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use iov_types::{Error, Result};
use xxhash_rust::xxh3::xxh3_128;

use super::{
    manifest::{self, TRAILER, TRAILER_BYTES},
    tree::damaged,
};
use crate::files::u64_at;

/// A list of sections has about a dozen entries of some tens of bytes.
const SECTIONS_BYTES: u64 = 64 << 10;

/// Checks the manifest and the list of sections of every table that it names. Others, as a loss of power or a write that
/// was cut short leaves them, are not read by anybody: the library removes them.
pub(super) fn verify(folder: &Path, shown: &str) -> Result<()> {
    let failed = |e: io::Error| Error::from(e).context(shown);
    let manifest = manifest::read(folder).map_err(failed)?.map_err(|what| damaged(shown, what))?;
    // A tree that is to be made has none.
    let Some(manifest) = manifest else { return Ok(()) };
    let named = manifest::named(&manifest).ok_or_else(|| damaged(shown, "the manifest makes no sense"))?;
    for (id, ..) in named {
        let file = match File::open(folder.join("tables").join(id.to_string())) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(shown, format_args!("table {id} is missing")));
            }
            file => file.map_err(failed)?,
        };
        if !sections(&file).map_err(failed)? {
            return Err(damaged(shown, format_args!("table {id} has a wrong list of sections")));
        }
    }
    Ok(())
}

/// Compares a table's list of sections with its sum: the library makes room for as many entries as the list says before
/// it has compared anything. A file without a trailer is left to the library; one may remain of a write that was cut off.
fn sections(file: &File) -> io::Result<bool> {
    let len = file.metadata()?.len();
    let mut trailer = [0; TRAILER_BYTES];
    let Some(trailer_at) = len.checked_sub(TRAILER_BYTES as u64) else { return Ok(true) };
    file.read_exact_at(&mut trailer, trailer_at)?;
    let Some(rest) = trailer.strip_prefix(TRAILER) else { return Ok(true) };
    let (at, bytes) = (u64_at(rest, 16), u64_at(rest, 24));
    if bytes > SECTIONS_BYTES || at.checked_add(bytes) != Some(trailer_at) {
        return Ok(false);
    }
    let mut list = vec![0; bytes as usize];
    file.read_exact_at(&mut list, at)?;
    Ok(xxh3_128(&list).to_le_bytes() == rest[..16])
}
