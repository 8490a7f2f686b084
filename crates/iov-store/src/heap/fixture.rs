//! A body by itself, for tests.

use std::sync::{Arc, atomic::AtomicU64};

use iov_types::Demand;

use super::{Room, body::HeapBody};
use crate::{OpCx, objects::Call};

/// A body in memory without a limit.
pub(crate) fn body() -> HeapBody {
    HeapBody::new(Arc::new(Room { bytes: u64::MAX, taken: AtomicU64::new(0) }))
}

/// A caller with time.
pub(crate) fn cx() -> OpCx {
    OpCx::own(i64::MAX)
}

/// A call that demands nothing.
pub(crate) fn call(cx: &OpCx) -> Call<'_> {
    Call { cx, demand: &Demand::NONE }
}
