//! Targets that somebody else has written, in any language that speaks C: a table of functions (`iov_backend_ops` in
//! `ioverbs.h`) that a program has linked in, or that a shared object brings at run time under the name `iov_backend_ops_v1`.
//!
//! What a table has to do is little: bytes of objects, a seal, an epoch. Stages, freezes, limits and repeated appends are
//! [`iov_store::objects`]'s, in front of it. The other way round [`export_backend!`] makes such a table out of any
//! [`Backend`](iov_store::Backend) of this project.
//!
//! `unsafe` lives here because the other side is C: what it is given is checked here, and what it gives is believed as far as
//! `ioverbs.h` says.

pub mod abi;
mod body;
pub mod export;
mod flat;
mod medium;
mod prepared;
mod table;

#[cfg(test)]
mod tests;

pub use medium::{Foreign, Setup, Source, open};
pub use table::Log;
