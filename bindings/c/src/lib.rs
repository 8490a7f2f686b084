//! The C ABI of IOVerbs: every function of `ioverbs.h` on top of the Rust facade.
//!
//! One file per chapter of the header. Around them: `abi` mirrors the structs, `arg` reads what comes in, `out` writes
//! what goes out, `table` turns handles into objects, `guard` keeps panics inside, `last_error` and `log` tell.
//!
//! The exported functions are safe in the sense of Rust, because their pointer arguments are types of `arg`, `out` and
//! `object` that only C code, or an `unsafe` constructor, can make. What C code must keep to is said in `ioverbs.h`.

mod abi;
mod arg;
mod convert;
mod guard;
mod last_error;
mod log;
mod object;
mod out;
mod pending;
mod submit;
mod table;
mod text_store;

mod batch;
mod collection;
mod controls;
mod cursor;
mod data;
mod group;
mod handles;
mod library;
mod locks;
mod memory;
mod metadata;
mod request;
mod session;
mod workspace;

#[cfg(test)]
mod tests;
