//! Handles on their way to others: `iov_handle_export` and `iov_handle_import`.

mod passport;

#[cfg(test)]
mod tests;

use std::ffi::c_int;

use ioverbs::{EntryKind, Error, Kind, Op, Result, Uuid, Which, limits, seam};

use crate::{
    abi::{self, kind},
    arg::{Bytes, BytesMut, In},
    collection,
    guard::guard,
    object::{self, BatchHandle, CollectionHandle, Pinned, SessionHandle, WorkspaceHandle},
    out::{Out, OutBuffer, OutStruct},
    session::SessionObject,
    submit::Context,
    workspace::WorkspaceObject,
};
use passport::Passport;

/// What all passports of a session say.
fn passport(cx: &Context, kind: u32) -> Passport {
    Passport {
        kind,
        process: std::process::id(),
        expires_ns: seam::monotonic_ns().saturating_add(limits::LEASE_NS),
        workspace: Uuid::NIL,
        object: Uuid::NIL,
        url: cx.session.url().into(),
        token: Vec::new(),
    }
}

fn export(handle: &abi::HandleStruct) -> Result<Passport> {
    let range = (handle.range.offset, handle.range.len);
    if range != (0, 0) && handle.kind != kind::COLLECTION {
        return Err(Error::invalid("iov_handle.range is for collections only: leave it zero"));
    }
    match handle.kind {
        kind::SESSION => {
            let session = SessionHandle::from_bits(handle.handle).get()?;
            session.cx.session.check()?;
            Ok(Passport { token: session.cx.session.export_token()?, ..passport(&session.cx, handle.kind) })
        }
        kind::WORKSPACE => {
            let w = WorkspaceHandle::from_bits(handle.handle).get()?;
            Ok(Passport { workspace: w.workspace.uuid(), ..passport(&w.cx, handle.kind) })
        }
        kind::GROUP | kind::COLLECTION => {
            let c = CollectionHandle::from_bits(handle.handle).get()?;
            if c.collection.is_group() != (handle.kind == kind::GROUP) {
                return Err(Error::invalid("iov_handle.kind says group or collection, and the handle is the other"));
            }
            let collection = c.usable()?;
            if collection.is_pending() {
                return Err(Error::busy("the handle is pending: wait for the batch that opens it"));
            }
            if range != (0, 0) {
                let why = "no target of this release checks ranges, which a handle for a part of a collection needs: export \
                           it with len 0, or pass the bytes";
                return Err(Error::unsupported(why));
            }
            let workspace = collection.workspace().uuid();
            Ok(Passport { workspace, object: collection.uuid()?, ..passport(&c.cx, handle.kind) })
        }
        n => Err(Error::invalid(format!("iov_handle.kind is {n}, none of IOV_KIND_*"))),
    }
}

/// Turns a handle into bytes.
#[unsafe(no_mangle)]
pub extern "C" fn iov_handle_export(
    handle: In<abi::HandleStruct>,
    buf: BytesMut,
    cap: usize,
    needed: Out<usize>,
) -> c_int {
    guard(|| {
        let bytes = export(&handle.required()?)?.to_bytes();
        OutBuffer { memory: buf, cap, needed }.write(&bytes, "the handle")
    })
}

fn import(s: SessionHandle, session: &Pinned<SessionObject>, passport: &Passport) -> Result<u64> {
    let engine = &session.cx.session;
    let in_memory = |url: &str| url.starts_with("mem:");
    if in_memory(&passport.url) && passport.process != std::process::id() {
        let why = "the handle is of a mem: store of another process, which cannot be reached from here";
        return Err(Error::unsupported(why));
    }
    // Other stores may have several URLs; whether it is theirs shows when it is looked up.
    if (in_memory(&passport.url) || in_memory(engine.url())) && passport.url != engine.url() {
        let why = format!("the handle is of the store {}, the session of {}", passport.url, engine.url());
        return Err(Error::invalid(why));
    }
    if passport.expires_ns < seam::monotonic_ns() {
        return Err(Error::stale("the lease of these bytes has ended: export the handle again"));
    }
    if passport.kind == kind::SESSION {
        engine.join(passport.token.clone())?;
        return Ok(s.bits());
    }
    let gone = |e: Error| match e.kind() {
        Kind::NotFound => Error::stale(format!("what the handle stood for is gone: {}", e.detail())),
        _ => e,
    };
    let workspace = engine.load_workspace(Which::Uuid(passport.workspace)).map_err(gone)?;
    let w = WorkspaceObject { cx: session.cx.clone(), workspace, segments: Default::default() };
    let what = match passport.kind {
        kind::WORKSPACE => return Ok(object::register(w)?.bits()),
        kind::GROUP => EntryKind::Group,
        _ => EntryKind::Collection,
    };
    let mut opened = CollectionHandle::NULL;
    let which = Which::Uuid(passport.object);
    // SAFETY: the place outlives the call, which runs the operation at once.
    let out = unsafe { Out::new(&raw mut opened) };
    let controls = Default::default();
    collection::open(BatchHandle::NULL, &w, what, out, |out| Op::Open { out, parent: None, which, controls })
        .map_err(gone)?;
    Ok(opened.bits())
}

/// Opens what the bytes stand for.
#[unsafe(no_mangle)]
pub extern "C" fn iov_handle_import(
    s: SessionHandle,
    buf: Bytes,
    len: usize,
    out: OutStruct<abi::HandleStruct>,
) -> c_int {
    guard(|| {
        let session = s.get()?;
        let out = out.place()?;
        let passport = Passport::from_bytes(buf.bytes(len)?)?;
        let handle = import(s, &session, &passport)?;
        out.write(abi::HandleStruct { kind: passport.kind, handle, ..abi::HandleStruct::init() });
        Ok(())
    })
}
