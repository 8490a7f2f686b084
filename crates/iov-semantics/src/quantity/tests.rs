use proptest::prelude::*;

use super::*;

#[test]
fn sizes_take_binary_and_decimal_units() {
    for (text, bytes) in
        [("0", 0), ("47008", 47008), ("7B", 7), ("4KiB", 4096), ("4K", 4096), ("4KB", 4000), ("2 MiB", 2 << 20)]
    {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    assert_eq!(
        (format_size(47008), format_size(4096), format_size(3 << 30)),
        ("47008".into(), "4KiB".into(), "3GiB".into())
    );
}

#[test]
fn times_need_a_unit() {
    for (text, ns) in
        [("5s", 5_000_000_000), ("250ms", 250_000_000), ("1d", 86_400_000_000_000), ("2min", 120_000_000_000)]
    {
        assert_eq!(parse_time(text), Ok(ns), "{text}");
        assert_eq!(format_time(ns), text);
    }
    assert!(parse_time("5").unwrap_err().contains("has no unit"));
}

#[test]
fn what_is_wrong_is_said() {
    for (text, says) in [
        ("", "is not a number"),
        ("-5", "is not a number"),
        ("1.5MiB", "is not whole"),
        ("5mib", "did you mean MiB?"),
        ("5 parsec", "allowed: B, KiB"),
        ("18446744073709551616", "larger than 64 bits"),
        ("16777216TiB", "64 bits can count"),
    ] {
        let error = parse_size(text).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(n in prop_oneof![any::<u64>(), (any::<u32>(), 0u32..40).prop_map(|(n, s)| u64::from(n) << s.min(31))]) {
        prop_assert_eq!(parse_size(&format_size(n)), Ok(n));
        prop_assert_eq!(parse_time(&format_time(n)), Ok(n));
    }
}
