//! Controls of an open, and of a batch: what holds already, and what may be asked beyond it.

use iov_types::{Atomicity, Capability, Clause, Controls, Effective, Limits, Mutability};

use super::{stray, with_defaults};
use crate::{
    Control, Refusal, admit,
    control::fill,
    refusal::{About, Objection},
    strength,
};

/// What an open gets, of a collection for which `collection` holds; the table is in [`crate::resolve`].
pub fn open(collection: &Effective, asked: &Controls, capability: &Capability) -> Result<Effective, Refusal> {
    narrow(collection, asked, capability, Asker::Open)
}

/// What the operations of a batch get on a handle for which `handle` holds; the table is in [`crate::resolve`].
pub fn batch(handle: &Effective, asked: &Controls, capability: &Capability) -> Result<Effective, Refusal> {
    narrow(handle, asked, capability, Asker::Batch)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asker {
    Open,
    Batch,
}

fn narrow(base: &Effective, asked: &Controls, capability: &Capability, asker: Asker) -> Result<Effective, Refusal> {
    let base = admit::normal(base);
    let wanted = {
        let mut merged = asked.clone();
        fill(&mut merged, &Controls::from(&base));
        with_defaults(&merged, base.persistence)
    };
    let mut first = stray(asked, &wanted);
    let mut object = |found: Option<Objection>| first = first.take().or(found);
    let mut granted = wanted.clone(); // consistency, point, temporality, spatiality and error stay as asked

    granted.concurrency = wanted.concurrency.max(base.concurrency);
    if asker == Asker::Batch && granted.concurrency != base.concurrency {
        granted.concurrency = base.concurrency;
        let reason = "concurrency=exclusive: a batch takes no hold; open the collection with it";
        object(Some(Objection::refused(Control::Concurrency, Clause::X1, reason)));
    }

    granted.mutability = base.mutability;
    if strength::mutability(wanted.mutability) > strength::mutability(base.mutability) {
        let clause = if wanted.mutability == Mutability::Append { Clause::M4 } else { Clause::M2 };
        object(Some(fixed(Control::Mutability, clause, &wanted, &base)));
    }

    granted.atomicity = base.atomicity;
    granted.atomic_unit = match atomic_unit(&wanted, &base) {
        Some(n) => n,
        None => {
            object(Some(fixed(Control::Atomicity, Clause::M1, &wanted, &base)));
            base.atomic_unit
        }
    };

    granted.persistence = wanted.persistence.max(base.persistence);

    granted.request_size = both(Control::RequestSize, wanted.request_size, base.request_size, &mut object);
    granted.collection_size = both(Control::CollectionSize, wanted.collection_size, base.collection_size, &mut object);

    let granted = admit::normal(&granted);
    match first.or_else(|| admit::objection(&granted, capability).map(|(objection, _)| objection)) {
        Some(objection) => Err(Refusal::new(objection, &wanted, mend(granted, &base, capability))),
        None => Ok(granted),
    }
}

/// The nearest controls that pass the gate, and that may be asked for here: what the gate would offer, unless that is
/// not stronger than the base; then the base's.
fn mend(granted: Effective, base: &Effective, capability: &Capability) -> Effective {
    let mut offer = granted;
    while let Some((objection, mended)) = admit::objection(&offer, capability) {
        match objection.about {
            About::Control(c) if !strength::at_least(c, &mended, base) && !c.same(&offer, base) => {
                c.put(base, &mut offer);
            }
            _ => offer = admit::normal(&mended),
        }
    }
    offer
}

/// The unit to grant (0 where the kind has none); `None` if what is wanted is not weaker than or equal to the base, nor
/// a multiple of its unit.
fn atomic_unit(wanted: &Effective, base: &Effective) -> Option<u64> {
    match (wanted.atomicity, base.atomicity) {
        (Atomicity::Unit, Atomicity::Unit) => {
            let (n, of_base) = (wanted.atomic_unit.max(1), base.atomic_unit.max(1));
            if n.is_multiple_of(of_base) { Some(n) } else { of_base.is_multiple_of(n).then_some(of_base) }
        }
        (w, b) if strength::atomicity(w) <= strength::atomicity(b) => Some(base.atomic_unit),
        _ => None,
    }
}

fn fixed(control: Control, clause: Clause, wanted: &Effective, base: &Effective) -> Objection {
    let (name, wanted, base) = (control.name(), control.value(wanted), control.value(base));
    let reason = format!("{name}={wanted}: it belongs to the collection, which was created with {base}");
    Objection::refused(control, clause, reason)
}

/// The part of both ranges; the base where there is none.
fn both(control: Control, wanted: Limits, base: Limits, object: &mut impl FnMut(Option<Objection>)) -> Limits {
    if let Some(objection) = admit::crossed(control, wanted) {
        object(Some(objection));
        return base;
    }
    strength::intersect(wanted, base).unwrap_or_else(|| {
        let reason = format!("{}: the collection's range and the one asked for have no size in common", control.name());
        object(Some(Objection::refused(control, Clause::H1, reason)));
        base
    })
}
