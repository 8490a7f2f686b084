//! The program itself on `file:` stores: processes that share one, die in it, and are interrupted.
#![allow(missing_docs, clippy::disallowed_methods)]

mod daemon;
mod dying;
mod network;
mod shared;
mod sharing;
mod store;
mod trace;
