//! Random operations that like to meet: few objects and stages, places near the borders of pages.

use iov_types::{Demand, ObjectId, ObjectOp, ObjectVerb, Range, Uuid};
use proptest::prelude::*;

/// An operation and its memory: what to write, or as long as what to read.
pub type Step = (ObjectOp, Vec<u8>);

/// Distance between the borders that offsets keep close to: the page of the heap, and a multiple of every other.
const PAGE: u64 = 1 << 20;

fn id(slot: u64) -> ObjectId {
    ObjectId { collection: Uuid([9; 16]), slot }
}

fn stage(n: u8) -> Uuid {
    Uuid([n; 16])
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        20 => 0u64..60,
        6 => 4080u64..4110,
        8 => PAGE - 30..PAGE + 30,
        3 => 2 * PAGE - 30..2 * PAGE + 30,
        1 => (i64::MAX as u64 + 1)..=u64::MAX,
    ]
}

fn len() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0u64), 20 => 1u64..50, 3 => 50u64..5000]
}

/// Lengths of ranges that cost nothing to name.
fn long() -> impl Strategy<Value = u64> {
    prop_oneof![6 => len(), 1 => PAGE - 10..2 * PAGE, 1 => Just(u64::MAX)]
}

fn range() -> impl Strategy<Value = Range> {
    (offset(), long()).prop_map(|(offset, len)| Range { offset, len })
}

/// Ranges to allocate: a huge one is refused or not by how much memory there is, so that the model cannot tell.
fn near() -> impl Strategy<Value = Range> {
    (offset(), len()).prop_map(|(offset, len)| Range { offset, len })
}

fn verb() -> impl Strategy<Value = ObjectVerb> {
    let stages = || (1u8..4).prop_map(stage);
    prop_oneof![
        12 => offset().prop_map(|offset| ObjectVerb::Write { offset }),
        10 => Just(ObjectVerb::Append),
        12 => offset().prop_map(|offset| ObjectVerb::Read { offset }),
        6 => offset().prop_map(|size| ObjectVerb::Truncate { size }),
        6 => range().prop_map(ObjectVerb::Punch),
        4 => (near(), any::<bool>()).prop_map(|(range, keep_size)| ObjectVerb::Allocate { range, keep_size }),
        6 => (0u64..2, offset(), offset(), long()).prop_map(|(source, source_offset, offset, len)| {
            // From a mebibyte on a target may keep a hole of the source as one, which the model writes as zeros.
            ObjectVerb::Copy { source: id(source), source_offset, offset, len: len.min((1 << 20) - 1) }
        }),
        3 => (range(), prop_oneof![Just(usize::MAX), 0usize..4])
            .prop_map(|(range, max)| ObjectVerb::Extents { range, max }),
        3 => Just(ObjectVerb::Stat),
        1 => Just(ObjectVerb::Sync),
        1 => Just(ObjectVerb::Create),
        2 => (0u64..4).prop_map(|epoch| ObjectVerb::Fence { epoch }),
        4 => stages().prop_map(|stage| ObjectVerb::Freeze { stage }),
        7 => stages().prop_map(|stage| ObjectVerb::Publish { stage }),
        4 => (stages(), 0u8..4).prop_map(|(stage, n)| match n {
            0 => ObjectVerb::Thaw { stage },
            _ => ObjectVerb::Discard { stage },
        }),
        1 => prop_oneof![1 => Just(ObjectVerb::Seal), 4 => Just(ObjectVerb::Stat)],
        1 => Just(ObjectVerb::Remove),
    ]
}

fn demand() -> impl Strategy<Value = Demand> {
    let stages = prop_oneof![3 => Just(None), 3 => (1u8..4).prop_map(|n| Some(stage(n)))];
    let batches = prop_oneof![4 => Just(None), 1 => (5u8..7, 0u64..3).prop_map(|(n, seq)| Some((stage(n), seq)))];
    let epochs = prop_oneof![6 => Just(0u64), 2 => 1u64..4];
    let limits = prop_oneof![8 => Just(0u64), 1 => 1u64..200, 1 => PAGE - 30..PAGE + 30];
    (stages, batches, epochs, limits).prop_map(|(stage, batch, epoch, max_size)| Demand {
        stage,
        batch,
        epoch,
        max_size,
        ..Demand::default()
    })
}

/// Up to `n` operations on two objects.
pub fn steps(n: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (0u64..2, verb(), demand(), len(), any::<u8>()).prop_map(|(slot, verb, demand, len, first)| {
        let takes_memory = matches!(verb, ObjectVerb::Write { .. } | ObjectVerb::Append | ObjectVerb::Read { .. });
        let data = (0..if takes_memory { len } else { 0 }).map(|i| first.wrapping_add(i as u8) | 1).collect();
        (ObjectOp { object: id(slot), verb, demand }, data)
    });
    proptest::collection::vec(step, 1..n)
}
