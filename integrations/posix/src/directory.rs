//! Directory streams: what was there when the stream began, however the directory changes meanwhile.

use std::sync::{Arc, Mutex, atomic::Ordering};

use ioverbs::{
    Cursor, EntryKind, Kind as Failure, Op, Result, Uuid, Value,
    catalog::{Entry, SearchSpec},
    seam,
};

use crate::{
    Attributes, Errno, FileSystem, Kind, Node, Outcome,
    fs::{lock, stat_of},
    remembered::Since,
};

/// Entries that are fetched at once.
const PAGE: usize = 1024;

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it stands for.
    pub uuid: Uuid,
    /// What kind of file that is.
    pub kind: Kind,
}

/// What an entry stands for.
pub type Found = (Arc<Node>, Attributes);

/// An open directory. Its entries have positions from 0 on; `.` and `..` are not among them. May be used by many threads.
pub struct Directory {
    node: Arc<Node>,
    listed: Mutex<Option<Listed>>,
}

/// The entries of a moment.
#[derive(Clone)]
struct Listed {
    entries: Arc<[DirEntry]>,
    /// Before which they were asked for, if it is known until when that holds; …
    since: Option<Since>,
    /// … when (monotonic clock), and how often names had been taken away or moved here by then.
    at_ns: i64,
    names: u64,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "open {:?}", self.node)
    }
}

impl Directory {
    /// Opens a directory; its entries are those of the moment when the first is asked for.
    pub fn open(node: &Arc<Node>) -> Outcome<Directory> {
        if node.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        Ok(Directory { node: node.clone(), listed: Mutex::default() })
    }

    /// What it is open on.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The same stream once more: its entries are those of this one, if they have been asked for.
    pub(crate) fn again(&self) -> Directory {
        Directory { node: self.node.clone(), listed: Mutex::new(lock(&self.listed).clone()) }
    }

    /// Where an entry of this name is.
    pub(crate) fn position(&self, name: &[u8]) -> Option<usize> {
        lock(&self.listed).as_ref()?.entries.iter().position(|entry| entry.name == name)
    }

    /// Before when its entries were asked for, if it is known until when they hold.
    pub(crate) fn listed_since(&self) -> Option<Since> {
        lock(&self.listed).as_ref()?.since.clone()
    }

    /// How often what an entry stands for was changed here.
    pub(crate) fn touched(&self, entry: &DirEntry) -> u64 {
        self.node.file_system().node(entry.uuid, entry.kind).touched()
    }

    /// From now on its entries are those of this moment (`rewinddir`).
    pub fn rewind(&self) {
        *lock(&self.listed) = None;
    }

    /// The entry at a position; `None` behind the last one.
    pub fn entry(&self, at: usize) -> Outcome<Option<DirEntry>> {
        Ok(self.entries(at, 1)?.pop())
    }

    /// Up to so many entries from a position on; none behind the last one.
    pub fn entries(&self, at: usize, max: usize) -> Outcome<Vec<DirEntry>> {
        let all = match &mut *lock(&self.listed) {
            Some(listed) => listed.entries.clone(),
            none => none.insert(self.list()?).entries.clone(),
        };
        let end = at.saturating_add(max).min(all.len());
        Ok(all.get(at..end).unwrap_or_default().to_vec())
    }

    /// All of them, of one moment: positions stay, and no search waits for a program that takes its time.
    fn list(&self) -> Outcome<Listed> {
        let fs = self.node.file_system();
        let (since, at_ns, names) = (fs.since(), seam::monotonic_ns(), fs.0.names.load(Ordering::Acquire));
        let keys = vec!["iov.mode".to_owned()];
        let spec = SearchSpec { group: Some(self.node.uuid()), keys, names: true, ..everything() };
        let found = match fs.search("readdir", &spec) {
            // It was removed: nothing is in it any more.
            Err(Errno::ENOENT) if !self.node.uuid().is_nil() => Vec::new(),
            found => found?,
        };
        Ok(Listed { entries: found.into_iter().filter_map(entry_of).collect(), since, at_ns, names })
    }

    /// Whether its names still stand for what they did when they were listed, as far as what others do may not stay unseen.
    fn names_hold(&self) -> bool {
        let listed = lock(&self.listed).as_ref().map(|listed| (listed.since.clone(), listed.at_ns, listed.names));
        let fs = self.node.file_system();
        match listed {
            None => false,
            Some((Some(since), ..)) => fs.holds(&since, &[self.node.names_in_it()]),
            Some((None, at_ns, names)) => {
                let age = u128::try_from(seam::monotonic_ns() - at_ns).unwrap_or(u128::MAX);
                age < fs.0.options.unseen.as_nanos() && fs.0.names.load(Ordering::Acquire) == names
            }
        }
    }

    /// What the names of entries stand for now, with attributes. Those that have gone, or are there no more under their names, have none.
    pub fn found(&self, entries: &[DirEntry]) -> Outcome<Vec<Option<Found>>> {
        if self.names_hold() {
            let found = self.with_attributes(entries)?;
            // Behind that: they have held all the while.
            if self.names_hold() && found.iter().all(Option::is_some) {
                return Ok(found);
            }
        }
        self.node.file_system().lookup_all(&self.node, entries.iter().map(|entry| &entry.name[..]))
    }

    /// Entries with their nodes and attributes, in one request. What has gone meanwhile has none.
    pub(crate) fn with_attributes(&self, entries: &[DirEntry]) -> Outcome<Vec<Option<Found>>> {
        let fs = self.node.file_system();
        let nodes: Vec<Arc<Node>> = entries.iter().map(|entry| fs.node(entry.uuid, entry.kind)).collect();
        let handles: Vec<_> = nodes.iter().map(|node| node.handle()).collect();
        handles.iter().flatten().for_each(|handle| handle.settle_for_others());
        let statuses = fs.again("readdir", || {
            let ops = nodes.iter().zip(&handles).map(|(node, handle)| node.stat_op(handle.as_deref()).into());
            let statuses = fs.try_all(ops.collect())?;
            // An entry that cannot be looked at is not one that is gone.
            let mut failed = statuses.iter().filter_map(|status| status.result().err());
            match failed.find(|e| e.kind() != Failure::NotFound) {
                Some(e) => Err(e),
                None => Ok(statuses),
            }
        })?;
        let all = nodes.into_iter().zip(&handles).zip(&statuses).zip(entries);
        let found = all.map(|(((node, handle), status), entry)| {
            if status.result().is_err() {
                return Ok(None);
            }
            let stuck = handle.as_ref().and_then(|handle| handle.stuck_attributes());
            let attributes = stuck.map_or_else(|| fs.attributes(stat_of(Some(status))?), Ok)?;
            node.tell(&attributes);
            // What is known of where it is, is known of later than the listing.
            if node.parent().is_none() {
                fs.placed(&node, &self.node, &entry.name);
            }
            Ok(Some((node, attributes)))
        });
        found.collect()
    }
}

/// A search for all there is.
pub(crate) fn everything() -> SearchSpec {
    SearchSpec { page: PAGE, ..SearchSpec::default() }
}

impl FileSystem {
    /// All that a search finds, of one moment.
    pub(crate) fn search(&self, verb: &str, spec: &SearchSpec) -> Outcome<Vec<Entry>> {
        self.again(verb, || match self.searched(spec) {
            // A daemon that was started meanwhile does not know how far it had come.
            Err(e) if e.kind() == Failure::Stale => self.searched(spec),
            done => done,
        })
    }

    fn searched(&self, spec: &SearchSpec) -> Result<Vec<Entry>> {
        let (out, spec) = (Cursor::pending(self.session()), spec.clone());
        let search = Op::Search { w: self.workspace().clone(), group: None, spec, out: out.clone() };
        ioverbs::run(self.session(), search)?;
        let mut all = Vec::new();
        loop {
            let page = out.next(PAGE, -1)?;
            if page.is_empty() {
                out.close();
                return Ok(all);
            }
            all.extend(page);
        }
    }
}

/// A result of the search as an entry. What a path cannot name is not shown.
fn entry_of(found: Entry) -> Option<DirEntry> {
    let name = found.name?.as_bytes().to_vec();
    if matches!(&name[..], b"." | b"..") {
        return None;
    }
    let mode = found.metadata.iter().flatten().find(|(key, _)| key == "iov.mode");
    let mode = match mode {
        Some((_, Value::I64(mode))) => *mode as u32,
        _ => 0,
    };
    let kind = if found.kind == EntryKind::Group { Kind::Directory } else { Kind::of(found.kind, mode) };
    Some(DirEntry { name, uuid: found.uuid, kind })
}
