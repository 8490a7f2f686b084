//! The meaning of a predicate written a second time, slowly and plainly, to compare with.

use iov_types::Value;

use super::super::{
    Facts, Key, SystemKey,
    ast::{Condition, Node, Op, Test},
};

/// As every test would have it: all operands of a key, then any of them.
pub(super) fn matches(node: &Node, facts: &dyn Facts) -> bool {
    match node {
        Node::And(parts) => parts.iter().fold(true, |so_far, p| so_far & matches(p, facts)),
        Node::Or(parts) => parts.iter().fold(false, |so_far, p| so_far | matches(p, facts)),
        Node::Not(inner) => !matches(inner, facts),
        Node::Condition(c) => operands(c, facts).iter().any(|v| test(&c.test, v)),
    }
}

fn operands(c: &Condition, facts: &dyn Facts) -> Vec<Value> {
    match &c.key {
        Key::User(k) => facts.user(k).cloned().into_iter().collect(),
        // Names are generated as UTF-8 here, so that they are strings.
        Key::System(SystemKey::Name) => facts.names().iter().map(|(_, n)| Value::Str(n.to_string())).collect(),
        Key::System(SystemKey::Group) => facts.names().iter().map(|(g, _)| Value::Str(g.to_string())).collect(),
        Key::System(k) => facts.system(*k).into_iter().collect(),
    }
}

fn test(test: &Test, v: &Value) -> bool {
    match test {
        Test::Compare(Op::Eq, w) => equal(v, w),
        Test::Compare(Op::Ne, w) => !equal(v, w),
        Test::Compare(Op::Lt, w) => less(v, w),
        Test::Compare(Op::Gt, w) => less(w, v),
        Test::Compare(Op::Le, w) => less(v, w) || equal(v, w),
        Test::Compare(Op::Ge, w) => less(w, v) || equal(v, w),
        Test::In(set) => set.iter().filter(|w| equal(v, w)).count() > 0,
        Test::Range { from, to, closed: true } => !less(v, from) && !less(to, v) && comparable(v, from),
        Test::Range { from, to, closed: false } => !less(v, from) && less(v, to),
        Test::Glob { glob, negated } => match v {
            Value::Str(s) => glob_matches(&chars(glob.text()), &chars(s)) ^ negated,
            _ => *negated,
        },
        Test::Prefix(p) => match (v, p) {
            (Value::Str(v), Value::Str(p)) => v.len() >= p.len() && v.as_bytes()[..p.len()] == *p.as_bytes(),
            (Value::Bytes(v), Value::Bytes(p)) => v.len() >= p.len() && v[..p.len()] == **p,
            _ => false,
        },
        Test::Exists => true,
    }
}

/// A number times 1024, exactly; the floats that the strategies make have at most ten binary digits after the point.
/// Infinities are beyond every integer.
fn scaled(v: &Value) -> Option<i128> {
    match v {
        Value::I64(i) => Some(i128::from(*i) * 1024),
        Value::F64(f) if f.is_nan() => None,
        Value::F64(f) if f.is_infinite() => Some(if *f > 0.0 { i128::MAX } else { i128::MIN }),
        Value::F64(f) => {
            let whole = f * 1024.0;
            assert!(whole.fract() == 0.0 && whole.abs() < 1e38, "{f} is not exact");
            Some(whole as i128)
        }
        _ => None,
    }
}

fn comparable(a: &Value, b: &Value) -> bool {
    scaled(a).is_some() && scaled(b).is_some() || a.value_type() == b.value_type() && !is_number(a)
}

fn is_number(v: &Value) -> bool {
    matches!(v, Value::I64(_) | Value::F64(_))
}

fn equal(a: &Value, b: &Value) -> bool {
    if is_number(a) { scaled(a).is_some() && scaled(a) == scaled(b) } else { a == b }
}

fn less(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => a < b,
        (Value::Bytes(a), Value::Bytes(b)) => a < b,
        (Value::Bool(a), Value::Bool(b)) => !*a & *b,
        (Value::Time(a), Value::Time(b)) => a < b,
        _ => matches!((scaled(a), scaled(b)), (Some(a), Some(b)) if a < b),
    }
}

fn chars(s: &str) -> Vec<char> {
    s.chars().collect()
}

/// By recursion over the text of the pattern.
pub(super) fn glob_matches(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|skip| glob_matches(rest, &text[skip..])),
        ['?', rest @ ..] => !text.is_empty() && glob_matches(rest, &text[1..]),
        ['\\', c, rest @ ..] => text.first() == Some(c) && glob_matches(rest, &text[1..]),
        ['[', rest @ ..] => {
            let (negated, mut rest) = if rest[0] == '!' { (true, &rest[1..]) } else { (false, rest) };
            let Some(c) = text.first() else { return false };
            let mut within = false;
            while rest[0] != ']' {
                let take = |at: &[char]| if at[0] == '\\' { (at[1], 2) } else { (at[0], 1) };
                let (from, used) = take(rest);
                rest = &rest[used..];
                let mut to = from;
                if rest[0] == '-' && rest[1] != ']' {
                    let (end, used) = take(&rest[1..]);
                    to = end;
                    rest = &rest[1 + used..];
                }
                within |= (from..=to).contains(c);
            }
            within != negated && glob_matches(&rest[1..], &text[1..])
        }
        [c, rest @ ..] => text.first() == Some(c) && glob_matches(rest, &text[1..]),
    }
}
