//! Where the newest bytes of a stage lie.

use iov_store::PieceSource;

/// Where the bytes of a piece come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// Nowhere: they are zero.
    Zero,
    /// The payload of the log record at `record`, from `within` on.
    Log { record: u64, within: u64 },
    /// The image, at the offset they have in the object.
    Image,
}

impl PieceSource for Source {
    fn after(self, n: u64) -> Source {
        match self {
            Source::Log { record, within } => Source::Log { record, within: within + n },
            other => other,
        }
    }
}
