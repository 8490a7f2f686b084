//! Every mistake has its place and says what was expected.

use iov_types::{Clause, Value, limits};

use super::{super::Predicate, error, str};

#[test]
fn o5_error_has_column_and_caret() {
    let e = Predicate::parse("temperature > ", &[]).unwrap_err();
    assert_eq!(e.clause(), Some(Clause::O5));
    assert_eq!(e.detail(), "column 15: expected a value after '>', found the end\n  temperature > \n                ^");
    let e = Predicate::parse("é = 1\tand 3 > a", &[]).unwrap_err();
    assert_eq!(
        e.detail(),
        "column 11: expected a key: it comes first, then the value, found 3\n  é = 1 and 3 > a\n            ^"
    );
}

#[test]
fn long_texts_are_cut_around_the_place() {
    let text = format!("{} and b = and {}", "a = 1 and ".repeat(30).trim_end_matches(" and "), "c = 2 and ".repeat(30));
    let detail = Predicate::parse(&text, &[]).unwrap_err().detail().to_owned();
    let lines: Vec<_> = detail.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1].trim_start().starts_with('…') && lines[1].ends_with('…'), "{detail}");
    let caret = lines[2].chars().position(|c| c == '^').unwrap();
    assert_eq!(lines[1].chars().skip(caret).take(3).collect::<String>(), "and", "{detail}");
}

#[test]
fn o5_mistakes_and_their_places() {
    for (text, expected) in [
        ("", "column 1: expected a condition, found the end: to match everything, give no predicate"),
        ("   ", "column 1: expected a condition, found the end: to match everything, give no predicate"),
        ("a", "column 2: expected a comparison (= != < <= > >= ~ !~ ^= in) after the key a, found the end"),
        ("a = nacelle", "column 5: expected a value after '=' (a string needs quotes), found the word 'nacelle'"),
        ("a > b", "column 5: expected a value after '>' (a string needs quotes), found the word 'b'"),
        ("a = 1 b = 2", "column 7: expected 'and', 'or' or the end, found the word 'b'"),
        ("a = 1)", "column 6: expected 'and', 'or' or the end, found ')'"),
        ("(a = 1", "column 7: expected 'and', 'or' or ')', found the end"),
        ("and = 1", "column 1: expected a key (one of that name needs back-quotes), found the word 'and'"),
        ("a = 1 and", "column 10: expected a key, 'exists', 'not' or '(', found the end"),
        (
            "exists a",
            "column 8: expected '(' after 'exists' (a key of that name needs back-quotes), found the word 'a'",
        ),
        ("exists(a", "column 9: expected ')' after the key, found the end"),
        ("a in 1", "column 6: expected '(' and a set, or '[' and a range, after 'in', found 1"),
        ("a in ()", "column 7: expected a value after '(', found ')'"),
        ("a in (1 2)", "column 9: expected ',' or ')', found 2"),
        ("a in [1]", "column 8: expected ',' and the end of the range, found ']'"),
        ("a in [1, 2", "column 11: expected ']' (the end included) or ')' (the end excluded), found the end"),
        ("a in [1, 'b']", "column 10: expected a value of the same type as the range's first"),
        ("a && b", "column 3: unexpected character '&': write 'and'"),
        ("a = 'x", "column 5: expected a closing ' for the ' here, found the end"),
        (
            "a = \"\\q\"",
            "column 6: unknown escape '\\q': it is one of \\\\ \\\" \\' \\` \\n \\t \\r \\u{…}, and bytes are x\"00ff\"",
        ),
        ("a = '\\u{110000}'", "column 6: expected a character as in \\u{e9}"),
        ("a = x'0g'", "column 5: expected pairs of hexadecimal digits in quotes, as in x\"00ff\""),
        ("a = x'000'", "column 5: expected pairs of hexadecimal digits in quotes, as in x\"00ff\""),
        ("a = 1abc", "column 6: expected a space after 1, found 'abc'"),
        ("a = 5KB", "column 6: expected a space after 5, found 'KB'"),
        ("a = 1.5GiB", "column 5: a size is a whole number: write 1536MiB for 1.5GiB"),
        ("a = 1.", "column 5: expected a digit after the decimal point, as in 1.0"),
        ("a = 1e999", "column 5: 1e999 is beyond what a float can hold: infinity is 'inf'"),
        ("a = 0x", "column 5: expected hexadecimal digits after '0x'"),
        ("a = -", "column 5: expected a number after '-'"),
        ("a = nan", "column 5: NaN equals nothing: no comparison with it can hold"),
        ("a = 2026-13-01", "column 5: a timestamp needs a month from 01 to 12"),
        ("a = 2023-02-29", "column 5: a timestamp needs a day that the month has"),
        ("a = 2026-01-01T00:00:00", "column 5: a timestamp needs 'Z' or an offset such as '+02:00'"),
        ("a = 2026-01-01T00:00:00.1234567890Z", "column 5: a timestamp needs 1 to 9 digits after the point"),
        (
            "a = 9999-01-01",
            "column 5: a timestamp is outside of what nanoseconds since 1970 can tell (1677-09-21 to 2262-04-11)",
        ),
        ("a ~ 5", "column 5: expected a pattern in quotes after '~', as in \"run_*\""),
        ("a ~ '[z-a]'", "column 5: the range 'z-a' in the pattern is the wrong way round"),
        ("a ~ '[]'", "column 5: the pattern has an empty class '[]'"),
        ("a ~ '[^a]'", "column 5: the pattern negates a class by '^': write '[!…]'"),
        ("a ~ 'x\\\\'", "column 5: the pattern ends with a lone backslash"),
        ("a ^= 5", "column 6: expected a string or bytes after '^='"),
        ("`` = 1", "column 1: the metadata key \"\" must have 1 to 255 bytes"),
        ("iov.name > 5", "column 12: iov.name is a name: compare it with a string or with bytes such as x\"00ff\""),
        ("iov.size > '5'", "column 12: iov.size is a number: write it without quotes, as in 4096 or 4KiB"),
        (
            "iov.size ~ '5'",
            "column 12: '~' needs text, iov.size is a number: write it without quotes, as in 4096 or 4KiB",
        ),
        (
            "iov.mtime > '2026'",
            "column 13: iov.mtime is a timestamp: write it without quotes, as in 2026-01-31T12:00:00Z",
        ),
        ("iov.uuid = 'x'", "column 12: iov.uuid is a UUID: write uuid:xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"),
        ("iov.state = 'opne'", "column 13: iov.state is one of \"staging\", \"open\", \"sealed\""),
    ] {
        assert_eq!(error(text, &[]), expected, "{text}");
    }
}

#[test]
fn errors_that_say_more() {
    assert!(error("a < now", &[]).contains("a search has no clock"), "{}", error("a < now", &[]));
    assert!(error("iov.foo = 1", &[]).starts_with("column 1: there is no system key \"iov.foo\": they are iov.name,"));
    assert!(
        error("a ~ '\\*'", &[])
            .starts_with("column 6: unknown escape '\\*': for a literal '*' in a pattern write '\\\\*'")
    );
    assert!(
        error("a = 99999999999999999999", &[]).starts_with("column 5: 99999999999999999999 is beyond what an integer")
    );
    assert!(error("a = 16EiB", &[]).starts_with("column 5: 16EiB is beyond what an integer"));
    assert!(error("a ~ '[ab'", &[]).starts_with("column 5: the pattern has a '[' without its ']'"));
    assert!(error("a = uuid:12", &[]).starts_with("column 5: \"uuid:12\" is not a UUID"));
    assert!(error(&format!("a ~ '{}'", "x".repeat(1025)), &[]).starts_with("column 5: the pattern has 1025 bytes"));
}

#[test]
fn o5_parameters_must_match() {
    assert_eq!(error("a = ?", &[]), "column 5: expected a value for parameter 1, 0 are given");
    assert_eq!(error("a = ? and b = ?", &[str("x")]), "column 15: expected a value for parameter 2, 1 are given");
    assert_eq!(error("a = ?", &[str("x"), str("y")]), "column 6: 2 parameters are given, but there are 1 '?'");
    assert_eq!(error("a = ?", &[Value::F64(f64::NAN)]), "column 5: parameter 1 is NaN, which equals nothing");
    assert_eq!(
        error("iov.mtime > ?", &[Value::I64(0)]),
        "column 13: iov.mtime is a timestamp: write it without quotes, as in 2026-01-31T12:00:00Z"
    );
    assert!(error("? = 1", &[str("x")]).starts_with("column 1: expected a key"));
}

#[test]
fn o5_bounds() {
    let deep = format!("{}a = 1{}", "(".repeat(65), ")".repeat(65));
    assert_eq!(error(&deep, &[]), "column 66: parentheses and 'not' are nested more than 64 deep");
    assert_eq!(error(&"not ".repeat(10_000), &[]), "column 261: parentheses and 'not' are nested more than 64 deep");
    let long = format!("a = '{}'", "x".repeat(limits::PREDICATE_BYTES));
    assert!(error(&long, &[]).starts_with("the predicate has 65542 bytes, the limit is 65536"));
}
