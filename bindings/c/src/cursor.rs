//! Cursors: `iov_cursor_*`, and how a search is described.

use std::{
    ffi::c_int,
    sync::{Arc, Mutex},
};

use ioverbs::{Cursor, Error, Op, Parent, Result, catalog::SearchSpec};

use crate::{
    abi::{self, flag},
    arg::{StructArray, Text, flags},
    convert,
    guard::guard,
    metadata::MetadataObject,
    object::{self, BatchHandle, CursorHandle, MetadataHandle, Place},
    out::{Out, OutStruct},
    submit::{Context, Submission, lock, submit},
    text_store::TextStore,
    workspace::{WorkspaceObject, keys},
};

/// What is behind an `iov_cursor`.
pub struct CursorObject {
    /// The session must outlive it.
    _cx: Arc<Context>,
    cursor: Cursor,
    step: Mutex<Step>,
}

/// What the results of the last step point to.
#[derive(Default)]
struct Step {
    texts: TextStore,
    metadata: Vec<MetadataHandle>,
}

impl Step {
    fn clear(&mut self) {
        self.texts.clear();
        for md in self.metadata.drain(..) {
            let _ = md.end();
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.clear();
    }
}

impl CursorObject {
    pub(crate) fn new(cx: &Arc<Context>, cursor: Cursor) -> CursorObject {
        CursorObject { _cx: cx.clone(), cursor, step: Mutex::default() }
    }
}

/// What to search for, without the group.
pub(crate) fn search_spec(predicate: Text, attr: &abi::SearchAttr) -> Result<SearchSpec> {
    let set = flags(attr.flags, flag::SEARCH_COUNT | flag::SEARCH_DEEP, "iov_search_attr.flags")?;
    // SAFETY: the texts and arrays of a struct are what the header says, as the struct itself is.
    let (order, params) = unsafe { (Text::new(attr.order), StructArray::new(attr.params)) };
    let predicate = predicate.utf8("predicate")?.map(str::to_owned);
    let params: Vec<_> = params.items(attr.param_count)?.iter().map(convert::value).collect::<Result<_>>()?;
    ioverbs::check_predicate(predicate.as_deref(), &params)?;
    Ok(SearchSpec {
        predicate,
        params,
        group: None,
        deep: set & flag::SEARCH_DEEP != 0,
        order: order.utf8("order")?.map(str::to_owned),
        limit: attr.limit,
        keys: keys(attr.keys, attr.key_count, "key")?,
        count: set & flag::SEARCH_COUNT != 0,
        names: false,
        page: 0,
    })
}

/// Starts a search: the cursor is there at once in a batch, else when the first results are.
pub(crate) fn search(
    b: BatchHandle,
    w: &WorkspaceObject,
    group: Parent,
    spec: SearchSpec,
    out: Out<CursorHandle>,
) -> Result<()> {
    let out = out.required("out")?;
    let place: Place<CursorObject> = Place::new()?;
    let cursor = Cursor::pending(&w.cx.session);
    let op = Op::Search { w: w.workspace.clone(), group, spec, out: cursor.clone() };
    submit(b, Submission::new(&w.cx, op))?;
    out.write(place.fill(CursorObject::new(&w.cx, cursor)));
    Ok(())
}

/// Takes results.
#[unsafe(no_mangle)]
pub extern "C" fn iov_cursor_next(
    cur: CursorHandle,
    out: OutStruct<abi::Entry>,
    max: usize,
    n: Out<usize>,
    timeout_ns: i64,
) -> c_int {
    guard(|| {
        let cursor = cur.get()?;
        let place = out.place()?;
        let n = n.required("n")?;
        if max == 0 {
            return Err(Error::invalid("max is 0: there is no room for a result"));
        }
        let entries = cursor.cursor.next(max, timeout_ns)?;
        let mut step = lock(&cursor.step);
        step.clear();
        for (i, entry) in entries.iter().enumerate() {
            let metadata = match &entry.metadata {
                None => MetadataHandle::NULL,
                Some(pairs) => {
                    let handle = object::register(MetadataObject::borrowed(pairs.clone()))?;
                    step.metadata.push(handle);
                    handle
                }
            };
            let name = entry.name.as_ref().map_or(std::ptr::null(), |n| step.texts.keep(n.as_bytes()));
            place.write_at(
                i,
                abi::Entry {
                    kind: entry.kind as u32,
                    uuid: convert::uuid_out(entry.uuid),
                    group: convert::uuid_out(entry.group),
                    name,
                    metadata: metadata.bits(),
                    ..abi::Entry::init()
                },
            );
        }
        n.write(entries.len());
        Ok(())
    })
}

/// The number of matches.
#[unsafe(no_mangle)]
pub extern "C" fn iov_cursor_count(cur: CursorHandle, out: Out<u64>, _timeout_ns: i64) -> c_int {
    guard(|| {
        let cursor = cur.get()?;
        // The count comes with the answer to the search, so that nothing is left to wait for.
        out.required("out")?.write(cursor.cursor.count()?);
        Ok(())
    })
}

/// Ends a search.
#[unsafe(no_mangle)]
pub extern "C" fn iov_cursor_close(cur: CursorHandle) -> c_int {
    guard(|| {
        if cur.is_null() {
            return Ok(());
        }
        cur.end()?.cursor.close();
        Ok(())
    })
}
