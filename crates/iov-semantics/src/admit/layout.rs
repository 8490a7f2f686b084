//! Layouts at the gate.

use iov_types::{Capability, Clause, Effective, Kind, Layout, Persistence, Redundancy};

use crate::refusal::{About, Objection};

/// The first thing that is wrong with a layout for these controls.
pub(super) fn objection(l: &Layout, e: &Effective, capability: &Capability) -> Option<Objection> {
    let object = |kind, clause, reason: String, remedy: &str| {
        Some(Objection { kind, clause, reason, about: About::Layout(format!("layout {remedy}")) })
    };
    for (what, name) in [("backend", &l.backend), ("placement policy", &l.policy)] {
        // Of several targets the catalog knows the names.
        if let (Some(name), ..=1) = (name, capability.targets) {
            let reason = format!("layout: this store has no {what} named {name:?}, only its default");
            return object(Kind::Unsupported, None, reason, &format!("without a {what}"));
        }
    }
    let (k, m) = (u32::from(l.k), u32::from(l.m));
    let wrong = match l.redundancy {
        None | Some(Redundancy::None) => (k != 0 || m != 0).then_some("k and m belong to mirror and erasure"),
        Some(Redundancy::Mirror) => (k < 2 || m != 0).then_some("mirror has k >= 2 copies and no m"),
        Some(Redundancy::Erasure) => (k < 1 || m < 1).then_some("erasure has k >= 1 data and m >= 1 parity shards"),
    };
    if let Some(rule) = wrong {
        let reason = format!("layout: k={k} and m={m}, but {rule}");
        return object(Kind::Invalid, Some(Clause::P4), reason, "with redundancy=none");
    }
    let copies = matches!(l.redundancy, Some(Redundancy::Mirror | Redundancy::Erasure));
    if copies && capability.durability < Persistence::Replicated {
        let reason = format!("layout: medium {} keeps one copy of each byte", capability.medium);
        return object(Kind::Refused, Some(Clause::P4), reason, "with redundancy=none");
    }
    if copies && k + m > capability.targets {
        let reason = format!("layout: {} shards on {} targets would share one", k + m, capability.targets);
        return object(Kind::Refused, Some(Clause::P4), reason, "with redundancy=none");
    }
    if l.redundancy == Some(Redundancy::None) && e.persistence == Persistence::Replicated {
        let reason = "layout: redundancy=none, but persistence=replicated needs copies".to_owned();
        return object(Kind::Refused, Some(Clause::P4), reason, "without a redundancy");
    }
    if l.targets > capability.targets {
        let reason = format!("layout: {} targets, but this store has {}", l.targets, capability.targets);
        return object(Kind::Refused, Some(Clause::O2), reason, &format!("with targets={}", capability.targets));
    }
    None
}
