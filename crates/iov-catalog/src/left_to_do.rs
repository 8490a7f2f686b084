//! What targets could not do when it was asked of them, and still have to.

use iov_store::OpCx;
use iov_types::{Kind, ObjectVerb};

use crate::{Service, batch, keys, service::Writer, targets::op};

/// How often it is tried again to remove what a target of another daemon keeps from being removed, unless that is back.
const AGAIN_NS: i64 = 2_000_000_000;

impl Service {
    /// Removes objects whose records are gone. What a target cannot remove now is tried again later.
    pub(crate) fn remove_objects(&self, writer: &mut Writer, cx: &OpCx) {
        let objects = std::mem::take(&mut writer.remove);
        let ops = objects.iter().map(|object| op(*object, ObjectVerb::Remove, 0)).collect();
        let results = self.core.targets().run(cx, ops);
        let mut shared = self.core.shared_mut();
        for (object, result) in objects.into_iter().zip(results) {
            // Removing what is not there is done.
            if result.err().is_none_or(|e| e.kind() == Kind::NotFound) {
                writer.lazy.push((keys::removed(object.collection), None));
                shared.being_removed.remove(&object.collection);
            } else {
                writer.remove.push(object);
            }
        }
    }

    /// Goes on with what could not be finished before. What others may be waiting for is tried each time, unless a target has just kept everybody waiting; objects that
    /// nobody has any more are not, so that whoever writes does not pay for a target that is away.
    pub(crate) fn settle(&self, writer: &mut Writer, cx: &OpCx) {
        if self.core.monotonic_ns() >= writer.redo_again_ns {
            self.finish(writer, cx);
        }
        if self.core.monotonic_ns() < writer.again_ns {
            return;
        }
        self.clear_away(writer, cx);
        if !writer.remove.is_empty() && self.core.map().has_elsewhere() {
            writer.again_ns = self.core.monotonic_ns().saturating_add(AGAIN_NS);
        }
    }

    /// The same, however short ago it was tried.
    pub(crate) fn settle_now(&self, writer: &mut Writer, cx: &OpCx) {
        self.finish(writer, cx);
        self.clear_away(writer, cx);
    }

    fn finish(&self, writer: &mut Writer, cx: &OpCx) {
        if !writer.redo.is_empty() {
            let hangs = batch::finish(self, writer, cx).is_some_and(|e| e.kind() == Kind::Timeout);
            writer.redo_again_ns = if hangs { self.core.monotonic_ns().saturating_add(AGAIN_NS) } else { 0 };
        }
        if !writer.thaw.is_empty() {
            batch::thaw_all(self, writer, cx);
        }
    }

    fn clear_away(&self, writer: &mut Writer, cx: &OpCx) {
        let left_over = self.core.targets().take_left_over();
        if !left_over.is_empty() {
            self.core.targets().remove(cx, left_over);
        }
        if !writer.remove.is_empty() {
            self.remove_objects(writer, cx);
        }
    }
}
