//! From what was asked, and by whom else, to what holds.
//!
//! At a **create**, what was asked goes before the workspace's defaults, and those before the defaults of the clauses.
//! An **open** or a **batch** starts from what holds already:
//!
//! | control | asked by an open or batch |
//! | --- | --- |
//! | consistency | as asked; weaker is for reading only: [`writes_allowed`] then says no |
//! | concurrency | the stronger of both; a batch cannot take a hold, so `exclusive` is refused there (X1) |
//! | mutability | the collection's; stronger is refused (M2, M4) |
//! | atomicity | the collection's kind; a unit that is a multiple of its unit is granted, one that divides it is given stronger; anything else is refused (M1) |
//! | persistence | the stronger of both |
//! | size limits | the part that both ranges have; none is refused (H1) |
//! | point, temporality, spatiality, error | as asked |
//!
//! "Stronger" is the order of [`crate::strength`]. What a capability cannot give is refused at the end by the same
//! judgement as in [`crate::admit`], so that whatever these functions return is admitted.

mod create;
mod open;

use iov_types::{
    Atomicity, Clause, Concurrency, Consistency, Controls, Effective, Error, Mutability, OnError, Persistence, Point,
    Result, Spatiality, Temporality,
};

pub use create::create;
pub use open::{batch, open};

use crate::{Control, admit, refusal::Objection, strength, text};

/// Whether a handle that holds `handle` may change a collection of which `collection` holds. A level that is too weak for
/// that is a refusal that names the clause of the collection's level and offers it.
pub fn writes_allowed(collection: &Effective, handle: &Effective) -> Result<()> {
    if strength::at_least(Control::Consistency, handle, collection) {
        return Ok(());
    }
    let (asked, needed) = (Control::Consistency.value(handle), text::format(&Control::Consistency.only(collection)));
    let clause = match collection.consistency {
        Consistency::Sequential => Clause::C1,
        Consistency::Commit => Clause::C2,
        Consistency::Session => Clause::C3,
        Consistency::Eventual => Clause::C4,
    };
    let detail = format!(
        "opened for reading only: {asked} is weaker than the collection's level, and its writes would be seen later than \
         promised; offer: {needed}"
    );
    Err(Error::refused(clause, detail))
}

/// The defaults of the clauses, with these controls over them; the atomic unit comes from the request size.
fn with_defaults(c: &Controls, persistence: Persistence) -> Effective {
    let atomicity = c.atomicity.unwrap_or(Atomicity::None);
    let atomic_unit = match c.atomic_unit {
        0 if atomicity == Atomicity::Unit => admit::default_unit(c.request_size),
        n => n,
    };
    admit::normal(&Effective {
        consistency: c.consistency.unwrap_or(Consistency::Sequential),
        eventual_ns: c.eventual_ns,
        concurrency: c.concurrency.unwrap_or(Concurrency::Shared),
        mutability: c.mutability.unwrap_or(Mutability::Overwrite),
        atomicity,
        atomic_unit,
        persistence: c.persistence.unwrap_or(persistence),
        point: c.point.unwrap_or(Point::Close),
        temporality: c.temporality.unwrap_or(Temporality::Multiple),
        drain_ns: c.drain_ns,
        spatiality: c.spatiality.unwrap_or(Spatiality::Any),
        stride: c.stride,
        block: c.block,
        request_size: c.request_size,
        collection_size: c.collection_size,
        on_error: c.on_error.unwrap_or(OnError::Continue),
    })
}

/// A parameter that was asked for, while the value it belongs to is not what would hold: somebody expects something that
/// would be ignored.
fn stray(asked: &Controls, wanted: &Effective) -> Option<Objection> {
    let cases = [
        (asked.eventual_ns != 0 && wanted.consistency != Consistency::Eventual, Control::Consistency, Clause::C4),
        (asked.atomic_unit != 0 && wanted.atomicity != Atomicity::Unit, Control::Atomicity, Clause::M1),
        (asked.drain_ns != 0 && wanted.temporality != Temporality::Bursty, Control::Temporality, Clause::H2),
        (
            (asked.stride != 0 || asked.block != 0) && wanted.spatiality != Spatiality::Strided,
            Control::Spatiality,
            Clause::H2,
        ),
    ];
    let (_, control, clause) = cases.into_iter().find(|(is_stray, ..)| *is_stray)?;
    let (parameter, value) = match control {
        Control::Consistency => ("the time of eventual", "eventual"),
        Control::Atomicity => ("the size of unit", "unit"),
        Control::Temporality => ("the deadline of bursty", "bursty"),
        _ => ("stride or block of strided", "strided"),
    };
    let (name, holds) = (control.name(), control.value(wanted));
    let reason = format!("{parameter} is set, but {name} is {holds}: ask for {name}={value} too, or leave it out");
    Some(Objection::invalid(control, clause, reason))
}

#[cfg(test)]
mod tests;
