//! Several targets as one: what concerns a collection as a whole goes to the objects that its [`Place`] names.
//!
//! Above it there is one object for each collection, whose name says where it lies; below it each target has its part. A
//! collection in the default place goes to the first target as it is.
//!
//! Operations on one collection keep their order: parts of them go to each target in the order of the submission, and what
//! takes several steps (a copy between targets, a cut of many objects) waits for what is before it.

mod chain;
mod copy;
mod cut;
mod gather;
mod grow;
mod read;
mod run;
mod seal;
mod shape;
mod split;
mod table;
mod versions;

use std::sync::{Arc, OnceLock};

use iov_layout::Stripes;
use iov_types::{Capability, Error, ObjectId, Place, Range, Result, Uuid, catalog::Staged};

use crate::{AtOnce, Backend, LentFile, Now, OpCx, Shown, Sink, Submitted};
use run::Run;
use table::{Lined, Table};
use versions::Versions;

/// Called once with what came of a publication.
pub type OnPublished = Box<dyn FnOnce(Result<()>) + Send>;

/// Has what is staged at several targets shown in one step, which only the catalog can.
pub trait Publisher: Send + Sync {
    /// Publishes a stage. If it fails without effect, the stage has been dropped.
    fn publish(&self, cx: &OpCx, stage: Uuid, staged: Staged, done: OnPublished);
}

/// The targets of a store as one. Clones are the same.
#[derive(Clone)]
pub struct Spread(Arc<Inner>);

pub(crate) struct Inner {
    capability: Capability,
    first: Arc<dyn Backend>,
    table: Table,
    publisher: OnceLock<Box<dyn Publisher>>,
    seen: Versions,
    cut_off: seal::CutOff,
}

/// Most pieces that are moved at once before other requests have a turn.
const PIECES_AT_ONCE: usize = 64;

impl Spread {
    /// A store whose first target is `first`, and which can do what `capability` says: somewhere.
    pub fn new(first: Arc<dyn Backend>, capability: Capability) -> Spread {
        let table = Table::with_first(first.clone());
        let (publisher, seen, cut_off) = Default::default();
        Spread(Arc::new(Inner { capability, first, table, publisher, seen, cut_off }))
    }

    /// Says how something is published at several targets at once; without it such changes are made one after the other, which
    /// suits who is alone with what it changes.
    pub fn publish_by(&self, publisher: Box<dyn Publisher>) {
        let _ = self.0.publisher.set(publisher);
    }

    /// Makes a target known and what it can do, or another way to it.
    pub fn add_target(&self, number: u32, backend: Arc<dyn Backend>, capability: Capability) {
        self.0.table.add_target(number, backend, capability);
    }

    /// Makes a pattern known.
    pub fn add_pattern(&self, number: u32, targets: Vec<u32>) {
        self.0.table.add_pattern(number, targets);
    }

    /// Whether a pattern is known.
    pub fn knows_pattern(&self, number: u32) -> bool {
        self.0.table.knows_pattern(number)
    }

    /// Whether a target is.
    pub fn knows_target(&self, number: u32) -> bool {
        self.0.table.target(number).is_some()
    }

    /// A target by its number.
    pub fn target(&self, number: u32) -> Option<Arc<dyn Backend>> {
        self.0.table.target(number)
    }

    /// What all targets of a place can do.
    pub fn capability_at(&self, place: Place) -> Result<Capability> {
        if place.is_first() {
            return Ok(self.0.table.capability(0).unwrap_or_else(|| self.0.capability.clone()));
        }
        let (lined, _) = self.0.lined(place)?;
        Ok(common(lined.capabilities.iter()))
    }
}

/// What all of several targets can do.
fn common<'a>(all: impl Iterator<Item = &'a Capability>) -> Capability {
    let both = |a: Capability, b: &Capability| Capability {
        medium: if a.medium == b.medium { a.medium } else { Capability::SEVERAL },
        durability: a.durability.min(b.durability),
        max_unit: a.max_unit.min(b.max_unit),
        staging: a.staging && b.staging,
        stage_bytes: a.stage_bytes.min(b.stage_bytes),
        once: a.once && b.once,
        bursty: a.bursty && b.bursty,
        targets: a.targets + 1,
        incarnation: a.incarnation.max(b.incarnation),
    };
    let one = |c: &Capability| Capability { targets: 1, ..c.clone() };
    all.fold(None, |sum: Option<Capability>, c| Some(sum.map_or_else(|| one(c), |sum| both(sum, c))))
        .expect("a pattern has a target")
}

impl Inner {
    /// The targets of a place, and how bytes are spread over them.
    fn lined(&self, place: Place) -> Result<(Arc<Lined>, Stripes)> {
        let lined = self.table.line(place.pattern())?;
        let stripes = Stripes::new(lined.backends.len(), place.chunk());
        Ok((lined, stripes))
    }

    fn at_once(&self, object: ObjectId, place: Place, epoch: u64, offset: u64, bytes: Now<'_>) -> AtOnce {
        let Ok((lined, stripes)) = self.lined(place) else { return AtOnce::No };
        let part = |index: usize| (&lined.backends[index], Place::part(object.collection, index));
        if lined.backends.len() == 1 {
            let (backend, object) = part(0);
            return backend.at_once(object, epoch, offset, bytes);
        }
        let len = match &bytes {
            Now::Write(bytes) => bytes.len(),
            Now::Read(bytes) => bytes.len(),
        };
        let Ok(range) = Range::new(offset, len as u64) else { return AtOnce::No };
        if len == 0 || stripes.pieces(range).nth(PIECES_AT_ONCE).is_some() {
            return AtOnce::No;
        }
        if matches!(bytes, Now::Read(_)) && stripes.pieces(range).nth(1).is_some() {
            // Whether all pieces are of one publication, their versions tell.
            return AtOnce::No;
        }
        let mut done = 0;
        let mut bytes = bytes;
        for piece in stripes.pieces(range) {
            let (backend, object) = part(piece.index);
            let from = (piece.offset - offset) as usize;
            let to = from + piece.len as usize;
            let (now, writes) = match &mut bytes {
                Now::Write(bytes) => (Now::Write(&bytes[from..to]), true),
                Now::Read(bytes) => (Now::Read(&mut bytes[from..to]), false),
            };
            match backend.at_once(object, epoch, piece.local, now) {
                AtOnce::Done(Ok(n)) if n == piece.len => done += n,
                // Short: whether that is the end, the others know.
                AtOnce::Done(Ok(_)) if !writes => return AtOnce::No,
                AtOnce::Done(Err(e)) if done == 0 || !writes => return AtOnce::Done(Err(e)),
                AtOnce::Done(_) | AtOnce::Perhaps => return AtOnce::Perhaps,
                AtOnce::No => return if writes && done > 0 { AtOnce::Perhaps } else { AtOnce::No },
            }
        }
        AtOnce::Done(Ok(done))
    }

    /// The one target that all bytes of an object lie on, and what they are called there.
    fn only(&self, object: ObjectId) -> Result<(Arc<dyn Backend>, ObjectId)> {
        let Some(place) = Place::of(object) else { return Ok((self.first.clone(), object)) };
        let (lined, stripes) = self.lined(place)?;
        match &lined.backends[..] {
            [backend] if stripes.width() == 1 => Ok((backend.clone(), Place::part(object.collection, 0))),
            _ => Err(Error::unsupported("these bytes lie on several targets")),
        }
    }

    fn show(&self, object: ObjectId, place: Place, epoch: u64, range: Range) -> Shown {
        let Ok((lined, stripes)) = self.lined(place) else { return Shown::Never };
        let Some(piece) = stripes.pieces(range).next() else { return Shown::Never };
        let local = Range { offset: piece.local, len: piece.len };
        let shown = lined.backends[piece.index].show(Place::part(object.collection, piece.index), epoch, local);
        match shown {
            // Nothing lies there: whether it is a hole or the end, a read tells.
            Shown::Here(viewed) | Shown::Unchecked(viewed) if lined.backends.len() > 1 && viewed.is_empty() => {
                Shown::Never
            }
            shown => shown,
        }
    }
}

impl Backend for Spread {
    fn capability(&self) -> &Capability {
        &self.0.capability
    }

    fn capability_of(&self, object: ObjectId) -> Capability {
        let place = Place::of(object).unwrap_or_default();
        // Of what nobody knows, somebody else will complain.
        self.capability_at(place).unwrap_or_else(|_| self.0.capability.clone())
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        if ops.iter().all(|(op, _)| split::is_at_first(op)) {
            return self.0.first.submit(cx, ops, sink);
        }
        Run::start(&self.0, cx, ops, sink);
    }

    fn at_once(&self, object: ObjectId, epoch: u64, offset: u64, bytes: Now<'_>) -> AtOnce {
        match Place::of(object) {
            None => self.0.first.at_once(object, epoch, offset, bytes),
            Some(place) => self.0.at_once(object, place, epoch, offset, bytes),
        }
    }

    fn show(&self, object: ObjectId, epoch: u64, range: Range) -> Shown {
        match Place::of(object) {
            None => self.0.first.show(object, epoch, range),
            Some(place) => self.0.show(object, place, epoch, range),
        }
    }

    fn lend(&self, cx: &OpCx, object: ObjectId, epoch: u64) -> Result<Box<dyn LentFile>> {
        let (backend, object) = self.0.only(object)?;
        backend.lend(cx, object, epoch)
    }

    fn lend_to_write(&self, cx: &OpCx, object: ObjectId, epoch: u64) -> Result<Box<dyn LentFile>> {
        let (backend, object) = self.0.only(object)?;
        backend.lend_to_write(cx, object, epoch)
    }

    fn closed(&self, object: ObjectId) {
        let Some(place) = Place::of(object) else { return self.0.first.closed(object) };
        let Ok((lined, _)) = self.0.lined(place) else { return };
        for (index, backend) in lined.backends.iter().enumerate() {
            backend.closed(Place::part(object.collection, index));
        }
    }

    fn may_wait(&self) -> bool {
        self.0.table.may_wait()
    }
}

#[cfg(test)]
mod tests;
