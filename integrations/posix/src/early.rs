//! Bytes of small files that are known: they came along as the file was opened, or with a look at names of its directory. They are read
//! without a question, and the file is opened without one, as long as the catalog has not said that it has
//! changed (C3: an open sees what was published before). Where nobody says so, as on another host, there are none.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

use ioverbs::{Uuid, catalog::Told};

use crate::{Attributes, File, FileSystem, Flags, Level, Node, fs::lock, remembered::Since};

/// Most bytes of a file that come along. What lies in the records of the catalog is smaller.
pub(crate) const MOST: u64 = 64 << 10;
/// Most bytes that are kept of all files, and what else each takes, roughly.
const KEPT: usize = 32 << 20;
const EACH: usize = 512;

/// All bytes of a file, and its attributes, as of one moment.
pub(crate) struct Early {
    pub(crate) bytes: Vec<u8>,
    pub(crate) attributes: Attributes,
    /// It could be written, too.
    pub(crate) writable: bool,
    /// Before which they were asked for.
    since: Since,
}

/// How many are to come along with an open.
pub(crate) fn wanted(flags: Flags) -> u64 {
    if flags.blind || flags.truncate { 0 } else { MOST }
}

impl Early {
    /// So many from an offset on.
    pub(crate) fn copy(&self, offset: u64, out: &mut [u8]) -> usize {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let rest = &self.bytes[from..];
        let n = rest.len().min(out.len());
        out[..n].copy_from_slice(&rest[..n]);
        n
    }

    /// Whether that is what is there.
    pub(crate) fn holds(&self, node: &Node) -> bool {
        node.file_system().holds(&self.since, &[node.itself()])
    }
}

/// The files of which bytes are kept, those that came first in front.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Files>);

#[derive(Default)]
struct Files {
    all: HashMap<Uuid, (u64, Arc<Early>)>,
    /// In the order in which they came; one that came again since stands behind as well.
    order: VecDeque<(u64, Uuid)>,
    next: u64,
    taken: usize,
}

impl Files {
    fn remove(&mut self, uuid: Uuid) -> Option<Arc<Early>> {
        let (_, gone) = self.all.remove(&uuid)?;
        self.taken -= gone.bytes.len() + EACH;
        Some(gone)
    }
}

impl FileSystem {
    /// Bytes that an open has told, if they may be used at all.
    pub(crate) fn early(
        &self,
        told: &mut Told,
        attributes: &Attributes,
        (flags, writable): (Flags, bool),
        since: Option<Since>,
    ) -> Option<Arc<Early>> {
        let bytes = told.bytes.take().filter(|_| wanted(flags) > 0)?;
        let early = Arc::new(Early { bytes, attributes: *attributes, writable, since: since? });
        if told.may_keep {
            self.keep(early.clone());
        }
        Some(early)
    }

    /// Bytes that came with a look.
    pub(crate) fn keep_bytes(&self, bytes: Vec<u8>, attributes: &Attributes, writable: bool, since: Option<Since>) {
        if let Some(since) = since {
            self.keep(Arc::new(Early { bytes, attributes: *attributes, writable, since }));
        }
    }

    fn keep(&self, early: Arc<Early>) {
        // Who is sequential with all others opens a file so that they see it.
        if self.level() != Level::Session {
            return;
        }
        let uuid = early.attributes.uuid;
        let mut gone = Vec::new();
        let mut kept = lock(&self.0.kept.0);
        gone.extend(kept.remove(uuid));
        kept.taken += early.bytes.len() + EACH;
        let number = kept.next;
        kept.next += 1;
        kept.all.insert(uuid, (number, early));
        kept.order.push_back((number, uuid));
        while kept.taken > KEPT || kept.order.len() > KEPT / EACH {
            let Some((number, first)) = kept.order.pop_front() else { break };
            if kept.all.get(&first).is_some_and(|(of, _)| *of == number) {
                gone.extend(kept.remove(first));
            }
        }
        drop(kept);
        // Not under the lock.
        drop(gone);
    }

    /// What is known of the bytes of a file, if that is what is there.
    pub(crate) fn kept(&self, node: &Node) -> Option<Arc<Early>> {
        let early = lock(&self.0.kept.0).all.get(&node.uuid()).map(|(_, early)| early.clone())?;
        if early.holds(node) {
            return Some(early);
        }
        drop(lock(&self.0.kept.0).remove(node.uuid()));
        None
    }
}

impl Node {
    /// Whether its bytes may come along with a look, and are not known.
    pub(crate) fn may_come_along(&self, attributes: &Attributes) -> bool {
        attributes.size <= MOST && !self.is_open() && self.file_system().kept(self).is_none()
    }
}

impl File {
    /// Reads what came along, as nobody has written here since.
    pub(crate) fn read_early(&self, offset: u64, out: &mut [u8]) -> Option<usize> {
        let early = self.early.as_ref().filter(|early| !self.is_written() && early.holds(self.node()))?;
        Some(early.copy(offset, out))
    }
}
