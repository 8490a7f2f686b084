//! The sorted tables: one tree for each family of keys, read through pins that keep a state alive.
//!
//! The trees are written in two ways only, both on our threads: whole buffers come in as sorted runs, and runs are
//! merged. What a key holds is its value behind the revision at which it was written, eight bytes.

mod family;
mod manifest;
mod pin;
mod tree;
mod verify;

pub(crate) use family::{FAMILIES, Family, SPANS, Span};
pub(crate) use pin::Pin;
pub(crate) use tree::{Item, MAX_RUNS, Tree};

use std::sync::Arc;

use iov_types::Result;
use lsm_tree::{Cache, DescriptorTable};

use crate::files::{Home, TABLES};

/// Longest key: what tables can hold, less the byte before each key of [`Family::Other`].
pub(crate) const KEY_BYTES: usize = u16::MAX as usize - 1;
/// Open files of tables. The rest are opened anew for each read, which costs a few microseconds.
const OPEN_FILES: usize = 256;

/// All tables of a store. They hold the store's directory, and with it its lock.
pub(crate) struct Tables {
    trees: Vec<Tree>,
    /// Dropped last, so below the trees: a tree that goes removes the tables merged away, by paths that lead over this
    /// descriptor. Were it closed, its number could be the directory of another store, and the lock another process's.
    pub(crate) home: Home,
}

impl Tables {
    /// Opens the trees; with `make`, new ones where there are none.
    pub(crate) fn open(home: Home, cache: usize, make: bool) -> Result<Arc<Tables>> {
        home.make_dir(TABLES)?;
        let cache = Arc::new(Cache::with_capacity_bytes(cache as u64));
        let files = Arc::new(DescriptorTable::new(OPEN_FILES));
        let open = |family: &Family| Tree::open(&home, *family, cache.clone(), files.clone(), make);
        let trees = FAMILIES.iter().map(open).collect::<Result<Vec<_>>>()?;
        home.sync_dir(TABLES)?;
        Ok(Arc::new(Tables { trees, home }))
    }

    /// The tree of a family.
    pub(crate) fn tree(&self, family: Family) -> &Tree {
        &self.trees[family as usize]
    }

    /// All trees.
    pub(crate) fn trees(&self) -> &[Tree] {
        &self.trees
    }

    /// Whether nothing has ever been put in.
    pub(crate) fn is_empty(&self) -> bool {
        self.trees.iter().all(|t| t.bytes() == 0)
    }
}

#[cfg(test)]
mod tests;
