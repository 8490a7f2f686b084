//! The ways to a daemon: the session's first connection, over which it asks for facts, and over a network others besides, which
//! only move bytes, so that neither waits for the other. What concerns one object goes one way, in order.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, atomic::AtomicI64},
};

use iov_store::OpCx;
use iov_types::{Counters, Error, Kind, ObjectId, Result};

use crate::{
    conn::Connection,
    gate::Gate,
    link::{Link, Up, lock},
    part::Part,
    polling,
    reach::{self, Place},
    socket,
};

/// How many connections of a session move bytes to a daemon over a network, unless `IOVERBS_CHANNELS` says another number.
const CHANNELS: u32 = 2;
/// Most of them.
pub(crate) const MOST: u32 = 16;
/// Longest that one look at several connections waits: what is waited for may go another way meanwhile.
const LOOK_NS: i64 = 50_000_000;

/// A way for bytes.
#[derive(Default)]
pub(crate) struct Lane {
    /// Its own connection; none of the first one, and before the first use.
    up: Mutex<Option<Arc<Up>>>,
    /// How long it is tried for next time, as it could not be connected; 0 = as at first.
    pub(crate) patience_ns: AtomicI64,
    pub(crate) gate: Gate<Part>,
}

/// Those of a session: number 0 goes over its first connection.
pub(crate) struct Lanes(Vec<Lane>);

impl Lanes {
    pub(crate) fn to(place: &Place) -> Lanes {
        let channels = match place {
            Place::Directory { .. } => 0,
            Place::Network { .. } => {
                let asked = polling::said("IOVERBS_CHANNELS", 1..=i64::from(MOST)).ok().flatten();
                asked.map_or(CHANNELS, |n| n as u32)
            }
        };
        Lanes((0..=channels).map(|_| Lane::default()).collect())
    }

    /// The first connection alone.
    pub(crate) fn one() -> Lanes {
        Lanes(vec![Lane::default()])
    }

    /// The number of the lane of an object.
    pub(crate) fn of(&self, object: ObjectId) -> u32 {
        let channels = self.0.len() as u64 - 1;
        match channels {
            0 => 0,
            // The same in each process, for nothing but its own order.
            n => 1 + (BuildHasherDefault::<DefaultHasher>::default().hash_one(object) % n) as u32,
        }
    }

    pub(crate) fn lane(&self, number: u32) -> &Lane {
        &self.0[number as usize]
    }

    pub(crate) fn all(&self) -> &[Lane] {
        &self.0
    }
}

impl Lane {
    /// Its connection, if there is one that works.
    pub(crate) fn current(&self) -> Option<Arc<Up>> {
        lock(&self.up).clone().filter(|up| !up.connection.is_broken())
    }
}

impl Link {
    /// The connection of a lane, if there is one that works.
    pub(crate) fn current_of(&self, lane: u32) -> Option<Arc<Up>> {
        if lane == 0 { self.current() } else { self.lanes.lane(lane).current() }
    }

    /// Connects a lane that has a connection of its own; the first one works.
    pub(crate) fn connect_lane(&self, lane: u32, first: &Arc<Up>, cx: &OpCx) -> Result<Arc<Up>> {
        if let Some(up) = self.current_of(lane) {
            return Ok(up);
        }
        let reached = reach::connect(&self.address, lane, cx.deadline_ns).inspect_err(|e| {
            if e.kind() == Kind::Stale {
                // The daemon does not know the session: the first connection has broken too, and nobody has noticed.
                first.connection.fail(&Error::unavailable("the store's daemon does not know the session any more"));
            }
        })?;
        self.check_open()?;
        if reached.store != self.store {
            return Err(Error::stale("another store answers at this address now: open it anew"));
        }
        let up = Arc::new(reached.up);
        let old = lock(&self.lanes.lane(lane).up).clone();
        old.iter().for_each(|old| old.connection.wait_told());
        let old = lock(&self.lanes.lane(lane).up).replace(up.clone());
        let counters = self.counters();
        Counters::add(if old.is_none() { &counters.connections } else { &counters.retries }, 1);
        self.watch_too(&up.connection);
        Ok(up)
    }

    /// Lets go of the lanes' own connections.
    pub(crate) fn close_lanes(&self) {
        for lane in self.lanes.all() {
            if lock(&lane.up).take().is_some() {
                Counters::sub(&self.counters().connections, 1);
            }
        }
    }

    /// Adds the lanes' own connections to a set of epoll.
    pub(crate) fn watch_lanes(&self, set: &Arc<OwnedFd>) {
        self.lanes.all().iter().filter_map(Lane::current).for_each(|up| up.connection.watch(set));
    }

    /// The connections over which somebody waits for something, to other targets too.
    fn busy(&self) -> Vec<Arc<Up>> {
        let mut busy = self.own_busy();
        if self.has_siblings() {
            busy.extend(self.siblings().iter().flat_map(|sibling| sibling.own_busy()));
        }
        busy
    }

    fn own_busy(&self) -> Vec<Arc<Up>> {
        let ups = self.lanes.all().iter().filter_map(Lane::current).chain(self.current());
        ups.filter(|up| {
            let awaited = up.connection.has_waiters();
            if !awaited && up.connection.has_more_to_send() {
                up.connection.flush();
            }
            awaited
        })
        .collect()
    }

    /// Receives what has come over any connection, or waits for it. `false`: nobody waits for anything.
    pub(crate) fn drive(&self, timeout_ns: i64) -> bool {
        // What was not waited for over one connection may be over another by now, or over one that was just made.
        self.drive_once(timeout_ns) || !self.busy().is_empty()
    }

    /// Waits a while for a connection that is being made, to whichever target; `false`: none is.
    fn wait_any_mended(&self, timeout_ns: i64) -> bool {
        if !self.has_siblings() {
            return self.wait_mended(timeout_ns);
        }
        let siblings = self.siblings();
        let one = std::iter::once(self).chain(siblings.iter().map(|sibling| &**sibling)).find(|link| link.is_mending());
        one.is_some_and(|link| link.wait_mended(timeout_ns.min(LOOK_NS)))
    }

    fn drive_once(&self, timeout_ns: i64) -> bool {
        let busy = self.busy();
        let connections = || busy.iter().map(|up| &up.connection);
        let alone = self.lanes.all().len() == 1 && !self.has_siblings();
        match &busy[..] {
            [] => self.wait_any_mended(timeout_ns),
            [one] if alone => one.connection.drive(timeout_ns) || self.wait_mended(timeout_ns),
            [one] => one.connection.drive(timeout_ns.min(LOOK_NS)) || self.wait_any_mended(timeout_ns.min(LOOK_NS)),
            _ => {
                connections().for_each(Connection::flush);
                if timeout_ns > 0 {
                    let all: Vec<_> = connections().map(|c| (c.as_fd(), c.has_more_to_send())).collect();
                    socket::wait_for_any(&all, timeout_ns.min(LOOK_NS));
                }
                connections().fold(false, |any, connection| connection.drive(0) | any)
            }
        }
    }
}
