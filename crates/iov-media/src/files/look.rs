//! Looking at a target that nobody serves. Nothing is brought to its end and nothing taken back: what a crash has left half
//! done is read as it will be where that is known, and is an error where it is not.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicBool},
};

use iov_types::{Clause, Error, ObjectId, ObjectVerb, Result};

use super::{
    Files, OpenSums, Options,
    disk::Disk,
    journal::{FILES, Found},
    recover::capability_of,
    tree::Tree,
    way::Way,
};
use crate::segments::Segments;

/// Why the bytes of an object are not shown.
pub(super) fn unfinished() -> Error {
    Error::unavailable(
        "a change of it was cut short by a crash, and the store's daemon brings it to its end when it starts: start it, as any \
         command without --offline does",
    )
    .with_clause(Clause::M1)
}

impl Files {
    /// Opens the target in a directory for looking at it. No file is made, written, cut, renamed or removed, and no daemon can
    /// open it meanwhile; others may look too.
    ///
    /// Verbs that read are answered, those that change fail. What is staged can be read by who names the stage. `sums` opens
    /// the checksums that are there, and is never asked for new ones.
    pub fn look(directory: OwnedFd, options: Options, sums: Option<OpenSums>) -> Result<Files> {
        let tree = Tree::look(directory)?;
        let capability = capability_of(&tree, &options)?;
        let segments = match options.shared {
            Some(_) => Some(Arc::new(Segments::look(tree.segments()?)?)),
            None => None,
        };
        let disk = Disk::new(tree, options.descriptor_limit(), segments, Way::Cached);
        let mut files = Files::over(disk, capability, &options, sums)?;
        files.settled = AtomicBool::new(true);
        // One whose publication has begun is known by its log, when its object is read.
        let mut troubles = Vec::new();
        files.find_stages(&mut troubles)?;
        files.troubles = troubles;
        files.look_for_units();
        Ok(files)
    }

    /// Refuses what would change something, where nothing may.
    pub(super) fn check_look(&self, verb: &ObjectVerb) -> Result<()> {
        let reads = matches!(
            verb,
            ObjectVerb::Read { .. } | ObjectVerb::Stat | ObjectVerb::Extents { .. } | ObjectVerb::List { .. }
        );
        if reads || !self.disk.tree.read_only {
            return Ok(());
        }
        Err(Error::denied("the target is open for reading only"))
    }

    /// Objects of which a unit may be half there.
    fn look_for_units(&mut self) {
        for n in 0..FILES {
            match self.journal.find(&self.disk, n) {
                Ok(None) => {}
                Ok(Some(Found::Whole { id, .. } | Found::Damaged { id })) => self.mark_unfinished(id),
                Err(e) => self.troubles.push(e.context(format!("looking at journal/{n}"))),
            }
        }
    }

    fn mark_unfinished(&mut self, id: ObjectId) {
        // Removed or sealed since: then it had been done, and only the mark was not taken away. Of one that cannot be looked
        // at, who reads it hears the same.
        if let Ok(mut state) = self.object(id).write_now(self)
            && state.exists
            && !state.sealed
        {
            state.torn = Some(unfinished());
        }
    }
}
