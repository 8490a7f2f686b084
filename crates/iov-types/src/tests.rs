use proptest::prelude::*;

use super::*;

#[test]
fn uuid_text_round_trips_and_rejects_neighbours() {
    let u = Uuid::v7(1_700_000_000_123, [7; 10]);
    assert_eq!((u.version(), u.unix_ms()), (7, 1_700_000_000_123));
    assert_eq!(Uuid::parse(&u.to_string()).unwrap(), u);
    for bad in ["", "uuid:", "uuid:0123", &u.to_string()[5..], &(u.to_string() + "0"), &u.to_string().replace('-', "_")]
    {
        assert_eq!(Uuid::parse(bad).unwrap_err().kind(), Kind::Invalid, "{bad}");
    }
}

#[test]
fn o3_names_are_bytes_with_few_rules() {
    assert!(Name::new([0xff, 0xfe]).is_ok());
    assert!(Name::new([b'a'; 255]).is_ok());
    for bad in [&b""[..], &[b'a'; 256], b"a/b", b"a\0b", b"uuid:x"] {
        assert_eq!(Name::new(bad).unwrap_err().clause(), Some(Clause::O3));
    }
    let u = Uuid::v7(1, [1; 10]);
    assert_eq!(Which::parse(u.to_string()).unwrap(), Which::Uuid(u));
    assert!(Which::parse("uuid:nonsense").is_err());
}

#[test]
fn kinds_have_distinct_numbers_that_no_errno_has() {
    let mut codes: Vec<i32> = Kind::ALL.iter().map(|k| k.code()).collect();
    codes.dedup();
    assert_eq!(codes.len(), Kind::ALL.len());
    assert!(codes.iter().all(|c| *c > 1000));
    assert!(Kind::ALL.iter().all(|k| Kind::from_code(-k.code()) == Some(*k) && !k.text().is_empty()));
}

#[test]
fn access_lists_parse_and_decide() {
    let lookup = |group: bool, name: &str| match (group, name) {
        (false, "bob") => Some(1001),
        (true, "cfd") => Some(2000),
        _ => None,
    };
    let list = AccessList::parse("user:bob=read, group:cfd=write", &lookup).unwrap();
    let caller = |uid, gid| Caller { uid, gid, groups: vec![], session: Uuid::NIL, holder: Uuid::NIL };
    assert_eq!(list.rights(&caller(1001, 1)), Some(Right::Read));
    assert_eq!(list.rights(&caller(1001, 2000)), Some(Right::Write));
    assert_eq!(list.rights(&caller(7, 7)), None);
    for bad in ["bob", "user:bob", "user:nobody=read", "user:bob=all", "host:x=read"] {
        assert_eq!(AccessList::parse(bad, &lookup).unwrap_err().kind(), Kind::Invalid, "{bad}");
    }
}

#[test]
fn o4_metadata_keys_and_sizes() {
    let mut m = Metadata::new();
    m.set("b", Value::I64(1)).unwrap();
    m.set("a", Value::Str("x".into())).unwrap();
    assert_eq!(m.iter().map(|(k, _)| k).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(m.after(Some("a")).unwrap().0, "b");
    assert!(m.after(Some("b")).is_none());
    for bad in ["", "iov.size", "a\0", &"k".repeat(256)] {
        assert_eq!(m.set(bad, Value::Bool(true)).unwrap_err().clause(), Some(Clause::O4));
    }
    assert_eq!(m.set("big", Value::Bytes(vec![0; limits::VALUE_BYTES + 1])).unwrap_err().kind(), Kind::TooBig);
}

proptest! {
    #[test]
    fn ranges_never_overflow(a in any::<u64>(), b in any::<u64>(), c in 0u64..1000, d in 0u64..1000) {
        if let Ok(r) = Range::new(a, b) {
            prop_assert!(r.end() <= i64::MAX as u64);
        }
        let (x, y) = (Range { offset: c, len: d }, Range { offset: d, len: c });
        prop_assert_eq!(x.intersect(&y).is_some(), x.overlaps(&y));
    }
}
