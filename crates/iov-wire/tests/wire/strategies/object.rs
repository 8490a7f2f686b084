use iov_types::*;
use proptest::prelude::*;

use super::*;

pub(crate) fn object_id() -> BoxedStrategy<ObjectId> {
    (uuid(), number()).prop_map(|(collection, slot)| ObjectId { collection, slot }).boxed()
}

fn object_verb() -> BoxedStrategy<ObjectVerb> {
    use ObjectVerb::*;
    let bytes = prop_oneof![
        Just(Create),
        number().prop_map(|offset| Write { offset }),
        number().prop_map(|offset| Read { offset }),
        Just(Append),
        number().prop_map(|size| Truncate { size }),
        range().prop_map(Punch),
        (range(), any::<bool>()).prop_map(|(range, keep_size)| Allocate { range, keep_size }),
        (object_id(), [number(), number(), number()]).prop_map(|(source, [source_offset, offset, len])| Copy {
            source,
            source_offset,
            offset,
            len
        }),
        Just(Sync),
    ];
    let rest = prop_oneof![
        Just(Seal),
        number().prop_map(|epoch| Fence { epoch }),
        uuid().prop_map(|stage| Freeze { stage }),
        uuid().prop_map(|stage| Publish { stage }),
        uuid().prop_map(|stage| Discard { stage }),
        uuid().prop_map(|stage| Thaw { stage }),
        Just(Remove),
        Just(Stat),
        (range(), any::<usize>()).prop_map(|(range, max)| Extents { range, max }),
        (maybe(object_id()), any::<usize>()).prop_map(|(after, max)| List { after, max }),
    ];
    prop_oneof![bytes, rest].boxed()
}

fn demand() -> BoxedStrategy<Demand> {
    let numbers = [number(), number(), number()];
    (
        maybe(uuid()),
        maybe((uuid(), number())),
        maybe(one_of(Persistence::ALL)),
        numbers,
        (any::<bool>(), maybe(one_of(Spatiality::ALL)), maybe(uuid())),
    )
        .prop_map(|(stage, batch, durability, [epoch, unit, max_size], (once, pattern, domain))| Demand {
            stage,
            batch,
            epoch,
            durability,
            unit,
            max_size,
            once,
            pattern,
            domain,
        })
        .boxed()
}

pub(crate) fn object_op() -> BoxedStrategy<ObjectOp> {
    (object_id(), object_verb(), demand()).prop_map(|(object, verb, demand)| ObjectOp { object, verb, demand }).boxed()
}

pub(crate) fn evidence() -> BoxedStrategy<Evidence> {
    let numbers = [number(), number(), number(), number(), number(), number()];
    (numbers, time(), maybe(one_of(Persistence::ALL)), list(extent()), list(object_id()))
        .prop_map(|([bytes, offset, size, allocated, version, epoch], mtime_ns, durability, extents, objects)| {
            Evidence { bytes, offset, size, allocated, version, epoch, mtime_ns, durability, extents, objects }
        })
        .boxed()
}

/// Of any target; the medium's name is one that a program knows.
pub(crate) fn capability() -> BoxedStrategy<Capability> {
    let can = (one_of(Persistence::ALL), any::<[bool; 3]>(), any::<u32>());
    (one_of(&["heap", "files"]), can, [number(), number(), number()])
        .prop_map(|(medium, (durability, [staging, once, bursty], targets), [max_unit, stage_bytes, incarnation])| {
            Capability { medium, durability, max_unit, staging, stage_bytes, once, bursty, targets, incarnation }
        })
        .boxed()
}
