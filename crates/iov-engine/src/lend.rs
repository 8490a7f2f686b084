//! The file that a sealed collection is, lent to whoever reads bytes without this library.

use std::sync::Arc;

use iov_store::LentFile;
use iov_types::{Error, Range, Result, State};

use crate::{Collection, Op, run};

impl Collection {
    /// Lends the file that holds the bytes of a sealed collection, each at its own offset, to others: to the kernel, for programs that
    /// know nothing of this library. Nobody takes it away from them: when the collection is deleted, what they have open or mapped
    /// stays as it is until they let go of it.
    ///
    /// Waits for the daemon, at most until the session's deadline. `Unsupported` where there is no such file: if it is not sealed,
    /// in memory, over a network, on several targets, with checksums, beside the record of a small collection; and where this
    /// process is neither root's nor that of the store's user.
    pub fn lend_file(&self) -> Result<Arc<dyn LentFile>> {
        self.check()?;
        if self.is_group() {
            return Err(Error::invalid("a group has no bytes"));
        }
        let opened = &self.ready()?.opened;
        if self.is_inline() || self.kept().is_some() {
            return Err(Error::unsupported("these bytes lie in the collection's record, not in a file"));
        }
        if opened.state != State::Sealed {
            return Err(Error::unsupported("these bytes may change: a file is lent when it is sealed"));
        }
        let session = self.session();
        if self.is_detached() {
            // Open in the catalog, it stays for as long as it is open here (O10). That is done for whatever has to be open there.
            run(session, Op::Extents { c: self.clone(), range: Range { offset: 0, len: 0 }, max: 1 })?;
        }
        Ok(Arc::from(session.0.sides.backend.lend(&session.cx(0), self.object()?, opened.epoch)?))
    }
}
