//! Targets of other daemons: how they come into the store, and by what they know what the catalog allows (A1).

use std::sync::Arc;

use bytes::Bytes;
use iov_store::{Backend, MetadataStore, Room, Txn, seam};
use iov_types::{Capability, Error, Result, Target, Ticket, Uuid};
use iov_wire::ticket::TicketKey;

use crate::{Service, core::Core, keys};

impl Core {
    /// What tickets are signed with; it is made when it is first needed.
    pub(crate) fn ticket_key(&self) -> Result<TicketKey> {
        let mut key = self.lock_ticket_key();
        if let Some(key) = &*key {
            return Ok(key.clone());
        }
        let found = find(self.store())?;
        Ok(key.insert(found).clone())
    }
}

fn find(store: &dyn MetadataStore) -> Result<TicketKey> {
    if let Some(record) = store.get(&[keys::TICKETS])?.pop().flatten() {
        let bytes = record.value[..].try_into();
        return bytes.map(TicketKey::new).map_err(|_| Error::corrupt("the key of tickets is none: check the store"));
    }
    let mut bytes = [0; 32];
    seam::random_bytes(&mut bytes);
    let writes = vec![(keys::TICKETS.to_vec(), Some(Bytes::copy_from_slice(&bytes)))];
    for commit in store.commit_with(vec![Txn { guards: Vec::new(), writes }], Room::Kept)? {
        commit?;
    }
    Ok(TicketKey::new(bytes))
}

impl Service {
    /// What tickets are signed with: for those who check them, and nobody else.
    pub fn ticket_key(&self) -> Result<TicketKey> {
        self.core.ticket_key()
    }

    /// A ticket for everything, of the session in which the catalog itself asks targets.
    pub fn own_ticket(&self, session: Uuid) -> Result<Vec<u8>> {
        let rights = Ticket::READ | Ticket::WRITE | Ticket::CATALOG;
        let store = self.store_uuid();
        let ticket = Ticket { store, session, rights, expires_ns: i64::MAX, ..Ticket::default() };
        Ok(self.core.ticket_key()?.sign(&ticket))
    }

    /// A target of another daemon is there. Its number, which is always the same.
    pub fn number_target(&self, target: Target) -> Result<u32> {
        self.core.map().join(self.core.store(), target)
    }

    /// The way to a target, and what it can do.
    pub fn reach_target(&self, number: u32, way: Arc<dyn Backend>, capability: Capability) {
        self.core.map().reach_by(number, way, capability);
    }

    /// What can be done somewhere in the store.
    pub fn capability_anywhere(&self) -> Capability {
        self.core.capability_anywhere()
    }

    /// Goes on with what a target could not do before: it is there now.
    pub fn go_on(&self) {
        let cx = self.own_cx(Uuid::NIL);
        let mut writer = self.core.writer();
        if writer.closed {
            return;
        }
        self.settle_now(&mut writer, &cx);
        drop(writer);
        if !self.core.in_grace() {
            // What cannot be sealed now is before long.
            let _ = self.seal_all_parted();
        }
    }
}
