//! What a server in front of targets asks about their objects, and tells of the targets.

use iov_store::OpCx;
use iov_types::{
    Error, Evidence, Kind, ObjectId, Reach, Result, StoreMap, Uuid,
    catalog::{CatalogOp, CatalogReply},
};

use crate::{
    Service,
    exec::facts::{Recorded, check_still_there},
};

impl Service {
    /// Has the bytes of a collection at a target before anything is asked of that: those that live beside their record
    /// are moved out. What a session has not open here, no record speaks for.
    pub fn at_target(&self, cx: &OpCx, uuid: Uuid) -> Result<()> {
        let ws = match self.core.shared().opens.get(uuid) {
            Some(entry) if entry.inline => entry.ws,
            _ => return Ok(()),
        };
        let holder = self.admit(cx, 1)?;
        self.write(cx, holder, vec![CatalogOp::MoveOut { ws, uuid }], true)?.into_iter().try_for_each(|r| r.map(drop))
    }

    /// Notes whether a target answers, and what it has: bytes that it has room for, and that are free.
    pub fn note_target(&self, number: u32, reach: Reach, space: Option<(u64, u64)>) {
        self.core.map().note(number, reach, space);
    }

    /// The targets and the patterns of places.
    pub fn map(&self) -> StoreMap {
        self.core.map().tell(0)
    }

    /// The protection domain of a collection that somebody has open here: its workspace (A1, G5).
    pub fn domain(&self, uuid: Uuid) -> Option<Uuid> {
        self.core.shared().opens.get(uuid).map(|entry| entry.ws)
    }

    /// Fails if a collection is open here, and this object on that target is none of its own: whoever asks for it has another
    /// idea of where bytes lie than everybody else.
    pub fn check_object(&self, object: ObjectId, target: u32) -> Result<()> {
        let place = self.core.shared().opens.get(object.collection).map(|entry| entry.place);
        match place {
            Some(place) if !self.core.map().has(place, object, target) => Err(Error::stale(format!(
                "the collection does not lie on target {target} in this way: open it again; if that does not help, update this \
                 program's library"
            ))),
            _ => Ok(()),
        }
    }

    /// After a target had nothing for a collection: fails if there must be something.
    pub fn check_there(&self, cx: &OpCx, uuid: Uuid) -> Result<()> {
        let open = self.core.shared().opens.get(uuid).map(|entry| (entry.ws, entry.place));
        let Some((ws, place)) = open else { return Ok(()) };
        let holder = self.admit(cx, 1)?;
        let stat = self.read(cx, holder, vec![CatalogOp::Stat { ws, uuid }], true).pop();
        let Some(CatalogReply::Stat(stat)) = stat.transpose()? else { return Ok(()) };
        // Behind the record: whoever wrote it meanwhile had made the object before.
        let found = match self.core.targets().stat(cx, place.whole(uuid), None) {
            Err(e) if e.kind() == Kind::NotFound => Evidence::default(),
            found => found?,
        };
        let recorded = Recorded { size: stat.bytes, ctime_ns: 0, opened_in: 0, place };
        check_still_there(&self.core, ws, uuid, &recorded, &found)
    }
}
