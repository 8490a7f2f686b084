//! The four ways a kind becomes a field.

use std::marker::PhantomData;

use iov_types::Result;

use super::{Reader, Scalar, WireType, put_key};

/// How a field of a Rust type `T` is written and read.
pub trait Field<T> {
    /// Appends key and value, or nothing where a missing field means the same.
    fn put(value: &T, tag: u32, out: &mut Vec<u8>);
    /// Takes one occurrence of the field; of several, the last holds, or all do where it is repeated.
    fn take(slot: &mut Option<T>, wire: WireType, input: &mut Reader<'_>) -> Result<()>;
    /// The value once the message has ended.
    fn finish(slot: Option<T>, field: &'static str, input: &Reader<'_>) -> Result<T>;
}

/// With a default that is not written.
pub struct Implicit<K>(PhantomData<K>);
/// An `Option`.
pub struct Optional<K>(PhantomData<K>);
/// A `Vec`.
pub struct Repeated<K>(PhantomData<K>);
/// Always written, and corrupt without it.
pub struct Required<K>(PhantomData<K>);

#[inline]
fn put_always<T, K: Scalar<T>>(value: &T, tag: u32, out: &mut Vec<u8>) {
    put_key(tag, K::WIRE, out);
    K::put(value, out);
}

impl<T: Default, K: Scalar<T>> Field<T> for Implicit<K> {
    #[inline]
    fn put(value: &T, tag: u32, out: &mut Vec<u8>) {
        if K::is_default(value) {
            return;
        }
        let before = out.len();
        put_key(tag, K::WIRE, out);
        let content = out.len();
        K::put(value, out);
        if K::WIRE == WireType::Len && out.len() == content + 1 {
            out.truncate(before); // a length of zero and nothing behind it: a message without content
        }
    }

    #[inline]
    fn take(slot: &mut Option<T>, wire: WireType, input: &mut Reader<'_>) -> Result<()> {
        input.expect(wire, K::WIRE)?;
        *slot = Some(K::get(input)?);
        Ok(())
    }

    #[inline]
    fn finish(slot: Option<T>, _: &'static str, _: &Reader<'_>) -> Result<T> {
        Ok(slot.unwrap_or_default())
    }
}

impl<T, K: Scalar<T>> Field<Option<T>> for Optional<K> {
    #[inline]
    fn put(value: &Option<T>, tag: u32, out: &mut Vec<u8>) {
        if let Some(value) = value {
            put_always::<T, K>(value, tag, out);
        }
    }

    #[inline]
    fn take(slot: &mut Option<Option<T>>, wire: WireType, input: &mut Reader<'_>) -> Result<()> {
        input.expect(wire, K::WIRE)?;
        *slot = Some(Some(K::get(input)?));
        Ok(())
    }

    #[inline]
    fn finish(slot: Option<Option<T>>, _: &'static str, _: &Reader<'_>) -> Result<Option<T>> {
        Ok(slot.flatten())
    }
}

impl<T, K: Scalar<T>> Field<Vec<T>> for Repeated<K> {
    #[inline]
    fn put(value: &Vec<T>, tag: u32, out: &mut Vec<u8>) {
        for element in value {
            put_always::<T, K>(element, tag, out);
        }
    }

    #[inline]
    fn take(slot: &mut Option<Vec<T>>, wire: WireType, input: &mut Reader<'_>) -> Result<()> {
        input.expect(wire, K::WIRE)?;
        input.charge(size_of::<T>())?;
        let element = K::get(input)?;
        slot.get_or_insert_default().push(element);
        Ok(())
    }

    #[inline]
    fn finish(slot: Option<Vec<T>>, _: &'static str, _: &Reader<'_>) -> Result<Vec<T>> {
        Ok(slot.unwrap_or_default())
    }
}

impl<T, K: Scalar<T>> Field<T> for Required<K> {
    #[inline]
    fn put(value: &T, tag: u32, out: &mut Vec<u8>) {
        put_always::<T, K>(value, tag, out);
    }

    #[inline]
    fn take(slot: &mut Option<T>, wire: WireType, input: &mut Reader<'_>) -> Result<()> {
        input.expect(wire, K::WIRE)?;
        *slot = Some(K::get(input)?);
        Ok(())
    }

    #[inline]
    fn finish(slot: Option<T>, field: &'static str, input: &Reader<'_>) -> Result<T> {
        slot.ok_or_else(|| input.corrupt(format_args!("the required field `{field}` is missing")))
    }
}
