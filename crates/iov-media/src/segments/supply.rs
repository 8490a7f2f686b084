//! Where segments come from: they are made, given to a domain, and taken from one that has no use for them.

use std::sync::Arc;

use iov_store::Segment;
use iov_types::{Error, Kind, Result, Uuid};
use rustix::fs::{AtFlags, Mode, OFlags};

use super::{Guard, Inner, Known, Piece, Segments, name, os};

impl Segments {
    /// Gives a domain one more segment, if there may be one more. While it is made, which may take long where the kernel looks for
    /// large pages, nothing is locked.
    pub(super) fn extend<'a>(&'a self, mut inner: Guard<'a>, domain: Uuid) -> (Guard<'a>, Result<bool>) {
        let number = match inner.spare.pop() {
            Some(spare) => spare,
            None => loop {
                if !self.has_room(&inner) && !self.reclaim(&mut inner, domain) {
                    return (inner, Ok(false));
                }
                let number = inner.next;
                inner.next += 1;
                inner.making += 1;
                drop(inner);
                let made = self.make(number);
                inner = self.lock();
                inner.making -= 1;
                self.done.notify_all();
                match made {
                    Ok(map) => {
                        inner.known.insert(number, Known { map, domain: None });
                        break number;
                    }
                    Err(e) if e.kind() != Kind::Exhausted => return (inner, Err(e)),
                    // The machine has less than the store may take: what another domain has no use for may be enough.
                    Err(_) if self.reclaim(&mut inner, domain) => {}
                    Err(_) => {
                        let why = self.short(&inner);
                        return (inner, Err(why));
                    }
                }
            },
        };
        let renamed = rustix::fs::renameat(&self.folder, name(number, None), &self.folder, name(number, Some(domain)));
        if let Err(e) = renamed {
            inner.spare.push(number);
            return (inner, Err(os("giving a segment to a workspace")(e)));
        }
        let Some(known) = inner.known.get_mut(&number) else { return (inner, Ok(false)) };
        known.domain = Some(domain);
        let len = known.map.len();
        inner.pools.entry(domain).or_default().clean.add(Piece { segment: number, at: 0, len });
        (inner, Ok(true))
    }

    fn short(&self, inner: &Inner) -> Error {
        Error::exhausted(format!(
            "the shared memory of this machine is full, of which the store has {} bytes and may take {}: remove something \
             from the store, or what others keep there (ls -l /dev/shm shows it)",
            Segments::made(inner),
            self.capacity
        ))
    }

    pub(super) fn made(inner: &Inner) -> u64 {
        inner.known.values().map(|k| k.map.len()).sum()
    }

    /// Whether one more may be made.
    pub(super) fn has_room(&self, inner: &Inner) -> bool {
        Segments::made(inner) + self.len * u64::from(inner.making + 1) <= self.capacity
    }

    /// Removes a segment of another domain that is free as a whole. Processes of that one may have it mapped for ever, so it
    /// cannot be given to another (G5); the kernel frees it when the last of them lets go.
    fn reclaim(&self, inner: &mut Inner, domain: Uuid) -> bool {
        let wholes: Vec<(u32, u64, Uuid)> = inner
            .known
            .iter()
            .filter_map(|(n, k)| Some((*n, k.map.len(), k.domain.filter(|d| *d != domain)?)))
            .collect();
        for (number, len, other) in wholes {
            let Some(pool) = inner.pools.get_mut(&other) else { continue };
            pool.free_blocks_of_heads(|segment| segment == number);
            let whole = Piece { segment: number, at: 0, len };
            let free = pool.clean.covered(whole) + pool.dirty.covered(whole);
            if free < len {
                continue;
            }
            pool.clean.carve(whole);
            pool.dirty.carve(whole);
            inner.known.remove(&number);
            let _ = rustix::fs::unlinkat(&self.folder, name(number, Some(other)), AtFlags::empty());
            return true;
        }
        false
    }

    /// Makes a segment.
    pub(super) fn make(&self, number: u32) -> Result<Arc<Segment>> {
        let fresh = format!("{number}.new");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&self.folder, &fresh, flags, Mode::RUSR | Mode::WUSR).map_err(os("making a segment"))?;
        let made = Segment::make(&file, self.len).and_then(|map| {
            rustix::fs::renameat(&self.folder, &fresh, &self.folder, name(number, None))
                .map_err(os("making a segment"))?;
            Ok(Arc::new(map))
        });
        made.inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&self.folder, &fresh, AtFlags::empty());
        })
    }
}
