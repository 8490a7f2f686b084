//! Open files, the least recently used closed first, and the bodies that lie in segments.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use iov_types::{Error, Result, Uuid};
use rustix::io::Errno;

use super::{
    body::Body,
    io,
    tree::{FileName, Tree},
    way::{DataFile, Way},
};
use crate::segments::{Segments, Shared, Wait};

struct Open {
    body: Body,
    write: bool,
    used: u64,
}

type Live = HashMap<FileName, Weak<Shared>>;

/// From so many bodies on, those that nobody uses are looked for.
const LIVE: usize = 4096;

/// Segments that bodies lie in.
struct Space {
    segments: Arc<Segments>,
    /// Every body in use: there is one of each, whatever is closed meanwhile.
    live: Mutex<Live>,
}

#[derive(Default)]
struct Lru {
    open: HashMap<FileName, Open>,
    order: BTreeMap<u64, FileName>,
    clock: u64,
}

impl Lru {
    fn touch(&mut self, name: FileName, write: bool) -> Option<Body> {
        let open = self.open.get_mut(&name).filter(|open| open.write || !write)?;
        self.order.remove(&open.used);
        self.clock += 1;
        open.used = self.clock;
        self.order.insert(open.used, name);
        Some(open.body.clone())
    }

    fn insert(&mut self, name: FileName, body: Body, write: bool) {
        self.remove(name);
        self.clock += 1;
        self.order.insert(self.clock, name);
        self.open.insert(name, Open { body, write, used: self.clock });
    }

    fn remove(&mut self, name: FileName) -> Option<Open> {
        let open = self.open.remove(&name)?;
        self.order.remove(&open.used);
        Some(open)
    }

    /// Takes out the oldest until at most `keep` are left. The caller closes them outside of the lock.
    fn shrink(&mut self, keep: usize) -> Vec<Open> {
        let mut out = Vec::new();
        while self.open.len() > keep {
            let Some((_, name)) = self.order.pop_first() else { break };
            out.extend(self.open.remove(&name));
        }
        out
    }
}

/// The files of a target, opened when they are needed.
pub(super) struct Disk {
    pub(super) tree: Tree,
    limit: usize,
    lru: Mutex<Lru>,
    space: Option<Space>,
    way: Way,
}

/// The descriptor of what is no body in segments.
fn plain(body: Body) -> Result<Arc<OwnedFd>> {
    match body {
        Body::File(file) => Ok(file.fd),
        Body::Shared(_) => Err(Error::internal("a body in segments was opened as a file")),
    }
}

fn missing(name: FileName) -> Error {
    Error::corrupt(format!("{} of the target is missing", name.path()))
}

impl Disk {
    /// The files of `tree`; with `segments`, bytes of objects and images lie there, else they go that way.
    pub(super) fn new(tree: Tree, limit: usize, segments: Option<Arc<Segments>>, way: Way) -> Disk {
        let space = segments.map(|segments| Space { segments, live: Mutex::default() });
        Disk { tree, limit, lru: Mutex::default(), space, way }
    }

    fn lock(&self) -> MutexGuard<'_, Lru> {
        self.lru.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The segments, if bytes lie in some.
    pub(super) fn segments(&self) -> Option<&Arc<Segments>> {
        self.space.as_ref().map(|space| &space.segments)
    }

    /// A file, opened if need be; `None` if it is not there.
    pub(super) fn get(&self, name: FileName, write: bool) -> Result<Option<Arc<OwnedFd>>> {
        if let Some(body) = self.lock().touch(name, write) {
            return plain(body).map(Some);
        }
        let file = self.sparing(|| self.tree.open_file(name, write))?;
        Ok(file.map(|file| self.keep_file(name, file, write)))
    }

    /// A new file.
    pub(super) fn create(&self, name: FileName) -> Result<Arc<OwnedFd>> {
        let file = self.sparing(|| self.tree.create_file(name))?;
        Ok(self.keep_file(name, file, true))
    }

    /// A file to write to, made if it is not there.
    pub(super) fn get_or_create(&self, name: FileName) -> Result<Arc<OwnedFd>> {
        match self.get(name, true)? {
            Some(file) => Ok(file),
            None => self.create(name),
        }
    }

    /// A file that must be there.
    pub(super) fn must(&self, name: FileName, write: bool) -> Result<Arc<OwnedFd>> {
        self.get(name, write)?.ok_or_else(|| missing(name))
    }

    /// The bytes of an object or an image, opened if need be; `None` if there are none.
    pub(super) fn body(&self, name: FileName, write: bool) -> Result<Option<Body>> {
        let Some(space) = &self.space else {
            if let Some(body) = self.lock().touch(name, write) {
                return Ok(Some(body));
            }
            let file = self.sparing(|| self.tree.open_file(name, write))?;
            return Ok(file.map(|file| self.keep(name, self.data_file(file), write)));
        };
        if let Some(body) = self.lock().touch(name, false) {
            return Ok(Some(body));
        }
        let mut live = space.lock();
        if let Some(shared) = live.get(&name).and_then(Weak::upgrade) {
            return Ok(Some(self.keep(name, Body::Shared(shared), true)));
        }
        // What is sealed is never written, so that it need not be opened for it.
        let file = match self.tree.open_file(name, true) {
            Err(Errno::ACCESS) => self.sparing(|| self.tree.open_file(name, false))?,
            Err(_) => self.sparing(|| self.tree.open_file(name, true))?,
            Ok(file) => file,
        };
        let Some(file) = file else { return Ok(None) };
        let shared = Arc::new(Shared::open(&space.segments, file)?);
        live.note(name, &shared);
        Ok(Some(self.keep(name, Body::Shared(shared), true)))
    }

    /// New bytes, in the space of a domain.
    pub(super) fn create_body(&self, name: FileName, domain: Uuid) -> Result<Body> {
        let Some(space) = &self.space else {
            let file = self.sparing(|| self.tree.create_file(name))?;
            return Ok(self.keep(name, self.data_file(file), true));
        };
        let mut live = space.lock();
        let file = self.sparing(|| self.tree.create_file(name))?;
        let shared = Shared::create(&space.segments, file, domain).inspect_err(|_| {
            let _ = self.tree.remove(name);
        })?;
        let shared = Arc::new(shared);
        live.note(name, &shared);
        Ok(self.keep(name, Body::Shared(shared), true))
    }

    /// Bytes to write to, made if there are none.
    pub(super) fn body_or_create(&self, name: FileName, domain: Uuid) -> Result<Body> {
        match self.body(name, true)? {
            Some(body) => Ok(body),
            None => self.create_body(name, domain),
        }
    }

    /// Bytes that must be there.
    pub(super) fn must_body(&self, name: FileName, write: bool) -> Result<Body> {
        self.body(name, write)?.ok_or_else(|| missing(name))
    }

    /// Removes a file; whether it was there.
    pub(super) fn remove(&self, name: FileName) -> Result<bool> {
        self.remove_used(name, Vec::new())
    }

    /// Removes a file that `waits` may still use.
    pub(super) fn remove_used(&self, name: FileName, waits: Vec<Wait>) -> Result<bool> {
        if !self.lies_in_segments(name) {
            self.forget(name);
            return self.tree.remove(name);
        }
        // One that cannot be read has no space that we could know of.
        let body = self.body(name, false).unwrap_or_default();
        let removed = self.tree.remove(name)?;
        self.forget(name);
        if let (Some(space), Some(Body::Shared(shared))) = (&self.space, body) {
            space.lock().remove(&name);
            shared.release(None, waits);
        }
        Ok(removed)
    }

    fn lies_in_segments(&self, name: FileName) -> bool {
        self.space.is_some() && matches!(name, FileName::Data(_) | FileName::Image(..))
    }

    /// Gives a file another name, over the one that has it, which `waits` may still use.
    pub(super) fn rename(&self, from: FileName, to: FileName, waits: Vec<Wait>) -> Result<()> {
        if !self.lies_in_segments(to) {
            self.tree.rename(from, to)?;
            self.forget(from);
            self.forget(to);
            return Ok(());
        }
        let (new, old) = (self.must_body(from, true)?, self.body(to, false).unwrap_or_default());
        self.tree.rename(from, to)?;
        if let Some(new) = new.shared() {
            self.replaced(from, to, new, old, waits);
        }
        Ok(())
    }

    /// Puts bytes whose index is `temp` in the place of others, of which they may share some.
    pub(super) fn replace(&self, name: FileName, temp: FileName, new: Shared, waits: Vec<Wait>) -> Result<()> {
        let (new, old) = (Arc::new(new), self.body(name, false).unwrap_or_default());
        self.tree.rename(temp, name).inspect_err(|_| {
            if let Some(old) = old.as_ref().and_then(Body::shared) {
                new.release(Some(old), Vec::new());
            }
        })?;
        self.replaced(temp, name, &new, old, waits);
        Ok(())
    }

    fn replaced(&self, from: FileName, to: FileName, new: &Arc<Shared>, old: Option<Body>, waits: Vec<Wait>) {
        self.forget(from);
        self.forget(to);
        if let Some(space) = &self.space {
            let mut live = space.lock();
            live.remove(&from);
            live.note(to, new);
        }
        if let Some(Body::Shared(old)) = old {
            old.release(Some(new), waits);
        }
    }

    fn data_file(&self, file: OwnedFd) -> Body {
        Body::File(DataFile::new(Arc::new(file), self.way))
    }

    fn keep_file(&self, name: FileName, file: OwnedFd, write: bool) -> Arc<OwnedFd> {
        let file = Arc::new(file);
        self.keep(name, Body::File(DataFile::new(file.clone(), Way::Cached)), write);
        file
    }

    fn keep(&self, name: FileName, body: Body, write: bool) -> Body {
        let mut lru = self.lock();
        lru.insert(name, body.clone(), write);
        let closed = lru.shrink(self.limit);
        drop(lru);
        drop(closed);
        body
    }

    /// Opens something; if the process has no descriptor left, all of ours are closed first.
    pub(super) fn sparing<T>(&self, open: impl Fn() -> rustix::io::Result<T>) -> Result<T> {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                let closed = self.lock().shrink(0);
                drop(closed);
                open()
            }
            other => other,
        }
        .map_err(|e| match e {
            Errno::MFILE | Errno::NFILE => {
                io::os("no descriptor is left: raise RLIMIT_NOFILE of the daemon, or close handles")(e)
            }
            Errno::LOOP => io::os("a file of the target is a symbolic link, which no daemon has made")(e),
            e => io::os("opening a file of the target")(e),
        })
    }

    /// Closes a file: its name belongs to another one now, or to none.
    pub(super) fn forget(&self, name: FileName) {
        let closed = self.lock().remove(name);
        drop(closed);
    }

    /// How many are open.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().open.len()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.segments.end();
    }
}

impl Space {
    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

trait Note {
    fn note(&mut self, name: FileName, shared: &Arc<Shared>);
}

impl Note for Live {
    fn note(&mut self, name: FileName, shared: &Arc<Shared>) {
        if self.len() >= LIVE && self.len().is_power_of_two() {
            self.retain(|_, shared| shared.strong_count() > 0);
        }
        self.insert(name, Arc::downgrade(shared));
    }
}
