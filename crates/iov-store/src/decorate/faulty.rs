//! A target that fails when it is told to.

use std::sync::{Arc, Mutex, PoisonError};

use iov_types::{Capability, Error, Outcome, VerbKind};

use super::tap;
use crate::{Backend, OpCx, Sink, backend::Submitted, seam};

/// Whether the operation has taken effect when its fault strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// It never reaches the target.
    Before,
    /// The target has carried it out, but nobody hears so.
    After,
}

/// What a fault does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// The operation fails with this error, which carries the outcome that the caller shall believe.
    Fail(When, Error),
    /// Everything submitted with it waits so many nanoseconds first.
    Delay(u64),
    /// The target dies: the operation and every later one fail as unavailable, and the later ones have no effect.
    Die(When),
}

/// A fault that strikes once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which operations count; `None` = all.
    pub verb: Option<VerbKind>,
    /// Which of them it strikes, from its arming on; the first is 1.
    pub nth: u64,
    /// What happens then.
    pub action: Action,
}

#[derive(Default)]
struct State {
    faults: Vec<Fault>,
    dead: bool,
}

/// A target with faults, which tests arm while it is in use.
pub struct Faulty {
    inner: Arc<dyn Backend>,
    state: Mutex<State>,
}

/// The end of an operation that the decorator decides.
enum Verdict {
    Pass,
    /// Not passed on.
    Never(Error),
    /// Passed on, whatever comes back.
    Hidden(Error),
}

pub(super) fn dead(outcome: Outcome) -> Error {
    Error::unavailable("the target is gone; repeat later, with the same batch id").with_outcome(outcome)
}

impl Faulty {
    /// A target without a fault so far.
    pub fn new(inner: Arc<dyn Backend>) -> Faulty {
        Faulty { inner, state: Mutex::default() }
    }

    /// Adds a fault.
    pub fn arm(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    /// Takes back all faults that have not struck.
    pub fn disarm(&self) {
        self.lock().faults.clear();
    }

    /// How many faults have not struck yet.
    pub fn armed(&self) -> usize {
        self.lock().faults.len()
    }

    /// Dies now.
    pub fn die(&self) {
        self.lock().dead = true;
    }

    /// Comes back with the state that its target has.
    pub fn revive(&self) {
        self.lock().dead = false;
    }

    /// Whether it is dead.
    pub fn is_dead(&self) -> bool {
        self.lock().dead
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Decides about one operation, and adds to the delay of its submission.
    fn judge(&mut self, verb: VerbKind, delay_ns: &mut u64) -> Verdict {
        if self.dead {
            return Verdict::Never(dead(Outcome::NotApplied));
        }
        let mut verdict = Verdict::Pass;
        let mut struck = Vec::new();
        self.faults.retain_mut(|fault| {
            if fault.verb.is_some_and(|v| v != verb) {
                return true;
            }
            if fault.nth > 1 {
                fault.nth -= 1;
                return true;
            }
            struck.push(fault.action.clone());
            false
        });
        for action in struck {
            verdict = match action {
                Action::Delay(ns) => {
                    *delay_ns += ns;
                    continue;
                }
                Action::Fail(When::Before, error) => Verdict::Never(error),
                Action::Fail(When::After, error) => Verdict::Hidden(error),
                Action::Die(when) => {
                    self.dead = true;
                    let error = dead(Outcome::Unknown);
                    if when == When::Before { Verdict::Never(error) } else { Verdict::Hidden(error) }
                }
            };
        }
        verdict
    }
}

impl Backend for Faulty {
    fn capability(&self) -> &Capability {
        self.inner.capability()
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        let (mut passed, mut ends, mut never, mut delay_ns) = (Vec::new(), Vec::new(), Vec::new(), 0);
        {
            let mut state = self.lock();
            for (index, (op, memory)) in ops.into_iter().enumerate() {
                let hidden = match state.judge(op.verb.kind(), &mut delay_ns) {
                    Verdict::Pass => None,
                    Verdict::Hidden(error) => Some(error),
                    Verdict::Never(error) => {
                        never.push((index, error));
                        continue;
                    }
                };
                passed.push((op, memory));
                ends.push((index, hidden));
            }
        }
        if delay_ns > 0 {
            seam::sleep(delay_ns);
            if self.is_dead() {
                // It died while these were on their way.
                never.extend(ends.drain(..).map(|(index, _)| (index, dead(Outcome::NotApplied))));
                passed.clear();
            }
        }
        for (index, error) in never {
            sink.complete(index, Err(error));
        }
        let sink = tap(move |at, evidence| {
            let (index, hidden) = &ends[at];
            sink.complete(*index, hidden.clone().map_or(evidence, Err));
        });
        if !passed.is_empty() {
            self.inner.submit(cx, passed, sink);
        }
    }
}
