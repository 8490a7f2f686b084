//! Ranges hold all that can match, and little more.

use iov_store::KeyRange;
use iov_types::Value;
use proptest::prelude::*;

use super::super::ranges::{Space, intersect, ranges, union};
use crate::{index, predicate::Predicate};

fn range(from: &[u8], to: &[u8]) -> KeyRange {
    KeyRange { from: from.to_vec(), to: Some(to.to_vec()) }
}

fn of_names(predicate: &str) -> Option<Vec<KeyRange>> {
    ranges(Predicate::parse(predicate, &[]).unwrap().root(), Space::Names)
}

#[test]
fn o5_ranges_of_names() {
    assert_eq!(of_names("iov.name = 'b'"), Some(vec![range(b"b", b"b\0")]));
    assert_eq!(of_names("iov.name ^= 'b' and a = 1"), Some(vec![range(b"b", b"c")]));
    assert_eq!(of_names("iov.name ~ 'run_?*' and iov.name < 'run_5'"), Some(vec![range(b"run_", b"run_5")]));
    assert_eq!(of_names("iov.name in ('b', 'a', 'b', x'ff')").unwrap().len(), 3);
    assert_eq!(of_names("iov.name > 'b' and iov.name <= 'a'"), Some(vec![]));
    assert_eq!(of_names("iov.name = 'a' or iov.name in ['b', 'c')").unwrap(), [range(b"a", b"a\0"), range(b"b", b"c")]);
    for anywhere in ["not iov.name = 'a'", "a = 1", "iov.name = 'a' or a = 1"] {
        assert_eq!(of_names(anywhere), None, "{anywhere}");
    }
}

#[test]
fn o5_ranges_of_values_hold_exactly_the_type() {
    let of = |text: &str| ranges(Predicate::parse(text, &[]).unwrap().root(), Space::Index("a")).unwrap();
    let holds = |text: &str, v: Value| of(text).iter().any(|r| r.contains(&index::encode_value(&v)));
    assert!(
        holds("a > 300", Value::F64(300.5)) && holds("a > 300", Value::I64(301)) && !holds("a > 300", Value::I64(300))
    );
    assert!(!holds("a > 300", Value::F64(f64::NAN)) && !holds("a > 300", Value::Time(400)));
    assert!(holds("a >= 300.0", Value::I64(300)) && !holds("a < 300.0", Value::I64(300)));
    assert!(holds("a < 'x'", Value::Str(String::new())) && !holds("a < 'x'", Value::I64(1)));
    assert!(holds("a > 'x'", Value::Str("y".into())) && !holds("a > 'x'", Value::Bytes(vec![255])));
    assert!(holds("a ~ '*'", Value::Str("y".into())) && !holds("a ~ '*'", Value::Bytes(vec![1])));
    assert!(holds("a != 1", Value::I64(2)) && holds("exists(a)", Value::F64(f64::NAN)));
    assert_eq!(of("a > 1 and a < 1"), []);
    assert_eq!(of("a > 1 and a < 3 and a in (2, 5)").len(), 1);
    assert_eq!(of("a in (1, 1.0, 1)").len(), 1);
}

fn some_ranges() -> impl Strategy<Value = Vec<KeyRange>> {
    let end = prop_oneof![4 => (0u8..30).prop_map(Some), 1 => Just(None)];
    proptest::collection::vec((0u8..30, end), 0..5).prop_map(|ranges| {
        let whole = |(from, to): (u8, Option<u8>)| KeyRange { from: vec![from], to: to.map(|t| vec![t.max(from + 1)]) };
        union(ranges.into_iter().map(whole).collect())
    })
}

fn holds(ranges: &[KeyRange], b: u8) -> bool {
    ranges.iter().any(|r| r.contains(&[b]))
}

proptest! {
    #[test]
    fn o5_ranges_are_sets(a in some_ranges(), b in some_ranges()) {
        let (both, either) = (intersect(&a, &b), union([&a[..], &b].concat()));
        for n in 0..=255 {
            prop_assert_eq!(holds(&both, n), holds(&a, n) && holds(&b, n));
            prop_assert_eq!(holds(&either, n), holds(&a, n) || holds(&b, n));
        }
        for ranges in [&both, &either] {
            prop_assert!(ranges.windows(2).all(|w| w[0].to.as_ref().is_some_and(|to| *to <= w[1].from)), "{:?}", ranges);
        }
    }
}
