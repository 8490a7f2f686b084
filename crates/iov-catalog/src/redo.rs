//! What committed batches have still to do at targets.
//!
//! Behind point P it is owed, whatever a target says, and stays on the list until it is done. So nothing is done twice over in one
//! place for what could not be done in another; and no target, nor any batch, keeps others waiting for long.

use std::collections::HashMap;

use bytes::Bytes;
use iov_store::{OpCx, seam};
use iov_types::{Clause, Error, Evidence, Kind, ObjectVerb, Outcome, Place, Result, Uuid};
use iov_wire::Wire;

use crate::{
    Service,
    batch::is_away,
    exec::Mode,
    keys,
    map::HERE,
    patience::{Failing, GLANCE_NS, PATIENCE_NS, until},
    record::{BatchRecord, Staging},
    service::Writer,
    targets::op,
};

/// How long targets are waited for in vain in one round: those that hang are left alone in the next, which gets to others.
const LOST_NS: i64 = 2 * PATIENCE_NS;

/// A committed batch of which something is still to be done at targets.
pub(crate) struct Redo {
    pub(crate) batch: Uuid,
    /// What of it is done is no more in it.
    pub(crate) record: BatchRecord,
    /// Collections whose mtime the batch set: it holds against the time of the publication.
    pub(crate) mtime_set: Vec<Uuid>,
    /// It was committed a while ago: collections may have been deleted since.
    pub(crate) late: bool,
}

/// What could not be done, and at which targets; none: in the store.
pub(crate) type Failed = (Vec<u32>, Error);

/// What a target said of something, which corrects its record.
type Fix = (Uuid, Uuid, Evidence);

/// Publishes and seals what committed batches still have to, as far as it can be done until the deadline; what failed stays on the
/// list. `own`: what this batch has to alone, for which its client waits. Of it, something is left if and only if something failed.
pub(crate) fn finish(service: &Service, writer: &mut Writer, cx: &OpCx, own: Option<Uuid>) -> Vec<Failed> {
    let mut unpublished = HashMap::new();
    for owed in writer.redo.iter().flat_map(|redo| &redo.record.publish) {
        *unpublished.entry(owed.collection).or_default() += 1;
    }
    let mut round = Round {
        service,
        cx,
        is_own: own.is_some(),
        is_fresh: false,
        unpublished,
        failing: Failing::default(),
        lost_ns: 0,
        failed: Vec::new(),
    };
    let (mut left, mut hung) = (Vec::new(), Vec::new());
    for mut redo in std::mem::take(&mut writer.redo) {
        if own.is_some_and(|own| own != redo.batch) {
            left.push(redo);
            continue;
        }
        let lost_ns = round.lost_ns;
        if !round.one(writer, &mut redo) {
            redo.late = true;
            // Those behind it come first in the next round.
            if round.lost_ns > lost_ns { hung.push(redo) } else { left.push(redo) }
        } else {
            let value = (redo.record.expires_ns != 0).then(|| Bytes::from(redo.record.to_bytes()));
            writer.lazy.push((keys::batch(redo.batch), value));
        }
    }
    left.append(&mut hung);
    writer.redo = left;
    if round.is_own && round.failed.is_empty() && writer.redo.iter().any(|redo| own == Some(redo.batch)) {
        round.failed.push((Vec::new(), Error::timeout("what comes before it has taken too long")));
    }
    round.failed
}

/// Goes on with batches that somebody needs, where whoever wrote before has left their targets alone.
pub(crate) fn finish_needed(service: &Service, writer: &mut Writer, cx: &OpCx, is_needed: impl Fn(&Redo) -> bool) {
    if writer.redo.is_empty() {
        return;
    }
    let now_ns = service.core.monotonic_ns();
    let rests = |owed: &Staging| writer.hung.rests(&service.core.map().waited_for_at(owed.place), now_ns);
    let is_left_alone = |redo: &&Redo| redo.record.publish.iter().chain(&redo.record.seal).any(rests);
    let needed = writer.redo.iter().filter(is_left_alone).filter(|redo| is_needed(redo));
    for batch in needed.map(|redo| redo.batch).collect::<Vec<_>>() {
        finish(service, writer, cx, Some(batch));
    }
}

/// One way through the list.
struct Round<'a> {
    service: &'a Service,
    cx: &'a OpCx,
    is_own: bool,
    /// Its client has just committed it, and waits for its answer.
    is_fresh: bool,
    /// How many batches have still to publish a collection: it is sealed behind that.
    unpublished: HashMap<Uuid, usize>,
    failing: Failing,
    /// For how long targets were waited for in vain.
    lost_ns: i64,
    failed: Vec<Failed>,
}

impl Round<'_> {
    /// Does what it can of what a batch still has to; whether that was all.
    fn one(&mut self, writer: &mut Writer, redo: &mut Redo) -> bool {
        self.is_fresh = self.is_own && !redo.late;
        let mut owed = redo.record.publish.iter().chain(&redo.record.seal).map(|owed| self.targets(owed.place));
        if !self.is_own && owed.all(|at| self.rests(writer, &at) || self.failing.is_away(&at)) {
            return false;
        }
        if let Err(e) = forget_removed(self.service, redo) {
            self.failed.push((Vec::new(), e));
            return false;
        }
        let owed = (redo.record.publish.clone(), redo.record.seal.clone());
        let mut fixes = self.publish(writer, redo);
        fixes.append(&mut self.seal(writer, redo));
        if let Err(e) = fix(self.service, writer, self.cx, fixes) {
            // To be asked once more what was done, which does it no more.
            (redo.record.publish, redo.record.seal) = owed;
            self.failed.push((Vec::new(), e));
        }
        redo.record.publish.is_empty() && redo.record.seal.is_empty()
    }

    fn publish(&mut self, writer: &mut Writer, redo: &mut Redo) -> Vec<Fix> {
        let (mut fixes, stage) = (Vec::new(), redo.batch);
        let all = std::mem::take(&mut redo.record.publish).into_iter().map(|owed| (self.targets(owed.place), owed));
        let (resting, awake): (Vec<_>, Vec<_>) = all.partition(|(at, _)| self.rests(writer, at));
        // Nobody waits for those that hang before the others are done.
        for (hangs, all) in [(false, awake), (true, resting)] {
            let is_asked = |at: &[u32]| (!hangs || self.is_own) && !self.failing.is_away(at);
            let (asked, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|(at, _)| is_asked(at));
            redo.record.publish.extend(left.into_iter().map(|(_, owed)| owed));
            // What is published may be long.
            let patience_ns = match (self.is_fresh, hangs) {
                (true, false) => i64::MAX,
                (true, true) | (false, false) => PATIENCE_NS,
                (false, true) => GLANCE_NS,
            };
            let Some(cx) = self.asking(patience_ns).filter(|_| !asked.is_empty()) else {
                redo.record.publish.extend(asked.into_iter().map(|(_, owed)| owed));
                continue;
            };
            let verb = || ObjectVerb::Publish { stage };
            let ops = asked.iter().map(|(_, owed)| op(owed.place.whole(owed.collection), verb(), 0)).collect();
            let begun_ns = seam::monotonic_ns();
            let answers = self.service.core.targets().run(&cx, ops);
            let waited = Waited::since(begun_ns, &cx);
            for ((at, _), answer) in asked.iter().zip(&answers) {
                self.note(writer, at, answer.as_ref().err());
            }
            let mut late_ns = 0;
            for ((at, owed), answer) in asked.into_iter().zip(answers) {
                match answer {
                    Ok(evidence) if redo.mtime_set.contains(&owed.collection) => {
                        fixes.push((owed.ws, owed.collection, evidence));
                    }
                    Ok(_) => {}
                    Err(e) if e.kind() == Kind::NotFound => {} // deleted meanwhile
                    // It is shown, and will never be durable: who committed it has heard so, and who uses it does.
                    Err(e) if redo.late && e.clause() == Some(Clause::P8) && e.outcome() == Outcome::Applied => {}
                    Err(e) => {
                        if self.fails(writer, at, e, waited) {
                            late_ns = waited.ns;
                        }
                        redo.record.publish.push(owed);
                        continue;
                    }
                }
                if let Some(times) = self.unpublished.get_mut(&owed.collection) {
                    *times = times.saturating_sub(1);
                }
            }
            self.lost_ns += late_ns;
        }
        fixes
    }

    fn seal(&mut self, writer: &mut Writer, redo: &mut Redo) -> Vec<Fix> {
        let (mut fixes, mut late) = (Vec::new(), Vec::new());
        for owed in std::mem::take(&mut redo.record.seal) {
            let at = self.targets(owed.place);
            let hangs = self.rests(writer, &at);
            let is_unpublished = self.unpublished.get(&owed.collection).is_some_and(|times| *times > 0);
            let waits = is_unpublished || (hangs && !self.is_own) || self.failing.is_away(&at);
            let patience_ns = match hangs {
                true => GLANCE_NS,
                // Who has it by a grant may be asked for it, and a long file is read.
                false if self.is_fresh => i64::MAX,
                false => PATIENCE_NS,
            };
            let Some(cx) = self.asking(patience_ns).filter(|_| !waits) else {
                redo.record.seal.push(owed);
                continue;
            };
            let begun_ns = seam::monotonic_ns();
            let sealed = self.service.core.targets().seal(&cx, owed.ws, owed.place.whole(owed.collection), 0);
            self.note(writer, &at, sealed.as_ref().err());
            match sealed {
                Ok(evidence) => fixes.push((owed.ws, owed.collection, evidence)),
                Err(e) => {
                    let waited = Waited::since(begun_ns, &cx);
                    // What stands behind it comes first in the next round.
                    match self.fails(writer, at, e, waited) {
                        true => {
                            self.lost_ns += waited.ns;
                            late.push(owed);
                        }
                        false => redo.record.seal.push(owed),
                    }
                }
            }
        }
        redo.record.seal.append(&mut late);
        fixes
    }

    fn targets(&self, place: Place) -> Vec<u32> {
        self.service.core.map().waited_for_at(place)
    }

    fn rests(&self, writer: &Writer, targets: &[u32]) -> bool {
        !self.is_spared(targets) && writer.hung.rests(targets, self.service.core.monotonic_ns())
    }

    /// At the catalog's own targets somebody else may be at work on the same object: who asks for something there waits as long as he likes.
    fn is_spared(&self, targets: &[u32]) -> bool {
        self.is_fresh && *targets == HERE
    }

    /// By what a target is asked that is waited for so long; `None`: it takes too long already.
    fn asking(&self, patience_ns: i64) -> Option<OpCx> {
        let cx = until(self.cx, patience_ns);
        Some(cx).filter(|cx| cx.left_ns() > 0 && self.lost_ns < LOST_NS)
    }

    /// A target has answered, unless it could not be asked.
    fn note(&self, writer: &mut Writer, targets: &[u32], failed: Option<&Error>) {
        if failed.is_some_and(is_away) {
            return;
        }
        if self.is_own {
            writer.hung.answer(targets, self.service.core.monotonic_ns());
        } else {
            writer.hung.goes_on(targets);
        }
    }

    /// Whether it was waited for in vain.
    fn fails(&mut self, writer: &mut Writer, targets: Vec<u32>, e: Error, waited: Waited) -> bool {
        let late = e.kind() == Kind::Timeout || (is_away(&e) && waited.ns > GLANCE_NS);
        if is_away(&e) {
            self.failing.at(&targets, late);
        }
        let now_ns = self.service.core.monotonic_ns();
        // A glance at one that rests says nothing of one that is slow.
        if late && waited.is_fair && !writer.hung.rests(&targets, now_ns.saturating_sub(waited.ns)) {
            writer.hung.hangs(&targets, waited.ns, now_ns);
        }
        self.failed.push((targets, e));
        late
    }
}

/// For how long a target was waited for.
#[derive(Clone, Copy)]
struct Waited {
    ns: i64,
    /// It had the time to answer: it is not the asker who was in a hurry.
    is_fair: bool,
}

impl Waited {
    fn since(begun_ns: i64, cx: &OpCx) -> Waited {
        let ns = seam::monotonic_ns().saturating_sub(begun_ns).max(1);
        Waited { ns, is_fair: cx.deadline_ns.saturating_sub(begun_ns) >= PATIENCE_NS / 2 }
    }
}

/// A target would make an object anew for a collection that was deleted meanwhile.
fn forget_removed(service: &Service, redo: &mut Redo) -> Result<()> {
    if !redo.late {
        return Ok(());
    }
    let BatchRecord { publish, seal, .. } = &mut redo.record;
    for owed in [publish, seal] {
        let keys: Vec<_> = owed.iter().map(|s: &Staging| keys::record(s.ws, s.collection)).collect();
        let found = service.core.store().get(&keys.iter().map(|key| &key[..]).collect::<Vec<_>>())?;
        let mut found = found.into_iter();
        owed.retain(|_| found.next().is_some_and(|record| record.is_some()));
    }
    Ok(())
}

/// Corrects records by what targets said behind P: a write may have slipped in between publication and seal, and a time
/// that was set holds against the publication's own.
fn fix(service: &Service, writer: &mut Writer, cx: &OpCx, fixes: Vec<Fix>) -> Result<()> {
    if fixes.is_empty() {
        return Ok(());
    }
    let mut x = service.start(writer, cx, Uuid::NIL, Mode::Each);
    for (ws, uuid, evidence) in fixes {
        let Ok(at) = x.workspace_of_handle(ws) else { continue };
        let Ok(mut record) = x.any_record(ws, uuid) else { continue };
        if evidence.size != record.size {
            let mtime_ns = record.mtime_ns;
            // The quota had its say before P.
            let _ = x.record_bytes_of(at, &mut record, &evidence);
            record.mtime_ns = mtime_ns;
        }
        record.mtime_base_ns = evidence.mtime_ns;
        record.changed_ns = record.changed_ns.max(evidence.mtime_ns);
        x.put_record(ws, uuid, &mut record);
    }
    let committed = service.commit(writer, &mut x, false);
    service.recycle(writer, x);
    committed
}
