//! What a target answers, said as plainly as possible.
//!
//! Where several things are wrong with one operation, it fails by the first of: a freeze that is in its way, its epoch,
//! the seal, its range, `max_size`.

use std::collections::BTreeMap;

use iov_types::{Demand, Extent, ExtentKind, Kind, ObjectId, ObjectOp, ObjectVerb, Range, Uuid};

use crate::content::Content;

/// What of the evidence the model foretells. `None` where an answer is free.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reply {
    /// Bytes moved.
    pub bytes: Option<u64>,
    /// Where an append went.
    pub offset: Option<u64>,
    /// Length afterwards.
    pub size: Option<u64>,
    /// Version afterwards; of a freeze the version to come.
    pub version: Option<u64>,
    /// Epoch afterwards.
    pub epoch: Option<u64>,
    /// What was read.
    pub read: Option<Vec<u8>>,
    /// What the extents are.
    pub extents: Option<Vec<Extent>>,
}

type Key = (Uuid, u64);

#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Append(Vec<u8>, Option<Key>),
    Truncate(u64),
    Punch(Range),
    Allocate(Range, bool),
}

#[derive(Clone, Default)]
struct Stage {
    changes: Vec<Change>,
    told: BTreeMap<Key, u64>,
    max_size: u64,
}

#[derive(Clone, Default)]
struct Object {
    content: Content,
    version: u64,
    epoch: u64,
    sealed: bool,
    frozen: Option<Uuid>,
    stages: BTreeMap<Uuid, Stage>,
    appended: BTreeMap<Key, u64>,
    /// Whether a list must name it; else it may.
    made: bool,
}

/// A target in a few hundred lines.
#[derive(Clone, Default)]
pub struct Model {
    objects: BTreeMap<ObjectId, Object>,
    /// All that an object has is data.
    dense: bool,
}

fn apply(content: &mut Content, change: &Change) {
    match change {
        Change::Write(offset, data) => content.write(*offset, data),
        Change::Append(data, _) => content.write(content.size(), data),
        Change::Truncate(size) => content.truncate(*size),
        Change::Punch(range) => content.punch(*range),
        Change::Allocate(range, keep_size) => content.allocate(*range, *keep_size),
    }
}

fn in_reach(range: Range) -> Result<(), Kind> {
    Range::new(range.offset, range.len).map(|_| ()).map_err(|e| e.kind())
}

impl Object {
    /// The content as a stage sees it.
    fn view(&self, stage: Option<Uuid>) -> Content {
        let mut content = self.content.clone();
        for change in stage.and_then(|s| self.stages.get(&s)).map_or(&[][..], |s| &s.changes) {
            apply(&mut content, change);
        }
        content
    }

    fn reply(&self, stage: Option<Uuid>) -> Reply {
        let size = if stage.is_some_and(|s| self.stages.contains_key(&s)) {
            self.view(stage).size()
        } else {
            self.content.size()
        };
        Reply { size: Some(size), version: Some(self.version), epoch: Some(self.epoch), ..Reply::default() }
    }

    fn pass(&self, stage: Option<Uuid>) -> Result<(), Kind> {
        if self.frozen.is_none() || self.frozen == stage { Ok(()) } else { Err(Kind::Timeout) }
    }

    fn check_epoch(&self, demand: &Demand) -> Result<(), Kind> {
        if demand.epoch == 0 || demand.epoch >= self.epoch { Ok(()) } else { Err(Kind::Fenced) }
    }

    fn check_change(&self, demand: &Demand) -> Result<(), Kind> {
        self.check_epoch(demand)?;
        if self.sealed { Err(Kind::Immutable) } else { Ok(()) }
    }

    /// Whether a stage could be published now. Appends that came another way meanwhile are left out first.
    fn check_stage(&mut self, stage: Uuid) -> Result<(), Kind> {
        let Some(staged) = self.stages.get_mut(&stage) else { return Ok(()) };
        let known = &self.appended;
        staged.changes.retain(|c| !matches!(c, Change::Append(_, Some(key)) if known.contains_key(key)));
        staged.told.retain(|key, _| !known.contains_key(key));
        let staged = staged.clone();
        let end = self.view(Some(stage)).size();
        let too_big = staged.max_size != 0 && end > staged.max_size && end > self.content.size();
        if too_big { Err(Kind::FileTooBig) } else { Ok(()) }
    }

    fn publish(&mut self, stage: Uuid) {
        let Some(staged) = self.stages.remove(&stage) else { return };
        self.version += 1;
        for change in staged.changes {
            if let Change::Append(_, Some(key)) = &change {
                self.appended.insert(*key, self.content.size());
            }
            apply(&mut self.content, &change);
        }
    }

    fn change(&mut self, op: &ObjectOp, data: &[u8]) -> Result<Reply, Kind> {
        let stage = op.demand.stage;
        self.pass(stage)?;
        self.check_epoch(&op.demand)?;
        let key = op.demand.batch.filter(|_| op.verb == ObjectVerb::Append);
        let bytes = data.len() as u64;
        if let Some(key) = key {
            let staged = stage.and_then(|s| self.stages.get(&s)).and_then(|s| s.told.get(&key));
            if let Some(offset) = staged.or(self.appended.get(&key)) {
                return Ok(Reply { bytes: Some(bytes), offset: Some(*offset), ..self.reply(stage) });
            }
        }
        self.check_change(&op.demand)?;
        let before = self.view(stage).size();
        let mut offset = None;
        let change = match &op.verb {
            ObjectVerb::Write { offset } => {
                in_reach(Range { offset: *offset, len: bytes })?;
                Change::Write(*offset, data.to_vec())
            }
            ObjectVerb::Append => {
                offset = Some(before);
                Change::Append(data.to_vec(), key)
            }
            ObjectVerb::Truncate { size } => {
                in_reach(Range { offset: *size, len: 0 })?;
                Change::Truncate(*size)
            }
            ObjectVerb::Punch(range) => {
                in_reach(*range)?;
                Change::Punch(*range)
            }
            ObjectVerb::Allocate { range, keep_size } => {
                in_reach(*range)?;
                Change::Allocate(*range, *keep_size)
            }
            other => panic!("{other:?} is not a change"),
        };
        let mut after = self.view(stage);
        apply(&mut after, &change);
        if op.demand.max_size != 0 && after.size() > op.demand.max_size && after.size() > before {
            return Err(Kind::FileTooBig);
        }
        let empty = match &change {
            Change::Write(_, data) | Change::Append(data, _) => data.is_empty(),
            Change::Punch(range) | Change::Allocate(range, _) => range.len == 0,
            Change::Truncate(_) => false,
        };
        match stage {
            _ if empty => {}
            Some(stage) => {
                let staged = self.stages.entry(stage).or_default();
                staged.changes.push(change);
                staged.told.extend(key.map(|k| (k, before)));
                if op.demand.max_size != 0 {
                    staged.max_size = op.demand.max_size;
                }
            }
            None => {
                self.made = true;
                self.content = after;
                self.appended.extend(key.map(|k| (k, before)));
            }
        }
        Ok(Reply { bytes: Some(bytes), offset, ..self.reply(stage) })
    }
}

/// All of a range, as far as there are bytes.
fn one_extent(range: Range, size: u64, max: usize) -> Vec<Extent> {
    let data = range.intersect(&Range { offset: 0, len: size }).filter(|range| range.len > 0 && max > 0);
    data.map(|range| Extent { range, kind: ExtentKind::Data, target: 0 }).into_iter().collect()
}

impl Model {
    /// Of a target that knows no holes.
    pub fn dense() -> Model {
        Model { dense: true, ..Model::default() }
    }

    /// Does one operation; `data` is what to write, or as long as what to read.
    pub fn apply(&mut self, op: &ObjectOp, data: &[u8]) -> Result<Reply, Kind> {
        let stage = op.demand.stage;
        let missing = !self.objects.contains_key(&op.object);
        let dense = self.dense;
        match &op.verb {
            ObjectVerb::Create => {
                self.objects.entry(op.object).or_default().made = true;
                Ok(Reply::default())
            }
            ObjectVerb::Read { .. }
            | ObjectVerb::Stat
            | ObjectVerb::Sync
            | ObjectVerb::Extents { .. }
            | ObjectVerb::Publish { .. }
            | ObjectVerb::Discard { .. }
            | ObjectVerb::Thaw { .. }
            | ObjectVerb::Remove
                if missing =>
            {
                let nothing = Reply { size: Some(0), version: Some(0), epoch: Some(0), ..Reply::default() };
                Ok(match op.verb {
                    ObjectVerb::Read { .. } => Reply { bytes: Some(0), read: Some(vec![]), ..nothing },
                    ObjectVerb::Extents { .. } => Reply { extents: Some(vec![]), ..nothing },
                    _ => nothing,
                })
            }
            ObjectVerb::Copy { source, source_offset, offset, len } => self.copy(
                op,
                *source,
                Range { offset: *source_offset, len: *len },
                Range { offset: *offset, len: *len },
            ),
            _ => {
                let object = self.objects.entry(op.object).or_default();
                match &op.verb {
                    ObjectVerb::Read { offset } => {
                        object.pass(stage)?;
                        object.check_epoch(&op.demand)?;
                        let read = object.view(stage).read(*offset, data.len());
                        Ok(Reply { bytes: Some(read.len() as u64), read: Some(read), ..object.reply(stage) })
                    }
                    ObjectVerb::Stat | ObjectVerb::Sync => {
                        object.pass(stage)?;
                        object.check_epoch(&op.demand)?;
                        Ok(object.reply(stage))
                    }
                    ObjectVerb::Extents { range, max } => {
                        object.pass(stage)?;
                        object.check_epoch(&op.demand)?;
                        let view = object.view(stage);
                        let extents = match (dense, stage) {
                            (false, _) => Some(view.extents(*range, *max)),
                            (true, None) => Some(one_extent(*range, view.size(), *max)),
                            // What is staged may have holes, what it is laid over has none.
                            (true, Some(_)) => None,
                        };
                        Ok(Reply { extents, ..object.reply(stage) })
                    }
                    ObjectVerb::Freeze { stage } => {
                        object.pass(Some(*stage))?;
                        object.check_change(&op.demand)?;
                        object.check_stage(*stage)?;
                        object.frozen = Some(*stage);
                        let version = object.version + u64::from(object.stages.contains_key(stage));
                        Ok(Reply { version: Some(version), ..object.reply(Some(*stage)) })
                    }
                    // Nothing of it is left to be shown: no other batch's freeze is in its way.
                    ObjectVerb::Publish { stage }
                        if !object.stages.contains_key(stage) && object.frozen != Some(*stage) =>
                    {
                        Ok(object.reply(None))
                    }
                    ObjectVerb::Publish { stage } => {
                        object.pass(Some(*stage))?;
                        if object.frozen.is_none() && object.stages.contains_key(stage) {
                            object.check_change(&op.demand)?;
                            object.check_stage(*stage)?;
                        }
                        object.made |= object.stages.contains_key(stage);
                        object.publish(*stage);
                        object.frozen = None;
                        Ok(object.reply(None))
                    }
                    ObjectVerb::Discard { stage } => {
                        object.stages.remove(stage);
                        object.frozen = object.frozen.filter(|s| s != stage);
                        Ok(object.reply(None))
                    }
                    ObjectVerb::Thaw { stage } => {
                        object.frozen = object.frozen.filter(|s| s != stage);
                        Ok(object.reply(None))
                    }
                    ObjectVerb::Seal => {
                        object.pass(op.demand.stage)?;
                        object.check_epoch(&op.demand)?;
                        if op.demand.stage.is_some_and(|stage| object.stages.contains_key(&stage)) {
                            return Err(Kind::Invalid);
                        }
                        (object.sealed, object.made) = (true, true);
                        Ok(object.reply(None))
                    }
                    ObjectVerb::Fence { epoch } => {
                        object.pass(None)?;
                        object.check_epoch(&op.demand)?;
                        if *epoch < object.epoch {
                            return Err(Kind::Conflict);
                        }
                        (object.epoch, object.made) = (*epoch, true);
                        Ok(object.reply(None))
                    }
                    ObjectVerb::Remove => {
                        object.check_epoch(&op.demand)?;
                        self.objects.remove(&op.object);
                        Ok(Reply::default())
                    }
                    _ => object.change(op, data),
                }
            }
        }
    }

    fn copy(&mut self, op: &ObjectOp, source: ObjectId, from: Range, to: Range) -> Result<Reply, Kind> {
        in_reach(from)?;
        in_reach(to)?;
        if source == op.object && from.overlaps(&to) {
            return Err(Kind::Invalid);
        }
        let data = match self.objects.get(&source) {
            Some(source) => {
                source.pass(op.demand.stage)?;
                source.view(op.demand.stage).read(from.offset, from.len as usize)
            }
            None => vec![],
        };
        let write = ObjectOp { verb: ObjectVerb::Write { offset: to.offset }, ..op.clone() };
        self.objects.entry(op.object).or_default().change(&write, &data)
    }

    /// Objects that a list must name, and objects that it may name.
    pub fn listed(&self) -> (Vec<ObjectId>, Vec<ObjectId>) {
        let made = self.objects.iter().filter(|(_, o)| o.made).map(|(id, _)| *id).collect();
        (made, self.objects.keys().copied().collect())
    }

    /// Which stages an object has, and whether one of them has frozen it.
    pub fn stages(&self, id: ObjectId) -> (Vec<Uuid>, Option<Uuid>) {
        self.objects.get(&id).map_or((vec![], None), |o| (o.stages.keys().copied().collect(), o.frozen))
    }
}
