//! The list of what cannot be had yet, made from the gate itself: it cannot be out of date.

use std::fmt::Write;

use iov_types::{
    Atomicity, Capability, Concurrency, Consistency, Controls, Kind, Layout, Limits, Mutability, OnError, Persistence,
    Point, Redundancy, Spatiality, Temporality, limits,
};

use crate::{Refusal, admit, resolve, text};

/// Every value of every control that a store kind refuses, and what it offers instead, as a Markdown table.
///
/// A cell of the last column is what replaces, or comes on top of, the controls of the second.
pub fn table(capabilities: &[(&str, Capability)]) -> String {
    let mut out = String::from("| store | asked | clause | why | offer |\n| --- | --- | --- | --- | --- |\n");
    for (store, capability) in capabilities {
        for (asked, refusal) in refused(capability) {
            let clause = refusal.error.clause().map_or("", |c| c.id());
            let kind = match refusal.error.kind() {
                Kind::Refused => "",
                other => other.c_name(),
            };
            let clause = [clause, kind].join(" ");
            let clause = clause.trim();
            let (why, offer) = (cell(refusal.reason()), cell(refusal.offer_text()));
            // Writing to a String cannot fail.
            let _ = writeln!(out, "| `{store}` | `{}` | {clause} | {why} | `{offer}` |", cell(&asked));
        }
    }
    out
}

/// What one capability refuses of everything there is to ask.
fn refused(capability: &Capability) -> Vec<(String, Refusal)> {
    let nothing = Controls::default();
    let mut out = Vec::new();
    for asked in probes() {
        if let Err(refusal) = resolve::create(&nothing, &asked, capability) {
            out.push((text::format(&asked), refusal));
        }
    }
    // The layouts are judged with controls that pass, so that only the layout can be refused.
    if let Ok(plain) = resolve::create(&nothing, &nothing, capability) {
        for (name, layout) in layouts(capability) {
            if let Err(refusal) = admit(&plain, Some(&layout), capability) {
                out.push((name, refusal));
            }
        }
    }
    out
}

/// Each value of each control, a unit beyond every limit, and the combination that a clause excludes.
pub(crate) fn probes() -> Vec<Controls> {
    let mut out = Vec::new();
    macro_rules! each {
        ($($field:ident: $control:ident),*) => {
            $(for value in $control::ALL { out.push(Controls { $field: Some(*value), ..Controls::default() }); })*
        };
    }
    each!(
        consistency: Consistency, concurrency: Concurrency, mutability: Mutability, atomicity: Atomicity,
        persistence: Persistence, point: Point, temporality: Temporality, spatiality: Spatiality, on_error: OnError
    );
    for c in out.iter_mut().filter(|c| c.spatiality == Some(Spatiality::Strided)) {
        (c.stride, c.block) = (1 << 20, 4 << 10);
    }
    let none = Controls::default();
    let unit = |n| Controls { atomicity: Some(Atomicity::Unit), atomic_unit: n, ..none.clone() };
    out.extend([
        unit(limits::MAX_UNIT),
        unit(limits::MAX_UNIT + 1),
        Controls { request_size: Limits { min: 47008, max: 47008 }, ..none.clone() },
        Controls { collection_size: Limits { min: 0, max: 1 << 30 }, ..none.clone() },
        Controls { consistency: Some(Consistency::Eventual), on_error: Some(OnError::Rollback), ..none.clone() },
    ]);
    out
}

fn layouts(capability: &Capability) -> Vec<(String, Layout)> {
    let plain = Layout::default();
    let more = capability.targets + 1;
    vec![
        (format!("layout targets={more}"), Layout { targets: more, ..plain.clone() }),
        (
            "layout redundancy=mirror, k=2".into(),
            Layout { redundancy: Some(Redundancy::Mirror), k: 2, ..plain.clone() },
        ),
        (
            "layout redundancy=erasure, k=4, m=2".into(),
            Layout { redundancy: Some(Redundancy::Erasure), k: 4, m: 2, ..plain.clone() },
        ),
        ("layout backend=NAME".into(), Layout { backend: Some("NAME".into()), ..plain.clone() }),
        ("layout policy=NAME".into(), Layout { policy: Some("NAME".into()), ..plain }),
    ]
}

/// Text that stays inside its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests;
