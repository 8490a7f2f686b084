//! Where a session finds out that what it remembers of facts holds no more.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, Ordering},
    },
};

use iov_store::{ChangeView, seam};
use iov_types::Error;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
};

use crate::{
    conn::Connection,
    link::Link,
    reach::{CHANGES, Place},
};

/// How often whoever asks for nothing looks whether there still is a daemon, in nanoseconds.
const LOOK_NS: i64 = 50_000_000;

/// The view that a connection has.
#[derive(Default)]
pub(crate) struct Changes {
    view: OnceLock<Option<Arc<ChangeView>>>,
    looked_ns: AtomicI64,
}

impl Changes {
    fn open(&self, dir: &OwnedFd, incarnation: u64) -> Option<Arc<ChangeView>> {
        let open = || {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = rustix::fs::openat(dir, CHANGES, flags, Mode::empty()).ok()?;
            // One of another version, or that this daemon does not know of: everything is asked for.
            ChangeView::map(file, incarnation).ok()
        };
        self.view.get_or_init(open).clone()
    }

    /// Whether the peer has not gone, as far as that was looked at lately.
    fn has_peer(&self, connection: &Connection) -> bool {
        let now_ns = seam::monotonic_ns();
        if now_ns - self.looked_ns.load(Ordering::Relaxed) < LOOK_NS {
            return true;
        }
        self.looked_ns.store(now_ns, Ordering::Relaxed);
        let mut fds = [PollFd::new(&connection.stream, PollFlags::RDHUP)];
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        !(poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().intersects(gone))
    }
}

impl Link {
    /// Where the catalog says what changes, if its daemon is on this host. Each connection has a view of its own: what was
    /// remembered before it broke is asked for again.
    pub(crate) fn changes(&self) -> Option<Arc<ChangeView>> {
        let Place::Directory { dir, .. } = &self.address.place else { return None };
        let up = self.current()?;
        let view = up.changes.open(dir, up.connection.incarnation)?;
        if !up.changes.has_peer(&up.connection) {
            // Whoever asks next finds another daemon, which may know nothing of this page.
            up.connection.fail(&Error::unavailable("the store's daemon has closed the connection"));
            return None;
        }
        Some(view)
    }
}
