//! A stream of search results.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use iov_types::{
    Error, Result, Uuid,
    catalog::{CatalogOp, CatalogReply, Entry, Page, Submission},
    limits,
};

use crate::{Session, session::lock};

enum State {
    Pending,
    Failed(Error),
    /// Closed, perhaps before its search had completed.
    Closed,
    Open {
        entries: VecDeque<Entry>,
        next: Option<Uuid>,
        count: Option<u64>,
    },
}

/// Results of a search, fetched page by page. One thread at a time.
#[derive(Clone)]
pub struct Cursor {
    session: Session,
    state: Arc<Mutex<State>>,
}

/// Results in the first page: few, since many searches want few; later pages are large.
pub(crate) fn first_page(limit: u64) -> usize {
    match limit {
        0 => 128,
        n => n.min(limits::PAGE_ENTRIES as u64) as usize,
    }
}

impl Cursor {
    /// A cursor that a search in a batch will fill.
    pub fn pending(session: &Session) -> Cursor {
        Cursor { session: session.clone(), state: Arc::new(Mutex::new(State::Pending)) }
    }

    pub(crate) fn ready(session: &Session, page: Page) -> Cursor {
        let cursor = Cursor::pending(session);
        cursor.fulfil(Ok(page));
        cursor
    }

    pub(crate) fn fulfil(&self, page: Result<Page>) {
        let mut state = lock(&self.state);
        if matches!(*state, State::Closed) {
            page.into_iter().filter_map(|page| page.cursor).for_each(|cursor| self.end(cursor));
            return;
        }
        *state = match page {
            Ok(page) => State::Open { entries: page.entries.into(), next: page.cursor, count: page.count },
            Err(e) => State::Failed(e),
        };
    }

    /// Up to `max` results; none at the end.
    pub fn next(&self, max: usize, timeout_ns: i64) -> Result<Vec<Entry>> {
        self.session.0.check_fork()?;
        let mut state = lock(&self.state);
        loop {
            match &mut *state {
                State::Pending => return Err(pending()),
                State::Failed(e) => return Err(e.clone()),
                State::Closed => return Err(closed()),
                State::Open { entries, next, .. } => {
                    if !entries.is_empty() || next.is_none() || max == 0 {
                        let n = max.min(entries.len());
                        return Ok(entries.drain(..n).collect());
                    }
                    let cursor = next.unwrap_or_default();
                    let page = max.clamp(256, limits::PAGE_ENTRIES);
                    match self.session.ask_on(CatalogOp::SearchNext { cursor, page }, timeout_ns)? {
                        CatalogReply::Page(page) => {
                            entries.extend(page.entries);
                            *next = page.cursor;
                        }
                        _ => return Err(Error::internal("a cursor was not answered by a page")),
                    }
                }
            }
        }
    }

    /// The number of matches of a search that only counts.
    pub fn count(&self) -> Result<u64> {
        self.session.0.check_fork()?;
        match &*lock(&self.state) {
            State::Pending => Err(pending()),
            State::Failed(e) => Err(e.clone()),
            State::Closed => Err(closed()),
            State::Open { count: Some(n), .. } => Ok(*n),
            State::Open { .. } => Err(Error::invalid("this search does not count: ask for it with IOV_SEARCH_COUNT")),
        }
    }

    /// Ends the search.
    pub fn close(&self) {
        if let State::Open { next: Some(cursor), .. } = std::mem::replace(&mut *lock(&self.state), State::Closed) {
            self.end(cursor);
        }
    }

    /// The server would end an idle cursor by itself; telling it is a courtesy that nobody waits for.
    fn end(&self, cursor: Uuid) {
        let cx = self.session.cx(1_000_000_000);
        let op = vec![CatalogOp::SearchClose { cursor }];
        self.session.0.sides.catalog.submit(&cx, op, Submission::Each, Box::new(|_| {}));
    }
}

fn pending() -> Error {
    Error::busy("the search has not completed: wait for its batch")
}

fn closed() -> Error {
    Error::invalid("the cursor is closed")
}
