//! The target as a session sees it: what a daemon does between a client and its target. Bytes that live in their record are
//! read from there, and of those that should be at the target and are not the catalog tells (P1, P2).

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, RwLock},
};

use iov_catalog::Service;
use iov_store::{Backend, Memory, OpCx, Sink, Submitted, ask, run_one};
use iov_types::{
    Capability, Demand, Error, Evidence, Extent, ExtentKind, ObjectId, ObjectOp, ObjectVerb, Range, Result,
    catalog::{CatalogOp, CatalogReply, Submission},
};

/// More than any collection has that lives in its record.
const INLINE_BYTES: u64 = 1 << 20;

/// In front of a target.
pub(crate) struct Front {
    catalog: Arc<Service>,
    targets: Arc<dyn Backend>,
    /// Objects that were found at the target, which stay there.
    there: RwLock<HashSet<ObjectId>>,
}

/// What has no object.
enum Elsewhere {
    /// Its bytes.
    InRecord(Vec<u8>),
    /// It is empty, or nobody knows of it.
    Nowhere,
}

impl Front {
    pub(crate) fn new(catalog: Arc<Service>, targets: Arc<dyn Backend>) -> Front {
        Front { catalog, targets, there: RwLock::default() }
    }

    /// Whether the target has the object; else where its bytes are.
    fn find(&self, cx: &OpCx, object: ObjectId) -> Result<Option<Elsewhere>> {
        if self.there.read().unwrap_or_else(PoisonError::into_inner).contains(&object) {
            return Ok(None);
        }
        let stat = ObjectOp { object, verb: ObjectVerb::Stat, demand: Demand::default() };
        let found = run_one(&*self.targets, cx, stat, Memory::default())?;
        if found.size > 0 || found.mtime_ns > 0 {
            self.there.write().unwrap_or_else(PoisonError::into_inner).insert(object);
            return Ok(None);
        }
        let uuid = object.collection;
        let Some(ws) = self.catalog.domain(uuid) else { return Ok(Some(Elsewhere::Nowhere)) };
        let read = CatalogOp::Read { ws, uuid, offset: 0, len: INLINE_BYTES };
        match ask(&*self.catalog, cx, vec![read], Submission::Each)?.pop() {
            Some(Ok(CatalogReply::Bytes(bytes))) => Ok(Some(Elsewhere::InRecord(bytes))),
            Some(Err(e)) => Err(e),
            _ => self.catalog.check_there(cx, uuid).map(|()| Some(Elsewhere::Nowhere)),
        }
    }
}

fn answer(verb: &ObjectVerb, bytes: &[u8], memory: &mut Memory) -> Result<Evidence> {
    let size = bytes.len() as u64;
    let mut evidence = Evidence { size, ..Evidence::default() };
    match verb {
        ObjectVerb::Read { offset } => {
            let from = (*offset).min(size) as usize;
            let out = memory.bytes_mut();
            let len = out.len().min(bytes.len() - from);
            out[..len].copy_from_slice(&bytes[from..from + len]);
            (evidence.bytes, evidence.offset) = (len as u64, *offset);
        }
        ObjectVerb::Extents { range, .. } => {
            let there = range.intersect(&Range { offset: 0, len: size });
            evidence.extents.extend(there.map(|range| Extent { range, kind: ExtentKind::Data, target: 0 }));
        }
        _ => return Err(Error::internal("not an operation that reads")),
    }
    Ok(evidence)
}

/// Evidence of one operation, at its place among others.
struct At(usize, Arc<dyn Sink>);

impl Sink for At {
    fn complete(&self, _: usize, evidence: Result<Evidence>) {
        self.1.complete(self.0, evidence);
    }
}

impl Backend for Front {
    fn capability(&self) -> &Capability {
        self.targets.capability()
    }

    fn capability_of(&self, object: ObjectId) -> Capability {
        self.targets.capability_of(object)
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        for (index, (op, mut memory)) in ops.into_iter().enumerate() {
            let reads = matches!(op.verb, ObjectVerb::Read { .. } | ObjectVerb::Extents { .. });
            let evidence = match reads.then(|| self.find(cx, op.object)) {
                None | Some(Ok(None)) => {
                    self.targets.submit(cx, vec![(op, memory)], Arc::new(At(index, sink.clone())));
                    continue;
                }
                Some(Ok(Some(Elsewhere::InRecord(bytes)))) => answer(&op.verb, &bytes, &mut memory),
                Some(Ok(Some(Elsewhere::Nowhere))) => answer(&op.verb, &[], &mut memory),
                Some(Err(e)) => Err(e),
            };
            sink.complete(index, evidence);
        }
    }
}
