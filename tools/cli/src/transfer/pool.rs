//! Several requests in flight: threads that each take the next piece, with a buffer of their own.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    time::Duration,
};

use ioverbs::{Range, Result, seam};

use super::{JOBS, PIECE, extents::Pieces};
use crate::{ctx::Ctx, failure::Done, progress::Progress};

/// What is done with a piece, in the buffer of the thread that does it; tells the bytes that moved.
pub(crate) type Work = dyn Fn(Range, &mut [u8]) -> Result<u64> + Send + Sync;

struct Shared {
    pieces: Mutex<Pieces>,
    work: Arc<Work>,
    moved: AtomicU64,
    ended: AtomicBool,
}

impl Shared {
    fn next(&self) -> Option<Range> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    fn go(&self) -> Result<()> {
        let mut buf = Vec::new();
        while !self.ended.load(Ordering::Relaxed) {
            let Some(piece) = self.next() else { break };
            buf.resize(piece.len as usize, 0);
            let moved = (self.work)(piece, &mut buf)?;
            self.moved.fetch_add(moved, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// How often progress is shown and an interrupt is looked for.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Does the work for every piece of the ranges. The first failure, or an interrupt, ends it after the pieces in flight.
pub(crate) fn run(ctx: &mut Ctx, ranges: Vec<Range>, progress: &mut Progress, work: Arc<Work>) -> Done {
    let pieces = Pieces::new(ranges, PIECE);
    let before = progress.moved();
    let shared =
        Arc::new(Shared { pieces: Mutex::new(pieces), work, moved: AtomicU64::new(0), ended: AtomicBool::new(false) });
    let (ends, ended) = channel::<Result<()>>();
    let mut running = 0;
    for _ in 0..JOBS {
        let (shared, ends) = (shared.clone(), ends.clone());
        let body = move || {
            let end = shared.go();
            // The other side waits for every thread that was started.
            let _ = ends.send(end);
        };
        running += usize::from(seam::spawn("iov-transfer", body).is_ok());
    }
    drop(ends);
    if running == 0 {
        // No threads to be had: one piece after the other does it too.
        shared.go()?;
    }
    let mut result = Ok(());
    while running > 0 {
        match ended.recv_timeout(LOOK) {
            Ok(end) => {
                running -= 1;
                if end.is_err() {
                    shared.ended.store(true, Ordering::Relaxed);
                }
                result = result.and(end);
            }
            Err(RecvTimeoutError::Timeout) => {}
            // A thread that is gone without an answer has panicked.
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ioverbs::Error::internal("a transfer ended without a result").into());
            }
        }
        progress.at(before + shared.moved.load(Ordering::Relaxed));
        if ctx.stop.is_set() {
            shared.ended.store(true, Ordering::Relaxed);
        }
    }
    result?;
    ctx.stop.check()?;
    progress.at(before + shared.moved.load(Ordering::Relaxed));
    Ok(())
}
