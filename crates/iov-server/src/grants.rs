//! What the server needs of a target besides what it does for everybody: direct access, and an account of its stages.

mod files;
mod objects;

use std::os::fd::OwnedFd;

use iov_media::SpaceUse;
use iov_store::{OpCx, block_sums::BlockSum};
use iov_types::{Error, ObjectId, Range, Result, Uuid};
use iov_wire::messages::{Access, Window};

/// A grant to be sent.
#[derive(Debug)]
pub struct Granted {
    /// The descriptor, read-only or for reading and writing; or where the bytes lie in segments, of which
    /// [`GrantBook::segment`] opens each.
    pub lent: std::result::Result<OwnedFd, Window>,
    /// Its number: the slot of the session's lease page that stands for it, and that slot's generation.
    pub number: u64,
    /// What it covers.
    pub range: Range,
    /// The object's epoch.
    pub epoch: u64,
    /// Whether what is read must be compared with checksums.
    pub kept: bool,
    /// The object's version, for as long as the grant holds.
    pub version: u64,
}

/// Direct access (SEMANTICS §2.6): lease pages of sessions, and grants recorded in them.
pub trait GrantBook: Send + Sync {
    /// Makes the lease page of a session of this process; the descriptor goes to the client. `None`: there is no room for
    /// one, and all bytes of the session go over the socket.
    fn open_session(&self, session: Uuid, pid: u32, uid: u32) -> Result<Option<OwnedFd>>;

    /// Grants direct access, or says why the bytes must go over the socket.
    fn grant(&self, cx: &OpCx, object: ObjectId, access: Access, range: Range, epoch: u64) -> Result<Granted>;

    /// Says whose memory the bytes of an object go to.
    fn place(&self, object: ObjectId, domain: Uuid);

    /// Opens a segment that a grant has named.
    fn segment(&self, number: u64, access: Access) -> Result<OwnedFd>;

    /// How much memory there is and is taken; `None`: the medium has no bounds of its own.
    fn space(&self) -> Option<SpaceUse>;

    /// What is known of the blocks of an object that is kept by checksums.
    fn sums(&self, cx: &OpCx, object: ObjectId, first: u64, runs: u64) -> Result<Vec<BlockSum>>;

    /// The client has given a grant back.
    fn give_back(&self, session: Uuid, number: u64);

    /// Ends what was lent of an object to a session, to be written by others; `Busy`: somebody goes on.
    fn take_back(&self, cx: &OpCx, session: Uuid, object: ObjectId) -> Result<()>;

    /// The session has ended: all its grants are void.
    fn end_session(&self, session: Uuid);

    /// Removes what ended processes have left; called now and then.
    fn sweep(&self);

    /// Ends what was staged for batches that never reached their point P, but for those to keep, unless who has staged it may
    /// come back: one that this knows of, or `others` do. Called once, before anybody is served; what could not be done.
    fn settle(&self, keep: &[Uuid], others: bool) -> Vec<Error>;

    /// Whether a process that an earlier daemon served lives, or may, and has not come back.
    fn awaits_clients(&self) -> bool;

    /// Those have not come back of whom nobody can tell whether they live: they are not waited for any more.
    fn end_waiting(&self);

    /// A session has come back, and has claimed what it had: from then on nobody waits for it.
    fn came_back(&self, session: Uuid);

    /// Every stage there is.
    fn stages(&self) -> Vec<Uuid>;

    /// Whether there is anything for an object, also in a stage.
    fn has_object(&self, cx: &OpCx, object: ObjectId, stage: Option<Uuid>) -> Result<bool>;

    /// Whether a stage holds anything.
    fn has_stage(&self, stage: Uuid) -> bool;

    /// Drops a stage whose session is gone, unless its batch is being committed.
    fn abandon_stage(&self, stage: Uuid);
}
