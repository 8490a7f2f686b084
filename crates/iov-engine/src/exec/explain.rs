//! The plan of a batch as JSON, before it runs: what is asked of whom, in which order.

use iov_semantics::{
    explain::Tree,
    plan::{Class, Plan},
    text,
};
use iov_types::{Controls, OnError, Persistence, Point, Which};

use super::describe;
use crate::{Op, Session};

/// What an operation leads to, in words that a person can check against the clauses.
fn steps(op: &Op) -> Vec<&'static str> {
    let contract = op.handle().and_then(|c| c.ready().ok()).map(|r| r.contract.clone());
    let staged = contract.as_ref().is_some_and(|c| c.staged);
    let durable = contract.as_ref().is_some_and(|c| c.durability >= Persistence::Durable);
    let point = contract.as_ref().map(|c| c.effective.point);
    match op {
        Op::Write { .. } | Op::Append { .. } | Op::Truncate { .. } | Op::Punch { .. } | Op::Copy { .. } => {
            let how = if staged { "stage until commit or close (M1)" } else { "apply at the target" };
            let mut out = vec![how];
            match point {
                Some(Point::Request) if durable => out.push("sync with each request (P5)"),
                Some(Point::Batch) if durable => out.push("sync once at the end of the batch (P5)"),
                _ => {}
            }
            out
        }
        Op::Commit { .. } if staged => vec!["freeze, commit the record, publish the stage at one point (M1)"],
        Op::Commit { .. } => vec!["publish size and time (C2)"],
        Op::Close { .. } => {
            let mut out = Vec::new();
            if durable && point == Some(Point::Close) {
                out.push("sync before close completes (P5)");
            }
            out.push(if staged {
                "publish the stage at one point (M1), give back the open"
            } else {
                "publish (C3), give back the open"
            });
            out
        }
        Op::Persist { .. } if durable => vec!["sync bytes (P5)", "persist records (P7)"],
        Op::Persist { .. } => vec!["nothing to sync at this level"],
        Op::Seal { .. } => vec!["seal at the target, then in the record (M2)"],
        Op::Open { which: Which::Uuid(_), .. } => vec!["ask the catalog, unless it is known and sealed (M3)"],
        _ => vec!["ask the catalog"],
    }
}

/// The plan of a batch as a JSON object.
pub(crate) fn explain_ops(
    session: &Session,
    ops: &[Op],
    barriers: &[usize],
    policy: OnError,
    controls: Option<&Controls>,
) -> String {
    let item = |i: &usize| {
        let op = &ops[*i];
        let steps = steps(op).into_iter().map(Tree::from).collect();
        let tree = Tree::map().with("op", *i as u64).with("verb", op.verb()).with("bytes", op.payload());
        let tree = match op.handle().and_then(|c| c.effective().ok()) {
            Some(effective) => tree.with("controls", text::format(&Controls::from(&effective))),
            None => tree,
        };
        tree.with("steps", Tree::List(steps))
    };
    let wave = |to: &str, indices: &[usize]| {
        Tree::map().with("to", to).with("operations", Tree::List(indices.iter().map(item).collect()))
    };
    let mut waves = Vec::new();
    if policy == OnError::Rollback {
        let all: Vec<usize> = (0..ops.len()).collect();
        waves.push(wave("try on the catalog, stage bytes on targets, then all at one point P (B3)", &all));
    } else {
        let mut plan = Plan::new(describe::describe(ops, policy, controls.is_some()), barriers, policy);
        while let Some(next) = plan.next_wave() {
            next.ops.iter().for_each(|i| plan.ended(*i, true));
            let to = match next.class {
                Class::Catalog | Class::Alone => "catalog, one request",
                Class::Data => "targets",
                Class::DataThenCatalog => "targets, then catalog",
            };
            waves.push(wave(to, &next.ops));
        }
    }
    let tree = Tree::map()
        .with("store", session.url())
        .with("medium", session.capability().medium)
        .with("error", policy.text());
    let tree = match controls {
        Some(asked) => tree.with("batch_controls", text::format(asked)),
        None => tree,
    };
    tree.with("waves", Tree::List(waves)).to_json()
}
