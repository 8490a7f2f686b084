//! Tickets for the targets of other daemons: what is to be sent there waits until the catalog has given leave (A1).
//!
//! Whatever waits goes in the order in which it came: operations on one object must not overtake each other.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, Weak},
};

use iov_store::{Answer, Catalog, OpCx, seam};
use iov_types::{
    Error, Result, SignedTicket, Uuid,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use crate::{
    link::{Link, lock},
    remote::RemoteCatalog,
};

/// Most tickets that are kept: those of the collections used last are asked for again if need be.
const MOST: usize = 1 << 16;

/// Tickets, each with its collection; nil = for all.
pub(crate) type Shown = Arc<Vec<(Uuid, Arc<Vec<u8>>)>>;
type Go = Box<dyn FnOnce(Result<Shown>) + Send>;

/// What a request is about: a collection, and whether it changes that.
pub(crate) type Need = (Uuid, bool);

struct Held {
    bytes: Arc<Vec<u8>>,
    writable: bool,
    until_ns: i64,
    /// A ticket for writing was asked for, and this came.
    asked_to_write: bool,
}

struct Waiting {
    needs: Vec<Need>,
    go: Go,
}

#[derive(Default)]
struct Book {
    held: HashMap<Uuid, Held>,
    waiting: VecDeque<Waiting>,
    asked: HashSet<Need>,
    /// Somebody lets those go that wait.
    lets_go: bool,
}

/// Whose tickets go with what is sent over a link.
pub(crate) enum Tickets {
    /// None are needed.
    None,
    /// One for everything.
    Own(Arc<Vec<u8>>),
    /// Those that the catalog behind another link gives.
    Asked(Arc<Desk>),
}

/// Where tickets are asked for, kept and waited for.
pub(crate) struct Desk {
    main: Weak<Link>,
    book: Mutex<Book>,
}

impl Book {
    fn has(&self, (uuid, writes): Need, now_ns: i64) -> bool {
        self.held
            .get(&uuid)
            .is_some_and(|held| held.until_ns > now_ns && (!writes || held.writable || held.asked_to_write))
    }

    fn shown(&self, needs: &[Need]) -> Shown {
        let shown = |(uuid, _): &Need| Some((*uuid, self.held.get(uuid)?.bytes.clone()));
        Arc::new(needs.iter().filter_map(shown).collect())
    }
}

impl Tickets {
    /// Calls `go` with the tickets for all that a request is about: now, or when they have come.
    pub(crate) fn with(&self, cx: &OpCx, needs: impl FnOnce() -> Vec<Need>, go: Go) {
        match self {
            Tickets::None => go(Ok(Shown::default())),
            Tickets::Own(ticket) => go(Ok(Arc::new(vec![(Uuid::NIL, ticket.clone())]))),
            Tickets::Asked(desk) => {
                let mut needs = needs();
                needs.sort_unstable();
                needs.dedup();
                desk.with(cx, needs, go);
            }
        }
    }
}

impl Desk {
    pub(crate) fn new(main: &Arc<Link>) -> Arc<Desk> {
        Arc::new(Desk { main: Arc::downgrade(main), book: Mutex::default() })
    }

    fn with(self: &Arc<Desk>, cx: &OpCx, needs: Vec<Need>, go: Go) {
        let now_ns = seam::monotonic_ns();
        let mut book = lock(&self.book);
        let ready = needs.iter().all(|need| book.has(*need, now_ns));
        if ready && book.waiting.is_empty() && !book.lets_go {
            let shown = book.shown(&needs);
            drop(book);
            return go(Ok(shown));
        }
        let mut missing: Vec<Need> = needs.iter().copied().filter(|need| !book.has(*need, now_ns)).collect();
        missing.retain(|need| book.asked.insert(*need));
        book.waiting.push_back(Waiting { needs, go });
        drop(book);
        if missing.is_empty() {
            return self.let_go();
        }
        let Some(main) = self.main.upgrade() else {
            return self.answered(&missing, Err(Error::unavailable("the session has ended")));
        };
        let ops = missing.iter().map(|(uuid, _)| CatalogOp::Ticket { uuid: *uuid }).collect();
        let desk = self.clone();
        let done = Box::new(move |answer: Answer| desk.answered(&missing, answer));
        RemoteCatalog(main).submit(cx, ops, Submission::Each, done);
    }

    fn answered(self: &Arc<Desk>, missing: &[Need], answer: Answer) {
        let now_ns = seam::monotonic_ns();
        let mut failed: HashMap<Uuid, Error> = HashMap::new();
        let mut book = lock(&self.book);
        let mut replies = answer.map(Vec::into_iter);
        for (uuid, writes) in missing {
            book.asked.remove(&(*uuid, *writes));
            let reply = match &mut replies {
                Ok(replies) => replies.next().unwrap_or_else(|| Err(Error::internal("the catalog left out a ticket"))),
                Err(e) => Err(e.clone()),
            };
            match reply {
                Ok(CatalogReply::Ticket(ticket)) => {
                    let SignedTicket { bytes, lasts_ns, writable } = *ticket;
                    // Not to the last moment: it must still be good when it arrives, and clocks differ.
                    let lasts_ns = (lasts_ns / 10 * 9).min(i64::MAX as u64) as i64;
                    let held = Held {
                        bytes: Arc::new(bytes),
                        writable,
                        until_ns: now_ns.saturating_add(lasts_ns),
                        asked_to_write: *writes,
                    };
                    book.held.insert(*uuid, held);
                }
                Ok(_) => {
                    drop(failed.insert(*uuid, Error::corrupt("the catalog answered something else than a ticket")))
                }
                Err(e) => drop(failed.insert(*uuid, e)),
            }
        }
        // They fail where they stand: what waits behind them goes on.
        let mut fails = Vec::new();
        if !failed.is_empty() {
            let (failing, rest): (VecDeque<Waiting>, VecDeque<Waiting>) = std::mem::take(&mut book.waiting)
                .into_iter()
                .partition(|waiting| waiting.needs.iter().any(|(uuid, _)| failed.contains_key(uuid)));
            book.waiting = rest;
            fails.extend(failing);
        }
        drop(book);
        for Waiting { needs, go } in fails {
            let e = needs.iter().find_map(|(uuid, _)| failed.get(uuid)).cloned();
            go(Err(e.unwrap_or_else(|| Error::internal("nothing failed"))));
        }
        self.let_go();
    }

    /// Lets those go, in order, that have what they need; one thread at a time.
    fn let_go(&self) {
        let mut book = lock(&self.book);
        if book.lets_go {
            return;
        }
        book.lets_go = true;
        loop {
            // One that has run out meanwhile is still good for a while, and nobody would ask for it again.
            let has = |need: &Need| book.has(*need, i64::MIN);
            let ready = book.waiting.front().is_some_and(|next| next.needs.iter().all(has));
            let next = if ready { book.waiting.pop_front() } else { None };
            let Some(Waiting { needs, go }) = next else { break };
            let shown = book.shown(&needs);
            drop(book);
            go(Ok(shown));
            book = lock(&self.book);
        }
        book.lets_go = false;
        if book.waiting.is_empty() && book.held.len() > MOST {
            book.held.clear();
        }
    }

    /// Forgets what is held for a collection: its handle is being closed.
    pub(crate) fn forget(&self, uuid: Uuid) {
        let mut book = lock(&self.book);
        if book.waiting.is_empty() {
            book.held.remove(&uuid);
        }
    }
}
