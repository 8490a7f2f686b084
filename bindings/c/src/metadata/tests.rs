use ioverbs::{Metadata, Value};

use super::pairs::Pairs;

#[test]
fn pairs_are_what_the_facade_has() {
    let mut md = Metadata::new();
    for (key, value) in [
        ("z", Value::Str("with \0 inside".into())),
        ("a", Value::Bytes(vec![0, 1, 0])),
        ("m", Value::F64(f64::MIN)),
        ("b", Value::Bool(true)),
        ("t", Value::Time(i64::MIN)),
        ("e", Value::Str(String::new())),
    ] {
        md.set(key, value).unwrap();
    }
    let pairs = Pairs::from_iter(md.iter().map(|(k, v)| (k, v.clone())));
    assert_eq!(pairs.to_metadata().unwrap(), md);
    assert_eq!(pairs.len(), 6);
}

#[test]
fn o4_system_keys_cannot_be_put() {
    let pairs = Pairs::from_iter([("iov.name", Value::I64(1))].into_iter());
    assert_eq!(pairs.to_metadata().unwrap_err().kind(), ioverbs::Kind::Invalid);
}

#[test]
fn what_was_shown_stays_where_it_was() {
    let mut pairs = Pairs::default();
    pairs.set("k", Value::Str("first".into()));
    let (_, first) = pairs.show(0).unwrap();
    for i in 0..100 {
        pairs.set("k", Value::I64(i));
        pairs.set(&format!("key {i}"), Value::I64(i));
    }
    // SAFETY: the set promises that the text stays until it is freed.
    let text = unsafe { std::ffi::CStr::from_ptr(first.payload as usize as *const _) };
    assert_eq!(text.to_bytes(), b"first");
    let at = pairs.position("k").unwrap();
    assert_eq!(pairs.show(at).unwrap().1.payload, 99);
    assert!(pairs.show(101).is_none());
}
