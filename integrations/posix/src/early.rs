//! Bytes of a small file that came along as it was opened: they are read without a question, as long as the catalog has not said that
//! it has changed. Where nobody says that there are none.

use ioverbs::catalog::Told;

use crate::{File, Flags, Node, remembered::Since};

/// Most bytes that come along. What lies in the records of the catalog is smaller.
const MOST: u64 = 64 << 10;

/// See the module.
pub(crate) struct Early {
    bytes: Vec<u8>,
    /// Before which they were asked for.
    since: Since,
}

/// How many are to come along with an open.
pub(crate) fn wanted(flags: Flags) -> u64 {
    // Who writes reads what was written.
    if flags.write || flags.truncate { 0 } else { MOST }
}

impl Early {
    /// Those that an open has told, if they may be used at all.
    pub(crate) fn new(told: &mut Told, flags: Flags, since: Option<Since>) -> Option<Early> {
        let bytes = told.bytes.take().filter(|_| wanted(flags) > 0)?;
        Some(Early { bytes, since: since? })
    }

    /// So many from an offset on, if they still are what is there.
    fn read(&self, node: &Node, offset: u64, out: &mut [u8]) -> Option<usize> {
        if !node.file_system().holds(&self.since, &[node.itself()]) {
            return None;
        }
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let rest = &self.bytes[from..];
        let n = rest.len().min(out.len());
        out[..n].copy_from_slice(&rest[..n]);
        Some(n)
    }
}

impl File {
    /// Reads what came along, as nobody has written here since.
    pub(crate) fn read_early(&self, offset: u64, out: &mut [u8]) -> Option<usize> {
        let early = self.early.as_ref().filter(|_| !self.is_written())?;
        early.read(self.node(), offset, out)
    }
}
