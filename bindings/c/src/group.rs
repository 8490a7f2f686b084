//! Groups: `iov_group_*`. A group's handle is an `iov_collection`.

use std::ffi::c_int;

use ioverbs::{EntryKind, Error, Op, Uuid, Which};

use crate::{
    abi,
    arg::{In, Text},
    collection::{Create, open, parent},
    convert, cursor,
    guard::guard,
    object::{BatchHandle, CollectionHandle, CursorHandle, MetadataHandle, WorkspaceHandle},
    out::Out,
};

/// Creates and opens a group.
#[unsafe(no_mangle)]
pub extern "C" fn iov_group_create(
    b: BatchHandle,
    w: WorkspaceHandle,
    group: CollectionHandle,
    name: Text,
    md: MetadataHandle,
    controls: In<abi::Controls>,
    out: Out<CollectionHandle>,
) -> c_int {
    guard(|| Create { kind: EntryKind::Group, group, name: &name, md, controls: &controls }.run(b, w, out))
}

/// Opens a group.
#[unsafe(no_mangle)]
pub extern "C" fn iov_group_lookup(
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
        let which = match (name_or_uuid.which()?, &parent) {
            (Some(which), _) => which,
            // `group` again, by its identity; the root has none.
            (None, Some(group)) => Which::Uuid(group.uuid()?),
            (None, None) => Which::Uuid(Uuid::NIL),
        };
        let controls = controls.read()?.map_or(Ok(Default::default()), |c| convert::controls(&c))?;
        open(b, &w, EntryKind::Group, out, |out| Op::Open { out, parent, which, controls })
    })
}

/// Lists the names in a group.
#[unsafe(no_mangle)]
pub extern "C" fn iov_group_list(
    b: BatchHandle,
    w: WorkspaceHandle,
    group: CollectionHandle,
    attr: In<abi::SearchAttr>,
    out: Out<CursorHandle>,
) -> c_int {
    guard(|| {
        let w = w.get()?;
        let group = parent(group, &w.cx, &w.workspace)?;
        let attr = attr.read()?.unwrap_or_else(abi::SearchAttr::init);
        if !attr.group.is_null() {
            return Err(Error::invalid("iov_search_attr.group must be NULL: the group is an argument of its own"));
        }
        if attr.param_count != 0 {
            return Err(Error::invalid("iov_search_attr.params: a list has no predicate that could take them"));
        }
        let mut spec = cursor::search_spec(Text::NULL, &attr)?;
        spec.names = true;
        spec.group = Some(Uuid::NIL);
        cursor::search(b, &w, group, spec, out)
    })
}
