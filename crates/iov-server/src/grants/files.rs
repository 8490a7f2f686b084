//! Files and segments of shared memory: who is on the same machine gets at them directly.

use std::os::fd::OwnedFd;

use iov_media::{Files, Lent, Peer, SpaceUse};
use iov_store::{LeaseAccess, OpCx, block_sums::BlockSum};
use iov_types::{Error, Kind, ObjectId, Range, Result, Uuid};
use iov_wire::messages::{Access, Stretch, Window};

use super::{GrantBook, Granted};

impl GrantBook for Files {
    fn open_session(&self, session: Uuid, pid: u32, uid: u32) -> Result<Option<OwnedFd>> {
        match Files::open_session(self, session, Peer { pid, uid }) {
            // Who cannot get in cannot make room either; who is of another namespace cannot be watched (G6).
            Err(e) if matches!(e.kind(), Kind::Exhausted | Kind::Unsupported) => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn grant(&self, cx: &OpCx, object: ObjectId, access: Access, range: Range, epoch: u64) -> Result<Granted> {
        let access = match access {
            Access::Read => LeaseAccess::Read,
            Access::Write => LeaseAccess::Write,
            Access::Lent => LeaseAccess::Lent,
        };
        let granted = Files::grant(self, cx, cx.caller.session, object, access, range, epoch)?;
        let number = iov_net::grant_number(granted.slot, granted.generation)
            .ok_or_else(|| Error::unsupported("the lease page's slots are worn out: use the socket"))?;
        let lent = match granted.lent {
            Lent::File(file) => Ok(file),
            Lent::Memory(window) => Err(to_wire(&window)),
        };
        Ok(Granted {
            lent,
            number,
            range: granted.range,
            epoch: granted.epoch,
            kept: granted.kept,
            version: granted.version,
        })
    }

    fn place(&self, object: ObjectId, domain: Uuid) {
        Files::place(self, object, domain);
    }

    fn segment(&self, number: u64, access: Access) -> Result<OwnedFd> {
        let number = u32::try_from(number).map_err(|_| Error::internal("the number of a segment"))?;
        Files::segment(self, number, access == Access::Write)
    }

    fn space(&self) -> Option<SpaceUse> {
        Files::space(self)
    }

    fn sums(&self, cx: &OpCx, object: ObjectId, first: u64, runs: u64) -> Result<Vec<BlockSum>> {
        self.block_sums(cx, object, first, runs)
    }

    fn give_back(&self, session: Uuid, number: u64) {
        Files::give_back(self, session, &[iov_net::slot_of(number)]);
    }

    fn take_back(&self, cx: &OpCx, session: Uuid, object: ObjectId) -> Result<()> {
        Files::take_back(self, cx, session, object)
    }

    fn end_session(&self, session: Uuid) {
        // The page of a session that cannot be ended now goes with the next sweep.
        let _ = Files::end_session(self, session);
    }

    fn sweep(&self) {
        let _ = self.sweep_sessions();
    }

    fn settle(&self, keep: &[Uuid], others: bool) -> Vec<Error> {
        let settled =
            if others || Files::awaits_clients(self) { self.thaw_stages(keep) } else { self.drop_stages(keep) };
        self.troubles().iter().cloned().chain(settled.err()).collect()
    }

    fn awaits_clients(&self) -> bool {
        Files::awaits_clients(self)
    }

    fn end_waiting(&self) {
        // The page that cannot be removed now goes with the next sweep.
        let _ = Files::end_waiting(self);
    }

    fn came_back(&self, session: Uuid) {
        Files::came_back(self, session);
    }

    fn stages(&self) -> Vec<Uuid> {
        Files::stages(self).into_iter().map(|(stage, _)| stage).collect()
    }

    fn has_object(&self, _: &OpCx, object: ObjectId, stage: Option<Uuid>) -> Result<bool> {
        Files::has_object(self, object, stage)
    }

    fn has_stage(&self, stage: Uuid) -> bool {
        Files::has_stage(self, stage)
    }

    fn abandon_stage(&self, stage: Uuid) {
        // What cannot be dropped now goes at the next start.
        let _ = Files::abandon_stage(self, stage);
    }
}

fn to_wire(window: &iov_media::Window) -> Window {
    let stretch = |(offset, piece): &(u64, iov_media::Piece)| Stretch {
        offset: *offset,
        len: piece.len,
        segment: piece.segment.into(),
        at: piece.at,
    };
    Window {
        head_segment: window.head.segment.into(),
        head_at: window.head.at,
        stretches: window.stretches.iter().map(stretch).collect(),
        passed: Vec::new(),
    }
}
