//! How this process reaches the daemons of its store, and how long that takes.

use std::sync::Arc;

use iov_store::{OpCx, Route, seam};
use iov_types::Result;
use iov_wire::messages::StatusRequest;

use crate::{
    conn::Connection,
    link::{Link, call},
    stream::Stream,
    tcp,
};

/// Round trips of which the shortest counts.
const TRIES: usize = 5;

/// By what a connection leads to the other side, and to which address.
fn leads(connection: &Connection) -> (&'static str, String) {
    match (&connection.stream, connection.is_network()) {
        (_, false) => ("unix", String::new()),
        (Stream::Tls(_), true) => ("tls", tcp::peer_of(connection.as_fd())),
        (Stream::Plain(_), true) => ("tcp", tcp::peer_of(connection.as_fd())),
    }
}

impl Link {
    /// Tries the way to its daemon.
    pub(crate) fn route(self: &Arc<Link>, cx: &OpCx) -> Route {
        let trip = self.round_trip(cx);
        let (by, at) = self.current().map_or(("none", String::new()), |up| leads(&up.connection));
        let connections = self.lanes.all().iter().filter(|lane| lane.current().is_some()).count() as u32;
        let first = u32::from(self.current().is_some());
        Route { target: self.address.target(), by, at, connections: first + connections, round_trip_ns: trip }
    }

    fn round_trip(self: &Arc<Link>, cx: &OpCx) -> Result<u64> {
        let up = self.up(cx)?;
        let mut best = u64::MAX;
        for _ in 0..TRIES {
            let begun = seam::monotonic_ns();
            call(&up, cx, &StatusRequest)?;
            best = best.min((seam::monotonic_ns() - begun).max(0) as u64);
        }
        Ok(best)
    }

    /// Those to all daemons that are known.
    pub(crate) fn routes(self: &Arc<Link>, cx: &OpCx) -> Vec<Route> {
        std::iter::once(self.route(cx)).chain(self.siblings().iter().map(|sibling| sibling.route(cx))).collect()
    }
}
