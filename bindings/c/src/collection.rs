//! Collections: `iov_collection_*`, `iov_setattr`, `iov_rename`, `iov_link`.

use std::{
    ffi::c_int,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use ioverbs::{Attr, Collection, EntryKind, Error, Op, Parent, Result, Workspace, catalog::RenameMode};

use crate::{
    abi::{self, flag},
    arg::{In, Text, flags, reserved},
    convert, cursor,
    guard::guard,
    metadata,
    object::{BatchHandle, CollectionHandle, CursorHandle, MetadataHandle, Pinned, Place, WorkspaceHandle},
    out::{Out, OutStruct},
    pending::Pending,
    submit::{Context, Submission, lock, same_session, submit},
    text_store::TextStore,
    workspace::WorkspaceObject,
};

/// What is behind an `iov_collection`: a collection or a group.
pub struct CollectionObject {
    pub(crate) cx: Arc<Context>,
    pub(crate) collection: Collection,
    /// The texts of its layout, once somebody asked (rule 9).
    layout: Mutex<Option<(abi::Layout, TextStore)>>,
    /// The lock owner 0 stands for this number: the handle's.
    pub(crate) owner: u64,
    /// Such a lock was asked for, so that there may be one to give back.
    pub(crate) locked: AtomicBool,
}

// SAFETY: the pointers of the layout lead into the texts beside it, which nobody changes.
unsafe impl Send for CollectionObject {}
// SAFETY: as above.
unsafe impl Sync for CollectionObject {}

impl Drop for CollectionObject {
    /// Locks of the handle end with it (O11).
    fn drop(&mut self) {
        if *self.locked.get_mut() {
            self.collection.release_locks(self.owner);
        }
    }
}

impl CollectionObject {
    /// The collection or group, unless its operation failed: then that error (rule 2).
    pub(crate) fn usable(&self) -> Result<Collection> {
        self.collection.check()?;
        Ok(self.collection.clone())
    }

    /// The same for operations on bytes, which groups have none of.
    #[inline]
    pub(crate) fn data(&self) -> Result<Collection> {
        self.bytes().cloned()
    }

    /// The same, on loan.
    #[inline]
    pub(crate) fn bytes(&self) -> Result<&Collection> {
        if self.collection.is_group() {
            return Err(Error::invalid("a group holds names but no bytes").with_clause(ioverbs::Clause::O3));
        }
        self.collection.check()?;
        Ok(&self.collection)
    }

    pub(crate) fn asked_for_lock(&self) {
        self.locked.store(true, Ordering::Relaxed);
    }
}

/// A group as a parent in a workspace; NULL is the root.
pub(crate) fn parent(group: CollectionHandle, cx: &Arc<Context>, workspace: &Workspace) -> Result<Parent> {
    let Some(group) = group.optional()? else { return Ok(None) };
    same_session(&group.cx, cx)?;
    if !group.collection.is_group() {
        return Err(Error::invalid("the parent is a collection; a group was expected").with_clause(ioverbs::Clause::O3));
    }
    if group.collection.workspace().uuid() != workspace.uuid() {
        return Err(Error::invalid("the group belongs to another workspace").with_clause(ioverbs::Clause::O3));
    }
    group.usable().map(Some)
}

/// Creates or looks up: the handle is there at once in a batch, else when it is open.
pub(crate) fn open(
    b: BatchHandle,
    w: &WorkspaceObject,
    kind: EntryKind,
    out: Out<CollectionHandle>,
    op: impl FnOnce(Collection) -> Op,
) -> Result<()> {
    let out = out.required("out")?;
    let place: Place<CollectionObject> = Place::new()?;
    let collection = w.workspace.pending(kind);
    submit(b, Submission::new(&w.cx, op(collection.clone())))?;
    let owner = place.handle().bits();
    let (layout, locked) = (Mutex::default(), AtomicBool::new(false));
    out.write(place.fill(CollectionObject { cx: w.cx.clone(), collection, layout, owner, locked }));
    Ok(())
}

/// Creates and opens a collection or group.
pub(crate) struct Create<'a> {
    pub(crate) kind: EntryKind,
    pub(crate) group: CollectionHandle,
    pub(crate) name: &'a Text,
    pub(crate) md: MetadataHandle,
    pub(crate) controls: &'a In<abi::Controls>,
}

impl Create<'_> {
    pub(crate) fn run(self, b: BatchHandle, w: WorkspaceHandle, out: Out<CollectionHandle>) -> Result<()> {
        let w = w.get()?;
        let parent = parent(self.group, &w.cx, &w.workspace)?;
        let name = self.name.name()?;
        let metadata = metadata::to_put(self.md)?.unwrap_or_default();
        let controls = self.controls.read()?.map_or(Ok(Default::default()), |c| convert::controls(&c))?;
        open(b, &w, self.kind, out, |out| Op::Create { out, parent, name, metadata, controls })
    }
}

/// Creates and opens a collection.
#[unsafe(no_mangle)]
pub extern "C" fn iov_collection_create(
    b: BatchHandle,
    w: WorkspaceHandle,
    group: CollectionHandle,
    name: Text,
    md: MetadataHandle,
    controls: In<abi::Controls>,
    out: Out<CollectionHandle>,
) -> c_int {
    let create = Create { kind: EntryKind::Collection, group, name: &name, md, controls: &controls };
    guard(|| create.run(b, w, out))
}

/// Opens a collection.
#[unsafe(no_mangle)]
pub extern "C" fn iov_collection_lookup(
    b: BatchHandle,
    w: WorkspaceHandle,
    group: CollectionHandle,
    name_or_uuid: Text,
    controls: In<abi::Controls>,
    out: Out<CollectionHandle>,
) -> c_int {
    guard(|| {
        let w = w.get()?;
        let parent = parent(group, &w.cx, &w.workspace)?;
        let which = name_or_uuid.required_which()?;
        let controls = controls.read()?.map_or(Ok(Default::default()), |c| convert::controls(&c))?;
        open(b, &w, EntryKind::Collection, out, |out| Op::Open { out, parent, which, controls })
    })
}

/// Searches collections and groups.
#[unsafe(no_mangle)]
pub extern "C" fn iov_collection_search(
    b: BatchHandle,
    w: WorkspaceHandle,
    predicate: Text,
    attr: In<abi::SearchAttr>,
    out: Out<CursorHandle>,
) -> c_int {
    guard(|| {
        let w = w.get()?;
        let attr = attr.read()?.unwrap_or_else(abi::SearchAttr::init);
        let group = parent(attr.group, &w.cx, &w.workspace)?;
        let spec = cursor::search_spec(predicate, &attr)?;
        cursor::search(b, &w, group, spec, out)
    })
}

/// Ends a collection or group handle.
#[unsafe(no_mangle)]
pub extern "C" fn iov_collection_close(b: BatchHandle, c: CollectionHandle) -> c_int {
    guard(|| {
        if c.is_null() {
            return Ok(());
        }
        if !b.is_null() {
            let collection = c.get()?;
            let op = Op::Close { c: collection.collection.clone() };
            return submit(b, Submission { closes: Some(c), ..Submission::new(&collection.cx, op) });
        }
        let ended: Pinned<CollectionObject> = c.end()?;
        let collection = &ended.collection;
        if collection.is_pending() || collection.check().is_err() {
            // Nothing was opened, or the batch that opens it gives it back (rule 2).
            return Ok(());
        }
        submit(b, Submission::new(&ended.cx, Op::Close { c: collection.clone() }))
    })
}

/// Removes a name, or all.
#[unsafe(no_mangle)]
pub extern "C" fn iov_collection_delete(
    b: BatchHandle,
    w: WorkspaceHandle,
    group: CollectionHandle,
    name_or_uuid: Text,
) -> c_int {
    guard(|| {
        let w = w.get()?;
        let parent = parent(group, &w.cx, &w.workspace)?;
        let which = name_or_uuid.required_which()?;
        submit(b, Submission::new(&w.cx, Op::Delete { w: w.workspace.clone(), parent, which }))
    })
}

/// Reads the facts.
#[unsafe(no_mangle)]
pub extern "C" fn iov_collection_stat(b: BatchHandle, c: CollectionHandle, out: OutStruct<abi::Stat>) -> c_int {
    guard(|| {
        let c = c.get()?;
        let out = out.place()?;
        submit(b, Submission::with(&c.cx, Op::Stat { c: c.usable()? }, Pending::Stat(out)))
    })
}

/// Changes controls or layout.
#[unsafe(no_mangle)]
pub extern "C" fn iov_collection_set(
    b: BatchHandle,
    c: CollectionHandle,
    controls: In<abi::Controls>,
    layout: In<abi::Layout>,
) -> c_int {
    guard(|| {
        let c = c.get()?;
        let controls = controls.read()?.map(|c| convert::controls(&c)).transpose()?;
        let layout = layout.read()?.map(|l| convert::layout(&l)).transpose()?;
        submit(b, Submission::new(&c.cx, Op::Set { c: c.usable()?, controls, layout }))
    })
}

/// Copies the layout known to the handle.
#[unsafe(no_mangle)]
pub extern "C" fn iov_collection_layout(c: CollectionHandle, out: OutStruct<abi::Layout>) -> c_int {
    guard(|| {
        let c = c.get()?;
        let out = out.place()?;
        let mut known = lock(&c.layout);
        if known.is_none() {
            let mut texts = TextStore::default();
            let layout = convert::layout_out(&c.collection.layout()?, &mut texts);
            *known = Some((layout, texts));
        }
        if let Some((layout, _)) = &*known {
            out.write(*layout);
        }
        Ok(())
    })
}

/// Sets owner, mode, mtime or lifetime.
#[unsafe(no_mangle)]
pub extern "C" fn iov_setattr(b: BatchHandle, c: CollectionHandle, attr: In<abi::Attr>) -> c_int {
    guard(|| {
        let c = c.get()?;
        let attr = attr.required()?;
        reserved("iov_attr", &attr.reserved0.to_ne_bytes())?;
        reserved("iov_attr", &attr.reserved1.to_ne_bytes())?;
        let known = flag::ATTR_MODE | flag::ATTR_UID | flag::ATTR_GID | flag::ATTR_MTIME | flag::ATTR_LIFETIME;
        let mask = flags(attr.mask, known, "iov_attr.mask")?;
        let has = |flag| mask & flag != 0;
        if has(flag::ATTR_MODE) && attr.mode > 0o7777 {
            return Err(Error::invalid(format!("iov_attr.mode is {:#o}: permission bits go up to 07777", attr.mode)));
        }
        let attr = Attr {
            mode: has(flag::ATTR_MODE).then_some(attr.mode),
            uid: has(flag::ATTR_UID).then_some(attr.uid),
            gid: has(flag::ATTR_GID).then_some(attr.gid),
            mtime_ns: has(flag::ATTR_MTIME).then_some(attr.mtime_ns),
            atime_ns: None,
            lifetime: if has(flag::ATTR_LIFETIME) { Some(convert::lifetime(&attr)?) } else { None },
        };
        submit(b, Submission::new(&c.cx, Op::SetAttr { c: c.usable()?, attr }))
    })
}

/// Moves a name.
#[unsafe(no_mangle)]
pub extern "C" fn iov_rename(
    b: BatchHandle,
    w: WorkspaceHandle,
    from_group: CollectionHandle,
    from: Text,
    to_group: CollectionHandle,
    to: Text,
    how: u32,
) -> c_int {
    guard(|| {
        let w = w.get()?;
        let (from_parent, to_parent) =
            (parent(from_group, &w.cx, &w.workspace)?, parent(to_group, &w.cx, &w.workspace)?);
        let (from, to) = (from.required_name()?, to.required_name()?);
        let known = flag::RENAME_NOREPLACE | flag::RENAME_EXCHANGE;
        let mode = match flags(how, known, "flags")? {
            0 => RenameMode::Replace,
            flag::RENAME_NOREPLACE => RenameMode::NoReplace,
            flag::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Error::invalid("IOV_RENAME_NOREPLACE and IOV_RENAME_EXCHANGE exclude each other")),
        };
        let op = Op::Rename { w: w.workspace.clone(), from_parent, from, to_parent, to, mode };
        submit(b, Submission::new(&w.cx, op))
    })
}

/// Gives a collection one more name.
#[unsafe(no_mangle)]
pub extern "C" fn iov_link(b: BatchHandle, c: CollectionHandle, group: CollectionHandle, name: Text) -> c_int {
    guard(|| {
        let c = c.get()?;
        let name = name.required_name()?;
        let parent = parent(group, &c.cx, c.collection.workspace())?;
        submit(b, Submission::new(&c.cx, Op::Link { c: c.usable()?, parent, name }))
    })
}
