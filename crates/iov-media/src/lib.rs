//! The media that a target keeps its bytes on. So far: files of one directory, or segments of shared memory, in [`Files`].
#![deny(unsafe_code)] // but for io_uring, in `ring`, and what else the libraries do not wrap, in `file_lease`

pub mod fail;
mod file_lease;
mod files;
mod ring;
mod segments;

pub use files::{Files, Granted, Lent, OpenSums, Options, Peer, Way, Which, void_grants};
pub use segments::{Piece, SpaceUse, Window};
