//! The file that a collection is, lent to whoever moves bytes without this library.

use std::sync::{Arc, atomic::Ordering};

use iov_store::LentFile;
use iov_types::{Clause, Concurrency, Error, Mutability, Persistence, Range, Result, State};

use crate::{Collection, Op, run};

impl Collection {
    /// Lends the file that holds the bytes, each at its own offset, to others: to the kernel, for programs that know nothing of
    /// this library. For reading only if it is sealed, since nobody takes the file away from them while they read (G3); for
    /// writing only to the one who has it open exclusively, where it can be overwritten and nothing is promised of single
    /// writes (unit, publication, durability, a largest size).
    ///
    /// What is written so is published with the next commit and with the close. When [`LentFile::holds`] says `false` of a file
    /// lent for writing, the store has taken the bytes back (G2) and what was written may be lost: the one who writes is to be
    /// told. Truncating, cutting holes and the like through the store takes it back; through the file it does not.
    ///
    /// Waits for the daemon, at most until the session's deadline. `Unsupported` where there is no such file: in memory, over
    /// a network, on several targets, with checksums, beside the record of a small sealed collection.
    pub fn lend_file(&self, write: bool) -> Result<Arc<dyn LentFile>> {
        self.check()?;
        if self.is_group() {
            return Err(Error::invalid("a group has no bytes"));
        }
        let ready = self.ready()?;
        let (opened, contract) = (&ready.opened, &ready.contract);
        if !write && (self.is_inline() || self.kept().is_some()) {
            return Err(Error::unsupported("these bytes lie in the collection's record, not in a file"));
        }
        if write {
            self.session().refuse_if_readonly()?;
            if !opened.writable {
                return Err(Error::denied("this handle is for reading"));
            }
            let alone = contract.effective.concurrency == Concurrency::Exclusive;
            let plain = !contract.staged && contract.unit == 0 && contract.max_size == 0 && !contract.once;
            if !alone || !plain || contract.effective.mutability != Mutability::Overwrite {
                let why =
                    "a file is lent for writing where concurrency=exclusive, mutability=overwrite and atomicity=none";
                return Err(Error::unsupported(why).with_clause(Clause::G1));
            }
            if contract.durability >= Persistence::Durable {
                let why = "what is durable is kept by checksums, which the store makes as it writes";
                return Err(Error::unsupported(why).with_clause(Clause::I1));
            }
            self.mark_used();
        } else if opened.state != State::Sealed {
            return Err(Error::unsupported("these bytes may change: for reading, a file is lent when it is sealed"));
        }
        let session = self.session();
        if self.is_detached() {
            // Open in the catalog, it stays for as long as it is lent (O10). That is done for whatever has to be open there.
            run(session, Op::Extents { c: self.clone(), range: Range { offset: 0, len: 0 }, max: 1 })?;
        }
        let lent = session.0.sides.backend.lend(&session.cx(0), self.object()?, opened.epoch, write)?;
        if write {
            // The target has it, if it has not been there before.
            self.mark_moved();
            self.0.lent.store(true, Ordering::Relaxed);
        }
        Ok(Arc::from(lent))
    }
}
