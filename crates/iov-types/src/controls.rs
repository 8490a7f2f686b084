//! Controls: what a program wants promised, and what it expects to do (section 2 of the clauses).
//!
//! [`Controls`] is what somebody asked for, each control set or unset. [`Effective`] is what holds, nothing unset.

macro_rules! control {
    ($(#[$doc:meta])* $name:ident: $what:literal { $($(#[$vdoc:meta])* $variant:ident = $n:literal $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $n),* }

        impl $name {
            /// Every value; the default first.
            pub const ALL: &[$name] = &[$($name::$variant),*];
            /// The control's name in text.
            pub const CONTROL: &str = $what;

            /// The value's name in text.
            pub const fn text(self) -> &'static str { match self { $($name::$variant => $text),* } }

            /// The value of a name.
            pub fn from_text(text: &str) -> Option<$name> {
                Self::ALL.iter().copied().find(|v| v.text() == text)
            }

            /// The value of a number of `ioverbs.h`.
            pub fn from_number(n: u8) -> Option<$name> {
                Self::ALL.iter().copied().find(|v| *v as u8 == n)
            }
        }
    };
}

control! {
    /// When others see a write (C1–C7). Ordered from the strongest to the weakest.
    Consistency: "consistency" {
        /// As soon as it has completed (C1).
        Sequential = 1 "sequential",
        /// After the writer's commit (C2).
        Commit = 2 "commit",
        /// After the writer's close, at the reader's open (C3).
        Session = 3 "session",
        /// At most T later (C4).
        Eventual = 4 "eventual",
    }
}
control! {
    /// How many may hold it (X1–X3).
    Concurrency: "concurrency" {
        /// Many.
        Shared = 1 "shared",
        /// One holder.
        Exclusive = 2 "exclusive",
    }
}
control! {
    /// How it may change (M2–M4).
    Mutability: "mutability" {
        /// Anywhere, any time.
        Overwrite = 1 "overwrite",
        /// Only at the end.
        Append = 2 "append",
        /// Until it is sealed.
        Immutable = 3 "immutable",
    }
}
control! {
    /// Whole or not at all (M1).
    Atomicity: "atomicity" {
        /// Byte by byte.
        None = 1 "none",
        /// Unit by unit.
        Unit = 2 "unit",
        /// From one publishing point to the next.
        Publication = 3 "publication",
    }
}
control! {
    /// What it survives (P1–P4). Ordered from the weakest to the strongest.
    Persistence: "persistence" {
        /// The client.
        Volatile = 1 "volatile",
        /// SIGKILL of every process.
        Process = 2 "process",
        /// Power loss of the node.
        Durable = 3 "durable",
        /// Loss of copies.
        Replicated = 4 "replicated",
    }
}
control! {
    /// From when on it survives (P5).
    Point: "point" {
        /// When close completes.
        Close = 1 "close",
        /// When the request completes.
        Request = 2 "request",
        /// When the batch completes.
        Batch = 3 "batch",
        /// At an explicit persist.
        Explicit = 4 "explicit",
    }
}
control! {
    /// How often the bytes will be used (H2).
    Temporality: "temporality" {
        /// Again and again.
        Multiple = 1 "multiple",
        /// Once: no trace in caches.
        Once = 2 "once",
        /// In a burst, to be drained by a deadline.
        Bursty = 3 "bursty",
    }
}
control! {
    /// In which pattern the bytes will be used (H2).
    Spatiality: "spatiality" {
        /// Unknown.
        Any = 1 "any",
        /// One after the other.
        Contiguous = 2 "contiguous",
        /// Blocks at a fixed distance.
        Strided = 3 "strided",
        /// Anywhere.
        Random = 4 "random",
    }
}
control! {
    /// What a batch does after a failure (B1–B3).
    OnError: "error" {
        /// The others run.
        Continue = 1 "continue",
        /// What is behind it does not.
        Stop = 2 "stop",
        /// Nothing takes effect.
        Rollback = 3 "rollback",
    }
}

/// Smallest and largest, in bytes; 0 = unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Limits {
    /// Smallest.
    pub min: u64,
    /// Largest.
    pub max: u64,
}

impl Limits {
    /// Whether nothing is known.
    pub fn is_unset(&self) -> bool {
        self.min == 0 && self.max == 0
    }

    /// The one value, if smallest and largest are the same.
    pub fn single(&self) -> Option<u64> {
        (self.min != 0 && self.min == self.max).then_some(self.min)
    }
}

/// What somebody asked for. `None` and 0 are unset.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Controls {
    /// When others see a write.
    pub consistency: Option<Consistency>,
    /// T of `eventual`, in nanoseconds.
    pub eventual_ns: u64,
    /// How many may hold it.
    pub concurrency: Option<Concurrency>,
    /// How it may change.
    pub mutability: Option<Mutability>,
    /// Whole or not at all.
    pub atomicity: Option<Atomicity>,
    /// n of `unit`, in bytes.
    pub atomic_unit: u64,
    /// What it survives.
    pub persistence: Option<Persistence>,
    /// From when on.
    pub point: Option<Point>,
    /// How often it is used.
    pub temporality: Option<Temporality>,
    /// Deadline of the drain of `bursty`, in nanoseconds.
    pub drain_ns: u64,
    /// In which pattern.
    pub spatiality: Option<Spatiality>,
    /// `strided`: distance between the starts of blocks, in bytes.
    pub stride: u64,
    /// `strided`: bytes of a block.
    pub block: u64,
    /// Bytes of one read or write.
    pub request_size: Limits,
    /// Bytes of the collection; the maximum is enforced (H1).
    pub collection_size: Limits,
    /// What a batch does after a failure; read only where a batch is made.
    pub on_error: Option<OnError>,
}

/// What holds for a handle: every control has a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Effective {
    /// When others see a write.
    pub consistency: Consistency,
    /// T of `eventual` in nanoseconds; 0 for the other levels.
    pub eventual_ns: u64,
    /// How many may hold it.
    pub concurrency: Concurrency,
    /// How it may change.
    pub mutability: Mutability,
    /// Whole or not at all.
    pub atomicity: Atomicity,
    /// n of `unit` in bytes; 0 for the others.
    pub atomic_unit: u64,
    /// What it survives.
    pub persistence: Persistence,
    /// From when on.
    pub point: Point,
    /// How often it is used.
    pub temporality: Temporality,
    /// Deadline of the drain of `bursty`, in nanoseconds; 0 for the others.
    pub drain_ns: u64,
    /// In which pattern.
    pub spatiality: Spatiality,
    /// `strided`: distance between the starts of blocks; else 0.
    pub stride: u64,
    /// `strided`: bytes of a block; else 0.
    pub block: u64,
    /// Bytes of one read or write; 0 = unknown.
    pub request_size: Limits,
    /// Bytes of the collection; 0 = unknown; the maximum is enforced.
    pub collection_size: Limits,
    /// What a batch does after a failure.
    pub on_error: OnError,
}

impl From<&Effective> for Controls {
    /// The same, as a request that asks for all of it.
    fn from(e: &Effective) -> Controls {
        Controls {
            consistency: Some(e.consistency),
            eventual_ns: e.eventual_ns,
            concurrency: Some(e.concurrency),
            mutability: Some(e.mutability),
            atomicity: Some(e.atomicity),
            atomic_unit: e.atomic_unit,
            persistence: Some(e.persistence),
            point: Some(e.point),
            temporality: Some(e.temporality),
            drain_ns: e.drain_ns,
            spatiality: Some(e.spatiality),
            stride: e.stride,
            block: e.block,
            request_size: e.request_size,
            collection_size: e.collection_size,
            on_error: Some(e.on_error),
        }
    }
}
