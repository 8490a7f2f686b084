//! The only gate: controls pass with a contract, or are refused with the clause and the nearest offer.

mod layout;

use iov_types::{
    Atomicity, Capability, Clause, Consistency, Effective, Layout, Limits, OnError, Persistence, Spatiality,
    Temporality, limits,
};

use crate::{
    Contract, Control, DEFAULT_DRAIN_NS, Refusal,
    quantity::{format_size, format_time},
    refusal::Objection,
};

/// Admits controls on a target, or refuses them.
///
/// Parameters that belong to no granted value are dropped; T of `eventual` and the drain of `bursty` take their defaults
/// where they are 0. Everything else is taken as it is: what cannot be done is refused, never ignored.
///
/// The offer passes this gate on the same capability with the default layout.
pub fn admit(
    effective: &Effective,
    layout: Option<&Layout>,
    capability: &Capability,
) -> std::result::Result<Contract, Refusal> {
    let asked = normal(effective);
    let objection = match objection(&asked, capability) {
        Some((objection, _)) => objection,
        None => match layout.and_then(|l| layout::objection(l, &asked, capability)) {
            Some(objection) => objection,
            None => return Ok(Contract::of(asked)),
        },
    };
    let offer = mend(asked.clone(), capability);
    Err(Refusal::new(objection, &asked, offer))
}

/// The nearest controls to `e` that pass: each objection is met by its own remedy, which only ever takes something away.
pub(crate) fn mend(e: Effective, capability: &Capability) -> Effective {
    let mut offer = normal(&e);
    while let Some((_, mended)) = objection(&offer, capability) {
        offer = normal(&mended);
    }
    offer
}

/// The same controls, in the one form in which they are compared.
pub(crate) fn normal(e: &Effective) -> Effective {
    let or_default = |n: u64, default: u64| if n == 0 { default } else { n };
    let mut n = e.clone();
    n.eventual_ns = match e.consistency {
        Consistency::Eventual => or_default(e.eventual_ns, limits::EVENTUAL_NS),
        _ => 0,
    };
    if e.atomicity != Atomicity::Unit {
        n.atomic_unit = 0;
    }
    n.drain_ns = match e.temporality {
        Temporality::Bursty => or_default(e.drain_ns, DEFAULT_DRAIN_NS),
        _ => 0,
    };
    if e.spatiality != Spatiality::Strided {
        (n.stride, n.block) = (0, 0);
    }
    n
}

/// The first thing that is wrong, and the controls with just that mended.
pub(crate) type Found = Option<(Objection, Effective)>;

pub(crate) fn objection(e: &Effective, capability: &Capability) -> Found {
    size(e)
        .or_else(|| spatiality(e))
        .or_else(|| persistence(e, capability))
        .or_else(|| atomicity(e, capability))
        .or_else(|| temporality(e, capability))
        .or_else(|| error(e, capability))
}

fn size(e: &Effective) -> Found {
    let swapped = |l: Limits| Limits { min: l.max, max: l.min };
    if let Some(objection) = crossed(Control::RequestSize, e.request_size) {
        return Some((objection, Effective { request_size: swapped(e.request_size), ..e.clone() }));
    }
    let objection = crossed(Control::CollectionSize, e.collection_size)?;
    Some((objection, Effective { collection_size: swapped(e.collection_size), ..e.clone() }))
}

/// Limits that no size fulfils.
pub(crate) fn crossed(control: Control, l: Limits) -> Option<Objection> {
    if l.max == 0 || l.min <= l.max {
        return None;
    }
    let (name, min, max) = (control.name(), format_size(l.min), format_size(l.max));
    Some(Objection::invalid(control, Clause::H1, format!("{name}={min}..{max} is empty: {min} is more than {max}")))
}

fn spatiality(e: &Effective) -> Found {
    if e.spatiality != Spatiality::Strided {
        return None;
    }
    let reason = match (e.stride, e.block) {
        (0, _) => "spatiality=strided has no stride: write strided(STRIDE,BLOCK)".to_owned(),
        (_, 0) => "spatiality=strided has no block: write strided(STRIDE,BLOCK)".to_owned(),
        (stride, block) if block > stride => {
            let (stride, block) = (format_size(stride), format_size(block));
            format!("spatiality=strided({stride},{block}) has blocks longer than their distance")
        }
        _ => return None,
    };
    let mended = Effective { spatiality: Spatiality::Any, ..e.clone() };
    Some((Objection::invalid(Control::Spatiality, Clause::H2, reason), mended))
}

fn persistence(e: &Effective, capability: &Capability) -> Found {
    if e.persistence <= capability.durability {
        return None;
    }
    let (clause, survives) = match e.persistence {
        Persistence::Volatile => (Clause::P1, "the end of the client"),
        Persistence::Process => (Clause::P2, "the end of the processes"),
        Persistence::Durable => (Clause::P3, "power loss"),
        Persistence::Replicated => (Clause::P4, "the loss of copies"),
    };
    let level = e.persistence.text();
    let reason = format!("persistence={level}: bytes on medium {} do not survive {survives}", capability.medium);
    let mended = Effective { persistence: capability.durability, ..e.clone() };
    Some((Objection::refused(Control::Persistence, clause, reason), mended))
}

fn atomicity(e: &Effective, capability: &Capability) -> Found {
    let most = capability.max_unit.min(limits::MAX_UNIT);
    let units = |n: u64| match most {
        0 => Effective { atomicity: Atomicity::None, atomic_unit: 0, ..e.clone() },
        most => Effective { atomicity: Atomicity::Unit, atomic_unit: n.clamp(1, most), ..e.clone() },
    };
    let n = format_size(e.atomic_unit);
    match e.atomicity {
        Atomicity::None => None,
        Atomicity::Unit if e.atomic_unit == 0 || e.atomic_unit > limits::MAX_UNIT => {
            let reason = format!("atomicity=unit({n}): a unit has from 1 byte to {}", format_size(limits::MAX_UNIT));
            Some((Objection::invalid(Control::Atomicity, Clause::M1, reason), units(e.atomic_unit)))
        }
        Atomicity::Unit if e.atomic_unit > most => {
            let reason = match most {
                0 => format!("atomicity=unit({n}): medium {} cannot change units as a whole", capability.medium),
                most => format!(
                    "atomicity=unit({n}): medium {} changes units of at most {} as a whole",
                    capability.medium,
                    format_size(most)
                ),
            };
            Some((Objection::refused(Control::Atomicity, Clause::M1, reason), units(e.atomic_unit)))
        }
        Atomicity::Publication if !capability.staging => {
            let reason =
                format!("atomicity=publication: medium {} cannot show staged changes in one step", capability.medium);
            Some((Objection::refused(Control::Atomicity, Clause::M1, reason), units(default_unit(e.request_size))))
        }
        Atomicity::Unit | Atomicity::Publication => None,
    }
}

/// n of `unit` where none is given: `request_size` when it is one value up to 1 MiB, else 4 KiB.
pub(crate) fn default_unit(request_size: Limits) -> u64 {
    request_size.single().filter(|n| *n <= limits::MAX_UNIT).unwrap_or(limits::DEFAULT_UNIT)
}

fn temporality(e: &Effective, capability: &Capability) -> Found {
    let medium = capability.medium;
    let reason = match e.temporality {
        Temporality::Once if !capability.once => format!("temporality=once: medium {medium} leaves traces in caches"),
        Temporality::Bursty if !capability.bursty => {
            format!("temporality=bursty: medium {medium} has no fast tier to drain within {}", format_time(e.drain_ns))
        }
        _ => return None,
    };
    let mended = Effective { temporality: Temporality::Multiple, ..e.clone() };
    Some((Objection::refused(Control::Temporality, Clause::H2, reason), mended))
}

fn error(e: &Effective, capability: &Capability) -> Found {
    if e.on_error != OnError::Rollback {
        return None;
    }
    let reason = if e.consistency == Consistency::Eventual {
        "error=rollback: at consistency=eventual there is no point at which all see all of it".to_owned()
    } else if !capability.staging {
        format!("error=rollback: medium {} cannot take changes back", capability.medium)
    } else {
        return None;
    };
    let mended = Effective { on_error: OnError::Stop, ..e.clone() };
    Some((Objection::refused(Control::Error, Clause::B3, reason), mended))
}

#[cfg(test)]
mod tests;
