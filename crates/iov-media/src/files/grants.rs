//! Direct access: grants, their recall, and relocation (G1, G2).

use std::{os::fd::OwnedFd, sync::Arc};

use iov_store::{LeaseAccess, OpCx, SEGMENT_BLOCK, block_sums::RUN};
use iov_types::{Demand, Error, ObjectId, Range, Result, Uuid};

use super::{
    Files,
    body::Body,
    io,
    object::{Object, State},
    process::Process,
    sums::Touch,
    tree::{FileName, SEALED_MODE},
};
use crate::{
    fail,
    segments::{Shared, Window},
};

pub use super::leases::Which;

/// A client process, as its socket proves it (A2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its process id.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// Through what a client moves bytes itself.
#[derive(Debug)]
pub enum Lent {
    /// A file: for reading only, or for both.
    File(OwnedFd),
    /// Segments, of which [`Files::segment`] opens each.
    Memory(Window),
}

/// Leave to move bytes of an object.
#[derive(Debug)]
pub struct Granted {
    /// Through what.
    pub lent: Lent,
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
    /// The object's version: a publication takes all grants back first.
    pub version: u64,
}

/// Bytes that a writer of an object that is kept by checksums gets at once (G1): nobody is told which of them it
/// changes, so all are read again at the next sync.
const LENT: u64 = 64 << 20;

/// All that a file can have.
pub(super) const WHOLE: Range = Range { offset: 0, len: i64::MAX as u64 };

/// Of requests from this size on it is expected that more of them come.
const LARGE_REQUEST: u64 = 64 << 10;

/// Most stretches of an object that one grant tells.
const PIECES: usize = 256;

/// And at least so many: a stream of small writes does not ask for each.
const LENT_LEAST: u64 = 4 << 20;

/// What is lent to somebody who wants a range: what a stream of such requests will want next.
fn lent(wanted: Range) -> Range {
    let offset = wanted.offset / RUN * RUN;
    let len = wanted.len.saturating_mul(16).clamp(LENT_LEAST, LENT);
    Range { offset, len: len.min((i64::MAX as u64).saturating_sub(offset)) }
}

/// How much to lend at once to a writer in memory. A stream is given more and more at a time; one of several writers that
/// fill an object in large pieces, what its next ones will need; what lies alone, no more than it asks for.
fn ahead(shared: &Shared, wanted: Range) -> u64 {
    let goes_on = wanted.offset == 0 || (wanted.offset <= shared.length() && shared.has(wanted.offset - 1));
    match () {
        () if goes_on => shared.allocated().clamp(LENT_LEAST / 4, LENT),
        () if wanted.len >= LARGE_REQUEST => wanted.len.saturating_mul(16).min(LENT),
        () => 0,
    }
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
        // Who asks need not be the library: beyond what any object can have nothing is lent.
        let wanted = Range::new(wanted.offset, wanted.len)?;
        let demand = Demand { epoch, ..Demand::default() };
        let write = access != LeaseAccess::Read;
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
            if access == LeaseAccess::Lent {
                drop(state);
                return self.lend(cx, session, &object, &demand);
            }
            if write && self.leases.is_lent(object.id) {
                // A descriptor that is kept would hold up its end.
                return Err(Error::unsupported("these bytes are lent to programs of a mount; use the socket"));
            }
            if !state.kept.is_kept() && state.kept.is_guarded() {
                // Its first checksums are being made: behind that, it is kept.
                drop(state);
                drop(object.write(self, cx, None)?);
                continue;
            }
            if let Some(shared) = state.data(&self.disk, object.id)?.shared() {
                let (range, window) = self.lend_memory(&state, shared, wanted, write)?;
                return self.hand_out(session, &object, &state, access, (range, Some(window)));
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
                return self.hand_out(session, &object, &state, access, (range, None));
            }
            let end = state.appends.as_ref().map_or(i64::MAX as u64, |log| log.end());
            return self.hand_out(session, &object, &state, access, (Range { offset: 0, len: end }, None));
        }
    }

    /// Gives a writer's range a place, and tells where it lies; or where the bytes for a reader lie.
    fn lend_memory(&self, state: &State, shared: &Arc<Shared>, wanted: Range, write: bool) -> Result<(Range, Window)> {
        if !write {
            let end = state.appends.as_ref().map_or(i64::MAX as u64, |log| log.end());
            let mut range = Range { offset: 0, len: end };
            let mut window = shared.window(range, PIECES + 1);
            if window.stretches.len() > PIECES {
                let from = (wanted.offset / SEGMENT_BLOCK * SEGMENT_BLOCK).min(end);
                range = Range { offset: from, len: end - from };
                window = shared.window(range, PIECES);
            }
            // What lies behind the last one has no place yet, or another grant tells it.
            let last = window.stretches.last().map_or(range.offset, |(at, piece)| at + piece.len);
            return Ok((Range { offset: range.offset, len: last.min(end) - range.offset }, window));
        }
        let within = Range { offset: wanted.offset / LENT * LENT, len: LENT };
        let left = within.end() - wanted.offset;
        let ahead = ahead(shared, wanted);
        let reserve = |len: u64| self.reserve(shared, Range { offset: wanted.offset, len: len.min(left) });
        let least = wanted.len.clamp(1, left);
        shared.reserve(Range { offset: wanted.offset, len: least.max(ahead).min(left) }).or_else(|_| reserve(least))?;
        let mut range = shared.around(wanted.offset, within);
        let mut window = shared.window(range, PIECES);
        if window.stretches.last().is_none_or(|(at, piece)| at + piece.len < range.end()) {
            let from = wanted.offset / SEGMENT_BLOCK * SEGMENT_BLOCK;
            range = shared.around(wanted.offset, Range { offset: from, len: within.end() - from });
            window = shared.window(range, PIECES);
            let last = window.stretches.last().map_or(range.offset, |(at, piece)| at + piece.len);
            range.len = last - range.offset;
        }
        Ok((range, window))
    }

    /// Reserves space in segments.
    fn reserve(&self, shared: &Shared, range: Range) -> Result<()> {
        match shared.reserve(range) {
            Err(e) if e.kind() == iov_types::Kind::Exhausted && self.find_space() => shared.reserve(range),
            reserved => reserved,
        }
    }

    /// Where space in segments is lacking: looks at what rests, and takes back what writers were lent ahead, of objects that
    /// nobody else uses just now. `false`: there are no segments.
    pub(super) fn find_space(&self) -> bool {
        let Some(segments) = self.disk.segments() else { return false };
        segments.settle(|wait| self.leases.is_over(wait));
        self.reclaim_tails();
        true
    }

    fn reclaim_tails(&self) {
        for object in self.known() {
            let Some(mut state) = object.try_write() else { continue };
            self.trim_tail(&object, &mut state);
        }
    }

    /// Gives back what lies behind an object's end, which writers were lent and readers know of. What fails is tried again
    /// with the next grant, or when space is lacking.
    pub(super) fn trim_tail(&self, object: &Object, state: &mut State) {
        let has_tail = |state: &State| {
            let body = state.data(&self.disk, object.id).ok();
            body.is_some_and(|body| body.shared().is_some_and(|shared| shared.has_tail()))
        };
        // Readers, too: by what they were told, they would find there what others write.
        if state.exists
            && self.disk.segments().is_some()
            && has_tail(state)
            && self.recall(object, state, Which::All, None).is_ok()
            && let Ok(body) = state.data(&self.disk, object.id)
            && let Some(shared) = body.shared()
        {
            let _ = shared.trim(self.leases.waits(object.id));
            if shared.is_wasteful() {
                // Nobody is granted anything now: an index is written anew by moving nothing.
                let _ = self.relocate_shared(object, state, shared, &[]);
            }
        }
    }

    /// Says to which protection domain bytes of an object belong that have no place yet (G5).
    pub fn place(&self, object: ObjectId, domain: Uuid) {
        if self.disk.segments().is_some() {
            self.object(object).note_domain(domain);
        }
    }

    /// Opens a segment that a grant has named: for reading, or for both.
    pub fn segment(&self, number: u32, write: bool) -> Result<OwnedFd> {
        let segments = self.disk.segments().ok_or_else(|| Error::internal("a target without segments"))?;
        self.disk.sparing(|| segments.descriptor(number, write))
    }

    /// How much shared memory there is and is taken; `None`: bytes lie in files.
    pub fn space(&self) -> Option<crate::SpaceUse> {
        self.disk.segments().map(|segments| segments.space())
    }

    fn hand_out(
        &self,
        session: Uuid,
        object: &Object,
        state: &State,
        access: LeaseAccess,
        (range, window): (Range, Option<Window>),
    ) -> Result<Granted> {
        let lent = match window {
            Some(window) => Lent::Memory(window),
            None => {
                let name = FileName::Data(object.id);
                // A description of its own: what a reader gets must not be open for writing.
                let file = self.disk.sparing(|| self.disk.tree.open_file(name, access == LeaseAccess::Write))?;
                Lent::File(file.ok_or_else(|| Error::corrupt("the file of an object has vanished"))?)
            }
        };
        let epoch = state.facts.epoch;
        let (slot, generation) = self.leases.grant(session, object.id, access, range, epoch)?;
        Ok(Granted { lent, slot, generation, range, epoch, kept: state.kept.is_kept(), version: state.facts.version })
    }

    /// Takes grants back that a client does not need any more: pairs of slot and generation.
    pub fn give_back(&self, session: Uuid, slots: &[(u32, u64)]) {
        let objects = self.leases.give_back(session, slots);
        self.after_grants(&objects);
    }

    /// Ends a session: its grants are void, its page goes.
    pub fn end_session(&self, session: Uuid) -> Result<()> {
        let objects = self.leases.end_session(&self.disk, session)?;
        self.after_grants(&objects);
        Ok(())
    }

    /// Some grants on these are over: what was lent ahead and not used is given back, and what rested for them.
    fn after_grants(&self, objects: &[ObjectId]) {
        let Some(segments) = self.disk.segments() else { return };
        for id in objects {
            // Whoever uses it now, or changes it, leaves it behind in order as well.
            let object = self.object(*id);
            let Some(mut state) = object.try_write() else { continue };
            if !self.leases.has_writers(*id) {
                self.trim_tail(&object, &mut state);
            }
        }
        if segments.holds_any() {
            segments.settle(|wait| self.leases.is_over(wait));
        }
    }

    /// Removes what ended processes have left. To be called now and then.
    pub fn sweep_sessions(&self) -> Result<()> {
        self.sums.keep_room();
        self.try_to_drop();
        let reaped = self.leases.reap(&self.disk)?;
        self.after_grants(&reaped);
        Ok(())
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
        if self.leases.any(object.id) {
            self.look_for_lent(object, below)?;
            state.unmoved.extend(self.leases.recall(object.id, which, below, patience));
        }
        if state.unmoved.is_empty() {
            return Ok(());
        }
        // All others, who only read as well, know where the bytes lie now.
        state.unmoved.extend(self.leases.recall(object.id, Which::All, None, patience));
        let ranges = std::mem::take(&mut state.unmoved);
        self.relocate(object, state, &ranges).inspect_err(|_| state.unmoved = ranges)?;
        self.leases.end_moved(object.id);
        Ok(())
    }

    /// Moves an object's bytes to a fresh file of the same name, or `ranges` of it to fresh space of its segments. What is
    /// written through old descriptors or to old space from now on is read by nobody.
    pub(super) fn relocate(&self, object: &Object, state: &mut State, ranges: &[Range]) -> Result<()> {
        if !state.exists {
            return Ok(());
        }
        fail::point("relocate.0.begin")?;
        let (name, fresh) = (FileName::Data(object.id), self.temp());
        if let Body::Shared(old) = self.disk.must_body(name, false)? {
            return self.relocate_shared(object, state, &old, ranges);
        }
        let old = self.disk.must(name, false)?;
        let new = self.disk.create(fresh)?;
        let moved = self.copy_file(&old, &new, state.sealed).and_then(|()| {
            fail::point("relocate.2.copied")?;
            // The old name must not come back with late bytes in it, nor the new one without the good ones.
            io::sync_all(&new)?;
            self.disk.rename(fresh, name, Vec::new())?;
            fail::point("relocate.3.renamed")?;
            self.disk.tree.sync_folder(name)
        });
        moved.inspect_err(|_| {
            let _ = self.disk.remove(fresh);
        })
    }

    /// The same in segments; without ranges only the index is new.
    pub(super) fn relocate_shared(&self, object: &Object, state: &State, old: &Shared, ranges: &[Range]) -> Result<()> {
        let fresh = self.temp();
        let file = self.disk.sparing(|| self.disk.tree.create_file(fresh))?;
        let moved = fail::point("relocate.1.half_copied").and_then(|()| {
            let new = old.moved(file, ranges)?;
            let ready = fail::point("relocate.2.copied").and_then(|()| match state.sealed {
                true => new.with_index(|file| rustix::fs::fchmod(file, SEALED_MODE)).map_err(io::os("sealing a file")),
                false => Ok(()),
            });
            ready.inspect_err(|_| new.release(Some(old), Vec::new()))?;
            self.disk.replace(FileName::Data(object.id), fresh, new, self.leases.waits(object.id))?;
            fail::point("relocate.3.renamed")
        });
        moved.inspect_err(|_| {
            let _ = self.disk.tree.remove(fresh);
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
