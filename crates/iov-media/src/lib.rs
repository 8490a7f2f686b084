//! The media that a target keeps its bytes on. So far: files of one directory, in [`Files`].
#![forbid(unsafe_code)]

pub mod fail;
mod files;

pub use files::{Files, Granted, OpenSums, Options, Peer, Which};
