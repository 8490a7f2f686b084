//! Generators for property tests: all controls, all capabilities.

use iov_types::{
    Atomicity, Capability, Concurrency, Consistency, Controls, Effective, Limits, Mutability, OnError, Persistence,
    Point, Spatiality, Temporality,
};
use proptest::{option, prelude::*, sample::select};

/// Sizes and times: unset, small ones (so that multiples and equal ones occur), the interesting limits, and any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(0),
        3 => 1u64..9,
        3 => select(vec![512, 4096, 8192, 47008, 1 << 20, (1 << 20) + 1, 2 << 20]),
        1 => any::<u64>(),
    ]
}

fn sizes() -> impl Strategy<Value = Limits> {
    prop_oneof![
        3 => Just(Limits::default()),
        1 => number().prop_map(|n| Limits { min: n, max: n }),
        3 => (number(), number()).prop_map(|(min, max)| Limits { min, max }),
    ]
}

fn one<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = Option<T>> {
    option::of(select(all))
}

/// All controls there can be, contradictory ones too.
pub(crate) fn controls() -> impl Strategy<Value = Controls> {
    let visible = (one(Consistency::ALL), number(), one(Concurrency::ALL), one(Mutability::ALL));
    let whole = (one(Atomicity::ALL), number(), one(Persistence::ALL), one(Point::ALL));
    let hints = (one(Temporality::ALL), number(), one(Spatiality::ALL), number(), number());
    (visible, whole, hints, sizes(), sizes(), one(OnError::ALL)).prop_map(
        |(visible, whole, hints, request_size, collection_size, on_error)| {
            let (consistency, eventual_ns, concurrency, mutability) = visible;
            let (atomicity, atomic_unit, persistence, point) = whole;
            let (temporality, drain_ns, spatiality, stride, block) = hints;
            Controls {
                consistency,
                eventual_ns,
                concurrency,
                mutability,
                atomicity,
                atomic_unit,
                persistence,
                point,
                temporality,
                drain_ns,
                spatiality,
                stride,
                block,
                request_size,
                collection_size,
                on_error,
            }
        },
    )
}

/// Controls that a program with sense asks for: parameters only where they belong, ranges that are not empty. Without
/// them most cases would be refused and say little.
pub(crate) fn sensible() -> impl Strategy<Value = Controls> {
    controls().prop_map(|mut c| {
        if c.consistency != Some(Consistency::Eventual) {
            c.eventual_ns = 0;
        }
        if c.atomicity != Some(Atomicity::Unit) {
            c.atomic_unit = 0;
        }
        if c.temporality != Some(Temporality::Bursty) {
            c.drain_ns = 0;
        }
        if c.spatiality == Some(Spatiality::Strided) {
            c.block = c.block.clamp(1, 1 << 40);
            c.stride = c.stride.max(c.block);
        } else {
            (c.stride, c.block) = (0, 0);
        }
        for l in [&mut c.request_size, &mut c.collection_size] {
            if l.max != 0 && l.min > l.max {
                (l.min, l.max) = (l.max, l.min);
            }
        }
        c
    })
}

/// Effective controls as they might come from anywhere, not only from `resolve`.
pub(crate) fn effective() -> impl Strategy<Value = Effective> {
    controls().prop_map(|c| over(&posix(), &c))
}

/// What `c` sets, numbers as they are, and else the values of `base`.
pub(crate) fn over(base: &Effective, c: &Controls) -> Effective {
    Effective {
        consistency: c.consistency.unwrap_or(base.consistency),
        eventual_ns: c.eventual_ns,
        concurrency: c.concurrency.unwrap_or(base.concurrency),
        mutability: c.mutability.unwrap_or(base.mutability),
        atomicity: c.atomicity.unwrap_or(base.atomicity),
        atomic_unit: c.atomic_unit,
        persistence: c.persistence.unwrap_or(base.persistence),
        point: c.point.unwrap_or(base.point),
        temporality: c.temporality.unwrap_or(base.temporality),
        drain_ns: c.drain_ns,
        spatiality: c.spatiality.unwrap_or(base.spatiality),
        stride: c.stride,
        block: c.block,
        request_size: c.request_size,
        collection_size: c.collection_size,
        on_error: c.on_error.unwrap_or(base.on_error),
    }
}

/// The first value of each control.
pub(crate) fn posix() -> Effective {
    Effective {
        consistency: Consistency::Sequential,
        eventual_ns: 0,
        concurrency: Concurrency::Shared,
        mutability: Mutability::Overwrite,
        atomicity: Atomicity::None,
        atomic_unit: 0,
        persistence: Persistence::Volatile,
        point: Point::Close,
        temporality: Temporality::Multiple,
        drain_ns: 0,
        spatiality: Spatiality::Any,
        stride: 0,
        block: 0,
        request_size: Limits::default(),
        collection_size: Limits::default(),
        on_error: OnError::Continue,
    }
}

/// All capabilities there can be.
pub(crate) fn capability() -> impl Strategy<Value = Capability> {
    let can = (any::<bool>(), any::<bool>(), any::<bool>());
    (select(Persistence::ALL), number(), can, 0u32..5).prop_map(|(durability, max_unit, can, targets)| {
        let (staging, once, bursty) = can;
        let medium = "medium";
        Capability {
            medium,
            durability,
            max_unit,
            staging,
            stage_bytes: u64::from(staging) << 30,
            once,
            bursty,
            targets,
            incarnation: 1,
        }
    })
}

/// A target that can do everything.
pub(crate) fn able() -> Capability {
    Capability {
        medium: "all",
        durability: Persistence::Replicated,
        max_unit: 1 << 20,
        staging: true,
        stage_bytes: 1 << 30,
        once: true,
        bursty: true,
        targets: 8,
        incarnation: 1,
    }
}
