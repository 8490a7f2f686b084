//! Any message: strategies for the types of `iov-types` and for the bodies of frames.

mod bodies;
mod catalog;
mod object;
mod plain;

pub(crate) use bodies::*;
pub(crate) use catalog::*;
pub(crate) use object::*;
pub(crate) use plain::*;

use proptest::prelude::*;

/// One of the values of an enum.
pub(crate) fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(all)
}

/// A short list.
pub(crate) fn list<S: Strategy>(element: S) -> impl Strategy<Value = Vec<S::Value>> {
    proptest::collection::vec(element, 0..4)
}

/// Perhaps one.
pub(crate) fn maybe<S: Strategy>(element: S) -> impl Strategy<Value = Option<S::Value>> {
    proptest::option::of(element)
}

/// Sizes, times and ids of every magnitude.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), 0u64..300, any::<u64>()]
}

/// Times before and after 1970.
pub(crate) fn time() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), Just(i64::MAX), Just(i64::MIN), any::<i64>()]
}
