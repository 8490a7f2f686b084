//! The threads that take requests at one place, of which there are always some more than are busy; and who of those that wait for long
//! is to stop.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use iov_store::seam;

/// Threads that are to be there besides those that are busy: while a new one is started, there is still one.
pub(crate) const SPARE: usize = 2;
/// How long who is about to wait for long waits first for somebody to take the next request, and looks whether there is, in nanoseconds.
const READY_NS: i64 = 1_000_000_000;
const LOOK_NS: u64 = 200_000;
/// Threads of one place at most, besides those that wait for long.
const MOST: usize = 32;
/// Requests to stop that came before it was known who is to: as many are kept.
const EARLY: usize = 256;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who waits, and who is to stop, of all of a session.
#[derive(Default)]
pub(crate) struct Interrupts {
    known: Mutex<Known>,
    /// Nobody is there any more who could want anything.
    is_over: AtomicBool,
}

#[derive(Default)]
struct Known {
    waiting: HashMap<u64, Arc<AtomicBool>>,
    early: VecDeque<u64>,
}

impl Interrupts {
    /// The program that made a request does not want to wait any more. It may not have begun to.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut known = lock(&self.known);
        match known.waiting.get(&unique) {
            Some(stop) => stop.store(true, Ordering::Release),
            None => {
                if known.early.len() == EARLY {
                    known.early.pop_front();
                }
                known.early.push_back(unique);
            }
        }
    }

    /// The directory is mounted nowhere any more: nobody is to wait.
    pub(crate) fn interrupt_all(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    fn begin(&self, unique: u64) -> Arc<AtomicBool> {
        let mut known = lock(&self.known);
        let early = known.early.iter().position(|early| *early == unique);
        if let Some(at) = early {
            known.early.remove(at);
        }
        let stop = Arc::new(AtomicBool::new(early.is_some()));
        known.waiting.insert(unique, stop.clone());
        stop
    }

    fn end(&self, unique: u64) {
        lock(&self.known).waiting.remove(&unique);
    }
}

/// The threads of one place.
pub(crate) struct Crew {
    /// Threads that can take a request now, and such as will.
    idle: AtomicUsize,
    coming: AtomicUsize,
    all: AtomicUsize,
    waiting: AtomicUsize,
    /// There was nobody to take a request for a moment.
    was_short: AtomicBool,
    /// How often that was so, and how many requests were taken.
    shorts: AtomicU64,
    taken: AtomicU64,
    /// Requests that were made so that the next ones are taken, and are not answered yet.
    looking: Arc<AtomicUsize>,
    interrupts: Arc<Interrupts>,
    /// In which form requests to set attributes come ([`init::SETXATTR_EXT`](crate::abi::init::SETXATTR_EXT)).
    pub(crate) setxattr_longer: bool,
    /// Starts another thread there; `false`: it cannot be had now.
    hire: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Crew {
    /// A place where nobody works yet.
    pub(crate) fn new(
        interrupts: Arc<Interrupts>,
        setxattr_longer: bool,
        hire: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Crew {
        let zero = AtomicUsize::default;
        let (idle, coming, all, waiting, was_short) = (zero(), zero(), zero(), zero(), AtomicBool::new(false));
        let (shorts, taken, hire) = (AtomicU64::default(), AtomicU64::default(), Box::new(hire));
        let looking = Arc::default();
        Crew { idle, coming, all, waiting, was_short, shorts, taken, looking, interrupts, setxattr_longer, hire }
    }

    /// A request is made so that the next ones are taken.
    pub(crate) fn looks(&self) -> Looking {
        self.looking.fetch_add(1, Ordering::AcqRel);
        Looking(self.looking.clone())
    }

    /// What there is to be seen of it from outside.
    pub(crate) fn pulse(&self) -> Pulse {
        let idle = self.idle.load(Ordering::Acquire);
        let away = idle + self.coming.load(Ordering::Acquire);
        Pulse {
            shorts: self.shorts.load(Ordering::Relaxed),
            taken: self.taken.load(Ordering::Relaxed),
            idle,
            looking: self.looking.load(Ordering::Acquire),
            busy: self.all.load(Ordering::Acquire).saturating_sub(away),
        }
    }

    pub(crate) fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    /// A thread is started.
    pub(crate) fn comes(&self) {
        self.all.fetch_add(1, Ordering::AcqRel);
        self.coming.fetch_add(1, Ordering::AcqRel);
    }

    /// It can take requests. `true`: some may have come before, while nobody could.
    pub(crate) fn is_ready(&self) -> bool {
        self.idle.fetch_add(1, Ordering::AcqRel);
        self.coming.fetch_sub(1, Ordering::AcqRel);
        self.was_short.swap(false, Ordering::AcqRel)
    }

    /// It could not be started.
    pub(crate) fn stays_away(&self) {
        self.coming.fetch_sub(1, Ordering::AcqRel);
        self.all.fetch_sub(1, Ordering::AcqRel);
    }

    /// A thread that is idle ends.
    pub(crate) fn leaves(&self) {
        self.idle.fetch_sub(1, Ordering::AcqRel);
        self.all.fetch_sub(1, Ordering::AcqRel);
    }

    /// A thread has taken a request, and is busy until what is returned is dropped.
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.taken.fetch_add(1, Ordering::Relaxed);
        if self.idle.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shorts.fetch_add(1, Ordering::Relaxed);
            self.was_short.store(true, Ordering::Release);
        }
        self.fill();
        Busy(self)
    }

    /// Somebody has to take the next request.
    fn fill(&self) {
        if self.idle.load(Ordering::Acquire) + self.coming.load(Ordering::Acquire) >= SPARE {
            return;
        }
        let working = self.all.load(Ordering::Acquire).saturating_sub(self.waiting.load(Ordering::Acquire));
        if working < MOST {
            // If it cannot be had, the next request waits for one of those that are busy.
            (self.hire)();
        }
    }

    pub(crate) fn waits(&self, unique: u64) -> Waiting<'_> {
        let stop = self.interrupts.begin(unique);
        self.waiting.fetch_add(1, Ordering::AcqRel);
        // What this one waits for may be the next request.
        let until = seam::monotonic_ns() + READY_NS;
        loop {
            self.fill();
            if self.idle.load(Ordering::Acquire) > 0 || seam::monotonic_ns() > until {
                break;
            }
            seam::sleep(LOOK_NS);
        }
        Waiting { crew: self, unique, stop }
    }
}

/// See [`Crew::pulse`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pulse {
    /// How often there was nobody to take a request, and how many were taken.
    pub(crate) shorts: u64,
    pub(crate) taken: u64,
    /// Threads that can take one now, and such as have one.
    pub(crate) idle: usize,
    pub(crate) busy: usize,
    /// Requests of our own that are on their way.
    pub(crate) looking: usize,
}

/// A request of our own is on its way until this is dropped.
pub(crate) struct Looking(Arc<AtomicUsize>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A thread that is busy.
pub(crate) struct Busy<'a>(&'a Crew);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.idle.fetch_add(1, Ordering::AcqRel);
    }
}

/// A request that may wait for long.
pub struct Waiting<'a> {
    crew: &'a Crew,
    unique: u64,
    stop: Arc<AtomicBool>,
}

impl Waiting<'_> {
    /// Whether the program was interrupted by a signal, or is not there any more, so that the answer is to be `EINTR`.
    pub fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.crew.interrupts.is_over.load(Ordering::Acquire)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.crew.interrupts.end(self.unique);
        self.crew.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
