//! Bytes that have an identity and nothing else: segments, which are made, filled, read and removed as memory is, by whatever
//! process of the workspace knows their id.
//!
//! The group [`SEGMENTS`] of a workspace holds them, as collections whose name is the id. So everything that is promised of
//! collections is promised of segments, and every tool that knows those can look at these.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use iov_engine::{Collection, Op, Parent, Workspace, run};
use iov_store::{Viewed, seam};
use iov_types::{
    Atomicity, Consistency, Controls, EntryKind, Error, Kind, Limits, Metadata, Name, Point, Range, Result, Uuid,
    Value, Which, catalog::SearchSpec,
};

use crate::{commit, create, create_group, find, read_at, write_at};

#[cfg(test)]
mod tests;

/// The group that holds the segments of a workspace.
pub const SEGMENTS: &str = ".segments";

/// Handles kept open.
const OPEN: usize = 1024;
/// Results taken at a time.
const PAGE: usize = 1024;

/// The segments of a workspace. Any thread may use it.
pub struct Segments {
    ws: Workspace,
    group: Collection,
    open: Mutex<HashMap<Uuid, Collection>>,
}

fn name(id: Uuid) -> String {
    id.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn id_of(name: &[u8]) -> Option<Uuid> {
    let digits = std::str::from_utf8(name).ok().filter(|text| text.len() == 32)?;
    let number = u128::from_str_radix(digits, 16).ok()?;
    // Exactly one name for each: no capitals, no signs.
    let id = Uuid(number.to_be_bytes());
    (self::name(id) == digits).then_some(id)
}

fn group_of(ws: &Workspace) -> Result<Collection> {
    let open = || {
        let out = ws.pending(EntryKind::Group);
        let (which, controls) = (Which::Name(Name::new(SEGMENTS)?), Controls::default());
        run(ws.session(), Op::Open { out: out.clone(), parent: None, which, controls }).map(|_| out)
    };
    match open() {
        Err(e) if e.kind() == Kind::NotFound => match create_group(ws, None, SEGMENTS) {
            // Another process was faster.
            Err(e) if e.kind() == Kind::Exists => open(),
            made => made,
        },
        opened => opened,
    }
}

impl Segments {
    /// Those of a workspace; the group that holds them is made if there is none.
    pub fn of(ws: &Workspace) -> Result<Segments> {
        Ok(Segments { ws: ws.clone(), group: group_of(ws)?, open: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Collection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a segment of `len` bytes, all zeros, and reserves its space; its id. As memory, it is `consistency=sequential`
    /// unless `controls` say otherwise: a put is seen by every get that begins after it, and survives what was asked for when it
    /// returns.
    ///
    /// Errors: `Invalid` for no bytes, for `atomicity=publication` and for persistence at close or when asked; `Exhausted` if
    /// there is no room for all of it; then there is no segment.
    pub fn create(&self, len: u64, controls: &Controls) -> Result<Uuid> {
        if len == 0 {
            return Err(Error::invalid("a segment has at least one byte"));
        }
        let id = seam::new_uuid();
        let size = Limits { min: 0, max: len };
        let c = self.make(id, Controls { collection_size: size, ..controls.clone() })?;
        let range = Range::new(0, len)?;
        let made = run(self.ws.session(), Op::Allocate { c: c.clone(), range, keep_size: false });
        if let Err(e) = made.and_then(|_| commit(&c)) {
            drop(c);
            // The first error is the one to tell.
            let _ = self.remove(id);
            return Err(e);
        }
        self.keep(id, &c);
        Ok(id)
    }

    fn make(&self, id: Uuid, mut controls: Controls) -> Result<Collection> {
        // There is no commit and no close by which the rest of a promise would be kept.
        if controls.atomicity == Some(Atomicity::Publication)
            || matches!(controls.point, Some(Point::Close | Point::Explicit))
        {
            return Err(Error::invalid(
                "a segment keeps its promises with each put: atomicity=publication and persistence at close or when asked are \
                 for collections; offer: persistence=durable@request",
            ));
        }
        controls.atomicity = controls.atomicity.or(Some(Atomicity::None));
        controls.point = controls.point.or(Some(Point::Request));
        controls.consistency = controls.consistency.or(Some(Consistency::Sequential));
        create(&self.ws, Some(self.group.clone()), Some(&name(id)), Metadata::new(), controls)
    }

    fn keep(&self, id: Uuid, c: &Collection) {
        let mut open = self.lock();
        if open.len() >= OPEN {
            // Whoever uses one has a handle of his own.
            open.clear();
        }
        open.insert(id, c.clone());
    }

    /// Where a segment is opened as a collection: in which group, under which name.
    pub fn place(&self, id: Uuid) -> Result<(Parent, Which)> {
        Ok((Some(self.group.clone()), Which::Name(Name::new(name(id))?)))
    }

    /// The segment as a collection, for batches, seals and whatever else can be done with one. It is shared with what else is
    /// done here: leave it open.
    pub fn handle(&self, id: Uuid) -> Result<Collection> {
        if let Some(c) = self.lock().get(&id) {
            return Ok(c.clone());
        }
        let out = self.ws.pending(EntryKind::Collection);
        let (parent, which) = self.place(id)?;
        run(self.ws.session(), Op::Open { out: out.clone(), parent, which, controls: Controls::default() }).map_err(
            |e| match e.kind() {
                Kind::NotFound => Error::not_found(format!("there is no segment {id}")),
                _ => e,
            },
        )?;
        self.keep(id, &out);
        Ok(out)
    }

    /// Does something with a segment. A handle may be of one that was removed, and made again under the same id: that is empty
    /// and sealed ([`Segments::remove`]), so that what comes of it tells, and the segment is opened anew.
    fn with<T>(
        &self,
        id: Uuid,
        mut body: impl FnMut(&Collection) -> Result<T>,
        looks_removed: impl Fn(&Result<T>) -> bool,
    ) -> Result<T> {
        let known = self.lock().contains_key(&id);
        let done = self.handle(id).and_then(|c| body(&c));
        if !known || !looks_removed(&done) {
            return done;
        }
        self.lock().remove(&id);
        self.handle(id).and_then(|c| body(&c))
    }

    /// Stores bytes. They must lie in the segment: `FileTooBig` beyond the length that it was made with.
    pub fn put(&self, id: Uuid, offset: u64, data: &[u8]) -> Result<()> {
        let refused = |done: &Result<()>| {
            matches!(done.as_ref().map_err(Error::kind), Err(Kind::Immutable | Kind::NotFound | Kind::Denied))
        };
        self.with(id, |c| write_at(c, offset, data), refused)
    }

    /// Fills `out` with bytes of a segment. `Invalid` if it ends before; then `out` may have been changed.
    pub fn get(&self, id: Uuid, offset: u64, out: &mut [u8]) -> Result<()> {
        let len = out.len();
        let got = self.fill(id, offset, out)?;
        if got < len {
            return Err(Error::invalid(format!(
                "{len} bytes at {offset} of segment {id}: it ends after {got} of them"
            )));
        }
        Ok(())
    }

    fn fill(&self, id: Uuid, offset: u64, out: &mut [u8]) -> Result<usize> {
        let len = out.len();
        let short = |done: &Result<usize>| done.as_ref().map_or_else(|e| e.kind() == Kind::NotFound, |got| *got < len);
        self.with(id, |c| read_at(c, offset, out), short)
    }

    /// Shows bytes of a segment in place: see [`Collection::view`].
    pub fn view(&self, id: Uuid, offset: u64, len: u64) -> Result<Viewed> {
        let empty = |done: &Result<Viewed>| done.as_ref().map_or(true, |shown| shown.is_empty() && len > 0);
        self.with(id, |c| c.view(offset, len), empty)
    }

    /// Stores bytes in an endless space: a block that is not there is made by the first write to it, under any id, and grows.
    pub fn write(&self, id: Uuid, offset: u64, data: &[u8]) -> Result<()> {
        match self.put(id, offset, data) {
            Err(e) if e.kind() == Kind::NotFound => {
                match self.make(id, Controls::default()) {
                    Ok(c) => self.keep(id, &c),
                    // Another one was faster.
                    Err(e) if e.kind() == Kind::Exists => {}
                    Err(e) => return Err(e),
                }
                self.put(id, offset, data)
            }
            done => done,
        }
    }

    /// Fills `out` from an endless space: what nobody has written is zeros. How many of the bytes lie before the end of the
    /// block.
    pub fn read(&self, id: Uuid, offset: u64, out: &mut [u8]) -> Result<usize> {
        let got = match self.fill(id, offset, out) {
            Err(e) if e.kind() == Kind::NotFound => 0,
            got => got?,
        };
        out[got..].fill(0);
        Ok(got)
    }

    /// How many bytes a segment has.
    pub fn size(&self, id: Uuid) -> Result<u64> {
        self.with(id, |c| crate::stat(c).map(|stat| stat.bytes), |done| !matches!(done, Ok(bytes) if *bytes > 0))
    }

    /// Removes a segment and gives its space back, whoever has used it. `NotFound` if there is none.
    pub fn remove(&self, id: Uuid) -> Result<()> {
        self.lock().remove(&id);
        let c = self.handle(id)?;
        self.lock().remove(&id);
        let session = self.ws.session();
        // Others may have it open, and keep what they have open: so that is emptied first, and nothing can be stored there any
        // more. One that was sealed before has its space until nobody has it open.
        let emptied = run(session, Op::Truncate { c: c.clone(), size: 0 });
        let sealed = emptied.and_then(|_| run(session, Op::Seal { c: c.clone() }));
        match sealed {
            Err(e) if e.kind() != Kind::Immutable => return Err(e),
            _ => {}
        }
        // By what it is, not by its name: another one may have it by now.
        let which = Which::Uuid(c.uuid()?);
        run(session, Op::Delete { w: self.ws.clone(), parent: None, which })?;
        crate::close(&c)
    }

    /// Every segment there is, with the length that it had when it was last published, in the order of their ids.
    pub fn list(&self) -> Result<Vec<(Uuid, u64)>> {
        let spec = SearchSpec {
            predicate: None,
            params: Vec::new(),
            group: Some(self.group.uuid()?),
            deep: false,
            order: None,
            limit: 0,
            keys: vec!["iov.size".to_owned()],
            count: false,
            names: true,
            page: PAGE,
        };
        let cursor = find(&self.ws, spec)?;
        let mut found = Vec::new();
        loop {
            let page = cursor.next(PAGE, i64::MAX)?;
            if page.is_empty() {
                break;
            }
            for entry in page {
                let Some(id) = entry.name.as_ref().and_then(|name| id_of(name.as_bytes())) else { continue };
                let size = entry.metadata.iter().flatten().find_map(|(key, value)| match (key.as_str(), value) {
                    ("iov.size", Value::I64(size)) => u64::try_from(*size).ok(),
                    _ => None,
                });
                found.push((id, size.unwrap_or(0)));
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}
