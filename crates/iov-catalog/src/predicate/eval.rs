//! Whether a record fulfils a predicate.

use std::cmp::Ordering;

use iov_types::Value;

use super::{
    Facts, Key, SystemKey,
    ast::{Condition, Node, Op, Test},
    compare,
};

/// What a test looks at: a typed value, or a name, which is bytes whatever they mean.
#[derive(Clone, Copy)]
enum Operand<'a> {
    Value(&'a Value),
    Name(&'a [u8]),
}

impl Node {
    /// Recurses as deep as the text was nested, which the parser bounds.
    pub(crate) fn matches(&self, facts: &dyn Facts) -> bool {
        match self {
            Node::And(parts) => parts.iter().all(|p| p.matches(facts)),
            Node::Or(parts) => parts.iter().any(|p| p.matches(facts)),
            Node::Not(inner) => !inner.matches(facts),
            Node::Condition(c) => c.matches(facts),
        }
    }
}

impl Condition {
    fn matches(&self, facts: &dyn Facts) -> bool {
        match &self.key {
            Key::User(key) => facts.user(key).is_some_and(|v| self.test.holds(Operand::Value(v))),
            Key::System(SystemKey::Name) => {
                facts.names().iter().any(|(_, name)| self.test.holds(Operand::Name(name.as_bytes())))
            }
            Key::System(SystemKey::Group) => {
                facts.names().iter().any(|(group, _)| self.test.holds(Operand::Value(&Value::Str(group.to_string()))))
            }
            Key::System(key) => facts.system(*key).is_some_and(|v| self.test.holds(Operand::Value(&v))),
        }
    }
}

impl Test {
    /// Whether it holds for a value that is there.
    fn holds(&self, operand: Operand<'_>) -> bool {
        let order = |literal: &Value| order(operand, literal);
        match self {
            Test::Compare(Op::Eq, v) => order(v) == Some(Ordering::Equal),
            Test::Compare(Op::Ne, v) => order(v) != Some(Ordering::Equal),
            Test::Compare(Op::Lt, v) => order(v) == Some(Ordering::Less),
            Test::Compare(Op::Le, v) => order(v).is_some_and(Ordering::is_le),
            Test::Compare(Op::Gt, v) => order(v) == Some(Ordering::Greater),
            Test::Compare(Op::Ge, v) => order(v).is_some_and(Ordering::is_ge),
            Test::In(values) => values.iter().any(|v| order(v) == Some(Ordering::Equal)),
            Test::Range { from, to, closed } => {
                order(from).is_some_and(Ordering::is_ge)
                    && order(to).is_some_and(|o| if *closed { o.is_le() } else { o.is_lt() })
            }
            Test::Glob { glob, negated } => text(operand).is_some_and(|t| glob.matches(t)) != *negated,
            Test::Prefix(prefix) => match (operand, prefix) {
                (Operand::Name(name), Value::Str(p)) => name.starts_with(p.as_bytes()),
                (Operand::Name(name), Value::Bytes(p)) => name.starts_with(p),
                (Operand::Value(Value::Str(s)), Value::Str(p)) => s.starts_with(p.as_str()),
                (Operand::Value(Value::Bytes(b)), Value::Bytes(p)) => b.starts_with(p),
                _ => false,
            },
            Test::Exists => true,
        }
    }
}

/// The order of what is there against a literal; `None` if they cannot be compared.
fn order(operand: Operand<'_>, literal: &Value) -> Option<Ordering> {
    match (operand, literal) {
        (Operand::Value(v), literal) => compare(v, literal),
        (Operand::Name(name), Value::Str(s)) => Some(name.cmp(s.as_bytes())),
        (Operand::Name(name), Value::Bytes(b)) => Some(name.cmp(b)),
        (Operand::Name(_), _) => None,
    }
}

/// What a pattern can match.
fn text(operand: Operand<'_>) -> Option<&[u8]> {
    match operand {
        Operand::Name(name) => Some(name),
        Operand::Value(Value::Str(s)) => Some(s.as_bytes()),
        Operand::Value(_) => None,
    }
}
