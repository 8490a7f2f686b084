//! What POSIX knows of files that the store has no facts for: it is kept as metadata, and what everybody who looks at a file has to hear of
//! is told in its mode.

use crate::Metadata;

/// The metadata key of the access control list of a file or directory, as `iov-posix` writes it.
pub const ACL_KEY: &str = "posix.acl.access";
/// The metadata key of the list that is given to what is made in a directory.
pub const DEFAULT_ACL_KEY: &str = "posix.acl.default";

/// In [`Stat::mode`](crate::Stat::mode), beyond the kind of file and the permission bits: it has an access control list ([`ACL_KEY`]).
pub const MODE_ACL: u32 = 1 << 16;
/// In the same: it has a list for what is made in it ([`DEFAULT_ACL_KEY`]).
pub const MODE_DEFAULT_ACL: u32 = 1 << 17;

/// Whether a metadata key is that of a list.
pub fn is_acl_key(key: &str) -> bool {
    [ACL_KEY, DEFAULT_ACL_KEY].contains(&key)
}

/// A mode of something that has this metadata.
pub fn marked(mode: u32, metadata: &Metadata) -> u32 {
    let marks = [(ACL_KEY, MODE_ACL), (DEFAULT_ACL_KEY, MODE_DEFAULT_ACL)];
    marks.iter().fold(unmarked(mode), |mode, (key, mark)| if metadata.get(key).is_some() { mode | mark } else { mode })
}

/// A mode as it is without that: the kind of file and the permission bits.
pub fn unmarked(mode: u32) -> u32 {
    mode & !(MODE_ACL | MODE_DEFAULT_ACL)
}
