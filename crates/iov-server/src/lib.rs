//! The serving side of one store: listening sockets, bounded sets of workers, one file for each verb.
//!
//! The catalog, the target and the book of grants behind it are the same traits and types that a program could use in its
//! own process; this crate only puts a wire in front of them.
#![forbid(unsafe_code)]

mod afar;
mod buffers;
mod connection;
mod grants;
mod outgoing;
mod peer;
mod served;
mod server;
mod sessions;
mod stages;
mod verbs;
mod workers;

pub use afar::Afar;
pub use grants::{GrantBook, Granted};
pub use served::{Room, Target};
pub use server::{Doors, Entrance, Options, Server, listen};
