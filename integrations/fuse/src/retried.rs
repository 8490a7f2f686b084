//! What the kernel tries again.
//!
//! It looks a name up, and asks for what it was told by its number: to open it, or to change it. If somebody has replaced that in between it looks the name up once more, and tells the
//! program if it has gone again (`ESTALE`), which file systems of the kernel's own never do. So what a thread looks up right behind that is kept open until that
//! thread asks for it: it can be opened, and changed, whatever has become of its name (O10). Nothing else is kept, as whoever has a name that the kernel
//! remembers must hear that it has been taken away.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use iov_posix::{Errno, File, Flags, Kind, Node, Outcome};
use ioverbs::seam;

use crate::inodes::lock;

/// How long a thread takes from a request that failed to the one that it tries instead, in nanoseconds, at most.
const SOON_NS: i64 = 500_000_000;
/// Most threads of which that is known at a time.
const MOST: usize = 64;

/// Where a thread is that tries again.
enum Where {
    /// It was told to.
    Told,
    /// It has looked the name up, and this was there.
    Looked(File),
}

/// Threads that try again, by number, and since when.
#[derive(Default)]
struct Threads {
    all: Mutex<HashMap<u32, (i64, Where)>>,
    /// How many those are, for all other threads.
    many: AtomicUsize,
    /// Somebody looks whether any has given up.
    looked_after: AtomicBool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Retried(Arc<Threads>);

impl Retried {
    /// What comes of asking for what a thread (0: one that is not seen here) has looked up before.
    pub(crate) fn asked<T>(&self, thread: u32, outcome: Outcome<T>) -> Outcome<T> {
        self.asked_or(thread, Errno::ESTALE, outcome)
    }

    /// The same, for what programs are told in another way if it was tried again and has gone again.
    pub(crate) fn asked_or<T>(&self, thread: u32, gone: Errno, outcome: Outcome<T>) -> Outcome<T> {
        let stale = matches!(outcome, Err(Errno::ESTALE)) && thread != 0;
        if !stale && self.0.many.load(Ordering::Relaxed) == 0 {
            return outcome;
        }
        let before = self.0.change(|all| {
            // What failed again is not tried a third time.
            let before = all.remove(&thread);
            if stale && all.len() < MOST && !matches!(before, Some((_, Where::Looked(_)))) {
                all.insert(thread, (seam::monotonic_ns(), Where::Told));
            }
            before
        });
        if stale && matches!(before, Some((_, Where::Looked(_)))) {
            return Err(gone);
        }
        if stale {
            self.look_after();
        }
        outcome
    }

    /// A thread looks up a name: what was found is kept for it if it tries again. `false`: it has gone by now.
    pub(crate) fn keep(&self, thread: u32, found: &Arc<Node>) -> bool {
        if self.0.many.load(Ordering::Relaxed) == 0 || found.kind() != Kind::File {
            return true;
        }
        // The kernel may look twice: whether the name still stands for what it knows, and, as it does not, for what it does.
        let other = |of: &Where| match of {
            Where::Told => true,
            Where::Looked(file) => file.node().uuid() != found.uuid(),
        };
        let tries = |at: &(i64, Where)| other(&at.1) && seam::monotonic_ns() - at.0 <= SOON_NS;
        if !lock(&self.0.all).get(&thread).is_some_and(tries) {
            return true;
        }
        let file = match File::open(found, Flags { blind: true, ..Flags::default() }) {
            Ok((file, _)) => file,
            Err(Errno::ENOENT | Errno::ESTALE) => return false,
            // Who opens it is told why it cannot be.
            Err(_) => return true,
        };
        drop(self.0.change(|all| all.insert(thread, (seam::monotonic_ns(), Where::Looked(file)))));
        true
    }

    /// What is kept for a thread goes in a moment, also if it does not ask for it.
    fn look_after(&self) {
        if self.0.looked_after.swap(true, Ordering::Relaxed) {
            return;
        }
        let threads = self.0.clone();
        let looks = move || {
            loop {
                seam::sleep(SOON_NS as u64);
                let now_ns = seam::monotonic_ns();
                let (gone, ends) = threads.change(|all| {
                    let gone: Vec<_> = all.extract_if(|_, (since, _)| now_ns - *since > SOON_NS).collect();
                    if all.is_empty() {
                        threads.looked_after.store(false, Ordering::Relaxed);
                    }
                    (gone, all.is_empty())
                });
                drop(gone);
                if ends {
                    return;
                }
            }
        };
        if seam::spawn("iov-retried", looks).is_err() {
            self.0.looked_after.store(false, Ordering::Relaxed);
            self.end();
        }
    }

    /// Nothing is kept any more.
    pub(crate) fn end(&self) {
        drop(self.0.change(std::mem::take));
    }
}

impl Threads {
    /// What comes of a change is for the caller to drop, not under the lock: it may be the last who has a file open.
    fn change<T>(&self, change: impl FnOnce(&mut HashMap<u32, (i64, Where)>) -> T) -> T {
        let mut all = lock(&self.all);
        let came = change(&mut all);
        self.many.store(all.len(), Ordering::Relaxed);
        came
    }
}
