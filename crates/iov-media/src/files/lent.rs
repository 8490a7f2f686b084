//! Files lent to others to be written, until they are taken back (G1, X1).

use std::os::fd::OwnedFd;

use iov_store::{LENT_MODE, LeaseAccess, OpCx, seam};
use iov_types::{Clause, Demand, Error, ObjectId, Result, Uuid};
use rustix::fs::Mode;

use super::{
    Files, Granted, Lent, Which,
    grants::WHOLE,
    io,
    leases::{AFTER_END_NS, Lending, is_let_go},
    object::Object,
    tree::FileName,
};

/// Up to this size a file is moved away from under who has it open for writing, so that it can be lent.
const MOVED: u64 = 1 << 20;

/// Says of a file that somebody may have mapped it of whom nothing is known: when it is deleted, its blocks stay until they let go.
fn mark(file: &OwnedFd) -> rustix::io::Result<()> {
    let mode = rustix::fs::fstat(file)?.st_mode & 0o7777;
    if mode & LENT_MODE != 0 { Ok(()) } else { rustix::fs::fchmod(file, Mode::from_raw_mode(mode | LENT_MODE)) }
}

fn in_use(why: &str) -> Error {
    Error::busy(format!("a program of a mount has it open or mapped, and writes to the file itself: {why}"))
        .with_clause(Clause::G1)
}

/// Who has not waited any longer has done something else meanwhile.
fn check_time(cx: &OpCx) -> Result<()> {
    match cx.left_ns() {
        0 => Err(Error::timeout("the object was in use for too long").with_clause(Clause::O8)),
        _ => Ok(()),
    }
}

impl Files {
    /// Lends the file of an object, to be written by others on behalf of this session: for reading, since who may give it to the
    /// kernel opens it by that. Only to who holds the object exclusively, as the epoch says.
    pub(super) fn lend(&self, cx: &OpCx, session: Uuid, object: &Object, demand: &Demand) -> Result<Granted> {
        let no = |why: &str| Err(Error::unsupported(format!("{why}: they are written through the store")));
        let mut state = object.write(self, cx, None)?;
        check_time(cx)?;
        state.check_change(object, demand)?;
        self.ensure(object, &mut state)?;
        state.check_direct(true)?;
        if self.disk.segments().is_some() {
            return no("these bytes lie in shared memory, not in a file");
        }
        // A creator has the first epoch, of which no target is told.
        if demand.epoch == 0 || demand.epoch > state.facts.epoch.max(1) {
            return no("others may use these bytes, as they are not held exclusively");
        }
        if state.kept.is_guarded() {
            return no("these bytes are kept with checksums (I1)");
        }
        if !state.unmoved.is_empty() || !self.leases.lends_to(session, object.id) {
            // It has to be known when nobody writes it any more, so that nobody may when it begins: not by a descriptor either of
            // which nothing is used any more. Who reads would stay with what is moved away.
            self.recall(object, &mut state, Which::All, None)?;
            if !is_let_go(&self.disk, object.id) {
                if state.size(self, object.id)? > MOVED {
                    return no("somebody has the file of these bytes open for writing");
                }
                self.relocate(object, &mut state, &[WHOLE])?;
                if !is_let_go(&self.disk, object.id) {
                    return no("the file system of these bytes knows no leases");
                }
            }
        }
        let file = self.lent_file(object)?;
        mark(&file).map_err(io::os("marking a file that is lent"))?;
        let epoch = demand.epoch;
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
        check_time(cx)?;
        if self.leases.has_lent_to(session, object.id) {
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
            Lending::Left(ns) => {
                seam::sleep(AFTER_END_NS.saturating_sub(ns));
                if is_let_go(&self.disk, object.id) {
                    self.leases.end_left(object.id);
                }
            }
            Lending::None | Lending::Lost => {}
        }
        Ok(())
    }
}
