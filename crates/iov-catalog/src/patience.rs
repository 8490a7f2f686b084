//! How long everybody waits for a target that does not answer, and for how long it is left alone then.
//!
//! Writers of facts take turns: whoever waits for a target while it is his turn has all others wait, too.

use iov_store::{OpCx, seam};

/// How long a target is waited for that does not answer. One that is slow is done with it when it is asked the next time.
pub(crate) const PATIENCE_NS: i64 = 2_000_000_000;
/// The same of one that has lately been waited for in vain: whoever needs it himself finds out whether it is back, at others' cost.
pub(crate) const GLANCE_NS: i64 = 200_000_000;
/// It is left alone for so many times as long as it has been waited for, …
const PEACE: i64 = 10;
/// … and for so long at least and at most.
const PEACE_NS: (i64, i64) = (2_000_000_000, 60_000_000_000);
/// Once so many could not be done at the same targets, no other is tried there in the same round: they are away, and not a file damaged.
const FAILURES: u32 = 2;

/// The same context, for so long at most.
pub(crate) fn until(cx: &OpCx, ns: i64) -> OpCx {
    OpCx { deadline_ns: cx.deadline_ns.min(seam::monotonic_ns().saturating_add(ns)), ..cx.clone() }
}

/// How long others are let in after a target was waited for in vain.
pub(crate) fn peace_for(lost_ns: i64) -> i64 {
    lost_ns.saturating_mul(PEACE).clamp(PEACE_NS.0, PEACE_NS.1)
}

/// What lies at the latter targets needs all of the former.
fn are_among(some: &[u32], targets: &[u32]) -> bool {
    some.iter().all(|number| targets.contains(number))
}

/// At which targets something could not be done in a round, and how often.
#[derive(Default)]
pub(crate) struct Failing(Vec<(Vec<u32>, u32)>);

impl Failing {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether nothing can be done that lies at these targets, or perhaps not all of it.
    pub(crate) fn is_away(&self, targets: &[u32]) -> bool {
        self.0.iter().any(|(of, times)| *times >= FAILURES && are_among(of, targets))
    }

    /// Something could not be done there; `late`: there was no answer in time.
    pub(crate) fn at(&mut self, targets: &[u32], late: bool) {
        if targets.is_empty() {
            return;
        }
        let times = if late { FAILURES } else { 1 };
        match self.0.iter_mut().find(|(of, _)| *of == targets) {
            Some((_, all)) => *all = all.saturating_add(times),
            None => self.0.push((targets.to_vec(), times)),
        }
    }
}

/// Targets that were waited for in vain, and are left alone for longer each time: others are let in meanwhile.
#[derive(Default)]
pub(crate) struct Hung(Vec<Hangs>);

struct Hangs {
    at: Vec<u32>,
    /// For how long it has been waited for.
    lost_ns: i64,
    until_ns: i64,
    /// When that was found.
    noted_ns: i64,
}

impl Hung {
    /// Whether some of these targets are left alone for now.
    pub(crate) fn rests(&self, targets: &[u32], now_ns: i64) -> bool {
        self.0.iter().any(|hangs| hangs.until_ns > now_ns && are_among(&hangs.at, targets))
    }

    /// There was no answer for so long.
    pub(crate) fn hangs(&mut self, targets: &[u32], lost_ns: i64, now_ns: i64) {
        if targets.is_empty() {
            return;
        }
        let known = self.0.iter().position(|hangs| hangs.at == targets);
        let at = known.unwrap_or_else(|| {
            self.0.push(Hangs { at: targets.to_vec(), lost_ns: 0, until_ns: 0, noted_ns: 0 });
            self.0.len() - 1
        });
        let hangs = &mut self.0[at];
        // Of several things that were waited for at the same time, one counts.
        if hangs.lost_ns > 0 && hangs.noted_ns > now_ns.saturating_sub(lost_ns) {
            return;
        }
        hangs.noted_ns = now_ns;
        hangs.lost_ns = hangs.lost_ns.saturating_add(lost_ns.max(0));
        hangs.until_ns = hangs.until_ns.max(now_ns.saturating_add(peace_for(hangs.lost_ns)));
    }

    /// It goes on with what was left to do there.
    pub(crate) fn goes_on(&mut self, targets: &[u32]) {
        self.0.retain(|hangs| !are_among(&hangs.at, targets));
    }

    /// They have done something else. What was left to do is tried soon: not at once, as it may be that alone which hangs.
    pub(crate) fn answer(&mut self, targets: &[u32], now_ns: i64) {
        for hangs in self.0.iter_mut().filter(|hangs| are_among(&hangs.at, targets)) {
            hangs.lost_ns = 0;
            hangs.until_ns = hangs.until_ns.min(now_ns.saturating_add(PEACE * PATIENCE_NS));
        }
    }

    /// Any of them may be back.
    pub(crate) fn may_be_back(&mut self) {
        self.0.iter_mut().for_each(|hangs| hangs.until_ns = 0);
    }
}

#[cfg(test)]
mod tests;
