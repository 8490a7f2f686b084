//! Which of two values of a control promises more.
//!
//! | control | from weak to strong |
//! | --- | --- |
//! | consistency | `eventual(T)`, the smaller T the stronger; `session`; `commit`; `sequential` |
//! | concurrency | `shared`; `exclusive` |
//! | mutability | `overwrite`; `append` (no byte that is there changes); `immutable` (nothing changes) |
//! | atomicity | `none`; `unit(n)`, stronger than `unit(m)` where n is a multiple of m; `publication`, which no unit can split |
//! | persistence | `volatile`; `process`; `durable`; `replicated` |
//! | size limits | the narrower range is the stronger one; unknown is the widest |
//!
//! Mutability is ordered by what a reader may rely on: each step forbids writers something more. Persistence point,
//! temporality, spatiality and error policy have no order: they say when and how, not how much.

use std::cmp::Reverse;

use iov_types::{Atomicity, Consistency, Effective, Limits, Mutability, limits};

use crate::Control;

/// Whether `a` promises at least what `b` promises of one control; always true of those without an order.
pub fn at_least(control: Control, a: &Effective, b: &Effective) -> bool {
    match control {
        Control::Consistency => consistency(a.consistency, a.eventual_ns) >= consistency(b.consistency, b.eventual_ns),
        Control::Concurrency => a.concurrency >= b.concurrency,
        Control::Mutability => mutability(a.mutability) >= mutability(b.mutability),
        Control::Atomicity => match (a.atomicity, b.atomicity) {
            (Atomicity::Unit, Atomicity::Unit) => a.atomic_unit.max(1).is_multiple_of(b.atomic_unit.max(1)),
            (a, b) => atomicity(a) >= atomicity(b),
        },
        Control::Persistence => a.persistence >= b.persistence,
        Control::RequestSize => within(a.request_size, b.request_size),
        Control::CollectionSize => within(a.collection_size, b.collection_size),
        Control::Point | Control::Temporality | Control::Spatiality | Control::Error => true,
    }
}

/// Whether `a` promises at least what `b` promises, of every control.
pub fn all_at_least(a: &Effective, b: &Effective) -> bool {
    Control::ALL.iter().all(|c| at_least(*c, a, b))
}

/// A level and its T (0 = the default one) as something that can be compared, the stronger the greater.
pub(crate) fn consistency(level: Consistency, eventual_ns: u64) -> impl Ord {
    let t = match (level, eventual_ns) {
        (Consistency::Eventual, 0) => limits::EVENTUAL_NS,
        (Consistency::Eventual, t) => t,
        _ => 0,
    };
    (Reverse(level), Reverse(t))
}

pub(crate) fn mutability(m: Mutability) -> u8 {
    match m {
        Mutability::Overwrite => 0,
        Mutability::Append => 1,
        Mutability::Immutable => 2,
    }
}

pub(crate) fn atomicity(a: Atomicity) -> u8 {
    match a {
        Atomicity::None => 0,
        Atomicity::Unit => 1,
        Atomicity::Publication => 2,
    }
}

fn within(a: Limits, b: Limits) -> bool {
    a.min >= b.min && upper(a) <= upper(b)
}

/// The part of both ranges; `None` if they have none.
pub(crate) fn intersect(a: Limits, b: Limits) -> Option<Limits> {
    let min = a.min.max(b.min);
    let max = upper(a).min(upper(b));
    (min <= max).then_some(Limits { min, max: if max == u64::MAX { 0 } else { max } })
}

fn upper(l: Limits) -> u64 {
    if l.max == 0 { u64::MAX } else { l.max }
}

#[cfg(test)]
mod tests;
