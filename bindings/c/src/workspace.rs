//! Workspaces: `iov_workspace_*`.

use std::{
    ffi::{c_char, c_int},
    sync::{Arc, OnceLock},
};

use ioverbs::{Error, Op, Result, Segments, Workspace, WorkspaceAttr};

use crate::{
    abi,
    arg::{Array, In, Text, reserved},
    convert,
    cursor::{self, CursorObject},
    guard::guard,
    metadata,
    object::{self, BatchHandle, CursorHandle, SessionHandle, WorkspaceHandle},
    out::{Out, OutStruct},
    pending::Pending,
    submit::{Context, Submission, submit},
};

/// What is behind an `iov_workspace`.
pub struct WorkspaceObject {
    pub(crate) cx: Arc<Context>,
    pub(crate) workspace: Workspace,
    /// Once somebody asked.
    pub(crate) segments: OnceLock<Segments>,
}

/// Properties to create with or to change; what the program left out is `None`.
fn workspace_attr(attr: &abi::WorkspaceAttr) -> Result<WorkspaceAttr> {
    reserved("iov_workspace_attr", &attr.reserved0.to_ne_bytes())?;
    // SAFETY: the texts of a struct are what the header says, as the struct itself is.
    let (owner, access) = unsafe { (Text::new(attr.owner), Text::new(attr.access)) };
    if attr.expires_ns < 0 {
        return Err(Error::invalid("iov_workspace_attr.expires_ns is before 1970"));
    }
    Ok(WorkspaceAttr {
        controls: convert::optional_controls(attr.controls)?,
        layout: convert::optional_layout(attr.layout)?,
        metadata: metadata::to_put(attr.metadata)?.unwrap_or_default(),
        owner: owner.utf8("owner")?.map(ioverbs::user_id).transpose()?,
        access: access.utf8("access list")?.map(ioverbs::parse_access).transpose()?,
        indexes: keys(attr.indexes, attr.index_count, "index")?,
        quota_bytes: (attr.quota_bytes != 0).then_some(attr.quota_bytes),
        quota_collections: (attr.quota_collections != 0).then_some(attr.quota_collections),
        expires_ns: (attr.expires_ns != 0).then_some(attr.expires_ns),
    })
}

/// An array of texts.
pub(crate) fn keys(list: *const *const c_char, n: usize, what: &str) -> Result<Vec<String>> {
    // SAFETY: the array of a struct, and its texts, are what the header says, as the struct itself is.
    let list = unsafe { Array::new(list) };
    let items = list.items(n, what)?.iter();
    // SAFETY: as above.
    items.map(|p| Ok(unsafe { Text::new(*p) }.required_utf8(what)?.to_owned())).collect()
}

fn handle(session: &object::Pinned<crate::session::SessionObject>, workspace: Workspace) -> Result<WorkspaceHandle> {
    object::register(WorkspaceObject { cx: session.cx.clone(), workspace, segments: OnceLock::new() })
}

/// Creates and opens a workspace.
#[unsafe(no_mangle)]
pub extern "C" fn iov_workspace_create(
    s: SessionHandle,
    name: Text,
    attr: In<abi::WorkspaceAttr>,
    out: Out<WorkspaceHandle>,
) -> c_int {
    guard(|| {
        let session = s.get()?;
        let out = out.required("out")?;
        let name = name.required_name()?;
        let attr = attr.read()?.map_or(Ok(WorkspaceAttr::default()), |a| workspace_attr(&a))?;
        out.write(handle(&session, session.cx.session.create_workspace(name, attr)?)?);
        Ok(())
    })
}

/// Opens a workspace.
#[unsafe(no_mangle)]
pub extern "C" fn iov_workspace_load(s: SessionHandle, name_or_uuid: Text, out: Out<WorkspaceHandle>) -> c_int {
    guard(|| {
        let session = s.get()?;
        let out = out.required("out")?;
        out.write(handle(&session, session.cx.session.load_workspace(name_or_uuid.required_which()?)?)?);
        Ok(())
    })
}

/// Searches the workspaces.
#[unsafe(no_mangle)]
pub extern "C" fn iov_workspace_search(
    s: SessionHandle,
    predicate: Text,
    attr: In<abi::SearchAttr>,
    out: Out<CursorHandle>,
) -> c_int {
    guard(|| {
        let session = s.get()?;
        let out = out.required("out")?;
        let attr = attr.read()?.unwrap_or_else(abi::SearchAttr::init);
        if !attr.group.is_null() || attr.flags & abi::flag::SEARCH_DEEP != 0 {
            return Err(Error::invalid("workspaces are in no group: leave group NULL and IOV_SEARCH_DEEP out"));
        }
        let spec = cursor::search_spec(predicate, &attr)?;
        let found = session.cx.session.search_workspaces(spec)?;
        out.write(object::register(CursorObject::new(&session.cx, found))?);
        Ok(())
    })
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn iov_workspace_close(w: WorkspaceHandle) -> c_int {
    guard(|| if w.is_null() { Ok(()) } else { w.end().map(drop) })
}

/// Deletes an empty workspace.
#[unsafe(no_mangle)]
pub extern "C" fn iov_workspace_delete(s: SessionHandle, name_or_uuid: Text) -> c_int {
    guard(|| s.get()?.cx.session.delete_workspace(name_or_uuid.required_which()?))
}

/// Reads usage, quota and expiry.
#[unsafe(no_mangle)]
pub extern "C" fn iov_workspace_stat(b: BatchHandle, w: WorkspaceHandle, out: OutStruct<abi::Stat>) -> c_int {
    guard(|| {
        let w = w.get()?;
        let op = Op::WorkspaceStat { w: w.workspace.clone() };
        submit(b, Submission::with(&w.cx, op, Pending::Stat(out.place()?)))
    })
}

/// Changes properties.
#[unsafe(no_mangle)]
pub extern "C" fn iov_workspace_set(b: BatchHandle, w: WorkspaceHandle, attr: In<abi::WorkspaceAttr>) -> c_int {
    guard(|| {
        let w = w.get()?;
        let attr = workspace_attr(&attr.required()?)?;
        submit(b, Submission::new(&w.cx, Op::WorkspaceSet { w: w.workspace.clone(), attr }))
    })
}

/// Gives a workspace another name.
#[unsafe(no_mangle)]
pub extern "C" fn iov_workspace_rename(b: BatchHandle, w: WorkspaceHandle, name: Text) -> c_int {
    guard(|| {
        let w = w.get()?;
        let name = name.required_name()?;
        submit(b, Submission::new(&w.cx, Op::WorkspaceRename { w: w.workspace.clone(), name }))
    })
}

/// Publishes this session's changes of names and metadata.
#[unsafe(no_mangle)]
pub extern "C" fn iov_workspace_commit(b: BatchHandle, w: WorkspaceHandle) -> c_int {
    guard(|| {
        let w = w.get()?;
        submit(b, Submission::new(&w.cx, Op::WorkspaceCommit { w: w.workspace.clone() }))
    })
}

/// Makes them survive.
#[unsafe(no_mangle)]
pub extern "C" fn iov_workspace_persist(b: BatchHandle, w: WorkspaceHandle) -> c_int {
    guard(|| {
        let w = w.get()?;
        submit(b, Submission::new(&w.cx, Op::WorkspacePersist { w: w.workspace.clone() }))
    })
}
