//! Connections: UNIX sockets with descriptors beside the frames, TCP and TLS over it, the catalog and the target on their other side, direct
//! access by granted descriptors, and the start of a daemon on demand.
#![forbid(unsafe_code)]

mod asks;
mod book;
mod changes;
mod conn;
mod direct;
mod doubt;
pub mod frames;
mod gate;
mod grant;
mod handshake;
mod joined;
mod kept;
mod lanes;
mod lend;
mod link;
mod local;
mod mapped;
mod memory;
mod mend;
pub mod near;
mod networks;
mod orders;
mod outbox;
mod part;
pub mod polling;
mod reach;
mod remote;
mod route;
mod run;
pub mod secret;
pub mod socket;
mod start;
pub mod stream;
pub mod tcp;
mod tickets;
pub mod tls;

pub use direct::DirectBackend;
pub use grant::{grant_number, slot_of};
pub use handshake::Trust;
pub use link::{Link, PRESENTED};
pub use mapped::Mapped;
pub use networks::Networks;
pub use reach::{Address, CHANGES, LISTEN, Place, SECRET, SOCKET};
pub use remote::{RemoteBackend, RemoteCatalog};
pub use start::Starter;
