//! What POSIX means on a workspace. Front doors for unchanged programs (FUSE, LD_PRELOAD) only translate into this.
//!
//! A directory is a group, a file a collection, a symbolic link a collection whose bytes are its target and whose mode says
//! `S_IFLNK`; so are named pipes, sockets and devices, which the kernel or the C library make work. Hard links are the several
//! names of one collection. Names are bytes. What is open lives on without a name.
//!
//! One [`FileSystem`] is sequential in itself: every handle that it has on a file is one and the same. Between two of them what
//! [`Level`] says holds. Errors are numbers of the system ([`Errno`]); what the library has said goes to [`Options::report`].
//!
//! ```
//! use iov_posix::{Create, FileSystem, Flags, Options, Who};
//!
//! let session = ioverbs::open(Some("mem:"), Default::default())?;
//! let ws = session.create_workspace(ioverbs::Name::new("doc")?, Default::default())?;
//! let fs = FileSystem::new(ws, Options::default());
//! let (who, root) = (Who { uid: 0, gid: 0 }, fs.root());
//! let umask = 0o022;
//! let home = fs.mkdir(&root, b"home", Create { mode: 0o777, umask, who }).unwrap().0;
//! let (file, _, _) = fs.create(&home, b"a.txt", Create { mode: 0o666, umask, who }, Flags::default()).unwrap();
//! assert_eq!(file.write(0, b"hello").unwrap(), 5);
//! assert_eq!(fs.lookup(&home, b"a.txt").unwrap().1.size, 5);
//! # Ok::<(), ioverbs::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod acl;
mod attributes;
mod behind;
mod directory;
mod early;
mod errno;
mod file;
mod fs;
mod handle;
pub mod holder;
mod holes;
mod later;
mod lent;
pub mod linked;
mod locks;
mod making;
mod names;
mod node;
mod paths;
mod promised;
mod remembered;
mod removal;
mod rules;
pub mod run;
mod special;
mod staying;
mod tags;
mod told;
mod unsure;
mod xattr;

pub use attributes::{Attributes, Change, Kind, SetTime, number};
pub use directory::{DirEntry, Directory, Found};
pub use errno::{Errno, Outcome};
pub use file::{File, Flags};
pub use fs::{Create, FileSystem, Level, Options, Report, Space, Who};
pub use holes::Seek;
pub use lent::LentToWrite;
pub use locks::{InTheWay, LockKind, LockRange, again_behind_close, owner_of};
pub use names::Rename;
pub use node::Node;
pub use paths::{Caller, How, Last, Opened, Paths, Reached, Stop, Walker, Way};
pub use remembered::Alone;
pub use removal::Gone;
pub use rules::Rule;
pub use staying::{Staying, stay};
pub use tags::{Tag, Tags, View};
pub use xattr::SetXattr;

#[cfg(test)]
mod tests;
