//! Numbers of enums; those that `ioverbs.h` numbers have the same ones here.

use iov_types::{
    Atomicity, Concurrency, Consistency, EntryKind, ExtentKind, Mutability, OnError, Persistence, Point, Redundancy,
    Right, Scope, Spatiality, State, Temporality,
};

use crate::numbers;

numbers! { EntryKind { Workspace = 2, Group = 3, Collection = 4 } }
numbers! { Scope { Workspace = 1, Process = 2, Lease = 3 } }
numbers! { State { Staging = 1, Open = 2, Sealed = 3 } }
numbers! { Right { Read = 1, Write = 2, Admin = 3 } }
numbers! { ExtentKind { Data = 1, Hole = 2, Allocated = 3, Abandoned = 4 } }
numbers! { Redundancy { None = 1, Mirror = 2, Erasure = 3 } }
numbers! { Consistency { Sequential = 1, Commit = 2, Session = 3, Eventual = 4 } }
numbers! { Concurrency { Shared = 1, Exclusive = 2 } }
numbers! { Mutability { Overwrite = 1, Append = 2, Immutable = 3 } }
numbers! { Atomicity { None = 1, Unit = 2, Publication = 3 } }
numbers! { Persistence { Volatile = 1, Process = 2, Durable = 3, Replicated = 4 } }
numbers! { Point { Close = 1, Request = 2, Batch = 3, Explicit = 4 } }
numbers! { Temporality { Multiple = 1, Once = 2, Bursty = 3 } }
numbers! { Spatiality { Any = 1, Contiguous = 2, Strided = 3, Random = 4 } }
numbers! { OnError { Continue = 1, Stop = 2, Rollback = 3 } }
