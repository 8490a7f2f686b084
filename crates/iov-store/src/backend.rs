//! Bytes: objects on a target.

use std::{
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::{Arc, Condvar, Mutex},
};

use iov_types::{Capability, Error, Evidence, ObjectId, ObjectOp, Range, Result};

use crate::{Memory, OpCx};

/// Where evidence arrives: once per operation, from any thread, perhaps before `submit` returns.
pub trait Sink: Send + Sync {
    /// `index` is the operation's place in the submission. The memory has been given back when this is called.
    fn complete(&self, index: usize, evidence: Result<Evidence>);

    /// Runs what a target has to do next, now that it has heard from another process: it may move many bytes, so that who
    /// cares in which thread that is keeps it until then. Called any number of times, from any thread.
    fn go_on(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

/// Bytes to be moved at once.
pub enum Now<'a> {
    /// To the object.
    Write(&'a [u8]),
    /// From it; short only at its end.
    Read(&'a mut [u8]),
}

/// What came of an attempt to move bytes at once.
#[derive(Debug)]
pub enum AtOnce {
    /// All of it, or why not; so many bytes.
    Done(Result<u64>),
    /// It has to be submitted; nothing was changed.
    No,
    /// It has to be submitted; some bytes may have been written already.
    Perhaps,
}

/// Bytes of an object where they lie; they stay there for as long as this lives.
pub struct Viewed {
    address: NonNull<u8>,
    len: usize,
    _pin: Box<dyn Send + Sync>,
}

// SAFETY: it is an address and what keeps it valid; nothing is read through it here.
unsafe impl Send for Viewed {}
// SAFETY: as above.
unsafe impl Sync for Viewed {}

impl Viewed {
    /// What `pin` keeps readable, `len` bytes from `address` on.
    pub fn new(address: *const u8, len: usize, pin: Box<dyn Send + Sync>) -> Viewed {
        let address = NonNull::new(address.cast_mut()).unwrap_or(NonNull::dangling());
        Viewed { address, len, _pin: pin }
    }

    /// Where they lie. Those of a collection that is not sealed may change at any time.
    pub fn as_ptr(&self) -> *const u8 {
        self.address.as_ptr()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What came of an attempt to show bytes.
pub enum Shown {
    /// Here they are, from the first on, as many as lie together.
    Here(Viewed),
    /// Here they are, but whether they are what was written shows when the same bytes are read (I1).
    Unchecked(Viewed),
    /// Not yet: behind a read of the same bytes they can be.
    Later,
    /// They are out of reach.
    Never,
}

/// A file of which the bytes are those of an object, each at the offset that it has in the object: of one that is sealed, or of
/// one that is held exclusively and lent to be written ([`Backend::lend_to_write`]).
pub trait LentFile: Send + Sync {
    /// The file, for reading. Who may do so can open it by that for writing as well.
    fn file(&self) -> BorrowedFd<'_>;

    /// Whether it still is the object's. What is lent to be written is not any more once the hold has passed on to another (X1):
    /// what is written to it from then on is read by nobody.
    fn holds(&self) -> bool {
        true
    }

    /// Ends a loan for writing; nobody may be given the file from the call on, unless it fails. `Busy`: some process has it open or
    /// mapped for writing, and goes on. Waits for the target.
    fn take_back(&self, _cx: &OpCx) -> Result<()> {
        Ok(())
    }
}

/// What the mode of a sealed file says that was lent to others (`S_ISVTX`, which means nothing of a file on Linux): some process may have
/// mapped it, of which nobody hears when it ends. So its bytes stay for as long as the kernel keeps them, when its name has gone.
pub const LENT_MODE: u32 = 0o1000;

/// An operation and its memory.
pub type Submitted = (ObjectOp, Memory);

/// A target, or something in front of one.
pub trait Backend: Send + Sync {
    /// What it can do.
    fn capability(&self) -> &Capability;

    /// What it can do for one object; where there are several targets those of the object count.
    fn capability_of(&self, _object: ObjectId) -> Capability {
        self.capability().clone()
    }

    /// Takes operations; those on one object take effect in order, all others in any order. One failing never hides
    /// another. Memory is lent until the evidence.
    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>);

    /// Writes or reads bytes that this process may move without asking anybody, as under a grant that it has. The checks that
    /// no demand makes (size, unit, stage, sync) are the caller's.
    fn at_once(&self, _object: ObjectId, _epoch: u64, _offset: u64, _bytes: Now<'_>) -> AtOnce {
        AtOnce::No
    }

    /// Shows bytes in place, for a reader.
    fn show(&self, _object: ObjectId, _epoch: u64, _range: Range) -> Shown {
        Shown::Never
    }

    /// Lends the file that a sealed object is, to whoever reads bytes without this library, such as the kernel on behalf of
    /// other processes. Waits for the target. `Unsupported` where there is no such file.
    fn lend(&self, _cx: &OpCx, _object: ObjectId, _epoch: u64) -> Result<Box<dyn LentFile>> {
        Err(Error::unsupported("the store does not keep these bytes in a file that this process can open"))
    }

    /// Lends the file that an object is to whoever writes bytes without this library, such as the kernel on behalf of other
    /// processes, until it is taken back. `epoch` is that of an exclusive hold, not 0: nobody else uses the object meanwhile. Until then the
    /// target refuses what would need the file back (`Busy`), but not a holder of a newer epoch, who gets a file of his own. Waits for the
    /// target. `Unsupported` where there is no such file.
    fn lend_to_write(&self, _cx: &OpCx, _object: ObjectId, _epoch: u64) -> Result<Box<dyn LentFile>> {
        Err(Error::unsupported("the store does not keep these bytes in a file that this process can open"))
    }

    /// A handle that has changed an object is being closed: what is held of it ahead of need can go.
    fn closed(&self, _object: ObjectId) {}

    /// Whether bytes are moved by whoever submits, one after the other anyway, so that nothing is gained by sending several
    /// things at a time.
    fn is_near(&self) -> bool {
        !self.may_wait()
    }

    /// Whether operations may wait for another process; `submit` itself never does.
    fn may_wait(&self) -> bool {
        false
    }
}

struct One {
    slot: Mutex<Option<Result<Evidence>>>,
    arrived: Condvar,
}

impl Sink for One {
    fn complete(&self, _: usize, evidence: Result<Evidence>) {
        *self.slot.lock().expect("no panic while held") = Some(evidence);
        self.arrived.notify_all();
    }
}

/// Submits one operation and waits for its evidence.
pub fn run_one(backend: &dyn Backend, cx: &OpCx, op: ObjectOp, memory: Memory) -> Result<Evidence> {
    let one = Arc::new(One { slot: Mutex::new(None), arrived: Condvar::new() });
    backend.submit(cx, vec![(op, memory)], one.clone());
    let mut slot = one.slot.lock().expect("no panic while held");
    loop {
        if let Some(evidence) = slot.take() {
            return evidence;
        }
        // The memory is lent until the evidence, so there is no giving up here: targets keep deadlines.
        slot = one.arrived.wait(slot).map_err(|_| Error::internal("a sink panicked"))?;
    }
}
