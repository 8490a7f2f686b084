//! Changes of the table of what is open, each with its undo.

use iov_store::Fact;
use iov_types::Uuid;

use super::{Exec, Undo};
use crate::{
    changes::Changing,
    record::Record,
    state::{Entry, Writers},
};

impl Exec<'_> {
    /// Puts an entry in place of what was there.
    pub(crate) fn set_entry(&mut self, uuid: Uuid, entry: Entry) {
        let writers = Writers::of(Some(&entry));
        let had_by = entry.deleted.then(|| entry.slots().count());
        let loose = entry.is_unused() || (entry.written && !entry.has_lengths());
        let before = self.shared_mut().opens.set(uuid, Some(Box::new(entry)));
        if writers.share_with(Writers::of(before.as_deref())) {
            // What was written by who closes it is seen with the commit, behind which another one is alone.
            self.mark(Fact::Writers(uuid));
        }
        if had_by.is_some_and(|n| before.as_deref().is_none_or(|before| before.slots().count() != n)) {
            // What has no name is there for those who have it open (O10), and for nobody else; its record stays as it is.
            self.mark(Fact::Itself(uuid));
        }
        self.undo.push(Undo::Entry(uuid, before));
        if loose {
            self.loose.push(uuid);
        }
    }

    /// Changes an entry, if there is one.
    pub(crate) fn change_entry(&mut self, uuid: Uuid, change: impl FnOnce(&mut Entry)) {
        let entry = self.shared().opens.get(uuid).cloned();
        if let Some(mut entry) = entry {
            change(&mut entry);
            self.set_entry(uuid, entry);
        }
    }

    /// A fact is being changed until this submission has ended, whether or not it comes to anything.
    pub(super) fn mark(&mut self, fact: Fact) {
        let page = self.shared().opens.changes().cloned();
        if let Some(page) = page
            && !self.marks.iter().any(|marked| marked.has(fact))
        {
            self.marks.push(Changing::begin(&page, vec![fact]));
        }
    }

    /// The bytes of a collection are at its target from the commit on. Before that nobody else may ask for them there:
    /// what they change would be lost with the commit.
    pub(crate) fn note_moved(&mut self, uuid: Uuid) {
        self.moved.push(uuid);
    }

    /// Whether others have to see the bytes of a collection beside its record for now.
    pub(crate) fn is_inline(&self, uuid: Uuid, record: &Record) -> bool {
        record.inline || self.moved.contains(&uuid)
    }

    /// An entry as it is now.
    pub(crate) fn entry(&self, uuid: Uuid) -> Option<Entry> {
        self.shared().opens.get(uuid).cloned()
    }
}
