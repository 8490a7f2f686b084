//! `file:` stores with real processes that die, come back, misbehave or are not let in.
#![allow(clippy::disallowed_methods)]

mod at_once;
mod away;
mod bad_input;
mod damage;
mod doors;
mod events;
mod full;
mod full_start;
mod hostile;
mod kept;
mod kit;
mod lifetimes;
mod limits;
mod looked;
mod many;
mod media;
mod members;
mod near;
mod network;
mod peers;
mod priority;
mod raw;
mod remembered;
mod restart;
mod rings;
mod scattered;
mod shared;
mod stages;
mod users;
mod whole;
