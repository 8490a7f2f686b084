use crate::quantity::{Span, human, read_expiry, read_limit, span};

#[test]
fn sizes_for_people_have_three_digits() {
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (10 << 20, "10.0 MiB"),
        (999 << 30, "999 GiB"),
        ((1 << 40) - 1, "1.00 TiB"),
        (u64::MAX, "16.0 EiB"),
    ] {
        assert_eq!(human(bytes), text, "{bytes}");
    }
    assert_eq!(span(250_000_000), "250.0 ms");
    assert_eq!(span(2 * 86_400_000_000_000), "2.0 d");
}

#[test]
fn ranges_are_read() {
    let read = |text| Span::parse(text).unwrap().of(100);
    assert_eq!(read("10..20"), (10, 20));
    assert_eq!(read("10.."), (10, 100));
    assert_eq!(read("..20"), (0, 20));
    assert_eq!(read("10+5"), (10, 15));
    assert_eq!(read("90..1KiB"), (90, 100));
    assert_eq!(read("200..300"), (100, 100));
    let within = |text, size| Span::parse(text).unwrap().within(size);
    assert_eq!(within("99..200", 100).unwrap(), (99, 100));
    assert_eq!(within("0..10", 0).unwrap(), (0, 0));
    for behind in ["100..", "100..200", "200+1"] {
        let e = within(behind, 100).unwrap_err();
        assert!(e.detail().contains("there are 100 bytes"), "{behind}: {e}");
    }
    for bad in ["", "10", "20..10", "a..b", "1+", "18446744073709551615+1"] {
        assert!(Span::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn o1_limits_and_expiries_are_read() {
    assert_eq!(read_limit("100TB").unwrap(), 100_000_000_000_000);
    assert_eq!(read_limit("none").unwrap(), u64::MAX);
    assert_eq!(read_expiry("never").unwrap(), i64::MAX);
    assert_eq!(read_expiry("2026-01-01").unwrap(), 1_767_225_600_000_000_000);
    let soon = read_expiry("2d").unwrap() - ioverbs::seam::now_ns();
    assert!((soon - 2 * 86_400_000_000_000).abs() < 60_000_000_000, "{soon}");
    assert!(read_expiry("tomorrow").unwrap_err().detail().contains("2d"));
}
