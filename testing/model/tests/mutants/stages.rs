//! Mutants of stages and freezes: B3, B4, G4, X3, O8, T15, T24.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use iov_store::Memory;
use iov_types::{Clause, Demand, Error, Evidence, ObjectId, ObjectOp, ObjectVerb, Result, Uuid};

use crate::broken::{Mutant, Rule, Target, heap, mutant, pause, remembering, wrap};

/// Changes that a mutant keeps for itself, by object and stage.
type Kept = Mutex<HashMap<(ObjectId, Uuid), Vec<(ObjectVerb, Vec<u8>)>>>;

pub(crate) fn mutants() -> Vec<Mutant> {
    vec![
        mutant("b3_staged_changes_show_only_when_published", "shows what is staged", |target, mut op, memory| {
            if op.verb.changes_bytes() {
                op.demand.stage = None;
            }
            target.run(op, memory)
        }),
        mutant("b3_a_thaw_ends_a_freeze_and_keeps_what_is_staged", "drops what it thaws", |target, mut op, memory| {
            if let ObjectVerb::Thaw { stage } = op.verb {
                op.verb = ObjectVerb::Discard { stage };
            }
            target.run(op, memory)
        }),
        mutant("b3_a_thaw_ends_a_freeze_and_keeps_what_is_staged", "thaws nothing", |target, op, memory| {
            if let ObjectVerb::Thaw { .. } = op.verb {
                return Ok(Evidence::default());
            }
            target.run(op, memory)
        }),
        mutant("b3_staged_changes_show_only_when_published", "counts no versions", |target, op, memory| {
            Ok(Evidence { version: 0, ..target.run(op, memory)? })
        }),
        mutant(
            "b3_staged_changes_show_only_when_published",
            "tells others the staged length",
            |target, mut op, memory| {
                if op.verb == ObjectVerb::Stat {
                    op.demand.stage = op.demand.stage.or(Some(Uuid(*b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01")));
                }
                target.run(op, memory)
            },
        ),
        mutant("b3_every_kind_of_change_can_be_staged", "punches at once", |target, mut op, memory| {
            if let ObjectVerb::Punch(_) = op.verb {
                op.demand.stage = None;
            }
            target.run(op, memory)
        }),
        mutant("b3_a_stage_reads_what_it_has_staged", "reads past the stage", |target, mut op, memory| {
            if let ObjectVerb::Read { .. } = op.verb {
                op.demand.stage = None;
            }
            target.run(op, memory)
        }),
        mutant(
            "b3_appends_get_their_place_at_publication",
            "places appends when they are staged",
            |target, op, memory| {
                if op.verb != ObjectVerb::Append || op.demand.stage.is_none() {
                    return target.run(op, memory);
                }
                let offset = target.call(&op, ObjectVerb::Stat)?.size;
                let op = ObjectOp { verb: ObjectVerb::Write { offset }, ..op };
                target.run(op, memory)
            },
        ),
        remembering(
            "b3_publishing_and_dropping_again_is_harmless",
            "publishes again what was published",
            publishes_again,
        ),
        mutant("b3_stages_of_one_object_are_apart", "has one stage for all", |target, mut op, memory| {
            let one = Uuid([3; 16]);
            op.demand.stage = op.demand.stage.map(|_| one);
            if let ObjectVerb::Freeze { stage } | ObjectVerb::Publish { stage } | ObjectVerb::Discard { stage } =
                &mut op.verb
            {
                *stage = one;
            }
            target.run(op, memory)
        }),
        remembering("x3_a_publication_loses_nothing_of_others", "publishes the image that it began with", || {
            let images: Mutex<HashMap<(ObjectId, Uuid), Vec<u8>>> = Mutex::default();
            Box::new(move |target, op, memory| {
                let base = target.probe(&op).with(|d| *d = Demand::default());
                if let Some(stage) = op.demand.stage {
                    images.lock().unwrap().entry((op.object, stage)).or_insert_with(|| base.all());
                }
                if let ObjectVerb::Publish { stage } = op.verb
                    && let Some(image) = images.lock().unwrap().remove(&(op.object, stage))
                {
                    base.write(0, &image)?;
                }
                target.run(op, memory)
            })
        }),
        Mutant {
            check: "b4_stages_are_bounded",
            what: "stages without a bound",
            make: Box::new(|| wrap(heap(1 << 40), Box::new(Target::run))),
        },
        remembering("b4_stages_are_bounded", "never gives room back", || {
            let held: Mutex<HashMap<Uuid, usize>> = Mutex::default();
            Box::new(move |target, op, memory| {
                if let (Some(stage), true) = (op.demand.stage, op.verb.changes_bytes()) {
                    let mut held = held.lock().unwrap();
                    let held = held.entry(stage).or_default();
                    *held += memory.len();
                    if *held > 4 << 20 {
                        return Err(Error::too_big("full").with_clause(Clause::B4));
                    }
                }
                target.run(op, memory)
            })
        }),
        Mutant {
            check: "b4_the_bound_is_of_the_stage_over_all_objects",
            what: "bounds each object of a stage by itself",
            make: Box::new(|| {
                let held: Mutex<HashMap<(ObjectId, Uuid), usize>> = Mutex::default();
                let rule: Rule = Box::new(move |target, op, memory| {
                    if let Some(stage) = op.demand.stage {
                        let mut held = held.lock().unwrap();
                        let held = held.entry((op.object, stage)).or_default();
                        *held += memory.len();
                        if *held > 4 << 20 {
                            return Err(Error::too_big("full").with_clause(Clause::B4));
                        }
                    }
                    target.run(op, memory)
                });
                wrap(heap(1 << 40), rule)
            }),
        },
        remembering("m1_a_publication_shows_in_one_step", "publishes in place, change by change (G4)", || {
            let kept: Kept = Mutex::default();
            Box::new(move |target, op, memory| in_place(&kept, target, op, memory))
        }),
        mutant("b3_whoever_meets_a_freeze_waits_and_sees_all", "publishes without freezing", no_freeze),
        mutant("t15_observers_never_go_back", "publishes without freezing", no_freeze),
        mutant(
            "b3_a_discard_ends_a_freeze_without_a_trace",
            "publishes what it should drop",
            |target, mut op, memory| {
                if let ObjectVerb::Discard { stage } = op.verb {
                    op.verb = ObjectVerb::Publish { stage };
                }
                target.run(op, memory)
            },
        ),
        remembering("b3_a_freeze_lets_only_its_own_stage_pass", "lets readers pass a freeze", || {
            let frozen: Mutex<HashMap<ObjectId, Uuid>> = Mutex::default();
            Box::new(move |target, mut op, memory| {
                match op.verb {
                    ObjectVerb::Freeze { stage } => {
                        frozen.lock().unwrap().insert(op.object, stage);
                    }
                    ObjectVerb::Publish { .. } | ObjectVerb::Discard { .. } => {
                        frozen.lock().unwrap().remove(&op.object);
                    }
                    ObjectVerb::Read { .. } => {
                        op.demand.stage = frozen.lock().unwrap().get(&op.object).copied().or(op.demand.stage)
                    }
                    _ => {}
                }
                target.run(op, memory)
            })
        }),
        remembering("b3_a_freeze_can_be_repeated", "takes a second freeze for a conflict", || {
            let frozen: Mutex<HashMap<ObjectId, Uuid>> = Mutex::default();
            Box::new(move |target, op, memory| {
                if let ObjectVerb::Freeze { stage } = op.verb
                    && frozen.lock().unwrap().insert(op.object, stage) == Some(stage)
                {
                    return Err(Error::conflict("frozen already"));
                }
                target.run(op, memory)
            })
        }),
        mutant("b3_another_freeze_waits_its_turn", "says yes to two freezes at once", |target, op, memory| {
            match (&op.verb, target.run(op.clone(), memory)) {
                (ObjectVerb::Freeze { .. }, Err(_)) => Ok(Evidence::default()),
                (_, other) => other,
            }
        }),
        mutant("o8_deadlines_hold_while_frozen", "waits beyond the deadline", |target, op, memory| {
            let mut cx = target.cx.clone();
            cx.deadline_ns += 10_000_000_000;
            Target { inner: target.inner.clone(), cx }.run(op, memory)
        }),
        mutant(
            "o10_a_frozen_object_can_be_removed",
            "keeps a frozen object from being removed",
            |target, op, memory| {
                if op.verb == ObjectVerb::Remove {
                    target.call(&op, ObjectVerb::Stat)?;
                }
                target.run(op, memory)
            },
        ),
    ]
}

fn no_freeze(target: &Target, mut op: ObjectOp, memory: Memory) -> Result<Evidence> {
    if let ObjectVerb::Freeze { .. } = op.verb {
        op.verb = ObjectVerb::Stat;
    }
    if let ObjectVerb::Publish { .. } = op.verb {
        pause();
    }
    target.run(op, memory)
}

/// Keeps staged changes in a list of its own; the first publication is sound, each later one does them again.
fn publishes_again() -> Rule {
    let kept: Arc<Kept> = Arc::default();
    Box::new(move |target, op, memory| {
        let again = match (op.demand.stage, &op.verb) {
            (Some(stage), verb) if verb.changes_bytes() => {
                let change = (verb.clone(), memory.bytes().to_vec());
                kept.lock().unwrap().entry((op.object, stage)).or_default().push(change);
                None
            }
            (_, ObjectVerb::Publish { stage }) => kept.lock().unwrap().get(&(op.object, *stage)).cloned(),
            _ => None,
        };
        let before = target.call(&op, ObjectVerb::Stat)?.version;
        let evidence = target.run(op.clone(), memory)?;
        if let (Some(changes), true) = (again, evidence.version == before) {
            for (verb, data) in changes {
                target.probe(&op).send(verb, &data)?;
            }
        }
        Ok(evidence)
    })
}

/// Keeps staged changes to itself and does them one after the other at publication.
fn in_place(kept: &Kept, target: &Target, op: ObjectOp, memory: Memory) -> Result<Evidence> {
    match (op.demand.stage, &op.verb) {
        (Some(stage), verb) if verb.changes_bytes() => {
            let change = (verb.clone(), memory.bytes().to_vec());
            kept.lock().unwrap().entry((op.object, stage)).or_default().push(change);
            Ok(Evidence::default())
        }
        (_, ObjectVerb::Publish { stage }) => {
            for (verb, data) in kept.lock().unwrap().remove(&(op.object, *stage)).unwrap_or_default() {
                target.probe(&op).send(verb, &data)?;
                pause();
            }
            target.run(op, memory)
        }
        _ => target.run(op, memory),
    }
}
