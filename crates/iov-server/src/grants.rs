//! What the server needs of a target that can pass descriptors.

use std::os::fd::OwnedFd;

use iov_store::OpCx;
use iov_types::{ObjectId, Range, Result, Uuid};
use iov_wire::messages::Access;

/// A grant to be sent.
#[derive(Debug)]
pub struct Granted {
    /// The descriptor: read-only, or for reading and writing.
    pub fd: OwnedFd,
    /// The slot of the session's lease page that stands for it.
    pub slot: u64,
    /// What it covers.
    pub range: Range,
    /// The object's epoch.
    pub epoch: u64,
}

/// Direct access (SEMANTICS §2.6): lease pages of sessions, and grants recorded in them.
pub trait GrantBook: Send + Sync {
    /// The lease page of a session of this process, made if there is none; the descriptor goes to the client.
    fn open_session(&self, session: Uuid, pid: u32) -> Result<OwnedFd>;

    /// Grants direct access, or says why the bytes must go over the socket.
    fn grant(&self, cx: &OpCx, object: ObjectId, access: Access, epoch: u64) -> Result<Granted>;

    /// The client has given a grant back.
    fn give_back(&self, session: Uuid, slot: u64);

    /// The session has ended: all its grants are void.
    fn end_session(&self, session: Uuid);
}
