//! Plain values between C and the facade.

use ioverbs::{
    Atomicity, Concurrency, Consistency, Controls, Effective, Error, Lifetime, Limits, Mutability, OnError,
    Persistence, Point, Range, Redundancy, Result, Scope, Spatiality, Stat, Temporality, Uuid, Value,
    catalog::LockSpec,
};

use crate::{
    abi,
    arg::{self, Bytes, Text, flags, reserved},
    text_store::TextStore,
};

/// A control from its number; 0 is unset.
fn control<T>(number: u8, field: &str, from: fn(u8) -> Option<T>) -> Result<Option<T>> {
    match number {
        0 => Ok(None),
        n => from(n)
            .map(Some)
            .ok_or_else(|| Error::invalid(format!("iov_controls.{field} is {n}: see the constants of ioverbs.h"))),
    }
}

/// Controls that a program asks for.
pub(crate) fn controls(c: &abi::Controls) -> Result<Controls> {
    reserved("iov_controls", &c.reserved0)?;
    let limits = |l: abi::Limits| Limits { min: l.min, max: l.max };
    Ok(Controls {
        consistency: control(c.consistency, "consistency", Consistency::from_number)?,
        eventual_ns: c.eventual_ns,
        concurrency: control(c.concurrency, "concurrency", Concurrency::from_number)?,
        mutability: control(c.mutability, "mutability", Mutability::from_number)?,
        atomicity: control(c.atomicity, "atomicity", Atomicity::from_number)?,
        atomic_unit: c.atomic_unit,
        persistence: control(c.persistence, "persistence", Persistence::from_number)?,
        point: control(c.persistence_point, "persistence_point", Point::from_number)?,
        temporality: control(c.temporality, "temporality", Temporality::from_number)?,
        drain_ns: c.drain_ns,
        spatiality: control(c.spatiality, "spatiality", Spatiality::from_number)?,
        stride: c.stride,
        block: c.block,
        request_size: limits(c.request_size),
        collection_size: limits(c.collection_size),
        on_error: control(c.on_error, "on_error", OnError::from_number)?,
    })
}

/// Controls from a pointer; `None` for NULL.
pub(crate) fn optional_controls(c: *const abi::Controls) -> Result<Option<Controls>> {
    arg::copy_in(c)?.as_ref().map(controls).transpose()
}

/// Controls as numbers, what is unset 0.
pub(crate) fn controls_out(c: &Controls) -> abi::Controls {
    let limits = |l: Limits| abi::Limits { min: l.min, max: l.max };
    abi::Controls {
        consistency: c.consistency.map_or(0, |v| v as u8),
        concurrency: c.concurrency.map_or(0, |v| v as u8),
        mutability: c.mutability.map_or(0, |v| v as u8),
        atomicity: c.atomicity.map_or(0, |v| v as u8),
        persistence: c.persistence.map_or(0, |v| v as u8),
        persistence_point: c.point.map_or(0, |v| v as u8),
        temporality: c.temporality.map_or(0, |v| v as u8),
        spatiality: c.spatiality.map_or(0, |v| v as u8),
        on_error: c.on_error.map_or(0, |v| v as u8),
        eventual_ns: c.eventual_ns,
        atomic_unit: c.atomic_unit,
        drain_ns: c.drain_ns,
        stride: c.stride,
        block: c.block,
        request_size: limits(c.request_size),
        collection_size: limits(c.collection_size),
        ..abi::Controls::init()
    }
}

/// What was granted, nothing unset.
pub(crate) fn effective_out(e: &Effective) -> abi::Controls {
    controls_out(&Controls::from(e))
}

/// A layout from a pointer; `None` for NULL.
pub(crate) fn optional_layout(l: *const abi::Layout) -> Result<Option<ioverbs::Layout>> {
    arg::copy_in(l)?.as_ref().map(layout).transpose()
}

/// A layout that a program asks for.
pub(crate) fn layout(l: &abi::Layout) -> Result<ioverbs::Layout> {
    let redundancy = match l.redundancy {
        0 => None,
        1 => Some(Redundancy::None),
        2 => Some(Redundancy::Mirror),
        3 => Some(Redundancy::Erasure),
        n => return Err(Error::invalid(format!("iov_layout.redundancy is {n}, none of IOV_REDUNDANCY_*"))),
    };
    if l.revision != 0 {
        return Err(Error::invalid("iov_layout.revision is a result: leave it zero"));
    }
    let text = |p, what| -> Result<Option<String>> {
        // SAFETY: the texts of a struct are what the header says, as the struct itself is.
        let text = unsafe { Text::new(p) };
        Ok(text.utf8(what)?.map(str::to_owned))
    };
    Ok(ioverbs::Layout {
        targets: l.targets,
        chunk_size: l.chunk_size,
        redundancy,
        k: l.k,
        m: l.m,
        revision: 0,
        backend: text(l.backend, "backend")?,
        policy: text(l.policy, "policy")?,
        ..ioverbs::Layout::default()
    })
}

/// A layout as a result; its texts are kept in `texts`.
pub(crate) fn layout_out(l: &ioverbs::Layout, texts: &mut TextStore) -> abi::Layout {
    let mut text = |t: &Option<String>| t.as_ref().map_or(std::ptr::null(), |t| texts.keep(t.as_bytes()));
    abi::Layout {
        targets: l.targets,
        chunk_size: l.chunk_size,
        redundancy: l.redundancy.map_or(0, |r| r as u32),
        k: l.k,
        m: l.m,
        revision: l.revision,
        backend: text(&l.backend),
        policy: text(&l.policy),
        ..abi::Layout::init()
    }
}

/// How long a collection is to stay.
pub(crate) fn lifetime(attr: &abi::Attr) -> Result<Lifetime> {
    let scope = Scope::from_number(attr.lifetime)
        .ok_or_else(|| Error::invalid(format!("iov_attr.lifetime is {}: one of IOV_LIFETIME_*", attr.lifetime)))?;
    let lease_ns = u64::try_from(attr.lease_ns).unwrap_or(0);
    let lifetime = Lifetime { scope, lease_ns };
    if attr.lease_ns < 0 || !lifetime.is_valid() {
        return Err(Error::invalid(
            "iov_attr.lease_ns is a time above 0 for IOV_LIFETIME_LEASE, and 0 for everything else",
        ));
    }
    Ok(lifetime)
}

/// Facts as a result.
pub(crate) fn stat_out(s: &Stat) -> abi::Stat {
    abi::Stat {
        kind: s.kind as u8,
        state: s.state.map_or(0, |v| v as u8),
        uuid: uuid_out(s.uuid),
        bytes: s.bytes,
        allocated: s.allocated,
        entries: s.entries,
        abandoned: s.abandoned,
        ctime_ns: s.ctime_ns,
        mtime_ns: s.mtime_ns,
        staleness_ns: s.staleness_ns,
        revision: s.revision,
        version: s.version,
        // Permission bits, as they can be set; what kind of file a POSIX front door made is its own matter.
        mode: s.mode & 0o7777,
        links: s.links,
        uid: s.uid,
        gid: s.gid,
        quota_bytes: s.quota_bytes,
        quota_collections: s.quota_collections,
        expires_ns: s.expires_ns,
        lifetime: s.lifetime.map_or(0, |lifetime| lifetime.scope as u32),
        lease_ns: s.lifetime.map_or(0, |lifetime| i64::try_from(lifetime.lease_ns).unwrap_or(i64::MAX)),
        ..abi::Stat::init()
    }
}

/// A UUID as a result.
pub(crate) fn uuid_out(uuid: Uuid) -> abi::Uuid {
    abi::Uuid { bytes: uuid.0 }
}

/// A value that a program passes in.
pub(crate) fn value(v: &abi::Value) -> Result<Value> {
    let bytes = |what: &str| -> Result<Vec<u8>> {
        if v.len > ioverbs::limits::VALUE_BYTES {
            return Err(Error::too_big(format!(
                "a {what} of {} bytes; values have at most {}",
                v.len,
                ioverbs::limits::VALUE_BYTES
            )));
        }
        // SAFETY: the union holds a pointer to `len` bytes, as its type says.
        let memory = unsafe { Bytes::new(v.payload as usize as *const _) };
        Ok(memory.bytes(v.len)?.to_vec())
    };
    Ok(match v.kind {
        1 if v.len == 0 => {
            // SAFETY: the union holds a text, as its type says; with `len` 0 it ends at its NUL.
            let text = unsafe { Text::new(v.payload as usize as *const _) };
            Value::Str(text.required_utf8("string value")?.to_owned())
        }
        1 => Value::Str(arg::utf8(&bytes("string value")?, "string value")?.to_owned()),
        2 => Value::I64(v.payload as i64),
        3 => Value::F64(f64::from_bits(v.payload)),
        4 => Value::Bool(v.payload != 0),
        5 => Value::Bytes(bytes("value")?),
        6 => Value::Time(v.payload as i64),
        n => return Err(Error::invalid(format!("iov_value.type is {n}, none of IOV_TYPE_*"))),
    })
}

/// A value as a result; `keep` stores bytes where they live as long as the result's container.
pub(crate) fn value_out(v: &Value, keep: &mut dyn FnMut(&[u8]) -> *const std::ffi::c_char) -> abi::Value {
    let mut out = abi::Value { kind: v.value_type() as u32, ..abi::Value::init() };
    let mut bytes = |b: &[u8]| (b.len(), keep(b) as usize as u64);
    (out.len, out.payload) = match v {
        Value::Str(s) => bytes(s.as_bytes()),
        Value::Bytes(b) => bytes(b),
        Value::I64(n) | Value::Time(n) => (0, *n as u64),
        Value::F64(x) => (0, x.to_bits()),
        Value::Bool(b) => (0, *b as u64),
    };
    out
}

/// A lock that a program asks for. `handle` stands for the owner 0.
pub(crate) fn lock(l: &abi::LockAttr, handle: u64) -> Result<LockSpec> {
    reserved("iov_lock_attr", &l.reserved0.to_ne_bytes())?;
    let try_only = flags(l.flags, abi::flag::LOCK_TRY, "iov_lock_attr.flags")? != 0;
    let exclusive = match l.mode {
        1 => false,
        2 => true,
        n => return Err(Error::invalid(format!("iov_lock_attr.mode is {n}, none of IOV_LOCK_*"))),
    };
    let lease_ns = match l.lease_ns {
        0 => ioverbs::limits::LEASE_NS,
        n if n > 0 => n,
        n => return Err(Error::invalid(format!("iov_lock_attr.lease_ns is {n}: it is a time from now on"))),
    };
    let range = Range::new(l.range.offset, l.range.len)?;
    let owner = if l.owner == 0 { handle } else { l.owner };
    Ok(LockSpec { exclusive, try_only, range, owner, lease_ns })
}

/// A lock as a result.
pub(crate) fn lock_out(l: &LockSpec) -> abi::LockAttr {
    abi::LockAttr {
        mode: if l.exclusive { 2 } else { 1 },
        flags: if l.try_only { abi::flag::LOCK_TRY } else { 0 },
        range: abi::Range { offset: l.range.offset, len: l.range.len },
        owner: l.owner,
        lease_ns: l.lease_ns,
        ..abi::LockAttr::init()
    }
}
