//! What targets could not do when it was asked of them, and still have to.

use iov_store::OpCx;
use iov_types::{
    Kind, ObjectVerb, Outcome, Result, Uuid, Which,
    catalog::{CatalogOp, CatalogReply},
};

use crate::{
    Service,
    batch::{self, is_away},
    keys,
    patience::{GLANCE_NS, PATIENCE_NS, peace_for, until},
    redo::{self, Redo},
    service::Writer,
    targets::op,
};

/// Longest that whoever writes goes on with what others have left to do.
const TURN_NS: i64 = 2 * PATIENCE_NS;

/// Whether an operation may ask a target for a collection.
fn asks_for(op: &CatalogOp, collection: Uuid) -> bool {
    use CatalogOp::{Close, MoveOut, Open, Publish, Seal, SetAttr, Truncate, Write};
    match op {
        Close { uuid, .. } | MoveOut { uuid, .. } | Publish { uuid, .. } | Seal { uuid, .. } => *uuid == collection,
        SetAttr { uuid, .. } | Truncate { uuid, .. } | Write { uuid, .. } => *uuid == collection,
        Open { which, .. } => *which == Which::Uuid(collection),
        _ => false,
    }
}

impl Service {
    /// Removes objects whose records are gone. What a target cannot remove now is tried again later: nobody needs it gone.
    pub(crate) fn remove_objects(&self, writer: &mut Writer, cx: &OpCx) {
        let begun_ns = self.core.monotonic_ns();
        let objects = std::mem::take(&mut writer.remove).into_iter();
        let objects = objects.map(|object| (self.core.map().waited_for_at_object(object), object));
        let (left, objects): (Vec<_>, Vec<_>) = objects.partition(|(at, _)| writer.keeps.rests(at, begun_ns));
        writer.remove.extend(left.into_iter().map(|(_, object)| object));
        let ops = objects.iter().map(|(_, object)| op(*object, ObjectVerb::Remove, 0)).collect();
        let results = self.core.targets().run(&until(cx, PATIENCE_NS), ops);
        let now_ns = self.core.monotonic_ns();
        for ((at, _), _) in objects.iter().zip(&results).filter(|(_, result)| !result.as_ref().is_err_and(is_away)) {
            writer.keeps.goes_on(at);
        }
        let mut shared = self.core.shared_mut();
        for ((at, object), result) in objects.into_iter().zip(results) {
            match result {
                Err(e) if e.kind() != Kind::NotFound => {
                    if e.kind() == Kind::Timeout {
                        writer.keeps.hangs(&at, now_ns.saturating_sub(begun_ns), now_ns);
                    }
                    writer.remove.push(object);
                }
                // Removing what is not there is done.
                _ => {
                    writer.lazy.push((keys::removed(object.collection), None));
                    shared.being_removed.remove(&object.collection);
                }
            }
        }
    }

    /// Goes on with what could not be finished before. What others may be waiting for is tried each time, unless a target has just kept everybody waiting; objects that
    /// nobody has any more are not, so that whoever writes does not pay for a target that is away.
    pub(crate) fn settle(&self, writer: &mut Writer, cx: &OpCx) {
        if !(writer.redo.is_empty() && writer.thaw.is_empty()) {
            // Whoever has little time has half of it for what is his.
            self.finish(writer, &until(cx, TURN_NS.min(cx.left_ns() / 2)));
        }
        if self.core.monotonic_ns() < writer.again_ns {
            return;
        }
        let begun_ns = self.core.monotonic_ns();
        self.clear_away(writer, cx);
        let now_ns = self.core.monotonic_ns();
        let took_ns = now_ns.saturating_sub(begun_ns);
        if took_ns > GLANCE_NS || (!writer.remove.is_empty() && self.core.map().has_elsewhere()) {
            writer.again_ns = now_ns.saturating_add(peace_for(took_ns));
        }
    }

    /// The same before operations that may ask a target for something which a committed batch has frozen there: they would wait for that, and that
    /// for the catalog.
    pub(crate) fn settle_for(&self, writer: &mut Writer, cx: &OpCx, ops: &[CatalogOp]) {
        self.settle(writer, cx);
        let owes =
            |redo: &Redo| redo.record.publish.iter().any(|owed| ops.iter().any(|op| asks_for(op, owed.collection)));
        redo::finish_needed(self, writer, cx, owes);
    }

    /// As [`Service::settle`], however short ago it was tried.
    pub(crate) fn settle_now(&self, writer: &mut Writer, cx: &OpCx) {
        writer.hung.may_be_back();
        writer.keeps.may_be_back();
        writer.frozen.may_be_back();
        self.finish(writer, cx);
        self.clear_away(writer, cx);
    }

    fn finish(&self, writer: &mut Writer, cx: &OpCx) {
        if !writer.redo.is_empty() {
            redo::finish(self, writer, cx, None);
        }
        if !writer.thaw.is_empty() {
            batch::thaw_all(self, writer, cx);
        }
    }

    /// Seals at targets what operations that stand each by itself have sealed, and tells those for which that is still to be done.
    pub(crate) fn seal_now(
        &self,
        writer: &mut Writer,
        cx: &OpCx,
        (redo, at): (Redo, Vec<usize>),
        replies: &mut [Result<CatalogReply>],
    ) {
        let (batch, seals) = (redo.batch, redo.record.seal.clone());
        writer.redo.push(redo);
        let failed = redo::finish(self, writer, cx, Some(batch));
        let left: Vec<_> = writer.redo.iter().filter(|redo| redo.batch == batch).flat_map(|r| &r.record.seal).collect();
        for (at, seal) in at.into_iter().zip(&seals).filter(|(_, seal)| left.contains(seal)) {
            let targets = self.core.map().waited_for_at(seal.place);
            if let Some((_, e)) = failed.iter().find(|(of, _)| *of == targets).or(failed.first()) {
                let why = "the seal holds; a target could not be told yet, which is tried again";
                replies[at] = Err(e.clone().with_outcome(Outcome::Applied).context(why));
            }
        }
    }

    fn clear_away(&self, writer: &mut Writer, cx: &OpCx) {
        let left_over = self.core.targets().take_left_over();
        if !left_over.is_empty() {
            self.core.targets().remove(&until(cx, PATIENCE_NS), left_over);
        }
        if !writer.remove.is_empty() {
            self.remove_objects(writer, cx);
        }
    }
}
