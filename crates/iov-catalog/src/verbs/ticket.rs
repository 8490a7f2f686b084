//! Ticket: leave to work on the objects of a collection, which targets of other daemons ask for (A1).

use iov_types::{Error, Right, SignedTicket, State, Ticket, Uuid, catalog::CatalogReply, limits};

use super::Reply;
use crate::exec::{Exec, holds::fenced};

pub(crate) fn ticket(x: &mut Exec<'_>, uuid: Uuid) -> Reply {
    if uuid.is_nil() {
        return Err(Error::invalid("a ticket is for one collection, which has a UUID"));
    }
    let session = x.cx.caller.session;
    let entry = x.entry(uuid);
    let slot = entry.as_ref().and_then(|entry| entry.slot(session)).cloned();
    // A batch stages its bytes before it opens or makes anything. What it stages is nowhere to be seen until the catalog publishes
    // it, which knows whether it may.
    let staging = if x.core.is_single_user() { Ticket::WRITE | Ticket::STAGE } else { 0 };
    let (ws, rights, epoch) = match (entry, slot) {
        (Some(entry), Some(slot)) => {
            if slot.fenced {
                return Err(fenced());
            }
            let at = x.workspace(entry.ws, Right::Read)?;
            let sealed = x.usable_facts(at, uuid).is_ok_and(|facts| facts.state == State::Sealed);
            let writes = slot.writers > 0 && x.has_right(at, Right::Write) && !x.is_expired(at);
            let more = match (sealed, writes) {
                (true, _) => 0,
                (_, true) => Ticket::WRITE,
                _ => staging,
            };
            (entry.ws, Ticket::READ | more, slot.epoch)
        }
        (Some(entry), None) if staging != 0 => (entry.ws, Ticket::READ | staging, 0),
        (None, None) if staging != 0 => (Uuid::NIL, Ticket::READ | staging | Ticket::NEW, 0),
        _ => return Err(Error::stale("the session has not got the collection open: open it anew")),
    };
    let expires_ns = x.now_ns.saturating_add(limits::TICKET_NS as i64);
    let store = x.core.store_uuid();
    let ticket = Ticket { store, collection: uuid, ws, session, rights, epoch, expires_ns };
    let bytes = x.core.ticket_key()?.sign(&ticket);
    let writable = ticket.gives(Ticket::WRITE);
    Ok(CatalogReply::Ticket(Box::new(SignedTicket { bytes, lasts_ns: limits::TICKET_NS, writable })))
}
