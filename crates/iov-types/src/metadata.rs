//! A set of key-value pairs, with the rules for keys (O4).

use std::collections::BTreeMap;

use crate::{Clause, Error, Result, Value, limits};

/// User metadata: pairs in key order, keys and total size checked on the way in.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Metadata {
    pairs: BTreeMap<String, Value>,
}

impl Metadata {
    /// An empty set.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// Checks a user key: 1 to 255 bytes, no NUL, not beginning with `iov.`.
    pub fn check_key(key: &str) -> Result<()> {
        let wrong = |why: &str| Err(Error::invalid(format!("the metadata key {key:?} {why}")).with_clause(Clause::O4));
        if key.is_empty() || key.len() > limits::KEY_BYTES {
            return wrong("must have 1 to 255 bytes");
        }
        if key.contains('\0') {
            return wrong("contains NUL");
        }
        if key.starts_with("iov.") {
            return wrong(
                "begins with \"iov.\": those keys are the system's, and only setattr changes some: mtime, owner, mode",
            );
        }
        Ok(())
    }

    /// Sets a key in place of any earlier value.
    pub fn set(&mut self, key: impl Into<String>, value: Value) -> Result<()> {
        let key = key.into();
        Metadata::check_key(&key)?;
        if value.payload_len() > limits::VALUE_BYTES {
            return Err(Error::too_big(format!(
                "the value of {key:?} has {} bytes, the limit is {}: store it as a collection",
                value.payload_len(),
                limits::VALUE_BYTES
            ))
            .with_clause(Clause::O4));
        }
        self.pairs.insert(key, value);
        Ok(())
    }

    /// Removes a key and tells what it held.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.pairs.remove(key)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.pairs.get(key)
    }

    /// All pairs in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The first pair whose key is greater than `key`, for stepping without an index.
    pub fn after(&self, key: Option<&str>) -> Option<(&str, &Value)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = key.map_or(Unbounded, Excluded);
        self.pairs.range::<str, _>((from, Unbounded)).next().map(|(k, v)| (k.as_str(), v))
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Bytes of keys and values.
    pub fn payload_len(&self) -> usize {
        self.pairs.iter().map(|(k, v)| k.len() + v.payload_len()).sum()
    }

    /// Takes over all pairs of another set, which win.
    pub fn merge(&mut self, other: &Metadata) {
        for (k, v) in &other.pairs {
            self.pairs.insert(k.clone(), v.clone());
        }
    }
}
