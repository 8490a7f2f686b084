//! What the kinds of stores can do: one place, so that implementations, documents and tests agree.

use iov_types::{Capability, Persistence, limits};

/// Most bytes in one stage of a file store. They lie on disk, so memory is no limit; what remains is that a runaway
/// batch is stopped before the disk is full.
pub const FILE_STAGE_BYTES: u64 = 1 << 40;

/// `mem:`: the heap of this process. It has no slower tier and no cache below it, so it can do `once` and `bursty`.
pub fn mem(incarnation: u64) -> Capability {
    Capability {
        medium: Capability::HEAP,
        durability: Persistence::Volatile,
        max_unit: limits::MAX_UNIT,
        staging: true,
        stage_bytes: limits::STAGE_BYTES,
        once: true,
        bursty: true,
        targets: 1,
        incarnation,
    }
}

/// A store whose bytes lie in the memory of its daemon: as `mem:`, for more than one process.
pub fn heap(incarnation: u64) -> Capability {
    mem(incarnation)
}

/// A store that keeps no bytes, to see what all the rest costs.
pub fn null(incarnation: u64) -> Capability {
    Capability { medium: Capability::NULL, ..mem(incarnation) }
}

/// A store whose bytes lie in shared memory: it outlives every process, and no reboot. There is no cache above or below it.
pub fn shmem(incarnation: u64) -> Capability {
    Capability {
        medium: Capability::SHARED_MEMORY,
        durability: Persistence::Process,
        bursty: true,
        ..file(incarnation)
    }
}

/// `file:DIR`: files of one directory.
pub fn file(incarnation: u64) -> Capability {
    Capability {
        medium: Capability::FILES,
        durability: Persistence::Durable,
        max_unit: limits::MAX_UNIT,
        staging: true,
        stage_bytes: FILE_STAGE_BYTES,
        once: true,
        bursty: false,
        targets: 1,
        incarnation,
    }
}
