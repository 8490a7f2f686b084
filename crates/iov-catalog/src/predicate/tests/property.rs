//! Properties over generated predicates, records and texts.

use iov_types::{Name, Uuid, Value};
use proptest::prelude::*;

use super::{
    super::{
        Key, Predicate, SystemKey,
        ast::{Condition, Node, Op, Test},
        glob::Glob,
        time,
    },
    Fake, naive,
};

fn number() -> impl Strategy<Value = Value> {
    let near = prop_oneof![Just(0i64), Just(1 << 53), Just(-(1 << 53)), Just(i64::MAX), Just(i64::MIN)];
    prop_oneof![
        (-3i64..3).prop_map(Value::I64),
        (near.clone(), -2i64..3).prop_map(|(n, d)| Value::I64(n.saturating_add(d))),
        (-6i64..6).prop_map(|n| Value::F64(n as f64 / 2.0)),
        (near, -2i64..3).prop_map(|(n, d)| Value::F64(n.saturating_add(d) as f64)),
        Just(Value::F64(f64::INFINITY)),
        Just(Value::F64(f64::NEG_INFINITY)),
        Just(Value::F64(-0.0)),
    ]
}

fn literal() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => number(),
        3 => "[ab*\\\\\"'`\n\u{e9}\u{0}]{0,3}".prop_map(Value::Str),
        1 => proptest::collection::vec(any::<u8>(), 0..3).prop_map(Value::Bytes),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => any::<i64>().prop_map(Value::Time),
        1 => (-2i64..3).prop_map(Value::Time),
    ]
}

pub(super) fn stored() -> impl Strategy<Value = Value> {
    prop_oneof![12 => literal(), 1 => Just(Value::F64(f64::NAN))]
}

fn pattern() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("*"),
        Just("?"),
        Just("a"),
        Just("b"),
        Just("é"),
        Just("\\*"),
        Just("[a-b]"),
        Just("[!a]"),
        Just("[a\\]-]"),
        Just("[\\a-\\é]")
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|p| p.concat())
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        8 => "[abc]".prop_map(Key::User),
        1 => prop_oneof!["[a-c`\\\\ .]{1,4}", Just("and".to_owned()), Just("iov".to_owned())].prop_map(Key::User),
    ]
}

fn test() -> impl Strategy<Value = Test> {
    let op = prop_oneof![Just(Op::Eq), Just(Op::Ne), Just(Op::Lt), Just(Op::Le), Just(Op::Gt), Just(Op::Ge)];
    prop_oneof![
        6 => (op, literal()).prop_map(|(op, v)| Test::Compare(op, v)),
        2 => (pattern(), any::<bool>()).prop_map(|(p, negated)| Test::Glob { glob: Glob::new(&p).unwrap(), negated }),
        1 => "[ab]{0,2}".prop_map(|s| Test::Prefix(Value::Str(s))),
        1 => proptest::collection::vec(any::<u8>(), 0..2).prop_map(|b| Test::Prefix(Value::Bytes(b))),
        1 => proptest::collection::vec(literal(), 1..4).prop_map(Test::In),
        2 => (number(), number(), any::<bool>()).prop_map(|(from, to, closed)| Test::Range { from, to, closed }),
        1 => Just(Test::Exists),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let name = prop_oneof![
        "[ab]{1,2}".prop_map(|s| Test::Compare(Op::Eq, Value::Str(s))),
        "[ab]{1,2}".prop_map(|s| Test::Compare(Op::Ne, Value::Str(s))),
        pattern().prop_map(|p| Test::Glob { glob: Glob::new(&p).unwrap(), negated: false }),
        Just(Test::Exists),
    ];
    let size = (number(), any::<bool>()).prop_map(|(v, gt)| Test::Compare(if gt { Op::Gt } else { Op::Le }, v));
    prop_oneof![
        8 => (key(), test()).prop_map(|(key, test)| Condition { key, test }),
        1 => name.prop_map(|test| Condition { key: Key::System(SystemKey::Name), test }),
        1 => size.prop_map(|test| Condition { key: Key::System(SystemKey::Size), test }),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    condition().prop_map(Node::Condition).prop_recursive(5, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Node::and),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Node::or),
            inner.prop_map(|n| Node::Not(Box::new(n))),
        ]
    })
}

fn record() -> impl Strategy<Value = Fake> {
    let names = proptest::collection::vec(("[ab]{1,3}", 0u8..2), 0..3);
    let pairs = proptest::collection::btree_map("[abc]", stored(), 0..4);
    (pairs, names, proptest::option::of(-3i64..3)).prop_map(|(user, names, size)| Fake {
        user,
        system: size.map(|n| (SystemKey::Size, Value::I64(n))).into_iter().collect(),
        names: names.into_iter().map(|(n, g)| (Uuid([g; 16]), Name::new(n).unwrap())).collect(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn o5_text_of_a_predicate_parses_back_to_it(root in node()) {
        let predicate = Predicate { root };
        let text = predicate.to_string();
        let again = Predicate::parse(&text, &[]).map_err(|e| TestCaseError::fail(format!("{text}: {e}")))?;
        prop_assert_eq!(&again, &predicate, "{}", text);
    }

    #[test]
    fn o5_evaluation_is_what_a_plain_one_says(root in node(), record in record()) {
        let expected = naive::matches(&root, &record);
        prop_assert_eq!(Predicate { root: root.clone() }.matches(&record), expected, "{} on {:?}", root, record);
    }

    #[test]
    fn o5_globs_match_what_plain_recursion_says(p in pattern(), text in "[ab*é\\]-]{0,6}") {
        let glob = Glob::new(&p).unwrap();
        let chars = |s: &str| s.chars().collect::<Vec<_>>();
        prop_assert_eq!(glob.matches(text.as_bytes()), naive::glob_matches(&chars(&p), &chars(&text)));
        if glob.matches(text.as_bytes()) {
            prop_assert!(text.starts_with(&glob.literal_prefix()));
        }
    }

    #[test]
    fn globs_take_any_pattern_and_any_bytes(p in any::<String>(), bytes in any::<Vec<u8>>()) {
        if let Ok(glob) = Glob::new(&p) {
            glob.matches(&bytes);
        }
    }

    #[test]
    fn o5_any_text_is_a_predicate_or_an_error_with_a_place(text in any::<String>()) {
        if let Err(e) = Predicate::parse(&text, &[]) {
            prop_assert!(e.detail().starts_with("column "), "{}", e);
        }
    }

    #[test]
    fn o5_any_soup_of_tokens_is_a_predicate_or_an_error(
        soup in proptest::collection::vec(prop_oneof![
            Just("a"), Just("and"), Just("or"), Just("not"), Just("("), Just(")"), Just("["), Just("]"), Just("in"),
            Just("exists"), Just("="), Just("!~"), Just("<"), Just("1"), Just("-"), Just("'x"), Just("'x'"), Just(","),
            Just("?"), Just("2026-01-01"), Just("T0"), Just("iov.size"), Just("iov.name"), Just("x'0"), Just("uuid:"),
            Just("`k`"), Just("1e"), Just("0x"), Just("KiB"), Just("é"), Just("\\"), Just("^="), Just("inf"), Just(".")
        ], 0..12),
        spaces in any::<bool>(),
        params in proptest::collection::vec(stored(), 0..2),
    ) {
        let text = soup.join(if spaces { " " } else { "" });
        if let Ok(p) = Predicate::parse(&text, &params) {
            prop_assert_eq!(Predicate::parse(&p.to_string(), &[]).unwrap(), p);
        }
    }

    #[test]
    fn timestamps_are_written_as_they_are_read(ns in any::<i64>()) {
        struct Text(i64);
        impl std::fmt::Display for Text {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                time::format(f, self.0)
            }
        }
        let text = Text(ns).to_string();
        prop_assert_eq!(time::parse(&text).unwrap(), (ns, text.len()));
    }
}
