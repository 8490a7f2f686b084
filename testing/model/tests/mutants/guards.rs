//! Mutants of what a target refuses and repeats: M1, M2, M4, X1, H1, T11, T16, B3's age of batches.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
};

use iov_types::{Clause, Error, Evidence, Kind, ObjectId, ObjectVerb, Uuid};

use crate::broken::{Mutant, in_halves, mutant, pause, remembering};

pub(crate) fn mutants() -> Vec<Mutant> {
    vec![
        mutant("m2_a_sealed_object_refuses_every_change", "ignores a seal", |target, mut op, memory| {
            if op.verb == ObjectVerb::Seal {
                op.verb = ObjectVerb::Stat;
            }
            target.run(op, memory)
        }),
        remembering("m2_a_seal_holds_against_stages", "publishes into a sealed object", || {
            let sealed: Mutex<HashSet<ObjectId>> = Mutex::default();
            Box::new(move |target, op, memory| {
                let is_sealed = sealed.lock().unwrap().contains(&op.object);
                let freezes = matches!(op.verb, ObjectVerb::Freeze { .. });
                if is_sealed && (op.verb.changes_bytes() || freezes) {
                    target.call(&op, ObjectVerb::Stat)?; // a freeze and an epoch come first
                    return Err(Error::immutable("sealed").with_clause(Clause::M2));
                }
                if op.verb == ObjectVerb::Seal {
                    sealed.lock().unwrap().insert(op.object);
                    return target.call(&op, ObjectVerb::Stat);
                }
                target.run(op, memory)
            })
        }),
        mutant(
            "m2_a_seal_waits_for_what_is_to_be_shown",
            "seals over changes of its own stage",
            |target, mut op, memory| {
                if op.verb == ObjectVerb::Seal && op.demand.stage.is_some() {
                    op.verb = ObjectVerb::Stat;
                }
                target.run(op, memory)
            },
        ),
        mutant("t11_a_write_is_before_the_seal_or_fails", "writes in two halves", in_halves),
        mutant("t16_units_are_old_or_new", "writes a unit in two halves", in_halves),
        mutant("t16_units_are_old_or_new", "copies a unit in two halves", |target, op, memory| match op.verb {
            ObjectVerb::Copy { source, source_offset, offset, len } => {
                let half = len / 2;
                target.call(&op, ObjectVerb::Copy { source, source_offset, offset, len: half })?;
                pause();
                let (source_offset, offset, len) = (source_offset + half, offset + half, len - half);
                target.call(&op, ObjectVerb::Copy { source, source_offset, offset, len })
            }
            _ => target.run(op, memory),
        }),
        mutant("x1_an_older_epoch_is_fenced", "ignores a fence", |target, mut op, memory| {
            op.demand.epoch = 0;
            target.run(op, memory)
        }),
        mutant("x1_an_older_epoch_publishes_nothing", "publishes whatever the epoch", |target, mut op, memory| {
            if let ObjectVerb::Publish { .. } = op.verb {
                op.demand.epoch = 0;
            }
            target.run(op, memory)
        }),
        mutant("x1_epochs_only_rise", "says yes to a lower epoch", |target, op, memory| {
            let is_fence = matches!(op.verb, ObjectVerb::Fence { .. });
            match target.run(op, memory) {
                Err(e) if is_fence && e.kind() == Kind::Conflict => Ok(Evidence::default()),
                other => other,
            }
        }),
        mutant(
            "x1_nothing_of_a_fenced_writer_appears",
            "checks the epoch before it copies",
            |target, mut op, memory| {
                if let ObjectVerb::Write { .. } = op.verb {
                    target.call(&op, ObjectVerb::Stat)?;
                    pause();
                    op.demand.epoch = 0;
                }
                target.run(op, memory)
            },
        ),
        mutant("h1_no_change_grows_beyond_the_limit", "ignores max_size", |target, mut op, memory| {
            op.demand.max_size = 0;
            target.run(op, memory)
        }),
        mutant("h1_the_limit_holds_at_publication", "looks at max_size only when it stages", |target, op, memory| {
            let mut lax = op.clone();
            lax.demand.max_size = 0;
            if op.demand.max_size != 0 && op.demand.stage.is_some() {
                let before = target.call(&lax, ObjectVerb::Stat)?.size;
                let end = match op.verb {
                    ObjectVerb::Write { offset } if !memory.is_empty() => offset.saturating_add(memory.len() as u64),
                    ObjectVerb::Append => before + memory.len() as u64,
                    _ => return target.run(op, memory),
                };
                if end > op.demand.max_size && end > before {
                    return target.run(op, memory); // the refusal
                }
                return target.run(lax, memory);
            }
            target.run(op, memory)
        }),
        mutant(
            "m4_appends_from_many_threads_are_all_there",
            "looks for the end before it appends",
            |target, op, memory| {
                if op.verb != ObjectVerb::Append {
                    return target.run(op, memory);
                }
                let offset = target.call(&op, ObjectVerb::Stat)?.size;
                pause();
                Ok(Evidence { offset, ..target.probe(&op).write(offset, memory.bytes())? })
            },
        ),
        mutant("m4_a_repeated_append_applies_once", "drops the de-duplication", |target, mut op, memory| {
            op.demand.batch = None;
            target.run(op, memory)
        }),
        mutant("m4_staged_appends_apply_once", "repeats what two stages hold", |target, mut op, memory| {
            if op.demand.stage.is_some_and(|s| s.0[15] != 1) {
                op.demand.batch = None;
            }
            target.run(op, memory)
        }),
        remembering("m4_racing_repetitions_apply_once", "looks for a repetition before it appends", || {
            let told: Mutex<HashMap<(Uuid, u64), Evidence>> = Mutex::default();
            Box::new(move |target, mut op, memory| {
                let Some(key) = op.demand.batch.take().filter(|_| op.verb == ObjectVerb::Append) else {
                    return target.run(op, memory);
                };
                if let Some(evidence) = told.lock().unwrap().get(&key) {
                    return Ok(evidence.clone());
                }
                pause();
                let evidence = target.run(op, memory)?;
                told.lock().unwrap().insert(key, evidence.clone());
                Ok(evidence)
            })
        }),
        remembering("m4_repetitions_hold_across_a_seal", "looks at the seal before the repetition", || {
            let sealed: Mutex<HashSet<ObjectId>> = Mutex::default();
            Box::new(move |target, op, memory| {
                if op.verb == ObjectVerb::Seal {
                    sealed.lock().unwrap().insert(op.object);
                }
                if op.verb == ObjectVerb::Append && sealed.lock().unwrap().contains(&op.object) {
                    return Err(Error::immutable("sealed").with_clause(Clause::M2));
                }
                target.run(op, memory)
            })
        }),
        remembering("m4_a_dropped_append_can_be_repeated", "remembers an append that was dropped", || {
            let told: Mutex<HashMap<(ObjectId, Uuid, u64), Evidence>> = Mutex::default();
            Box::new(move |target, op, memory| {
                let key = op.demand.batch.filter(|_| op.verb == ObjectVerb::Append).map(|b| (op.object, b.0, b.1));
                let Some(key) = key else { return target.run(op, memory) };
                if let Some(evidence) = told.lock().unwrap().get(&key) {
                    return Ok(evidence.clone());
                }
                let evidence = target.run(op, memory)?;
                told.lock().unwrap().insert(key, evidence.clone());
                Ok(evidence)
            })
        }),
        mutant("b3_a_batch_older_than_a_day_is_refused", "takes a batch of any age", |target, mut op, memory| {
            if let Some((id, _)) = &mut op.demand.batch {
                id.0[6] &= 0x0f; // no version, no age
            }
            target.run(op, memory)
        }),
    ]
}
