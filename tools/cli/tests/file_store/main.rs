//! The program itself on `file:` stores: processes that share one, die in it, and are interrupted.
#![allow(missing_docs, clippy::disallowed_methods)]

mod archives;
mod asked;
mod calls;
mod daemon;
mod dying;
mod followed;
mod held;
mod interrupted;
mod libraries;
mod mounts;
mod network;
mod offline;
mod pages;
mod passed_writes;
mod passthrough;
mod programs;
mod questions;
mod runs;
mod seen;
mod shared;
mod sharing;
mod store;
mod trace;
mod ways;
mod written;
