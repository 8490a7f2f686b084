//! A catalog whose answers are listened to: what they say of sealed collections is kept, and what changes is forgotten.

use std::sync::Arc;

use iov_store::{Answer, Catalog, CatalogCapability, OnAnswer, OpCx};
use iov_types::{
    Controls, EntryKind, Kind, Uuid, Which,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use super::{Asking, Change, Inner, Records, change, only_reads};
use crate::session::lock;

/// The catalog of a session that keeps records.
pub(crate) struct Watched {
    inner: Arc<dyn Catalog>,
    records: Arc<Records>,
}

/// What there is to hear in the answer to a submission.
#[derive(Default)]
struct Note {
    asking: Option<Asking>,
    /// Opens, with what they asked for.
    opens: Vec<(usize, Controls)>,
    /// Operations that would hear if a known collection is gone.
    looks: Vec<(usize, Uuid)>,
    changes: Vec<Change>,
    /// Records renewed along with it.
    due: Vec<(Uuid, Uuid)>,
}

impl Note {
    fn is_empty(&self) -> bool {
        self.opens.is_empty() && self.looks.is_empty() && self.changes.is_empty() && self.due.is_empty()
    }
}

/// Whether something may be asked along with a submission. A lock that is to wait is one of its own; with the end of a
/// session everything ends.
fn takes_more(ops: &[CatalogOp], how: &Submission) -> bool {
    *how == Submission::Each && !ops.iter().any(|op| matches!(op, CatalogOp::Lock { .. } | CatalogOp::Goodbye))
}

impl Watched {
    /// Listens to a catalog.
    pub(crate) fn new(inner: Arc<dyn Catalog>, records: Arc<Records>) -> Watched {
        Watched { inner, records }
    }

    fn note(&self, ops: &[CatalogOp], how: &Submission) -> Note {
        let mut note = Note::default();
        if *how == Submission::DryRun {
            return note;
        }
        // In a batch that is applied as a whole nothing is learned: who repeats it hears what was true the first time.
        let learns = !matches!(how, Submission::All { .. });
        let opens = learns && ops.iter().any(|op| matches!(op, CatalogOp::Open { kind: EntryKind::Collection, .. }));
        let asks = opens || !lock(&self.records.inner).known.is_empty();
        // Not under the lock: whoever connects anew may be waiting for that.
        let connection = asks.then(|| self.inner.connection());
        let mut inner = lock(&self.records.inner);
        for (i, op) in ops.iter().enumerate() {
            match op {
                CatalogOp::Open { which, kind: EntryKind::Collection, controls, .. } => {
                    if learns && only_reads(controls) {
                        note.opens.push((i, controls.clone()));
                    }
                    if let Which::Uuid(uuid) = which {
                        note.look(&inner, i, *uuid);
                    }
                }
                CatalogOp::Stat { uuid, .. } | CatalogOp::Read { uuid, .. } | CatalogOp::MetaList { uuid, .. } => {
                    note.look(&inner, i, *uuid);
                }
                op => {
                    let change = change(op).filter(|change| note.changes.last() != Some(change));
                    note.changes.extend(change);
                }
            }
        }
        // Before it is sent and once more when it is answered: nobody finds what it may have changed by then.
        note.changes.iter().for_each(|change| self.records.forget_in(&mut inner, *change));
        let Some(connection) = connection else { return note };
        if takes_more(ops, how) {
            let room = self.inner.capability().max_ops.saturating_sub(ops.len());
            note.due = self.records.due(&mut inner, connection, room);
        }
        if !note.opens.is_empty() || !note.due.is_empty() {
            note.asking = Some(self.records.asking(&mut inner, connection));
        }
        note
    }
}

impl Note {
    fn look(&mut self, inner: &Inner, i: usize, uuid: Uuid) {
        if inner.known.contains_key(&uuid) {
            self.looks.push((i, uuid));
        }
    }

    fn answered(self, records: &Records, asked: usize, answer: &mut Answer) {
        let mut inner = lock(&records.inner);
        self.changes.iter().for_each(|change| records.forget_in(&mut inner, *change));
        if let Ok(replies) = answer {
            // Where nothing was added, an answer may have more parts than were asked for.
            let at = if self.due.is_empty() { replies.len() } else { asked.min(replies.len()) };
            let renewals = replies.split_off(at);
            for (i, uuid) in self.looks {
                if matches!(replies.get(i), Some(Err(e)) if e.kind() == Kind::NotFound) {
                    records.forget_in(&mut inner, Change::One(uuid));
                }
            }
            if let Some(asking) = &self.asking {
                for (i, controls) in self.opens {
                    if let Some(Ok(CatalogReply::Opened(opened))) = replies.get(i) {
                        records.learn(&mut inner, asking, &controls, opened);
                    }
                }
                for ((ws, uuid), reply) in self.due.into_iter().zip(renewals) {
                    records.renewed(&mut inner, asking, ws, uuid, reply);
                }
            }
        }
        if self.asking.is_some() {
            inner.answered();
        }
    }
}

impl Catalog for Watched {
    fn capability(&self) -> &CatalogCapability {
        self.inner.capability()
    }

    fn submit(&self, cx: &OpCx, mut ops: Vec<CatalogOp>, how: Submission, done: OnAnswer) {
        let note = self.note(&ops, &how);
        if note.is_empty() {
            return self.inner.submit(cx, ops, how, done);
        }
        let asked = ops.len();
        ops.extend(note.due.iter().map(|(ws, uuid)| CatalogOp::Stat { ws: *ws, uuid: *uuid }));
        let records = self.records.clone();
        let heard = Box::new(move |mut answer: Answer| {
            note.answered(&records, asked, &mut answer);
            done(answer);
        });
        self.inner.submit(cx, ops, how, heard);
    }

    fn drive(&self, timeout_ns: i64) -> bool {
        self.inner.drive(timeout_ns)
    }

    fn connection(&self) -> u64 {
        self.inner.connection()
    }
}
