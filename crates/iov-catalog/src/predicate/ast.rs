//! The tree behind a predicate, in one normal form: no `and` directly below an `and`, no `or` directly below an `or`.

use iov_types::Value;

use super::{Key, glob::Glob};

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Condition(Condition),
}

/// A test of one key.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Condition {
    pub(crate) key: Key,
    pub(crate) test: Test,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Test {
    Compare(Op, Value),
    Glob {
        glob: Glob,
        negated: bool,
    },
    /// Begins with this string or these bytes.
    Prefix(Value),
    In(Vec<Value>),
    /// From the first to the second value, which belongs to the range if `closed`.
    Range {
        from: Value,
        to: Value,
        closed: bool,
    },
    Exists,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Op {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Op::Eq => "=",
            Op::Ne => "!=",
            Op::Lt => "<",
            Op::Le => "<=",
            Op::Gt => ">",
            Op::Ge => ">=",
        }
    }
}

impl Node {
    /// All of these; `parts` is not empty.
    pub(crate) fn and(parts: Vec<Node>) -> Node {
        let flat = parts.into_iter().flat_map(|n| if let Node::And(inner) = n { inner } else { vec![n] });
        one_or(flat.collect(), Node::And)
    }

    /// Any of these; `parts` is not empty.
    pub(crate) fn or(parts: Vec<Node>) -> Node {
        let flat = parts.into_iter().flat_map(|n| if let Node::Or(inner) = n { inner } else { vec![n] });
        one_or(flat.collect(), Node::Or)
    }

    /// Calls `f` with each condition.
    pub(crate) fn each<'a>(&'a self, f: &mut dyn FnMut(&'a Condition)) {
        match self {
            Node::And(parts) | Node::Or(parts) => parts.iter().for_each(|p| p.each(f)),
            Node::Not(inner) => inner.each(f),
            Node::Condition(c) => f(c),
        }
    }
}

fn one_or(mut parts: Vec<Node>, many: impl Fn(Vec<Node>) -> Node) -> Node {
    if parts.len() == 1 { parts.remove(0) } else { many(parts) }
}
