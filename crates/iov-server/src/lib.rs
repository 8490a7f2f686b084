//! The serving side of one store: listening sockets, bounded sets of workers, one file for each verb.
//!
//! The catalog, the target and the book of grants behind it are the same traits and types that a program could use in its
//! own process; this crate only puts a wire in front of them.
#![forbid(unsafe_code)]

mod afar;
mod arrived;
mod bound;
mod buffers;
mod client;
mod connection;
mod elsewhere;
mod facts;
mod grants;
mod lately;
mod leave;
mod outgoing;
mod parked;
mod peer;
mod served;
mod server;
mod sessions;
mod stages;
mod turns;
mod verbs;
mod watch;
mod workers;

pub use afar::Afar;
pub use bound::Bound;
pub use elsewhere::Toward;
pub use facts::Facts;
pub use grants::{GrantBook, Granted};
pub use served::{Room, Target};
pub use server::{Doors, Entrance, Options, Server, listen};
