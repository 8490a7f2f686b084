//! Sealed files of a target lent on: to whoever reads bytes without this library, as the kernel does for programs that have a
//! mounted file open (G1, O10).

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use iov_store::{Backend, LENT_MODE, LentFile, Memory, OpCx, Sink};
use iov_types::{Clause, Demand, Error, Evidence, ObjectId, ObjectOp, ObjectVerb, Result};
use rustix::fs::Mode;

use crate::{
    direct::DirectBackend,
    grant::{Grant, Lent},
};

/// A sealed file in the hands of others.
struct LentOut(OwnedFd);

impl LentFile for LentOut {
    fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
    pub(crate) fn lend_file(&self, cx: &OpCx, object: ObjectId, epoch: u64) -> Result<Box<dyn LentFile>> {
        self.0.expect_more(object);
        let demand = Demand { epoch, ..Demand::default() };
        let op = ObjectOp { object, verb: ObjectVerb::Read { offset: 0 }, demand };
        // Nothing is read, but it takes a grant all the same.
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
        let grant = self.0.of_all(object, epoch);
        lend(&*grant.ok_or_else(|| Error::unsupported("the daemon does not grant access to these bytes now"))?)
    }
}

fn lend(grant: &Grant) -> Result<Box<dyn LentFile>> {
    let Lent::File(file) = &grant.lent else {
        return Err(Error::unsupported("these bytes lie in memory that programs share, not in a file"));
    };
    if grant.kept {
        let why = "these bytes are compared with checksums when they are read, and so are read through the store";
        return Err(Error::unsupported(why).with_clause(Clause::I1));
    }
    let failed = |e: rustix::io::Errno| Error::from(std::io::Error::from(e));
    // The seal is the mode of the file, which the daemon alone sets.
    let mode = rustix::fs::fstat(file).map_err(failed)?.st_mode & 0o7777;
    if mode & 0o200 != 0 {
        return Err(Error::unsupported("these bytes may change: a file is lent when it is sealed"));
    }
    let file = file.try_clone().map_err(Error::from)?;
    if mode & LENT_MODE == 0 {
        // Only its owner may say so: the store's user, and root.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode | LENT_MODE)).map_err(failed)?;
    }
    // Whoever has deleted it may have looked before that, and then has emptied it before the grant was taken back.
    if !grant.slot.holds() {
        return Err(Error::busy("what was granted was taken back at once: repeat"));
    }
    Ok(Box::new(LentOut(file)))
}
