//! The process that does both sides: ours through the C ABI, the bare one on a descriptor of its own.

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use iov_store::Segment;
use serde_json::{Value, json};

use super::{SCHEDULE, SMALL};
use crate::{
    buffer::{Buffer, spoil},
    capi::{Collection, Controls, NOW, Session, Workspace},
    worker as workers,
};

const REQUEST: usize = SCHEDULE.request as usize;
const FILL: u8 = 0x5a;

/// The file of `len` bytes below `dir`, a store's `data` directory: that of the one collection of this size.
pub(super) fn data_file(dir: &Path, len: u64) -> Result<PathBuf> {
    let (mut left, mut found) = (vec![dir.to_owned()], Vec::new());
    while let Some(dir) = left.pop() {
        let entries = fs::read_dir(&dir).with_context(|| format!("{} cannot be listed", dir.display()))?;
        for entry in entries {
            let entry = entry?;
            // Gone since it was listed: a file that a deleted collection had.
            let Ok(facts) = entry.metadata() else { continue };
            if facts.is_dir() {
                left.push(entry.path());
            } else if facts.is_file() && facts.len() == len {
                found.push(entry.path());
            }
        }
    }
    let many = found.len();
    match found.pop() {
        Some(file) if many == 1 => Ok(file),
        _ => bail!("{many} files of {len} bytes below {}, where the collection's alone was expected", dir.display()),
    }
}

/// What stands for the directory of a store that keeps its bytes in memory.
pub(super) const IN_MEMORY: &str = "memory";

/// Memory of the same kind and size as a collection's, in this process from the beginning.
struct Memory(Vec<Segment>);

const SEGMENT: u64 = 64 << 20;

impl Memory {
    fn new(dir: &Path) -> Result<Memory> {
        let make = |i| {
            let path = dir.join(format!("memory-{}-{i}", std::process::id()));
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
            fs::remove_file(path)?;
            let segment = Segment::make(&file, SEGMENT)?;
            let fill = vec![FILL; SEGMENT as usize];
            segment.copy_in(0, &fill);
            Ok(segment)
        };
        (0..SCHEDULE.footprint / SEGMENT).map(make).collect::<Result<_>>().map(Memory)
    }
}

/// What the bare side moves bytes to and from.
enum Bare<'a> {
    File(File),
    Memory(&'a Memory),
}

impl Bare<'_> {
    fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        match self {
            Bare::File(file) => Ok(file.write_all_at(bytes, at)?),
            Bare::Memory(memory) => {
                memory.0[(at / SEGMENT) as usize].copy_in(at % SEGMENT, bytes);
                Ok(())
            }
        }
    }

    fn read(&self, out: &mut [u8], at: u64) -> Result<()> {
        match self {
            Bare::File(file) => Ok(file.read_exact_at(out, at)?),
            Bare::Memory(memory) => {
                memory.0[(at / SEGMENT) as usize].copy_out(at % SEGMENT, out);
                Ok(())
            }
        }
    }
}

struct Pair {
    session: Session,
    workspace: Workspace,
    /// The store's files; `None`: it keeps its bytes in memory.
    data: Option<PathBuf>,
    /// Where the bare side fills files of its own.
    plain: PathBuf,
    /// The bare side's memory, once it is needed.
    memory: Option<Memory>,
    open: Option<(String, Collection)>,
}

impl Pair {
    /// The collection as a step leaves it for the next one.
    fn collection(&mut self, what: &str, name: &str) -> Result<Collection> {
        let c_name = CString::new(name)?;
        let collection = match &self.open {
            Some((is, c)) if is == name => *c,
            _ if what == "first" => self.workspace.create(&NOW, &c_name, None, None)?,
            _ if what == "durable" => {
                let durable = Controls::parse("persistence=durable")?;
                self.workspace.create(&NOW, &c_name, None, Some(&durable))?
            }
            _ => self.workspace.lookup(&NOW, &c_name)?,
        };
        self.open = Some((name.to_owned(), collection));
        Ok(collection)
    }

    /// The bare side's file: of its own for the first write, else the collection's. Of a store in memory it is memory.
    fn bare(&mut self, what: &str, name: &str) -> Result<Bare<'_>> {
        let Some(data) = &self.data else {
            if self.memory.is_none() {
                self.memory = Some(Memory::new(&self.plain)?);
            }
            return self.memory.as_ref().map(Bare::Memory).context("just made");
        };
        let (path, mut options) = (self.plain.join(name), OpenOptions::new());
        let file = match what {
            "first" | "durable" => options.write(true).create_new(true).open(path)?,
            "over" => options.read(true).write(true).open(data_file(data, SCHEDULE.footprint)?)?,
            "read" => options.read(true).open(data_file(data, SCHEDULE.footprint)?)?,
            other => bail!("no step {other}"),
        };
        Ok(Bare::File(file))
    }

    fn close(&mut self) -> Result<()> {
        self.open.take().map_or(Ok(()), |(_, c)| c.close(&NOW))
    }

    fn drop(&mut self, name: &str) -> Result<()> {
        self.close()?;
        self.workspace.delete(&NOW, &CString::new(name)?)?;
        match self.data {
            Some(_) => Ok(fs::remove_file(self.plain.join(name))?),
            None => Ok(()),
        }
    }

    /// Shows all of it, 4 KiB at a time.
    fn views(&mut self, name: &str) -> Result<Value> {
        let collection = self.collection("view", name)?;
        let offsets = || SMALL.turns(0, 0).flat_map(|turn| SMALL.requests(turn.ours));
        let mut views = 0;
        let from = workers::clock();
        for at in offsets() {
            collection.view(at, SMALL.request as usize, FILL)?;
            views += 1;
        }
        Ok(json!({"ours": workers::clock() - from, "views": views}))
    }

    /// One round of one case, in turns.
    fn round(&mut self, buffer: &mut [u8], what: &str, name: &str, round: u64) -> Result<Value> {
        let (what, schedule) = match what.strip_suffix("-4KiB") {
            Some(what) => (what, SMALL),
            None => (what, SCHEDULE),
        };
        let request = schedule.request as usize;
        let buffer = &mut buffer[..request];
        let collection = self.collection(what, name)?;
        let before = self.session.counters()?;
        let session = self.session;
        let bare = self.bare(what, name)?;
        let (mut ours, mut theirs) = match what {
            "read" => schedule.run(
                SCHEDULE.footprint / 2,
                round,
                buffer,
                |buffer, at| {
                    let spot = spoil(buffer, at, 0);
                    let got = collection.read(at, buffer)?;
                    ensure!(got == request && buffer[spot] == FILL, "wrong bytes were read");
                    Ok(())
                },
                |buffer, at| {
                    let spot = spoil(buffer, at, 0);
                    bare.read(buffer, at)?;
                    ensure!(buffer[spot] == FILL, "the bare side brought wrong bytes");
                    Ok(())
                },
            )?,
            _ => {
                // Two files fill from their beginnings; in one file the sides stay apart.
                let ahead = if what != "over" { 0 } else { SCHEDULE.footprint / 2 };
                schedule.run(
                    ahead,
                    round,
                    buffer,
                    |buffer, at| collection.write(at, buffer),
                    |buffer, at| bare.write(buffer, at),
                )?
            }
        };
        if let ("durable", Bare::File(file)) = (what, bare) {
            for is_ours in [round.is_multiple_of(2), !round.is_multiple_of(2)] {
                let from = workers::clock();
                if is_ours {
                    self.close()?
                } else {
                    file.sync_data()?
                }
                *if is_ours { &mut ours } else { &mut theirs } += workers::clock() - from;
            }
        }
        let counters = session.grown(&before)?;
        Ok(json!({"ours": ours, "bare": theirs, "counters": counters}))
    }
}

/// Arguments: URL, workspace, the store's directory of data or `memory`, a directory for plain files. Steps: `first NAME ROUND`,
/// `durable NAME ROUND`, `over NAME ROUND`, `read NAME ROUND`, the last two also with `-4KiB`, `close`, `drop NAME`.
pub(crate) fn worker(args: &[String]) -> Result<()> {
    let [url, ws, data, plain] = args else {
        bail!("a data worker takes a URL, a workspace and the directories of the store's data and of plain files")
    };
    let session = Session::open(url)?;
    let workspace = session.workspace(ws)?;
    let data = (data != IN_MEMORY).then(|| data.into());
    let mut pair = Pair { session, workspace, data, plain: plain.into(), memory: None, open: None };
    let mut memory = Buffer::filled(REQUEST, FILL);
    let buffer = memory.bytes();
    workers::serve(|step| {
        match step.split(' ').collect::<Vec<_>>()[..] {
            ["close"] => pair.close()?,
            ["drop", name] => pair.drop(name)?,
            ["view", name, _] => return pair.views(name),
            [what, name, round] => return pair.round(buffer, what, name, round.parse()?),
            _ => bail!("no step {step:?}"),
        }
        Ok(json!({}))
    })?;
    pair.session.close()
}
