//! The names that one command has given: what it has just put there it does not replace with the next of its sources, of
//! which one would be lost.

use std::collections::HashSet;

use ioverbs::{Clause, Error, Name, Uuid};

use crate::{
    address::Address,
    failure::{Done, Next},
};

/// Names in their groups.
#[derive(Debug, Default)]
pub(crate) struct Given(HashSet<(Uuid, Name)>);

impl Given {
    /// Remembers a name.
    pub(crate) fn add(&mut self, group: Uuid, name: &Name) {
        self.0.insert((group, name.clone()));
    }

    /// Whether it is remembered.
    pub(crate) fn has(&self, group: Uuid, name: &Name) -> bool {
        self.0.contains(&(group, name.clone()))
    }

    /// Fails for a name that is remembered; `address` is where it leads.
    pub(crate) fn check(&self, group: Uuid, name: &Name, address: impl FnOnce() -> Address) -> Done {
        if !self.has(group, name) {
            return Ok(());
        }
        let address = address();
        let error = Error::exists(format!("{address} was put there by this command, and is not replaced by it"));
        Err(error.with_clause(Clause::O3))
            .next(|| "take this source in a command of its own, with a name of its own as the target".into())
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
