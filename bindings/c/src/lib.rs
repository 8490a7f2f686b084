//! The C ABI of IOVerbs: every function of `ioverbs.h` on top of the Rust facade.
//!
//! One file per chapter of the header. Around them: `abi` mirrors the structs, `arg` reads what comes in, `out` writes
//! what goes out, `table` turns handles into objects, `guard` keeps panics inside, `last_error` and `log` tell.
//!
//! The exported functions are safe in the sense of Rust, because their pointer arguments are types of `arg`, `out` and
//! `object` that only C code, or an `unsafe` constructor, can make. What C code must keep to is said in `ioverbs.h`.

pub mod abi;
pub mod arg;
mod convert;
mod guard;
mod last_error;
pub mod log;
pub mod object;
pub mod out;
mod pending;
mod submit;
mod table;
mod text_store;

pub mod batch;
pub mod collection;
pub mod controls;
pub mod cursor;
pub mod data;
pub mod group;
pub mod handles;
pub mod library;
pub mod locks;
pub mod memory;
pub mod metadata;
pub mod request;
pub mod segment;
pub mod session;
pub mod workspace;
