//! What the kernel knows: each file that it has looked up, until it forgets it.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use iov_posix::{Alone, Attributes, Node, Tag};
use ioverbs::seam;

use crate::shown::{Dropped, Shown};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By which a cached page is told from one that is not good any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) version: u64,
}

impl Content {
    pub(crate) fn of(a: &Attributes) -> Content {
        Content { size: a.size, mtime_ns: a.mtime_ns, version: a.version }
    }
}

/// What a number stands for.
#[derive(Clone)]
pub(crate) enum Known {
    /// Something with an identity.
    Node(Arc<Node>),
    /// A part of the view of metadata.
    Tag(Arc<Tag>),
}

impl Known {
    fn is(&self, other: &Known) -> bool {
        match (self, other) {
            (Known::Node(one), Known::Node(other)) => one.uuid() == other.uuid(),
            (Known::Tag(one), Known::Tag(other)) => one == other,
            _ => false,
        }
    }

    /// The number that it gets if no other has it.
    fn number(&self) -> u64 {
        match self {
            Known::Node(node) => node.ino(),
            Known::Tag(tag) => number_of(tag),
        }
    }
}

/// The number of a part of the view.
pub(crate) fn number_of(tag: &Tag) -> u64 {
    let number = BuildHasherDefault::<DefaultHasher>::default().hash_one(tag);
    (number & (u64::MAX >> 1)).max(2)
}

struct Inode {
    known: Known,
    /// How often the kernel was told of it, less how often it has forgotten.
    lookups: u64,
    /// Which length the kernel takes it to have, as far as is known.
    size: Option<u64>,
    /// What its cached pages are of.
    cached: Option<Content>,
    /// The same while somebody has it open who may have pages of it.
    shown: Option<Shown>,
}

#[derive(Default)]
struct Table {
    all: HashMap<u64, Inode>,
    /// Those of them that are shown.
    shown: HashSet<u64>,
}

impl Table {
    fn shown(&mut self, ino: u64) -> Option<&mut Shown> {
        self.all.get_mut(&ino)?.shown.as_mut()
    }
}

/// The files that the kernel knows, by number.
#[derive(Default)]
pub(crate) struct Inodes(Mutex<Table>);

/// By the clock of the wall, and the monotonic one.
fn now() -> (i64, i64) {
    (seam::now_ns(), seam::monotonic_ns())
}

impl Inodes {
    /// What a number stands for.
    pub(crate) fn get(&self, ino: u64) -> Option<Known> {
        lock(&self.0).all.get(&ino).map(|inode| inode.known.clone())
    }

    /// The kernel is told of a file: the number to tell.
    pub(crate) fn tell(&self, node: &Arc<Node>) -> u64 {
        self.tell_of(Known::Node(node.clone()))
    }

    /// The kernel is told of something: the number to tell. Two with one number get different ones.
    pub(crate) fn tell_of(&self, known: Known) -> u64 {
        let inodes = &mut lock(&self.0).all;
        let mut ino = known.number();
        while let Some(inode) = inodes.get_mut(&ino) {
            if inode.known.is(&known) {
                inode.lookups += 1;
                return ino;
            }
            ino = ino.wrapping_add(1).max(2);
        }
        inodes.insert(ino, Inode { known, lookups: 1, size: None, cached: None, shown: None });
        ino
    }

    /// The kernel has forgotten it so often.
    pub(crate) fn forget(&self, ino: u64, times: u64) {
        let gone = {
            let inodes = &mut lock(&self.0).all;
            let Some(inode) = inodes.get_mut(&ino) else { return };
            inode.lookups = inode.lookups.saturating_sub(times);
            // Who has it open may close it behind that.
            if inode.lookups == 0 && inode.shown.is_none() { inodes.remove(&ino) } else { None }
        };
        // Not under the lock: its last handle may close with it.
        drop(gone);
    }

    /// Whether the pages that are cached of it are of this content, or of any where nobody else can have changed anything of it.
    pub(crate) fn keeps_pages(&self, ino: u64, content: Content) -> bool {
        lock(&self.0).all.get(&ino).is_some_and(|inode| inode.cached == Some(content)) || self.is_alone(ino)
    }

    /// All others have been dropped: now they are.
    pub(crate) fn are_of(&self, ino: u64, content: Content) {
        if let Some(inode) = lock(&self.0).all.get_mut(&ino) {
            inode.cached = Some(content);
        }
    }

    /// Whether nobody but this mount can have changed the bytes that the kernel has of it.
    pub(crate) fn is_alone(&self, ino: u64) -> bool {
        let known = {
            let inodes = lock(&self.0);
            let Some(Inode { known: Known::Node(node), shown: Some(shown), .. }) = inodes.all.get(&ino) else {
                return false;
            };
            shown.alone().map(|alone| (node.clone(), alone.clone()))
        };
        // Not under the lock: the session may have to look after its daemon.
        known.is_some_and(|(node, alone)| node.is_alone(&alone))
    }

    /// All that the kernel has of it from now on is of then or later.
    pub(crate) fn is_since(&self, ino: u64, alone: Option<Alone>) {
        if let Some(shown) = lock(&self.0).shown(ino) {
            shown.is_since(alone);
        }
    }

    /// The same of what was just made, unless somebody else has opened it since, and may have pages of before.
    pub(crate) fn is_new(&self, ino: u64, alone: Alone) {
        if let Some(shown) = lock(&self.0).shown(ino).filter(|shown| shown.readers == 1) {
            shown.is_since(Some(alone));
        }
    }

    /// Whether somebody has it open who may have pages of it, beside who opens it now if that is one of those (`shown`).
    pub(crate) fn is_open(&self, ino: u64, shown: bool) -> bool {
        lock(&self.0).shown(ino).is_some_and(|known| known.readers > shown.into())
    }

    /// Its bytes were changed here: what is cached is as new as can be, but nobody knows what that is.
    pub(crate) fn changed(&self, ino: u64) {
        if let Some(inode) = lock(&self.0).all.get_mut(&ino) {
            inode.cached = None;
            if let Some(shown) = &mut inode.shown {
                shown.is_since(None);
            }
        }
    }

    /// The same, from now on until [`Inodes::has_changed`]; up to `end`, as far as that is known. Whether it is noted for pages of it, and whether those are to be
    /// dropped again.
    pub(crate) fn changes(&self, ino: u64, end: u64) -> (bool, bool) {
        let mut inodes = lock(&self.0);
        let Some(inode) = inodes.all.get_mut(&ino) else { return (false, false) };
        inode.cached = None;
        inode.size = inode.size.map(|size| size.max(end));
        let Some(shown) = &mut inode.shown else { return (false, false) };
        (true, shown.begins(end, now()))
    }

    /// What is written to it now was written by a mapping.
    pub(crate) fn is_mapped(&self, ino: u64) {
        if let Some(shown) = lock(&self.0).shown(ino) {
            shown.is_mapped();
        }
    }

    /// That has ended, which was noted or not.
    pub(crate) fn has_changed(&self, ino: u64, noted: bool) {
        if let Some(shown) = lock(&self.0).shown(ino) {
            shown.ends(noted, now());
        }
    }

    /// Somebody opens it, and may have pages of it.
    pub(crate) fn is_shown(&self, ino: u64, content: Content) {
        let mut inodes = lock(&self.0);
        let Table { all, shown } = &mut *inodes;
        if let Some(inode) = all.get_mut(&ino) {
            inode.shown.get_or_insert_with(|| Shown::new(content, seam::monotonic_ns())).readers += 1;
            shown.insert(ino);
        }
    }

    /// One of those has closed it.
    pub(crate) fn is_hidden(&self, ino: u64) {
        let gone = {
            let mut inodes = lock(&self.0);
            let Some(known) = inodes.shown(ino) else { return };
            known.readers -= 1;
            if known.readers > 0 {
                return;
            }
            let Table { all, shown } = &mut *inodes;
            shown.remove(&ino);
            let Some(inode) = all.get_mut(&ino) else { return };
            if inode.shown.take().is_some_and(|shown| shown.is_unsure()) {
                inode.cached = None;
            }
            if inode.lookups == 0 { all.remove(&ino) } else { None }
        };
        drop(gone);
    }

    /// Nobody has anything any more.
    pub(crate) fn hide_all(&self) {
        let mut inodes = lock(&self.0);
        let Table { all, shown } = &mut *inodes;
        for ino in shown.drain() {
            if let Some(inode) = all.get_mut(&ino) {
                inode.shown = None;
            }
        }
    }

    /// Whether anything is open so.
    pub(crate) fn any_shown(&self) -> bool {
        !lock(&self.0).shown.is_empty()
    }

    /// Whether this is.
    pub(crate) fn has_shown(&self, ino: u64) -> bool {
        lock(&self.0).shown.contains(&ino)
    }

    /// A program has set its length or the time of its last change, which is this.
    pub(crate) fn was_set(&self, ino: u64, content: Content) {
        let mut inodes = lock(&self.0);
        let Some(inode) = inodes.all.get_mut(&ino) else { return };
        inode.size = Some(content.size);
        if let Some(shown) = &mut inode.shown {
            shown.was_set(content, seam::monotonic_ns());
        }
    }

    /// The kernel hears of this content, which was asked for then (monotonic clock). Whether it says that others have changed the bytes of which it has pages; `None`:
    /// it has none of what is open.
    pub(crate) fn hears(&self, ino: u64, content: Content, asked_ns: i64) -> Option<bool> {
        let mut inodes = lock(&self.0);
        let inode = inodes.all.get_mut(&ino)?;
        inode.size = Some(content.size);
        inode.shown.as_ref().map(|shown| shown.is_others(content, asked_ns, seam::now_ns()))
    }

    /// Whether the kernel may take it to have another length.
    pub(crate) fn has_another_size(&self, ino: u64, size: u64) -> bool {
        lock(&self.0).all.get(&ino).is_some_and(|inode| inode.size != Some(size))
    }

    /// The kernel is told of it.
    pub(crate) fn told(&self, ino: u64, content: Content, asked_ns: i64) {
        if let Some(shown) = lock(&self.0).shown(ino) {
            shown.told(content, asked_ns);
        }
    }

    /// The kernel drops its pages, since then (monotonic clock). `true`: it is to do so again before long.
    pub(crate) fn was_dropped(&self, ino: u64, why: Dropped, began_ns: i64) -> bool {
        lock(&self.0).shown(ino).is_some_and(|shown| shown.was_dropped(why, began_ns, seam::monotonic_ns()))
    }

    /// Those of which pages are to be dropped again, now; and whether others wait for that.
    pub(crate) fn to_drop_again(&self) -> (Vec<u64>, bool) {
        let mut inodes = lock(&self.0);
        let Table { all, shown } = &mut *inodes;
        let (mut now, mut waits) = (Vec::new(), false);
        let now_ns = seam::monotonic_ns();
        for ino in shown.iter() {
            let Some(shown) = all.get_mut(ino).and_then(|inode| inode.shown.as_mut()) else { continue };
            now.extend(shown.drops_again(now_ns).then_some(*ino));
            waits |= shown.waits();
        }
        (now, waits)
    }

    /// Some of its pages were dropped just now.
    pub(crate) fn were_dropped(&self, ino: u64) {
        if let Some(shown) = lock(&self.0).shown(ino) {
            shown.were_dropped(seam::monotonic_ns());
        }
    }

    /// Whether pages of it are to be dropped for what others may have done unseen, unless nobody else can have, or for what was dropped while it was written here, if nothing
    /// was written here for so long.
    pub(crate) fn is_in_doubt(&self, ino: u64, is_alone: bool, quiet: Duration) -> bool {
        let since_ns = seam::monotonic_ns().saturating_sub(quiet.as_nanos() as i64);
        lock(&self.0).shown(ino).is_some_and(|shown| shown.is_in_doubt(since_ns, is_alone))
    }

    /// Some of those that are open, at most so many, which were looked at last before this time (monotonic clock), the longest ago first; they count as looked at
    /// now.
    pub(crate) fn to_look_at(&self, most: usize, before_ns: i64) -> Vec<(u64, Arc<Node>)> {
        let mut inodes = lock(&self.0);
        let Table { all, shown } = &mut *inodes;
        let looked = |ino: &u64| all.get(ino)?.shown.as_ref().map(|shown| (shown.looked_ns, *ino));
        let mut due: Vec<(i64, u64)> = shown.iter().filter_map(looked).filter(|due| due.0 <= before_ns).collect();
        due.sort_unstable();
        due.truncate(most);
        let now_ns = seam::monotonic_ns();
        let mut nodes = Vec::new();
        for (_, ino) in due {
            let Some(Inode { known: Known::Node(node), shown: Some(shown), .. }) = all.get_mut(&ino) else { continue };
            shown.looked_ns = now_ns;
            nodes.push((ino, node.clone()));
        }
        nodes
    }
}
