//! How the daemon is.

use std::sync::{Arc, atomic::Ordering};

use iov_net::frames::Frame;
use iov_store::seam;
use iov_types::{Capability, Result};
use iov_wire::messages::{Counter, StatusAnswer, StatusRequest};

use crate::{Server, client::Client, connection::Connection};

pub(crate) fn run(connection: &Arc<Connection>, server: &Server, client: &Client, frame: &Frame) -> Result<()> {
    let _: StatusRequest = frame.header.body(&frame.body)?;
    let (sessions, connections) = server.counts();
    let mut counters = vec![
        ("requests".to_owned(), server.requests.load(Ordering::Relaxed)),
        ("background_requests".to_owned(), server.background.load(Ordering::Relaxed)),
        ("object_bytes".to_owned(), server.object_bytes.load(Ordering::Relaxed)),
    ];
    counters.push(("targets".to_owned(), server.targets.iter().count() as u64));
    counters.extend(server.facts.silent_ns().map(|ns| ("catalog_silent_ns".to_owned(), ns)));
    let stats = server.facts.catalog().into_iter().flat_map(|catalog| catalog.stats());
    counters.extend(stats.map(|(name, value)| (name.to_owned(), value)));
    for served in server.targets.iter().filter(|_| server.targets.iter().count() > 1) {
        let number = served.number;
        counters.push((format!("target_{number}_operations"), served.operations.load(Ordering::Relaxed)));
        counters.push((format!("target_{number}_bytes"), served.bytes.load(Ordering::Relaxed)));
    }
    let first = server.targets.at(0);
    if let Some(space) = first.grants.space() {
        let of = match first.target.capability().medium {
            Capability::SHARED_MEMORY => "shm",
            Capability::HEAP => "heap",
            _ => "medium",
        };
        let names = ["capacity", "made", "used", "held"].map(|what| format!("{of}_{what}_bytes"));
        let values = [space.capacity, space.made, space.used, space.held];
        counters.extend(names.into_iter().zip(values));
    }
    let answer = StatusAnswer {
        daemon: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        uptime_ns: (seam::monotonic_ns() - server.started_ns) as u64,
        sessions,
        connections,
        counters: counters.into_iter().map(|(name, value)| Counter { name, value }).collect(),
    };
    connection.answer(client.version, frame.header.request, &answer, Vec::new(), Vec::new());
    Ok(())
}
