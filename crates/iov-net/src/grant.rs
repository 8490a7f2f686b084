//! A grant as the client holds it: descriptor, slot in the lease page, and what may be done with them.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError, Weak, atomic::AtomicU64},
};

use iov_store::{AtOnce, ClientSlot, FileMap, OpCx, Shown, Viewed, seam};
use iov_types::{Clause, Error, Outcome, Range, Result, Spatiality};
use iov_wire::messages::{Access, GiveBack, Granted};
use rustix::{fs::Advice, io::Errno};

use crate::{link::Up, memory::Window, socket};

/// Least and most grants that may be held, each with a descriptor.
pub(crate) const GRANTS: (usize, usize) = (2, 256);
/// The program has other plans with its descriptors too: at most one in so many is a grant's. Sites allow 1,024.
const DESCRIPTORS_PER_GRANT: u64 = 4;
/// Bytes written while the grant cannot be taken back: a write up to this size is before a seal or behind it, not both (M2).
const PIECE: usize = 64 << 20;
/// Bytes moved between two looks at the deadline (O8): media may be slow.
const STEP: usize = 8 << 20;

/// How many grants to hold under this process's limit of descriptors.
pub(crate) fn room() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / DESCRIPTORS_PER_GRANT).unwrap_or(GRANTS.1).clamp(GRANTS.0, GRANTS.1)
}

/// What came of a write.
#[derive(Default)]
pub(crate) struct Written {
    /// Bytes that were written.
    pub(crate) done: usize,
    /// Some more may have been, but the grant was taken back meanwhile.
    pub(crate) void: bool,
    /// Why it did not go on, if the grant still holds.
    pub(crate) failed: Option<Error>,
}

/// Through what bytes are moved.
pub(crate) enum Lent {
    File(OwnedFd),
    Memory(Window),
}

/// What comes with a grant.
pub(crate) fn lent_by(granted: &Granted, mut descriptors: Vec<OwnedFd>, up: &Weak<Up>) -> Result<Lent> {
    let Some(window) = &granted.window else {
        let file = descriptors.pop().ok_or_else(|| socket::no_descriptor("direct access to a collection"))?;
        return Ok(Lent::File(file));
    };
    let up = up.upgrade().ok_or_else(|| Error::unavailable("the connection to the store's daemon is gone"))?;
    let write = granted.access == Access::Write;
    let window = up.maps.window(window, descriptors, write)?;
    if write && !window.covers(granted.range) {
        return Err(Error::corrupt("the daemon grants a range to a writer of which a part has no place"));
    }
    Ok(Lent::Memory(window))
}

/// Leave to move bytes of an object, and what to do it with.
pub(crate) struct Grant {
    pub(crate) lent: Lent,
    pub(crate) number: u64,
    pub(crate) slot: ClientSlot,
    pub(crate) access: Access,
    /// The object's, or that under which access was asked for where that is newer.
    pub(crate) epoch: u64,
    pub(crate) range: Range,
    /// What is read must be compared with checksums (I1).
    pub(crate) kept: bool,
    /// The object's version; 0 = not told.
    pub(crate) version: u64,
    pub(crate) up: Weak<Up>,
    pub(crate) used: AtomicU64,
    /// The pattern that the kernel was told last.
    pub(crate) advised: Mutex<Option<Spatiality>>,
}

impl Grant {
    /// Whether it is for all of a range.
    pub(crate) fn covers(&self, range: Range) -> bool {
        range.offset >= self.range.offset && range.end() <= self.range.end()
    }

    /// Whether the bytes lie in memory, of which a grant tells a part.
    pub(crate) fn in_memory(&self) -> bool {
        matches!(self.lent, Lent::Memory(_))
    }

    /// The file, if it is one.
    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        match &self.lent {
            Lent::File(file) => Some(file),
            Lent::Memory(_) => None,
        }
    }

    /// Whether it is enough for all of a range, as the object is now.
    pub(crate) fn is_enough(&self, range: Range, write: bool) -> bool {
        match &self.lent {
            Lent::File(_) => self.covers(range),
            Lent::Memory(window) if write => self.covers(range) && window.covers(range),
            Lent::Memory(window) => {
                let there = window.head().size().saturating_sub(range.offset).min(range.len);
                let there = Range { len: there, ..range };
                there.len == 0 || (self.covers(there) && window.covers(there))
            }
        }
    }

    /// Shows bytes where they lie, pinned by this grant: in memory, or of a file by a mapping of its own.
    pub(crate) fn show(self: &Arc<Grant>, offset: u64, len: u64) -> Result<Shown> {
        if !self.slot.pin() {
            return Ok(Shown::Later);
        }
        let pinned = Pinned { grant: self.clone(), generation: seam::fork_generation() };
        let window = match &self.lent {
            Lent::Memory(window) => window,
            Lent::File(file) => return self.show_file(file, offset, len, pinned),
        };
        let Some((map, at, len)) = window.show(offset, len) else { return Ok(Shown::Later) };
        // The grant keeps the mapping.
        Ok(Shown::Here(Viewed::new(map.address(at, len), len as usize, Box::new(pinned))))
    }

    /// Only what is sealed: a file that is cut takes the memory away from under whoever looks at it (G6).
    fn show_file(&self, file: &OwnedFd, offset: u64, len: u64, pinned: Pinned) -> Result<Shown> {
        let stat = rustix::fs::fstat(file).map_err(|e| os_error(e, false))?;
        // The seal is the mode of the file, which the daemon alone sets.
        if stat.st_mode & 0o200 != 0 {
            return Ok(Shown::Never);
        }
        let viewed = match FileMap::map(file, offset, len)? {
            None => Viewed::new(std::ptr::null(), 0, Box::new(())),
            // First the mapping goes, then what keeps the file as long as it is.
            Some(map) => Viewed::new(map.address(), map.len(), Box::new((map, pinned))),
        };
        Ok(if self.kept { Shown::Unchecked(viewed) } else { Shown::Here(viewed) })
    }

    /// Drops what the kernel has cached (H2). A hint: what it keeps all the same costs memory, not correctness.
    pub(crate) fn forget(&self, end: u64) {
        if let Lent::File(file) = &self.lent {
            let _ = rustix::fs::fadvise(file, 0, std::num::NonZero::new(end), Advice::DontNeed);
        }
    }

    /// Tells the kernel how the bytes will be read (H2): the descriptor is this grant's alone.
    pub(crate) fn advise(&self, pattern: Option<Spatiality>) {
        let Lent::File(file) = &self.lent else { return };
        let mut advised = self.advised.lock().unwrap_or_else(PoisonError::into_inner);
        if *advised == pattern {
            return;
        }
        let advice = match pattern {
            None | Some(Spatiality::Any) => Advice::Normal,
            Some(Spatiality::Contiguous) => Advice::Sequential,
            Some(Spatiality::Strided | Spatiality::Random) => Advice::Random,
        };
        // A hint: where it is not taken, reads cost more and bring the same.
        let _ = rustix::fs::fadvise(file, 0, None, advice);
        *advised = pattern;
    }

    /// Gives it back.
    pub(crate) fn give_back(&self) {
        // With the connection the grant has gone anyway.
        if let Some(up) = self.up.upgrade()
            && !up.connection.is_broken()
        {
            up.connection.tell(&GiveBack { grant: self.number });
        }
    }

    /// Writes bytes in one piece.
    pub(crate) fn write_now(&self, bytes: &[u8], offset: u64) -> AtOnce {
        let Some(busy) = self.slot.begin_write() else { return AtOnce::No };
        let written = self.write_step(bytes, offset);
        if !busy.finish() {
            return AtOnce::Perhaps;
        }
        AtOnce::Done(written.map(|()| bytes.len() as u64))
    }

    /// Reads bytes in one piece; void if the grant was taken back meanwhile (G3).
    pub(crate) fn read_now(&self, out: &mut [u8], offset: u64) -> AtOnce {
        self.advise(None);
        match self.read_step(out, offset) {
            Some(got) if self.slot.read_is_valid() => AtOnce::Done(got),
            _ => AtOnce::No,
        }
    }

    /// Writes bytes, as far as the grant holds and the deadline allows.
    ///
    /// Who takes the grant back waits for a write that is under way, but not for long: large ones are done in pieces.
    pub(crate) fn write(&self, cx: &OpCx, bytes: &[u8], offset: u64) -> Written {
        let mut done = 0;
        for piece in bytes.chunks(PIECE) {
            let Some(busy) = self.slot.begin_write() else { return Written { done, ..Written::default() } };
            let written = self.write_all(cx, piece, offset + done as u64);
            // Moved away meanwhile: what was written is read by nobody (G2), so it is written again.
            if !busy.finish() {
                return Written { done, void: true, failed: None };
            }
            if let Err(e) = written {
                return Written { done, void: false, failed: Some(e) };
            }
            done += piece.len();
        }
        Written { done, ..Written::default() }
    }

    fn write_all(&self, cx: &OpCx, bytes: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            if done > 0 && cx.left_ns() == 0 {
                return Err(late("written").with_outcome(Outcome::Unknown));
            }
            let end = bytes.len().min(done + STEP);
            let step = self.write_step(&bytes[done..end], offset + done as u64);
            step.map_err(|e| if done > 0 { e.with_outcome(Outcome::Unknown) } else { e })?;
            done = end;
        }
        Ok(())
    }

    fn write_step(&self, bytes: &[u8], offset: u64) -> Result<()> {
        match &self.lent {
            Lent::File(file) => write_step(file, bytes, offset),
            Lent::Memory(window) => {
                window.write(bytes, offset);
                // Whoever sees the length sees the bytes (T18).
                window.written(offset + bytes.len() as u64);
                Ok(())
            }
        }
    }

    /// Fills `out` as far as the object reaches, if the deadline allows; `None`: some bytes have no place that is known here.
    pub(crate) fn read_all(&self, cx: &OpCx, out: &mut [u8], offset: u64) -> Option<Result<u64>> {
        let mut done = 0;
        while done < out.len() {
            if done > 0 && cx.left_ns() == 0 {
                return Some(Err(late("read")));
            }
            let end = out.len().min(done + STEP);
            let got = match self.read_step(&mut out[done..end], offset + done as u64)? {
                Ok(got) => got as usize,
                Err(e) => return Some(Err(e)),
            };
            done += got;
            if done < end {
                break;
            }
        }
        Some(Ok(done as u64))
    }

    fn read_step(&self, out: &mut [u8], offset: u64) -> Option<Result<u64>> {
        match &self.lent {
            Lent::File(file) => Some(read_step(file, out, offset)),
            Lent::Memory(window) => window.read(out, offset).map(Ok),
        }
    }
}

/// Keeps bytes where they lie.
struct Pinned {
    grant: Arc<Grant>,
    /// Of which process it is.
    generation: u64,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // What a child has inherited is its parent's: the lease page is one for both.
        if seam::fork_generation() == self.generation {
            self.grant.slot.unpin();
        }
    }
}

fn write_step(fd: &OwnedFd, bytes: &[u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(fd, &bytes[done..], offset + done as u64) {
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(os_error(e, done > 0)),
        }
    }
    Ok(())
}

fn read_step(fd: &OwnedFd, out: &mut [u8], offset: u64) -> Result<u64> {
    let mut done = 0;
    while done < out.len() {
        match rustix::io::pread(fd, &mut out[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(os_error(e, false)),
        }
    }
    Ok(done as u64)
}

/// The medium is slow, or there was much to move.
fn late(what: &str) -> Error {
    Error::timeout(format!("the deadline passed before all was {what}")).with_clause(Clause::O8)
}

fn os_error(e: Errno, partly: bool) -> Error {
    let error = match e {
        Errno::NOSPC | Errno::DQUOT => Error::exhausted("the file system of the store is full: free space, or move it"),
        Errno::FBIG => Error::file_too_big("the file system of the store does not take larger files"),
        Errno::IO => Error::corrupt("the medium of the store reports an error (EIO)"),
        e => Error::from(std::io::Error::from(e)),
    };
    if partly { error.with_outcome(Outcome::Unknown) } else { error }
}

/// A grant's number on the wire: the slot of the lease page, and its generation. `None`: the generation is too large.
pub fn grant_number(slot: u32, generation: u64) -> Option<u64> {
    (slot < 1 << 16 && generation < 1 << 48).then_some(generation << 16 | u64::from(slot))
}

/// Slot and generation of a number.
pub fn slot_of(number: u64) -> (u32, u64) {
    ((number & 0xffff) as u32, number >> 16)
}
