//! Files of a target lent on: to whoever moves bytes without this library, as the kernel does for programs that have a mounted
//! file open. Sealed ones to be read (G1, O10), and such as are held exclusively to be written (X1).

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering, mpsc},
    time::Duration,
};

use iov_store::{Backend, ClientSlot, LENT_MODE, LentFile, Memory, OpCx, Sink};
use iov_types::{
    Capability, Clause, Counters, Demand, Error, Evidence, Kind, ObjectId, ObjectOp, ObjectVerb, Range, Result,
};
use iov_wire::messages::{Access, GrantRequest, TakeBack, TakeBackAnswer};
use rustix::fs::Mode;

use crate::{
    direct::{Direct, DirectBackend},
    grant::{Grant, Lent, room},
    link::{Link, ask},
    tickets,
};

/// A sealed file in the hands of others.
struct LentOut(OwnedFd);

impl LentFile for LentOut {
    fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A file that others write.
struct LentToWrite {
    file: OwnedFd,
    slot: ClientSlot,
    loan: Loan,
    object: ObjectId,
}

/// One of the loans that a process may have of a target: each takes a descriptor and a slot of the lease page.
struct Loan(Arc<Direct>);

impl Loan {
    fn take(direct: &Arc<Direct>) -> Result<Loan> {
        let loan = Loan(direct.clone());
        if direct.loans.fetch_add(1, Ordering::AcqRel) >= room() {
            return Err(Error::unsupported("no more files are lent to this process"));
        }
        Ok(loan)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.loans.fetch_sub(1, Ordering::AcqRel);
    }
}

impl LentFile for LentToWrite {
    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn holds(&self) -> bool {
        self.slot.holds()
    }

    fn take_back(&self, cx: &OpCx) -> Result<()> {
        self.loan.0.take_back(cx, self.object)
    }
}

impl Direct {
    /// Ends what was lent of an object.
    fn take_back(&self, cx: &OpCx, object: ObjectId) -> Result<()> {
        // Each of them may be open for writing.
        self.give_all_back(object);
        Counters::add(&self.link.counters().round_trips, 1);
        let frame = self.link.call(cx, &TakeBack { context: Link::context(cx), object })?;
        let answer: TakeBackAnswer = frame.header.body(&frame.body)?;
        answer.failed.map_or(Ok(()), Err)
    }

    /// Leave to change an object, if some has to be asked for.
    fn leave_to_write(&self, cx: &OpCx, object: ObjectId) -> Result<tickets::Shown> {
        let (tell, told) = mpsc::sync_channel(1);
        let go = move |shown| drop(tell.send(shown));
        self.link.tickets.with(cx, || vec![(object.collection, true)], Box::new(go));
        loop {
            if let Ok(shown) = told.try_recv() {
                return shown;
            }
            if cx.left_ns() == 0 {
                return Err(Error::timeout("the catalog did not answer in time").with_clause(Clause::O8));
            }
            // Answers are received by those who wait for them.
            if self.link.drive(cx.left_ns()) {
                continue;
            }
            match told.recv_timeout(LOOK) {
                Ok(shown) => return shown,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Error::unavailable("the connection to the catalog has ended"));
                }
            }
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
    /// Whether there is a file to lend, by what is known here.
    pub(crate) fn may_lend(&self, direct: bool) -> Result<()> {
        if !direct || self.0.link.targets().medium != Capability::FILES || self.0.link.in_child() {
            return Err(Error::unsupported("the store does not keep these bytes in a file that this process can open"));
        }
        Ok(())
    }

    /// See [`iov_store::Backend::lend_to_write`].
    pub(crate) fn lend_writable(&self, cx: &OpCx, object: ObjectId, epoch: u64) -> Result<Box<dyn LentFile>> {
        let direct = &self.0;
        let loan = Loan::take(direct)?;
        // What is open for writing here would hold up its end.
        direct.give_all_back(object);
        let tickets = direct.leave_to_write(cx, object)?.iter().map(|(_, bytes)| bytes.to_vec()).collect();
        let (range, context) = (Range { offset: 0, len: i64::MAX as u64 }, Link::context(cx));
        let (memory, anew, access) = (false, false, Access::Lent);
        let request = GrantRequest { context, object, range, access, epoch, memory, anew, tickets };
        let up = direct.link.up(cx)?;
        direct.link.check(object.collection, None)?;
        let page = direct.page(&up)?;
        Counters::add(&direct.link.counters().round_trips, 1);
        let granted = direct.grant(ask(&up, cx, &request), &Arc::downgrade(&up), &page, epoch);
        let granted = granted.inspect_err(|e| {
            // Where nobody knows whether it came to that, it is ended.
            if !matches!(e.kind(), Kind::Unsupported | Kind::Fenced | Kind::NotFound) {
                let _ = direct.take_back(cx, object);
            }
        })?;
        match granted.lent {
            Lent::File(file) => Ok(Box::new(LentToWrite { file, slot: granted.slot, loan, object })),
            Lent::Memory(_) => Err(Error::corrupt("the daemon lends memory in place of a file")),
        }
    }

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
