//! Files lent to others to be written, until they are taken back (G1, X1).

use std::os::fd::OwnedFd;

use iov_store::{LeaseAccess, OpCx};
use iov_types::{Clause, Error, ObjectId, Result, Uuid};

use super::{
    Files, Granted, Lent,
    grants::WHOLE,
    leases::{Lending, is_let_go},
    object::{Object, State},
    tree::FileName,
};
use crate::file_lease;

fn in_use(why: &str) -> Error {
    Error::busy(format!("a program of a mount has it open or mapped, and writes to the file itself: {why}"))
        .with_clause(Clause::G1)
}

impl Files {
    /// Lends the file of an object, to be written by others on behalf of this session: for reading, since who may give it to the
    /// kernel opens it by that. Only to who holds the object exclusively, as the epoch says.
    pub(super) fn lend(&self, session: Uuid, object: &Object, state: &State, epoch: u64) -> Result<Granted> {
        let no = |why: &str| Err(Error::unsupported(format!("{why}: they are written through the store")));
        if epoch == 0 {
            return no("others may use these bytes, as they are not held exclusively");
        }
        if self.disk.segments().is_some() {
            return no("these bytes lie in shared memory, not in a file");
        }
        if state.kept.is_guarded() {
            return no("these bytes are kept with checksums (I1)");
        }
        let file = self.lent_file(object)?;
        // It has to be known here when nobody has it any more.
        if file_lease::is_written_by_nobody(&file).is_err() {
            return no("the file system of these bytes knows no leases");
        }
        let (slot, generation) = self.leases.grant(session, object.id, LeaseAccess::Lent, WHOLE, epoch)?;
        let (version, kept) = (state.facts.version, false);
        Ok(Granted { lent: Lent::File(file), slot, generation, range: WHOLE, epoch, kept, version })
    }

    fn lent_file(&self, object: &Object) -> Result<OwnedFd> {
        let file = self.disk.sparing(|| self.disk.tree.open_file(FileName::Data(object.id), false))?;
        file.ok_or_else(|| Error::corrupt("the file of an object has vanished"))
    }

    /// Takes back what was lent to this session of an object, if nobody has it open or mapped for writing any more: `Busy` else. It
    /// is over also where it was lent by an earlier daemon, or its hold has passed on to another.
    pub fn take_back(&self, cx: &OpCx, session: Uuid, object: ObjectId) -> Result<()> {
        let object = self.object(object);
        // So that nobody opens it here meanwhile.
        let _state = object.write(self, cx, None)?;
        if self.leases.lends_to(session, object.id) {
            if !is_let_go(&self.disk, object.id) {
                return Err(in_use("wait until it has closed it"));
            }
            self.leases.end_lent_to(session, object.id);
        }
        Ok(())
    }

    /// Before grants of an object are taken back: what is lent to a holder that lives stays, and what nobody has any more is over.
    /// All else will be moved away from under those who have it.
    pub(super) fn look_for_lent(&self, object: &Object, below: Option<u64>) -> Result<()> {
        match self.leases.lending(object.id, below) {
            Lending::Stays => return Err(in_use("close it there first")),
            Lending::Left if is_let_go(&self.disk, object.id) => self.leases.end_left(object.id),
            Lending::None | Lending::Left | Lending::Lost => {}
        }
        Ok(())
    }
}
