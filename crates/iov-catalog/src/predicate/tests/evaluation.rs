//! What holds for which record.

use std::cmp::Ordering;

use iov_types::{Uuid, Value};

use super::{super::compare, Fake, SystemKey, holds, str};

#[test]
fn o5_missing_keys_fulfil_nothing_and_not_inverts() {
    let nothing = Fake::default();
    for condition in ["a = 1", "a != 1", "a < 1", "a >= 1", "a ~ '*'", "a !~ 'x'", "a ^= ''", "a in (1)", "a in [1, 2]"]
    {
        assert!(!holds(condition, &nothing), "{condition}");
        assert!(holds(&format!("not {condition}"), &nothing), "{condition}");
    }
    assert!(!holds("exists(a)", &nothing));
    assert!(!holds("iov.name != 'x'", &nothing), "a collection without a name");
    assert!(!holds("exists(iov.name)", &nothing));
    assert!(!holds("iov.state != 'open'", &nothing), "a group has no state");
}

#[test]
fn o5_types() {
    let text = Fake::default().with("a", str("5"));
    assert!(!holds("a = 5", &text) && !holds("a < 6", &text) && !holds("a in (5, true)", &text));
    assert!(holds("a != 5", &text), "another type is another value");
    assert!(holds("a in (5, '5')", &text));
    let integer = Fake::default().with("a", Value::I64(5));
    assert!(holds("a = 5.0 and a < 5.5 and a in [4.5, 5]", &integer));
    assert!(!holds("a ~ '5'", &integer) && holds("a !~ '5'", &integer));
    let time = Fake::default().with("a", Value::Time(0));
    assert!(holds("a = 1970-01-01 and a != 0 and not a = 0", &time));
    let flag = Fake::default().with("a", Value::Bool(false));
    assert!(holds("a = false and a < true", &flag) && !holds("a = 0", &flag));
    let bytes = Fake::default().with("a", Value::Bytes(vec![0, 255]));
    assert!(holds("a ^= x'00' and a > x'00fe' and a != 'x'", &bytes));
    assert!(!holds("a ^= ''", &bytes) && !holds("a ~ '*'", &bytes));
}

#[test]
fn o5_nan_equals_nothing() {
    let nan = Fake::default().with("a", Value::F64(f64::NAN));
    for condition in ["a = 1", "a < inf", "a > -inf", "a <= 1", "a >= 1", "a in (1, inf)", "a in [-inf, inf]"] {
        assert!(!holds(condition, &nan), "{condition}");
    }
    assert!(holds("a != 1 and exists(a)", &nan));
}

#[test]
fn o5_integers_and_floats_compare_exactly() {
    let big = 1_i64 << 53;
    for (i, f, order) in [
        (big + 1, big as f64, Ordering::Greater),
        (big, big as f64, Ordering::Equal),
        (-big - 1, -(big as f64), Ordering::Less),
        (i64::MAX, i64::MAX as f64, Ordering::Less), // the float is 2^63
        (i64::MIN, i64::MIN as f64, Ordering::Equal),
        (i64::MIN, -9.3e18, Ordering::Greater),
        (0, -0.0, Ordering::Equal),
        (0, -0.5, Ordering::Greater),
        (-1, -0.5, Ordering::Less),
        (2, 2.5, Ordering::Less),
        (-3, -2.5, Ordering::Less),
        (0, 5e-324, Ordering::Less),
        (i64::MAX, f64::INFINITY, Ordering::Less),
        (i64::MIN, f64::NEG_INFINITY, Ordering::Greater),
    ] {
        assert_eq!(compare(&Value::I64(i), &Value::F64(f)), Some(order), "{i} {f}");
        assert_eq!(compare(&Value::F64(f), &Value::I64(i)), Some(order.reverse()), "{f} {i}");
    }
    let record = Fake::default().with("a", Value::I64(big + 1));
    assert!(holds("a > 9007199254740992.0", &record) && !holds("a = 9007199254740992.0", &record));
}

#[test]
fn o5_any_of_several_names() {
    let (a, b) = (Uuid([1; 16]), Uuid::NIL);
    let record = Fake::default().named(a, "run_1").named(b, b"\xff\xfe");
    assert!(holds("iov.name = 'run_1'", &record) && holds("iov.name = x'fffe'", &record));
    assert!(holds("iov.name != 'run_1'", &record), "the other name differs");
    assert!(!holds("not iov.name = 'run_1'", &record));
    assert!(holds("iov.name ^= 'run' and iov.name ^= x'ff' and iov.name in ('x', 'run_1')", &record));
    assert!(holds("iov.name ~ '??' and iov.name ~ '[!a]*'", &record));
    assert!(holds("iov.group = uuid:01010101-0101-0101-0101-010101010101", &record));
    assert!(holds("iov.group = uuid:00000000-0000-0000-0000-000000000000", &record));
    assert!(!holds("iov.group = uuid:02020202-0202-0202-0202-020202020202", &record));
}

#[test]
fn o4_system_keys_hold() {
    let record = Fake::default()
        .system(SystemKey::Size, Value::I64(8192))
        .system(SystemKey::State, str("sealed"))
        .system(SystemKey::Mode, Value::I64(0o644))
        .system(SystemKey::Controls, str("consistency=session"))
        .system(SystemKey::Uuid, str("uuid:01010101-0101-0101-0101-010101010101"));
    assert!(holds("iov.size >= 8KiB and iov.size < 1e4 and iov.state = \"sealed\" and iov.mode = 0o644", &record));
    assert!(holds("iov.controls ~ '*session*' and iov.uuid ^= 'uuid:0101'", &record));
    assert!(holds("iov.uuid = uuid:01010101-0101-0101-0101-010101010101", &record));
    assert!(!holds("iov.state in ('open', 'staging')", &record));
}

#[test]
fn o5_globs() {
    for (pattern, text, expected) in [
        ("*", "", true),
        ("?", "", false),
        ("run_*", "run_", true),
        ("run_*", "xrun_1", false),
        ("*.nc", "a.nc.nc", true),
        ("a*b*c", "aXbYbZc", true),
        ("a*b*c", "aXbYbZ", false),
        ("[a-c]?", "bé", true),
        ("[!a-c]", "b", false),
        ("[!a-c]", "é", true),
        ("[a-]", "-", true),
        ("[-a]", "-", true),
        ("[\\\\]]", "]", true),
        ("\\\\*", "*", true),
        ("\\\\*", "x", false),
        ("[α-ω]*", "λx", true),
        ("**a**", "bab", true),
        ("a", "A", false),
    ] {
        let record = Fake::default().with("k", str(text));
        assert_eq!(holds(&format!("k ~ \"{pattern}\""), &record), expected, "{pattern} {text}");
        assert_eq!(holds(&format!("k !~ \"{pattern}\""), &record), !expected, "{pattern} {text}");
    }
}

#[test]
fn o5_many_stars_take_no_exponential_time() {
    let record = Fake::default().with("k", str(&"a".repeat(20_000)));
    assert!(!holds(&format!("k ~ '{}b'", "a*".repeat(200)), &record));
}
