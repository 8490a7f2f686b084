//! Tickets for the targets of other daemons: what is to be sent there waits until the catalog has given leave (A1).
//!
//! Whatever waits goes in the order in which it came: operations on one object must not overtake each other.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, Weak},
};

use iov_store::{Answer, Catalog, OpCx, seam};
use iov_types::{
    Clause, Error, Result, SignedTicket, Uuid,
    catalog::{CatalogOp, CatalogReply, Submission},
    limits,
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
    cx: OpCx,
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

impl Tickets {
    /// Whether the catalog gives them.
    pub(crate) fn are_asked_for(&self) -> bool {
        matches!(self, Tickets::Asked(_))
    }

    /// Forgets what is held for collections.
    pub(crate) fn forget(&self, uuids: &[Uuid]) {
        if let Tickets::Asked(desk) = self {
            desk.forget(uuids);
        }
    }

    /// Tells those who wait for one and whose time is up.
    pub(crate) fn expire(&self) {
        if let Tickets::Asked(desk) = self {
            desk.expire();
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
        book.waiting.push_back(Waiting { cx: cx.clone(), needs, go });
        drop(book);
        if missing.is_empty() { self.let_go() } else { self.ask(cx, missing) }
    }

    /// Asks the catalog. Others may come to wait for the same, so that it has time of its own.
    fn ask(self: &Arc<Desk>, cx: &OpCx, missing: Vec<Need>) {
        let Some(main) = self.main.upgrade() else {
            return self.answered(&missing, Err(Error::unavailable("the session has ended")));
        };
        let until_ns = seam::monotonic_ns().saturating_add(limits::DEFAULT_DEADLINE_NS);
        let cx = OpCx { deadline_ns: cx.deadline_ns.max(until_ns), ..cx.clone() };
        let ops = missing.iter().map(|(uuid, _)| CatalogOp::Ticket { uuid: *uuid }).collect();
        let desk = self.clone();
        let done = Box::new(move |answer: Answer| desk.answered(&missing, answer));
        RemoteCatalog(main).submit(&cx, ops, Submission::Each, done);
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
                    let until_ns = now_ns.saturating_add(lasts_ns);
                    let asked_to_write = *writes || book.held.get(uuid).is_some_and(|held| held.asked_to_write);
                    book.held.insert(*uuid, Held { bytes: Arc::new(bytes), writable, until_ns, asked_to_write });
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
        for Waiting { needs, go, .. } in fails {
            let e = needs.iter().find_map(|(uuid, _)| failed.get(uuid)).cloned();
            go(Err(e.unwrap_or_else(|| Error::internal("nothing failed"))));
        }
        self.let_go();
    }

    /// Lets those go, in order, that have what they need; one thread at a time. What was forgotten while it was waited for is
    /// asked for again.
    fn let_go(self: &Arc<Desk>) {
        let mut book = lock(&self.book);
        if book.lets_go {
            return;
        }
        book.lets_go = true;
        let mut again = None;
        loop {
            // Any ticket will do that has come: one that has run out since is still good for a while, and what it does not allow its
            // target says.
            let missing = |next: &Waiting| -> Vec<Need> {
                next.needs.iter().copied().filter(|(uuid, _)| !book.held.contains_key(uuid)).collect()
            };
            let Some(next) = book.waiting.front() else { break };
            let mut missing = missing(next);
            if !missing.is_empty() {
                let cx = next.cx.clone();
                let asked =
                    |(uuid, _): &Need| book.asked.contains(&(*uuid, true)) || book.asked.contains(&(*uuid, false));
                missing.retain(|need| !asked(need));
                book.asked.extend(missing.iter().copied());
                again = (!missing.is_empty()).then_some((cx, missing));
                break;
            }
            let Some(Waiting { needs, go, .. }) = book.waiting.pop_front() else { break };
            let shown = book.shown(&needs);
            drop(book);
            go(Ok(shown));
            book = lock(&self.book);
        }
        book.lets_go = false;
        if book.waiting.is_empty() && book.held.len() > MOST {
            book.held.clear();
        }
        drop(book);
        if let Some((cx, missing)) = again {
            self.ask(&cx, missing);
        }
    }

    /// Tells those whose time is up (O8).
    pub(crate) fn expire(self: &Arc<Desk>) {
        let mut book = lock(&self.book);
        if book.waiting.iter().all(|waiting| waiting.cx.left_ns() > 0) {
            return;
        }
        let all = std::mem::take(&mut book.waiting);
        let (late, rest): (VecDeque<Waiting>, VecDeque<Waiting>) =
            all.into_iter().partition(|waiting| waiting.cx.left_ns() == 0);
        book.waiting = rest;
        drop(book);
        for Waiting { go, .. } in late {
            go(Err(Error::timeout("the catalog has not given leave in time").with_clause(Clause::O8)));
        }
        // What stood behind them may have what it needs.
        self.let_go();
    }

    /// Forgets what is held for collections: they are opened anew, or closed, or a batch has made them.
    pub(crate) fn forget(&self, uuids: &[Uuid]) {
        let mut book = lock(&self.book);
        uuids.iter().for_each(|uuid| drop(book.held.remove(uuid)));
    }
}
