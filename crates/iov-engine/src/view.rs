//! Stored bytes shown in place: what a target keeps in memory that this process may map needs no copy.

use iov_store::{Memory, Shown, Viewed};
use iov_types::{Clause, Error, Range, Result};

use crate::{Collection, Op, run};

/// How often a read may be needed before what it read can be shown: the grant that it brings may be taken back at once.
const ATTEMPTS: u32 = 4;

fn out_of_reach(why: &str) -> Error {
    Error::unsupported(format!("these bytes cannot be shown in place, as {why}; read them instead (iov_read)"))
}

impl Collection {
    /// Shows bytes from `offset` on in place: at most `len`, and no more than lie together; none behind the end. They are
    /// pinned for as long as the result lives. Those of a collection that is not sealed may change meanwhile.
    ///
    /// Waits for the daemon the first time, at most until the session's deadline. `Unsupported` where they are out of reach:
    /// in a store whose bytes are not in shared memory, in the record, or in changes that are not published.
    pub fn view(&self, offset: u64, len: u64) -> Result<Viewed> {
        self.check()?;
        let range = Range::new(offset, len)?;
        if self.is_group() {
            return Err(Error::invalid("a group has no bytes"));
        }
        if let Some(bytes) = self.kept() {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let part = &bytes[from..bytes.len().min(from.saturating_add(usize::try_from(len).unwrap_or(usize::MAX)))];
            return Ok(Viewed::new(part.as_ptr(), part.len(), Box::new(bytes.clone())));
        }
        if self.is_inline() {
            // They may have moved since.
            self.read_byte(offset)?;
        }
        if self.is_inline() {
            return Err(out_of_reach("they lie in the collection's record"));
        }
        if self.has_stage() {
            return Err(out_of_reach("what was written is not published").with_clause(Clause::M1));
        }
        let (object, epoch) = (self.object()?, self.ready()?.opened.epoch);
        for _ in 0..ATTEMPTS {
            match self.session().0.sides.backend.show(object, epoch, range) {
                Shown::Here(viewed) => return Ok(viewed),
                Shown::Never => {
                    let medium = self.session().capability().medium;
                    return Err(out_of_reach(&format!(
                        "the store keeps them in {medium}, not in memory that it shares"
                    )));
                }
                Shown::Later => self.read_byte(offset)?,
            }
        }
        Err(out_of_reach("the daemon does not grant access to them now"))
    }

    fn read_byte(&self, offset: u64) -> Result<()> {
        let mut byte = 0_u8;
        // SAFETY: `run` returns when the operation has completed, and `byte` lives longer.
        let memory = unsafe { Memory::writable(&mut byte, 1) };
        run(self.session(), Op::Read { c: self.clone(), chunks: vec![(offset, memory)] }).map(drop)
    }
}
