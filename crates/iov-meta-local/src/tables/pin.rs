//! A state of all trees that stays readable while it is held.

use std::sync::Arc;

use super::{FAMILIES, Family, Tables};

/// Holds a state. Merging of tables keeps what it needs.
pub(crate) struct Pin {
    tables: Arc<Tables>,
    at: [u64; FAMILIES.len()],
    /// Counts the buffers that have been moved into tables: two pins of one epoch read the same.
    pub(crate) epoch: u64,
}

impl Pin {
    /// Holds the present state.
    pub(crate) fn new(tables: &Arc<Tables>, epoch: u64) -> Pin {
        Pin { tables: tables.clone(), at: FAMILIES.map(|family| tables.tree(family).pin()), epoch }
    }

    /// Where it reads in a family's tree.
    pub(crate) fn at(&self, family: Family) -> u64 {
        self.at[family as usize]
    }

    /// The tables it holds.
    pub(crate) fn tables(&self) -> &Arc<Tables> {
        &self.tables
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        for family in FAMILIES {
            self.tables.tree(family).unpin(self.at[family as usize]);
        }
    }
}
