//! A descriptor that says "there is work", made when somebody asks for it: something has completed, or an answer has come
//! that nobody reads unless the program polls.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::OnceLock,
};

use iov_store::{Catalog, kept};
use iov_types::{Error, Result};
use rustix::event::{
    EventfdFlags, Timespec,
    epoll::{self, CreateFlags, EventData, EventFlags},
    eventfd,
};

struct Descriptors {
    /// What the program looks at: readable when one of the others is.
    all: OwnedFd,
    completed: OwnedFd,
}

#[derive(Default)]
pub(crate) struct Event(OnceLock<Descriptors>);

fn none_left(e: rustix::io::Errno) -> Error {
    Error::exhausted(format!("no descriptor for events: {e}"))
}

impl Descriptors {
    fn new() -> Result<Descriptors> {
        let all = epoll::create(CreateFlags::CLOEXEC).map(kept::set_aside).map_err(none_left)?;
        let completed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let completed = completed.map(kept::set_aside).map_err(none_left)?;
        epoll::add(&all, &completed, EventData::new_u64(0), EventFlags::IN).map_err(none_left)?;
        Ok(Descriptors { all, completed })
    }
}

impl Event {
    pub(crate) fn fd(&self) -> Result<i32> {
        if self.0.get().is_none() {
            // Another thread may have been faster; its descriptors are as good.
            let _ = self.0.set(Descriptors::new()?);
        }
        self.0.get().map(|d| d.all.as_raw_fd()).ok_or_else(|| Error::internal("an event descriptor vanished"))
    }

    /// Has the descriptor tell of answers too, over the connection that there is now.
    pub(crate) fn watch(&self, catalog: &dyn Catalog) {
        if let Some(d) = self.0.get() {
            catalog.watch(&d.all);
        }
    }

    /// Takes notice of answers that have come so far: they are read next.
    pub(crate) fn notice(&self) {
        if let Some(d) = self.0.get() {
            let mut events = Vec::with_capacity(4);
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let _ = epoll::wait(&d.all, rustix::buffer::spare_capacity(&mut events), Some(&now));
        }
    }

    pub(crate) fn raise(&self) {
        if let Some(d) = self.0.get() {
            // Full means that it is raised already.
            let _ = rustix::io::write(&d.completed, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn clear(&self) {
        if let Some(d) = self.0.get() {
            // Empty means that it is cleared already.
            let _ = rustix::io::read(&d.completed, &mut [0; 8]);
        }
    }
}
