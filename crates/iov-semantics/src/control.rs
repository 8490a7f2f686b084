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

#[cfg(test)]
mod tests;
