//! Metadata in a sidecar: each value as text beside its type, so that none is taken for another and every bit comes back.

use ioverbs::{Error, Metadata, Result, Value};
use serde_json::{Value as Json, json};

use crate::{
    pairs::{hex, type_name, unhex},
    quantity::{read_timestamp, rfc3339},
};

/// Pairs as a list.
pub(crate) fn to_json<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Json {
    let one = |(key, value): (&str, &Value)| {
        let text = match value {
            Value::Str(s) => s.clone(),
            Value::I64(n) => n.to_string(),
            // Of those that are no number the bits tell which one it is.
            Value::F64(x) if x.is_nan() => format!("nan:{:016x}", x.to_bits()),
            Value::F64(x) => format!("{x:?}"),
            Value::Bool(b) => b.to_string(),
            Value::Bytes(b) => hex(b),
            Value::Time(ns) => rfc3339(*ns),
        };
        json!({ "key": key, "type": type_name(value), "value": text })
    };
    Json::Array(pairs.into_iter().map(one).collect())
}

/// The pairs of a list.
pub(crate) fn from_json(list: &Json) -> Result<Metadata> {
    let mut metadata = Metadata::new();
    for pair in list.as_array().ok_or_else(|| Error::invalid("its metadata are no list"))? {
        let text = |field: &str| {
            let found = pair.get(field).and_then(Json::as_str);
            found.ok_or_else(|| Error::invalid(format!("a pair of its metadata has no {field}")))
        };
        let (key, kind, value) = (text("key")?, text("type")?, text("value")?);
        let wrong = || Error::invalid(format!("the value {value:?} of {key:?} is none of type {kind:?}"));
        let value = match kind {
            "str" => Value::Str(value.to_owned()),
            "i64" => Value::I64(value.parse().map_err(|_| wrong())?),
            "f64" => Value::F64(match value.strip_prefix("nan:") {
                Some(bits) => f64::from_bits(u64::from_str_radix(bits, 16).map_err(|_| wrong())?),
                None => value.parse().map_err(|_| wrong())?,
            }),
            "bool" => Value::Bool(value.parse().map_err(|_| wrong())?),
            "bytes" => Value::Bytes(unhex(value).ok_or_else(wrong)?),
            "time" => Value::Time(read_timestamp(value).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        };
        metadata.set(key, value)?;
    }
    Ok(metadata)
}
