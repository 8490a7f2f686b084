//! Pairs as C sees them: keys and texts end with NUL, and stay where they are once a program has seen them.

use std::ffi::c_char;

use ioverbs::{Metadata, Result, Value};

use crate::{abi, convert};

enum Stored {
    /// With its NUL, which `len` does not count.
    Str(Box<[u8]>),
    /// The same.
    Bytes(Box<[u8]>),
    Plain(Value),
}

struct Pair {
    /// With its NUL.
    key: Box<[u8]>,
    value: Stored,
    /// The program has a pointer into the value.
    shown: bool,
}

/// Pairs in key order.
#[derive(Default)]
pub(super) struct Pairs {
    pairs: Vec<Pair>,
    /// Values that were replaced after a program had seen them (rule 9).
    old: Vec<Stored>,
}

fn with_nul(bytes: &[u8]) -> Box<[u8]> {
    bytes.iter().copied().chain([0]).collect()
}

fn without_nul(bytes: &[u8]) -> &[u8] {
    bytes.split_last().map_or(&[], |(_, text)| text)
}

impl Stored {
    fn new(value: Value) -> Stored {
        match value {
            Value::Str(s) => Stored::Str(with_nul(s.as_bytes())),
            Value::Bytes(b) => Stored::Bytes(with_nul(&b)),
            plain => Stored::Plain(plain),
        }
    }

    fn value(&self) -> Value {
        match self {
            // It came from a `String`, so that nothing is replaced here.
            Stored::Str(s) => Value::Str(String::from_utf8_lossy(without_nul(s)).into_owned()),
            Stored::Bytes(b) => Value::Bytes(without_nul(b).to_vec()),
            Stored::Plain(value) => value.clone(),
        }
    }

    fn show(&self) -> abi::Value {
        let (kind, bytes) = match self {
            Stored::Str(s) => (ioverbs::ValueType::Str, s),
            Stored::Bytes(b) => (ioverbs::ValueType::Bytes, b),
            Stored::Plain(value) => return convert::value_out(value, &mut |_| std::ptr::null()),
        };
        abi::Value {
            kind: kind as u32,
            len: bytes.len() - 1,
            payload: bytes.as_ptr() as usize as u64,
            ..abi::Value::init()
        }
    }
}

impl Pairs {
    pub(super) fn from_iter<'a>(pairs: impl Iterator<Item = (&'a str, Value)>) -> Pairs {
        let mut out = Pairs::default();
        for (key, value) in pairs {
            out.set(key, value);
        }
        out
    }

    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Where the key is, or where it would be.
    pub(super) fn position(&self, key: &str) -> std::result::Result<usize, usize> {
        self.pairs.binary_search_by(|p| without_nul(&p.key).cmp(key.as_bytes()))
    }

    pub(super) fn set(&mut self, key: &str, value: Value) {
        let value = Stored::new(value);
        match self.position(key) {
            Ok(at) => {
                let pair = &mut self.pairs[at];
                let old = std::mem::replace(&mut pair.value, value);
                if std::mem::take(&mut pair.shown) {
                    self.old.push(old);
                }
            }
            Err(at) => self.pairs.insert(at, Pair { key: with_nul(key.as_bytes()), value, shown: false }),
        }
    }

    /// Key and value number `at`, as pointers that stay good until the set is freed.
    pub(super) fn show(&mut self, at: usize) -> Option<(*const c_char, abi::Value)> {
        let pair = self.pairs.get_mut(at)?;
        pair.shown = true;
        Some((pair.key.as_ptr().cast(), pair.value.show()))
    }

    /// As the facade has them; system keys are refused there.
    pub(super) fn to_metadata(&self) -> Result<Metadata> {
        let mut out = Metadata::new();
        for pair in &self.pairs {
            out.set(String::from_utf8_lossy(without_nul(&pair.key)), pair.value.value())?;
        }
        Ok(out)
    }
}
