//! The plan of a batch as JSON, before it runs: what is asked of whom, in which order.

use iov_semantics::plan::{Class, Plan};
use iov_types::{Controls, OnError, Persistence, Point};

use super::describe;
use crate::{Collection, Op, Session};

fn quote(text: &str) -> String {
    iov_semantics::explain::quote(text)
}

fn contract_json(c: &Collection) -> String {
    match c.ready() {
        Ok(ready) => quote(&iov_semantics::text::format(&Controls::from(&ready.contract.effective))),
        Err(_) => "null".into(),
    }
}

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
            out.push(if staged { "publish the stage at one point (M1), give back the open" } else { "publish (C3), give back the open" });
            out
        }
        Op::Persist { .. } if durable => vec!["sync bytes (P5)", "persist records (P7)"],
        Op::Persist { .. } => vec!["nothing to sync at this level"],
        Op::Seal { .. } => vec!["seal at the target, then in the record (M2)"],
        _ => vec!["ask the catalog"],
    }
}

/// The plan of a batch as a JSON object.
pub(crate) fn explain_ops(
    session: &Session, ops: &[Op], barriers: &[usize], policy: OnError, controls: Option<&Controls>,
) -> String {
    let item = |i: usize| {
        let op = &ops[i];
        let steps: Vec<String> = steps(op).iter().map(|s| quote(s)).collect();
        let contract = op.handle().map_or("null".into(), contract_json);
        format!(
            "{{\"op\": {i}, \"verb\": {}, \"bytes\": {}, \"controls\": {contract}, \"steps\": [{}]}}",
            quote(op.verb()),
            op.payload(),
            steps.join(", ")
        )
    };
    let mut waves = Vec::new();
    let mut wave = |to: &str, indices: &[usize]| {
        let items: Vec<String> = indices.iter().map(|i| item(*i)).collect();
        waves.push(format!("{{\"to\": {}, \"operations\": [{}]}}", quote(to), items.join(", ")));
    };
    if policy == OnError::Rollback {
        let all: Vec<usize> = (0..ops.len()).collect();
        wave("try on the catalog, stage bytes on targets, then all at one point P (B3)", &all);
    } else {
        let mut plan = Plan::new(describe::describe(ops), barriers, policy);
        while let Some(next) = plan.next() {
            next.ops.iter().for_each(|i| plan.ended(*i, true));
            let to = match next.class {
                Class::Catalog | Class::Alone => "catalog, one request",
                Class::Data => "targets",
                Class::DataThenCatalog => "targets, then catalog",
            };
            wave(to, &next.ops);
        }
    }
    let asked = controls.map_or("null".into(), |c| quote(&iov_semantics::text::format(c)));
    format!(
        "{{\"store\": {}, \"medium\": {}, \"error\": {}, \"batch_controls\": {asked}, \"waves\": [{}]}}",
        quote(session.url()),
        quote(session.capability().medium),
        quote(policy.text()),
        waves.join(", ")
    )
}
