//! The order of typed values (O4).

use std::cmp::Ordering;

use iov_types::Value;

/// The order of two values that can be compared: of the same type, or both numbers. NaN compares with nothing.
pub fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::I64(a), Value::I64(b)) | (Value::Time(a), Value::Time(b)) => Some(a.cmp(b)),
        (Value::F64(a), Value::F64(b)) => a.partial_cmp(b),
        (Value::I64(a), Value::F64(b)) => integer_float(*a, *b),
        (Value::F64(a), Value::I64(b)) => integer_float(*b, *a).map(Ordering::reverse),
        (Value::Str(a), Value::Str(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// Exact: rounding the integer to a float would make 2^53 + 1 equal to 2^53.
fn integer_float(i: i64, f: f64) -> Option<Ordering> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0; // 2^63, exact
    if f.is_nan() {
        return None;
    }
    if f >= LIMIT {
        return Some(Ordering::Less);
    }
    if f < -LIMIT {
        return Some(Ordering::Greater);
    }
    let whole = f.trunc();
    // Within ±2^63 the whole part converts exactly; the rest decides only between equal whole parts.
    Some(i.cmp(&(whole as i64)).then_with(|| 0.0_f64.total_cmp(&(f - whole + 0.0))))
}
