//! Where tests make the medium fail. Outside tests it is nothing.

use std::io;

pub(crate) use imp::Hooks;

/// A place that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Point {
    /// A write to the log; half of it arrives.
    Write,
    /// Taking room for the log before it is written.
    Allocate,
    /// Cutting off what a failed write left.
    Cut,
    /// A sync of the log.
    Sync,
    /// Moving a buffer into tables.
    Ingest,
    /// Merging tables.
    Compact,
}

#[cfg(not(test))]
mod imp {
    use super::{Point, io};

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Hooks(());

    impl Hooks {
        #[inline]
        pub(crate) fn check(&self, _: Point) -> io::Result<()> {
            Ok(())
        }

        #[inline]
        pub(crate) fn boot(&self) -> Option<[u8; 16]> {
            None
        }
    }
}

#[cfg(test)]
mod imp {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::{Point, io};

    #[derive(Debug, Default)]
    struct State {
        /// Which fail, with what, and whether only once.
        failing: Mutex<Vec<(Point, i32, bool)>>,
        delay: Mutex<Option<(Point, u64)>>,
        boot: Mutex<Option<[u8; 16]>>,
    }

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Hooks(Arc<State>);

    impl Hooks {
        pub(crate) fn check(&self, point: Point) -> io::Result<()> {
            let delay = *self.0.delay.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, ns)) = delay
                && at == point
            {
                iov_store::seam::sleep(ns);
            }
            let mut failing = self.0.failing.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(n) = failing.iter().position(|(at, ..)| *at == point) else { return Ok(()) };
            let (_, errno, once) = failing[n];
            if once {
                failing.remove(n);
            }
            Err(io::Error::from_raw_os_error(errno))
        }

        pub(crate) fn boot(&self) -> Option<[u8; 16]> {
            *self.0.boot.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// From now on the point fails with an error number.
        pub(crate) fn fail(&self, point: Point, errno: i32) {
            self.0.failing.lock().unwrap_or_else(PoisonError::into_inner).push((point, errno, false));
        }

        /// The next time the point fails, and then no more.
        pub(crate) fn fail_once(&self, point: Point, errno: i32) {
            self.0.failing.lock().unwrap_or_else(PoisonError::into_inner).push((point, errno, true));
        }

        /// Nothing fails any more.
        pub(crate) fn heal(&self) {
            self.0.failing.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }

        /// The point takes that long.
        pub(crate) fn delay(&self, point: Point, ns: u64) {
            *self.0.delay.lock().unwrap_or_else(PoisonError::into_inner) = Some((point, ns));
        }

        /// The store believes that the machine was booted under this id.
        pub(crate) fn set_boot(&self, id: [u8; 16]) {
            *self.0.boot.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        }
    }
}
