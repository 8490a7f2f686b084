//! A descriptor that says "there is work", made when somebody asks for it.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::OnceLock,
};

use iov_types::{Error, Result};
use rustix::event::{EventfdFlags, eventfd};

#[derive(Default)]
pub(crate) struct Event(OnceLock<OwnedFd>);

impl Event {
    pub(crate) fn fd(&self) -> Result<i32> {
        if self.0.get().is_none() {
            let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|e| Error::exhausted(format!("no descriptor for events: {e}")))?;
            // Another thread may have been faster; its descriptor is as good.
            let _ = self.0.set(fd);
        }
        self.0.get().map(|fd| fd.as_raw_fd()).ok_or_else(|| Error::internal("an event descriptor vanished"))
    }

    pub(crate) fn raise(&self) {
        if let Some(fd) = self.0.get() {
            // Full means that it is raised already.
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn clear(&self) {
        if let Some(fd) = self.0.get() {
            // Empty means that it is cleared already.
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
    }
}
