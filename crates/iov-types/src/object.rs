//! Operations on objects, as data: what a target is asked to do, and the evidence of what happened.
//!
//! An object is the part of one collection that lies on one target. Targets never see controls, only the concrete
//! demands in [`Demand`].

use crate::{Extent, Persistence, Range, Uuid};

/// Names an object on a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId {
    /// The collection.
    pub collection: Uuid,
    /// Which of its objects.
    pub slot: u64,
}

/// What an operation demands beyond its verb. Zero and `None` demand nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Demand {
    /// Collect the change in the staging area of this id instead of showing it; a read sees base and staged changes.
    /// `Publish` shows them in one step, `Discard` drops them.
    pub stage: Option<Uuid>,
    /// The batch a change belongs to; an `Append` repeated with the same id and sequence number applies once (M4).
    pub batch: Option<(Uuid, u64)>,
    /// The epoch the object must have, else [`crate::Kind::Fenced`].
    pub epoch: u64,
    /// What the change must survive before it completes (P5).
    pub durability: Option<Persistence>,
    /// Units of this many bytes change as a whole (M1).
    pub unit: u64,
    /// The object may not grow beyond this many bytes, else [`crate::Kind::FileTooBig`] (H1).
    pub max_size: u64,
    /// Use the bytes without leaving a trace in caches (H2).
    pub once: bool,
    /// Of a read: in which pattern those around it come; `None` = the medium sees for itself (H2).
    pub pattern: Option<crate::Spatiality>,
    /// The protection domain whose memory new bytes go to: one workspace of one owner (G5). Servers set it; what a client
    /// says does not count.
    pub domain: Option<Uuid>,
}

impl Demand {
    /// Nothing.
    pub const NONE: Demand = Demand {
        stage: None,
        batch: None,
        epoch: 0,
        durability: None,
        unit: 0,
        max_size: 0,
        once: false,
        pattern: None,
        domain: None,
    };
}

/// What to do. `len` of a read or write is also the length of the memory that goes with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectVerb {
    /// Makes the object, empty. Making it again is fine.
    Create,
    /// Writes the memory at `offset`.
    Write {
        /// First byte.
        offset: u64,
    },
    /// Reads into the memory; short at the end, zeros for holes.
    Read {
        /// First byte.
        offset: u64,
    },
    /// Writes the memory at the end, where the target decides.
    Append,
    /// Cuts, or extends with a hole.
    Truncate {
        /// New length.
        size: u64,
    },
    /// Makes a range a hole.
    Punch(Range),
    /// Reserves space; `keep_size` leaves the length as it is.
    Allocate {
        /// What to reserve.
        range: Range,
        /// Whether the length stays.
        keep_size: bool,
    },
    /// Copies from another object on the same target; less only at the source's end.
    Copy {
        /// Where from.
        source: ObjectId,
        /// First byte there.
        source_offset: u64,
        /// First byte here.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Makes everything acknowledged survive [`Demand::durability`].
    Sync,
    /// Refuses every later change, for good and atomically against changes under way (M2). Through a stage it passes that one's
    /// freeze; one that has changes is refused, since to show them later would change what is sealed.
    Seal,
    /// Raises the epoch; operations that demand an older one fail from now on (X1).
    Fence {
        /// The new epoch; lower than the present one is a conflict.
        epoch: u64,
    },
    /// Stops every access to the object but its removal until `Publish`, `Discard` or `Thaw` of that stage: the moment before
    /// point P (B3). Checks all that could still make the publication fail.
    Freeze {
        /// The stage about to be published.
        stage: Uuid,
    },
    /// Shows what is staged, in one step, and ends a freeze. Repeating it is fine. Without a freeze it may fail (sealed,
    /// fenced, too big); then the stage is left as it was.
    Publish {
        /// Which stage.
        stage: Uuid,
    },
    /// Drops what is staged and ends a freeze. Repeating it is fine.
    Discard {
        /// Which stage.
        stage: Uuid,
    },
    /// Ends the freeze of a stage and leaves what is staged: its batch comes to nothing for now, and may be repeated. Repeating
    /// it is fine.
    Thaw {
        /// Which stage.
        stage: Uuid,
    },
    /// Removes the object and its bytes. Removing it again is fine.
    Remove,
    /// Tells length, space and version.
    Stat,
    /// Lists data and holes of a range, at most `max`.
    Extents {
        /// What to look at.
        range: Range,
        /// Most extents to return.
        max: usize,
    },
    /// Lists the objects of the target, from `after` on, at most `max`.
    List {
        /// The last one already seen.
        after: Option<ObjectId>,
        /// Most objects to return.
        max: usize,
    },
}

/// A verb without its arguments, for capabilities, traces and faults.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // each is the verb of the same name
#[repr(u8)]
pub enum VerbKind {
    Create = 1,
    Write = 2,
    Read = 3,
    Append = 4,
    Truncate = 5,
    Punch = 6,
    Copy = 7,
    Sync = 8,
    Seal = 9,
    Fence = 10,
    Freeze = 11,
    Publish = 12,
    Discard = 13,
    Remove = 14,
    Stat = 15,
    List = 16,
    Allocate = 17,
    Extents = 18,
    Thaw = 19,
}

impl VerbKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [VerbKind; 19] = [
        VerbKind::Create,
        VerbKind::Write,
        VerbKind::Read,
        VerbKind::Append,
        VerbKind::Truncate,
        VerbKind::Punch,
        VerbKind::Copy,
        VerbKind::Sync,
        VerbKind::Seal,
        VerbKind::Fence,
        VerbKind::Freeze,
        VerbKind::Publish,
        VerbKind::Discard,
        VerbKind::Remove,
        VerbKind::Stat,
        VerbKind::List,
        VerbKind::Allocate,
        VerbKind::Extents,
        VerbKind::Thaw,
    ];

    /// The one with a number.
    pub fn from_code(code: u8) -> Option<VerbKind> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// Its name, as in traces.
    pub const fn text(self) -> &'static str {
        match self {
            VerbKind::Create => "create",
            VerbKind::Write => "write",
            VerbKind::Read => "read",
            VerbKind::Append => "append",
            VerbKind::Truncate => "truncate",
            VerbKind::Punch => "punch",
            VerbKind::Copy => "copy",
            VerbKind::Sync => "sync",
            VerbKind::Seal => "seal",
            VerbKind::Fence => "fence",
            VerbKind::Freeze => "freeze",
            VerbKind::Publish => "publish",
            VerbKind::Discard => "discard",
            VerbKind::Remove => "remove",
            VerbKind::Stat => "stat",
            VerbKind::List => "list",
            VerbKind::Allocate => "allocate",
            VerbKind::Extents => "extents",
            VerbKind::Thaw => "thaw",
        }
    }
}

impl ObjectVerb {
    /// The kind.
    pub fn kind(&self) -> VerbKind {
        match self {
            ObjectVerb::Create => VerbKind::Create,
            ObjectVerb::Write { .. } => VerbKind::Write,
            ObjectVerb::Read { .. } => VerbKind::Read,
            ObjectVerb::Append => VerbKind::Append,
            ObjectVerb::Truncate { .. } => VerbKind::Truncate,
            ObjectVerb::Punch(_) => VerbKind::Punch,
            ObjectVerb::Allocate { .. } => VerbKind::Allocate,
            ObjectVerb::Copy { .. } => VerbKind::Copy,
            ObjectVerb::Sync => VerbKind::Sync,
            ObjectVerb::Seal => VerbKind::Seal,
            ObjectVerb::Fence { .. } => VerbKind::Fence,
            ObjectVerb::Freeze { .. } => VerbKind::Freeze,
            ObjectVerb::Publish { .. } => VerbKind::Publish,
            ObjectVerb::Discard { .. } => VerbKind::Discard,
            ObjectVerb::Remove => VerbKind::Remove,
            ObjectVerb::Stat => VerbKind::Stat,
            ObjectVerb::Extents { .. } => VerbKind::Extents,
            ObjectVerb::Thaw { .. } => VerbKind::Thaw,
            ObjectVerb::List { .. } => VerbKind::List,
        }
    }

    /// Whether it changes the bytes or the length of the object.
    pub fn changes_bytes(&self) -> bool {
        matches!(
            self.kind(),
            VerbKind::Write
                | VerbKind::Append
                | VerbKind::Truncate
                | VerbKind::Punch
                | VerbKind::Allocate
                | VerbKind::Copy
        )
    }
}

/// One operation on one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectOp {
    /// Which object.
    pub object: ObjectId,
    /// What to do.
    pub verb: ObjectVerb,
    /// What it must fulfil.
    pub demand: Demand,
}

/// What really happened to one operation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Evidence {
    /// Bytes moved.
    pub bytes: u64,
    /// Where an append went (staged: where it would go now).
    pub offset: u64,
    /// Length of the object afterwards.
    pub size: u64,
    /// Space it takes.
    pub allocated: u64,
    /// Grows with each publication of the object; of a freeze the one to come.
    pub version: u64,
    /// The object's epoch.
    pub epoch: u64,
    /// Time of the last change of the bytes, in nanoseconds since 1970; 0 = never.
    pub mtime_ns: i64,
    /// What the change survives now.
    pub durability: Option<Persistence>,
    /// Answer to `Extents`.
    pub extents: Vec<Extent>,
    /// Answer to `List`.
    pub objects: Vec<ObjectId>,
}

impl Evidence {
    /// Whether there is no object, as a stat or a sync says: nobody has written it, or it is gone.
    pub fn shows_nothing(&self) -> bool {
        (self.size, self.version, self.mtime_ns) == (0, 0, 0)
    }
}

/// What a target can do; constant while it is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capability {
    /// A word for it in messages: `heap`, `files`.
    pub medium: &'static str,
    /// The strongest level it can make bytes survive.
    pub durability: Persistence,
    /// Whether `unit` demands can be met, and up to which n.
    pub max_unit: u64,
    /// Whether stages can be frozen and published in one step.
    pub staging: bool,
    /// Most bytes in one stage (B4).
    pub stage_bytes: u64,
    /// Whether it drops the kernel's cache for `once` or has none.
    pub once: bool,
    /// Whether it can drain to the durable tier by a deadline, or has no slower tier.
    pub bursty: bool,
    /// Targets that a layout may name.
    pub targets: u32,
    /// Grows each time the medium starts empty or without its old objects (P1).
    pub incarnation: u64,
}

impl Capability {
    /// The medium of a target whose bytes lie in segments of shared memory, by which clients know that they may map them.
    pub const SHARED_MEMORY: &'static str = "shared memory";
    /// Files of a directory.
    pub const FILES: &'static str = "files";
    /// The memory of one process, with which it goes.
    pub const HEAP: &'static str = "heap";
    /// None: lengths are kept, bytes are not.
    pub const NULL: &'static str = "null";
    /// Of a place on targets of several kinds.
    pub const SEVERAL: &'static str = "several media";
    /// What a shared object that was loaded at run time makes of it.
    pub const RUN_TIME: &'static str = "run-time backend";

    /// The name of a medium, as another process has told it.
    pub fn medium_named(name: &str) -> &'static str {
        let known = [Self::SHARED_MEMORY, Self::HEAP, Self::NULL, Self::RUN_TIME, Self::SEVERAL];
        known.into_iter().find(|known| *known == name).unwrap_or(Self::FILES)
    }

    /// Whether bytes go with something that ends by itself, as a process or a machine: then nobody is to blame for those that
    /// are gone (P1).
    pub fn is_memory(&self) -> bool {
        let promises_little = self.medium == Self::RUN_TIME && self.durability < Persistence::Durable;
        promises_little || [Self::SHARED_MEMORY, Self::HEAP, Self::NULL].contains(&self.medium)
    }
}
