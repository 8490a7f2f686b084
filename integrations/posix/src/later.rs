//! Files that are opened later, if at all: who opens a small file of which the bytes are known ([`crate::early`]) needs no handle of
//! the store to read it, and most close it again before they would. It gets one with the first thing that needs it: when somebody here writes
//! the file, cuts it, locks it, takes names away, or starts a child, or when what is known of it does not hold any more. If it has gone by then
//! because somebody elsewhere has deleted it, what was known stays what is read (O10).

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use ioverbs::{Collection, Op, Uuid, seam, within};

use crate::{Attributes, Create, Errno, FileSystem, Node, Outcome, Who, early::Early, fs::lock, handle::Handle};

/// Where the handle of an open file stands.
pub(crate) struct Slot {
    pub(crate) handle: OnceLock<Arc<Handle>>,
    /// Of one that is opened later.
    of: Option<(FileSystem, Uuid)>,
}

impl Slot {
    pub(crate) fn of(handle: Arc<Handle>) -> Arc<Slot> {
        Arc::new(Slot { handle: OnceLock::from(handle), of: None })
    }

    /// The handle, if there is one, of who closes it.
    pub(crate) fn into_handle(slot: Arc<Slot>) -> Option<Arc<Handle>> {
        match Arc::try_unwrap(slot) {
            Ok(mut slot) => slot.handle.take(),
            // Somebody gives it one just now.
            Err(slot) => slot.handle.get().cloned(),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some((fs, uuid)) = &self.of {
            fs.0.later.forget(*uuid);
        }
    }
}

/// Somebody takes names away, as long as this is there.
pub(crate) struct Going<'a>(&'a AtomicUsize);

impl Drop for Going<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Later {
    slot: Weak<Slot>,
    node: Weak<Node>,
    early: Weak<Early>,
}

/// The files of a file system that are opened later.
#[derive(Default)]
pub(crate) struct Laters {
    /// So many entries there are, so that nobody need look where there are none.
    count: AtomicUsize,
    /// So many are taking names away.
    going: AtomicUsize,
    all: Mutex<HashMap<Uuid, Vec<Later>>>,
}

impl Laters {
    /// One of these has gone.
    fn forget(&self, uuid: Uuid) {
        let mut all = lock(&self.all);
        let Some(laters) = all.get_mut(&uuid) else { return };
        let before = laters.len();
        laters.retain(|later| later.slot.strong_count() > 0);
        self.count.fetch_sub(before - laters.len(), Ordering::AcqRel);
        if laters.is_empty() {
            all.remove(&uuid);
        }
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Somebody has opened this file: who was to open it later has it open by that, too.
    pub(crate) fn give(&self, uuid: Uuid, handle: &Arc<Handle>) {
        if self.is_empty() {
            return;
        }
        let laters = {
            let mut all = lock(&self.all);
            let laters = all.remove(&uuid).unwrap_or_default();
            self.count.fetch_sub(laters.len(), Ordering::AcqRel);
            laters
        };
        // Not under the lock: it may be the last to have one.
        for slot in laters.iter().filter_map(|later| later.slot.upgrade()) {
            let _ = slot.handle.set(handle.clone());
        }
    }

    /// What is known of one of these.
    pub(crate) fn early(&self, uuid: Uuid) -> Option<Arc<Early>> {
        if self.is_empty() {
            return None;
        }
        lock(&self.all).get(&uuid)?.iter().find_map(|later| later.early.upgrade())
    }

    /// The same of one that has gone from the store.
    pub(crate) fn attributes(&self, uuid: Uuid) -> Option<Attributes> {
        self.early(uuid).map(|early| Attributes { links: 0, ..early.attributes })
    }

    /// Whether names are being taken away, so that nothing can be opened later.
    pub(crate) fn may_go(&self) -> bool {
        self.going.load(Ordering::SeqCst) > 0
    }
}

impl Node {
    /// Whether the store has it no more.
    pub(crate) fn is_gone(&self) -> bool {
        let look = &mut |c: &Collection| vec![Op::Stat { c: c.clone() }];
        let looked = self.file_system().again("stat", || self.try_with_handle(look));
        looked.is_err_and(|e| e == Errno::ENOENT)
    }

    /// The same where somebody elsewhere may have deleted it: who has it open then, and was to open it later, goes on with what was known of it.
    pub(crate) fn join_or_go_on(&self) -> Outcome<Arc<Handle>> {
        match self.join() {
            Err(e @ Errno::ENOENT) => {
                self.file_system().0.later.early(self.uuid()).map_or(Err(e), |early| self.goes_on(&early))
            }
            joined => joined,
        }
    }

    /// A handle for who has it open, was to open it later, and is about to change what somebody elsewhere has deleted since: it goes on without
    /// a name, and ends with the last who has it open.
    pub(crate) fn goes_on(&self, early: &Early) -> Outcome<Arc<Handle>> {
        let fs = self.file_system();
        let (root, Attributes { mode, uid, gid, .. }) = (fs.root(), early.attributes);
        let handle = Handle::new(fs, fs.make_unnamed(&root, Create { mode, umask: 0, who: Who { uid, gid } })?);
        handle.temporary.store(true, Ordering::Relaxed);
        fs.again("write", || ioverbs::write_at(&handle.c, 0, &early.bytes))?;
        Ok(self.share(handle))
    }
}

impl FileSystem {
    /// A place for the handle of a file that is opened later.
    pub(crate) fn later(&self, node: &Arc<Node>, early: &Arc<Early>) -> Arc<Slot> {
        let uuid = node.uuid();
        let slot = Arc::new(Slot { handle: OnceLock::new(), of: Some((self.clone(), uuid)) });
        let later = Later { slot: Arc::downgrade(&slot), node: Arc::downgrade(node), early: Arc::downgrade(early) };
        let mut all = lock(&self.0.later.all);
        all.entry(uuid).or_default().push(later);
        self.0.later.count.fetch_add(1, Ordering::AcqRel);
        slot
    }

    /// All files that were to be opened later are opened now, and until what is returned is dropped none will be: names are taken away,
    /// after which they could not be opened.
    pub(crate) fn names_go(&self) -> Going<'_> {
        // Whoever is about to open one later sees this, or is seen.
        self.0.later.going.fetch_add(1, Ordering::SeqCst);
        let going = Going(&self.0.later.going);
        self.open_all();
        going
    }

    fn open_all(&self) {
        if self.0.later.is_empty() {
            return;
        }
        let nodes: Vec<Arc<Node>> = {
            let all = lock(&self.0.later.all);
            all.values().flatten().filter_map(|later| later.node.upgrade()).collect()
        };
        // A store that does not answer is waited for once, and not for each.
        let until_ns = seam::monotonic_ns().saturating_add(self.session().deadline_ns());
        for node in nodes.into_iter().take_while(|_| seam::monotonic_ns() < until_ns) {
            // It gives itself to those. What is gone already stays what was known of it.
            if let Ok(handle) = within(until_ns - seam::monotonic_ns(), || node.join()) {
                self.0.later.give(node.uuid(), &handle);
            }
        }
    }
}
