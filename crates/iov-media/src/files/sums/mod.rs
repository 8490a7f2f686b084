//! Checksums at rest (I1): from the first durable sync on, an object is *kept*. What is read of it is compared with what
//! was there when it was last synced.
//!
//! Blocks that have changed since are *open*: which ones is written down before they change, and survives power loss
//! before they do where they had a checksum. Whatever an open block holds is taken as it is; a sync reads the open ones
//! again and closes them. A block without a checksum that is not open holds zeros. `docs/adr/0009-checksums-at-rest.md`
//! tells why it is done so.

mod run;
mod store;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use iov_store::{
    OpCx,
    block_sums::{BLOCK, BLOCKS, BlockSum, RUN, sum_of},
};
use iov_types::{Clause, Error, ExtentKind, ObjectId, Outcome, Range, Result};

use super::{
    Files, Which,
    body::Body,
    object::{Object, State},
};
use crate::fail;
use run::{Blocks, Run};
use store::{Changes, Found};

pub use store::OpenSums;
pub(super) use store::SumStore;

/// What is known of an object's checksums.
#[derive(Default)]
pub(super) struct Kept {
    kept: AtomicBool,
    /// The first checksums are being made, under a lock that others share.
    begun: AtomicBool,
    /// The object has at least so many bytes.
    length: AtomicU64,
    /// Blocks were open when the object was loaded: an earlier daemon has not come to syncing them.
    found_open: AtomicBool,
    /// What is in the engine may not be on the medium.
    unpersisted: AtomicBool,
    /// By run.
    open: Mutex<BTreeMap<u64, Blocks>>,
}

impl Kept {
    /// Whether the object is kept by checksums.
    pub(super) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }

    /// Whether it is, or is about to be: nobody may change it who holds it together with others.
    pub(super) fn is_guarded(&self) -> bool {
        self.is_kept() || self.begun.load(Ordering::Acquire)
    }

    /// Tells that the first checksums are about to be made, or that this has ended.
    pub(super) fn begin(&self, begun: bool) {
        self.begun.store(begun, Ordering::Release);
    }

    /// How many bytes the object has at least.
    pub(super) fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// Whether blocks that an earlier daemon left open are still to be looked at.
    pub(super) fn found_open(&self) -> bool {
        self.found_open.load(Ordering::Acquire)
    }

    /// Whether some blocks may have changed since the last sync.
    pub(super) fn has_open(&self) -> bool {
        !self.open().is_empty()
    }

    /// The open blocks of some runs.
    fn open_of(&self, runs: &[u64]) -> Vec<Blocks> {
        let open = self.open();
        runs.iter().map(|run| open.get(run).copied().unwrap_or_default()).collect()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Blocks>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many times longer a sync waits for writes under way than others do.
const PATIENCE: u64 = 10;
/// Runs that are opened together.
const AHEAD: u64 = 16;
/// Most runs looked at together.
const PAGE: usize = 1024;

/// How blocks are about to change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// They get new bytes; those that are covered in part keep some of the old ones.
    Write,
    /// They get new bytes, and whoever writes them does not say which.
    Lend,
    /// They get new bytes that are committed: with the room that is kept for what cannot be refused any more (B3).
    Publish,
    /// They become zeros: of no concern where there is no checksum.
    Clear,
}

/// A range by runs: the run, and which of its blocks the range touches.
fn by_run(range: Range) -> impl Iterator<Item = (u64, Blocks)> {
    let runs = if range.len == 0 { 0..0 } else { range.offset / RUN..(range.end() - 1) / RUN + 1 };
    runs.map(move |run| {
        let start = run * RUN;
        let first = range.offset.saturating_sub(start) / BLOCK;
        let end = (range.end() - start).min(RUN).div_ceil(BLOCK);
        (run, Blocks::range(first as usize, end as usize))
    })
}

/// Of an object whose file has lost its end, or is gone.
pub(super) fn too_short(length: u64, kept: u64) -> Error {
    Error::corrupt(format!(
        "the collection should have at least {kept} bytes, its file has {length}: restore it from a copy of the store"
    ))
    .with_clause(Clause::I1)
}

fn damaged(range: Range) -> Error {
    Error::corrupt(format!(
        "bytes {} to {} are not what was written: the medium has damaged them. Restore the collection from a copy, or \
         write these bytes anew as a whole",
        range.offset,
        range.end()
    ))
    .with_clause(Clause::I1)
}

/// What is known of a block.
fn known(sums: &Run, open: Blocks, block: usize) -> BlockSum {
    match sums.get(block) {
        _ if open.has(block) => BlockSum::Open,
        Some(sum) => BlockSum::Sum(sum),
        None => BlockSum::Zeros,
    }
}

/// Compares a block with what is known of it. `bytes` reach to its end or to that of the object.
fn check(run: u64, sums: &Run, open: Blocks, block: usize, bytes: &[u8]) -> Result<()> {
    if known(sums, open, block).fits(bytes) != Some(false) {
        return Ok(());
    }
    Err(damaged(Range { offset: run * RUN + block as u64 * BLOCK, len: bytes.len() as u64 }))
}

impl Files {
    /// What is known of the checksums of an object that is loaded.
    pub(super) fn load_sums(&self, id: ObjectId) -> Result<Kept> {
        let Some(Found { length, open }) = self.sums.load(id)? else { return Ok(Kept::default()) };
        Ok(Kept {
            kept: true.into(),
            length: length.into(),
            // Who left it may not have come to that.
            unpersisted: true.into(),
            begun: false.into(),
            found_open: (!open.is_empty()).into(),
            open: Mutex::new(open.into_iter().collect()),
        })
    }

    /// Closes what an earlier daemon has left open: its clients cannot write any more. That a block matches its old
    /// checksum or not tells nothing then, since it was being changed.
    pub(super) fn close_found(&self, object: &Object, state: &mut State) {
        if state.torn.is_none() && !self.disk.tree.read_only {
            // What fails here leaves them open; the next sync tries again, and tells.
            let _ = self.quiesce(object, state).and_then(|()| self.sync_object(object, state));
        }
        state.kept.found_open.store(false, Ordering::Release);
    }

    /// Before a sync: nobody may change bytes past our lock while they are read again, and nobody read them without
    /// comparing them afterwards.
    pub(super) fn quiesce(&self, object: &Object, state: &mut State) -> Result<()> {
        if !self.sums.is_kept() || !state.exists {
            return Ok(());
        }
        let which = if state.kept.is_kept() { Which::Writers } else { Which::All };
        // A medium that is busy holds writers up; moving all bytes away from them would make that worse.
        self.recall_within(object, state, which, None, PATIENCE)
    }

    /// Opens the blocks of a range of an object of `size` bytes, before they change.
    pub(super) fn open_blocks(&self, id: ObjectId, state: &State, range: Range, size: u64, touch: Touch) -> Result<()> {
        if range.len == 0 || !state.kept.is_kept() {
            return Ok(());
        }
        if !matches!(touch, Touch::Lend | Touch::Publish) {
            self.check_edges(id, state, range, size)?;
        }
        let runs = range.offset / RUN..(range.end() - 1) / RUN + 1;
        if touch == Touch::Clear {
            // Zeros where there are zeros are no change: only what has checksums is looked at.
            let summed = self.sums.runs_within(id, runs)?;
            let within = |run: &u64| by_run(range.intersect(&Range { offset: *run * RUN, len: RUN })?).next();
            for some in summed.chunks(PAGE) {
                self.open_some(id, state, some.iter().filter_map(within).collect(), touch)?;
            }
            self.lower_length(id, state, range)?;
        } else {
            for first in runs.clone().step_by(PAGE) {
                let offset = range.offset.max(first * RUN);
                let end = range.end().min((first + PAGE as u64) * RUN);
                self.open_some(id, state, by_run(Range { offset, len: end - offset }).collect(), touch)?;
            }
        }
        if state.kept.unpersisted.load(Ordering::Acquire) {
            // A cut of power must not leave new bytes on the medium, and what is known of these blocks as it was.
            self.sums.persist()?;
            state.kept.unpersisted.store(false, Ordering::Release);
        }
        fail::point("sums.0.opened")
    }

    /// Writes down that the object may get shorter, if a range that becomes zeros or goes reaches to its end.
    fn lower_length(&self, id: ObjectId, state: &State, range: Range) -> Result<()> {
        if range.end() >= state.kept.length() && range.offset < state.kept.length() {
            let mut changes = Changes::default();
            changes.kept(id, range.offset);
            state.kept.unpersisted.store(true, Ordering::Release);
            self.sums.commit(changes, true)?;
            state.kept.length.store(range.offset, Ordering::Release);
        }
        Ok(())
    }

    fn open_some(&self, id: ObjectId, state: &State, mut wanted: Vec<(u64, Blocks)>, touch: Touch) -> Result<()> {
        let mut open = state.kept.open();
        let is_open = |run: &u64, blocks: Blocks| blocks.without(open.get(run).copied().unwrap_or_default()).is_empty();
        if wanted.iter().all(|(run, blocks)| is_open(run, *blocks)) {
            return Ok(());
        }
        let last = wanted.last().map_or(0, |(run, _)| *run);
        if matches!(touch, Touch::Write | Touch::Lend) {
            // What has no checksum yet is opened far ahead, so that a stream of writes waits for the medium now and then.
            wanted.extend((last + 1..(last / AHEAD + 1) * AHEAD).map(|run| (run, Blocks::default())));
        }
        let runs: Vec<u64> = wanted.iter().map(|(run, _)| *run).collect();
        let mut changes = Changes::default();
        let mut new = Vec::with_capacity(wanted.len());
        for ((run, blocks), sums) in wanted.into_iter().zip(self.sums.runs(id, &runs)?) {
            let before = open.get(&run).copied().unwrap_or_default();
            let blocks = blocks.or(Blocks::ALL.without(sums.present)).or(before);
            if blocks != before {
                changes.open(id, run, Some(blocks));
                new.push((run, blocks));
            }
        }
        state.kept.unpersisted.store(true, Ordering::Release);
        self.sums.commit(changes, matches!(touch, Touch::Clear | Touch::Publish))?;
        open.extend(new);
        Ok(())
    }

    /// Refuses to lend what is damaged: a sync takes for written whatever a lent part holds. Over the socket the blocks that
    /// change are known.
    pub(super) fn check_lent(&self, id: ObjectId, state: &State, range: Range, size: u64) -> Result<()> {
        let mut bytes = vec![0; RUN as usize];
        let end = range.end().min(size);
        for at in (range.offset..end).step_by(RUN as usize) {
            let piece = &mut bytes[..(end - at).min(RUN) as usize];
            self.read_kept(id, state, size, at, piece).map_err(|e| {
                Error::unsupported(format!("a part of it is not lent for writing: {e}")).with_clause(Clause::I1)
            })?;
        }
        Ok(())
    }

    /// Refuses to mix new bytes with damaged ones: they would get a good checksum together.
    pub(super) fn check_edges(&self, id: ObjectId, state: &State, range: Range, size: u64) -> Result<()> {
        let (first, last) = (range.offset / BLOCK, (range.end() - 1) / BLOCK);
        let cut_first = !range.offset.is_multiple_of(BLOCK);
        let cut_last = !range.end().is_multiple_of(BLOCK) && range.end() < size;
        let edges = [(first, cut_first || (first == last && cut_last)), (last, cut_last && first != last)];
        for (block, _) in edges.into_iter().filter(|(block, cut)| *cut && block * BLOCK < size) {
            let mut bytes = [0; BLOCK as usize];
            let there = (size - block * BLOCK).min(BLOCK) as usize;
            self.read_kept(id, state, size, block * BLOCK, &mut bytes[..there])
                .map_err(|e| e.with_outcome(Outcome::NotApplied))?;
        }
        Ok(())
    }

    /// Reads bytes of an object of `size` bytes, all of which must lie in it, and compares each block with its checksum.
    pub(super) fn read_kept(&self, id: ObjectId, state: &State, size: u64, offset: u64, out: &mut [u8]) -> Result<()> {
        let file = state.data(&self.disk, id)?;
        let range = Range { offset, len: out.len() as u64 };
        let runs: Vec<u64> = by_run(range).map(|(run, _)| run).collect();
        // In this order: whoever closes blocks meanwhile writes their checksums first.
        let open = state.kept.open_of(&runs);
        let sums = self.sums.runs(id, &runs)?;
        for (((run, blocks), sums), open) in by_run(range).zip(sums).zip(open) {
            let start = run * RUN;
            let from = start.max(offset);
            let piece = &mut out[(from - offset) as usize..((start + RUN).min(range.end()) - offset) as usize];
            must_read(&file, piece, from)?;
            for block in (0..BLOCKS).filter(|b| blocks.has(*b)) {
                let begin = start + block as u64 * BLOCK;
                let end = (begin + BLOCK).min(size);
                let (have, until) = (begin.max(from), end.min(range.end()));
                let part = &piece[(have - from) as usize..(until - from) as usize];
                if have == begin && until == end {
                    check(run, &sums, open, block, part)?;
                } else if !open.has(block) {
                    let mut whole = [0; BLOCK as usize];
                    let whole = &mut whole[..(end - begin) as usize];
                    must_read(&file, whole, begin)?;
                    check(run, &sums, open, block, whole)?;
                    // What was compared, not what was read before.
                    let same = &whole[(have - begin) as usize..(until - begin) as usize];
                    piece[(have - from) as usize..(until - from) as usize].copy_from_slice(same);
                }
            }
        }
        Ok(())
    }

    /// What is known of the blocks of some runs, for a client that reads by itself.
    pub fn block_sums(&self, cx: &OpCx, id: ObjectId, first: u64, runs: u64) -> Result<Vec<BlockSum>> {
        let object = self.object(id);
        let state = object.read(self, cx, None)?;
        let wanted: Vec<u64> = (first..first.saturating_add(runs)).collect();
        if !state.kept.is_kept() {
            return Err(Error::unsupported("the object is not kept by checksums").with_clause(Clause::I1));
        }
        let mut out = Vec::with_capacity(wanted.len() * BLOCKS);
        let open = state.kept.open_of(&wanted);
        for (sums, open) in self.sums.runs(id, &wanted)?.into_iter().zip(open) {
            out.extend((0..BLOCKS).map(|block| known(&sums, open, block)));
        }
        Ok(out)
    }

    /// After the bytes were synced: reads open blocks again and closes them. Nobody may change bytes meanwhile.
    pub(super) fn close_blocks(&self, object: &Object, state: &State) -> Result<()> {
        if !self.sums.is_kept() || !state.exists {
            return Ok(());
        }
        let (id, kept) = (object.id, state.kept.is_kept());
        let (size, file) = (state.size(self, id)?, state.data(&self.disk, id)?);
        // Not kept locked: others may read meanwhile, and nobody opens more.
        let todo: Vec<(u64, Blocks)> = match kept {
            true => state.kept.open().iter().map(|(run, blocks)| (*run, *blocks)).collect(),
            false => {
                // The rest of an attempt that was cut short.
                self.sums.forget(id)?;
                runs_with_data(&file, size)?
            }
        };
        if kept && todo.is_empty() && !state.kept.unpersisted.load(Ordering::Acquire) && state.kept.length() == size {
            return Ok(());
        }
        let mut bytes = vec![0; RUN as usize];
        let (mut changes, mut runs) = (Changes::default(), Vec::new());
        for (run, blocks) in todo {
            let mut sums = if kept { self.sums.runs(id, &[run])?.remove(0) } else { Run::default() };
            sum_blocks(&file, size, (run, blocks), &mut sums, &mut bytes)?;
            changes.sums(id, run, &sums);
            if kept {
                changes.open(id, run, None);
            }
            runs.push(run);
            if changes.is_full() {
                self.close_some(state, std::mem::take(&mut changes), &runs)?;
                runs.clear();
            }
        }
        changes.kept(id, size);
        fail::point("sums.1.summed")?;
        self.close_some(state, changes, &runs)?;
        state.kept.length.store(size, Ordering::Release);
        state.kept.kept.store(true, Ordering::Release);
        fail::point("sums.2.committed")?;
        self.sums.persist()?;
        state.kept.unpersisted.store(false, Ordering::Release);
        Ok(())
    }

    /// Memory follows the engine step by step: what fails later leaves the two alike.
    fn close_some(&self, state: &State, changes: Changes, runs: &[u64]) -> Result<()> {
        state.kept.unpersisted.store(true, Ordering::Release);
        self.sums.commit(changes, false)?;
        let mut open = state.kept.open();
        for run in runs {
            open.remove(run);
        }
        Ok(())
    }
}

/// Reads some blocks of an object of `size` bytes and notes their checksums.
fn sum_blocks(body: &Body, size: u64, (run, blocks): (u64, Blocks), sums: &mut Run, bytes: &mut [u8]) -> Result<()> {
    let start = run * RUN;
    let there = size.saturating_sub(start).min(RUN) as usize;
    let first = (0..BLOCKS).find(|b| blocks.has(*b)).unwrap_or(BLOCKS) * BLOCK as usize;
    let end = (0..BLOCKS).rfind(|b| blocks.has(*b)).map_or(0, |b| (b + 1) * BLOCK as usize).min(there);
    if first < end {
        must_read(body, &mut bytes[first..end], start + first as u64)?;
    }
    for block in (0..BLOCKS).filter(|b| blocks.has(*b)) {
        let from = block * BLOCK as usize;
        let sum = if from < end { sum_of(&bytes[from..(from + BLOCK as usize).min(end)]) } else { None };
        sums.set(block, sum);
    }
    Ok(())
}

fn must_read(body: &Body, out: &mut [u8], offset: u64) -> Result<()> {
    let range = Range { offset, len: out.len() as u64 };
    body.read_exact(out, offset)?.ok_or_else(|| damaged(range))
}

/// The runs of an object that are not holes as a whole.
fn runs_with_data(body: &Body, size: u64) -> Result<Vec<(u64, Blocks)>> {
    let mut out: Vec<(u64, Blocks)> = Vec::new();
    for extent in body.extents(Range { offset: 0, len: size }, size, usize::MAX)? {
        if extent.kind != ExtentKind::Data {
            continue;
        }
        for (run, blocks) in by_run(extent.range) {
            match out.last_mut() {
                Some((last, have)) if *last == run => *have = have.or(blocks),
                _ => out.push((run, blocks)),
            }
        }
    }
    Ok(out)
}
