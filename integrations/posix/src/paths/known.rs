//! What was found a moment ago, as the kernel remembers it for a mount: for as long as what others do may stay unseen.
//!
//! What this file system does itself is seen at once: an entry holds until its name is taken away or moved here, what it stands for is changed
//! here, or is open here. A program that lists a directory and then looks at what is in it (`ls -l`, `rsync`, `git status`) gets the attributes
//! of the entries that come next along with those of the first.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use ioverbs::{Uuid, seam};

use super::Last;
use crate::{Attributes, Directory, Found, Kind, Node, fs::lock};

/// Most names that are remembered.
const REMEMBERED: usize = 16 << 10;
/// Entries of a directory of which the attributes are fetched at once.
const AHEAD: usize = 256;

/// A directory and a name in it.
type Key = (Uuid, Box<[u8]>);

/// What a name stood for.
struct Entry {
    node: Arc<Node>,
    attributes: Attributes,
    /// How often that had been changed here.
    touched: u64,
    /// When it was found (monotonic clock).
    at_ns: i64,
}

/// A directory that is being read.
struct Listing {
    dir: Directory,
    at_ns: i64,
}

/// The names of a file system that were found a moment ago.
#[derive(Default)]
pub(super) struct Known {
    names: Mutex<HashMap<Key, Entry>>,
    listing: Mutex<Option<Arc<Listing>>>,
}

fn key(last: &Last) -> Key {
    (last.parent.uuid(), last.name.as_slice().into())
}

fn is_fresh(node: &Node, at_ns: i64) -> bool {
    let span = node.file_system().0.options.unseen.as_nanos();
    u128::try_from(seam::monotonic_ns() - at_ns).is_ok_and(|age| age < span)
}

impl Known {
    /// What a name stands for, as far as that still holds.
    pub(super) fn get(&self, last: &Last) -> Option<Found> {
        let names = lock(&self.names);
        let entry = names.get(&key(last)).filter(|entry| is_fresh(&entry.node, entry.at_ns))?;
        let (node, attributes, touched) = (entry.node.clone(), entry.attributes, entry.touched);
        drop(names);
        if node.kind() == Kind::Directory {
            // Of which this file system is told with each name that it makes or takes away.
            return node.told_lately().map(|attributes| (node, attributes));
        }
        (node.touched() == touched && node.handle().is_none()).then_some((node, attributes))
    }

    /// A name was found, by a request that began when so much had been changed here: what was changed since may not be in its answer.
    pub(super) fn put(&self, last: &Last, (node, attributes): &Found, touched: u64, changed: u64) {
        let open = node.kind() != Kind::Directory && node.handle().is_some();
        if node.file_system().0.options.unseen.is_zero() || open {
            return;
        }
        let entry = Entry { node: node.clone(), attributes: *attributes, touched, at_ns: seam::monotonic_ns() };
        let mut names = lock(&self.names);
        // Under the lock: who changes something says so first, and forgets it then.
        if node.file_system().changes() != changed {
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
        let listing = Listing { dir: dir.again(), at_ns: seam::monotonic_ns() };
        *lock(&self.listing) = Some(Arc::new(listing));
    }

    /// Asks for what a name stands for, and for what comes behind it in a directory that is being read. Whether it is there now.
    pub(super) fn look_ahead(&self, last: &Last) -> Option<Found> {
        let changed = last.parent.file_system().changes();
        let listing = lock(&self.listing).clone()?;
        let Listing { dir, at_ns } = &*listing;
        if !dir.node().is(&last.parent) || !is_fresh(dir.node(), *at_ns) {
            return None;
        }
        let at = dir.position(&last.name)?;
        let entries = dir.entries(at, AHEAD).ok()?;
        let before: Vec<u64> = entries.iter().map(|entry| dir.touched(entry)).collect();
        let found = dir.with_attributes(&entries).ok()?;
        let mut first = None;
        for ((entry, found), touched) in entries.iter().zip(found).zip(before) {
            let Some(found) = found else { continue };
            let last = Last { parent: dir.node().clone(), name: entry.name.clone(), slash: false };
            self.put(&last, &found, touched, changed);
            first.get_or_insert((last.name, found));
        }
        first.filter(|(name, _)| *name == last.name).map(|(_, found)| found)
    }
}
