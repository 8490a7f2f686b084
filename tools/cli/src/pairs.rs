//! Metadata on the command line: `key=value` with the type that the value looks like, or `key:TYPE=value`.

use ioverbs::{Clause, Error, Metadata, Result, Value};

use crate::quantity::{read_timestamp, rfc3339};

const TYPES: &[&str] = &["str", "i64", "f64", "bool", "bytes", "time"];

/// Reads all pairs of a command; a key may be given once.
pub(crate) fn read(pairs: &[String]) -> Result<Metadata> {
    let mut metadata = Metadata::new();
    for pair in pairs {
        let (key, value) = read_one(pair)?;
        if metadata.get(&key).is_some() {
            return Err(Error::invalid(format!("the metadata key {key:?} is given twice")));
        }
        metadata.set(key, value)?;
    }
    Ok(metadata)
}

/// Reads one pair.
pub(crate) fn read_one(pair: &str) -> Result<(String, Value)> {
    let Some((key, value)) = pair.split_once('=') else {
        return Err(Error::invalid(format!("{pair:?} is no metadata: write key=value, or key:TYPE=value")));
    };
    match key.rsplit_once(':') {
        Some((key, kind)) if TYPES.contains(&kind) => Ok((key.to_owned(), forced(key, kind, value)?)),
        Some((before, word)) if let Some(kind) = meant(word) => Err(Error::invalid(format!(
            "{key:?} ends like a type, and there is none {word:?}: the types are {}; write {before}:{kind}=VALUE, or \
             {key}:{kind}=VALUE if the key has that name",
            TYPES.join(", ")
        ))
        .with_clause(Clause::O4)),
        _ => Ok((key.to_owned(), inferred(value))),
    }
}

/// The type that a word means which names it otherwise, as other languages do.
fn meant(word: &str) -> Option<&'static str> {
    let lower = word.to_ascii_lowercase();
    Some(match lower.as_str() {
        "string" => "str",
        "int" | "integer" | "int8" | "int16" | "int32" | "int64" | "uint" | "uint8" | "uint16" | "uint32"
        | "uint64" | "i8" | "i16" | "i32" | "u8" | "u16" | "u32" | "u64" => "i64",
        "float" | "double" | "float32" | "float64" | "f32" => "f64",
        "boolean" => "bool",
        "datetime" | "timestamp" => "time",
        // A type in capitals. Other words may be the names of keys, as in dc:date.
        _ => return TYPES.iter().copied().find(|kind| *kind == lower && *kind != word),
    })
}

fn forced(key: &str, kind: &str, value: &str) -> Result<Value> {
    let wrong =
        |what: &str| Error::invalid(format!("the value {value:?} of {key:?} is no {what}")).with_clause(Clause::O4);
    Ok(match kind {
        "i64" => Value::I64(value.parse().map_err(|_| wrong("integer of 64 bits"))?),
        "f64" => Value::F64(float(value).ok_or_else(|| wrong("floating-point number, or beyond the range of one"))?),
        "bool" => Value::Bool(value.parse().map_err(|_| wrong("truth value: write true or false"))?),
        "bytes" => {
            Value::Bytes(unhex(value).ok_or_else(|| wrong("row of bytes: write two hexadecimal digits for each"))?)
        }
        "time" => {
            Value::Time(read_timestamp(value).ok_or_else(|| wrong("time: write RFC 3339, as in 2026-11-21T09:30:00Z"))?)
        }
        _ => Value::Str(value.to_owned()),
    })
}

/// A float. One that is too large for a float is none: infinity is written out.
fn float(text: &str) -> Option<f64> {
    let x: f64 = text.parse().ok()?;
    let written = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    (!x.is_infinite() || matches!(written.as_str(), "inf" | "infinity")).then_some(x)
}

/// The type that a value looks like: numbers as JSON writes them, true and false, a date or time, else a string.
fn inferred(value: &str) -> Value {
    if let "true" | "false" = value {
        return Value::Bool(value == "true");
    }
    if is_integer(value) {
        // A number that 64 bits cannot hold is kept as it was written: it is a label, not a quantity.
        return value.parse().map_or_else(|_| Value::Str(value.to_owned()), Value::I64);
    }
    if is_number(value)
        && let Ok(x) = value.parse::<f64>()
        && x.is_finite()
    {
        return Value::F64(x);
    }
    match read_timestamp(value) {
        Some(ns) => Value::Time(ns),
        None => Value::Str(value.to_owned()),
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'))
}

/// A number as JSON writes it: `007` and `+5` are none, so that labels stay labels.
fn is_number(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((m, e)) => (m, Some(e)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((w, f)) => (w, Some(f)),
        None => (mantissa, None),
    };
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    is_integer(whole)
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    bytes.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The type's name, as `key:TYPE=` takes it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Str(_) => "str",
        Value::I64(_) => "i64",
        Value::F64(_) => "f64",
        Value::Bool(_) => "bool",
        Value::Bytes(_) => "bytes",
        Value::Time(_) => "time",
    }
}

/// A value as the command line takes it.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Str(s) => s.clone(),
        Value::I64(n) => n.to_string(),
        Value::F64(x) => format!("{x:?}"),
        Value::Bool(b) => b.to_string(),
        Value::Bytes(b) => hex(b),
        Value::Time(ns) => rfc3339(*ns),
    }
}

/// A value in JSON: numbers and truth values are themselves, times RFC 3339 text, bytes `{"hex": "…"}`, and a float that
/// JSON cannot write its name as text.
pub(crate) fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Str(s) => s.as_str().into(),
        Value::I64(n) => (*n).into(),
        Value::F64(x) if x.is_finite() => (*x).into(),
        Value::F64(x) => x.to_string().into(),
        Value::Bool(b) => (*b).into(),
        Value::Bytes(b) => serde_json::json!({ "hex": hex(b) }),
        Value::Time(ns) => rfc3339(*ns).into(),
    }
}
