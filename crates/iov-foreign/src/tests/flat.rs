//! What a backend is handed is what a replay would make.

use iov_store::{
    Heap, OpCx,
    objects::{Body, Call, Change, Medium, Stage},
};
use iov_types::{Capability, Demand, ObjectId, Persistence, Range, Uuid};
use proptest::prelude::*;

use crate::flat::flatten;

fn body() -> impl Body {
    let capability = Capability {
        medium: "heap",
        durability: Persistence::Volatile,
        max_unit: 0,
        staging: true,
        stage_bytes: 0,
        once: true,
        bursty: true,
        targets: 1,
        incarnation: 1,
    };
    Heap::new(capability).medium().create(ObjectId { collection: Uuid::NIL, slot: 0 })
}

proptest! {
    #[test]
    fn ranges_and_a_length_are_all_that_a_stage_is(
        base in 0u64..50,
        ops in prop::collection::vec((0..5, 0u64..60, 1u64..20), 0..12),
    ) {
        let (cx, demand) = (OpCx::own(i64::MAX), Demand::default());
        let call = Call { cx: &cx, demand: &demand };
        let (mut image, mut stage) = (body(), Stage::default());
        image.write(call, 0, &vec![1; base as usize]).unwrap();
        for (n, (kind, offset, len)) in ops.into_iter().enumerate() {
            let data = vec![n as u8 + 2; len as usize];
            let range = Range { offset, len };
            let change = match kind {
                0 => Change::Write { offset, data },
                1 => Change::Append { data, key: Some((Uuid::NIL, n as u64)) },
                2 => Change::Truncate { size: offset },
                3 => Change::Punch(range),
                _ => Change::Allocate { range, keep_size: len % 2 == 0 },
            };
            stage.push(change, 0, 0);
        }
        let mut expected = [9; 500];
        let len = stage.read(&image, call, 0, &mut expected).unwrap();
        let flat = flatten(&stage, base);
        prop_assert_eq!(flat.size, len as u64);
        // As the directory in C does it: a copy of the base, ranges written over it, then the cut.
        let mut bytes = vec![1; base as usize];
        for range in &flat.ranges {
            let end = (range.end() as usize).min(len);
            if end > range.offset as usize {
                bytes.resize(bytes.len().max(end), 0);
                bytes[range.offset as usize..end].copy_from_slice(&expected[range.offset as usize..end]);
            }
        }
        if let Some(cut) = flat.cut {
            bytes.resize(cut as usize, 0);
        }
        prop_assert_eq!(&bytes[..], &expected[..len]);
        for (key, at) in flat.appended {
            let own = key.1 as u8 + 2;
            prop_assert!((at as usize) >= len || expected[at as usize] != 1, "append {own} at {at}");
        }
    }
}
