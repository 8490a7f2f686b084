//! When names were last made in groups, or taken away.
//!
//! To write that into the record of the group with each name would have everybody wait for one record who makes names there. So
//! it is kept in memory and written from time to time: a catalog that dies forgets the last minute of it.

use std::collections::HashMap;

use iov_types::Uuid;

use crate::hash::Seeded;

/// Groups whose names have changed since that was last written; the root has the workspace's UUID.
#[derive(Default, Debug)]
pub(crate) struct Touched(HashMap<Uuid, (Uuid, i64), Seeded>);

/// What a submission does to it: names of a group were changed at this time, or (`None`) somebody has set another time since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) ws: Uuid,
    pub(crate) group: Uuid,
    pub(crate) at_ns: Option<i64>,
}

impl Touched {
    /// When names of a group were last changed, if its record does not know.
    pub(crate) fn get(&self, group: Uuid) -> Option<i64> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&group).map(|(_, at_ns)| *at_ns)
    }

    /// Notes what a submission did.
    pub(crate) fn apply(&mut self, touch: Touch) {
        match touch.at_ns {
            Some(at_ns) => drop(self.0.insert(touch.group, (touch.ws, at_ns))),
            None => drop(self.0.remove(&touch.group)),
        }
    }

    /// All of them: workspace, group and time.
    pub(crate) fn all(&self) -> Vec<(Uuid, Uuid, i64)> {
        self.0.iter().map(|(group, (ws, at_ns))| (*ws, *group, *at_ns)).collect()
    }
}
