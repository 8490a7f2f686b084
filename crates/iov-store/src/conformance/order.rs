//! Submissions: order on one object, independence of all else, one answer each.

use iov_types::{Kind, ObjectVerb};

use super::{BackendCheck, MakeBackend, Probe, Rng, checks, kit::pattern, run_many};

pub(super) fn checks() -> Vec<BackendCheck> {
    checks![BackendCheck:
        o9_a_submission_sees_its_own_writes,
        o9_a_submission_keeps_the_order_on_each_object,
        b1_one_failure_does_not_hide_another,
        b1_every_operation_is_answered_once,
    ]
}

const PATIENCE_NS: i64 = 20_000_000_000;

fn o9_a_submission_sees_its_own_writes(make: MakeBackend<'_>) {
    let target = make();
    let object = Probe::new(&target, 1);
    let ops = vec![
        (object.op(ObjectVerb::Write { offset: 10 }), b"first".to_vec()),
        (object.op(ObjectVerb::Read { offset: 8 }), vec![1; 7]),
        (object.op(ObjectVerb::Truncate { size: 12 }), vec![]),
        (object.op(ObjectVerb::Read { offset: 8 }), vec![1; 7]),
        (object.op(ObjectVerb::Append), b"end".to_vec()),
        (object.op(ObjectVerb::Stat), vec![]),
    ];
    let answers = run_many(&*target, PATIENCE_NS, ops);
    assert_eq!(answers[1].memory, b"\0\0first", "T20: a read behind a write sees it");
    let short = answers[3].evidence.clone().expect("a read");
    assert_eq!((short.bytes, &answers[3].memory[..4]), (4, &b"\0\0fi"[..]), "a read behind a cut sees it");
    assert_eq!(answers[4].evidence.clone().expect("an append").offset, 12, "an append goes behind the cut");
    assert_eq!(answers[5].evidence.clone().expect("stat").size, 15);
}

fn o9_a_submission_keeps_the_order_on_each_object(make: MakeBackend<'_>) {
    let target = make();
    let mut rng = Rng::new(9);
    let mut model = vec![vec![0u8; 3000]; 4];
    let mut ops = Vec::new();
    for i in 0..300 {
        let (slot, at, len) = (rng.below(4), rng.below(2000) as usize, 1 + rng.below(900) as usize);
        let data = pattern(i, len);
        model[slot as usize][at..at + len].copy_from_slice(&data);
        ops.push((Probe::new(&target, slot).op(ObjectVerb::Write { offset: at as u64 }), data));
    }
    for answer in run_many(&*target, PATIENCE_NS, ops) {
        answer.evidence.expect("a write");
    }
    for (slot, bytes) in model.iter().enumerate() {
        let object = Probe::new(&target, slot as u64);
        let size = object.stat().size as usize;
        assert!(object.all() == bytes[..size], "object {slot}: overlapping writes take effect in order");
    }
}

fn b1_one_failure_does_not_hide_another(make: MakeBackend<'_>) {
    let target = make();
    let sealed = Probe::new(&target, 1);
    sealed.write(0, b"sealed").expect("a write");
    sealed.call(ObjectVerb::Seal).expect("a seal");
    let (open, other) = (Probe::new(&target, 2), Probe::new(&target, 3));
    let ops = vec![
        (sealed.op(ObjectVerb::Append), b"x".to_vec()),
        (open.op(ObjectVerb::Append), b"y".to_vec()),
        (open.op(ObjectVerb::Write { offset: u64::MAX }), b"zz".to_vec()),
        (open.op(ObjectVerb::Append), b"z".to_vec()),
        (other.op(ObjectVerb::Fence { epoch: 7 }), vec![]),
        (other.op(ObjectVerb::Fence { epoch: 6 }), vec![]),
        (other.op(ObjectVerb::Append), b"o".to_vec()),
    ];
    let answers = run_many(&*target, PATIENCE_NS, ops);
    let kinds: Vec<_> = answers.iter().map(|a| a.evidence.as_ref().err().map(|e| e.kind())).collect();
    let expected = [Some(Kind::Immutable), None, Some(Kind::Invalid), None, None, Some(Kind::Conflict), None];
    assert_eq!(kinds, expected, "each operation has its own end");
    assert_eq!((open.all(), other.all(), sealed.all()), (b"yz".to_vec(), b"o".to_vec(), b"sealed".to_vec()));
}

fn b1_every_operation_is_answered_once(make: MakeBackend<'_>) {
    let target = make();
    assert!(run_many(&*target, PATIENCE_NS, vec![]).is_empty(), "an empty submission");
    let ops = (0..500)
        .map(|i| {
            let object = Probe::new(&target, i % 7);
            let verb = if i % 2 == 0 { ObjectVerb::Write { offset: i } } else { ObjectVerb::Read { offset: i } };
            (object.op(verb), vec![i as u8; 1 + i as usize % 50])
        })
        .collect();
    let answers = run_many(&*target, PATIENCE_NS, ops);
    let wrong: Vec<_> = answers.iter().enumerate().filter(|(_, a)| a.times != 1).map(|(i, a)| (i, a.times)).collect();
    assert_eq!((answers.len(), wrong), (500, vec![]), "operations that were not answered exactly once");
}
