//! Search, listing a group, and the pages of a cursor (O5).

use std::sync::Arc;

use iov_store::{Snapshot, seam};
use iov_types::{
    Error, Result, Right, Uuid,
    catalog::{CatalogReply, SearchSpec},
};

use super::Reply;
use crate::{
    exec::{Exec, Mode},
    search::{Cursor, Source},
    sources::Collections,
};

/// Keys that one request looks at, about: others want to be served too, and the caller has a deadline. A page may then
/// be short or empty, which is not the end.
pub(crate) const BUDGET: u64 = 1 << 17;

pub(crate) fn search(x: &mut Exec<'_>, ws: Uuid, spec: &SearchSpec) -> Reply {
    let at = x.workspace(ws, Right::Read)?;
    let mut source = Collections::new(x, at);
    let snapshot = x.snapshot()?;
    source.limit_indexes(&*snapshot)?;
    page_of(x, snapshot, Arc::new(source), spec)
}

/// Starts a search; what is left of it becomes a cursor of the session.
pub(crate) fn first_page(x: &mut Exec<'_>, source: Arc<dyn Source>, spec: &SearchSpec) -> Reply {
    let snapshot = x.snapshot()?;
    page_of(x, snapshot, source, spec)
}

fn page_of(x: &mut Exec<'_>, snapshot: Box<dyn Snapshot>, source: Arc<dyn Source>, spec: &SearchSpec) -> Reply {
    let mut cursor = Cursor::start(snapshot, source, spec)?;
    let mut results = cursor.next(spec.page, BUDGET)?;
    // Only the number at the end says anything.
    while spec.count && !results.done {
        if x.cx.left_ns() == 0 {
            return Err(Error::timeout("counting took longer than the deadline: allow more time, or count less"));
        }
        results = cursor.next(spec.page, BUDGET)?;
    }
    let mut id = Uuid::NIL;
    if !results.done && x.mode != Mode::Dry {
        id = seam::new_uuid();
        x.core.cursors().insert(x.cx.caller.session, id, cursor, x.monotonic_ns)?;
    }
    let mut page = results.into_page(id);
    page.cursor = page.cursor.filter(|id| !id.is_nil());
    Ok(CatalogReply::Page(page))
}

/// The next page of a cursor.
pub(crate) fn next(x: &mut Exec<'_>, id: Uuid, page: usize) -> Reply {
    let session = x.cx.caller.session;
    let mut cursor = x.core.cursors().take(session, id, x.monotonic_ns)?;
    let results = cursor.next(page, BUDGET);
    let more: Result<bool> = results.as_ref().map(|r| !r.done).map_err(Clone::clone);
    match more {
        Ok(true) => x.core.cursors().put_back(session, id, cursor, x.monotonic_ns),
        _ => x.core.cursors().close(session, id),
    }
    Ok(CatalogReply::Page(results?.into_page(id)))
}

/// The end of a cursor.
pub(crate) fn close(x: &mut Exec<'_>, id: Uuid) -> Reply {
    x.core.cursors().close(x.cx.caller.session, id);
    Ok(CatalogReply::Done)
}
