//! Whether a client may do with an object what it asks for (A1): the catalog knows if it is here; else tickets tell.

use std::collections::HashMap;

use iov_store::OpCx;
use iov_types::{Clause, Error, ObjectId, ObjectOp, ObjectVerb, Persistence, Result, Ticket, Uuid};

use crate::{Bound, Server, client::Client, facts::Facts, served::Served};

/// What a request may do, until it is answered.
pub(crate) enum Leave<'a> {
    /// What the catalog says, when it is asked.
    Catalog(&'a iov_catalog::Service),
    /// What its tickets say, by their collections.
    Tickets(HashMap<Uuid, Ticket>),
    /// It is the catalog that asks, as its ticket says.
    Own,
}

/// Which verbs a client may send: the catalog's own are not among them, since it checks what they need (A1).
fn for_clients(verb: &ObjectVerb) -> bool {
    matches!(
        verb,
        ObjectVerb::Write { .. }
            | ObjectVerb::Read { .. }
            | ObjectVerb::Append
            | ObjectVerb::Truncate { .. }
            | ObjectVerb::Punch(_)
            | ObjectVerb::Allocate { .. }
            | ObjectVerb::Copy { .. }
            | ObjectVerb::Sync
            | ObjectVerb::Discard { .. }
            | ObjectVerb::Stat
            | ObjectVerb::Extents { .. }
    )
}

fn not_for_clients(verb: &ObjectVerb) -> Error {
    Error::denied(format!("a client may not send {:?} itself", verb.kind())).with_clause(Clause::A1)
}

fn gone() -> Error {
    Error::lost("the target has nothing of this collection any more: it was kept in memory, or its medium was changed")
        .with_clause(Clause::P1)
}

impl<'a> Leave<'a> {
    /// What a request with these tickets may do.
    pub(crate) fn of(facts: &'a Facts, client: &Client, tickets: &[Vec<u8>]) -> Result<Leave<'a>> {
        match facts {
            Facts::Catalog(catalog) => Ok(Leave::Catalog(catalog)),
            Facts::Elsewhere(bound) => {
                let mut all = HashMap::with_capacity(tickets.len());
                for signed in tickets {
                    let ticket = Bound::check(bound, signed, client.of)?;
                    if ticket.gives(Ticket::CATALOG) {
                        return Ok(Leave::Own);
                    }
                    all.insert(ticket.collection, ticket);
                }
                Ok(Leave::Tickets(all))
            }
        }
    }

    /// Whether it is the catalog that asks.
    pub(crate) fn is_catalog(&self) -> bool {
        matches!(self, Leave::Own)
    }

    fn ticket(&self, collection: Uuid, rights: u32) -> Result<&Ticket> {
        let tickets = if let Leave::Tickets(tickets) = self { Some(tickets) } else { None };
        let ticket = tickets.and_then(|tickets| tickets.get(&collection)).ok_or_else(|| {
            Error::denied(
                "without a ticket of the catalog nothing is done with an object: update this program's library",
            )
            .with_clause(Clause::A1)
        })?;
        if !ticket.gives(rights) {
            let e = Error::denied("the ticket does not give leave to change bytes: open the collection for writing");
            return Err(e.with_clause(Clause::A1));
        }
        Ok(ticket)
    }

    /// Fails for a verb that is not for whoever asks.
    pub(crate) fn check_verb(&self, verb: &ObjectVerb) -> Result<()> {
        if for_clients(verb) || self.is_catalog() { Ok(()) } else { Err(not_for_clients(verb)) }
    }

    /// Lets an operation in, and completes what it demands. Bytes that live in their record move to the target first.
    pub(crate) fn admit(&self, client: &Client, served: &Served, cx: &OpCx, op: &mut ObjectOp) -> Result<()> {
        match self {
            Leave::Catalog(catalog) => at_target(catalog, served, cx, op),
            Leave::Own => match op.verb {
                ObjectVerb::Freeze { stage } => {
                    let volatile = served.target.capability().durability == Persistence::Volatile;
                    served.stages.freeze(client.of, (stage, op.object), &*served.grants, volatile)
                }
                _ => Ok(()),
            },
            Leave::Tickets(_) => self.by_ticket(served, cx, op),
        }
    }

    fn by_ticket(&self, served: &Served, cx: &OpCx, op: &mut ObjectOp) -> Result<()> {
        if let ObjectVerb::Copy { source, .. } = op.verb {
            self.ticket(source.collection, Ticket::READ)?;
        }
        if let ObjectVerb::Discard { stage } = op.verb
            && served.stages.is_held(stage)
        {
            let e =
                Error::conflict("the catalog is publishing the batch, or drops it: its session has no say any more");
            return Err(e.with_clause(Clause::B3));
        }
        let changes = op.verb.changes_bytes();
        let rights = if changes { Ticket::WRITE } else { Ticket::READ };
        let ticket = self.ticket(op.object.collection, rights)?;
        if !changes {
            return Ok(());
        }
        let only_staged = ticket.gives(Ticket::STAGE);
        if only_staged && op.demand.stage.is_none() {
            let e = Error::denied("the session has not got the collection open: it may change it in a batch only");
            return Err(e.with_clause(Clause::A1));
        }
        if !ticket.gives(Ticket::NEW) && !served.grants.has_object(cx, op.object, op.demand.stage)? {
            return Err(gone());
        }
        // Whatever it says of itself: what it held when it got the ticket (X1).
        op.demand.epoch = op.demand.epoch.max(ticket.epoch);
        op.demand.domain = (!ticket.ws.is_nil()).then_some(ticket.ws);
        Ok(())
    }

    /// Lets a request for direct access in: in whose memory a writer's bytes are, and under which epoch it writes. What a ticket
    /// allows, the grant allows until it is taken back.
    pub(crate) fn to_grant(
        &self,
        served: &Served,
        cx: &OpCx,
        object: ObjectId,
        write: bool,
    ) -> Result<(Option<Uuid>, u64)> {
        match self {
            Leave::Catalog(catalog) => {
                catalog.check_object(object, served.number)?;
                catalog.at_target(cx, object.collection)?;
                if write {
                    may_change(catalog, served, cx, object, None)?;
                }
                Ok((catalog.domain(object.collection).filter(|_| write), 0))
            }
            Leave::Own => Err(Error::denied("the catalog moves no bytes by itself").with_clause(Clause::A1)),
            Leave::Tickets(_) if !write => self.ticket(object.collection, Ticket::READ).map(|_| (None, 0)),
            Leave::Tickets(_) => {
                let ticket = self.ticket(object.collection, Ticket::WRITE)?;
                if ticket.gives(Ticket::STAGE) {
                    let e =
                        Error::unsupported("no direct access to what may be changed in a batch only: use the socket");
                    return Err(e.with_clause(Clause::G6));
                }
                if !ticket.gives(Ticket::NEW) && !served.grants.has_object(cx, object, None)? {
                    return Err(gone());
                }
                Ok(((!ticket.ws.is_nil()).then_some(ticket.ws), ticket.epoch))
            }
        }
    }

    /// After nothing was found of an object: fails if there must be something.
    pub(crate) fn check_there(&self, served: &Served, cx: &OpCx, object: ObjectId) -> Result<()> {
        match self {
            Leave::Catalog(catalog) => catalog.check_there(cx, object.collection),
            Leave::Own => Ok(()),
            Leave::Tickets(_) if served.grants.has_object(cx, object, None)? => Ok(()),
            Leave::Tickets(_) => match self.ticket(object.collection, Ticket::NEW) {
                // There is none yet.
                Ok(_) => Ok(()),
                Err(_) => Err(gone()),
            },
        }
    }
}

fn at_target(catalog: &iov_catalog::Service, served: &Served, cx: &OpCx, op: &mut ObjectOp) -> Result<()> {
    catalog.check_object(op.object, served.number)?;
    match op.verb {
        // Of these there is nothing to be done for what no target has.
        ObjectVerb::Sync | ObjectVerb::Discard { .. } => {}
        ObjectVerb::Copy { source, .. } => {
            catalog.check_object(source, served.number)?;
            catalog.at_target(cx, source.collection)?;
            catalog.at_target(cx, op.object.collection)?;
        }
        _ => catalog.at_target(cx, op.object.collection)?,
    }
    if op.verb.changes_bytes() {
        may_change(catalog, served, cx, op.object, op.demand.stage)?;
        op.demand.domain = catalog.domain(op.object.collection);
    }
    Ok(())
}

/// Fails for what would change bytes that are gone: in place of their file there must be no new one.
pub(crate) fn may_change(
    catalog: &iov_catalog::Service,
    served: &Served,
    cx: &OpCx,
    object: ObjectId,
    stage: Option<Uuid>,
) -> Result<()> {
    if served.grants.has_object(cx, object, stage)? { Ok(()) } else { catalog.check_there(cx, object.collection) }
}

impl Server {
    /// What a request with these tickets may do.
    pub(crate) fn leave(&self, client: &Client, tickets: &[Vec<u8>]) -> Result<Leave<'_>> {
        Leave::of(&self.facts, client, tickets)
    }
}
