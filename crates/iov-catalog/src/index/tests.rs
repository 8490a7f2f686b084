//! The order of encodings is the order of values.

use std::cmp::Ordering;

use iov_types::{Clause, Kind, Metadata, Uuid, Value};
use proptest::prelude::*;

use super::*;
use crate::predicate::compare;

fn value() -> impl Strategy<Value = Value> {
    let edge = prop_oneof![Just(0i64), Just(1 << 53), Just(1 << 62), Just(i64::MAX), Just(i64::MIN), Just(-(1 << 60))];
    prop_oneof![
        any::<i64>().prop_map(Value::I64),
        (edge.clone(), -1100i64..1100).prop_map(|(e, d)| Value::I64(e.saturating_add(d))),
        (edge, -3i64..3).prop_map(|(e, d)| {
            let f = e as f64;
            Value::F64((0..d.abs()).fold(f, |f, _| if d < 0 { f.next_down() } else { f.next_up() }))
        }),
        any::<f64>().prop_map(Value::F64),
        Just(Value::F64(-0.0)),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Time),
        "[a\u{0}\u{1}é]{0,4}".prop_map(Value::Str),
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), Just(255)], 0..4).prop_map(Value::Bytes),
        // Around the cut, with an escape at it or beside it.
        (250usize..260, "[a\u{0}]{0,3}").prop_map(|(n, end)| Value::Str("b".repeat(n) + &end)),
    ]
}

/// Any two values, or two that are next to each other.
fn two_values() -> impl Strategy<Value = (Value, Value)> {
    let near = |d: i64, float: bool, n: i64| {
        let n = n.saturating_add(d);
        if float { Value::F64(n as f64) } else { Value::I64(n) }
    };
    let size = prop_oneof![Just(53u32), 54u32..63, Just(10)];
    let pair = (size, any::<bool>(), -3i64..3, -1030i64..1030, any::<bool>(), any::<bool>()).prop_map(
        move |(size, negative, a, b, x, y)| {
            let n = if negative { -(1i64 << size) } else { 1i64 << size };
            (near(a, x, n), near(b, y, n))
        },
    );
    prop_oneof![(value(), value()), pair]
}

fn len(v: &Value) -> usize {
    match v {
        Value::Str(s) => s.bytes().map(|b| if b == 0 { 2 } else { 1 }).sum(),
        _ => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6_000))]

    #[test]
    fn o5_order_of_encodings_is_order_of_values((a, b) in two_values()) {
        let (ea, eb) = (encode_value(&a), encode_value(&b));
        let mut full = (Vec::new(), Vec::new());
        encode_full(&mut full.0, &a);
        encode_full(&mut full.1, &b);
        match compare(&a, &b) {
            Some(order) => {
                prop_assert_eq!(full.0.cmp(&full.1), order);
                let cut = len(&a) > VALUE_BYTES && len(&b) > VALUE_BYTES;
                prop_assert!(ea.cmp(&eb) == order || cut && ea == eb, "{:?} {:?}", a, b);
            }
            None => prop_assert!(type_tag(&a) != type_tag(&b) || [&a, &b].iter().any(|v| matches!(v, Value::F64(f) if f.is_nan()))),
        }
        prop_assert!(ea == eb || !ea.starts_with(&eb), "{:?} {:?}: one is the beginning of the other", a, b);
        prop_assert_eq!(is_cut(&ea), len(&a) > VALUE_BYTES);
        prop_assert!(ea.len() <= 1 + VALUE_BYTES + 2);
    }

    #[test]
    fn o5_encodings_begin_as_their_beginnings(s in "[a\u{0}b]{0,4}", more in "[a\u{0}]{0,4}", pad in 0usize..2) {
        let s = "b".repeat(pad * 255) + &s;
        let beginning = encode_beginning(&Value::Str(s.clone())).unwrap();
        prop_assert!(encode_value(&Value::Str(s.clone() + &more)).starts_with(&beginning));
        let other = Value::Str("c".to_owned() + &s);
        prop_assert!(s.is_empty() || !encode_value(&other).starts_with(&beginning));
    }
}

#[test]
fn o5_integers_and_floats_share_one_order() {
    let n = 1i64 << 60;
    let ordered = [
        Value::F64(f64::NEG_INFINITY),
        Value::I64(i64::MIN),
        Value::I64(i64::MIN + 1),
        Value::F64((i64::MIN as f64).next_up()),
        Value::I64(-1),
        Value::F64(-0.5),
        Value::I64(0),
        Value::F64(5e-324),
        Value::I64((1 << 53) - 1),
        Value::F64((1u64 << 53) as f64),
        Value::I64((1 << 53) + 1),
        Value::F64(n as f64),
        Value::I64(n + 1),
        Value::I64(n + 127),
        Value::I64(n + 255),
        Value::F64((n as f64).next_up()),
        Value::I64(i64::MAX),
        Value::F64(i64::MAX as f64),
        Value::F64(f64::INFINITY),
        Value::F64(f64::NAN),
    ];
    for pair in ordered.windows(2) {
        assert_eq!(encode_value(&pair[0]).cmp(&encode_value(&pair[1])), Ordering::Less, "{pair:?}");
    }
    assert_eq!(encode_value(&Value::I64(7)), encode_value(&Value::F64(7.0)));
    assert_eq!(encode_value(&Value::F64(0.0)), encode_value(&Value::F64(-0.0)));
    assert_eq!(encode_value(&Value::F64(f64::NAN)), encode_value(&Value::F64(-f64::NAN)));
}

#[test]
fn o5_entries_of_a_record() {
    let (ws, uuid) = (Uuid([7; 16]), Uuid([9; 16]));
    let mut metadata = Metadata::new();
    metadata.set("temperature", Value::I64(300)).unwrap();
    metadata.set("other", Value::I64(1)).unwrap();
    let declared = ["temperature".to_owned(), "missing".to_owned()];
    let entries = keys(ws, &declared, uuid, &metadata);
    assert_eq!(entries.len(), 1);
    let mut expected = b"I".to_vec();
    expected.extend_from_slice(&[7; 16]);
    expected.extend_from_slice(b"\x00\x0btemperature");
    // 300.0 is 0x4072c00000000000; nothing above it.
    expected.extend_from_slice(&[0x20, 0xc0, 0x72, 0xc0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(&[9; 16]);
    assert_eq!(entries[0], expected);
    assert_eq!(uuid_of(&entries[0]).unwrap(), uuid);
    assert_eq!(uuid_of(b"short").unwrap_err().kind(), Kind::Corrupt);
    assert!(entries[0].starts_with(&workspace_prefix(ws)));
}

#[test]
fn o5_encodings_are_pinned() {
    let hex = |v: Value| encode_value(&v).iter().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(hex(Value::Bool(true)), "1001");
    assert_eq!(hex(Value::I64(-1)), "20400fffffffffffff0000");
    assert_eq!(hex(Value::I64((1 << 53) + 1)), "20c3400000000000000001");
    assert_eq!(hex(Value::Time(-1)), "307fffffffffffffff");
    assert_eq!(hex(Value::Str("a\0b".to_owned())), "406100ff620001");
    assert_eq!(hex(Value::Bytes(vec![])), "500001");
    assert_eq!(hex(Value::Str("é".repeat(200))), format!("40{}0002", "c3a9".repeat(128)));
}

#[test]
fn o5_declared_indexes_are_checked() {
    let check = |keys: &[&str]| check_declared(&keys.iter().map(|k| (*k).to_owned()).collect::<Vec<_>>());
    assert!(check(&[]).is_ok() && check(&["a", "b"]).is_ok());
    let e = check(&["a", "b", "a"]).unwrap_err();
    assert_eq!(
        (e.kind(), e.clause(), e.detail()),
        (Kind::Invalid, Some(Clause::O5), "the index \"a\" is declared twice")
    );
    assert_eq!(check(&["iov.size"]).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(check(&[""]).unwrap_err().kind(), Kind::Invalid);
    let many: Vec<String> = (0..=INDEXES).map(|i| format!("k{i}")).collect();
    assert_eq!(check_declared(&many).unwrap_err().kind(), Kind::TooBig);
}
