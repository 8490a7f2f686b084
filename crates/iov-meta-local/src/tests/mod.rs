//! The engine as a whole, through its door and with a medium that fails.
#![allow(clippy::disallowed_methods)]

mod conformance;
mod damage;
mod descriptors;
mod doors;
mod full;
mod kill;
pub(crate) mod kit;
mod look;
mod model;
mod odd_keys;
mod power;
mod readers;
mod reclaim;
mod room;
mod sync;
mod tables_damage;
pub(crate) mod torn;
