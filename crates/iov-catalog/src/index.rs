//! Declared indexes (O5): which entries a record has, and values as bytes whose order is that of the values.
//!
//! An entry is the key `I` + workspace (16) + length of the index key (2, big endian) + index key + value + UUID (16), with
//! an empty value behind it. Records and entries are written by the same transaction, so that they never disagree.

use iov_types::{Clause, Error, Metadata, Result, Uuid, Value};

/// Bytes of a string or bytes value that an entry keeps: an entry stays small, and what agrees this far is told apart by
/// looking at the record.
pub const VALUE_BYTES: usize = 256;

/// Most indexes of one workspace: each is one more entry to write per record that has the key.
pub const INDEXES: usize = 64;

/// The first byte of every entry.
const ENTRY: u8 = b'I';

/// The first byte of an encoded value. Values of different types are in this order.
mod tag {
    pub(super) const BOOL: u8 = 0x10;
    pub(super) const NUMBER: u8 = 0x20;
    pub(super) const TIME: u8 = 0x30;
    pub(super) const STR: u8 = 0x40;
    pub(super) const BYTES: u8 = 0x50;
}

/// Ends of a string: no byte that stands for a character of it is as small. A cut one is behind all that end here.
const END: [u8; 2] = [0, 1];
const CUT: [u8; 2] = [0, 2];

/// Checks the index keys that a workspace declares: user keys, each once, not too many.
pub fn check_declared(declared: &[String]) -> Result<()> {
    if declared.len() > INDEXES {
        let count = declared.len();
        return Err(Error::too_big(format!(
            "{count} indexes are declared, the limit is {INDEXES}: declare those that select most"
        ))
        .with_clause(Clause::O5));
    }
    for (i, key) in declared.iter().enumerate() {
        Metadata::check_key(key).map_err(|e| e.context("an index").with_clause(Clause::O5))?;
        if declared[..i].contains(key) {
            return Err(Error::invalid(format!("the index {key:?} is declared twice")).with_clause(Clause::O5));
        }
    }
    Ok(())
}

/// The entries of a record, one for each declared key that it has.
pub fn keys(ws: Uuid, declared: &[String], uuid: Uuid, metadata: &Metadata) -> Vec<Vec<u8>> {
    let entry = |key: &String| {
        let mut entry = prefix(ws, key);
        encode_into(&mut entry, metadata.get(key)?, VALUE_BYTES);
        entry.extend_from_slice(&uuid.0);
        Some(entry)
    };
    declared.iter().filter_map(entry).collect()
}

/// What all entries of one index begin with.
pub fn prefix(ws: Uuid, key: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + 16 + 2 + key.len() + VALUE_BYTES + 18);
    out.push(ENTRY);
    out.extend_from_slice(&ws.0);
    // Keys have at most 255 bytes (`Metadata::check_key`); the length keeps the entries of "a" and "ab" apart.
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(key.as_bytes());
    out
}

/// What all entries of a workspace begin with, for removing them.
pub fn workspace_prefix(ws: Uuid) -> Vec<u8> {
    let mut out = vec![ENTRY];
    out.extend_from_slice(&ws.0);
    out
}

/// The record that an entry is of.
pub(crate) fn uuid_of(entry: &[u8]) -> Result<Uuid> {
    let (_, uuid) = entry.split_last_chunk::<16>().ok_or_else(|| Error::corrupt("an index entry is too short"))?;
    Ok(Uuid(*uuid))
}

/// A value as an entry has it. For values a < b the bytes are less, or equal where both are cut behind the same
/// [`VALUE_BYTES`]; equal values have the same bytes; none is the beginning of another.
pub fn encode_value(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode_into(&mut out, value, VALUE_BYTES);
    out
}

/// A value in full, for sorting.
pub(crate) fn encode_full(out: &mut Vec<u8>, value: &Value) {
    encode_into(out, value, usize::MAX);
}

/// The bytes that the encodings of all strings (or bytes) with this beginning begin with, as far as entries keep them.
pub(crate) fn encode_beginning(value: &Value) -> Option<Vec<u8>> {
    let (tag, bytes) = match value {
        Value::Str(s) => (tag::STR, s.as_bytes()),
        Value::Bytes(b) => (tag::BYTES, &b[..]),
        _ => return None,
    };
    let mut out = vec![tag];
    escape(&mut out, bytes, VALUE_BYTES);
    Some(out)
}

/// The first byte of all encodings of the type of this value; a range of values stays among them.
pub(crate) fn type_tag(value: &Value) -> u8 {
    match value {
        Value::Bool(_) => tag::BOOL,
        Value::I64(_) | Value::F64(_) => tag::NUMBER,
        Value::Time(_) => tag::TIME,
        Value::Str(_) => tag::STR,
        Value::Bytes(_) => tag::BYTES,
    }
}

/// Whether the encoding stands for more than one value.
pub(crate) fn is_cut(encoded: &[u8]) -> bool {
    matches!(encoded.first(), Some(&tag::STR | &tag::BYTES)) && encoded.ends_with(&CUT)
}

/// Whether these are the bytes of one value (or one cut one), not of a beginning of several.
pub(crate) fn is_whole(encoded: &[u8]) -> bool {
    match encoded.first() {
        Some(&tag::BOOL) => encoded.len() == 2,
        Some(&tag::NUMBER) => encoded.len() == 1 + 8 + 2,
        Some(&tag::TIME) => encoded.len() == 1 + 8,
        _ => encoded.ends_with(&END) || encoded.ends_with(&CUT), // a 0 of the value itself is followed by 255
    }
}

fn encode_into(out: &mut Vec<u8>, value: &Value, limit: usize) {
    out.push(type_tag(value));
    match value {
        Value::Bool(b) => out.push(u8::from(*b)),
        Value::I64(i) => {
            let (below, above) = float_below(*i);
            number(out, below, above);
        }
        Value::F64(f) => number(out, *f, 0),
        Value::Time(ns) => out.extend_from_slice(&(*ns as u64 ^ 1 << 63).to_be_bytes()),
        Value::Str(s) => string(out, s.as_bytes(), limit),
        Value::Bytes(b) => string(out, b, limit),
    }
}

/// A number is a float and how far above that float it is. Floats are 0 above themselves; an integer is above the greatest
/// float that does not exceed it, by less than the distance to the next one. So both kinds are in one exact order.
fn number(out: &mut Vec<u8>, f: f64, above: u16) {
    let bits = match f {
        f if f.is_nan() => u64::MAX, // behind all others, whatever its sign and payload
        0.0 => 1 << 63,              // -0.0 equals 0.0
        f if f.is_sign_negative() => !f.to_bits(),
        f => f.to_bits() | 1 << 63,
    };
    out.extend_from_slice(&bits.to_be_bytes());
    out.extend_from_slice(&above.to_be_bytes());
}

fn float_below(i: i64) -> (f64, u16) {
    let mut below = i as f64;
    if below as i128 > i128::from(i) {
        below = below.next_down();
    }
    // Floats of this size are whole and at most 1024 apart.
    (below, (i128::from(i) - below as i128) as u16)
}

fn string(out: &mut Vec<u8>, bytes: &[u8], limit: usize) {
    let whole = escape(out, bytes, limit);
    out.extend_from_slice(if whole { &END } else { &CUT });
}

/// Writes bytes with each 0 as 0 255, up to `limit` bytes; tells whether that was all.
fn escape(out: &mut Vec<u8>, bytes: &[u8], limit: usize) -> bool {
    let start = out.len();
    for &b in bytes {
        let len = if b == 0 { 2 } else { 1 };
        if out.len() - start + len > limit {
            return false;
        }
        out.push(b);
        out.extend_from_slice(&[0xff][..len - 1]);
    }
    true
}

#[cfg(test)]
mod tests;
