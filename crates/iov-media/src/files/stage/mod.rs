//! What one batch or publication has staged for one object.
//!
//! Changes go to a log, in order. The bytes of a large write go to the image instead, a sparse file in which they lie at
//! the offset that they will have, unless earlier ones lie there: so each byte of the image is written once. In memory
//! an overlay tells where the newest bytes lie, so that a staged view is read without going through the log again.

pub(super) mod budget;
pub(super) mod log;
pub(super) mod plan;
pub(super) mod source;
mod view;

use std::collections::HashMap;

use iov_store::Overlay;
use iov_types::{Clause, Error, Extent, ExtentKind, ObjectId, ObjectVerb, Range, Result, Uuid};

use super::{
    appends::{Appends, Key},
    disk::Disk,
    io,
    tree::FileName,
};
use crate::fail;
use log::{Kind, RECORD, Record};
use plan::Plan;
use source::Source;
use view::{Growth, View};

/// A write of at least so many bytes goes to the image.
const IMAGE_BYTES: u64 = 16 << 10;

/// Most pieces that the overlay of a stage may have: it lies in memory (B4).
const PIECES: usize = 1 << 22;

/// The staged changes of one object.
pub(super) struct Stage {
    pub(super) id: Uuid,
    pub(super) object: ObjectId,
    /// The protection domain whose space an image takes.
    domain: Uuid,
    /// Where the next record goes.
    log_end: u64,
    /// Bytes of the image that are taken.
    imaged: Overlay<Source>,
    view: View,
    /// The length of the base that `view` is for.
    base: u64,
    growth: Growth,
    /// Places of appends that were published meanwhile in another way and are not repeated (M4).
    skip: Vec<u64>,
    appended: HashMap<Key, u64>,
    max_size: u64,
    /// What it counts against the room of the stage.
    pub(super) cost: u64,
    pub(super) plan: Option<Plan>,
    /// An object was frozen for it, perhaps before changes that came later.
    pub(super) froze: bool,
    /// Publishing has begun: it can only go on.
    pub(super) decided: bool,
    /// All of it is on disk.
    pub(super) synced: bool,
    /// Whether it has ever been synced: publishing it must keep what that has promised (P3).
    pub(super) durable: bool,
    /// A sync has failed (P8).
    pub(super) failed: bool,
}

impl Stage {
    /// An empty stage, which has no file yet.
    pub(super) fn new(id: Uuid, object: ObjectId, base: u64) -> Stage {
        Stage {
            id,
            object,
            domain: Uuid::NIL,
            log_end: 0,
            imaged: Overlay::default(),
            view: View { end: base, ..View::default() },
            base,
            growth: Growth::default(),
            skip: Vec::new(),
            appended: HashMap::new(),
            max_size: 0,
            cost: 0,
            plan: None,
            froze: false,
            decided: false,
            synced: false,
            durable: false,
            failed: false,
        }
    }

    /// The same, with its image in the space of a domain.
    pub(super) fn in_domain(self, domain: Uuid) -> Stage {
        Stage { domain, ..self }
    }

    /// Says it of one that was found by a daemon that did not know it.
    pub(super) fn note_domain(&mut self, domain: Uuid) {
        if self.domain.is_nil() {
            self.domain = domain;
        }
    }

    pub(super) fn log(&self) -> FileName {
        FileName::Log(self.id, self.object)
    }

    pub(super) fn image(&self) -> FileName {
        FileName::Image(self.id, self.object)
    }

    /// Reads what an earlier daemon has staged, and checks its bytes. What it had synced is not known; it counts as
    /// synced, so that nothing it may have promised is broken.
    pub(super) fn load(disk: &Disk, id: Uuid, object: ObjectId, base: u64) -> Result<Stage> {
        let mut stage = Stage { durable: true, ..Stage::new(id, object, base) };
        let file = disk.must(stage.log(), true)?;
        let image = disk.body(stage.image(), true)?;
        let mut records = Vec::new();
        stage.log_end = log::scan(&file, id, object, |place, record| {
            records.push((place, record));
            Ok(())
        })?;
        let decided = records.iter().any(|(_, r)| r.kind == Kind::Decided);
        for (place, record) in records {
            match record.kind {
                Kind::Write { image: false } | Kind::Append => {
                    log::verify(|out, at| io::read_exact(&file, out, at), &record, place + RECORD)?;
                }
                // Once publishing has begun, newer bytes are laid over older ones in the image, or it has its name.
                Kind::Write { image: true } if !decided => {
                    let image = image.as_ref().ok_or_else(|| log::damaged("an image"))?;
                    log::verify(|out, at| image.read_exact(out, at), &record, record.range.offset)?;
                }
                Kind::Plan => {
                    log::verify(|out, at| io::read_exact(&file, out, at), &record, place + RECORD)?;
                    let plan = Plan::read(&file, &record, place + RECORD)?;
                    stage.skip.clone_from(&plan.skip);
                    (stage.plan, stage.froze) = (Some(plan), true);
                    continue;
                }
                Kind::Decided => {
                    stage.decided = true;
                    continue;
                }
                _ => {}
            }
            stage.note(place, &record);
        }
        if stage.decided && stage.plan.is_none() {
            return Err(log::damaged("a log that was decided without a plan"));
        }
        if !stage.skip.is_empty() {
            let mut growth = Growth::default();
            stage.scan(disk, |_, record| growth.change(record))?;
            stage.growth = growth;
            stage.view = stage.replay(disk, base)?;
            let shown: std::collections::HashSet<Key> = stage.view.appended.iter().map(|(key, _)| *key).collect();
            stage.appended.retain(|key, _| shown.contains(key));
        }
        if !disk.tree.read_only {
            // The rest of a record that was cut short.
            io::truncate(&file, stage.log_end)?;
        }
        Ok(stage)
    }

    /// Whether a log that cannot be read ends with the mark that publishing had begun.
    pub(super) fn was_decided(disk: &Disk, id: Uuid, object: ObjectId) -> Result<bool> {
        match disk.get(FileName::Log(id, object), true)? {
            Some(file) => log::ends_decided(file),
            None => Ok(false),
        }
    }

    /// Takes note of a change that is in the log.
    fn note(&mut self, place: u64, record: &Record) {
        let range = record.range;
        self.plan = None;
        self.synced = false;
        self.cost += Stage::cost_of(range.len, record.payload() > 0 || record.kind == Kind::Write { image: true });
        if record.max_size != 0 {
            self.max_size = record.max_size;
        }
        if record.kind == (Kind::Write { image: true }) {
            self.imaged.lay(range, Source::Image);
        }
        if let (Kind::Append, Some(key)) = (record.kind, record.key) {
            self.appended.insert(key, range.offset);
        }
        self.growth.change(record);
        self.view.change(place, record);
    }

    /// What a change counts: its bytes, and its record.
    fn cost_of(len: u64, has_bytes: bool) -> u64 {
        RECORD + if has_bytes { len } else { 0 }
    }

    /// What a change would count against the room of the stage.
    pub(super) fn cost_of_change(verb: &ObjectVerb, len: usize) -> u64 {
        Stage::cost_of(len as u64, matches!(verb, ObjectVerb::Write { .. } | ObjectVerb::Append))
    }

    /// Adds a change that changes something, and tells where it went on a base of `base` bytes.
    pub(super) fn push(
        &mut self,
        disk: &Disk,
        base: u64,
        verb: &ObjectVerb,
        data: &[u8],
        key: Option<Key>,
        max_size: u64,
    ) -> Result<u64> {
        if self.failed {
            return Err(Error::corrupt("a sync of these staged changes has failed; drop the batch and repeat it")
                .with_clause(Clause::P8));
        }
        if self.decided {
            return Err(Error::conflict("the batch is being published; use a new one").with_clause(Clause::B3));
        }
        if self.view.overlay.len() >= PIECES {
            let why = format!("a stage of {PIECES} pieces is full: commit in between, or write larger pieces");
            return Err(Error::too_big(why).with_clause(Clause::B4));
        }
        self.rebase(disk, base)?;
        fail::point("stage.0.begin")?;
        if self.log_end == 0 {
            let file = disk.get_or_create(self.log())?;
            io::write_all(&file, &log::header(self.id, self.object), 0)?;
            self.log_end = RECORD;
        }
        let range = |offset| Range { offset, len: data.len() as u64 };
        let (kind, range) = match verb {
            ObjectVerb::Write { offset } => {
                let range = range(*offset);
                (Kind::Write { image: range.len >= IMAGE_BYTES && !self.imaged.touches(range) }, range)
            }
            // Where it would go now: what its repetition hears, also after a restart.
            ObjectVerb::Append => (Kind::Append, range(self.view.end)),
            ObjectVerb::Truncate { size } => (Kind::Truncate, Range { offset: *size, len: 0 }),
            ObjectVerb::Punch(range) => (Kind::Punch, *range),
            ObjectVerb::Allocate { range, keep_size } => (Kind::Allocate { keep_size: *keep_size }, *range),
            _ => return Err(Error::internal("not a change")),
        };
        if kind == (Kind::Write { image: true }) {
            let image = disk.body_or_create(self.image(), self.domain)?;
            if fail::is_armed("stage.1.half_written") {
                image.write_all(&data[..data.len() / 2], range.offset)?;
                fail::point("stage.1.half_written")?;
            }
            image.write_all(data, range.offset).map_err(|e| e.with_outcome(iov_types::Outcome::NotApplied))?;
        }
        let record = Record { kind, range, key, max_size, sum: io::checksum(data) };
        let logged = if record.payload() > 0 { data } else { &[] };
        self.append_record(disk, &record, logged)?;
        fail::point("stage.2.written")?;
        self.note(self.log_end - RECORD - record.payload(), &record);
        Ok(range.offset)
    }

    /// Writes a record behind the last one; on an error the log is as it was.
    fn append_record(&mut self, disk: &Disk, record: &Record, payload: &[u8]) -> Result<()> {
        let file = disk.must(self.log(), true)?;
        let header = record.encode(self.log_end);
        // The record before its bytes: one that is cut short then reaches behind the end, and is known by that.
        let written = if payload.len() < io::PIECE / 16 {
            io::write_all(&file, &[&header, payload].concat(), self.log_end)
        } else {
            io::write_all(&file, &header, self.log_end)
                .and_then(|()| io::write_all(&file, payload, self.log_end + RECORD))
        };
        if let Err(e) = written {
            io::truncate(&file, self.log_end)?;
            return Err(e.with_outcome(iov_types::Outcome::NotApplied));
        }
        self.log_end += RECORD + record.payload();
        self.synced = false;
        Ok(())
    }

    /// Takes the last record back, which had no bytes; whether that was possible.
    fn take_back_record(&mut self, disk: &Disk) -> bool {
        let before = self.log_end - RECORD;
        let done = disk.must(self.log(), true).and_then(|file| io::truncate(file, before)).is_ok();
        if done {
            self.log_end = before;
        }
        done
    }

    /// Lays the appends behind a base of another length.
    fn rebase(&mut self, disk: &Disk, base: u64) -> Result<()> {
        if base == self.base {
            return Ok(());
        }
        self.base = base;
        if self.growth.has_appends {
            self.view = self.replay(disk, base)?;
        } else {
            self.view.end = self.growth.size(base);
        }
        Ok(())
    }

    /// Goes through the log again for a base of `base` bytes.
    fn replay(&self, disk: &Disk, base: u64) -> Result<View> {
        let mut view = View { end: base, ..View::default() };
        self.scan(disk, |place, record| view.change(place, record))?;
        Ok(view)
    }

    /// Calls `found` with each change that counts, in order.
    fn scan(&self, disk: &Disk, mut found: impl FnMut(u64, &Record)) -> Result<()> {
        let file = disk.must(self.log(), true)?;
        log::scan(&file, self.id, self.object, |place, record| {
            if self.skip.binary_search(&place).is_err() {
                found(place, &record);
            }
            Ok(())
        })
        .map(drop)
    }

    /// Leaves out appends that were published meanwhile through another stage, or without any: each appears once (M4).
    fn drop_repeated(&mut self, disk: &Disk, appends: &Appends) -> Result<()> {
        let mut repeated = Vec::new();
        self.scan(disk, |place, record| {
            if let (Kind::Append, Some(key)) = (record.kind, record.key)
                && appends.find(&key).is_some()
            {
                repeated.push((place, key));
            }
        })?;
        if repeated.is_empty() {
            return Ok(());
        }
        for (place, key) in repeated {
            self.skip.push(place);
            self.appended.remove(&key);
        }
        self.skip.sort_unstable();
        let mut growth = Growth::default();
        self.scan(disk, |_, record| growth.change(record))?;
        self.growth = growth;
        self.view = self.replay(disk, self.base)?;
        Ok(())
    }

    /// Where an append already lies, as far as it was told.
    pub(super) fn appended(&self, key: &Key) -> Option<u64> {
        self.appended.get(key).copied()
    }

    /// Whether nothing was staged.
    pub(super) fn is_empty(&self) -> bool {
        self.log_end == 0
    }

    /// The length that a base of `base` bytes will have.
    pub(super) fn size(&self, base: u64) -> u64 {
        self.growth.size(base)
    }

    /// Reads as if it were published; `read_base` fills from the base, short at its end.
    pub(super) fn read(
        &mut self,
        disk: &Disk,
        base: u64,
        offset: u64,
        out: &mut [u8],
        read_base: impl Fn(u64, &mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        self.rebase(disk, base)?;
        let len = self.size(base).saturating_sub(offset).min(out.len() as u64);
        for (range, source) in self.view.overlay.cover(Range { offset, len }) {
            let to = &mut out[(range.offset - offset) as usize..][..range.len as usize];
            let short = match source {
                Some(Source::Zero) => 0,
                None => read_base(range.offset, to)?,
                Some(Source::Image) => disk.must_body(self.image(), true)?.read(to, range.offset)?,
                Some(Source::Log { record, within }) => {
                    io::read(disk.must(self.log(), true)?, to, record + RECORD + within)?
                }
            };
            to[short..].fill(0);
        }
        Ok(len as usize)
    }

    /// Data and holes as if it were published; `base_extents` tells those of the base.
    pub(super) fn extents(
        &mut self,
        disk: &Disk,
        base: u64,
        range: Range,
        max: usize,
        base_extents: impl Fn(Range) -> Result<Vec<Extent>>,
    ) -> Result<Vec<Extent>> {
        self.rebase(disk, base)?;
        let mut out = Vec::new();
        let Some(range) = range.intersect(&Range { offset: 0, len: self.size(base) }) else { return Ok(out) };
        for (piece, source) in self.view.overlay.cover(range) {
            match source {
                Some(Source::Zero) => io::push_extent(&mut out, piece, ExtentKind::Hole),
                Some(_) => io::push_extent(&mut out, piece, ExtentKind::Data),
                None => {
                    let mut at = piece.offset;
                    for e in base_extents(piece)? {
                        io::push_extent(&mut out, e.range, e.kind);
                        at = e.range.end();
                    }
                    io::push_extent(&mut out, Range { offset: at, len: piece.end() - at }, ExtentKind::Hole);
                }
            }
            if out.len() > max {
                break; // the last one may still grow, the one behind `max` does not matter
            }
        }
        out.truncate(max);
        Ok(out)
    }

    /// Makes everything staged survive power loss.
    pub(super) fn sync(&mut self, disk: &Disk) -> Result<()> {
        if self.synced || self.is_empty() {
            return Ok(());
        }
        let synced = fail::point("sync.stage").and_then(|()| {
            if let Some(image) = disk.body(self.image(), true)? {
                image.sync_data()?;
            }
            io::sync_data(disk.must(self.log(), true)?)?;
            disk.tree.sync_folder(self.log())
        });
        match synced {
            Ok(()) => (self.synced, self.durable) = (true, true),
            Err(_) => self.failed = true,
        }
        synced.map_err(|e| e.with_clause(Clause::P8))
    }

    /// Removes its files: the log first, as an image means nothing without it.
    pub(super) fn remove(&self, disk: &Disk) -> Result<()> {
        disk.remove(self.log())?;
        fail::point("publish.7.half_removed")?;
        disk.remove(self.image())?;
        Ok(())
    }
}
