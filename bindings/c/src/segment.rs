//! Segments: `iov_segment_*`.

use std::ffi::c_int;

use ioverbs::{EntryKind, Range, Result, Segments, Uuid};

use crate::{
    abi,
    arg::{Array, Bytes, BytesMut, In},
    collection, convert,
    guard::guard,
    object::{BatchHandle, CollectionHandle, WorkspaceHandle},
    out::Out,
    workspace::WorkspaceObject,
};

impl WorkspaceObject {
    /// Its segments; the group that holds them is made the first time.
    fn segments(&self) -> Result<&Segments> {
        if let Some(segments) = self.segments.get() {
            return Ok(segments);
        }
        let segments = Segments::of(&self.workspace)?;
        Ok(self.segments.get_or_init(|| segments))
    }
}

fn id_of(id: &Array<abi::Uuid>) -> Result<Uuid> {
    Ok(Uuid(id.items(1, "id")?[0].bytes))
}

/// Stores bytes, one way or the other.
fn store(
    w: WorkspaceHandle,
    id: &Array<abi::Uuid>,
    offset: u64,
    (buf, len): (&Bytes, usize),
    how: impl FnOnce(&Segments, Uuid, &[u8]) -> Result<()>,
) -> c_int {
    guard(|| {
        let w = w.get()?;
        Range::new(offset, len as u64)?;
        let _uses = w.cx.buffers.uses(&[(buf.address(), len)]);
        how(w.segments()?, id_of(id)?, buf.lend(len)?.bytes())
    })
}

/// Makes a segment.
#[unsafe(no_mangle)]
pub extern "C" fn iov_segment_create(
    w: WorkspaceHandle,
    len: u64,
    controls: In<abi::Controls>,
    out: Out<abi::Uuid>,
) -> c_int {
    guard(|| {
        let w = w.get()?;
        let out = out.required("out")?;
        let controls = controls.read()?.map(|c| convert::controls(&c)).transpose()?.unwrap_or_default();
        out.write(convert::uuid_out(w.segments()?.create(len, &controls)?));
        Ok(())
    })
}

/// Removes a segment.
#[unsafe(no_mangle)]
pub extern "C" fn iov_segment_remove(w: WorkspaceHandle, id: Array<abi::Uuid>) -> c_int {
    guard(|| w.get()?.segments()?.remove(id_of(&id)?))
}

/// Stores bytes in a segment.
#[unsafe(no_mangle)]
pub extern "C" fn iov_segment_put(
    w: WorkspaceHandle,
    id: Array<abi::Uuid>,
    offset: u64,
    buf: Bytes,
    len: usize,
) -> c_int {
    store(w, &id, offset, (&buf, len), |segments, id, bytes| segments.put(id, offset, bytes))
}

/// Reads bytes of a segment.
#[unsafe(no_mangle)]
pub extern "C" fn iov_segment_get(
    w: WorkspaceHandle,
    id: Array<abi::Uuid>,
    offset: u64,
    buf: BytesMut,
    len: usize,
) -> c_int {
    guard(|| {
        let w = w.get()?;
        Range::new(offset, len as u64)?;
        let _uses = w.cx.buffers.uses(&[(buf.address(), len)]);
        w.segments()?.get(id_of(&id)?, offset, buf.lend(len)?.bytes_mut())
    })
}

/// Stores bytes in the endless space.
#[unsafe(no_mangle)]
pub extern "C" fn iov_segment_write(
    w: WorkspaceHandle,
    id: Array<abi::Uuid>,
    offset: u64,
    buf: Bytes,
    len: usize,
) -> c_int {
    store(w, &id, offset, (&buf, len), |segments, id, bytes| segments.write(id, offset, bytes))
}

/// Reads bytes of the endless space.
#[unsafe(no_mangle)]
pub extern "C" fn iov_segment_read(
    w: WorkspaceHandle,
    id: Array<abi::Uuid>,
    offset: u64,
    buf: BytesMut,
    len: usize,
    got: Out<usize>,
) -> c_int {
    guard(|| {
        let w = w.get()?;
        let got = got.optional("got")?;
        Range::new(offset, len as u64)?;
        let _uses = w.cx.buffers.uses(&[(buf.address(), len)]);
        got.write(w.segments()?.read(id_of(&id)?, offset, buf.lend(len)?.bytes_mut())?);
        Ok(())
    })
}

/// Tells the length of a segment.
#[unsafe(no_mangle)]
pub extern "C" fn iov_segment_size(w: WorkspaceHandle, id: Array<abi::Uuid>, out: Out<u64>) -> c_int {
    guard(|| {
        let w = w.get()?;
        let out = out.required("out")?;
        out.write(w.segments()?.size(id_of(&id)?)?);
        Ok(())
    })
}

/// Opens a segment as a collection.
#[unsafe(no_mangle)]
pub extern "C" fn iov_collection_open_segment(
    b: BatchHandle,
    w: WorkspaceHandle,
    id: Array<abi::Uuid>,
    out: Out<CollectionHandle>,
) -> c_int {
    guard(|| {
        let w = w.get()?;
        let (parent, which) = w.segments()?.place(id_of(&id)?)?;
        collection::open(b, &w, EntryKind::Collection, out, |out| ioverbs::Op::Open {
            out,
            parent,
            which,
            controls: Default::default(),
        })
    })
}
