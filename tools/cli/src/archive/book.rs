//! The directory of an export, and the sidecar of one workspace in it.
//!
//! A sidecar is written anew each time, and takes its name when it is complete. What is put in place before is written down in
//! a journal first, so that an export that was interrupted is known for what it is by the one that repeats it.

use std::{
    collections::{HashMap, HashSet},
    fs::{File, Metadata, OpenOptions, TryLockError},
    io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use ioverbs::{Error, Result, Uuid};

use super::{
    names::{SIDECARS, file_of},
    records::{Line, LinkLine},
    sums::Sum,
};
use crate::failure::local;

const ENDING: &str = ".jsonl";

/// The directory of an export.
pub(crate) struct Export {
    pub(crate) root: PathBuf,
    own: PathBuf,
    temporary: u64,
    writes: bool,
    _lock: File,
}

impl Export {
    /// Begins an export into a directory, or goes on with one.
    pub(crate) fn write(root: &Path) -> Result<Export> {
        let own = root.join(SIDECARS);
        std::fs::create_dir_all(root).map_err(|e| local("the directory", root, e))?;
        // The sidecars tell of everything, also of what is for its owner alone.
        match std::fs::DirBuilder::new().mode(0o700).create(&own) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(local("the directory", &own, e)),
            _ => {}
        }
        let path = own.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(|e| local("the file", &path, e))?;
        taken(lock.try_lock(), root)?;
        let temp = own.join("temp");
        // Nobody else has anything there.
        match std::fs::remove_dir_all(&temp) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(local("removing", &temp, e)),
            _ => {}
        }
        std::fs::create_dir(&temp).map_err(|e| local("the directory", &temp, e))?;
        Ok(Export { root: root.to_owned(), own, temporary: 0, writes: true, _lock: lock })
    }

    /// Opens an export to read it; `None`: the directory is none.
    pub(crate) fn read(root: &Path) -> Result<Option<Export>> {
        let own = root.join(SIDECARS);
        if !own.is_dir() {
            return Ok(None);
        }
        let lock = match File::open(own.join("lock")) {
            Ok(lock) => lock,
            // A copy without it.
            Err(_) => File::open(&own).map_err(|e| local("the directory", &own, e))?,
        };
        taken(lock.try_lock_shared(), root)?;
        Ok(Some(Export { root: root.to_owned(), own, temporary: 0, writes: false, _lock: lock }))
    }

    /// A place for a file on its way.
    pub(crate) fn temporary(&mut self) -> PathBuf {
        self.temporary += 1;
        self.own.join("temp").join(self.temporary.to_string())
    }

    /// All sidecars that are complete, and whether there are others.
    pub(crate) fn sidecars(&self) -> Result<(Vec<PathBuf>, bool)> {
        let wrong = |e| local("the directory", &self.own, e);
        let (mut found, mut parts) = (Vec::new(), false);
        for entry in std::fs::read_dir(&self.own).map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            match path.extension().and_then(|e| e.to_str()) {
                Some("jsonl") => found.push(path),
                Some("part" | "journal") => parts = true,
                _ => {}
            }
        }
        found.sort();
        Ok((found, parts))
    }

    /// Where the sidecar of a workspace is.
    fn sidecar(&self, name: &[u8], uuid: Uuid) -> PathBuf {
        let file = file_of(name, uuid);
        // With the endings it must not be too long for a file's name.
        let file = if file.len() > 230 { format!(".iov-uuid-{}", &uuid.to_string()[5..]).into() } else { file };
        let mut whole = file;
        whole.push(ENDING);
        self.own.join(whole)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // What is left in it is of a command that has failed.
        if self.writes {
            let _ = std::fs::remove_dir_all(self.own.join("temp"));
        }
    }
}

fn taken(locked: std::result::Result<(), TryLockError>, root: &Path) -> Result<()> {
    match locked {
        Err(TryLockError::WouldBlock) => {
            Err(Error::busy(format!("another command exports to {}, or imports from it: wait for it", root.display())))
        }
        // A file system without locks: then nobody else can be told apart.
        _ => Ok(()),
    }
}

/// More than any line has: all metadata of a collection are at most 4 MiB, and each byte of it at most six.
const LONGEST: u64 = 64 << 20;

/// Reads a sidecar line by line; whether its end is there. A line that was cut short ends one that is not complete.
pub(crate) fn read_lines(path: &Path, mut each: impl FnMut(Line) -> Result<()>) -> Result<bool> {
    let file = File::open(path).map_err(|e| local("the sidecar", path, e))?;
    let mut reader = BufReader::new(file);
    let (mut text, mut number, mut before) = (Vec::new(), 0, Sum::default());
    loop {
        text.clear();
        let n =
            reader.by_ref().take(LONGEST).read_until(b'\n', &mut text).map_err(|e| local("the sidecar", path, e))?;
        if n == 0 || text.last() != Some(&b'\n') {
            return Ok(false);
        }
        number += 1;
        let whole = before.then(Sum::of(&text));
        if text.len() == 1 {
            before = whole;
            continue;
        }
        let wrong = |e: Error| e.context(format!("line {number} of {}", path.display()));
        let text = std::str::from_utf8(&text).map_err(|_| wrong(Error::corrupt("it is no UTF-8")))?;
        match Line::from_json(text).map_err(wrong)? {
            Line::End(None) => return Ok(true),
            Line::End(Some(crc)) if crc == before.crc => return Ok(true),
            Line::End(Some(_)) => {
                return Err(Error::corrupt(format!(
                    "{} is not as it was written: restore it from a copy, or export again; if you have changed it on purpose, take \
                     crc32c out of its last line",
                    path.display()
                )));
            }
            line => each(line).map_err(wrong)?,
        }
        before = whole;
    }
}

/// What tells a file that an export has put there from any other one: its length and its time.
type Mark = (u64, i64);

/// When a file was last changed.
pub(crate) fn time_of(facts: &Metadata) -> i64 {
    facts.mtime().saturating_mul(1_000_000_000).saturating_add(facts.mtime_nsec())
}

/// What an earlier export has left of a workspace.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) members: HashMap<Uuid, Line>,
    pub(crate) links: Vec<LinkLine>,
    files: HashMap<PathBuf, HashSet<Mark>>,
}

impl Known {
    fn add(&mut self, line: Line) {
        match &line {
            Line::Collection(member) => {
                if let Some(file) = &member.file {
                    self.files.entry(file.clone()).or_default().insert((member.size, member.time_of_file()));
                }
                let uuid = member.uuid;
                self.members.insert(uuid, line);
            }
            Line::Group(member) => {
                let uuid = member.uuid;
                self.members.insert(uuid, line);
            }
            Line::Link(link) => {
                let target = self.members.get(&link.uuid).and_then(Line::member).map(|m| (m.size, m.time_of_file()));
                if let (Some(file), Some(mark)) = (&link.file, target) {
                    self.files.entry(file.clone()).or_default().insert(mark);
                }
                self.links.push(link.clone());
            }
            Line::Head | Line::Workspace(_) | Line::End(_) => {}
        }
    }

    /// Every file that an export has put somewhere.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// Whether a file is as an export has left it.
    pub(crate) fn has(&self, file: &Path, facts: &Metadata) -> bool {
        facts.is_file() && self.files.get(file).is_some_and(|marks| marks.contains(&(facts.len(), time_of(facts))))
    }
}

/// The sidecar of a workspace that is being written.
pub(crate) struct Book {
    pub(crate) known: Known,
    path: PathBuf,
    part: BufWriter<File>,
    /// Of what was added.
    sum: Sum,
    journal: BufWriter<File>,
}

impl Book {
    /// Begins a sidecar, and reads those that are there.
    pub(crate) fn begin(export: &Export, name: &[u8], uuid: Uuid) -> Result<Book> {
        let path = export.sidecar(name, uuid);
        let beside = |ending: &str| {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(ending);
            path.with_file_name(name)
        };
        let mut known = Known::default();
        let mut add = |line: Line| {
            known.add(line);
            Ok(())
        };
        let journal_path = beside(".journal");
        for path in [&path, &journal_path] {
            if path.exists() {
                read_lines(path, &mut add)?;
            }
        }
        let part_path = beside(".part");
        let part = File::create(&part_path).map_err(|e| local("the sidecar", &part_path, e))?;
        let journal = open_journal(&journal_path).map_err(|e| local("the file", &journal_path, e))?;
        let mut book =
            Book { known, path, part: BufWriter::new(part), sum: Sum::default(), journal: BufWriter::new(journal) };
        book.add(&Line::Head)?;
        Ok(book)
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, line: &Line) -> Result<()> {
        let text = format!("{}\n", line.to_json());
        self.sum = self.sum.then(Sum::of(text.as_bytes()));
        self.part.write_all(text.as_bytes()).map_err(|e| local("writing", &self.path, e))
    }

    /// Writes down what is about to be put in place, to be told by [`Book::told`].
    pub(crate) fn announce(&mut self, line: &Line) -> Result<()> {
        writeln!(self.journal, "{}", line.to_json()).map_err(|e| local("writing", &self.path, e))
    }

    /// Hands on what was announced: from here on it may be done.
    pub(crate) fn told(&mut self) -> Result<()> {
        self.journal.flush().map_err(|e| local("writing", &self.path, e))
    }

    /// Ends it: all that it tells of is on the medium before it has its name.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.add(&Line::End(Some(self.sum.crc)))?;
        let path = &self.path;
        self.part.flush().map_err(|e| local("writing", path, e))?;
        let file = self.part.get_ref();
        match rustix::fs::syncfs(file) {
            Ok(()) => {}
            Err(e) => return Err(local("syncing", path, e.into())),
        }
        let named = |ending: &str| {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(ending);
            path.with_file_name(name)
        };
        std::fs::rename(named(".part"), path).map_err(|e| local("the sidecar", path, e))?;
        // One that stays tells nothing else than the sidecar.
        let _ = std::fs::remove_file(named(".journal"));
        Ok(())
    }
}

/// Opens a journal to add to it: behind a line that was cut short begins a new one.
fn open_journal(path: &Path) -> std::io::Result<File> {
    let mut file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
    let len = file.metadata()?.len();
    let mut bytes = Vec::new();
    let from = len.saturating_sub(1 << 20);
    file.seek(SeekFrom::Start(from))?;
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(from, |at| from + at as u64 + 1);
    file.set_len(whole)?;
    file.seek(SeekFrom::Start(whole))?;
    Ok(file)
}
