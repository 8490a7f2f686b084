//! One error type between crates: a kind that says what the caller should do, an outcome, a clause, a sentence.

use crate::Clause;

/// The usual result.
pub type Result<T> = std::result::Result<T, Error>;

/// Whether an operation has taken effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Outcome {
    /// Not decided yet.
    Pending = 0,
    /// It took effect.
    Applied = 1,
    /// It certainly did not.
    NotApplied = 2,
    /// It may have: a retry needs the same batch id.
    Unknown = 3,
}

impl Outcome {
    /// The word for it, the same in every language and tool.
    pub const fn text(self) -> &'static str {
        match self {
            Outcome::Pending => "pending",
            Outcome::Applied => "applied",
            Outcome::NotApplied => "not applied",
            Outcome::Unknown => "unknown",
        }
    }
}

macro_rules! kinds {
    ($($kind:ident = $code:literal, $c:literal, $errno:literal, $http:literal, $text:literal;)*) => {
        /// What went wrong, by what the caller should do. The numbers are those of `ioverbs.h` and never reused.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(i32)]
        pub enum Kind { $(#[doc = $text] $kind = $code),* }

        impl Kind {
            /// Every kind, in order of number.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];
            /// The positive number of `iov_error`.
            pub const fn code(self) -> i32 { self as i32 }
            /// The name in C, such as `IOV_EINVALID`.
            pub const fn c_name(self) -> &'static str { match self { $(Kind::$kind => $c),* } }
            /// The nearest `errno` (Linux numbering), for POSIX front doors.
            pub const fn errno(self) -> i32 { match self { $(Kind::$kind => $errno),* } }
            /// The nearest HTTP status, for gateways.
            pub const fn http(self) -> u16 { match self { $(Kind::$kind => $http),* } }
            /// A sentence: what it means and what to do.
            pub const fn text(self) -> &'static str { match self { $(Kind::$kind => $text),* } }
            /// The kind of a number, of either sign.
            pub fn from_code(code: i32) -> Option<Kind> {
                Kind::ALL.iter().copied().find(|k| k.code() == code.saturating_abs())
            }
        }
    };
}

kinds! {
    Invalid = 1010, "IOV_EINVALID", 22, 400, "An argument, text or handle is wrong. Correct the call; the detail says where.";
    Refused = 1011, "IOV_EREFUSED", 95, 409, "This promise cannot be given here. Take the offer in the detail, or ask for less.";
    Unsupported = 1012, "IOV_EUNSUPPORTED", 95, 501, "This backend, path or release cannot do it. Go another way; repeating is useless.";
    Version = 1013, "IOV_EVERSION", 71, 426, "Program, library and store do not fit together. Update the older one.";
    Forked = 1014, "IOV_EFORKED", 10, 500, "The handle is the parent's. Open anew in this process.";
    NotFound = 1020, "IOV_ENOTFOUND", 2, 404, "No such store, name, UUID or key. Check it, or create it.";
    Exists = 1021, "IOV_EEXISTS", 17, 409, "The name is taken. Look it up, or choose another.";
    NotEmpty = 1022, "IOV_ENOTEMPTY", 39, 409, "The group or workspace still holds something. Remove that first.";
    Conflict = 1023, "IOV_ECONFLICT", 11, 412, "Somebody else's change came first. Read again, then decide again.";
    Busy = 1024, "IOV_EBUSY", 16, 423, "Held exclusively, locked, pending or in flight. Wait, then repeat.";
    Denied = 1025, "IOV_EDENIED", 13, 403, "Not allowed to this identity. Ask the workspace's owner.";
    Immutable = 1026, "IOV_EIMMUTABLE", 1, 409, "Sealed, or append only. Write to a new collection.";
    Stale = 1027, "IOV_ESTALE", 116, 410, "Handle, cursor, token or batch id has outlived its lease. Look up anew.";
    Fenced = 1028, "IOV_EFENCED", 116, 409, "The exclusive hold has passed on; nothing from here applies. Close, then reopen.";
    Unavailable = 1040, "IOV_EUNAVAILABLE", 11, 503, "A server cannot be reached. Repeat later, with the same batch id.";
    Timeout = 1041, "IOV_ETIMEOUT", 110, 504, "Time is up. From iov_wait: wait again. Else see the outcome, and repeat later with the same batch id.";
    Cancelled = 1042, "IOV_ECANCELLED", 125, 499, "Cancelled on request. The outcome says whether it took effect.";
    Partial = 1043, "IOV_EPARTIAL", 5, 207, "Completed, but not every operation is ok. Read the statuses.";
    Exhausted = 1050, "IOV_EEXHAUSTED", 28, 507, "Quota, space, memory or descriptors are used up. Free some, or get more.";
    TooBig = 1051, "IOV_ETOOBIG", 7, 413, "Too much for one batch, publication or buffer. Split it, or offer more room.";
    FileTooBig = 1052, "IOV_EFILETOOBIG", 27, 413, "Beyond collection_size.max. Use a collection with a larger limit.";
    Corrupt = 1060, "IOV_ECORRUPT", 5, 500, "These are not the bytes that were written. Do not use them; scrub or restore.";
    Lost = 1061, "IOV_ELOST", 5, 410, "Gone with a medium that did not promise to keep them. Make them again.";
    Internal = 1090, "IOV_EINTERNAL", 5, 500, "A defect of library or server. Report it with its detail.";
}

/// An error as it crosses crates and wires. Cheap to move: one pointer.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: Kind,
    outcome: Outcome,
    clause: Option<Clause>,
    detail: String,
    /// It stays in this process.
    next: Option<&'static str>,
}

macro_rules! constructors {
    ($($name:ident => $kind:ident),* $(,)?) => {
        impl Error {
            $(#[doc = concat!("An error of kind [`Kind::", stringify!($kind), "`] that was not applied.")]
              pub fn $name(detail: impl Into<String>) -> Error { Error::new(Kind::$kind, detail) })*
        }
    };
}

constructors! {
    invalid => Invalid, unsupported => Unsupported, version => Version, forked => Forked, not_found => NotFound,
    exists => Exists, not_empty => NotEmpty, conflict => Conflict, busy => Busy, denied => Denied,
    immutable => Immutable, stale => Stale, fenced => Fenced, unavailable => Unavailable, timeout => Timeout,
    cancelled => Cancelled, exhausted => Exhausted, too_big => TooBig, file_too_big => FileTooBig, corrupt => Corrupt,
    lost => Lost, internal => Internal,
}

impl Error {
    /// An error of `kind` whose operation was not applied; `detail` says what happened and what to do.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, outcome: Outcome::NotApplied, clause: None, detail: detail.into(), next: None }))
    }

    /// A refusal: it names the clause; the detail must hold the nearest offer.
    pub fn refused(clause: Clause, detail: impl Into<String>) -> Error {
        Error::new(Kind::Refused, detail).with_clause(clause)
    }

    /// The same error, naming a clause.
    pub fn with_clause(mut self, clause: Clause) -> Error {
        self.0.clause = Some(clause);
        self
    }

    /// The same error with another outcome.
    pub fn with_outcome(mut self, outcome: Outcome) -> Error {
        self.0.outcome = outcome;
        self
    }

    /// The same error, with what a person at a command line is to do about it, where the kind alone would advise something else.
    pub fn with_next(mut self, next: &'static str) -> Error {
        self.0.next = Some(next);
        self
    }

    /// The same error, its detail preceded by `context` and a colon.
    pub fn context(mut self, context: impl std::fmt::Display) -> Error {
        self.0.detail = format!("{context}: {}", self.0.detail);
        self
    }

    /// What kind it is.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whether the operation took effect all the same.
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// The clause behind it.
    pub fn clause(&self) -> Option<Clause> {
        self.0.clause
    }

    /// What happened and what to do.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// What a person at a command line is to do, where that is not said by the kind.
    pub fn next(&self) -> Option<&'static str> {
        self.0.next
    }

    /// The negative number that a C function returns.
    pub fn code(&self) -> i32 {
        -self.0.kind.code()
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.detail)?;
        match self.0.clause {
            Some(c) => write!(f, " ({}, clause {c})", self.0.kind.c_name()),
            None => write!(f, " ({})", self.0.kind.c_name()),
        }
    }
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self} [{:?}]", self.0.outcome)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    /// Sorts an operating system error by what the caller can do about it.
    fn from(e: std::io::Error) -> Error {
        use std::io::ErrorKind as K;
        let kind = match e.kind() {
            K::NotFound => Kind::NotFound,
            K::AlreadyExists => Kind::Exists,
            // Repeating it later is as useless.
            K::PermissionDenied | K::ReadOnlyFilesystem => Kind::Denied,
            K::StorageFull | K::QuotaExceeded | K::OutOfMemory => Kind::Exhausted,
            K::FileTooLarge => Kind::FileTooBig,
            K::InvalidInput => Kind::Invalid,
            K::TimedOut => Kind::Timeout,
            K::ConnectionRefused | K::ConnectionReset | K::BrokenPipe | K::UnexpectedEof | K::ConnectionAborted => {
                Kind::Unavailable
            }
            _ => match e.raw_os_error() {
                Some(23 | 24) => Kind::Exhausted, // ENFILE, EMFILE: descriptors
                _ => Kind::Unavailable,
            },
        };
        Error::new(kind, e.to_string())
    }
}
