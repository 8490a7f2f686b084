//! Where a session finds out that what it remembers of facts holds no more.

use std::sync::Arc;

use iov_store::ChangeView;
use rustix::fs::{Mode, OFlags};

use crate::{
    link::Link,
    reach::{CHANGES, Place},
};

impl Link {
    /// Where the catalog says what changes, if its daemon is on this host. Each connection has a view of its own: what was
    /// remembered before it broke is asked for again.
    pub(crate) fn changes(&self) -> Option<Arc<ChangeView>> {
        let Place::Directory { dir, .. } = &self.address.place else { return None };
        let up = self.current()?;
        let open = || {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = rustix::fs::openat(dir, CHANGES, flags, Mode::empty()).ok()?;
            // One of another version, or none, as of an older daemon: everything is asked for.
            ChangeView::map(file).ok()
        };
        up.changes.get_or_init(open).clone()
    }
}
