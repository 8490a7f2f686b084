//! The media that a target keeps its bytes on. So far: files of one directory, or segments of shared memory, in [`Files`].
#![forbid(unsafe_code)]

pub mod fail;
mod files;
mod segments;

pub use files::{Files, Granted, Lent, OpenSums, Options, Peer, Which, void_grants};
pub use segments::{Piece, SpaceUse, Window};
