//! What the parser takes, and as what: shown by the text that the tree prints.

use iov_types::{Value, limits};

use super::{super::Predicate, parse, str};

fn same(texts: &[(&str, &str)]) {
    for (text, canonical) in texts {
        assert_eq!(parse(text).to_string(), *canonical, "{text}");
        assert_eq!(parse(canonical), parse(text), "{text}");
    }
}

#[test]
fn operators() {
    same(&[
        ("a=1", "a = 1"),
        ("a == 1", "a = 1"),
        ("a<>1", "a != 1"),
        ("a !=1", "a != 1"),
        ("a<1", "a < 1"),
        ("a <= 1", "a <= 1"),
        ("a>1", "a > 1"),
        ("a >=-1", "a >= -1"),
        ("a ~ '*'", "a ~ \"*\""),
        ("a!~'*'", "a !~ \"*\""),
        ("a ^= 'x'", "a ^= \"x\""),
        ("a in (1,2 , 3)", "a in (1, 2, 3)"),
        ("a in [1,2]", "a in [1, 2]"),
        ("a in [1,2.5)", "a in [1, 2.5)"),
        ("exists ( a )", "exists(a)"),
        ("EXISTS(a) AND NOT b = TRUE OR c IN (1)", "exists(a) and not b = true or c in (1)"),
    ]);
}

#[test]
fn precedence_and_normal_form() {
    same(&[
        ("a=1 or b=2 and c=3", "a = 1 or b = 2 and c = 3"),
        ("(a=1 or b=2) and c=3", "(a = 1 or b = 2) and c = 3"),
        ("a=1 and (b=2 and (c=3 and d=4))", "a = 1 and b = 2 and c = 3 and d = 4"),
        ("not a=1 and b=2", "not a = 1 and b = 2"),
        ("not (a=1 and b=2)", "not (a = 1 and b = 2)"),
        ("not not ((a=1))", "not not a = 1"),
    ]);
}

#[test]
fn keys() {
    same(&[
        ("a.b-c/d_9 = 1", "a.b-c/d_9 = 1"),
        ("température = 1", "température = 1"),
        ("`plain` = 1", "plain = 1"),
        ("`two words` = 1", "`two words` = 1"),
        ("`a\\`b\\\\` = 1", "`a\\`b\\\\` = 1"),
        ("`and` = 1 and `IN` = 2 and In = 3", "`and` = 1 and `IN` = 2 and In = 3"),
        ("`9a` = 1", "`9a` = 1"),
        ("`iov.size` = 1", "iov.size = 1"),
        ("uuid = 1", "uuid = 1"),
        ("x = 1", "x = 1"),
        ("t2024-01 = 1", "t2024-01 = 1"),
    ]);
}

#[test]
fn numbers() {
    same(&[
        ("a = 0x1F", "a = 31"),
        ("a = -0x10", "a = -16"),
        ("a = 0o644", "a = 420"),
        ("a = +5", "a = 5"),
        ("a = 4KiB", "a = 4096"),
        ("a = 4 MiB", "a = 4194304"),
        ("a = 2kB and b = 1EiB", "a = 2000 and b = 1152921504606846976"),
        ("a = 0x10KiB", "a = 16384"),
        ("a = -9223372036854775808", "a = -9223372036854775808"),
        ("a = 9223372036854775807", "a = 9223372036854775807"),
        ("a = 1e-3", "a = 0.001"),
        ("a = 1E3", "a = 1000.0"),
        ("a = -0.0", "a = -0.0"),
        ("a = 1e300", "a = 1e300"),
        ("a = inf and b = -inf and c=+inf", "a = inf and b = -inf and c = inf"),
    ]);
}

#[test]
fn strings_and_bytes() {
    same(&[
        ("a = 'it\\'s \"so\"'", "a = \"it's \\\"so\\\"\""),
        ("a = \"\\u{e9}\\n\\t\\r\\\\\"", "a = \"é\\n\\t\\r\\\\\""),
        ("a = ''", "a = \"\""),
        ("a = x'00fF'", "a = x\"00ff\""),
        ("a = x\"\"", "a = x\"\""),
    ]);
}

#[test]
fn timestamps() {
    same(&[
        ("a = 2026-01-01", "a = 2026-01-01T00:00:00Z"),
        ("a = 2026-01-01T00:00:00.5Z", "a = 2026-01-01T00:00:00.5Z"),
        ("a = 2026-01-01t02:30:00+02:30", "a = 2026-01-01T00:00:00Z"),
        ("a = 2025-12-31T23:00:00-01:00", "a = 2026-01-01T00:00:00Z"),
        ("a = 2024-02-29", "a = 2024-02-29T00:00:00Z"),
        ("a = 1969-12-31T23:59:59.999999999Z", "a = 1969-12-31T23:59:59.999999999Z"),
        ("a = 1677-09-21T00:12:43.145224192Z", "a = 1677-09-21T00:12:43.145224192Z"),
        ("a = 2262-04-11T23:47:16.854775807Z", "a = 2262-04-11T23:47:16.854775807Z"),
    ]);
    let ns = |text: &str| parse(text).root().clone();
    let expect = |n| Predicate::parse("a = ?", &[Value::Time(n)]).unwrap().root().clone();
    assert_eq!(ns("a = 1970-01-01"), expect(0));
    assert_eq!(ns("a = 2000-03-01"), expect(951_868_800_000_000_000));
    assert_eq!(ns("a = 1677-09-21T00:12:43.145224192Z"), expect(i64::MIN));
}

#[test]
fn uuids_are_text_in_one_form() {
    same(&[
        (
            "iov.uuid = uuid:0190ABCD-0000-7000-8000-000000000001",
            "iov.uuid = \"uuid:0190abcd-0000-7000-8000-000000000001\"",
        ),
        (
            "iov.group = \"uuid:0190ABCD-0000-7000-8000-000000000001\"",
            "iov.group = \"uuid:0190abcd-0000-7000-8000-000000000001\"",
        ),
    ]);
}

#[test]
fn parameters_are_taken_in_order() {
    let params = [Value::Bytes(vec![1]), str("run_*"), Value::I64(1), Value::F64(2.0), str("p")];
    let p = Predicate::parse("a = ? and iov.name ~ ? and b in [?, ?) and c ^= ?", &params).unwrap();
    assert_eq!(p.to_string(), "a = x\"01\" and iov.name ~ \"run_*\" and b in [1, 2.0) and c ^= \"p\"");
}

#[test]
fn o5_examples_of_the_guide_parse() {
    let guide = include_str!("../../../../../docs/guide/search.md");
    let mut examples = 0;
    for block in guide.split("```predicate\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            parse(line);
            examples += 1;
        }
    }
    assert!(examples >= 4, "{examples}");
    let mistake = Predicate::parse("experiment  = nacelle and temperature > 300", &[]).unwrap_err();
    assert!(guide.contains(mistake.detail()), "{mistake}");
}

#[test]
fn bounds_are_exact() {
    let deepest = format!("{}a = 1{}", "(".repeat(64), ")".repeat(64));
    parse(&deepest);
    parse(&format!("{}a = 1", "not ".repeat(64)));
    let longest = format!("a = '{}'", "x".repeat(limits::PREDICATE_BYTES - 6));
    assert_eq!(longest.len(), limits::PREDICATE_BYTES);
    parse(&longest);
    let wide = vec!["a=1"; 5000].join(" or ");
    assert!(parse(&wide).to_string().len() > 5000);
}
