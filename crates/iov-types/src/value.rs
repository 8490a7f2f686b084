//! Typed metadata values (O4).

/// The types of values; the numbers are those of `IOV_TYPE_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum ValueType {
    /// UTF-8 text.
    Str = 1,
    /// 64-bit signed integer.
    I64 = 2,
    /// 64-bit float.
    F64 = 3,
    /// True or false.
    Bool = 4,
    /// Any bytes.
    Bytes = 5,
    /// Nanoseconds since 1970, UTC.
    Time = 6,
}

/// A metadata value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// UTF-8 text.
    Str(String),
    /// 64-bit signed integer.
    I64(i64),
    /// 64-bit float; NaN may be stored and equals nothing.
    F64(f64),
    /// True or false.
    Bool(bool),
    /// Any bytes.
    Bytes(Vec<u8>),
    /// Nanoseconds since 1970, UTC.
    Time(i64),
}

impl Value {
    /// Its type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::Str(_) => ValueType::Str,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
            Value::Bool(_) => ValueType::Bool,
            Value::Bytes(_) => ValueType::Bytes,
            Value::Time(_) => ValueType::Time,
        }
    }

    /// Bytes of payload it takes, for limits and accounting.
    pub fn payload_len(&self) -> usize {
        match self {
            Value::Str(s) => s.len(),
            Value::Bytes(b) => b.len(),
            Value::Bool(_) => 1,
            Value::I64(_) | Value::F64(_) | Value::Time(_) => 8,
        }
    }
}
