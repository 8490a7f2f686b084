//! Stored bytes shown in place: what a target keeps in memory that this process may map, or in files that are sealed, needs no
//! copy.

use iov_store::{Memory, Shown, Viewed};
use iov_types::{Capability, Clause, Error, Range, Result};

use crate::{Collection, Op, run};

/// How often a read may be needed before what it read can be shown: the grant that it brings may be taken back at once.
const ATTEMPTS: u32 = 4;
/// Bytes compared at once.
const PIECE: usize = 1 << 20;

fn out_of_reach(why: &str) -> Error {
    Error::unsupported(format!("these bytes cannot be shown in place, as {why}; read them instead (iov_read)"))
}

impl Collection {
    /// Shows bytes from `offset` on in place: at most `len`, and no more than lie together; none behind the end. They are
    /// pinned for as long as the result lives. Those of a collection that is not sealed may change meanwhile.
    ///
    /// Waits for the daemon the first time, at most until the session's deadline. `Unsupported` where they are out of reach:
    /// in a store whose bytes are neither in shared memory nor in files, in files of a collection that is not sealed, in the
    /// record, or in changes that are not published. Bytes that are kept by checksums are compared first (I1).
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
                Shown::Unchecked(viewed) => {
                    self.check_bytes(Range { offset, len: viewed.len() as u64 })?;
                    return Ok(viewed);
                }
                Shown::Never => {
                    let medium = self.capability().medium;
                    if medium == Capability::FILES {
                        return Err(out_of_reach(
                            "files are shown when they cannot change any more: seal the collection",
                        ));
                    }
                    return Err(out_of_reach(&format!(
                        "the store keeps them in {medium}, not in memory that it shares"
                    )));
                }
                Shown::Later => self.read_byte(offset)?,
            }
        }
        Err(out_of_reach("the daemon does not grant access to them now"))
    }

    /// Reads bytes, which compares them with what was written.
    fn check_bytes(&self, range: Range) -> Result<()> {
        let mut piece = vec![0_u8; PIECE.min(range.len as usize)];
        let mut at = range.offset;
        while at < range.end() {
            let len = piece.len().min((range.end() - at) as usize);
            // SAFETY: `run` returns when the operation has completed, and `piece` lives longer.
            let memory = unsafe { Memory::writable(piece.as_mut_ptr(), len) };
            run(self.session(), Op::Read { c: self.clone(), chunks: vec![(at, memory)] })?;
            at += len as u64;
        }
        Ok(())
    }

    fn read_byte(&self, offset: u64) -> Result<()> {
        let mut byte = 0_u8;
        // SAFETY: `run` returns when the operation has completed, and `byte` lives longer.
        let memory = unsafe { Memory::writable(&mut byte, 1) };
        run(self.session(), Op::Read { c: self.clone(), chunks: vec![(offset, memory)] }).map(drop)
    }
}
