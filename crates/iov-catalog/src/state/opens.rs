//! Who has which collection, group or root open, and who holds it exclusively (O10, X1).

use std::{collections::HashMap, sync::Arc};

use iov_store::{ChangePage, Fact};
use iov_types::{Place, Uuid};

use crate::hash::Seeded;

/// What one session has open of one object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) session: Uuid,
    /// Whom the session acted for when it opened.
    pub(crate) holder: Uuid,
    /// Handles.
    pub(crate) count: u32,
    /// Handles that may write.
    pub(crate) writers: u32,
    /// The epoch it was given; 0 = none.
    pub(crate) epoch: u64,
    /// Its hold has passed on: nothing from here applies.
    pub(crate) fenced: bool,
    /// It stands for one that died with it open.
    pub(crate) died: bool,
}

impl Slot {
    /// It stands for who has no more open what a target could not be asked for: nobody acts by it.
    pub(crate) fn is_heirs(&self) -> bool {
        self.holder.is_nil()
    }
}

/// An exclusive hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hold {
    pub(crate) holder: Uuid,
    pub(crate) epoch: u64,
    /// This catalog has granted it, so that it knows all who act by it. One that has come back from before a crash may have others
    /// that have not.
    pub(crate) granted: bool,
    /// Who has written by it has closed, and it goes on: the last that closes seals what is to be sealed by that (M2).
    pub(crate) to_seal: bool,
}

impl Hold {
    /// The hold after an open that was granted this epoch: `before` goes on, if there was one.
    pub(crate) fn opened(before: Option<Hold>, holder: Uuid, epoch: u64) -> Hold {
        let new = Hold { holder, epoch, granted: true, to_seal: false };
        before.map_or(new, |hold| Hold { epoch, ..hold })
    }
}

/// How a hold has ended while sessions of the catalog before could come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// A group's, for good: nobody comes back to it.
    ForGood,
    /// Here alone, in this workspace: others of its holder may come back, and it goes on for all who act for that.
    Here(Uuid, Hold),
}

/// One object that somebody has open. The key is its UUID; for a root the workspace's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) ws: Uuid,
    /// A group or root: a hold covers what is below it (X2).
    pub(crate) group: bool,
    /// Nearly always there is one; the others are in `more`. Empty when its count is 0.
    one: Slot,
    more: Vec<Slot>,
    pub(crate) hold: Option<Hold>,
    /// Its last name is gone.
    pub(crate) deleted: bool,
    /// Somebody may have written since the record was last brought up to date.
    pub(crate) written: bool,
    /// The list of abandoned collections has an entry that says that somebody writes it (M2).
    pub(crate) staging: bool,
    /// Its bytes live beside the record.
    pub(crate) inline: bool,
    /// Where they lie else.
    pub(crate) place: Place,
}

impl Entry {
    /// Nobody has it open yet.
    pub(crate) fn new(ws: Uuid, group: bool) -> Entry {
        Entry {
            ws,
            group,
            one: Slot::default(),
            more: Vec::new(),
            hold: None,
            deleted: false,
            written: false,
            staging: false,
            inline: false,
            place: Place::FIRST,
        }
    }

    /// Whether a target may know more of its bytes than the record.
    pub(crate) fn may_be_ahead(&self) -> bool {
        self.written && !self.inline
    }

    /// What each session has.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        std::iter::once(&self.one).filter(|s| s.count > 0).chain(&self.more)
    }

    /// The same, to change; counts must not become 0 here.
    pub(crate) fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        std::iter::once(&mut self.one).filter(|s| s.count > 0).chain(&mut self.more)
    }

    /// What a session has.
    pub(crate) fn slot(&self, session: Uuid) -> Option<&Slot> {
        self.slots().find(|s| s.session == session)
    }

    /// Whether nobody has it open.
    pub(crate) fn is_unused(&self) -> bool {
        self.one.count == 0 && self.more.is_empty()
    }

    /// Whether somebody may write: not who has lost it.
    pub(crate) fn has_writers(&self) -> bool {
        self.slots().any(|s| s.writers > 0 && !s.is_heirs() && !s.fenced)
    }

    /// Whether somebody may write, or what was written is still to be written down.
    pub(crate) fn has_lengths(&self) -> bool {
        self.slots().any(|s| s.writers > 0)
    }

    /// Whether anybody acts by it.
    pub(crate) fn is_in_use(&self) -> bool {
        self.slots().any(|s| !s.is_heirs())
    }

    /// Whether nobody has written it since a writer died, of which its target could not be asked.
    pub(crate) fn has_died(&self) -> bool {
        self.slots().any(|s| s.died)
    }

    /// One that stands for a writer that has closed it, or `died`: while others write nobody is told of that.
    pub(crate) fn add_heir(&mut self, heir: Uuid, died: bool) {
        let died = died && !self.has_writers();
        let there = self.slots().find(|s| s.is_heirs()).map(|s| s.session);
        if there.is_none() {
            self.add(heir, Uuid::NIL, true, 0);
        }
        self.slots_mut().filter(|s| s.is_heirs()).for_each(|s| s.died |= died);
    }

    /// One more handle of a session.
    pub(crate) fn add(&mut self, session: Uuid, holder: Uuid, writer: bool, epoch: u64) {
        self.takes_up(writer);
        if let Some(slot) = self.slots_mut().find(|s| s.session == session) {
            slot.count += 1;
            slot.writers += u32::from(writer);
            slot.epoch = slot.epoch.max(epoch);
            slot.holder = holder;
            return;
        }
        let slot = Slot { session, holder, count: 1, writers: u32::from(writer), epoch, fenced: false, died: false };
        if self.one.count == 0 {
            self.one = slot;
        } else {
            self.more.push(slot);
        }
    }

    /// What a session had before the catalog was opened anew.
    pub(crate) fn restore(&mut self, slot: Slot) {
        self.takes_up(slot.writers > 0 && !slot.fenced);
        if self.one.count == 0 {
            self.one = slot;
        } else {
            self.more.push(slot);
        }
    }

    /// Who writes it takes up what one that died has left.
    fn takes_up(&mut self, writer: bool) {
        if writer {
            self.written = true;
            self.slots_mut().for_each(|s| s.died = false);
        }
    }

    /// One handle of a session less; tells whether it was the session's last.
    pub(crate) fn close_one(&mut self, session: Uuid) -> bool {
        let Some(slot) = self.slots_mut().find(|s| s.session == session) else { return false };
        if slot.count > 1 {
            slot.count -= 1;
            slot.writers = slot.writers.min(slot.count);
            return false;
        }
        self.remove(session);
        true
    }

    /// All handles of a session.
    pub(crate) fn remove(&mut self, session: Uuid) {
        if self.one.session == session {
            self.one = self.more.pop().unwrap_or_default();
        } else {
            self.more.retain(|s| s.session != session);
        }
    }
}

/// All entries, with what must be found quickly.
#[derive(Default, Debug)]
pub(crate) struct Opens {
    /// Boxed: a table of a million grows by moving pointers, and is not twice as large as what is in it.
    entries: HashMap<Uuid, Box<Entry>, Seeded>,
    /// Entries in which a session has a slot.
    by_session: HashMap<Uuid, u32, Seeded>,
    /// Entries of groups with a hold or a fenced slot: while there are none, nothing can be covered by one.
    covering: usize,
    /// Where it is said that what is open changes all the time.
    changes: Option<Arc<ChangePage>>,
}

fn covers(entry: &Entry) -> bool {
    entry.group && (entry.hold.is_some() || entry.slots().any(|s| s.fenced))
}

impl Opens {
    /// One entry.
    pub(crate) fn get(&self, uuid: Uuid) -> Option<&Entry> {
        self.entries.get(&uuid).map(|entry| &**entry)
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Uuid, &Entry)> {
        self.entries.iter().map(|(uuid, entry)| (*uuid, &**entry))
    }

    /// Whether a group or root may be held.
    pub(crate) fn may_cover(&self) -> bool {
        self.covering > 0
    }

    /// Whether a session has anything open.
    pub(crate) fn has_open(&self, session: Uuid) -> bool {
        self.by_session.contains_key(&session)
    }

    fn change(&mut self, uuid: Uuid, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&uuid) else { return };
        let before = is_ahead(Some(entry));
        change(entry);
        let after = is_ahead(Some(entry));
        self.tell(uuid, before, after);
    }

    /// Notes whether the record may be behind.
    pub(crate) fn set_written(&mut self, uuid: Uuid, written: bool) {
        self.change(uuid, |entry| entry.written = written);
    }

    /// Notes that the bytes of a collection are at its target.
    pub(crate) fn set_moved(&mut self, uuid: Uuid) {
        self.change(uuid, |entry| entry.inline = false);
    }

    /// Says in this page from now on what may change without the catalog.
    pub(crate) fn tell_changes(&mut self, page: Arc<ChangePage>) {
        let ahead = self.entries.iter().filter(|(_, entry)| is_ahead(Some(entry)));
        ahead.for_each(|(uuid, _)| page.begin(Fact::Itself(*uuid)));
        let shared = self.entries.iter().filter(|(_, entry)| Writers::of(Some(entry)) == Writers::Several);
        shared.for_each(|(uuid, _)| page.begin(Fact::Writers(*uuid)));
        self.changes = Some(page);
    }

    /// Says in the page who may write, where that is not as before. Of the first nobody knows anything that could be over.
    fn tell_writers(&self, uuid: Uuid, before: Writers, after: Writers) {
        let is_first = before == Writers::None && after != Writers::Several;
        let Some(page) = self.changes.as_ref().filter(|_| before != after && !is_first) else { return };
        if before != Writers::Several {
            page.begin(Fact::Writers(uuid));
        }
        if after != Writers::Several {
            page.end(Fact::Writers(uuid));
        }
    }

    /// Says in the page whether something may change without the catalog, where that is not as before.
    fn tell(&self, uuid: Uuid, before: bool, after: bool) {
        if let Some(page) = &self.changes {
            match (before, after) {
                (false, true) => page.begin(Fact::Itself(uuid)),
                (true, false) => page.end(Fact::Itself(uuid)),
                _ => {}
            }
        }
    }

    /// The page in which is said what changes.
    pub(crate) fn changes(&self) -> Option<&Arc<ChangePage>> {
        self.changes.as_ref()
    }

    /// Puts an entry in place of what was there, which it returns.
    pub(crate) fn set(&mut self, uuid: Uuid, entry: Option<Box<Entry>>) -> Option<Box<Entry>> {
        let (after, writers) = (is_ahead(entry.as_deref()), Writers::of(entry.as_deref()));
        if let Some(entry) = &entry {
            self.covering += usize::from(covers(entry));
            for slot in entry.slots() {
                *self.by_session.entry(slot.session).or_default() += 1;
            }
        }
        let before = match entry {
            Some(entry) => self.entries.insert(uuid, entry),
            None => self.entries.remove(&uuid),
        };
        if let Some(before) = &before {
            self.covering -= usize::from(covers(before));
            for slot in before.slots() {
                if let Some(n) = self.by_session.get_mut(&slot.session) {
                    *n -= 1;
                    if *n == 0 {
                        self.by_session.remove(&slot.session);
                    }
                }
            }
        }
        self.tell(uuid, is_ahead(before.as_deref()), after);
        self.tell_writers(uuid, Writers::of(before.as_deref()), writers);
        before
    }
}

/// Which sessions may write a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writers {
    None,
    One(Uuid),
    Several,
}

impl Writers {
    pub(crate) fn of(entry: Option<&Entry>) -> Writers {
        let Some(entry) = entry.filter(|entry| !entry.group) else { return Writers::None };
        let mut writers = entry.slots().filter(|slot| slot.writers > 0);
        match (writers.next(), writers.next()) {
            (None, _) => Writers::None,
            (Some(one), None) => Writers::One(one.session),
            _ => Writers::Several,
        }
    }

    /// Whether what comes behind this, or was before, is that several may write where this is not so.
    pub(crate) fn share_with(self, other: Writers) -> bool {
        self != other && (self == Writers::Several || other == Writers::Several)
    }
}

/// Whether it may be changed without the catalog.
fn is_ahead(entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| !entry.group && entry.may_be_ahead())
}
