//! The file that a collection is, lent to whoever moves bytes without this library: of a sealed one for reading, of one that is held
//! exclusively for writing.

use std::sync::Arc;

use iov_store::LentFile;
use iov_types::{Error, Persistence, Range, Result, State};

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

    /// Lends the file that holds the bytes of a collection to others, to be written at their own offsets, until
    /// [`Collection::take_back_file`]: to the kernel, for programs that know nothing of this library. The collection must be open with
    /// `concurrency=exclusive` by this handle (X1), and stays so: closing it before is an error of the caller, behind which the
    /// next holder gets a file of his own with the bytes as they are then.
    ///
    /// Meanwhile this handle reads and writes the same bytes. What would need the file back (a seal, an append, a change of a unit) is `Busy`.
    ///
    /// Waits for the daemon, at most until the session's deadline. `Unsupported` where a promise stands against it: of what is
    /// `durable` or kept by checksums (I1), is to change as a whole or at its end only (M1, M4), has a largest size (H1) or is to leave the
    /// caches (H2); and where there is no such file, as for [`Collection::lend_file`].
    pub fn lend_file_to_write(&self) -> Result<Arc<dyn LentFile>> {
        self.check()?;
        let ready = self.ready()?;
        let contract = &ready.contract;
        let why = match () {
            () if self.is_group() => return Err(Error::invalid("a group has no bytes")),
            () if !contract.exclusive => "others may have them open: open the collection with concurrency=exclusive",
            () if !ready.opened.writable => "they may not be changed",
            () if contract.durability >= Persistence::Durable => "they are to survive a loss of power, with checksums",
            () if contract.staged || contract.unit > 0 => "they change as a whole",
            () if contract.append_only => "they are written at their end only",
            () if contract.max_size > 0 => "they have a largest size",
            () if contract.once => "they are to leave no trace in caches",
            () if self.has_stage() || self.is_detached() => "what was written is not published",
            () => "",
        };
        if !why.is_empty() {
            return Err(Error::unsupported(format!("these bytes are written through the store: {why}")));
        }
        let session = self.session();
        // From here on, as those who have it may begin before this returns.
        self.mark_lent(true);
        let lent = session.0.sides.backend.lend_to_write(&session.cx(0), self.object()?, ready.opened.epoch);
        let lent = lent.inspect_err(|_| self.mark_lent(false))?;
        // The bytes of its record have moved on the way.
        self.mark_moved();
        Ok(Arc::from(lent))
    }

    /// Ends [`Collection::lend_file_to_write`]. Nobody may be given the file from the call on, unless this fails. `Busy`: some process has it
    /// open or mapped for writing, and goes on.
    pub fn take_back_file(&self, lent: &dyn LentFile) -> Result<()> {
        let session = self.session();
        session.0.check_fork()?;
        lent.take_back(&session.cx(0))?;
        self.mark_changed();
        self.mark_lent(false);
        Ok(())
    }
}
