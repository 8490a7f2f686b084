//! Versions of the protocol that this release speaks.

/// Oldest version. A release speaks the version of the one before it too, so that either side may be updated first.
pub const MIN_VERSION: u16 = 1;
/// Newest version.
pub const MAX_VERSION: u16 = 1;
/// The version in the header of frames sent before both sides have agreed on one: `Hello`, `Welcome` and the `Fault` that
/// refuses. It never changes, so that releases of any age can tell each other that they do not fit.
pub const HANDSHAKE_VERSION: u16 = 1;
