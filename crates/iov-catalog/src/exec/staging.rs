//! Unsealed collections, and what becomes of them when their writer dies (M2).
//!
//! While somebody may write one there is an entry for it in the list of abandoned ones, under a time that never comes: a
//! catalog that is opened after a crash finds there whose writers have died with it.

use bytes::Bytes;
use iov_types::{Place, State, Uuid};
use iov_wire::Wire;

use super::Exec;
use crate::{
    keys,
    record::{Record, RemovedRecord},
    state::Entry,
};

impl Exec<'_> {
    /// A collection has a writer: takes note of it if it is in staging, and was not before.
    pub(crate) fn note_writer(&mut self, ws: Uuid, uuid: Uuid, state: State, entry: &mut Entry) {
        // A medium that forgets everything with the catalog leaves nothing to find.
        if state == State::Staging && !entry.staging && self.core.incarnation_to_record() != 0 {
            entry.staging = true;
            self.put(keys::in_staging(uuid), Bytes::from(RemovedRecord { ws, place: Place::FIRST }.to_bytes()));
        }
    }

    /// The last writer may have closed it in order: then it just waits for the next. One that died may be told of yet.
    pub(crate) fn forget_writer(&mut self, uuid: Uuid, entry: &mut Entry) {
        if entry.staging && !entry.has_writers() && !entry.has_died() {
            entry.staging = false;
            self.delete(keys::in_staging(uuid));
        }
    }

    /// Notes that the writer of an unsealed collection died.
    pub(crate) fn abandon(&mut self, ws: Uuid, uuid: Uuid, record: &mut Record) {
        record.abandoned_ns = self.now_ns.max(1);
        self.put(
            keys::abandoned(record.abandoned_ns, uuid),
            Bytes::from(RemovedRecord { ws, place: Place::FIRST }.to_bytes()),
        );
        self.delete(keys::in_staging(uuid));
    }

    /// It has a writer again, is sealed, or goes: whatever the list says of it is over.
    pub(crate) fn not_abandoned(&mut self, uuid: Uuid, record: &mut Record) {
        if record.abandoned_ns != 0 {
            self.delete(keys::abandoned(record.abandoned_ns, uuid));
            record.abandoned_ns = 0;
        }
    }
}
