//! A catalog whose answers are listened to: what they say of sealed collections is kept, and what changes is forgotten.

use std::{os::fd::OwnedFd, sync::Arc};

use iov_store::{Answer, Catalog, CatalogCapability, ChangeView, OnAnswer, OpCx, Route};
use iov_types::{
    Controls, Counters, EntryKind, Kind, Uuid, Which,
    catalog::{CatalogOp, CatalogReply, Submission},
};

use super::{Asking, Change, Due, Inner, Records, change, only_reads};
use crate::session::lock;

/// Most records renewed at once: whoever has asked for something else waits behind them, and those left over come next.
const RENEWALS: usize = 1024;

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
}

impl Note {
    fn is_empty(&self) -> bool {
        self.opens.is_empty() && self.looks.is_empty() && self.changes.is_empty()
    }
}

impl Watched {
    /// Listens to a catalog.
    pub(crate) fn new(inner: Arc<dyn Catalog>, records: Arc<Records>) -> Watched {
        Watched { inner, records }
    }

    fn note(&self, ops: &[CatalogOp], how: &Submission) -> Note {
        let mut note = Note::default();
        // In a batch that is applied as a whole nothing is learned: who repeats it hears what was true the first time.
        let learns = !matches!(how, Submission::All { .. });
        let opens = learns && ops.iter().any(|op| matches!(op, CatalogOp::Open { kind: EntryKind::Collection, .. }));
        // Not under the lock: whoever connects anew may be waiting for that.
        let connection = opens.then(|| self.inner.connection());
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
                CatalogOp::Stat { uuid, .. }
                | CatalogOp::Look { which: Which::Uuid(uuid), .. }
                | CatalogOp::Read { uuid, .. }
                | CatalogOp::MetaList { uuid, .. } => note.look(&inner, i, *uuid),
                op => {
                    let change = change(op).filter(|change| note.changes.last() != Some(change));
                    note.changes.extend(change);
                }
            }
        }
        // Before it is sent and once more when it is answered: nobody finds what it may have changed by then.
        note.changes.iter().for_each(|change| self.records.forget_in(&mut inner, *change));
        if let Some(connection) = connection.filter(|_| !note.opens.is_empty()) {
            note.asking = Some(self.records.asking(&mut inner, connection));
        }
        note
    }

    /// Has records renewed, if it is time for that.
    fn renew(&self, cx: &OpCx) {
        if lock(&self.records.inner).known.is_empty() {
            return;
        }
        let connection = self.inner.connection();
        let mut inner = lock(&self.records.inner);
        let due = self.records.due(&mut inner, connection, self.inner.capability().max_ops.min(RENEWALS));
        if due.is_empty() {
            return;
        }
        let asking = self.records.asking(&mut inner, connection);
        drop(inner);
        let records = self.records.clone();
        Counters::add(&records.counters.metadata_requests, 1);
        // Not of the batch that it goes along with: that one's answer may be remembered.
        let cx = OpCx { batch: Uuid::NIL, ..cx.clone() };
        let opens = due.iter().map(Due::open).collect();
        let heard = Box::new(move |answer: Answer| {
            let mut inner = lock(&records.inner);
            if let Ok(replies) = answer {
                let mut replies = replies.into_iter();
                due.into_iter().for_each(|due| records.renewed(&mut inner, &asking, due, replies.next()));
            }
            inner.answered();
        });
        self.inner.submit(&cx, opens, Submission::DryRun, heard);
    }
}

impl Note {
    fn look(&mut self, inner: &Inner, i: usize, uuid: Uuid) {
        if inner.known.contains_key(&uuid) {
            self.looks.push((i, uuid));
        }
    }

    fn answered(self, records: &Records, answer: &Answer) {
        let mut inner = lock(&records.inner);
        self.changes.iter().for_each(|change| records.forget_in(&mut inner, *change));
        if let Ok(replies) = answer {
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

    fn submit(&self, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission, done: OnAnswer) {
        // What is only tried changes nothing, and nobody opens anything by it.
        if how == Submission::DryRun {
            return self.inner.submit(cx, ops, how, done);
        }
        let note = self.note(&ops, &how);
        // First, so that it is answered by the time that anybody waits for.
        self.renew(cx);
        if note.is_empty() {
            return self.inner.submit(cx, ops, how, done);
        }
        let records = self.records.clone();
        let heard = Box::new(move |answer: Answer| {
            note.answered(&records, &answer);
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

    fn changes(&self) -> Option<Arc<ChangeView>> {
        self.inner.changes()
    }

    fn routes(&self, cx: &OpCx) -> Vec<Route> {
        self.inner.routes(cx)
    }

    fn watch(&self, set: &OwnedFd) {
        self.inner.watch(set);
    }
}
