//! The order of a family's entries, made when it is asked for.
//!
//! Most commits are never read as a range before they are in tables, where they are sorted once. A range read sorts what
//! has come since the last one into a run; runs that are alike in size are merged, so that there are few.

use std::{
    cmp::Reverse,
    sync::{RwLockReadGuard, RwLockWriteGuard},
};

use super::{Buffer, Entries};
use crate::tables::Family;

/// Numbers of entries: not in order yet, and in order of key, then newest first.
#[derive(Default)]
pub(super) struct Sorted {
    fresh: Vec<u32>,
    runs: Vec<Vec<u32>>,
}

impl Sorted {
    pub(super) fn push(&mut self, i: u32) {
        self.fresh.push(i);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.runs.is_empty()
    }

    pub(super) fn replace(&mut self, run: Vec<u32>) {
        // A family without entries stays one: what is put into tables for it would be a file with nothing in it.
        let runs = if run.is_empty() { Vec::new() } else { vec![run] };
        *self = Sorted { fresh: Vec::new(), runs };
    }

    /// The one run of a sealed family.
    pub(super) fn run(&self) -> &[u32] {
        debug_assert!(self.fresh.is_empty() && self.runs.len() <= 1, "the family is sealed");
        self.runs.first().map_or(&[], |run| run)
    }

    pub(super) fn runs(&self) -> &[Vec<u32>] {
        &self.runs
    }
}

impl Buffer {
    /// Entries with a family in order, as far as any view of now reaches.
    pub(super) fn in_order(&self, family: Family) -> RwLockReadGuard<'_, Entries> {
        let entries = self.read();
        if entries.sorted[family as usize].fresh.is_empty() {
            return entries;
        }
        drop(entries);
        let mut entries = self.write();
        entries.sort_fresh(family);
        RwLockWriteGuard::downgrade(entries)
    }
}

impl Entries {
    fn sort_fresh(&mut self, family: Family) {
        let mut fresh = std::mem::take(&mut self.sorted[family as usize].fresh);
        if fresh.is_empty() {
            return;
        }
        self.sort(&mut fresh);
        let mut runs = std::mem::take(&mut self.sorted[family as usize].runs);
        while runs.last().is_some_and(|last| last.len() <= 2 * fresh.len()) {
            fresh = self.merge(&runs.pop().unwrap_or_default(), &fresh);
        }
        runs.push(fresh);
        self.sorted[family as usize].runs = runs;
    }

    /// All entries of a family in order.
    pub(super) fn merged(&self, family: Family) -> Vec<u32> {
        let sorted = &self.sorted[family as usize];
        let mut run = sorted.fresh.clone();
        self.sort(&mut run);
        for older in sorted.runs.iter().rev() {
            run = self.merge(older, &run);
        }
        run
    }

    /// Sorts by key, then newest first. Most keys of a family begin alike; what follows decides nearly always, and is
    /// compared as one number.
    fn sort(&self, run: &mut Vec<u32>) {
        let Some((first, rest)) = run.split_first() else { return };
        let first = self.key(*first);
        let common = rest.iter().fold(first.len(), |common, i| {
            let key = self.key(*i);
            first.iter().zip(key).take(common).take_while(|(a, b)| a == b).count()
        });
        let mut numbered: Vec<(u128, u32)> = run.iter().map(|i| (number(&self.key(*i)[common..]), *i)).collect();
        numbered.sort_unstable_by(|(a, i), (b, j)| {
            a.cmp(b).then_with(|| self.key(*i).cmp(self.key(*j))).then_with(|| Reverse(i).cmp(&Reverse(j)))
        });
        run.clear();
        run.extend(numbered.into_iter().map(|(_, i)| i));
    }

    fn merge(&self, older: &[u32], newer: &[u32]) -> Vec<u32> {
        let mut out = Vec::with_capacity(older.len() + newer.len());
        let (mut a, mut b) = (older, newer);
        while let (Some((i, rest_a)), Some((j, rest_b))) = (a.split_first(), b.split_first()) {
            if self.key(*i) < self.key(*j) {
                out.push(*i);
                a = rest_a;
            } else {
                out.push(*j);
                b = rest_b;
            }
        }
        out.extend_from_slice(a);
        out.extend_from_slice(b);
        out
    }
}

/// The first bytes as a number that compares like them, except that it does not see zeros at their end.
fn number(bytes: &[u8]) -> u128 {
    let mut number = [0; 16];
    let n = bytes.len().min(16);
    number[..n].copy_from_slice(&bytes[..n]);
    u128::from_be_bytes(number)
}
