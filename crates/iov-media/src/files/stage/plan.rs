//! What publishing a stage will do, decided before its first byte is applied, so that it can be done again after a crash.

use std::os::fd::AsFd;

use iov_types::{Clause, Error, ExtentKind, Range, Result};

use super::{
    Stage, View,
    log::{self, Kind, RECORD, Record},
    source::Source,
};
use crate::{
    fail,
    files::{
        appends::{Appends, Key},
        body::Body,
        disk::Disk,
        io,
        sidecar::number,
        sums::Touch,
        tree::FileName,
    },
    segments::Wait,
};

/// Most holes of a base that are remembered, to be given back if the stage is dropped after all.
const HOLES: usize = 4096;

/// The plan, as it lies in the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::files) struct Plan {
    /// The length of the base: where its appends begin.
    pub(in crate::files) base: u64,
    /// The length afterwards.
    pub(in crate::files) size: u64,
    /// The version afterwards.
    pub(in crate::files) version: u64,
    /// Whether the image takes the place of the object's file.
    pub(in crate::files) rename: bool,
    /// Places of appends that are not repeated.
    pub(super) skip: Vec<u64>,
    /// How many appends with an identity will be recorded.
    pub(in crate::files) keyed: u64,
    /// Holes of the base that were filled to make room. Not on disk: losing them costs space, no bytes.
    holes: Vec<Range>,
}

impl Plan {
    pub(super) fn read(file: impl AsFd, record: &Record, at: u64) -> Result<Plan> {
        let numbers = record.range.len / 8;
        if numbers < 4 || !record.range.len.is_multiple_of(8) {
            return Err(log::damaged("a plan"));
        }
        let mut bytes = vec![0; record.range.len as usize];
        io::read_exact(file, &mut bytes, at)?.ok_or_else(|| log::damaged("a plan"))?;
        let mut numbers = (0..numbers as usize).map(|i| number(&bytes, 8 * i));
        let mut next = || numbers.next().unwrap_or(0);
        let (base, size, version, rename) = (next(), next(), next(), next() != 0);
        Ok(Plan { base, size, version, rename, skip: numbers.collect(), ..Plan::default() })
    }

    fn bytes(&self) -> Vec<u8> {
        let head = [self.base, self.size, self.version, u64::from(self.rename)];
        head.into_iter().chain(self.skip.iter().copied()).flat_map(u64::to_le_bytes).collect()
    }
}

/// What a plan is made for.
pub(in crate::files) struct Base<'a> {
    pub(in crate::files) exists: bool,
    pub(in crate::files) size: u64,
    pub(in crate::files) version: u64,
    pub(in crate::files) appends: Option<&'a Appends>,
    /// Whether the object is frozen for this stage.
    pub(in crate::files) frozen: bool,
    /// Whether the limit of the length was checked before.
    pub(in crate::files) admitted: bool,
}

impl Stage {
    /// Checks that the base can take everything, makes room, and writes down what will be done (B3).
    /// `waits`: who may still look at what the base has.
    pub(in crate::files) fn prepare(&mut self, disk: &Disk, base: &Base<'_>, waits: &[Wait]) -> Result<()> {
        if self.failed {
            return Err(Error::corrupt("a sync of these staged changes has failed; drop the batch and repeat it")
                .with_clause(Clause::P8));
        }
        if self.plan.is_some() && base.frozen {
            return Ok(()); // nothing can have changed since
        }
        self.plan = None;
        if let Some(appends) = base.appends.filter(|_| self.growth.has_appends) {
            self.drop_repeated(disk, appends)?;
        }
        let view = self.replay(disk, base.size)?;
        let size = view.end;
        let max = if base.admitted { 0 } else { self.max_size };
        if max != 0 && size > max && size > base.size {
            return Err(Error::file_too_big(format!(
                "the object has grown meanwhile: published, it would have {size} bytes, and collection_size.max is {max}"
            ))
            .with_clause(Clause::H1));
        }
        let shown = Range { offset: 0, len: base.size.min(size) };
        let covered = || view.overlay.cover(shown).all(|(_, source)| source.is_some());
        let rename = !base.exists || (!self.imaged.is_empty() && covered());
        let mut plan = Plan {
            base: base.size,
            size,
            version: base.version + 1,
            rename,
            skip: self.skip.clone(),
            keyed: view.appended.len() as u64,
            holes: Vec::new(),
        };
        let target = match plan.rename {
            true => disk.body_or_create(self.image(), self.domain)?,
            false => disk.must_body(FileName::Data(self.object), true)?,
        };
        let room = target.keeping_time(|| make_room(&target, &view, &mut plan));
        let planned = room.and_then(|()| {
            let bytes = plan.bytes();
            let range = Range { offset: 0, len: bytes.len() as u64 };
            self.append_record(
                disk,
                &Record { sum: io::checksum(&bytes), ..Record::plain(Kind::Plan, range) },
                &bytes,
            )?;
            // For the mark that publishing has begun.
            io::make_room(disk.must(self.log(), true)?, Range { offset: self.log_end, len: RECORD })
        });
        match planned {
            Ok(()) => {
                (self.plan, self.froze) = (Some(plan), true);
                Ok(())
            }
            Err(e) => {
                self.give_room_back(disk, &plan, waits.to_vec())?;
                Err(e)
            }
        }
    }

    /// Forgets the plan: something else was lacking.
    pub(in crate::files) fn cancel_plan(&mut self, disk: &Disk, waits: Vec<Wait>) -> Result<()> {
        match self.plan.take() {
            Some(plan) => self.give_room_back(disk, &plan, waits),
            None => Ok(()),
        }
    }

    /// Undoes what `make_room` has done, when the stage is dropped.
    /// Nobody may have leave to move bytes of the base.
    pub(in crate::files) fn give_room_back(&self, disk: &Disk, plan: &Plan, waits: Vec<Wait>) -> Result<()> {
        if plan.rename {
            return Ok(()); // it goes with the image
        }
        let Some(data) = disk.body(FileName::Data(self.object), true)? else { return Ok(()) };
        data.keeping_time(|| {
            for hole in &plan.holes {
                data.punch(*hole, waits.clone())?;
            }
            // Space behind the end.
            data.truncate(data.length()?, waits)
        })
    }

    /// Writes down that publishing begins: from here on it can only be brought to its end.
    pub(in crate::files) fn decide(&mut self, disk: &Disk, durable: bool) -> Result<()> {
        if !self.decided {
            self.append_record(disk, &Record::plain(Kind::Decided, Range::default()), &[])?;
            self.decided = true;
        }
        if durable || self.durable {
            // Else a cut of power could leave bytes of it in the object, and no word of where they belong.
            self.durable = true;
            self.sync(disk).inspect_err(|_| {
                // Nothing was applied, and nothing will be.
                self.decided = !self.take_back_record(disk);
            })?;
        }
        Ok(())
    }

    /// Makes the object's file what the plan says, and tells where appends went. Doing it again is fine.
    /// `waits`: who may still use what it replaces, though nothing of it counts.
    pub(in crate::files) fn apply(&mut self, disk: &Disk, plan: &Plan, waits: Vec<Wait>) -> Result<Vec<(Key, u64)>> {
        let view = self.replay(disk, plan.base)?;
        let data = FileName::Data(self.object);
        if plan.rename {
            // If the image is gone it has its new name already.
            if let Some(image) = disk.body(self.image(), true)? {
                self.lay(disk, &view, plan, (&image, &[]))?;
                image.set_time(None)?;
                if self.durable {
                    image.sync_data()?;
                }
                fail::point("publish.3.applied")?;
                disk.rename(self.image(), data, waits)?;
            }
        } else {
            let body = disk.must_body(data, true)?;
            if body.length()? > plan.base {
                // An append that was cut short, or a part of an earlier attempt.
                body.truncate(plan.base, waits.clone())?;
            }
            self.lay(disk, &view, plan, (&body, &waits))?;
            body.set_time(None)?;
            if self.durable {
                body.sync_data()?;
            }
            fail::point("publish.3.applied")?;
        }
        if self.durable {
            disk.tree.sync_folder(data)?;
        }
        fail::point("publish.4.renamed")?;
        Ok(view.appended)
    }

    /// Which bytes applying the plan changes, and how.
    pub(in crate::files) fn touched(&self, disk: &Disk, plan: &Plan) -> Result<Vec<(Range, Touch)>> {
        let view = self.replay(disk, plan.base)?;
        let mut out: Vec<(Range, Touch)> = Vec::new();
        let cut = Range { offset: plan.size, len: plan.base.saturating_sub(plan.size) };
        let staged =
            view.overlay.cover(Range { offset: 0, len: plan.size }).filter_map(|(range, source)| match source {
                // Nothing of the base is left, where nothing was staged either.
                None => plan.rename.then_some((range, Touch::Clear)),
                Some(Source::Zero) => Some((range, Touch::Clear)),
                Some(_) => Some((range, Touch::Publish)),
            });
        for (range, touch) in staged.chain([(cut, Touch::Clear)]) {
            match out.last_mut() {
                _ if range.len == 0 => {}
                Some((last, how)) if last.end() == range.offset && *how == touch => last.len += range.len,
                _ => out.push((range, touch)),
            }
        }
        Ok(out)
    }

    fn lay(&self, disk: &Disk, view: &View, plan: &Plan, (target, waits): (&Body, &[Wait])) -> Result<()> {
        let log = disk.must(self.log(), true)?;
        let mut verified = None;
        let mut piece = Vec::new();
        for (range, source) in view.overlay.cover(Range { offset: 0, len: plan.size }) {
            match source {
                // An image holds, where nothing was staged, at most the rest of a write that was cut short.
                None if plan.rename => target.punch(range, waits.to_vec())?,
                None => {}
                Some(Source::Zero) => target.punch(range, waits.to_vec())?,
                Some(Source::Image) if plan.rename => {}
                Some(Source::Image) => {
                    let image = disk.must_body(self.image(), true)?;
                    if target.copy_from(&image, range.offset, range.offset, range.len)? < range.len {
                        return Err(log::damaged("an image"));
                    }
                }
                Some(Source::Log { record, within }) => {
                    if verified != Some(record) {
                        log::verify_at(log.as_fd(), record)?;
                        verified = Some(record);
                    }
                    piece.resize(io::PIECE.min(range.len as usize), 0);
                    let mut done = 0;
                    while done < range.len {
                        let n = piece.len().min((range.len - done) as usize);
                        io::read_exact(&log, &mut piece[..n], record + RECORD + within + done)?
                            .ok_or_else(|| log::damaged("a log"))?;
                        target.write_all(&piece[..n], range.offset + done)?;
                        done += n as u64;
                    }
                }
            }
            fail::point("publish.2.half_applied")?;
        }
        if target.length()? != plan.size {
            target.truncate(plan.size, waits.to_vec())?;
        }
        view.reserved.iter().try_for_each(|range| target.make_room(*range))
    }
}

/// Reserves the space that applying the plan will fill.
fn make_room(target: &Body, view: &View, plan: &mut Plan) -> Result<()> {
    let (length, dense) = (target.length()?, target.is_dense()?);
    let mut fill = |range: Range| -> Result<()> {
        if !plan.rename && !dense && plan.holes.len() < HOLES {
            let extents = target.extents(range, length, HOLES - plan.holes.len())?;
            plan.holes.extend(extents.iter().filter(|e| e.kind != ExtentKind::Data).map(|e| e.range));
        }
        target.make_room(range)
    };
    let mut run = Range::default();
    for (range, source) in view.overlay.cover(Range { offset: 0, len: plan.size }) {
        let fills = match source {
            Some(Source::Log { .. }) => true,
            Some(Source::Image) => !plan.rename,
            _ => false,
        };
        if fills && run.end() == range.offset {
            run.len += range.len;
        } else if fills {
            fill(run)?;
            run = range;
        }
    }
    fill(run)?;
    view.reserved.iter().try_for_each(|range| fill(*range))
}
