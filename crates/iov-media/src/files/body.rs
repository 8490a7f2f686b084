//! The bytes of an object, or of an image that will be one: a file of their own, or stretches of segments.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use iov_types::{Extent, Range, Result};
use rustix::fs::{Mode, Timespec};

use super::{io, way::DataFile};
use crate::segments::{Shared, Wait};

/// The bytes.
#[derive(Clone)]
pub(super) enum Body {
    File(DataFile),
    Shared(Arc<Shared>),
}

/// What is told of it without looking at its bytes.
pub(super) struct BodyFacts {
    pub(super) length: u64,
    pub(super) allocated: u64,
    pub(super) mtime_ns: i64,
}

fn timespec(ns: i64) -> Timespec {
    Timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) as _ }
}

impl Body {
    /// In segments, as far as it is there.
    pub(super) fn shared(&self) -> Option<&Arc<Shared>> {
        match self {
            Body::File(_) => None,
            Body::Shared(shared) => Some(shared),
        }
    }

    pub(super) fn facts(&self) -> Result<BodyFacts> {
        match self {
            Body::File(file) => {
                let stat = io::stat(file)?;
                Ok(BodyFacts {
                    length: stat.st_size as u64,
                    allocated: stat.st_blocks as u64 * 512,
                    mtime_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64),
                })
            }
            Body::Shared(shared) => Ok(BodyFacts {
                length: shared.length(),
                allocated: shared.allocated(),
                mtime_ns: shared.head().mtime_ns(),
            }),
        }
    }

    pub(super) fn length(&self) -> Result<u64> {
        match self {
            Body::File(file) => io::length(file),
            Body::Shared(shared) => Ok(shared.length()),
        }
    }

    /// Writes all of it. Where only a part could be written, the outcome of the error is unknown.
    pub(super) fn write_all(&self, data: &[u8], offset: u64) -> Result<()> {
        match self {
            Body::File(file) => file.write_all(data, offset),
            Body::Shared(shared) => shared.write_all(data, offset),
        }
    }

    /// Fills as much of `out` as there is; short at the end.
    pub(super) fn read(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        match self {
            Body::File(file) => file.read(out, offset),
            Body::Shared(shared) => Ok(shared.read(out, offset)),
        }
    }

    /// Fills `out`; `None` if the bytes end before.
    pub(super) fn read_exact(&self, out: &mut [u8], offset: u64) -> Result<Option<()>> {
        Ok((self.read(out, offset)? == out.len()).then_some(()))
    }

    /// Sets the length. `waits`: who may still use what is cut off, though nothing of it counts.
    pub(super) fn truncate(&self, size: u64, waits: Vec<Wait>) -> Result<()> {
        match self {
            Body::File(file) => io::truncate(file, size),
            Body::Shared(shared) => shared.truncate(size, waits),
        }
    }

    /// Makes a range a hole, as far as the bytes reach; `waits` as for [`Body::truncate`].
    pub(super) fn punch(&self, range: Range, waits: Vec<Wait>) -> Result<()> {
        match self {
            Body::File(file) => io::punch(file, range),
            Body::Shared(shared) => shared.punch(range, waits),
        }
    }

    /// Reserves space.
    pub(super) fn allocate(&self, range: Range, keep_size: bool) -> Result<()> {
        match self {
            Body::File(file) => io::allocate(file, range, keep_size),
            Body::Shared(shared) => {
                shared.reserve(range)?;
                if !keep_size && range.len > 0 {
                    shared.head().written(range.end());
                }
                Ok(())
            }
        }
    }

    /// Reserves space for bytes that are written next.
    pub(super) fn make_room(&self, range: Range) -> Result<()> {
        match self {
            Body::File(file) => io::make_room(file, range),
            Body::Shared(shared) => shared.reserve(range),
        }
    }

    /// Whether there are no holes.
    pub(super) fn is_dense(&self) -> Result<bool> {
        match self {
            Body::File(file) => io::is_dense(file),
            Body::Shared(shared) => Ok(shared.is_dense()),
        }
    }

    /// Data and holes of a range of the first `size` bytes, at most `max`, neighbours of one kind merged.
    pub(super) fn extents(&self, range: Range, size: u64, max: usize) -> Result<Vec<Extent>> {
        match self {
            Body::File(file) => io::extents(file, range, size, max),
            Body::Shared(shared) => Ok(shared.extents(range, size, max)),
        }
    }

    /// Copies bytes from another; how many there were before the source's end.
    pub(super) fn copy_from(&self, source: &Body, at: u64, offset: u64, len: u64) -> Result<u64> {
        match (source, self) {
            (Body::File(from), Body::File(to)) => io::copy(from, at, to, offset, len),
            (Body::Shared(from), Body::Shared(to)) => to.copy_from(from, at, offset, len),
            // A target has one medium.
            _ => Err(iov_types::Error::internal("a copy between media")),
        }
    }

    /// Sets the time of the last change; `None` = now.
    pub(super) fn set_time(&self, ns: Option<i64>) -> Result<()> {
        match (self, ns) {
            (Body::File(file), Some(ns)) => io::set_time(file, timespec(ns)),
            (Body::File(file), None) => io::set_time(file, Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW }),
            (Body::Shared(shared), Some(ns)) => {
                shared.head().set_mtime_ns(ns);
                Ok(())
            }
            (Body::Shared(shared), None) => {
                shared.touch();
                Ok(())
            }
        }
    }

    /// Does something that is no change of the bytes, though the medium takes it for one.
    pub(super) fn keeping_time<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = self.facts()?.mtime_ns;
        let result = body();
        self.set_time(Some(before))?;
        result
    }

    /// Makes the bytes, and what is needed to find them, survive power loss.
    pub(super) fn sync_data(&self) -> Result<()> {
        match self {
            Body::File(file) => io::sync_data(file),
            // Memory survives what its daemon does, and nothing more: no stronger level is offered.
            Body::Shared(_) => Ok(()),
        }
    }

    /// As [`Body::sync_data`], and all other facts.
    pub(super) fn sync_all(&self) -> Result<()> {
        match self {
            Body::File(file) => io::sync_all(file),
            Body::Shared(_) => Ok(()),
        }
    }

    /// Drops a range from the kernel's cache. Only a wish; memory is no cache.
    pub(super) fn forget(&self, range: Range) {
        if let Body::File(file) = self {
            io::forget(file, range);
        }
    }

    /// Sets the mode of its file or index, which is the seal.
    pub(super) fn set_mode(&self, mode: Mode) -> Result<()> {
        let set = |file: BorrowedFd<'_>| rustix::fs::fchmod(file, mode).map_err(io::os("sealing a file"));
        match self {
            Body::File(file) => set(file.as_fd()),
            Body::Shared(shared) => shared.with_index(|file| set(file.as_fd())),
        }
    }
}
