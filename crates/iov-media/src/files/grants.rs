//! Direct access: grants, their recall, and relocation (G1, G2).

use std::os::fd::OwnedFd;

use iov_store::{LeaseAccess, OpCx, block_sums::RUN};
use iov_types::{Demand, Error, ObjectId, Range, Result, Uuid};

use super::{
    Files, io,
    object::{Object, State},
    process::Process,
    sums::Touch,
    tree::{FileName, SEALED_MODE},
};
use crate::fail;

pub use super::leases::Which;

/// A client process, as its socket proves it (A2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its process id.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// Leave to move bytes of an object through a descriptor.
#[derive(Debug)]
pub struct Granted {
    /// The file: for reading only, or for both.
    pub file: OwnedFd,
    /// Its slot in the session's lease page.
    pub slot: u32,
    /// The generation that the slot must show.
    pub generation: u64,
    /// The bytes it covers; what lies behind the end of the file is there to be written.
    pub range: Range,
    /// The object's epoch.
    pub epoch: u64,
    /// Whether the object is kept by checksums: what is read must be compared with them.
    pub kept: bool,
}

/// Bytes that a writer of an object that is kept by checksums gets at once (G1): nobody is told which of them it
/// changes, so all are read again at the next sync.
const LENT: u64 = 64 << 20;

/// And at least so many: a stream of small writes does not ask for each.
const LENT_LEAST: u64 = 4 << 20;

/// What is lent to somebody who wants a range: what a stream of such requests will want next.
fn lent(wanted: Range) -> Range {
    let offset = wanted.offset / RUN * RUN;
    let len = wanted.len.saturating_mul(16).clamp(LENT_LEAST, LENT);
    Range { offset, len: len.min((i64::MAX as u64).saturating_sub(offset)) }
}

impl Files {
    /// Opens a session for direct access and returns the descriptor of its lease page, to be passed to the client. A
    /// client of another user may only read, and gets the page for reading only (G5).
    pub fn open_session(&self, session: Uuid, peer: Peer) -> Result<OwnedFd> {
        let process = Process::find(peer.pid)?;
        let process = process.ok_or_else(|| Error::stale("the client process has ended"))?;
        let trusted = peer.uid == rustix::process::geteuid().as_raw();
        self.leases.open_session(&self.disk, session, process, trusted)
    }

    /// Grants direct access to an object, to all of it where nothing speaks against that. `Unsupported` means: use the socket for this object, nothing is wrong.
    pub fn grant(
        &self,
        cx: &OpCx,
        session: Uuid,
        object: ObjectId,
        access: LeaseAccess,
        wanted: Range,
        epoch: u64,
    ) -> Result<Granted> {
        self.leases.check(session, access)?;
        let demand = Demand { epoch, ..Demand::default() };
        let write = access == LeaseAccess::Write;
        let object = self.object(object);
        loop {
            // Whoever recalls holds the object for itself, so that no grant comes between.
            let state = object.read(self, cx, None)?;
            match write {
                true => state.check_change(&object, &demand)?,
                false => state.check_epoch(&demand)?,
            }
            if write && !state.exists {
                drop(state);
                let mut state = object.write(self, cx, None)?;
                state.check_change(&object, &demand)?;
                self.ensure(&object, &mut state)?;
                continue;
            }
            state.check_direct(write)?;
            if !state.kept.is_kept() && state.kept.is_guarded() {
                // Its first checksums are being made: behind that, it is kept.
                drop(state);
                drop(object.write(self, cx, None)?);
                continue;
            }
            if write && state.kept.is_kept() {
                drop(state);
                let state = object.write(self, cx, None)?;
                state.check_change(&object, &demand)?;
                state.check_direct(write)?;
                let size = state.size(self, object.id)?;
                let range = lent(wanted);
                self.check_lent(object.id, &state, range, size)?;
                self.open_blocks(object.id, &state, range, size, Touch::Lend)?;
                return self.hand_out(session, &object, &state, access, range);
            }
            let end = state.appends.as_ref().map_or(i64::MAX as u64, |log| log.end());
            return self.hand_out(session, &object, &state, access, Range { offset: 0, len: end });
        }
    }

    fn hand_out(
        &self,
        session: Uuid,
        object: &Object,
        state: &State,
        access: LeaseAccess,
        range: Range,
    ) -> Result<Granted> {
        let name = FileName::Data(object.id);
        // A description of its own: what a reader gets must not be open for writing.
        let file = self.disk.sparing(|| self.disk.tree.open_file(name, access == LeaseAccess::Write))?;
        let file = file.ok_or_else(|| Error::corrupt("the file of an object has vanished"))?;
        let epoch = state.facts.epoch;
        let (slot, generation) = self.leases.grant(session, object.id, access, epoch)?;
        Ok(Granted { file, slot, generation, range, epoch, kept: state.kept.is_kept() })
    }

    /// Takes grants back that a client does not need any more: pairs of slot and generation.
    pub fn give_back(&self, session: Uuid, slots: &[(u32, u64)]) {
        self.leases.give_back(session, slots);
    }

    /// Ends a session: its grants are void, its page goes.
    pub fn end_session(&self, session: Uuid) -> Result<()> {
        self.leases.end_session(&self.disk, session)
    }

    /// Removes what ended processes have left. To be called now and then.
    pub fn sweep_sessions(&self) -> Result<()> {
        self.sums.keep_room();
        self.leases.reap(&self.disk)
    }

    /// Takes back every grant on an object, for a reason that the target does not know, such as a quota.
    pub fn revoke(&self, cx: &OpCx, object: ObjectId, which: Which) -> Result<()> {
        let object = self.object(object);
        let mut state = object.write(self, cx, None)?;
        self.recall(&object, &mut state, which, None)
    }

    /// Takes grants back while the object is held; bytes are moved out of the reach of a process that does not answer.
    pub(super) fn recall(&self, object: &Object, state: &mut State, which: Which, below: Option<u64>) -> Result<()> {
        self.recall_within(object, state, which, below, 1)
    }

    /// The same, with so many times the patience.
    pub(super) fn recall_within(
        &self,
        object: &Object,
        state: &mut State,
        which: Which,
        below: Option<u64>,
        patience: u64,
    ) -> Result<()> {
        if self.leases.any(object.id) && self.leases.recall(object.id, which, below, patience) {
            self.relocate(object, state)?;
        }
        Ok(())
    }

    /// Moves an object's bytes to a fresh file of the same name. What is written through old descriptors from now on
    /// goes to an inode that nobody reads.
    pub(super) fn relocate(&self, object: &Object, state: &mut State) -> Result<()> {
        if !state.exists {
            return Ok(());
        }
        fail::point("relocate.0.begin")?;
        let (name, fresh) = (FileName::Data(object.id), self.temp());
        let old = self.disk.must(name, false)?;
        let new = self.disk.create(fresh)?;
        let moved = self.copy_file(&old, &new, state.sealed).and_then(|()| {
            fail::point("relocate.2.copied")?;
            // The old name must not come back with late bytes in it, nor the new one without the good ones.
            io::sync_all(&new)?;
            self.disk.rename(fresh, name)?;
            fail::point("relocate.3.renamed")?;
            self.disk.tree.sync_folder(name)
        });
        moved.inspect_err(|_| {
            let _ = self.disk.remove(fresh);
        })
    }

    fn copy_file(&self, old: &OwnedFd, new: &OwnedFd, sealed: bool) -> Result<()> {
        let stat = io::stat(old)?;
        let size = stat.st_size as u64;
        if fail::is_armed("relocate.1.half_copied") || rustix::fs::ioctl_ficlone(new, old).is_err() {
            let all = iov_types::Range { offset: 0, len: size };
            for extent in io::extents(old, all, size, usize::MAX)? {
                if extent.kind == iov_types::ExtentKind::Data {
                    let (at, len) = (extent.range.offset, extent.range.len);
                    if fail::is_armed("relocate.1.half_copied") {
                        io::copy(old, at, new, at, len / 2)?;
                        fail::point("relocate.1.half_copied")?;
                    }
                    io::copy(old, at, new, at, len)?;
                }
            }
        }
        io::truncate(new, size)?;
        if sealed {
            rustix::fs::fchmod(new, SEALED_MODE).map_err(io::os("sealing a file"))?;
        }
        io::set_time(new, rustix::fs::Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ })
    }
}
