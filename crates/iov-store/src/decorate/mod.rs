//! Things to put in front of a target or a metadata engine: to watch it, to break it, to hold it back.
//!
//! Operations are data, so each of them wraps one method.

mod faulty;
mod faulty_store;
mod limit;
mod trace;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use iov_types::{Evidence, Result};

use crate::Sink;

pub use faulty::{Action, Fault, Faulty, When};
pub use faulty_store::FaultyStore;
pub use limit::Limit;
pub use trace::{Trace, TraceEvent, TraceRing};

/// A sink that sees what the target behind a decorator answers. `index` is of the submission to that target.
struct Tap<F>(F);

impl<F: Fn(usize, Result<Evidence>) + Send + Sync> Sink for Tap<F> {
    fn complete(&self, index: usize, evidence: Result<Evidence>) {
        (self.0)(index, evidence);
    }
}

fn tap(body: impl Fn(usize, Result<Evidence>) + Send + Sync + 'static) -> Arc<dyn Sink> {
    Arc::new(Tap(body))
}
