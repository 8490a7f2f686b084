//! One tree of tables. Everything that touches the table library is here.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use iov_types::{Error, Result};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, Guard, SequenceNumberCounter, Slice,
    compaction::{Leveled, MoveDown},
    config::{
        BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, HashRatioPolicy,
        PinningPolicy, RestartIntervalPolicy,
    },
};

use super::{
    Family,
    manifest::{CURRENT, Named, restore},
    verify::verify,
};
use crate::{
    files::{Home, TABLES, u64_at},
    log::{full, is_full},
};

/// Bytes of the revision before each value.
const REVISION: usize = 8;
/// Runs that may wait to be merged. More would make reads slow; then the log waits instead.
pub(crate) const MAX_RUNS: usize = 24;
/// Bits of the filters for each key: one in a hundred reads of a table is for nothing.
const FILTER_BITS: f32 = 10.0;
const BLOCK_BYTES: u32 = 4096;
const RESTART_INTERVAL: u8 = 8;
const LEVELS: usize = 7;
/// Tables that have gone of which the names may be remembered.
const MANY: usize = 256;

/// A key and what the tables hold for it.
pub(crate) struct Item {
    key: Slice,
    prefix: usize,
    value: Slice,
}

impl Item {
    /// The key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key[self.prefix..]
    }

    /// The value.
    pub(crate) fn value(&self) -> &[u8] {
        &self.value[REVISION..]
    }

    /// The revision at which it was written.
    pub(crate) fn revision(&self) -> u64 {
        u64_at(&self.value, 0)
    }
}

/// A log-structured merge tree.
pub(crate) struct Tree {
    tree: AnyTree,
    prefix: &'static [u8],
    /// The next state is the one this says; states are numbered.
    visible: SequenceNumberCounter,
    /// How often each state is held.
    pins: Mutex<BTreeMap<u64, usize>>,
    /// Bytes of all tables, as the library tells them only while nobody changes them.
    size: AtomicU64,
    /// Tables that were part of a state: what reads of it may need.
    installed: Mutex<BTreeSet<u64>>,
    /// Tables are there that were merged away, for somebody who read them.
    left: AtomicBool,
    /// Bytes that were free, and deletions that there were, when all tables could not be merged.
    failed: Mutex<Option<(u64, u64)>>,
    /// Taken shared by whoever writes tables, alone by whoever removes what a failed write left.
    writing: RwLock<()>,
    /// The first number of the files that failed writes left, where it could not be seen to that `current` names none of
    /// them: then nothing is written, as that would lose the manifest that it names.
    owed: Mutex<Option<u64>>,
    /// How to call it in an error.
    shown: String,
    folder: PathBuf,
}

impl Tree {
    /// Opens one; with `make`, a new one if there is none.
    pub(crate) fn open(
        home: &Home,
        family: Family,
        cache: Arc<Cache>,
        files: Arc<DescriptorTable>,
        make: bool,
    ) -> Result<Tree> {
        let name = format!("{TABLES}/{}", family.name());
        let (folder, shown) = (home.path(&name), home.shown(&name));
        // The library would take a tree without this file for a new one.
        if !make && !folder.join(CURRENT).is_file() {
            return Err(Error::corrupt(format!("{shown}/current is missing: restore it, or the store from a copy")));
        }
        verify(&folder, &shown)?;
        let (next, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
        let filter = match family.point_reads() {
            true => FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(FILTER_BITS))),
            false => FilterPolicy::disabled(),
        };
        let config = Config::new(&folder, next.clone(), visible.clone())
            .use_cache(cache)
            .use_descriptor_table(Some(files))
            .filter_policy(filter)
            .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
            .data_block_restart_interval_policy(RestartIntervalPolicy::all(RESTART_INTERVAL))
            .data_block_hash_ratio_policy(HashRatioPolicy::all(if family.point_reads() { 1.0 } else { 0.0 }))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
            .index_block_pinning_policy(PinningPolicy::all(true))
            .filter_block_pinning_policy(PinningPolicy::all(true))
            .index_block_partitioning_policy(PinningPolicy::all(false))
            .filter_block_partitioning_policy(PinningPolicy::all(false));
        let tree = guarded(&shown, || config.open())?;
        // New states come after those that tables on the medium are numbered with: else they would be hidden.
        let newest = guarded(&shown, || Ok(tree.get_highest_persisted_seqno().unwrap_or(0)))?;
        next.fetch_max(newest + 1);
        visible.fetch_max(newest + 1);
        let size = AtomicU64::new(tree.disk_space());
        Ok(Tree {
            size,
            installed: Mutex::default(),
            left: AtomicBool::new(false),
            failed: Mutex::default(),
            tree,
            prefix: family.prefix(),
            visible,
            pins: Mutex::default(),
            writing: RwLock::default(),
            owed: Mutex::default(),
            shown,
            folder,
        })
    }

    fn pins(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, usize>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the present state.
    pub(super) fn pin(&self) -> u64 {
        let mut pins = self.pins();
        // Read under the lock, so that no merge takes this state for unheld in between.
        let at = self.visible.get();
        *pins.entry(at).or_insert(0) += 1;
        at
    }

    /// Lets go of a state.
    pub(super) fn unpin(&self, at: u64) {
        let mut pins = self.pins();
        if let Some(n) = pins.get_mut(&at) {
            *n -= 1;
            if *n == 0 {
                pins.remove(&at);
            }
        }
    }

    /// States before this one are held by nobody.
    fn oldest_held(&self) -> u64 {
        let pins = self.pins();
        pins.first_key_value().map_or_else(|| self.visible.get(), |(at, _)| *at).saturating_sub(1)
    }

    /// What a key holds in a state.
    pub(crate) fn get(&self, key: &[u8], at: u64) -> Result<Option<Item>> {
        let key = self.stored(key);
        match guarded(&self.shown, || self.tree.get(&key[..], at))? {
            Some(value) => self.item(Slice::from(self.prefix), value).map(Some),
            None => Ok(None),
        }
    }

    /// A key as it lies in the tree.
    fn stored<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        if self.prefix.is_empty() { Cow::Borrowed(key) } else { Cow::Owned([self.prefix, key].concat()) }
    }

    fn item(&self, key: Slice, value: Slice) -> Result<Item> {
        if value.len() < REVISION {
            return Err(damaged(&self.shown, "a value is too short to have a revision"));
        }
        if !key.starts_with(self.prefix) {
            return Err(damaged(&self.shown, "a key does not begin as all keys there do"));
        }
        Ok(Item { key, prefix: self.prefix.len(), value })
    }

    /// The pairs of a range in a state, in order. The iterator must be driven through [`Tree::next`].
    pub(crate) fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, at: u64) -> Result<Range> {
        let (from, to) = (from.map(|key| self.stored(key)), to.map(|key| self.stored(key)));
        guarded(&self.shown, || {
            let pairs = self.tree.range::<Cow<'_, [u8]>, _>((from, to), at, None);
            Ok(Range(Box::new(pairs.map(Guard::into_inner))))
        })
    }

    /// The next pair of a range.
    pub(crate) fn next(&self, range: &mut Range) -> Result<Option<Item>> {
        match guarded(&self.shown, || range.0.next().transpose())? {
            Some((key, value)) => self.item(key, value).map(Some),
            None => Ok(None),
        }
    }

    /// Puts a run in: keys strictly ascending, each with its newest value (`None`: deleted) and its revision. All of it
    /// is there afterwards and survives power loss, or nothing.
    pub(crate) fn ingest<'a>(&self, run: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>, u64)>) -> Result<()> {
        self.settled()?;
        let first = self.tree.get_next_table_id();
        let done = {
            let _writing = self.writing.read().unwrap_or_else(PoisonError::into_inner);
            guarded(&self.shown, || {
                let mut ingestion = self.tree.ingestion()?;
                let mut buffer = Vec::new();
                for (key, value, revision) in run {
                    let key = &*self.stored(key);
                    match value {
                        Some(value) => {
                            buffer.clear();
                            buffer.extend_from_slice(&revision.to_le_bytes());
                            buffer.extend_from_slice(value);
                            ingestion.write(key, &buffer[..])?;
                        }
                        None => ingestion.write_tombstone(key)?,
                    }
                }
                ingestion.finish()
            })
            .inspect(|_| self.installed())
        };
        done.inspect_err(|_| drop(self.sweep(first)))
    }

    /// Merges some runs into tables of about so many bytes, if there are enough; whether it did.
    pub(crate) fn merge(&self, size: u64) -> Result<bool> {
        let before = self.shape();
        let leveled = Leveled::default().with_table_target_size(size);
        self.rewrite(|| self.tree.compact(Arc::new(leveled), self.oldest_held()))?;
        Ok(self.shape() != before)
    }

    /// Merges all into tables of about so many bytes, without what was deleted.
    pub(crate) fn merge_all(&self, size: u64) -> Result<()> {
        self.rewrite(|| self.tree.major_compact(size, self.oldest_held()))
    }

    /// The library removes the tables of a state that nobody holds any more with some later change. This is one that changes nothing: it moves all tables of a
    /// level that has none. Only by whoever merges: nobody else puts tables anywhere but in front.
    pub(crate) fn pass(&self) -> Result<()> {
        let is_empty = |level: &usize| self.tree.level_table_count(*level).is_none_or(|tables| tables == 0);
        let Some(level) = (1..LEVELS as u8 - 1).find(|level| is_empty(&usize::from(*level))) else { return Ok(()) };
        self.rewrite(|| self.tree.compact(Arc::new(MoveDown(level, level + 1)), self.oldest_held()))
    }

    fn rewrite(&self, merge: impl FnOnce() -> lsm_tree::Result<()>) -> Result<()> {
        self.settled()?;
        let first = self.tree.get_next_table_id();
        let done = {
            let _writing = self.writing.read().unwrap_or_else(PoisonError::into_inner);
            guarded(&self.shown, merge).inspect(|()| self.installed())
        };
        done.inspect_err(|_| drop(self.sweep(first)))
    }

    fn shape(&self) -> [Option<usize>; LEVELS] {
        std::array::from_fn(|level| self.tree.level_table_count(level))
    }

    /// Removes the files that a failed write left: those numbered from `first` on that are part of no state. The library
    /// would keep them until the next start, and a full disk would never get free. None goes before `current` is right.
    pub(super) fn sweep(&self, first: u64) -> Result<()> {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        let again = owed.is_some();
        let first = owed.map_or(first, |before| first.min(before));
        *owed = Some(first);
        // At once, since whoever else writes now would begin with emptying the manifest that failed.
        self.settle(again)?;
        let _alone = self.writing.write().unwrap_or_else(PoisonError::into_inner);
        // Another one may have failed in between.
        self.settle(false)?;
        *owed = None;
        let live = guarded(&self.shown, || {
            Ok(self.tree.current_version().iter_tables().map(lsm_tree::Table::id).collect::<Vec<_>>())
        });
        let installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        let (Ok(live), Ok(files)) = (live, std::fs::read_dir(self.folder.join("tables"))) else { return Ok(()) };
        for file in files.flatten() {
            let id = file.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            if id.is_some_and(|id| id >= first && !live.contains(&id) && !installed.contains(&id)) {
                // What cannot be removed now is removed at the next start.
                let _ = std::fs::remove_file(file.path());
            }
        }
        Ok(())
    }

    /// Tries again what could not be done after a write that failed; nothing may be written before.
    fn settled(&self) -> Result<()> {
        let owed = *self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        owed.map_or(Ok(()), |first| self.sweep(first))
    }

    /// Has `current` name the manifest that the library is at, which a failed write may have replaced. Nobody changes
    /// either meanwhile.
    fn settle(&self, again: bool) -> Result<()> {
        loop {
            // Whoever changes the manifest moves this on before giving back the lock.
            let seen = self.visible.get();
            let version = guarded(&self.shown, || Ok(self.tree.current_version()))?;
            let _alone = guarded(&self.shown, || Ok(self.tree.get_version_history_lock()))?;
            if self.visible.get() != seen {
                continue;
            }
            return guarded(&self.shown, || {
                let table = |table: &lsm_tree::Table| (table.id(), table.checksum().into_u128(), table.global_seqno());
                let mut tables: Vec<Named> = version.iter_tables().map(table).collect();
                tables.sort_unstable();
                Ok(restore(&self.folder, version.id(), &tables, again)?)
            });
        }
    }

    /// Runs that wait to be merged.
    pub(crate) fn runs(&self) -> usize {
        self.tree.l0_run_count()
    }

    /// Tables of the newest state.
    #[cfg(test)]
    pub(super) fn tables(&self) -> usize {
        self.tree.table_count()
    }

    /// Entries of all tables, what says that a key was deleted among them.
    pub(crate) fn items(&self) -> u64 {
        self.tree.approximate_len() as u64
    }

    /// Entries that say that a key was deleted.
    pub(crate) fn deletions(&self) -> u64 {
        self.tree.tombstone_count()
    }

    /// Bytes of all tables as of the last change. Waits for nobody.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// States that are held.
    pub(crate) fn states(&self) -> usize {
        self.pins().len()
    }

    /// Says whether tables had to be left that nobody needs but a reader.
    pub(crate) fn leave(&self, left: bool) {
        self.left.store(left, Ordering::Relaxed);
    }

    /// Notes that merging all has failed with so much room.
    pub(crate) fn failed(&self, free: Option<u64>) {
        let deletions = self.deletions();
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = free.map(|free| (free, deletions));
    }

    /// Whether that is worth another attempt: there is more room, or more was deleted.
    pub(crate) fn may_try(&self, free: Option<u64>) -> bool {
        let failed = *self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some((before, deletions)), Some(free)) = (failed, free) else { return true };
        free > before + before / 4 || self.deletions() > deletions + deletions / 4
    }

    /// Whether some were.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Notes what tables there are now, while nobody can sweep.
    fn installed(&self) {
        let live: BTreeSet<_> = self.tree.current_version().iter_tables().map(lsm_tree::Table::id).collect();
        self.size.store(self.tree.disk_space(), Ordering::Relaxed);
        let mut installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        if installed.len() > 2 * live.len() + MANY {
            let folder = self.folder.join("tables");
            installed.retain(|id| folder.join(id.to_string()).exists());
        }
        installed.extend(live);
    }

    /// Bytes on the medium.
    pub(crate) fn bytes(&self) -> u64 {
        self.tree.disk_space()
    }
}

/// Pairs of a range, read as they are asked for.
pub(crate) struct Range(Box<dyn Iterator<Item = lsm_tree::Result<lsm_tree::KvPair>> + Send>);

/// Calls the library. It checks sums, but some of its code panics over bytes that make no sense: that must not take the
/// process along, nor pass for an answer.
fn guarded<T>(shown: &str, call: impl FnOnce() -> lsm_tree::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(translate(shown, e)),
        Err(_) => Err(damaged(shown, "reading it made no sense")),
    }
}

pub(super) fn damaged(shown: &str, what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("the tables in {shown} are damaged: {what}; restore the store from a copy"))
}

fn translate(shown: &str, e: lsm_tree::Error) -> Error {
    use lsm_tree::Error as E;
    use std::io::ErrorKind as K;
    match e {
        E::Io(e) if is_full(&e) => full(shown, e),
        // A table that ends too early, is not there, or whose offsets lead out of it.
        E::Io(e) if matches!(e.kind(), K::UnexpectedEof | K::NotFound | K::InvalidInput | K::InvalidData) => {
            damaged(shown, e)
        }
        E::Io(e) => Error::from(e).context(shown),
        E::InvalidVersion(version) => {
            Error::version(format!("the tables in {shown} have format {version}, which this release does not know"))
        }
        other => damaged(shown, format_args!("{other:?}")),
    }
}
