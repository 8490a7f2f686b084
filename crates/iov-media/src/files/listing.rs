//! Pages of all objects in order. The files lie scattered, so each page would go through all of them again; what a page
//! has found beyond its end is therefore kept for the next one.

use std::{
    collections::{BinaryHeap, VecDeque},
    sync::{Mutex, PoisonError, atomic::Ordering},
};

use iov_types::{ObjectId, Result};

use super::{Files, tree::FileName};

/// Most objects kept for the next pages (1.5 MiB).
const KEPT: usize = 65_536;

#[derive(Default)]
struct Kept {
    /// How many objects had been made when this was found.
    births: u64,
    /// All objects behind this one, up to the last of `next`, are in `next`.
    after: Option<ObjectId>,
    next: VecDeque<ObjectId>,
    /// Whether there is none behind the last.
    complete: bool,
}

/// What is kept between pages.
#[derive(Default)]
pub(super) struct Listing(Mutex<Kept>);

impl Listing {
    pub(super) fn page(&self, files: &Files, after: Option<ObjectId>, max: usize) -> Result<Vec<ObjectId>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let births = files.births.load(Ordering::SeqCst);
        // Who goes on where a page has ended began before what was made since, and need not see that: with many objects, and
        // more made all the time, each page would go through all files again.
        let goes_on = |kept: &Kept| kept.births == births || !kept.next.is_empty();
        let fits = |kept: &Kept| after.is_some() && kept.after == after && goes_on(kept);
        if !fits(&kept) || (kept.next.len() < max && !kept.complete) {
            *kept = scan(files, after, births, max.saturating_add(KEPT))?;
        }
        let mut page = Vec::new();
        while page.len() < max {
            let Some(id) = kept.next.pop_front() else { break };
            kept.after = Some(id);
            // It may have been removed since it was found.
            if files.disk.tree.has(FileName::Data(id))? {
                page.push(id);
            }
        }
        // The next page begins behind what was told, which may lie before what was removed.
        kept.after = page.last().copied().or(after);
        Ok(page)
    }
}

fn scan(files: &Files, after: Option<ObjectId>, births: u64, most: usize) -> Result<Kept> {
    // The largest on top, to be dropped when there are too many.
    let mut found = BinaryHeap::new();
    let mut complete = true;
    files.disk.tree.objects(|id| {
        if after.is_none_or(|after| id > after) {
            found.push(id);
            if found.len() > most {
                found.pop();
                complete = false;
            }
        }
    })?;
    Ok(Kept { births, after, next: found.into_sorted_vec().into(), complete })
}
