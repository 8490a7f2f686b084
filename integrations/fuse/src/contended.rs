//! Names of which the files are replaced, or taken away, just as programs open them.
//!
//! The kernel looks a name up, and then opens what it was told by its number. If that has gone in between it looks the name up once more, and tells the
//! program if it has gone again (`ESTALE`), which file systems of the kernel's never do. So once that has happened, what is looked up is kept open for
//! a moment: it can be opened, and changed, whatever becomes of its name (O10).

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use iov_posix::{Errno, File, Flags, Kind, Node, Outcome};
use ioverbs::seam;

/// How long what was looked up is kept, and how long names are taken for contended, in nanoseconds.
const MOMENT_NS: i64 = 1_000_000_000;
/// Most that are kept.
const MOST: usize = 64;
/// How often it is looked whether any can go, in nanoseconds.
const LOOK_NS: u64 = 250_000_000;

/// Files that are kept open, the oldest first, and since when.
type Kept = Mutex<VecDeque<(i64, File)>>;

/// See the module.
#[derive(Default)]
pub(crate) struct Contended {
    until_ns: AtomicI64,
    kept: Arc<Kept>,
}

fn lock(kept: &Kept) -> MutexGuard<'_, VecDeque<(i64, File)>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Contended {
    /// What comes of asking for something by its identity, which may have gone since its name was looked up.
    pub(crate) fn noted<T>(&self, outcome: Outcome<T>) -> Outcome<T> {
        if matches!(outcome, Err(Errno::ESTALE)) {
            self.until_ns.store(seam::monotonic_ns() + MOMENT_NS, Ordering::Relaxed);
        }
        outcome
    }

    /// What was looked up is kept, if that has happened lately. Fails with `ENOENT` or `ESTALE` if it has gone again.
    pub(crate) fn keep(&self, node: &Arc<Node>) -> Outcome<()> {
        let now_ns = seam::monotonic_ns();
        if now_ns > self.until_ns.load(Ordering::Relaxed) || node.kind() != Kind::File {
            return Ok(());
        }
        let file = match File::open(node, Flags { blind: true, ..Flags::default() }) {
            Ok((file, _)) => file,
            Err(e @ (Errno::ENOENT | Errno::ESTALE)) => return Err(e),
            // Who opens it is told why it cannot be.
            Err(_) => return Ok(()),
        };
        let mut kept = lock(&self.kept);
        let first = kept.is_empty();
        kept.push_back((now_ns, file));
        let over = if kept.len() > MOST { kept.pop_front() } else { None };
        drop(kept);
        // Not under the lock: it may be the last who has it open.
        drop(over);
        if first {
            let kept = Arc::downgrade(&self.kept);
            let goes = move || {
                while let Some(kept) = kept.upgrade() {
                    seam::sleep(LOOK_NS);
                    let now_ns = seam::monotonic_ns();
                    let mut all = lock(&kept);
                    let old = all.iter().take_while(|(since, _)| now_ns - since > MOMENT_NS).count();
                    let gone: Vec<_> = all.drain(..old).collect();
                    let ends = all.is_empty();
                    drop(all);
                    drop(gone);
                    if ends {
                        return;
                    }
                }
            };
            if seam::spawn("iov-contended", goes).is_err() {
                self.end();
            }
        }
        Ok(())
    }

    /// Nothing is kept any more.
    pub(crate) fn end(&self) {
        let all = std::mem::take(&mut *lock(&self.kept));
        drop(all);
    }
}
