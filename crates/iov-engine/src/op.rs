//! Operations as a front door describes them, and how each one ended.

use iov_store::Memory;
use iov_types::{
    Attr, Controls, EntryKind, Error, Extent, Kind, Layout, Metadata, Name, Outcome, Range, Stat, Uuid, Value, Which,
    WorkspaceAttr,
    catalog::{LockSpec, Named, Removed, RenameMode, SearchSpec},
};

use crate::{Collection, Cursor, Workspace};

/// A group as a parent: `None` = the root of the workspace.
pub type Parent = Option<Collection>;

/// A piece of a read or write: where, and the memory it comes from or goes to.
pub type Chunk = (u64, Memory);

/// What to do. Handles that an operation makes (`out`) are pending until it has completed.
#[allow(missing_docs)] // fields are named as in ioverbs.h
pub enum Op {
    Write { c: Collection, chunks: Vec<Chunk> },
    Read { c: Collection, chunks: Vec<Chunk> },
    Append { c: Collection, memory: Memory },
    Truncate { c: Collection, size: u64 },
    Punch { c: Collection, range: Range },
    Allocate { c: Collection, range: Range, keep_size: bool },
    Extents { c: Collection, range: Range, max: usize },
    Copy { src: Collection, src_offset: u64, dst: Collection, dst_offset: u64, len: u64 },
    Commit { c: Collection },
    Persist { c: Collection },
    Seal { c: Collection },
    Close { c: Collection },
    Create { out: Collection, parent: Parent, name: Option<Name>, metadata: Metadata, controls: Controls },
    Open { out: Collection, parent: Parent, which: Which, controls: Controls },
    Search { w: Workspace, group: Parent, spec: SearchSpec, out: Cursor },
    Delete { w: Workspace, parent: Parent, which: Which },
    Unlink { w: Workspace, parent: Parent, name: Name, group: bool },
    Discard { w: Workspace, uuid: Uuid },
    Stat { c: Collection },
    Look { w: Workspace, parent: Parent, which: Which, ahead: u32, tell: u64 },
    Set { c: Collection, controls: Option<Controls>, layout: Option<Layout> },
    SetAttr { c: Collection, attr: Attr },
    Rename { w: Workspace, from_parent: Parent, from: Name, to_parent: Parent, to: Name, mode: RenameMode },
    Link { c: Collection, parent: Parent, name: Name },
    MetaGet { c: Collection, key: String },
    MetaPut { c: Collection, pairs: Metadata },
    MetaRemove { c: Collection, key: String },
    MetaList { c: Collection },
    Lock { c: Collection, lock: LockSpec },
    Unlock { c: Collection, lock: LockSpec },
    LockQuery { c: Collection, lock: LockSpec },
    WorkspaceStat { w: Workspace },
    WorkspaceSet { w: Workspace, attr: WorkspaceAttr },
    WorkspaceRename { w: Workspace, name: Name },
    WorkspaceCommit { w: Workspace },
    WorkspacePersist { w: Workspace },
}

/// How an operation ended (O7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OpState {
    /// Not yet.
    Pending = 0,
    /// Took effect.
    Ok = 1,
    /// Did not, or nobody knows: see the outcome.
    Failed = 2,
    /// Never started, because of another's failure (B2).
    Skipped = 3,
    /// Taken back with the others (B3).
    Undone = 4,
    /// Given up on request.
    Cancelled = 5,
}

/// What an operation returns besides its status.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs)] // each is the result of the operation of that kind
pub enum Output {
    #[default]
    None,
    Offset(u64),
    Stat(Box<Stat>),
    Looked(Vec<Named>),
    Removed(Box<Removed>),
    Value(Value),
    Metadata(Metadata),
    Extents(Vec<Extent>),
    Lock(LockSpec),
}

/// The end of one operation.
#[derive(Clone, Debug)]
pub struct Status {
    /// How it ended.
    pub state: OpState,
    /// Whether it has taken effect.
    pub outcome: Outcome,
    /// What went wrong.
    pub error: Option<Error>,
    /// Bytes it moved.
    pub bytes: u64,
    /// What it returns.
    pub output: Output,
}

impl Default for Status {
    fn default() -> Status {
        Status { state: OpState::Pending, outcome: Outcome::Pending, error: None, bytes: 0, output: Output::None }
    }
}

impl Status {
    pub(crate) fn ok(bytes: u64, output: Output) -> Status {
        Status { state: OpState::Ok, outcome: Outcome::Applied, error: None, bytes, output }
    }

    pub(crate) fn failed(error: Error) -> Status {
        let state = if error.kind() == Kind::Cancelled { OpState::Cancelled } else { OpState::Failed };
        Status { state, outcome: error.outcome(), error: Some(error), bytes: 0, output: Output::None }
    }

    pub(crate) fn skipped() -> Status {
        let error = Error::cancelled("skipped, because an earlier operation of the batch failed")
            .with_clause(iov_types::Clause::B2);
        Status { state: OpState::Skipped, ..Status::failed(error) }
    }

    pub(crate) fn undone() -> Status {
        let error = Error::cancelled("not applied, because another operation of the rollback batch failed")
            .with_clause(iov_types::Clause::B3);
        Status { state: OpState::Undone, ..Status::failed(error) }
    }

    /// The result that a blocking call returns.
    pub fn result(&self) -> Result<(), Error> {
        match (&self.error, self.state) {
            (Some(e), _) => Err(e.clone()),
            (None, OpState::Ok) => Ok(()),
            (None, _) => Err(Error::internal("an operation ended without status")),
        }
    }
}

impl Op {
    /// The collection or group whose handle it uses, if it has exactly one.
    pub fn handle(&self) -> Option<&Collection> {
        match self {
            Op::Write { c, .. }
            | Op::Read { c, .. }
            | Op::Append { c, .. }
            | Op::Truncate { c, .. }
            | Op::Punch { c, .. }
            | Op::Allocate { c, .. }
            | Op::Extents { c, .. }
            | Op::Commit { c }
            | Op::Persist { c }
            | Op::Seal { c }
            | Op::Close { c }
            | Op::Stat { c }
            | Op::Set { c, .. }
            | Op::SetAttr { c, .. }
            | Op::Link { c, .. }
            | Op::MetaGet { c, .. }
            | Op::MetaPut { c, .. }
            | Op::MetaRemove { c, .. }
            | Op::MetaList { c }
            | Op::Lock { c, .. }
            | Op::Unlock { c, .. }
            | Op::LockQuery { c, .. } => Some(c),
            _ => None,
        }
    }

    /// A handle that it makes, if any.
    pub fn out(&self) -> Option<&Collection> {
        match self {
            Op::Create { out, .. } | Op::Open { out, .. } => Some(out),
            _ => None,
        }
    }

    /// Groups that it looks into or puts something in.
    pub(crate) fn parents(&self) -> Vec<&Collection> {
        match self {
            Op::Create { parent, .. }
            | Op::Open { parent, .. }
            | Op::Delete { parent, .. }
            | Op::Unlink { parent, .. }
            | Op::Look { parent, .. }
            | Op::Link { parent, .. }
            | Op::Search { group: parent, .. } => parent.iter().collect(),
            Op::Rename { from_parent, to_parent, .. } => from_parent.iter().chain(to_parent).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether it moves or changes bytes.
    pub(crate) fn is_data(&self) -> bool {
        matches!(
            self,
            Op::Write { .. }
                | Op::Read { .. }
                | Op::Append { .. }
                | Op::Truncate { .. }
                | Op::Punch { .. }
                | Op::Allocate { .. }
                | Op::Extents { .. }
                | Op::Copy { .. }
        )
    }

    /// Whether it may have what was written before survive, where the contract wants that.
    pub(crate) fn may_sync(&self) -> bool {
        matches!(
            self,
            Op::Commit { .. } | Op::Persist { .. } | Op::Seal { .. } | Op::Close { .. } | Op::WorkspacePersist { .. }
        )
    }

    /// Whether nothing is different after it: its records need not survive anything (P7). Closing changes nothing itself.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(
            self,
            Op::Read { .. }
                | Op::Extents { .. }
                | Op::Stat { .. }
                | Op::Look { .. }
                | Op::MetaGet { .. }
                | Op::MetaList { .. }
                | Op::Open { .. }
                | Op::Lock { .. }
                | Op::Unlock { .. }
                | Op::LockQuery { .. }
                | Op::Close { .. }
        )
    }

    /// Bytes that it will move, as far as the call says.
    pub(crate) fn payload(&self) -> u64 {
        match self {
            Op::Write { chunks, .. } | Op::Read { chunks, .. } => chunks.iter().map(|(_, m)| m.len() as u64).sum(),
            Op::Append { memory, .. } => memory.len() as u64,
            Op::Copy { len, .. } => *len,
            _ => 0,
        }
    }

    /// What the operation is called in explanations.
    pub fn verb(&self) -> &'static str {
        match self {
            Op::Write { .. } => "write",
            Op::Read { .. } => "read",
            Op::Append { .. } => "append",
            Op::Truncate { .. } => "truncate",
            Op::Punch { .. } => "punch",
            Op::Allocate { .. } => "allocate",
            Op::Extents { .. } => "extents",
            Op::Copy { .. } => "copy",
            Op::Commit { .. } => "commit",
            Op::Persist { .. } => "persist",
            Op::Seal { .. } => "seal",
            Op::Close { .. } => "close",
            Op::Create { out, .. } if out.kind() == EntryKind::Group => "group_create",
            Op::Create { .. } => "create",
            Op::Open { out, .. } if out.kind() == EntryKind::Group => "group_lookup",
            Op::Open { .. } => "lookup",
            Op::Search { .. } => "search",
            Op::Delete { .. } => "delete",
            Op::Unlink { .. } => "unlink",
            Op::Discard { .. } => "discard",
            Op::Stat { .. } => "stat",
            Op::Look { .. } => "look",
            Op::Set { .. } => "set",
            Op::SetAttr { .. } => "setattr",
            Op::Rename { .. } => "rename",
            Op::Link { .. } => "link",
            Op::MetaGet { .. } => "metadata_get",
            Op::MetaPut { .. } => "metadata_put",
            Op::MetaRemove { .. } => "metadata_remove",
            Op::MetaList { .. } => "metadata_list",
            Op::Lock { .. } => "lock",
            Op::Unlock { .. } => "unlock",
            Op::LockQuery { .. } => "lock_query",
            Op::WorkspaceStat { .. } => "workspace_stat",
            Op::WorkspaceSet { .. } => "workspace_set",
            Op::WorkspaceRename { .. } => "workspace_rename",
            Op::WorkspaceCommit { .. } => "workspace_commit",
            Op::WorkspacePersist { .. } => "workspace_persist",
        }
    }
}

/// The nil UUID for the root, else the group's, if its handle is ready.
pub(crate) fn parent_uuid(parent: &Parent) -> Result<Uuid, Error> {
    parent.as_ref().map_or(Ok(Uuid::NIL), |g| g.uuid())
}
