//! Mutants of what bytes mean: O2, O6, O9, O10, B1, C1, C5, P5, T9, T18.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use iov_store::{Backend, Memory, OpCx, Sink, Submitted};
use iov_types::{Capability, Demand, Evidence, ExtentKind, ObjectId, ObjectOp, ObjectVerb, Persistence, Range, Result};

use crate::broken::{Mutant, Target, heap, mutant, pause, remembering};

pub(crate) fn mutants() -> Vec<Mutant> {
    vec![
        mutant("o6_holes_read_as_zeros", "returns stale bytes in holes", stale_holes),
        mutant("o6_reads_are_short_at_the_end", "fills reads past the end", |target, op, mut memory| {
            let is_read = matches!(op.verb, ObjectVerb::Read { .. });
            let len = memory.len();
            let evidence = target.run(op, memory.part(0, len))?;
            if is_read {
                memory.bytes_mut()[evidence.bytes as usize..].fill(0);
                return Ok(Evidence { bytes: len as u64, ..evidence });
            }
            Ok(evidence)
        }),
        remembering("o6_truncated_bytes_do_not_come_back", "keeps what was cut off", || {
            let tails: Mutex<HashMap<ObjectId, (u64, Vec<u8>)>> = Mutex::default();
            Box::new(move |target, op, memory| {
                let ObjectVerb::Truncate { size } = op.verb else { return target.run(op, memory) };
                let (probe, before) = (target.probe(&op), target.call(&op, ObjectVerb::Stat)?.size);
                let tail = probe.read(size, before.saturating_sub(size) as usize)?;
                let evidence = target.run(op.clone(), memory)?;
                let mut tails = tails.lock().unwrap();
                if size < before {
                    tails.insert(op.object, (size, tail));
                } else if let Some((at, mut tail)) = tails.remove(&op.object).filter(|(at, _)| *at == before) {
                    tail.truncate((size - at) as usize);
                    probe.write(at, &tail)?;
                }
                Ok(evidence)
            })
        }),
        mutant("o6_punched_bytes_are_gone", "forgets the last byte of a punch", |target, op, memory| match op.verb {
            ObjectVerb::Punch(r) if r.len > 1 && r.end() <= i64::MAX as u64 => {
                target.call(&op, ObjectVerb::Punch(Range { offset: r.offset, len: r.len - 1 }))
            }
            _ => target.run(op, memory),
        }),
        mutant("o6_allocated_space_reads_as_zeros", "lets reserved space grow the object", |target, mut op, memory| {
            if let ObjectVerb::Allocate { keep_size, .. } = &mut op.verb {
                *keep_size = false;
            }
            target.run(op, memory)
        }),
        mutant("o6_extents_tell_data_from_holes", "takes the first hole for all", |target, op, memory| {
            let is_extents = matches!(op.verb, ObjectVerb::Extents { .. });
            let mut evidence = target.run(op, memory)?;
            if let (true, [first, .., last]) = (is_extents, &mut evidence.extents[..]) {
                first.range.len = last.range.end() - first.range.offset;
                first.kind = ExtentKind::Hole;
                evidence.extents.truncate(1);
            }
            Ok(evidence)
        }),
        mutant("o6_zero_bytes_change_nothing", "lets an empty write grow the object", |target, op, memory| {
            match op.verb {
                ObjectVerb::Write { offset } if memory.is_empty() => {
                    let size = target.call(&op, ObjectVerb::Stat)?.size.max(offset);
                    target.call(&op, ObjectVerb::Truncate { size })
                }
                _ => target.run(op, memory),
            }
        }),
        mutant(
            "o6_offsets_end_at_the_largest_integer",
            "cuts ranges instead of refusing them",
            |target, op, memory| match op.verb {
                ObjectVerb::Punch(r) if r.offset.saturating_add(r.len) > i64::MAX as u64 => {
                    let len = (i64::MAX as u64).saturating_sub(r.offset);
                    target.call(&op, ObjectVerb::Punch(Range { len, ..r }))
                }
                _ => target.run(op, memory),
            },
        ),
        mutant("o6_copies_what_is_there", "copies from the source's beginning", |target, mut op, memory| {
            if let ObjectVerb::Copy { source_offset, .. } = &mut op.verb {
                *source_offset /= 2;
            }
            target.run(op, memory)
        }),
        mutant("o6_copy_refuses_an_overlap", "copies an object onto itself", |target, op, memory| match op.verb {
            ObjectVerb::Copy { source, source_offset, offset, len } if source == op.object => {
                let bytes = target.probe(&op).read(source_offset, len as usize)?;
                target.probe(&op).write(offset, &bytes)
            }
            _ => target.run(op, memory),
        }),
        whole("o9_a_submission_sees_its_own_writes", "begins a submission at its end", Whole::Backwards),
        whole("o9_a_submission_keeps_the_order_on_each_object", "begins a submission at its end", Whole::Backwards),
        whole("b1_one_failure_does_not_hide_another", "stops at the first failure", Whole::StopsAtFailure),
        whole("b1_every_operation_is_answered_once", "answers twice", Whole::AnswersTwice),
        mutant("o2_an_object_that_nobody_wrote_is_empty", "makes an object by looking", |target, op, memory| {
            if let ObjectVerb::Read { .. } = op.verb {
                target.call(&op, ObjectVerb::Create)?;
            }
            target.run(op, memory)
        }),
        mutant("o2_create_makes_an_empty_object_once", "empties what is made again", |target, op, memory| {
            if op.verb == ObjectVerb::Create {
                target.call(&op, ObjectVerb::Remove)?;
            }
            target.run(op, memory)
        }),
        mutant("o2_stat_follows_the_bytes", "never gives space back", |target, op, memory| match op.verb {
            ObjectVerb::Punch(range) => {
                let zeros = vec![0; range.len as usize];
                target.probe(&op).write(range.offset, &zeros)
            }
            _ => target.run(op, memory),
        }),
        mutant("o2_stat_follows_the_bytes", "tells no times", |target, op, memory| {
            Ok(Evidence { mtime_ns: 0, ..target.run(op, memory)? })
        }),
        mutant("o10_removed_bytes_do_not_come_back", "removes nothing", |target, op, memory| match op.verb {
            ObjectVerb::Remove => Ok(Evidence::default()),
            _ => target.run(op, memory),
        }),
        mutant("o10_removing_races_with_use", "shows other bytes where some were", |target, op, mut memory| {
            let is_read = matches!(op.verb, ObjectVerb::Read { .. });
            let evidence = target.run(op, memory.part(0, memory.len()))?;
            if is_read && evidence.bytes == 0 && memory.len() >= 10 {
                memory.bytes_mut()[..10].fill(0xee);
                return Ok(Evidence { bytes: 10, ..evidence });
            }
            Ok(evidence)
        }),
        mutant("o2_list_pages_are_complete_and_in_order", "begins each page at the start", |target, mut op, memory| {
            if let ObjectVerb::List { after, .. } = &mut op.verb {
                *after = None;
            }
            target.run(op, memory)
        }),
        mutant("p5_evidence_tells_what_the_bytes_survive", "claims to survive anything", |target, op, memory| {
            let claimed = op.demand.durability;
            let op = ObjectOp { demand: Demand { durability: None, ..op.demand }, ..op };
            Ok(Evidence { durability: claimed.max(Some(Persistence::Volatile)), ..target.run(op, memory)? })
        }),
        mutant("m1_too_large_a_unit_is_refused", "ignores units", |target, mut op, memory| {
            op.demand.unit = 0;
            target.run(op, memory)
        }),
        remembering("c1_a_completed_write_is_seen_by_everybody", "reads from a cache that nobody clears", || {
            let cache: Mutex<HashMap<ObjectId, Vec<u8>>> = Mutex::default();
            Box::new(move |target, op, mut memory| {
                let ObjectVerb::Read { offset: 0 } = op.verb else { return target.run(op, memory) };
                let mut cache = cache.lock().unwrap();
                let bytes = match cache.get(&op.object) {
                    Some(bytes) => bytes.clone(),
                    None => target.probe(&op).read(0, memory.len())?,
                };
                let len = bytes.len().min(memory.len());
                memory.bytes_mut()[..len].copy_from_slice(&bytes[..len]);
                cache.insert(op.object, bytes);
                Ok(Evidence { bytes: len as u64, ..target.call(&op, ObjectVerb::Stat)? })
            })
        }),
        mutant(
            "c5_every_byte_is_one_that_somebody_wrote",
            "clears the place before it writes",
            |target, op, memory| {
                if let ObjectVerb::Write { offset } = op.verb {
                    target.call(&op, ObjectVerb::Punch(Range { offset, len: memory.len() as u64 }))?;
                    pause();
                }
                target.run(op, memory)
            },
        ),
        mutant("t9_neighbours_do_not_damage_each_other", "reads, changes and writes whole blocks", whole_blocks),
        mutant(
            "x3_disjoint_changes_of_one_object_are_all_there",
            "reads, changes and writes whole blocks",
            whole_blocks,
        ),
        mutant("t18_a_size_counts_only_what_was_written", "grows first and fills later", grows_first),
        mutant("m4_readers_stop_before_unfinished_records", "grows first and fills later", grows_first),
    ]
}

fn stale_holes(target: &Target, op: ObjectOp, mut memory: Memory) -> Result<Evidence> {
    let ObjectVerb::Read { offset } = op.verb else { return target.run(op, memory) };
    let evidence = target.run(op.clone(), memory.part(0, memory.len()))?;
    let range = Range { offset, len: evidence.bytes };
    for e in target.call(&op, ObjectVerb::Extents { range, max: usize::MAX })?.extents {
        if e.kind != ExtentKind::Data {
            memory.bytes_mut()[(e.range.offset - offset) as usize..][..e.range.len as usize].fill(0xaa);
        }
    }
    Ok(evidence)
}

fn whole_blocks(target: &Target, op: ObjectOp, memory: Memory) -> Result<Evidence> {
    const BLOCK: usize = 4096;
    let ObjectVerb::Write { offset } = op.verb else { return target.run(op, memory) };
    let within = offset as usize % BLOCK;
    let probe = target.probe(&op);
    let mut block = probe.read(offset - within as u64, (within + memory.len()).next_multiple_of(BLOCK))?;
    pause();
    block.resize(block.len().max(within + memory.len()), 0);
    block[within..within + memory.len()].copy_from_slice(memory.bytes());
    Ok(Evidence { bytes: memory.len() as u64, offset, ..probe.write(offset - within as u64, &block)? })
}

fn grows_first(target: &Target, op: ObjectOp, memory: Memory) -> Result<Evidence> {
    if op.verb != ObjectVerb::Append || op.demand.batch.is_some() {
        return target.run(op, memory);
    }
    let offset = target.call(&op, ObjectVerb::Stat)?.size;
    target.call(&op, ObjectVerb::Truncate { size: offset + memory.len() as u64 })?;
    pause();
    Ok(Evidence { offset, ..target.probe(&op).write(offset, memory.bytes())? })
}

/// What is wrong with how a submission is handled.
#[derive(Clone, Copy, PartialEq)]
enum Whole {
    Backwards,
    StopsAtFailure,
    AnswersTwice,
}

struct Submissions(Arc<dyn Backend>, Whole);

impl Backend for Submissions {
    fn capability(&self) -> &Capability {
        self.0.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        let target = Target { inner: self.0.clone(), cx: cx.clone() };
        let mut ops: Vec<_> = ops.into_iter().enumerate().collect();
        if self.1 == Whole::Backwards {
            ops.reverse();
        }
        let mut failed = None;
        for (index, (op, memory)) in ops {
            let evidence = match &failed {
                Some(e) if self.1 == Whole::StopsAtFailure => Err(iov_types::Error::clone(e)),
                _ => target.run(op, memory),
            };
            failed = failed.or(evidence.clone().err());
            if self.1 == Whole::AnswersTwice {
                sink.complete(index, evidence.clone());
            }
            sink.complete(index, evidence);
        }
    }
}

fn whole(check: &'static str, what: &'static str, flaw: Whole) -> Mutant {
    Mutant { check, what, make: Box::new(move || Arc::new(Submissions(heap(4 << 20), flaw))) }
}
