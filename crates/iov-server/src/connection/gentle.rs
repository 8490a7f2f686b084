//! What is asked in the background.

use std::sync::{Arc, atomic::Ordering};

use iov_net::frames::Frame;
use iov_store::{Catalog, seam};
use iov_types::{
    Priority,
    catalog::{CatalogOp, Submission},
};
use iov_wire::{Header, Verb, messages::Context};

use super::{Connection, Incoming, ending::End, lock};
use crate::{
    Server,
    client::{Client, priority},
};

/// How often who asks in the background is noted to be alive, in nanoseconds: what he says of that waits behind what he asks.
const ALIVE_NS: i64 = 1_000_000_000;

impl Connection {
    /// The session of who asks in the background is alive, whatever else of it waits.
    pub(super) fn is_alive(&self, server: &Arc<Server>, client: &Arc<Client>) {
        let (now_ns, last_ns) = (seam::monotonic_ns(), client.alive_ns.load(Ordering::Relaxed));
        if let Some(catalog) = server.facts.catalog()
            && now_ns - last_ns > ALIVE_NS
        {
            client.alive_ns.store(now_ns, Ordering::Relaxed);
            let cx = client.cx(&Context::default(), &Header::new(Verb::Renew, 0));
            catalog.submit(&cx, vec![CatalogOp::Renew], Submission::Each, Box::new(|_| {}));
        }
    }

    /// Leaves a request to those who serve its priority.
    pub(super) fn set_aside(
        &self,
        server: &Arc<Server>,
        incoming: &mut Incoming,
        frame: Frame,
        channel: u32,
    ) -> Result<(), End> {
        incoming.priority = priority(&frame.header);
        // What is asked in the background waits until nobody else does.
        match incoming.priority {
            Priority::Background => self.is_passed(),
            Priority::Foreground => self.is_passed_no_more(),
        }
        incoming.aside = Some(frame);
        lock(&self.out).set_aside = true;
        let workers = server.workers(incoming.priority, channel);
        // Without descriptors for it there is no connection either.
        self.served_by(workers).map_err(|_| End::Broke)?;
        if incoming.priority == Priority::Background {
            // Those of the foreground have one who waits, always; a thread that is started here would inherit how it gives way.
            workers.stand_in(server);
        }
        Ok(())
    }
}
