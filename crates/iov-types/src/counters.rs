//! What a session has cost so far: the evidence behind every later claim of speed.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counters of one session; each only grows, but for `cache_bytes`, `in_flight` and `connections`.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64),* }

        impl Counters {
            /// Names, in the order of [`Counters::snapshot`] and of `iov_counters`.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// All values, each read once.
            pub fn snapshot(&self) -> Vec<u64> {
                vec![$(self.$name.load(Ordering::Relaxed)),*]
            }
        }
    };
}

counters! {
    /// Requests to the metadata side (one per submission).
    metadata_requests,
    /// Requests to targets.
    data_requests,
    /// Requests for append offsets.
    offset_requests,
    /// Lock and unlock messages.
    lock_messages,
    /// Leases renewed.
    lease_renewals,
    /// Things tried again.
    retries,
    /// Request and reply over a transport.
    round_trips,
    /// Publications of data (commit, close, batch).
    publications,
    /// Syncs asked of targets or made here.
    syncs,
    /// Bytes written to the durable tier.
    durable_bytes,
    /// Bytes the program read.
    bytes_read,
    /// Bytes the program wrote.
    bytes_written,
    /// Extra copies made by the library.
    bytes_copied,
    /// Bytes moved by this process itself.
    bytes_direct,
    /// Bytes over UNIX sockets.
    bytes_unix,
    /// Bytes over TCP.
    bytes_tcp,
    /// Bytes over a fabric.
    bytes_fabric,
    /// Bytes in caches now.
    cache_bytes,
    /// Reads answered by a cache.
    cache_hits,
    /// Reads that a cache could not answer.
    cache_misses,
    /// Bytes read ahead.
    readahead_bytes,
    /// Requests that touched more than one target.
    straddling_requests,
    /// Grants received.
    grants,
    /// Grants asked back.
    recalls,
    /// Refusals.
    refusals,
    /// Batches started.
    batches,
    /// Operations started.
    operations,
    /// Batches in flight now.
    in_flight,
    /// Connections open now.
    connections,
}

impl Counters {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Takes from a gauge.
    pub fn sub(counter: &AtomicU64, n: u64) {
        counter.fetch_sub(n, Ordering::Relaxed);
    }
}
