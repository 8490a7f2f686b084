//! Which stages a backend holds: written down before the first byte goes there, so that what a crash leaves is found again.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

use iov_types::{Error, ObjectId, Result, Uuid};

/// An object and one of its stages.
pub(crate) type Entry = (ObjectId, Uuid);

/// Stages that a backend holds.
pub(crate) struct Prepared(Mutex<Open>);

struct Open {
    /// `None`: what this process leaves behind is nobody's.
    file: Option<File>,
    len: u64,
    /// Of this process.
    now: BTreeSet<Entry>,
    /// Of one before.
    earlier: BTreeSet<Entry>,
}

fn line((object, stage): &Entry) -> String {
    format!("{} {} {stage}\n", object.collection, object.slot)
}

fn parse(line: &str) -> Option<Entry> {
    let mut words = line.split(' ');
    let collection = Uuid::parse(words.next()?).ok()?;
    let slot = words.next()?.parse().ok()?;
    let stage = Uuid::parse(words.next()?).ok()?;
    words.next().is_none().then_some((ObjectId { collection, slot }, stage))
}

impl Prepared {
    /// Reads what a process before has left; `None`: nothing is kept.
    pub(crate) fn open(path: Option<&Path>) -> Result<Prepared> {
        let mut open = Open { file: None, len: 0, now: BTreeSet::new(), earlier: BTreeSet::new() };
        if let Some(path) = path {
            let of = |e: std::io::Error| Error::from(e).context(path.display());
            let mut file =
                File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(of)?;
            // A name that was lost with the power would hide what it tells of.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(of)?;
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(of)?;
            // A last line without an end was never followed by a byte at the backend.
            open.earlier = text.split_inclusive('\n').filter_map(|l| parse(l.strip_suffix('\n')?)).collect();
            open.len = text.rfind('\n').map_or(0, |at| at as u64 + 1);
            open.file = Some(file);
        }
        Ok(Prepared(Mutex::new(open)))
    }

    /// Writes a stage down.
    pub(crate) fn add(&self, entry: Entry, durable: bool) -> Result<()> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = &mut *guard;
        if !open.now.insert(entry) {
            return Ok(());
        }
        let Some(file) = &mut open.file else { return Ok(()) };
        let line = line(&entry);
        let written = file
            .seek(SeekFrom::Start(open.len))
            .and_then(|_| file.write_all(line.as_bytes()))
            .and_then(|()| if durable { file.sync_data() } else { Ok(()) });
        if let Err(e) = written {
            open.now.remove(&entry);
            return Err(Error::from(e).context("writing down that a stage is about to be prepared"));
        }
        open.len += line.len() as u64;
        Ok(())
    }

    /// Whether this process has prepared it, or one before.
    pub(crate) fn has(&self, entry: Entry) -> bool {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.now.contains(&entry) || open.earlier.contains(&entry)
    }

    /// It was published or dropped.
    pub(crate) fn remove(&self, entry: Entry) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = &mut *guard;
        open.now.remove(&entry);
        open.earlier.remove(&entry);
        open.empty();
    }

    /// The object is gone, with all its stages.
    pub(crate) fn remove_object(&self, object: ObjectId) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = &mut *guard;
        open.now.retain(|(of, _)| *of != object);
        open.earlier.retain(|(of, _)| *of != object);
        open.empty();
    }

    /// What a process before has left.
    pub(crate) fn earlier(&self) -> Vec<Entry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).earlier.iter().copied().collect()
    }
}

impl Open {
    /// With the last one the file begins anew. What stands there too long is dropped once more, which is harmless.
    fn empty(&mut self) {
        if self.now.is_empty()
            && self.earlier.is_empty()
            && let Some(file) = &self.file
            && self.len > 0
            && file.set_len(0).is_ok()
        {
            self.len = 0;
        }
    }
}
