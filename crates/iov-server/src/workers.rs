//! A bounded set of threads that serve connections: each waits until one has something, serves it, and lets it go.
//!
//! Whoever takes up a connection while nobody else is left to wait starts one more, up to the bound. So there are as many
//! threads as requests that are served at the same time, and one; not as many as connections.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use iov_store::seam;
use iov_types::{Error, Result};
use rustix::{
    event::{
        EventfdFlags, Timespec,
        epoll::{self, EventData, EventFlags},
        eventfd,
    },
    io::Errno,
};

use crate::{
    Server,
    connection::Connection,
    watch::{Looker, Others},
};

/// What a worker without work waits for before it ends.
const LINGER_S: i64 = 10;
/// Those stay.
const LEAST: usize = 1;
/// What stands for the bell among the numbers of connections.
const BELL: u64 = 0;

/// A set of threads and the connections that they serve.
pub(crate) struct Workers {
    name: &'static str,
    epoll: OwnedFd,
    /// Readable once all of them are to end.
    bell: OwnedFd,
    most: usize,
    /// Its threads give way to others.
    gives_way: bool,
    used: AtomicBool,
    threads: AtomicUsize,
    idle: AtomicUsize,
}

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaits {
    /// Something to read.
    Request,
    /// Room for an answer.
    Room,
    /// Its turn: something has come already.
    Turn,
}

impl Awaits {
    fn flags(self) -> EventFlags {
        // Once: a connection is served by one thread at a time.
        EventFlags::ONESHOT
            | match self {
                Awaits::Request => EventFlags::IN,
                Awaits::Room => EventFlags::OUT,
                // At once, nearly always. Who has no room has not taken its answers: that comes first.
                Awaits::Turn => EventFlags::IN | EventFlags::OUT,
            }
    }
}

fn failed(e: Errno) -> Error {
    Error::from(std::io::Error::from(e)).context("a set of workers")
}

impl Workers {
    /// A set without threads, of at most so many.
    pub(crate) fn new(name: &'static str, most: usize) -> Result<Workers> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN).map_err(failed)?;
        let (used, threads, idle) = Default::default();
        Ok(Workers { name, epoll, bell, most, gives_way: false, used, threads, idle })
    }

    /// The same, of threads that give way to others.
    pub(crate) fn in_background(name: &'static str, most: usize) -> Result<Workers> {
        Ok(Workers { gives_way: true, ..Workers::new(name, most)? })
    }

    /// Whether it has ever had to serve anything.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Ordering::SeqCst)
    }

    /// Serves a connection too.
    pub(crate) fn add(&self, connection: &Connection, awaits: Awaits) -> Result<()> {
        self.used.store(true, Ordering::Relaxed);
        let number = EventData::new_u64(connection.id());
        epoll::add(&self.epoll, connection, number, awaits.flags()).map_err(failed)
    }

    /// A connection waits again.
    pub(crate) fn arm(&self, connection: &Connection, awaits: Awaits) {
        let number = EventData::new_u64(connection.id());
        // One that has been taken out meanwhile ends.
        let _ = epoll::modify(&self.epoll, connection, number, awaits.flags());
    }

    /// Serves a connection no longer.
    pub(crate) fn remove(&self, connection: &Connection) {
        let _ = epoll::delete(&self.epoll, connection);
    }

    /// Starts the first thread.
    pub(crate) fn start(self: &Arc<Self>, server: &Arc<Server>) -> Result<()> {
        self.one_more(server).map_err(|e| Error::from(e).context("a thread to serve connections"))
    }

    /// Has all threads end once they have done what they are doing.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn one_more(self: &Arc<Self>, server: &Arc<Server>) -> std::io::Result<()> {
        let added = self.threads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| (n < self.most).then_some(n + 1));
        if added.is_err() {
            return Ok(());
        }
        let (workers, server) = (self.clone(), server.clone());
        let started = seam::spawn(self.name, move || {
            // Also if a request makes it panic.
            let counted = Counted(&workers.threads);
            if workers.gives_way {
                seam::in_background();
            }
            if workers.work(&server) {
                // It has been taken off already.
                std::mem::forget(counted);
            }
        });
        started.map(drop).inspect_err(|_| drop(Counted(&self.threads)))
    }

    /// Serves until there is nothing to do for long (then it counts no longer), or the bell rings.
    fn work(self: &Arc<Self>, server: &Arc<Server>) -> bool {
        let mut spare = Vec::new();
        let mut looker = Looker { watch: &server.watch, others: Others::default() };
        loop {
            match self.next() {
                None => return true,
                Some(BELL) => return false,
                Some(connection) => {
                    self.stand_in(server);
                    let (mut next, mut told) = (server.connection(connection), true);
                    while let Some(connection) = next {
                        next = connection.serve(self, server, &mut spare, &mut looker.others, told);
                        told = false;
                    }
                    server.watch.ends(&mut looker.others);
                }
            }
        }
    }

    /// The next connection that has something; `None`: there has been none for long.
    fn next(self: &Arc<Self>) -> Option<u64> {
        self.idle.fetch_add(1, Ordering::SeqCst);
        let got = self.wait();
        self.idle.fetch_sub(1, Ordering::SeqCst);
        got
    }

    fn wait(&self) -> Option<u64> {
        let patience = Timespec { tv_sec: LINGER_S, tv_nsec: 0 };
        let mut events = Vec::with_capacity(1);
        loop {
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience)) {
                Ok(0) => {
                    // Two that end at the same time must not leave nobody.
                    let fewer = |n| (n > LEAST).then(|| n - 1);
                    if self.threads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok() {
                        return None;
                    }
                }
                Ok(_) => return events.first().map(|event| event.data.u64()),
                Err(_) => {}
            }
        }
    }

    /// If none is left to wait, there is one more.
    pub(crate) fn stand_in(self: &Arc<Self>, server: &Arc<Server>) {
        if self.idle.load(Ordering::SeqCst) == 0 {
            // Without it, others wait a little longer.
            let _ = self.one_more(server);
        }
    }
}

/// One of a number of threads.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
