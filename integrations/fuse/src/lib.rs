//! Workspaces as directories of the system, by FUSE: a translation of the kernel's requests into `iov-posix`, and no meaning of
//! its own.
//!
//! [`Mount::new`] makes a workspace appear in a directory until it is dropped, or somebody unmounts it. The kernel checks
//! permissions by the modes that files have, and caches names and attributes for [`MountOptions::ttl`]; pages of a file stay in its
//! cache from one open to the next if the bytes have not changed. Mounted `strict`, nothing is cached.
#![forbid(unsafe_code)]

mod convert;
mod door;
mod folders;
mod following;
mod inodes;
mod locks;
mod mount;
mod opened;
mod options;
mod owners;
mod passing;
mod requests;
mod retried;
mod running;
mod shown;
mod table;
mod tagged;

pub use iov_fuse_kernel::{Rings, look_on};
pub use iov_posix::Rule;
pub use mount::{Mount, unmount};
pub use options::{MountOptions, parse_option, parse_options, split_options};
pub use running::{Wanted, remount};

#[cfg(test)]
mod tests;
