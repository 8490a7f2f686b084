//! What can be set, with defaults that suit one daemon per user.

use super::way::Way;

/// Settings of a file target.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most descriptors kept open between operations; 0 = 1,024, or a quarter of what the process may have if that is
    /// less. Grants have descriptors of their own, which are closed here as soon as they are passed on.
    pub descriptors: usize,
    /// Most objects whose facts are kept in memory while nobody uses them.
    pub objects: usize,
    /// Most bytes in one stage (B4).
    pub stage_bytes: u64,
    /// How bytes get to files and back. Another way than the usual one needs two descriptors for a file, and leaves nothing to
    /// clients that they could do by themselves.
    pub way: Way,
    /// Keep bytes in shared memory, in segments of so many bytes in all; `None`: in files.
    pub shared: Option<u64>,
    /// How long a live client has to finish a write under way when its grant is taken back, in nanoseconds (G2).
    pub recall_ns: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            descriptors: 0,
            objects: 65_536,
            stage_bytes: 16 << 30,
            way: Way::Cached,
            shared: None,
            recall_ns: 200_000_000,
        }
    }
}

/// Descriptors kept open if nothing is set.
const DESCRIPTORS: usize = 1024;
/// Fewer than this and nearly every operation opens a file.
const LEAST_DESCRIPTORS: usize = 8;

impl Options {
    /// How many descriptors to keep.
    pub(super) fn descriptor_limit(&self) -> usize {
        let each = if self.way == Way::Cached { 1 } else { 2 };
        if self.descriptors > 0 {
            return (self.descriptors / each).max(LEAST_DESCRIPTORS);
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        (usize::try_from(limit / 4).unwrap_or(usize::MAX)).clamp(LEAST_DESCRIPTORS, DESCRIPTORS) / each
    }
}
