//! Files whose bytes the kernel moves by itself (`FUSE_PASSTHROUGH`, Linux 6.9), without a request to this process: sealed ones, and such
//! as are held exclusively, which it also writes.
//!
//! What is lent to be written stays open here, and with it the hold (X1), until no program has it open or mapped any more: a mapping
//! outlives the close of which the kernel tells, and is not told of itself.
//!
//! The kernel wants all who have a file open at a time to have it so, through the same file below, or all through its cache of
//! pages (what is open past the cache, `FOPEN_DIRECT_IO`, goes with the latter only). So the first who opens a file decides for all
//! until the last has closed it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Condvar, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use iov_fuse_kernel::{Backing as Id, Kernel};
use iov_posix::{Attributes, File, LentToWrite, Outcome};
use ioverbs::{LentFile, seam};
use rustix::io::Errno;

use crate::inodes::lock;

/// Files smaller than this go by requests, unless they are to be written anew: there are not more of them than it takes to have a
/// file passed.
const LEAST: u64 = 1 << 20;

/// How long to wait between two looks at whether a file is still in use that was closed: first, and at most.
const FIRST_LOOK: Duration = Duration::from_micros(200);
const LOOK: Duration = Duration::from_millis(250);
/// How often to look as the mount ends.
const LAST_LOOKS: usize = 10;

enum Lent {
    Sealed(Arc<dyn LentFile>),
    ToWrite(LentToWrite),
}

/// A file below, as the kernel knows it.
pub(crate) struct Backing {
    pub(crate) id: Id,
    lent: Lent,
    /// The store was asked to end it, and has not answered: it may be over.
    unsure: AtomicBool,
}

impl Backing {
    /// Whether it is that of a file that was opened.
    fn is_of(&self, file: &File) -> bool {
        match &self.lent {
            Lent::Sealed(_) => true,
            Lent::ToWrite(lent) => lent.is_of(file) && !self.unsure.load(Ordering::Acquire),
        }
    }

    /// Whether nobody has it any more.
    fn end(&self) -> Outcome<bool> {
        match &self.lent {
            Lent::Sealed(_) => Ok(true),
            Lent::ToWrite(lent) => {
                let ended = lent.end();
                self.unsure.store(ended.is_err(), Ordering::Release);
                ended
            }
        }
    }
}

/// How programs get at the bytes of a file that was opened.
pub(crate) enum Way {
    /// By requests, with the kernel's cache.
    Cached,
    /// Not at all: others have it open here by a file that is not this one's any more, since their hold was lost (X1), and the kernel has
    /// but one for all. It is to be closed again.
    Lost,
    /// By themselves.
    Passed(Arc<Backing>),
}

#[derive(Default)]
enum Decided {
    #[default]
    Not,
    Cached,
    /// The same, but it is still lent: the store has not answered since the kernel has refused it.
    Refused(LentToWrite),
    Passed(Arc<Backing>),
}

impl Decided {
    /// Whether nothing is lent any more.
    fn end(&self) -> Outcome<bool> {
        match self {
            Decided::Not | Decided::Cached => Ok(true),
            Decided::Refused(lent) => lent.end(),
            Decided::Passed(backing) => backing.end(),
        }
    }
}

#[derive(Default)]
struct Opens {
    count: usize,
    /// Who opens it at the same time waits until that is decided, or taken back.
    decided: Arc<Mutex<Decided>>,
}

/// A file that was closed, but is still in use.
struct InUse {
    /// How long was waited for the last look at it.
    wait: Duration,
    /// When to look next.
    at_ns: i64,
}

/// How each file is open, by its number.
#[derive(Default)]
pub(crate) struct Passing {
    kernel: Option<Kernel>,
    /// The kernel has said that it passes no files of this store, and is not asked again.
    refused: AtomicBool,
    files: Mutex<HashMap<u64, Opens>>,
    in_use: Mutex<HashMap<u64, InUse>>,
    wake: Condvar,
    /// Somebody looks at those.
    looks: AtomicBool,
}

impl Passing {
    /// Of a mount; the kernel passes files on, if there is one that can.
    pub(crate) fn new(kernel: Option<Kernel>) -> Arc<Passing> {
        Arc::new(Passing { kernel, ..Passing::default() })
    }

    /// A file was opened; `anew`: it was just made, or is to be written from its beginning on. Has it passed if it may be, by telling
    /// the kernel.
    pub(crate) fn opened(&self, ino: u64, file: &File, attributes: &Attributes, anew: bool) -> Way {
        let Some(kernel) = &self.kernel else { return Way::Cached };
        let decided = {
            let mut files = lock(&self.files);
            let opens = files.entry(ino).or_default();
            opens.count += 1;
            opens.decided.clone()
        };
        // It may close a handle, for which nobody has to wait.
        let mut _gone = Decided::Not;
        let mut decided = lock(&decided);
        let is_another = matches!(&*decided, Decided::Passed(backing) if !backing.is_of(file));
        // What was in use by somebody who had closed it may not be any more. Nobody else has it open, or is about to.
        if is_another
            && lock(&self.files).get(&ino).is_some_and(|opens| opens.count == 1)
            && decided.end().unwrap_or(false)
        {
            _gone = std::mem::take(&mut *decided);
        }
        if matches!(*decided, Decided::Not) {
            *decided = match self.lend(file, attributes, anew) {
                Some(lent) => self.pass(lent, kernel),
                None => Decided::Cached,
            };
        }
        match &*decided {
            Decided::Passed(backing) if backing.is_of(file) => Way::Passed(backing.clone()),
            Decided::Passed(_) => Way::Lost,
            Decided::Not | Decided::Cached | Decided::Refused(_) => Way::Cached,
        }
    }

    /// Whether programs have a file open by one that is not that of this open file, so that it cannot be had here.
    pub(crate) fn is_lost(&self, ino: u64, file: &File) -> bool {
        let opens = |opens: &Opens| (opens.count > 0).then(|| opens.decided.clone());
        let Some(decided) = lock(&self.files).get(&ino).and_then(opens) else { return false };
        // Who is deciding knows better.
        let Ok(decided) = decided.try_lock() else { return false };
        matches!(&*decided, Decided::Passed(backing) if !backing.is_of(file))
    }

    fn lend(&self, file: &File, attributes: &Attributes, anew: bool) -> Option<Lent> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        if attributes.size >= LEAST
            && let Some(sealed) = file.lend()
        {
            return Some(Lent::Sealed(sealed));
        }
        if attributes.size >= LEAST || anew { file.lend_to_write().map(Lent::ToWrite) } else { None }
    }

    /// Tells the kernel of what is lent.
    fn pass(&self, lent: Lent, kernel: &Kernel) -> Decided {
        let told = match &lent {
            Lent::Sealed(lent) => kernel.lend(lent.file()),
            Lent::ToWrite(lent) => kernel.lend(lent.file()),
        };
        match told {
            Ok(id) => Decided::Passed(Arc::new(Backing { id, lent, unsure: AtomicBool::new(false) })),
            Err(e) => {
                // Without the right to, over a file system that stands on others, or on one that cannot.
                if matches!(Errno::from_io_error(&e), Some(Errno::PERM | Errno::LOOP | Errno::OPNOTSUPP)) {
                    self.refused.store(true, Ordering::Relaxed);
                }
                match lent {
                    // Nobody has got it.
                    Lent::ToWrite(lent) if !lent.end().unwrap_or(false) => Decided::Refused(lent),
                    _ => Decided::Cached,
                }
            }
        }
    }

    /// It was closed, by one of those who had opened it.
    pub(crate) fn closed(self: &Arc<Passing>, ino: u64) {
        if self.kernel.is_none() {
            return;
        }
        let last = lock(&self.files).get_mut(&ino).is_some_and(|opens| {
            opens.count -= 1;
            opens.count == 0
        });
        if last && !self.is_over(ino) {
            self.look_later(ino);
        }
    }

    /// Forgets how a file was open, if nobody has it open; `false`: it is in use all the same.
    fn is_over(&self, ino: u64) -> bool {
        let Some(decided) = lock(&self.files).get(&ino).map(|opens| opens.decided.clone()) else { return true };
        let mut now = lock(&decided);
        let is_open = |opens: &Opens| opens.count > 0 || !Arc::ptr_eq(&opens.decided, &decided);
        if lock(&self.files).get(&ino).is_none_or(is_open) {
            return true;
        }
        // Who opens it from here on waits.
        if !now.end().unwrap_or(false) {
            return false;
        }
        let gone = std::mem::take(&mut *now);
        {
            let mut files = lock(&self.files);
            if !files.get(&ino).is_none_or(is_open) {
                files.remove(&ino);
            }
        }
        drop(now);
        // Not under the locks: the kernel is told, and the last handle may close with it.
        drop(gone);
        true
    }

    fn look_later(self: &Arc<Passing>, ino: u64) {
        let at_ns = seam::monotonic_ns() + FIRST_LOOK.as_nanos() as i64;
        lock(&self.in_use).entry(ino).or_insert(InUse { wait: FIRST_LOOK, at_ns });
        self.wake.notify_all();
        if self.looks.swap(true, Ordering::AcqRel) {
            return;
        }
        let passing = Arc::downgrade(self);
        if seam::spawn("iov-lent", move || look(&passing)).is_err() {
            // Then it is tried again with the next one, and as the mount ends.
            self.looks.store(false, Ordering::Release);
        }
    }

    /// Waits until something is due and looks at that; `false`: nothing is in use any more.
    fn look(&self) -> bool {
        let mut in_use = lock(&self.in_use);
        let now_ns = seam::monotonic_ns();
        let next_ns = in_use.values().map(|file| file.at_ns).min().unwrap_or(now_ns);
        if next_ns > now_ns {
            let wait = Duration::from_nanos((next_ns - now_ns) as u64);
            in_use = self.wake.wait_timeout(in_use, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        let now_ns = seam::monotonic_ns();
        let due: Vec<(u64, InUse)> = in_use.extract_if(|_, file| file.at_ns <= now_ns).collect();
        drop(in_use);
        for (ino, InUse { wait, .. }) in due {
            if self.is_over(ino) {
                continue;
            }
            let wait = (wait * 2).min(LOOK);
            let at_ns = seam::monotonic_ns() + wait.as_nanos() as i64;
            lock(&self.in_use).entry(ino).or_insert(InUse { wait, at_ns });
        }
        let in_use = lock(&self.in_use);
        if in_use.is_empty() {
            // Under the lock: who adds one from here on finds nobody looking.
            self.looks.store(false, Ordering::Release);
        }
        !in_use.is_empty()
    }

    /// The mount ends: what is in use by then is left to its programs.
    pub(crate) fn end(&self) {
        let files = std::mem::take(&mut *lock(&self.files));
        // Who has one open may be about to get at it.
        for opens in files.into_values().filter(|opens| opens.count == 0) {
            let decided = std::mem::take(&mut *lock(&opens.decided));
            for _ in 0..LAST_LOOKS {
                match decided.end() {
                    Ok(false) => seam::sleep(FIRST_LOOK.as_nanos() as u64),
                    Ok(true) => break,
                    // Who does not answer now will hear that this process has ended.
                    Err(_) => return,
                }
            }
        }
    }
}

/// Looks at what is in use, until nothing is.
fn look(passing: &Weak<Passing>) {
    while passing.upgrade().is_some_and(|passing| passing.look()) {}
}
