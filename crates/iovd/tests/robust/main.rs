//! `file:` stores with real processes that die, come back, misbehave or are not let in.
#![allow(clippy::disallowed_methods)]

mod kit;
mod peers;
mod restart;
mod stages;
