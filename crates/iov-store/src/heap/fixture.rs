//! A body by itself, for tests.

use std::sync::{Arc, atomic::AtomicU64};

use iov_types::{Caller, Demand, Persistence, Uuid};

use super::{Room, body::HeapBody};
use crate::{OpCx, objects::Call};

/// A body in memory without a limit.
pub(crate) fn body() -> HeapBody {
    HeapBody::new(Arc::new(Room { bytes: u64::MAX, taken: AtomicU64::new(0) }))
}

/// A caller with time.
pub(crate) fn cx() -> OpCx {
    let caller = Caller { uid: 0, gid: 0, groups: Vec::new(), session: Uuid::NIL, holder: Uuid::NIL };
    OpCx::new(caller, i64::MAX)
}

static NOTHING: Demand = Demand {
    stage: None,
    batch: None,
    epoch: 0,
    durability: None::<Persistence>,
    unit: 0,
    max_size: 0,
    once: false,
    pattern: None,
    domain: None,
};

/// A call that demands nothing.
pub(crate) fn call(cx: &OpCx) -> Call<'_> {
    Call { cx, demand: &NOTHING }
}
