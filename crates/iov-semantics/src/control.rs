//! A control as people name it: one word for its value and the parameters that belong to it.

use iov_types::{Controls, Effective};

use crate::text;

/// One control. `eventual(T)` is one value of one control, though it takes two fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Control {
    /// When others see a write, with T.
    Consistency,
    /// How many may hold it.
    Concurrency,
    /// How it may change.
    Mutability,
    /// Whole or not at all, with n.
    Atomicity,
    /// What it survives.
    Persistence,
    /// From when on.
    Point,
    /// How often it is used, with the deadline of the drain.
    Temporality,
    /// In which pattern, with stride and block.
    Spatiality,
    /// Bytes of one read or write.
    RequestSize,
    /// Bytes of the collection.
    CollectionSize,
    /// What a batch does after a failure.
    Error,
}

impl Control {
    /// Every control, in the order of the fields of [`Controls`].
    pub const ALL: &[Control] = &[
        Control::Consistency,
        Control::Concurrency,
        Control::Mutability,
        Control::Atomicity,
        Control::Persistence,
        Control::Point,
        Control::Temporality,
        Control::Spatiality,
        Control::RequestSize,
        Control::CollectionSize,
        Control::Error,
    ];

    /// Its key in text.
    pub const fn name(self) -> &'static str {
        match self {
            Control::Consistency => "consistency",
            Control::Concurrency => "concurrency",
            Control::Mutability => "mutability",
            Control::Atomicity => "atomicity",
            Control::Persistence => "persistence",
            Control::Point => "point",
            Control::Temporality => "temporality",
            Control::Spatiality => "spatiality",
            Control::RequestSize => "request_size",
            Control::CollectionSize => "collection_size",
            Control::Error => "error",
        }
    }

    /// Whether it, or one of its parameters, is set.
    pub fn is_set(self, c: &Controls) -> bool {
        match self {
            Control::Consistency => c.consistency.is_some() || c.eventual_ns != 0,
            Control::Concurrency => c.concurrency.is_some(),
            Control::Mutability => c.mutability.is_some(),
            Control::Atomicity => c.atomicity.is_some() || c.atomic_unit != 0,
            Control::Persistence => c.persistence.is_some(),
            Control::Point => c.point.is_some(),
            Control::Temporality => c.temporality.is_some() || c.drain_ns != 0,
            Control::Spatiality => c.spatiality.is_some() || c.stride != 0 || c.block != 0,
            Control::RequestSize => !c.request_size.is_unset(),
            Control::CollectionSize => !c.collection_size.is_unset(),
            Control::Error => c.on_error.is_some(),
        }
    }

    /// Copies it with its parameters.
    pub fn copy(self, from: &Controls, to: &mut Controls) {
        match self {
            Control::Consistency => (to.consistency, to.eventual_ns) = (from.consistency, from.eventual_ns),
            Control::Concurrency => to.concurrency = from.concurrency,
            Control::Mutability => to.mutability = from.mutability,
            Control::Atomicity => (to.atomicity, to.atomic_unit) = (from.atomicity, from.atomic_unit),
            Control::Persistence => to.persistence = from.persistence,
            Control::Point => to.point = from.point,
            Control::Temporality => (to.temporality, to.drain_ns) = (from.temporality, from.drain_ns),
            Control::Spatiality => {
                (to.spatiality, to.stride, to.block) = (from.spatiality, from.stride, from.block);
            }
            Control::RequestSize => to.request_size = from.request_size,
            Control::CollectionSize => to.collection_size = from.collection_size,
            Control::Error => to.on_error = from.on_error,
        }
    }

    /// Copies it with its parameters, between controls that hold.
    pub fn put(self, from: &Effective, to: &mut Effective) {
        match self {
            Control::Consistency => (to.consistency, to.eventual_ns) = (from.consistency, from.eventual_ns),
            Control::Concurrency => to.concurrency = from.concurrency,
            Control::Mutability => to.mutability = from.mutability,
            Control::Atomicity => (to.atomicity, to.atomic_unit) = (from.atomicity, from.atomic_unit),
            Control::Persistence => to.persistence = from.persistence,
            Control::Point => to.point = from.point,
            Control::Temporality => (to.temporality, to.drain_ns) = (from.temporality, from.drain_ns),
            Control::Spatiality => {
                (to.spatiality, to.stride, to.block) = (from.spatiality, from.stride, from.block);
            }
            Control::RequestSize => to.request_size = from.request_size,
            Control::CollectionSize => to.collection_size = from.collection_size,
            Control::Error => to.on_error = from.on_error,
        }
    }

    /// This control of `effective` alone, as a request.
    pub fn only(self, effective: &Effective) -> Controls {
        let mut out = Controls::default();
        self.copy(&Controls::from(effective), &mut out);
        out
    }

    /// Its value as text, such as `eventual(5s)`; a size of which nothing is known is `unknown`.
    pub fn value(self, effective: &Effective) -> String {
        let text = text::format(&self.only(effective));
        text.split_once('=').map_or_else(|| "unknown".into(), |(_, value)| value.into())
    }

    /// Whether both have the same value of it.
    pub fn same(self, a: &Effective, b: &Effective) -> bool {
        self.only(a) == self.only(b)
    }
}

/// Sets in `to` what is unset there and set in `from`. A size limit counts as one value, so that a smallest and a largest
/// of different origin never contradict each other.
pub fn fill(to: &mut Controls, from: &Controls) {
    let number = |to: &mut u64, from: u64| {
        if *to == 0 {
            *to = from;
        }
    };
    to.consistency = to.consistency.or(from.consistency);
    number(&mut to.eventual_ns, from.eventual_ns);
    to.concurrency = to.concurrency.or(from.concurrency);
    to.mutability = to.mutability.or(from.mutability);
    to.atomicity = to.atomicity.or(from.atomicity);
    number(&mut to.atomic_unit, from.atomic_unit);
    to.persistence = to.persistence.or(from.persistence);
    to.point = to.point.or(from.point);
    to.temporality = to.temporality.or(from.temporality);
    number(&mut to.drain_ns, from.drain_ns);
    to.spatiality = to.spatiality.or(from.spatiality);
    number(&mut to.stride, from.stride);
    number(&mut to.block, from.block);
    for (to, from) in [(&mut to.request_size, from.request_size), (&mut to.collection_size, from.collection_size)] {
        if to.is_unset() {
            *to = from;
        }
    }
    to.on_error = to.on_error.or(from.on_error);
}

#[cfg(test)]
mod tests;
