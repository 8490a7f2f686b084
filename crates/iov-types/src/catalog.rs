//! Operations on facts, as data: what the catalog is asked to do, and what it answers.
//!
//! Everything about names, groups, metadata, controls, leases and locks. The catalog checks permissions and invariants;
//! clients check nothing (A1).

use crate::{
    Attr, Controls, Effective, EntryKind, Layout, Metadata, Name, Place, Range, SignedTicket, Stat, State, StoreMap,
    Uuid, Value, Which, WorkspaceAttr,
};

/// How the operations of one submission depend on each other.
#[derive(Clone, PartialEq, Debug)]
pub enum Submission {
    /// Each by itself (B1).
    Each,
    /// In order, until one fails; the rest is skipped (B2).
    UntilFailure,
    /// Answers as if it were applied, but nothing is: the first half of a rollback batch.
    DryRun,
    /// All or none, at one point P, together with what is staged on targets (B3).
    All {
        /// The batch; a repeated one is answered from memory.
        batch: Uuid,
        /// Whether the id came from the program, so that it must be remembered for a retry.
        remember: bool,
        /// Collections with changes staged under the batch's id.
        staged: Vec<Staged>,
    },
}

/// A collection with staged changes in a rollback batch or publication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Staged {
    /// Its workspace.
    pub workspace: Uuid,
    /// The collection.
    pub collection: Uuid,
    /// The fencing epoch the writer knows; 0 = any.
    pub epoch: u64,
    /// Where the changes are staged.
    pub place: Place,
}

/// One page of a search, or what to do with its cursor. The default finds everything.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SearchSpec {
    /// The predicate; `None` = everything.
    pub predicate: Option<String>,
    /// Values for each `?` of the predicate.
    pub params: Vec<Value>,
    /// Only members of this group; nil = the root, `None` = the whole workspace.
    pub group: Option<Uuid>,
    /// Whether to look into groups below it too.
    pub deep: bool,
    /// `"temperature desc, iov.name"`; `None` = as they come.
    pub order: Option<String>,
    /// Most results; 0 = all.
    pub limit: u64,
    /// Metadata to return; `*` = all user keys.
    pub keys: Vec<String>,
    /// Only count.
    pub count: bool,
    /// One entry per name instead of one per collection (listing a group).
    pub names: bool,
    /// Results in the first page.
    pub page: usize,
}

/// An advisory lock (O11).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockSpec {
    /// Shared or exclusive.
    pub exclusive: bool,
    /// Fail instead of waiting.
    pub try_only: bool,
    /// Bytes; `len` 0 = to the end, wherever that moves.
    pub range: Range,
    /// Tells owners within one session apart.
    pub owner: u64,
    /// What a dead owner still keeps it, in nanoseconds.
    pub lease_ns: i64,
}

/// What a rename does when the new name is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Replace it if both are groups or neither is, and else fail (`Invalid`).
    ReplaceAlike,
    /// Fail.
    NoReplace,
    /// Swap the two.
    Exchange,
}

/// One operation on facts. `ws` is the workspace, `parent` a group (nil = the root of the workspace).
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // fields are named as in ioverbs.h
pub enum CatalogOp {
    /// Makes a workspace.
    WorkspaceCreate { uuid: Uuid, name: Name, attr: WorkspaceAttr },
    /// Opens one.
    WorkspaceLoad { which: Which },
    /// Searches those the caller may see.
    WorkspaceSearch { spec: SearchSpec },
    /// Deletes an empty one.
    WorkspaceDelete { which: Which },
    /// Usage, quota, expiry.
    WorkspaceStat { ws: Uuid },
    /// Changes properties.
    WorkspaceSet { ws: Uuid, attr: WorkspaceAttr },
    /// Gives it another name.
    WorkspaceRename { ws: Uuid, name: Name },
    /// Makes the records survive what the level says (P7).
    WorkspacePersist { ws: Uuid, durable: bool },
    /// Makes and opens a collection or group under a UUID that the client chose. `controls` is what was asked for
    /// beyond the workspace's defaults, `attr` what it is born with. With `tell` the answer has its facts, and those of the group it is in as it
    /// then is; and where the name is taken, it is the facts of what that stands for ([`CatalogReply::Stat`]), unless it is one of several
    /// that are done together or not at all: then that fails, as it does without.
    Create {
        ws: Uuid,
        uuid: Uuid,
        kind: EntryKind,
        parent: Uuid,
        name: Option<Name>,
        metadata: Metadata,
        controls: Controls,
        layout: Option<Layout>,
        attr: Attr,
        tell: bool,
    },
    /// Opens a collection or group. Nil UUID with kind group = the root. With `tell` the answer has the facts of a collection, and its bytes
    /// if they live in the record and are no more than so many, as far as that can be told at once.
    Open { ws: Uuid, parent: Uuid, which: Which, kind: EntryKind, controls: Controls, tell: Option<u64> },
    /// Ends an open, with the size and mtime that search is to see; `None` where nothing was written.
    Close { ws: Uuid, uuid: Uuid, published: Option<Published> },
    /// Removes a name, or by UUID all names.
    Delete { ws: Uuid, parent: Uuid, which: Which },
    /// Removes the name of a collection, or of an empty `group`, and tells what that leaves; what has it and is the other of the two is not removed, and is `Invalid`.
    Unlink { ws: Uuid, parent: Uuid, name: Name, group: bool },
    /// Removes what has no name; what has one is not removed, and is `Invalid`.
    Discard { ws: Uuid, uuid: Uuid },
    /// The facts.
    Stat { ws: Uuid, uuid: Uuid },
    /// The facts of what a name stands for, or of a UUID, without opening it; with a number `ahead`, also of what up to so many names do that
    /// follow it in the group, in the order of their bytes, as far as that can be told at once; with `tell`, also the bytes of those
    /// that have no more than so many, and as many of them as there is room for.
    Look { ws: Uuid, parent: Uuid, which: Which, ahead: u32, tell: u64 },
    /// Changes controls or layout, as an exclusive holder.
    Set { ws: Uuid, uuid: Uuid, controls: Option<Controls>, layout: Option<Layout> },
    /// Sets owner, mode or mtime.
    SetAttr { ws: Uuid, uuid: Uuid, attr: Attr },
    /// Moves a name.
    Rename { ws: Uuid, from_parent: Uuid, from: Name, to_parent: Uuid, to: Name, mode: RenameMode },
    /// One more name.
    Link { ws: Uuid, uuid: Uuid, parent: Uuid, name: Name },
    /// Searches collections and groups, or lists a group.
    Search { ws: Uuid, spec: SearchSpec },
    /// The next page of a cursor.
    SearchNext { cursor: Uuid, page: usize },
    /// Ends a cursor.
    SearchClose { cursor: Uuid },
    /// One value, system keys too.
    MetaGet { ws: Uuid, uuid: Uuid, key: String },
    /// Adds or replaces pairs.
    MetaPut { ws: Uuid, uuid: Uuid, pairs: Metadata },
    /// Removes a pair.
    MetaRemove { ws: Uuid, uuid: Uuid, key: String },
    /// All user pairs.
    MetaList { ws: Uuid, uuid: Uuid },
    /// What search is to see of the bytes (C7), after a commit or persist.
    Publish { ws: Uuid, uuid: Uuid, published: Published },
    /// Reads bytes that live in the record; short at the end.
    Read { ws: Uuid, uuid: Uuid, offset: u64, len: u64 },
    /// Writes bytes that live in the record. Where they grow beyond what a record takes they move out first, and the
    /// answer is `Moved`: nothing was written.
    Write { ws: Uuid, uuid: Uuid, offset: u64, data: Vec<u8> },
    /// Sets the length of bytes that live in the record; what is beyond the old one reads as zeros. `Moved` as for a write.
    Truncate { ws: Uuid, uuid: Uuid, size: u64 },
    /// Writes bytes behind those that live in the record, wherever these end then; the answer says where. `Moved` as for a write.
    Append { ws: Uuid, uuid: Uuid, data: Vec<u8> },
    /// Moves bytes out of the record, to a target.
    MoveOut { ws: Uuid, uuid: Uuid },
    /// Seals (M2): the record first, so that nobody can open it for writing any more; the target follows.
    Seal { ws: Uuid, uuid: Uuid, published: Published },
    /// Takes an advisory lock; waits unless `try_only`.
    Lock { ws: Uuid, uuid: Uuid, lock: LockSpec },
    /// Gives back what the owner holds of a range.
    Unlock { ws: Uuid, uuid: Uuid, lock: LockSpec },
    /// Finds a lock in the way.
    LockQuery { ws: Uuid, uuid: Uuid, lock: LockSpec },
    /// Makes a token with which others join the session's exclusive holds (X1).
    TokenExport,
    /// Joins the holder of a token.
    TokenJoin { token: Vec<u8> },
    /// Renews every lease of the session.
    Renew,
    /// Ends the session: its opens, holds, locks and cursors.
    Goodbye,
    /// The targets of the store, and the patterns of places from a number on.
    Map { from: u32 },
    /// Leave to work on the objects of a collection that the session has open, for targets of other daemons (A1).
    Ticket { uuid: Uuid },
}

/// Size, time and version of the bytes at a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Published {
    /// Length in bytes.
    pub size: u64,
    /// Space taken.
    pub allocated: u64,
    /// Last change, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// What a handle needs to know of a collection or group.
#[derive(Clone, PartialEq, Debug)]
pub struct Opened {
    /// Workspace.
    pub ws: Uuid,
    /// Identity.
    pub uuid: Uuid,
    /// Collection or group.
    pub kind: EntryKind,
    /// Of a collection.
    pub state: State,
    /// What holds for it.
    pub effective: Effective,
    /// What was asked of it at create, before defaults: the defaults of a group for those below it.
    pub layout: Layout,
    /// The epoch under which a holder writes; 0 = none (X1).
    pub epoch: u64,
    /// Whether the caller may change it.
    pub writable: bool,
    /// Its bytes live in the record, for now: they are read and written with [`CatalogOp::Read`] and
    /// [`CatalogOp::Write`], until one of these answers [`CatalogReply::Moved`].
    pub inline: bool,
    /// The length of a sealed collection, which is fixed; `None` where it may change, or the server does not say.
    pub size: Option<u64>,
    /// What was to be told along with it.
    pub told: Option<Box<Told>>,
}

/// What is told of something as it is opened or made.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    /// The facts.
    pub stat: Stat,
    /// All of its bytes; none: they are elsewhere, or more than was asked for.
    pub bytes: Option<Vec<u8>>,
    /// The facts of the group in which it was made.
    pub group: Option<Stat>,
    /// Who opens it again, while nothing of it has changed, need not say so: nobody has to be told who has it open.
    pub may_keep: bool,
}

/// What a session has open of one object, as it tells a server that does not know it any more (X1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Presented {
    /// Workspace.
    pub ws: Uuid,
    /// Identity; nil = the root.
    pub uuid: Uuid,
    /// Collection or group.
    pub kind: EntryKind,
    /// Handles.
    pub handles: u32,
    /// Handles that may write.
    pub writers: u32,
    /// The epoch under which it writes; 0 = it holds nothing.
    pub epoch: u64,
}

/// A lock of a session, as it tells a server that does not know it any more (O11).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PresentedLock {
    /// Workspace.
    pub ws: Uuid,
    /// The collection.
    pub uuid: Uuid,
    /// What is locked, how, and by which owner of the session.
    pub lock: LockSpec,
}

/// A workspace as a handle needs it.
#[derive(Clone, PartialEq, Debug)]
pub struct OpenedWorkspace {
    /// Identity.
    pub uuid: Uuid,
    /// Name at the time.
    pub name: Name,
    /// Default controls.
    pub controls: Controls,
    /// Default layout.
    pub layout: Option<Layout>,
    /// Whether the caller may write in it.
    pub writable: bool,
    /// Metadata keys of which an index is kept (O5).
    pub indexes: Vec<String>,
}

/// One result of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Group, collection or workspace.
    pub kind: EntryKind,
    /// Identity.
    pub uuid: Uuid,
    /// Where it was found; nil = the root.
    pub group: Uuid,
    /// Its name there.
    pub name: Option<Name>,
    /// The keys asked for, system keys too.
    pub metadata: Option<Vec<(String, Value)>>,
}

/// A page of results.
#[derive(Clone, PartialEq, Debug)]
pub struct Page {
    /// Results.
    pub entries: Vec<Entry>,
    /// The cursor to go on with; `None` = the end.
    pub cursor: Option<Uuid>,
    /// The number of matches, where only that was asked for.
    pub count: Option<u64>,
}

/// What is left where the name of a collection was removed.
#[derive(Clone, PartialEq, Debug)]
pub struct Removed {
    /// What it stood for.
    pub uuid: Uuid,
    /// The mode of that, as [`Stat::mode`].
    pub mode: u32,
    /// The names that it still has.
    pub links: u32,
    /// The facts of the group.
    pub group: Option<Stat>,
}

/// A name in a group, and the facts of what it stands for.
#[derive(Clone, PartialEq, Debug)]
pub struct Named {
    /// The name.
    pub name: Name,
    /// The facts.
    pub stat: Stat,
    /// All of its bytes, which may be used for as long as nothing has changed; none: as of [`Told::bytes`], and where somebody has to be
    /// told who has it open.
    pub bytes: Option<Vec<u8>>,
    /// Of what has bytes here: who opens it could write it.
    pub writable: bool,
}

/// What a look ahead has found.
#[derive(Clone, PartialEq, Debug)]
pub struct Looked {
    /// What was asked for, then what follows.
    pub entries: Vec<Named>,
}

/// What the catalog answers.
#[derive(Clone, PartialEq, Debug)]
pub enum CatalogReply {
    /// Done.
    Done,
    /// An open workspace.
    Workspace(Box<OpenedWorkspace>),
    /// An open collection or group.
    Opened(Box<Opened>),
    /// Facts. Of a collection whose bytes a target holds, length and mtime are those of the last publication.
    Stat(Box<Stat>),
    /// Facts of several names, to a look by name that is to look ahead.
    Looked(Looked),
    /// One value.
    Value(Value),
    /// User pairs.
    Metadata(Metadata),
    /// Results.
    Page(Page),
    /// The lock in the way.
    Lock(LockSpec),
    /// A token (export), or the holder (join).
    Token(Vec<u8>),
    /// Bytes of a record.
    Bytes(Vec<u8>),
    /// The bytes are at a target: ask there.
    Moved,
    /// Targets and patterns.
    Map(Box<StoreMap>),
    /// Leave to work on objects.
    Ticket(Box<SignedTicket>),
    /// What a removed name leaves.
    Removed(Box<Removed>),
    /// Where bytes were appended.
    Appended(u64),
}
