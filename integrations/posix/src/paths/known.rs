//! What was found before: for as long as the catalog says that it holds, and where that cannot be known for as long as what others
//! do may stay unseen, as the kernel remembers it for a mount. That a name is not there is remembered as long as the catalog says so.
//!
//! What this file system does itself is seen at once: an entry holds until its name is taken away or moved here, what it stands for is changed
//! here, or is open here. A program that lists a directory and then looks at what is in it (`ls -l`, `rsync`, `git status`) gets the attributes
//! of the entries that come next along with those of the first, and so does one that looks at many names of a directory without listing it ([`Ahead`]).

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use ioverbs::{Fact, Uuid, seam};

use super::{Last, ahead::Ahead};
use crate::{Directory, FileSystem, Found, Kind, Node, fs::lock, names::Behind, remembered::Since};

/// Most names that are remembered.
const REMEMBERED: usize = 64 << 10;
/// Entries of a directory of which the attributes are fetched at once.
const AHEAD: usize = 256;

/// A directory and a name in it.
type Key = (Uuid, Box<[u8]>);

/// What a name stood for.
#[derive(Clone)]
struct Entry {
    /// None: it was not there.
    found: Option<Found>,
    /// How often what it stands for had been changed here.
    touched: u64,
    /// When it was found (monotonic clock).
    at_ns: i64,
    /// Before when it was asked for, if it is known until when that holds.
    since: Option<Since>,
    /// It came along with another one, and nobody has asked for it yet.
    ahead: bool,
}

impl Entry {
    /// Nothing was done to it here since it was found, and it is not open here.
    fn is_untouched(&self) -> bool {
        let of = |(node, _): &Found| node.touched() == self.touched && !node.is_open();
        self.found.as_ref().is_none_or(of)
    }

    /// What was found, if nothing of that has changed.
    fn held(self, last: &Last) -> Option<Option<Found>> {
        let of_it = self.found.as_ref().map(|(node, _)| node.itself());
        let facts: Vec<Fact> = std::iter::once(last.parent.names_in_it()).chain(of_it).collect();
        let holds = last.parent.file_system().holds(self.since.as_ref()?, &facts);
        let is_directory = self.found.as_ref().is_some_and(|(node, _)| node.kind() == Kind::Directory);
        (holds && (is_directory || self.is_untouched())).then_some(self.found)
    }
}

/// How things were when something was asked for.
pub(super) struct Asked {
    /// How much had been changed here: what is changed from then on may not be in the answer.
    changed: u64,
    since: Option<Since>,
}

impl Asked {
    pub(super) fn now(fs: &FileSystem) -> Asked {
        Asked { changed: fs.changes(), since: fs.since() }
    }

    /// Whether it is known until when the answer holds.
    pub(super) fn is_told(&self) -> bool {
        self.since.is_some()
    }
}

/// A directory that is being read.
struct Listing {
    dir: Directory,
    at_ns: i64,
    /// Positions of entries that were asked for: who asks again wants to know of that one alone.
    asked: Mutex<HashSet<usize>>,
}

/// The names of a file system that were found a moment ago.
#[derive(Default)]
pub(super) struct Known {
    names: Mutex<HashMap<Key, Entry>>,
    listing: Mutex<Option<Arc<Listing>>>,
    /// How many to ask for along with one.
    pub(super) ahead: Ahead,
}

fn key(last: &Last) -> Key {
    (last.parent.uuid(), last.name.as_slice().into())
}

fn is_fresh(node: &Node, at_ns: i64) -> bool {
    let span = node.file_system().0.options.unseen.as_nanos();
    u128::try_from(seam::monotonic_ns() - at_ns).is_ok_and(|age| age < span)
}

impl Known {
    /// What a name stands for, or that it is not there, as far as that still holds, or what others do may still be unseen: of directories also where
    /// the catalog could tell, unless it is to be as of `now`.
    pub(super) fn get(&self, last: &Last, now: bool) -> Option<Option<Found>> {
        let entry = self.entry(last)?;
        let Some((node, attributes)) = &entry.found else { return entry.held(last) };
        let may_be_old = !now || entry.since.is_none();
        if node.kind() == Kind::Directory && may_be_old && is_fresh(node, entry.at_ns) {
            // Of which this file system is told with each name that it makes or takes away.
            return node.told_lately().map(|attributes| Some((node.clone(), attributes)));
        }
        if node.kind() == Kind::Directory {
            return entry.held(last);
        }
        // What takes a name away changes what it stood for. So names that are made beside it, here as well, do not matter.
        let holds = match &entry.since {
            Some(since) => node.file_system().holds(since, &[node.itself()]),
            None => is_fresh(node, entry.at_ns),
        };
        (holds && entry.is_untouched()).then_some(Some((node.clone(), *attributes)))
    }

    /// The same, as far as it is known to hold.
    pub(super) fn held(&self, last: &Last) -> Option<Option<Found>> {
        self.entry(last)?.held(last)
    }

    fn entry(&self, last: &Last) -> Option<Entry> {
        let mut names = lock(&self.names);
        let entry = names.get_mut(&key(last))?;
        let (found, came_along) = (entry.clone(), std::mem::take(&mut entry.ahead));
        drop(names);
        if came_along {
            self.ahead.was_used(&last.parent);
        }
        Some(found)
    }

    /// A name was found.
    pub(super) fn put(&self, last: &Last, found: &Found, touched: u64, asked: &Asked) {
        let node = &found.0;
        let open = node.kind() != Kind::Directory && node.is_open();
        if !open && (asked.since.is_some() || !node.file_system().0.options.unseen.is_zero()) {
            self.remember(last, Some(found.clone()), touched, asked, false);
        }
    }

    /// A file was found by opening it, to read it: what was told of it holds once it is closed.
    pub(super) fn put_opened(&self, last: &Last, found: &Found, asked: &Asked) {
        // One thing was done here since: that it was opened.
        let asked = Asked { changed: asked.changed + 1, since: asked.since.clone() };
        self.remember(last, Some(found.clone()), found.0.touched(), &asked, false);
    }

    /// What came along with a name.
    pub(super) fn put_behind(&self, parent: &Arc<Node>, behind: Vec<Behind>, asked: &Asked) {
        self.ahead.has_come(parent, behind.len());
        for ((node, attributes), name) in behind {
            let last = Last { parent: parent.clone(), name, slash: false };
            let touched = node.touched();
            // What is open here, is known of better.
            if node.kind() == Kind::Directory || !node.is_open() {
                self.remember(&last, Some((node, attributes)), touched, asked, true);
            }
        }
    }

    /// A name was not found.
    pub(super) fn put_missing(&self, last: &Last, asked: &Asked) {
        if asked.since.is_some() {
            self.remember(last, None, 0, asked, false);
        }
    }

    fn remember(&self, last: &Last, found: Option<Found>, touched: u64, asked: &Asked, ahead: bool) {
        let entry = Entry { found, touched, at_ns: seam::monotonic_ns(), since: asked.since.clone(), ahead };
        let mut names = lock(&self.names);
        // Under the lock: who changes something says so first, and forgets it then.
        if last.parent.file_system().changes() != asked.changed {
            return;
        }
        let before = if names.len() < REMEMBERED { None } else { Some(std::mem::take(&mut *names)) };
        let replaced = names.insert(key(last), entry);
        drop(names);
        // Not under the lock: they may be the last to have their nodes.
        drop((before, replaced));
    }

    /// A name does not stand any more for what it stood for.
    pub(super) fn forget(&self, last: &Last) {
        let gone = lock(&self.names).remove(&key(last));
        // What was listed before has it still.
        let mut listing = lock(&self.listing);
        let has = |listing: &Arc<Listing>| listing.dir.node().is(&last.parent);
        let listed = if listing.as_ref().is_some_and(has) { listing.take() } else { None };
        drop(listing);
        drop((gone, listed));
    }

    /// Nothing that was found holds any more.
    pub(super) fn clear(&self) {
        let gone = std::mem::take(&mut *lock(&self.names));
        drop((gone, lock(&self.listing).take()));
    }

    /// Somebody reads a directory, and may want to know more of its entries.
    pub(super) fn reads(&self, dir: &Directory) {
        let listing = Listing { dir: dir.again(), at_ns: seam::monotonic_ns(), asked: Mutex::default() };
        *lock(&self.listing) = Some(Arc::new(listing));
    }

    /// Asks for what a name stands for, and for what comes behind it in a directory that is being read. Whether it is there now.
    pub(super) fn look_ahead(&self, last: &Last) -> Option<Found> {
        let fs = last.parent.file_system();
        // First: whoever changes something says so, and takes the listing away then.
        let changed = fs.changes();
        let listing = lock(&self.listing).clone()?;
        let Listing { dir, at_ns, asked: positions } = &*listing;
        if !dir.node().is(&last.parent) {
            return None;
        }
        // Their names are those of then, whatever is told of them now.
        let asked = Asked { changed, since: dir.listed_since() };
        let still = |since: &Since| fs.holds(since, &[last.parent.names_in_it()]);
        let may_use = || is_fresh(dir.node(), *at_ns) || asked.since.as_ref().is_some_and(still);
        if !may_use() {
            return None;
        }
        let at = dir.position(&last.name)?;
        if lock(positions).contains(&at) {
            return None;
        }
        let entries = dir.entries(at, AHEAD).ok()?;
        lock(positions).extend(at..at + entries.len());
        let before: Vec<u64> = entries.iter().map(|entry| dir.touched(entry)).collect();
        let found = dir.with_attributes(&entries).ok()?;
        // Names and attributes are of one moment.
        if !may_use() {
            return None;
        }
        let mut first = None;
        for ((entry, found), touched) in entries.iter().zip(found).zip(before) {
            let Some(found) = found else { continue };
            let last = Last { parent: dir.node().clone(), name: entry.name.clone(), slash: false };
            self.put(&last, &found, touched, &asked);
            first.get_or_insert((last.name, found));
        }
        let (_, found) = first.filter(|(name, _)| *name == last.name)?;
        // What was fetched by its identity may have another name by now.
        let holds = |since: &Since| still(since) || fs.holds(since, &[found.0.itself()]);
        asked.since.as_ref().is_none_or(holds).then_some(found)
    }
}
