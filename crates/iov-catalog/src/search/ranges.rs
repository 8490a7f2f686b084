//! From conditions to the ranges of keys that can hold a match: what makes a search cheap.

use iov_store::KeyRange;
use iov_types::{Uuid, Value};

use crate::{
    index,
    predicate::{Key, Node, Op, SystemKey, Test},
};

/// What keys are sorted by.
#[derive(Clone, Copy)]
pub(super) enum Space<'a> {
    /// Values of a user key, as index entries have them.
    Index(&'a str),
    /// Names in a group.
    Names,
    /// UUIDs.
    Uuids,
}

/// Ranges behind a common beginning of all keys: in order, apart from each other, none empty.
pub(super) type Ranges = Vec<KeyRange>;

/// Where every match of a tree must lie; `None` if it may lie anywhere. Recurses as deep as the text was nested.
pub(super) fn ranges(node: &Node, space: Space<'_>) -> Option<Ranges> {
    match node {
        Node::And(parts) => parts.iter().filter_map(|p| ranges(p, space)).reduce(|a, b| intersect(&a, &b)),
        Node::Or(parts) => {
            parts.iter().map(|p| ranges(p, space)).collect::<Option<Vec<_>>>().map(|r| union(r.concat()))
        }
        Node::Not(_) => None,
        Node::Condition(c) => space.owns(&c.key).then(|| space.test(&c.test)),
    }
}

impl Space<'_> {
    fn owns(self, key: &Key) -> bool {
        match (self, key) {
            (Space::Index(index), Key::User(key)) => index == key,
            (Space::Names, Key::System(SystemKey::Name)) | (Space::Uuids, Key::System(SystemKey::Uuid)) => true,
            _ => false,
        }
    }

    fn test(self, test: &Test) -> Ranges {
        match test {
            Test::Compare(op, v) => self.compare(*op, v),
            Test::In(values) => union(values.iter().flat_map(|v| self.compare(Op::Eq, v)).collect()),
            Test::Range { from, to, closed } => {
                intersect(&self.compare(Op::Ge, from), &self.compare(if *closed { Op::Le } else { Op::Lt }, to))
            }
            Test::Prefix(v) => self.beginning(v),
            Test::Glob { glob, negated: false } => self.beginning(&Value::Str(glob.literal_prefix())),
            Test::Glob { negated: true, .. } | Test::Exists => all(),
        }
    }

    fn compare(self, op: Op, value: &Value) -> Ranges {
        match (self, value) {
            (Space::Index(_), value) => of_values(op, value),
            (Space::Names, Value::Str(s)) => of_bytes(op, s.as_bytes()),
            (Space::Names, Value::Bytes(b)) => of_bytes(op, b),
            // The order of UUIDs is that of their text.
            (Space::Uuids, Value::Str(s)) => Uuid::parse(s).map_or_else(|_| all(), |uuid| of_bytes(op, &uuid.0)),
            _ => Vec::new(),
        }
    }

    fn beginning(self, value: &Value) -> Ranges {
        let beginning = match (self, value) {
            (Space::Index(_), value) => index::encode_beginning(value),
            (Space::Names, Value::Str(s)) => Some(s.as_bytes().to_vec()),
            (Space::Names, Value::Bytes(b)) => Some(b.clone()),
            _ => None,
        };
        beginning.map_or_else(all, |b| vec![KeyRange::prefix(&b)])
    }
}

/// Entries of values that compare so: all of one type.
fn of_values(op: Op, value: &Value) -> Ranges {
    let first = index::encode_value(value);
    let behind = KeyRange::prefix(&first).to;
    let tag = index::type_tag(value);
    let end = match value {
        Value::I64(_) | Value::F64(_) => index::encode_value(&Value::F64(f64::NAN)),
        _ => vec![tag + 1],
    };
    // Where an entry keeps only a part of the value, the same bytes may stand for a lesser and for a greater one.
    let cut = index::is_cut(&first);
    match op {
        Op::Eq => one(first, behind),
        Op::Ne => all(),
        Op::Lt => one(vec![tag], if cut { behind } else { Some(first) }),
        Op::Le => one(vec![tag], behind),
        Op::Gt if !cut => one(behind.unwrap_or_default(), Some(end)),
        Op::Gt | Op::Ge => one(first, Some(end)),
    }
}

/// Keys that compare so with these bytes.
fn of_bytes(op: Op, bytes: &[u8]) -> Ranges {
    let (first, behind) = (bytes.to_vec(), [bytes, &[0]].concat());
    match op {
        Op::Eq => one(first, Some(behind)),
        Op::Ne => all(),
        Op::Lt => one(Vec::new(), Some(first)),
        Op::Le => one(Vec::new(), Some(behind)),
        Op::Gt => one(behind, None),
        Op::Ge => one(first, None),
    }
}

pub(super) fn all() -> Ranges {
    one(Vec::new(), None)
}

fn one(from: Vec<u8>, to: Option<Vec<u8>>) -> Ranges {
    let range = KeyRange { from, to };
    if is_empty(&range) { Vec::new() } else { vec![range] }
}

fn is_empty(range: &KeyRange) -> bool {
    range.to.as_ref().is_some_and(|to| *to <= range.from)
}

/// The lesser of two ends; `None` is behind everything.
fn lesser<'a>(a: &'a Option<Vec<u8>>, b: &'a Option<Vec<u8>>) -> &'a Option<Vec<u8>> {
    match (a, b) {
        (None, _) => b,
        (_, None) => a,
        (Some(x), Some(y)) => {
            if x <= y {
                a
            } else {
                b
            }
        }
    }
}

pub(super) fn intersect(a: &[KeyRange], b: &[KeyRange]) -> Ranges {
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let to = lesser(&x.to, &y.to);
        let both = KeyRange { from: x.from.as_slice().max(&y.from).to_vec(), to: to.clone() };
        // The one that ends first meets nothing more.
        if *to == x.to {
            i += 1;
        } else {
            j += 1;
        }
        if !is_empty(&both) {
            out.push(both);
        }
    }
    out
}

/// Ranges in any order, overlapping or not, put together.
pub(super) fn union(mut ranges: Ranges) -> Ranges {
    ranges.sort_by(|x, y| x.from.cmp(&y.from));
    let mut out: Ranges = Vec::with_capacity(ranges.len());
    for next in ranges {
        match out.last_mut() {
            Some(last) if last.to.as_ref().is_none_or(|to| next.from <= *to) => {
                if lesser(&last.to, &next.to) == &last.to {
                    last.to = next.to;
                }
            }
            _ => out.push(next),
        }
    }
    out
}

/// The same ranges as whole keys that begin with `prefix`.
pub(super) fn behind(prefix: &[u8], ranges: &[KeyRange]) -> Ranges {
    let end = KeyRange::prefix(prefix).to;
    let whole = |r: &KeyRange| KeyRange {
        from: [prefix, &r.from].concat(),
        to: r.to.as_ref().map_or_else(|| end.clone(), |to| Some([prefix, to].concat())),
    };
    ranges.iter().map(whole).collect()
}

/// Whether each range is of one key only.
pub(super) fn are_points(ranges: &[KeyRange]) -> bool {
    ranges.iter().all(|r| {
        r.to.as_ref().is_some_and(|to| to.len() == r.from.len() + 1 && to.starts_with(&r.from) && to.ends_with(&[0]))
    })
}
