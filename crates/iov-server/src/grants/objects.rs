//! Media that only this process can reach: all bytes go over the socket.

use std::os::fd::OwnedFd;

use iov_media::SpaceUse;
use iov_store::{
    OpCx,
    block_sums::BlockSum,
    objects::{Medium, Objects},
};
use iov_types::{Clause, Error, ObjectId, Range, Result, Uuid};
use iov_wire::messages::Access;

use super::{GrantBook, Granted};

/// How long to wait for a medium that this process itself wants something of.
const PATIENCE_NS: i64 = 30_000_000_000;

fn no_access() -> Error {
    Error::unsupported("this store's medium is out of reach of other processes: they use the socket")
        .with_clause(Clause::G6)
}

impl<M: Medium> GrantBook for Objects<M> {
    fn open_session(&self, _: Uuid, _: u32, _: u32) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn grant(&self, _: &OpCx, _: ObjectId, _: Access, _: Range, _: u64) -> Result<Granted> {
        Err(no_access())
    }

    fn place(&self, _: ObjectId, _: Uuid) {}

    fn segment(&self, _: u64, _: Access) -> Result<OwnedFd> {
        Err(no_access())
    }

    fn space(&self) -> Option<SpaceUse> {
        let space = self.medium().space()?;
        Some(SpaceUse { capacity: space.bytes, made: space.taken, used: space.taken, held: 0 })
    }

    fn sums(&self, _: &OpCx, _: ObjectId, _: u64, _: u64) -> Result<Vec<BlockSum>> {
        Err(Error::unsupported("this store keeps no checksums of its own"))
    }

    fn give_back(&self, _: Uuid, _: u64) {}

    fn take_back(&self, _: &OpCx, _: Uuid, _: ObjectId) -> Result<()> {
        Ok(())
    }

    fn end_session(&self, _: Uuid) {}

    fn sweep(&self) {}

    fn settle(&self, keep: &[Uuid], _: bool) -> Vec<Error> {
        // Stages at a backend end with the daemon in any case.
        Objects::settle(self, &OpCx::own(PATIENCE_NS), keep)
    }

    fn awaits_clients(&self) -> bool {
        false
    }

    fn end_waiting(&self) {}

    fn came_back(&self, _: Uuid) {}

    fn stages(&self) -> Vec<Uuid> {
        // What another process has staged here was settled, or is the catalog's to publish.
        Vec::new()
    }

    fn has_object(&self, cx: &OpCx, object: ObjectId, _: Option<Uuid>) -> Result<bool> {
        Objects::has_object(self, cx, object)
    }

    fn has_stage(&self, stage: Uuid) -> bool {
        Objects::has_stage(self, stage)
    }

    fn abandon_stage(&self, stage: Uuid) {
        // What the medium cannot drop now goes at the next start.
        let _ = Objects::abandon_stage(self, &OpCx::own(PATIENCE_NS), stage);
    }
}
