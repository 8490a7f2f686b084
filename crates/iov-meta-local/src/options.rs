//! What can be set, and what can be counted.

/// How much memory the engine may use.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of commits that one buffer gathers before it is moved into tables. Up to three such buffers are in memory.
    /// On a small file system, and where space is scarce, it gathers less.
    /// Larger ones mean larger and fewer tables, more memory, and more log to read at the next start.
    pub write_buffer: usize,
    /// Bytes of the cache of single values, with its own overhead.
    pub record_cache: usize,
    /// Bytes of the cache of table blocks.
    pub table_cache: usize,
    /// Whether there is to be room for many deletes where the medium is full: some MiB of it are kept then, at most an eighth.
    pub many_deletes: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { write_buffer: 32 << 20, record_cache: 64 << 20, table_cache: 32 << 20, many_deletes: true }
    }
}

/// The share of a file system that one buffer takes at most, as each takes its space twice while it is moved into tables, and what one has on the smallest.
const SHARE: u64 = 64;
const LEAST: u64 = 512 << 10;

impl Options {
    /// The same on a file system of that size.
    pub(crate) fn on(self, total: Option<u64>) -> Options {
        let most = total.map_or(usize::MAX, |total| usize::try_from((total / SHARE).max(LEAST)).unwrap_or(usize::MAX));
        Options { write_buffer: self.write_buffer.min(most), ..self }
    }
}

/// What the engine has done since it was opened, and what it holds now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Writes to the log that carried commits: one for each call of `commit` that applied something.
    pub log_writes: u64,
    /// Syncs of the log, those of the background thread included.
    pub log_syncs: u64,
    /// Buffers moved into tables.
    pub applied: u64,
    /// Bytes in the cache of values now.
    pub cached: u64,
    /// Bytes of buffers that are in tables, and in memory only because views made before that are still there.
    pub held: u64,
    /// Values found in that cache.
    pub cache_hits: u64,
    /// Values that had to come from tables.
    pub table_reads: u64,
}
