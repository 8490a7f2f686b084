//! The targets of a store, as in [`iov_types::StoreMap`].

use iov_types::{Capability, Health, Pattern, Place, Reach, Result, StoreMap, Target};

use super::TargetCapability;
use crate::codec::{Reader, Scalar, WireType, kind};
use crate::{Wire, message, numbers};

numbers! { Reach { Online = 1, ProbablyOffline = 2, Offline = 3 } }
numbers! { Health { Good = 1, NeedsResync = 2, Bad = 3 } }

/// A number like others.
impl Scalar<Place> for kind::uint {
    const WIRE: WireType = WireType::Varint;

    #[inline]
    fn put(place: &Place, out: &mut Vec<u8>) {
        <kind::uint as Scalar<u64>>::put(&place.0, out);
    }

    #[inline]
    fn get(input: &mut Reader<'_>) -> Result<Place> {
        let place = Place(<kind::uint as Scalar<u64>>::get(input)?);
        if place.is_valid() { Ok(place) } else { Err(input.corrupt(format_args!("{} is no place", place.0))) }
    }

    #[inline]
    fn is_default(place: &Place) -> bool {
        place.is_first()
    }
}

/// As [`TargetCapability`], whose medium's name becomes one of ours.
impl Wire for Capability {
    const NAME: &'static str = TargetCapability::NAME;

    fn encode(&self, out: &mut Vec<u8>) {
        TargetCapability::from(self).encode(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self> {
        let told = TargetCapability::read(input)?;
        Ok(told.named(Capability::medium_named(&told.medium)))
    }
}

message! {
    Target {
        1 => number: uint,
        2 => uuid: uuid,
        3 => capability: required message,
        4 => storage: string,
        5 => host: string,
        6 => domain: string,
        7 => addresses: repeated string,
        8 => capacity: uint,
        9 => free: uint,
        10 => reach: required number,
        11 => health: required number,
        12 => local: string,
    }
}

// Strict: bytes go by it.
message! { strict Pattern { 1 => number: uint, 2 => targets: repeated uint } }

message! { StoreMap { 1 => targets: repeated message, 2 => patterns: repeated message } }
