//! Metadata: sets of pairs in memory, and those of collections and groups.

mod pairs;

#[cfg(test)]
mod tests;

use std::{
    ffi::{c_char, c_int},
    sync::Mutex,
};

use ioverbs::{Error, Metadata, Op, Result, Value, limits};

use crate::{
    abi,
    arg::{Bytes, Text},
    guard::{guard, guard_value},
    object::{self, BatchHandle, CollectionHandle, MetadataHandle},
    out::{Out, OutStruct},
    pending::Pending,
    submit::{Submission, lock, submit},
};
use pairs::Pairs;

/// What is behind an `iov_metadata`.
pub struct MetadataObject {
    pairs: Mutex<Pairs>,
    /// A result of a search: its cursor ends it, and it does not change.
    borrowed: bool,
}

impl MetadataObject {
    /// A set that the program frees.
    pub(crate) fn owned(pairs: Metadata) -> MetadataObject {
        let pairs = Pairs::from_iter(pairs.iter().map(|(k, v)| (k, v.clone())));
        MetadataObject { pairs: Mutex::new(pairs), borrowed: false }
    }

    /// A result of a search, of user and system keys.
    pub(crate) fn borrowed(pairs: Vec<(String, Value)>) -> MetadataObject {
        let pairs = Pairs::from_iter(pairs.iter().map(|(k, v)| (k.as_str(), v.clone())));
        MetadataObject { pairs: Mutex::new(pairs), borrowed: true }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.pairs).len()
    }

    fn writable(&self) -> Result<&Mutex<Pairs>> {
        if self.borrowed {
            return Err(Error::invalid("this metadata object is a search result: it cannot be changed"));
        }
        Ok(&self.pairs)
    }
}

/// The pairs to create or put.
pub(crate) fn to_put(md: MetadataHandle) -> Result<Option<Metadata>> {
    md.optional()?.map(|md| lock(&md.pairs).to_metadata()).transpose()
}

/// An empty set.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_new() -> MetadataHandle {
    guard_value(MetadataHandle::NULL, || object::register(MetadataObject::owned(Metadata::new())))
}

/// Frees a set.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_free(md: MetadataHandle) {
    guard_value((), || {
        let Some(object) = md.optional()? else { return Ok(()) };
        if object.borrowed {
            return Err(Error::invalid("this metadata object belongs to its cursor, which frees it"));
        }
        md.end().map(drop)
    });
}

fn set(md: MetadataHandle, key: Text, value: impl FnOnce() -> Result<Value>) -> c_int {
    guard(|| {
        let md = md.get()?;
        let pairs = md.writable()?;
        let key = key.required_utf8("metadata key")?;
        Metadata::check_key(key)?;
        let value = value()?;
        if value.payload_len() > limits::VALUE_BYTES {
            return Err(too_big(key, value.payload_len()));
        }
        lock(pairs).set(key, value);
        Ok(())
    })
}

fn too_big(key: &str, len: usize) -> Error {
    Error::too_big(format!(
        "the value of {key:?} has {len} bytes, the limit is {}: store it as a collection",
        limits::VALUE_BYTES
    ))
    .with_clause(ioverbs::Clause::O4)
}

/// Sets a text.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_set_str(md: MetadataHandle, key: Text, value: Text) -> c_int {
    set(md, key, || Ok(Value::Str(value.required_utf8("metadata string")?.to_owned())))
}

/// Sets an integer.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_set_i64(md: MetadataHandle, key: Text, value: i64) -> c_int {
    set(md, key, || Ok(Value::I64(value)))
}

/// Sets a float.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_set_f64(md: MetadataHandle, key: Text, value: f64) -> c_int {
    set(md, key, || Ok(Value::F64(value)))
}

/// Sets true (any number but 0) or false.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_set_bool(md: MetadataHandle, key: Text, value: c_int) -> c_int {
    set(md, key, || Ok(Value::Bool(value != 0)))
}

/// Sets bytes.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_set_bytes(md: MetadataHandle, key: Text, value: Bytes, len: usize) -> c_int {
    set(md, key, || {
        if len > limits::VALUE_BYTES {
            return Err(too_big(key.required_utf8("metadata key")?, len));
        }
        Ok(Value::Bytes(value.bytes(len)?.to_vec()))
    })
}

/// Sets a time.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_set_time(md: MetadataHandle, key: Text, value_ns: i64) -> c_int {
    set(md, key, || Ok(Value::Time(value_ns)))
}

/// The number of pairs; 0 for what is no set.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_count(md: MetadataHandle) -> usize {
    guard_value(0, || Ok(lock(&md.get()?.pairs).len()))
}

/// Steps through the pairs.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_next(
    md: MetadataHandle,
    position: Out<usize>,
    key: Out<*const c_char>,
    out: OutStruct<abi::Value>,
) -> c_int {
    guard(|| {
        let md = md.get()?;
        let (at, key) = (position.required("position")?, key.required("key")?);
        let out = out.place()?;
        let mut pairs = lock(&md.pairs);
        let (k, v) = pairs.show(at.read()).ok_or_else(|| Error::not_found("there are no more pairs"))?;
        key.write(k);
        out.write(v);
        at.write(at.read() + 1);
        Ok(())
    })
}

/// The value of a key.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_find(md: MetadataHandle, key: Text, out: OutStruct<abi::Value>) -> c_int {
    guard(|| {
        let md = md.get()?;
        let key = key.required_utf8("metadata key")?;
        let out = out.place()?;
        let mut pairs = lock(&md.pairs);
        let found = pairs.position(key).ok().and_then(|i| pairs.show(i));
        let (_, value) = found.ok_or_else(|| Error::not_found(format!("there is no pair with the key {key:?}")))?;
        out.write(value);
        Ok(())
    })
}

fn key_of(text: &Text) -> Result<String> {
    let key = text.required_utf8("metadata key")?;
    if key.is_empty() || key.len() > limits::KEY_BYTES {
        return Err(Error::invalid(format!("the metadata key {key:?} must have 1 to {} bytes", limits::KEY_BYTES)));
    }
    Ok(key.to_owned())
}

/// Reads one value.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_get(
    b: BatchHandle,
    c: CollectionHandle,
    key: Text,
    out: OutStruct<abi::Value>,
) -> c_int {
    guard(|| {
        let c = c.get()?;
        let (key, out) = (key_of(&key)?, out.place()?);
        submit(b, Submission::with(&c.cx, Op::MetaGet { c: c.usable()?, key }, Pending::Value(out)))
    })
}

/// Adds or replaces pairs.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_put(b: BatchHandle, c: CollectionHandle, md: MetadataHandle) -> c_int {
    guard(|| {
        let c = c.get()?;
        let pairs = lock(&md.get()?.pairs).to_metadata()?;
        submit(b, Submission::new(&c.cx, Op::MetaPut { c: c.usable()?, pairs }))
    })
}

/// Removes a pair.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_remove(b: BatchHandle, c: CollectionHandle, key: Text) -> c_int {
    guard(|| {
        let c = c.get()?;
        let key = key_of(&key)?;
        Metadata::check_key(&key)?;
        submit(b, Submission::new(&c.cx, Op::MetaRemove { c: c.usable()?, key }))
    })
}

/// Reads all user pairs.
#[unsafe(no_mangle)]
pub extern "C" fn iov_metadata_list(b: BatchHandle, c: CollectionHandle, out: Out<MetadataHandle>) -> c_int {
    guard(|| {
        let c = c.get()?;
        let out = out.required("out")?;
        submit(b, Submission::with(&c.cx, Op::MetaList { c: c.usable()? }, Pending::Metadata(out)))
    })
}
