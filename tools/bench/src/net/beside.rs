//! What I/O costs the thread that starts it, and how much of it goes on while that thread computes.

use std::hint::black_box;

use anyhow::{Context, Result};
use ioverbs::seam;

use super::bare::Bare;
use crate::{
    capi::{Batch, Collection, Session},
    data::{SCHEDULE, SMALL},
    report::median,
    worker as workers,
};

/// Writes whose starts are timed in a round, on each side.
const STARTS: usize = 2000;
/// Those that are under way together.
const TOGETHER: usize = 16;
/// Bytes that are written beside the computing.
const BYTES: u64 = 64 << 20;
/// How often each of the three times of a round is taken.
const TIMES: usize = 9;

/// Figures of both sides, and the bytes that ours has moved.
pub(super) struct Done {
    pub(super) ours: f64,
    pub(super) bare: f64,
    pub(super) moved: u64,
}

pub(super) struct Sides<'a> {
    pub(super) session: &'a Session,
    pub(super) collection: Collection,
    pub(super) bare: &'a mut Bare,
    /// What is written, at each place.
    pub(super) source: &'a [u8],
}

/// Time for so many turns of something that needs a processor and no memory.
fn compute(turns: u64) -> Result<()> {
    black_box((0..turns).fold(1, |x: u64, i| black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i)));
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let from = workers::clock();
    work()?;
    Ok(workers::clock() - from)
}

/// The part of the shorter one, in per cent, that went on beside the other; both alone and together, in seconds.
pub(super) fn overlap(io: f64, computing: f64, both: f64) -> f64 {
    100.0 * (io + computing - both) / io.min(computing)
}

/// Medians of the three times in turns, and what they say. Computing takes as long as the I/O.
fn measure(io: &mut dyn FnMut(u64) -> Result<()>) -> Result<f64> {
    // How much is computed while the bytes are written.
    let unit = timed(|| compute(1 << 20))?;
    let alone = (0..3).map(|_| timed(|| io(0))).collect::<Result<Vec<_>>>()?;
    let turns = (median(&alone) / unit * f64::from(1 << 20)) as u64;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..TIMES {
        times[0].push(timed(|| io(0))?);
        times[1].push(timed(|| compute(turns))?);
        times[2].push(timed(|| io(turns))?);
    }
    let [io, computing, both] = times.map(|t| median(&t));
    Ok(overlap(io, computing, both))
}

impl Sides<'_> {
    /// Microseconds that the start of a small write takes, and that a program takes to hand the same bytes to a socket.
    pub(super) fn submit(&mut self, round: u64) -> Result<Done> {
        let len = SMALL.request as usize;
        let batches = (0..TOGETHER).map(|_| self.session.batch()).collect::<Result<Vec<Batch>>>()?;
        let at = |i: usize| ((round as usize * STARTS + i) * len) as u64 % SCHEDULE.footprint;
        let (mut ours, mut bare) = (Vec::with_capacity(STARTS), Vec::with_capacity(STARTS));
        for first in (0..STARTS).step_by(TOGETHER) {
            let mut started = Vec::with_capacity(TOGETHER);
            for (i, batch) in batches.iter().enumerate() {
                let from = workers::clock();
                batch.append(self.collection, at(first + i), &self.source[..len], 1)?;
                started.push(batch.start()?);
                ours.push((workers::clock() - from) * 1e6);
            }
            started.into_iter().zip(&batches).try_for_each(|(request, batch)| request.wait(batch))?;
            for i in 0..TOGETHER {
                let from = workers::clock();
                self.bare.send(at(first + i), &self.source[..len], 1)?;
                bare.push((workers::clock() - from) * 1e6);
            }
            (0..TOGETHER).try_for_each(|_| self.bare.acknowledged())?;
        }
        Ok(Done { ours: median(&ours), bare: median(&bare), moved: (STARTS * len) as u64 })
    }

    /// How much of a large write goes on while the thread that has started it computes.
    pub(super) fn overlap(&mut self, round: u64) -> Result<Done> {
        let times = BYTES / self.source.len() as u64;
        let at = round * BYTES % SCHEDULE.footprint;
        let batch = self.session.batch()?;
        let ours = measure(&mut |turns| {
            batch.append(self.collection, at, self.source, times)?;
            let started = batch.start()?;
            compute(turns)?;
            started.wait(&batch)
        })?;
        let (source, mut connection) = (self.source.to_vec(), self.bare.again()?);
        let (to, asked) = std::sync::mpsc::channel::<()>();
        let (answer, done) = std::sync::mpsc::channel();
        let thread = seam::spawn("bare-sender", move || {
            while asked.recv().is_ok() {
                if answer.send(connection.write(at, &source, times)).is_err() {
                    break;
                }
            }
        })?;
        let bare = measure(&mut |turns| {
            to.send(())?;
            compute(turns)?;
            done.recv().context("the bare sender is gone")?
        });
        drop(to);
        let _ = thread.join();
        // Both warm up three times, and write in two of three measurements.
        Ok(Done { ours, bare: bare?, moved: BYTES * (3 + 2 * TIMES as u64) })
    }
}
