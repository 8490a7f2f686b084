//! Files of a target lent on: to whoever moves bytes without this library, as the kernel does for programs that have a mounted
//! file open (G1, G2).

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use iov_store::{Backend, LentFile, Memory, OpCx, Sink, seam};
use iov_types::{Clause, Demand, Error, Evidence, ObjectId, ObjectOp, ObjectVerb, Range, Result};
use iov_wire::messages::Access;

use crate::{
    direct::DirectBackend,
    grant::{Grant, Lent},
};

/// A file in the hands of others. While it is, the lease page says so: for reading, that its space is to stay; for writing, that
/// somebody writes who does not end with this process.
struct LentOut {
    file: OwnedFd,
    grant: Arc<Grant>,
    write: bool,
    /// Of which process it is.
    generation: u64,
}

impl LentFile for LentOut {
    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn holds(&self) -> bool {
        if self.write { self.grant.slot.counts() } else { self.grant.slot.holds() }
    }
}

impl Drop for LentOut {
    fn drop(&mut self) {
        // What a child has inherited is its parent's: the lease page is one for both.
        match seam::fork_generation() == self.generation {
            true if self.write => self.grant.slot.retire_beyond(),
            true => self.grant.slot.unpin(),
            false => {}
        }
    }
}

/// Waits for one operation.
#[derive(Default)]
struct One(Mutex<Option<Result<Evidence>>>, Condvar);

/// How long to wait for another thread, which may receive the answer, before a look at whether it is to be received here.
const LOOK: Duration = Duration::from_millis(1);

impl One {
    fn slot(&self) -> MutexGuard<'_, Option<Result<Evidence>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Result<Evidence>> {
        self.slot().take()
    }

    fn wait(&self) {
        let slot = self.slot();
        if slot.is_none() {
            drop(self.1.wait_timeout(slot, LOOK).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Sink for One {
    fn complete(&self, _: usize, evidence: Result<Evidence>) {
        *self.slot() = Some(evidence);
        self.1.notify_all();
    }
}

impl DirectBackend {
    /// See [`iov_store::Backend::lend`].
    pub(crate) fn lend_file(&self, cx: &OpCx, object: ObjectId, epoch: u64, write: bool) -> Result<Box<dyn LentFile>> {
        self.0.expect_more(object);
        let verb = if write { ObjectVerb::Write { offset: 0 } } else { ObjectVerb::Read { offset: 0 } };
        let op = ObjectOp { object, verb, demand: Demand { epoch, ..Demand::default() } };
        // Nothing is moved, but it takes a grant all the same.
        let one = Arc::new(One::default());
        self.submit(cx, vec![(op, Memory::default())], one.clone());
        loop {
            if let Some(evidence) = one.take() {
                evidence?;
                break;
            }
            // Answers are received by those who wait for them.
            if !self.0.link.drive(cx.left_ns()) {
                one.wait();
            }
        }
        let grant = self.0.of_all(object, epoch, write);
        lend(grant.ok_or_else(|| Error::unsupported("the daemon does not grant access to these bytes now"))?, write)
    }
}

fn lend(grant: Arc<Grant>, write: bool) -> Result<Box<dyn LentFile>> {
    let Lent::File(file) = &grant.lent else {
        return Err(Error::unsupported("these bytes lie in memory that programs share, not in a file"));
    };
    if grant.kept {
        let why = "these bytes are compared with checksums when they are read, and so are read through the store";
        return Err(Error::unsupported(why).with_clause(Clause::I1));
    }
    let failed = |e: rustix::io::Errno| Error::from(std::io::Error::from(e));
    // The seal is the mode of the file, which the daemon alone sets.
    let sealed = rustix::fs::fstat(file).map_err(failed)?.st_mode & 0o200 == 0;
    if !write && !sealed {
        return Err(Error::unsupported("these bytes may change: for reading, a file is lent when it is sealed"));
    }
    let all = grant.covers(Range { offset: 0, len: i64::MAX as u64 });
    if write && (sealed || grant.access != Access::Write || !all) {
        return Err(Error::unsupported("not all of these bytes may be written by others than the store"));
    }
    let file = file.try_clone().map_err(Error::from)?;
    if !(if write { grant.slot.announce_beyond() } else { grant.slot.pin() }) {
        return Err(Error::busy("what was granted was taken back at once: repeat"));
    }
    Ok(Box::new(LentOut { file, grant, write, generation: seam::fork_generation() }))
}
