use ioverbs::{Kind, Value};

use crate::pairs::{json, read, read_one, text};

fn value(pair: &str) -> Value {
    read_one(pair).unwrap().1
}

#[test]
fn o4_values_have_the_type_that_they_look_like() {
    assert_eq!(value("k=310"), Value::I64(310));
    assert_eq!(value("k=-9223372036854775808"), Value::I64(i64::MIN));
    assert_eq!(value("k=0"), Value::I64(0));
    assert_eq!(value("k=3.5"), Value::F64(3.5));
    assert_eq!(value("k=1e3"), Value::F64(1000.0));
    assert_eq!(value("k=true"), Value::Bool(true));
    assert_eq!(value("k=2026-01-01T00:00:00Z"), Value::Time(1_767_225_600_000_000_000));
    assert_eq!(value("k=2026-01-01T02:00:00.5+02:00"), Value::Time(1_767_225_600_500_000_000));
    assert_eq!(value("k=2026-01-01"), Value::Time(1_767_225_600_000_000_000));
    assert_eq!(value("k=nacelle"), Value::Str("nacelle".into()));
    assert_eq!(value("k="), Value::Str(String::new()));
    assert_eq!(value("k=a=b"), Value::Str("a=b".into()));
}

#[test]
fn o4_labels_stay_labels() {
    for label in [
        "007",
        "+5",
        "0x10",
        "1.",
        ".5",
        "1e",
        "nan",
        "inf",
        "True",
        "18446744073709551616",
        "2026-13-01",
        "2026-01-01x",
    ] {
        assert_eq!(value(&format!("k={label}")), Value::Str(label.into()));
    }
}

#[test]
fn o4_types_can_be_forced() {
    assert_eq!(value("k:str=310"), Value::Str("310".into()));
    assert_eq!(value("k:f64=310"), Value::F64(310.0));
    assert_eq!(value("k:i64=007"), Value::I64(7));
    assert_eq!(value("k:bytes=00ff"), Value::Bytes(vec![0, 255]));
    assert_eq!(value("k:time=2026-01-01"), value("k=2026-01-01"));
    assert_eq!(read_one("a:b=1").unwrap(), ("a:b".into(), Value::I64(1)));
    for bad in ["k:i64=3.5", "k:bool=yes", "k:bytes=0", "k:bytes=zz", "k:time=soon", "k:f64=x", "novalue"] {
        assert_eq!(read_one(bad).unwrap_err().kind(), Kind::Invalid, "{bad}");
    }
    for bad in ["k:f64=1e999", "k:f64=-1e999", "k:f64=1e309"] {
        let e = read_one(bad).unwrap_err();
        assert!(e.kind() == Kind::Invalid && e.detail().contains("beyond the range"), "{bad}: {e}");
    }
    assert_eq!(value("k:f64=inf"), Value::F64(f64::INFINITY));
    assert_eq!(value("k:f64=-Infinity"), Value::F64(f64::NEG_INFINITY));
    assert!(read(&["k=1".into(), "k=2".into()]).unwrap_err().detail().contains("twice"));
    assert!(read(&["iov.size=1".into()]).is_err());
}

#[test]
fn o4_a_type_by_another_name_is_told_and_not_taken_for_a_key() {
    for (bad, right) in [
        ("run:string=3", "run:str=VALUE"),
        ("q:int=3", "q:i64=VALUE"),
        ("q:Float=3", "q:f64=VALUE"),
        ("q:STR=3", "q:str=VALUE"),
        ("a:b:boolean=true", "a:b:bool=VALUE"),
        ("t:datetime=2026-01-01", "t:time=VALUE"),
    ] {
        let e = read_one(bad).unwrap_err();
        assert_eq!((e.kind(), e.clause()), (Kind::Invalid, Some(ioverbs::Clause::O4)), "{bad}");
        assert!(e.detail().contains(right) && e.detail().contains("str, i64, f64"), "{bad}: {e}");
    }
    // Keys may have any characters: with its type behind it even such a key can be written.
    assert_eq!(read_one("run:string:i64=3").unwrap(), ("run:string".into(), Value::I64(3)));
    assert_eq!(read_one("dc:date=2026").unwrap(), ("dc:date".into(), Value::I64(2026)));
}

#[test]
fn values_are_written_so_that_they_read_back() {
    for pair in ["k=310", "k=3.0", "k=1e300", "k=true", "k=text", "k=2026-01-01T00:00:00.000000001Z", "k:bytes=00ff"] {
        let value = value(pair);
        let kind = crate::pairs::type_name(&value);
        assert_eq!(read_one(&format!("k:{kind}={}", text(&value))).unwrap().1, value, "{pair}");
    }
    assert_eq!(json(&Value::F64(f64::NAN)), "NaN");
    assert_eq!(json(&Value::Bytes(vec![1])), serde_json::json!({ "hex": "01" }));
}
